"""The array form's kernels (numba). Transactions are numbered session by session: `t - first[s]` is the position.

Take an external read of x by t3 from t1, and a guess of the commit order (`rank`, topological for `so u wr`). Only
writers of x that the guess puts between t1 and t3 can break it. One of them for which the level's condition holds must
commit before t1: a *necessary* edge, whatever the guess. If there is none, the guess is a commit order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from whence.audit.history.model import INIT, NOTHING, Bytes, Ints, Longs

P = ParamSpec("P")
R = TypeVar("R")

INTERNAL, READ, FINAL, OVERWRITTEN = 0, 1, 2, 3
THIN, ABORTED, FUTURE, NOT_OWN, NOT_LAST, INTERMEDIATE, PARTIAL, DUPLICATE = 4, 5, 6, 7, 8, 9, 10, 11
"""What an operation is. READ: external; FINAL: the last write of its transaction to the key. From THIN on: bad reads.
The writer of an INTERMEDIATE read is known all the same; that of a PARTIAL one, which is the same of lists, is not."""

RC, RA, TCC = 0, 1, 2
SHORT: Final = 48
"""Operations of a transaction up to which looking back costs less than a table."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Machine code, made once and kept on disk."""
    return cast(Callable[P, R], cast(Any, numba.njit(cache=True, nogil=True))(function))


@compiled
def classify(begin: Longs, write: Bytes, key: Ints, value: Longs, what: Bytes, twice: Bytes) -> None:
    """Read consistency inside each transaction: fills `what` and `twice`. NOT_OWN is provisional."""
    total = begin.size - 1
    top = 0
    for t in range(total):
        if begin[t + 1] - begin[t] > SHORT:
            for i in range(begin[t], begin[t + 1]):
                top = max(top, key[i] + 1)
    last_write = np.full(top, -1, np.int64)
    last_read = np.full(top, -1, np.int64)
    for t in range(total):
        start, end = begin[t], begin[t + 1]
        long = end - start > SHORT
        for i in range(start, end):
            own, before = -1, -1
            if long:
                own, before = last_write[key[i]], last_read[key[i]]
                if own < start:
                    own = -1
                if before < start or before < own:
                    before = -1
            else:
                for j in range(i - 1, start - 1, -1):
                    if key[j] == key[i]:
                        if write[j]:
                            own = j
                            break
                        if before < 0:
                            before = j
            if write[i]:
                if own >= 0:
                    what[own] = OVERWRITTEN
                what[i] = FINAL
                if long:
                    last_write[key[i]] = i
                continue
            if before >= 0 and value[before] != value[i]:
                twice[i] = 1
            if own < 0:
                what[i] = READ
            elif value[own] == value[i]:
                what[i] = INTERNAL
            else:
                what[i] = NOT_OWN
            if long:
                last_read[key[i]] = i


@compiled
def slot(key: int, value: int, mask: int) -> int:
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(value) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= h >> np.uint64(29)
    return np.int64((h * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(20)) & mask  # type: ignore[return-value]


# -- by key: rows are brought together by key, so that what belongs together fits into a cache

BUCKET: Final = 1 << 13
"""Rows of a bucket, about: 21 bytes each and a table of 64 KiB fit into the second-level cache."""
BUCKETS: Final = 1 << 11
"""At most so many: each is a stream that is written to at the same time."""


class Buckets(NamedTuple):
    """Rows by bucket of keys, in each bucket in their old order."""

    start: Longs
    """Where each bucket begins; one more entry for all."""
    key: Ints
    value: Longs
    txn: Ints
    place: Ints
    """Which operation of the history it is."""
    kind: Bytes
    """What it is, as `kernels.classify` says; `match` says more of reads."""
    source: Ints
    """Of external reads: who wrote what they saw, after `match`."""


def exchange(begin: Longs, key: Ints, value: Longs, what: Bytes, keys: int) -> Buckets:
    """External reads and all writes of the history, by bucket."""
    count = 1
    while count < BUCKETS and count * BUCKET < key.size:
        count *= 2
    shift = 0
    while (max(1, keys) - 1) >> shift >= count:
        shift += 1
    start = _count(key, what, shift, ((max(1, keys) - 1) >> shift) + 1)
    made = empty(start)
    _move(begin, key, value, what, shift, start[:-1].copy(), made.key, made.value, made.txn, made.place, made.kind)
    return made


def empty(start: Longs) -> Buckets:
    """Room for rows."""
    size = int(start[-1])
    key, txn, place, source = (np.empty(size, np.int32) for _ in range(4))
    return Buckets(start, key, np.empty(size, np.int64), txn, place, np.empty(size, np.uint8), source)


@compiled
def _count(key: Ints, what: Bytes, shift: int, count: int) -> Longs:
    start = np.zeros(count + 1, np.int64)
    for i in range(key.size):
        if what[i] != INTERNAL:
            start[(key[i] >> shift) + 1] += 1
    for b in range(count):
        start[b + 1] += start[b]
    return start


@compiled
def _move(
    begin: Longs, key: Ints, value: Longs, what: Bytes, shift: int, at: Longs, out_key: Ints, out_value: Longs,
    out_txn: Ints, out_place: Ints, out_kind: Bytes,
) -> None:  # fmt: skip
    for t in range(begin.size - 1):
        for i in range(begin[t], begin[t + 1]):
            if what[i] != INTERNAL:
                b = key[i] >> shift
                n = at[b]
                at[b] = n + 1
                out_key[n] = key[i]
                out_value[n] = value[i]
                out_txn[n] = t
                out_place[n] = i
                out_kind[n] = what[i]


@compiled
def match(
    start: Longs, key: Ints, value: Longs, txn: Ints, place: Ints, kind: Bytes, source: Ints, bad_key: Ints,
    bad_value: Longs, repeated: Longs,
) -> int:  # fmt: skip
    """The writer of every external read; classifies those that are wrong. `bad_*`: writes of aborted transactions.

    Of several writes of one value the first stays, unless only a later one is final. Returns how many are repeated; the
    places of the first of them are put into `repeated`.
    """
    largest = 0
    for b in range(start.size - 1):
        largest = max(largest, start[b + 1] - start[b])
    size = 16
    while size < 2 * largest:
        size *= 2
    table = np.empty(size, np.int32)
    count = 0
    for b in range(start.size - 1):
        low, high = start[b], start[b + 1]
        size = 16
        while size < 2 * (high - low):
            size *= 2
        mask = size - 1
        table[:size] = -1
        for n in range(low, high):
            if (kind[n] != FINAL and kind[n] != OVERWRITTEN) or value[n] == NOTHING:
                continue
            at = slot(key[n], value[n], mask)
            while table[at] >= 0 and (key[table[at]] != key[n] or value[table[at]] != value[n]):
                at = (at + 1) & mask
            if table[at] < 0:
                table[at] = n
                continue
            if count < repeated.size:
                repeated[count] = place[n]
            count += 1
            if kind[n] == FINAL and kind[table[at]] != FINAL:
                table[at] = n
        for n in range(low, high):
            source[n] = INIT
            if (kind[n] != READ and kind[n] != NOT_OWN) or value[n] == NOTHING:
                continue
            at = slot(key[n], value[n], mask)
            while table[at] >= 0 and (key[table[at]] != key[n] or value[table[at]] != value[n]):
                at = (at + 1) & mask
            w = table[at]
            if w < 0:
                kind[n] = THIN
                for j in range(bad_key.size):
                    if bad_key[j] == key[n] and bad_value[j] == value[n]:
                        kind[n] = ABORTED
            elif txn[w] == txn[n]:
                kind[n] = NOT_LAST if kind[n] == NOT_OWN else FUTURE
            elif kind[n] == READ:
                source[n] = txn[w]
                if kind[w] != FINAL:
                    kind[n] = INTERMEDIATE  # its writer is known all the same
    return count


def bring_back(rows: Buckets, what: Bytes, writer: Ints) -> None:
    """What `match` found, by operation."""
    reads = np.flatnonzero((rows.kind != FINAL) & (rows.kind != OVERWRITTEN))
    writer[rows.place[reads]] = rows.source[reads]
    what[rows.place[reads]] = rows.kind[reads]


class ByKey(NamedTuple):
    """The writers and the external reads of each key."""

    begin: Longs
    """Of each key: its first writer; one more entry for all."""
    writers: Ints
    """By number."""
    reader: Ints
    key: Ints
    at: Ints
    writer: Ints
    """External reads, by key."""


@compiled
def _sizes(key: Ints, kind: Bytes, writers: Longs, reads: Longs) -> None:
    for n in range(key.size):
        if kind[n] == FINAL:
            writers[key[n] + 1] += 1
        elif kind[n] == READ or kind[n] == INTERMEDIATE:
            reads[key[n] + 1] += 1
    for x in range(writers.size - 1):
        writers[x + 1] += writers[x]
        reads[x + 1] += reads[x]


@compiled
def _fill(
    key: Ints, txn: Ints, place: Ints, kind: Bytes, source: Ints, begin: Longs, to_writer: Longs, to_read: Longs,
    writers: Ints, reader: Ints, read_key: Ints, at: Ints, writer: Ints,
) -> None:  # fmt: skip
    for n in range(key.size):
        x = key[n]
        if kind[n] == FINAL:
            writers[to_writer[x]] = txn[n]
            to_writer[x] += 1
        elif kind[n] == READ or kind[n] == INTERMEDIATE:
            r = to_read[x]
            to_read[x] = r + 1
            reader[r] = txn[n]
            read_key[r] = x
            at[r] = place[n] - begin[txn[n]]
            writer[r] = source[n]


def group(rows: Buckets, begin: Longs, keys: int) -> ByKey:
    """The rows of each key together, after `match`."""
    writers, reads = np.zeros(keys + 1, np.int64), np.zeros(keys + 1, np.int64)
    _sizes(rows.key, rows.kind, writers, reads)
    size = int(reads[-1])
    made = ByKey(writers, np.empty(int(writers[-1]), np.int32), *(np.empty(size, np.int32) for _ in range(4)))
    _fill(
        rows.key, rows.txn, rows.place, rows.kind, rows.source, begin, writers[:-1].copy(), reads[:-1].copy(),
        made.writers, made.reader, made.key, made.at, made.writer,
    )  # fmt: skip
    return made


@compiled
def ranked(begin: Longs, writers: Ints, rank: Ints) -> Ints:
    """The writers of each key by rank."""
    out = writers.copy()
    for x in range(begin.size - 1):
        low, high = begin[x], begin[x + 1]
        if high - low > 24:
            out[low:high] = out[low:high][np.argsort(rank[out[low:high]])]
            continue
        for n in range(low + 1, high):
            t = out[n]
            mine = rank[t]
            i = n - 1
            while i >= low and rank[out[i]] > mine:
                out[i + 1] = out[i]
                i -= 1
            out[i + 1] = t
    return out


# -- lists


class Listed(NamedTuple):
    """What the operations on lists are, by operation."""

    what: Bytes
    twice: Bytes
    """1: differs from the read before it in its transaction (NonRepeatableRead)."""
    apart: Bytes
    """1: is no prefix of the longest list of its key (IncompatibleOrder)."""
    writer: Ints
    value: Longs
    """Of an append what it appends, of a read the last element."""
    versions: Ints
    """Neighbours in the longest list of a key. Rows: one, other, key."""
    repeated: Longs
    """Appends of a value that was appended to the key before."""


def judge_lists(
    begin: Longs, write: Bytes, key: Ints, offset: Longs, element: Longs, keys: int, aborted: tuple[Ints, Longs]
) -> Listed:
    """`offset`: where the elements of each operation begin; an append has one. `begin`: of each transaction."""
    size = key.size
    op_of = np.repeat(np.arange(size, dtype=np.int32), np.diff(offset))
    kind = np.where(write[op_of] == 1, FINAL, READ).astype(np.uint8)
    author = np.empty(op_of.size, np.int32)
    repeated = np.empty(op_of.size, np.int64)
    names = np.where(write[op_of] == 1, op_of, np.int32(-2)).astype(np.int32)  # so that `match` names the append
    whole = np.array([0, op_of.size], np.int64)
    count = match(whole, key[op_of], element, names, op_of, kind, author, *aborted, repeated)
    value = np.full(size, NOTHING, np.int64)
    full = np.flatnonzero(np.diff(offset) > 0)
    value[full] = element[offset[full + 1] - 1]
    txn = np.repeat(np.arange(begin.size - 1, dtype=np.int32), np.diff(begin))
    what, twice, apart = (np.zeros(size, np.uint8) for _ in range(3))
    writer = np.full(size, INIT, np.int32)
    position, many, before = (np.zeros(size, np.int32) for _ in range(3))
    _own(txn, write, key, offset, element, keys, what, twice, position, many, before)
    _judge_reads(txn, write, offset, element, author, kind, position, many, before, what, writer)
    longest = np.full(keys, -1, np.int64)
    pairs = _list_versions(txn, write, key, offset, element, author, what, longest, apart)
    return Listed(what, twice, apart, writer, value, pairs, repeated[:count])


@compiled
def _own(
    txn: Ints, write: Bytes, key: Ints, offset: Longs, element: Longs, keys: int, what: Bytes, twice: Bytes,
    position: Ints, many: Ints, before: Ints,
) -> None:  # fmt: skip
    """Appends of each transaction to each key: `position` among them, `many` of them; `before`: the last own append
    before an operation, plus one (0: none). FINAL is the last one."""
    last_append, last_read = np.full(keys, -1, np.int64), np.full(keys, -1, np.int64)
    for i in range(key.size):
        x = key[i]
        a, r = last_append[x], last_read[x]
        own = a >= 0 and txn[a] == txn[i]
        if own:
            before[i] = a + 1
        if write[i]:
            what[i] = FINAL
            if own:
                what[a] = OVERWRITTEN
                position[i] = position[a] + 1
            last_append[x] = i
            continue
        what[i] = INTERNAL if own else READ
        if r >= 0 and txn[r] == txn[i] and not (own and a > r):
            same = offset[i + 1] - offset[i] == offset[r + 1] - offset[r]
            n = 0
            while same and n < offset[i + 1] - offset[i]:
                same = element[offset[i] + n] == element[offset[r] + n]
                n += 1
            twice[i] = 0 if same else 1
        last_read[x] = i
    for i in range(key.size - 1, -1, -1):
        if write[i]:
            if what[i] == FINAL:
                many[i] = position[i] + 1
            if before[i]:
                many[before[i] - 1] = many[i]


@compiled
def _judge_reads(
    txn: Ints, write: Bytes, offset: Longs, element: Longs, author: Ints, kind: Bytes, position: Ints, many: Ints,
    before: Ints, what: Bytes, writer: Ints,
) -> None:  # fmt: skip
    seen = np.full(txn.size, -1, np.int32)
    for i in range(txn.size):
        if write[i]:
            continue
        wrong = _wrong_list(i, txn, offset, element, author, kind, position, many, before, seen)
        if wrong:
            what[i] = wrong
        elif what[i] == READ and offset[i + 1] > offset[i]:
            writer[i] = txn[author[offset[i + 1] - 1]]


@compiled
def _wrong_list(
    i: int, txn: Ints, offset: Longs, element: Longs, author: Ints, kind: Bytes, position: Ints, many: Ints,
    before: Ints, seen: Ints,
) -> int:  # fmt: skip
    """What is wrong with the list that operation i read; 0: nothing. `seen`: by append, the last read of it."""
    low, high = offset[i], offset[i + 1]
    double = False
    for f in range(low, high):
        a = author[f]
        if a < 0:
            return ABORTED if kind[f] == ABORTED else THIN
        if txn[a] == txn[i] and a > i:
            return FUTURE
        double = double or seen[a] == i
        seen[a] = i
    if double:
        return DUPLICATE
    mine = before[i]
    while mine:  # the list ends with the own appends so far
        if high == low or element[high - 1] != element[offset[mine - 1]]:
            last = offset[i + 1] - 1
            own = last >= low and txn[author[last]] == txn[i]
            return NOT_LAST if own else NOT_OWN
        high -= 1
        mine = before[mine - 1]
    f = low
    while f < high:  # whole transactions' appends
        a = author[f]
        if position[a] != 0 or f + many[a] > high:
            return PARTIAL
        for n in range(1, many[a]):
            b = author[f + n]
            if txn[b] != txn[a] or position[b] != n:
                return PARTIAL
        f += many[a]
    return 0


@compiled
def _list_versions(
    txn: Ints, write: Bytes, key: Ints, offset: Longs, element: Longs, author: Ints, what: Bytes, longest: Longs,
    apart: Bytes,
) -> Ints:  # fmt: skip
    for i in range(key.size):
        if not write[i] and what[i] != FUTURE:
            best = longest[key[i]]
            if best < 0 or offset[i + 1] - offset[i] > offset[best + 1] - offset[best]:
                longest[key[i]] = i
    for i in range(key.size):
        if not write[i] and what[i] != FUTURE:
            start = offset[longest[key[i]]]
            for n in range(offset[i + 1] - offset[i]):
                if element[offset[i] + n] != element[start + n]:
                    apart[i] = 1
                    break
    room = 0
    for x in range(longest.size):
        if longest[x] >= 0:
            room += offset[longest[x] + 1] - offset[longest[x]]
    out = np.empty((room, 3), np.int32)
    count = 0
    for x in range(longest.size):
        if longest[x] < 0:
            continue
        last = -1
        for f in range(offset[longest[x]], offset[longest[x] + 1]):
            if author[f] < 0:
                continue
            t = txn[author[f]]
            if last >= 0 and t != last:
                out[count, 0], out[count, 1], out[count, 2] = last, t, x
                count += 1
            last = t
    return out[:count]


# -- transactions


def external(begin: Longs, key: Ints, value: Longs, what: Bytes, writer: Ints) -> tuple[Ints, Ints, Ints, Ints, Longs]:
    """External reads whose writer is known, by reader: reader, operation, key, writer, value."""
    reads = np.flatnonzero((what == READ) | (what == INTERMEDIATE))
    reader = np.repeat(np.arange(begin.size - 1, dtype=np.int32), np.diff(begin))[reads]
    at = (reads - begin[reader]).astype(np.int32)
    return reader, at, key[reads], writer[reads], value[reads]


@compiled
def sort_pairs(one: Ints, other: Ints, total: int) -> tuple[Longs, Ints]:
    """Pairs by their first: where each first begins, and the others. Pairs from INIT are left out."""
    begin = np.zeros(total + 1, np.int64)
    for i in range(one.size):
        if one[i] >= 0:
            begin[one[i] + 1] += 1
    for t in range(total):
        begin[t + 1] += begin[t]
    out = np.empty(begin[total], np.int32)
    at = begin[:-1].copy()
    for i in range(one.size):
        if one[i] >= 0:
            out[at[one[i]]] = other[i]
            at[one[i]] += 1
    return begin, out


@compiled
def topological(first: Ints, session: Ints, begin: Longs, after: Ints, wish: Longs) -> Ints:
    """An order that keeps session order and the pairs, lowest wish first among those that are ready; shorter if there
    is a cycle. A heap of at most one transaction a session plus those that only wait for pairs."""
    total = session.size
    waits = np.zeros(total, np.int32)
    for i in range(after.size):
        waits[after[i]] += 1
    for t in range(total):
        if t > first[session[t]]:
            waits[t] += 1
    heap = np.empty(total + 1, np.int32)
    size = 0
    order = np.empty(total, np.int32)
    done = 0
    for t in range(total):
        if waits[t] == 0:
            size = _push(heap, size, t, wish)
    while size:
        t = heap[1]
        size = _pop(heap, size, wish)
        order[done] = t
        done += 1
        if t + 1 < total and session[t + 1] == session[t]:
            waits[t + 1] -= 1
            if waits[t + 1] == 0:
                size = _push(heap, size, t + 1, wish)
        for i in range(begin[t], begin[t + 1]):
            o = after[i]
            waits[o] -= 1
            if waits[o] == 0:
                size = _push(heap, size, o, wish)
    return order[:done]


@compiled
def _push(heap: Ints, size: int, t: int, wish: Longs) -> int:
    size += 1
    at = size
    while at > 1 and wish[heap[at >> 1]] > wish[t]:
        heap[at] = heap[at >> 1]
        at >>= 1
    heap[at] = t
    return size


@compiled
def _pop(heap: Ints, size: int, wish: Longs) -> int:
    t = heap[size]
    size -= 1
    at = 1
    while 2 * at <= size:
        child = 2 * at
        if child < size and wish[heap[child + 1]] < wish[heap[child]]:
            child += 1
        if wish[heap[child]] >= wish[t]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = t
    return size


def is_topological(session: Ints, reader: Ints, writer: Ints, rank: Ints) -> bool:
    """Whether a recorded order keeps session order and reads-from."""
    later = rank[1:] > rank[:-1]
    known = writer >= 0
    return bool(later[session[1:] == session[:-1]].all() and (rank[writer[known]] <= rank[reader[known]]).all())


@compiled
def clocks(
    first: Ints, session: Ints, begin: Longs, sources: Ints, order: Ints, low: int, high: int
) -> NDArray[np.int32]:
    """Columns low .. high - 1 of the clocks: how many transactions of each session are in the past. They do not depend
    on the other columns; but only a writer of these sessions can be known to be covered already."""
    wide = high - low
    clock = np.zeros((session.size, wide), np.int32)
    for n in range(order.size):
        t = order[n]
        s = session[t]
        mine = clock[t]
        if t > first[s]:
            mine[:] = clock[t - 1]
            if low <= s < high:
                mine[s - low] = t - first[s]
        for i in range(begin[t], begin[t + 1]):
            w = sources[i]
            if w < 0:
                continue
            ws = session[w]
            here = low <= ws < high
            if here and mine[ws - low] > w - first[ws]:
                continue
            other = clock[w]
            for c in range(wide):
                if other[c] > mine[c]:
                    mine[c] = other[c]
            if here:
                mine[ws - low] = max(mine[ws - low], w - first[ws] + 1)
    return clock


@compiled
def _find(those: Ints, low: int, high: int, t: int) -> int:
    """The first place in low .. high whose entry is not below t."""
    while low < high:
        mid = (low + high) >> 1
        if those[mid] < t:
            low = mid + 1
        else:
            high = mid
    return low


@compiled
def _find_rank(those: Ints, low: int, high: int, rank: Ints, wanted: int) -> int:
    while low < high:
        mid = (low + high) >> 1
        if rank[those[mid]] < wanted:
            low = mid + 1
        else:
            high = mid
    return low


@compiled
def _level(t2: int, t3: int, at: int, first: Ints, session: Ints, begin: Longs, sources: Ints, when: Ints) -> int:
    """The weakest level whose condition holds for t2 and the read of t3 at operation `at`, given TCC's does."""
    level = RA if session[t2] == session[t3] else TCC
    for i in range(begin[t3], begin[t3 + 1]):
        if sources[i] == t2:
            if when[i] < at:
                return RC
            level = RA
    return level


@compiled
def _emit(out: NDArray[np.int32], count: int, t2: int, t1: int, t3: int, x: int, level: int) -> int:
    """Add an edge if there is room; counts it in any case."""
    if count < out.shape[0]:
        out[count, 0], out[count, 1], out[count, 2], out[count, 3], out[count, 4] = t2, t1, t3, x, level
    return count + 1


@compiled
def _direct(
    t3: int, t1: int, x: int, at: int, b: int, e: int, by_number: Ints, rank: Ints, before: int, first: Ints,
    session: Ints, begin: Longs, sources: Ints, when: Ints, clock: NDArray[np.int32], low: int, high: int,
    out: NDArray[np.int32], count: int,
) -> int:  # fmt: skip
    """The last writer of x in the past of t3 of each session (AWDIT), and those that t3 reads from; with a rank above
    `before`."""
    for s in range(low, high):
        seen = clock[t3, s - low]
        if seen == 0:
            continue
        i = _find(by_number, b, e, first[s] + seen) - 1
        if i >= b and by_number[i] >= first[s] and by_number[i] != t1 and rank[by_number[i]] > before:
            t2 = by_number[i]
            level = _level(t2, t3, at, first, session, begin, sources, when)
            count = _emit(out, count, t2, t1, t3, x, level)
    for j in range(begin[t3], begin[t3 + 1]):
        t2 = sources[j]
        if t2 >= 0 and t2 != t1 and low <= session[t2] < high and rank[t2] > before:
            i = _find(by_number, b, e, t2)
            if i < e and by_number[i] == t2:
                count = _emit(out, count, t2, t1, t3, x, RC if when[j] < at else RA)
    return count


@compiled
def necessary(
    reader: Ints, at: Ints, key: Ints, writer: Ints, by_rank: Ints, by_number: Ints, key_begin: Longs, rank: Ints,
    first: Ints, session: Ints, begin: Longs, sources: Ints, when: Ints, clock: NDArray[np.int32], low: int,
    high: int, out: NDArray[np.int32], everything: bool,
) -> tuple[int, int]:  # fmt: skip
    """Necessary edges that contradict the guess (or else `everything`), with t2 of the sessions low .. high - 1.

    `by_rank`, `by_number`: the writers of each key, sorted in two ways. Rows of `out`: t2, t1, t3, key, level. Returns
    how many there are, which may be more than fit, and how many candidates were looked at. Where the guess puts many
    writers between, the edges are found directly.
    """
    count = looked = 0
    for r in range(reader.size):
        t3, t1, x = reader[r], writer[r], key[r]
        b, e = key_begin[x], key_begin[x + 1]
        if b == e:
            continue
        before = INIT if t1 == INIT else rank[t1]
        lo = _find_rank(by_rank, b, e, rank, before + 1)
        if not everything and (lo == e or rank[by_rank[lo]] >= rank[t3]):
            continue
        hi = _find_rank(by_rank, lo, e, rank, rank[t3])
        if everything or hi - lo > 32 + 4 * (high - low):
            looked += high - low
            count = _direct(
                t3, t1, x, at[r], b, e, by_number, rank, INIT if everything else before, first, session, begin,
                sources, when, clock, low, high, out, count,
            )  # fmt: skip
            continue
        looked += hi - lo
        for i in range(lo, hi):
            t2 = by_rank[i]
            s = session[t2]
            if t2 != t1 and low <= s < high and clock[t3, s - low] > t2 - first[s]:
                level = _level(t2, t3, at[r], first, session, begin, sources, when)
                count = _emit(out, count, t2, t1, t3, x, level)
    return count, looked


@compiled
def strong(total: int, begin: Longs, after: Ints) -> Ints:
    """The strongly connected component of every node (Tarjan, without recursion)."""
    index = np.zeros(total, np.int32)
    low = np.zeros(total, np.int32)
    component = np.full(total, -1, np.int32)
    stack = np.empty(total, np.int32)
    path = np.empty(total, np.int32)
    at = begin[:-1].copy()
    clock = count = held = 0
    for root in range(total):
        if index[root]:
            continue
        depth = 1
        path[0] = root
        while depth:
            node = path[depth - 1]
            if index[node] == 0:
                clock += 1
                index[node] = low[node] = clock
                stack[held] = node
                held += 1
            deeper = False
            while at[node] < begin[node + 1]:
                other = after[at[node]]
                at[node] += 1
                if index[other] == 0:
                    path[depth] = other
                    depth += 1
                    deeper = True
                    break
                if component[other] < 0:
                    low[node] = min(low[node], low[other])
            if deeper:
                continue
            depth -= 1
            if low[node] == index[node]:
                while True:
                    held -= 1
                    component[stack[held]] = count
                    if stack[held] == node:
                        break
                count += 1
            if depth:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[node])
    return component


@compiled
def candidates(
    reader: Ints, at: Ints, key: Ints, writer: Ints, by_rank: Ints, key_begin: Longs, rank: Ints, out: NDArray[np.int32]
) -> int:
    """Writers that the guess puts between a read's writer and its reader. Rows of `out`: t2, t1, t3, at, key."""
    count = 0
    for r in range(reader.size):
        t3, t1, x = reader[r], writer[r], key[r]
        b, e = key_begin[x], key_begin[x + 1]
        i = b if t1 == INIT else _find_rank(by_rank, b, e, rank, rank[t1] + 1)
        while i < e and rank[by_rank[i]] < rank[t3]:
            if by_rank[i] != t1:
                if count < out.shape[0]:
                    out[count, 0], out[count, 1], out[count, 2] = by_rank[i], t1, t3
                    out[count, 3], out[count, 4] = at[r], x
                count += 1
            i += 1
    return count


@compiled
def confirm(
    found: NDArray[np.int32], clock: NDArray[np.int32], low: int, first: Ints, session: Ints, begin: Longs,
    sources: Ints, when: Ints, level: Bytes,
) -> None:  # fmt: skip
    """The weakest level of each candidate that is a necessary edge; 255: it is none."""
    for i in range(found.shape[0]):
        t2, t3 = found[i, 0], found[i, 2]
        s = session[t2]
        level[i] = 255
        if clock[t3, s - low] > t2 - first[s]:
            level[i] = _level(t2, t3, found[i, 3], first, session, begin, sources, when)
