"""The array form's kernels (numba). Transactions are numbered session by session: `t - first[s]` is the position.

Take an external read of x by t3 from t1, and a guess of the commit order (`rank`, topological for `so u wr`). Only
writers of x that the guess puts between t1 and t3 can break it. One of them for which the level's condition holds must
commit before t1: a *necessary* edge, whatever the guess. If there is none, the guess is a commit order.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from whence.audit.history.model import INIT, NOTHING, Bytes, Ints, Longs

P = ParamSpec("P")
R = TypeVar("R")
Rows = NDArray[np.int32]
Clock = NDArray[np.int32]

INTERNAL, READ, FINAL, OVERWRITTEN = 0, 1, 2, 3
THIN, ABORTED, FUTURE, NOT_OWN, NOT_LAST, INTERMEDIATE, PARTIAL, DUPLICATE = 4, 5, 6, 7, 8, 9, 10, 11
"""What an operation is. READ: external; FINAL: the last write of its transaction to the key. From THIN on: bad reads.
The writer of an INTERMEDIATE read is known all the same; that of a PARTIAL one, which is the same of lists, is not."""

REPEATED: Final = 2
"""In `twice`, of a write: another write before it has the same key and value."""

RC, RA, TCC = 0, 1, 2


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Machine code, made once and kept on disk."""
    return cast(Callable[P, R], cast(Any, numba.njit(cache=True, nogil=True))(function))


@compiled
def classify(begin: Longs, write: Bytes, key: Ints, value: Longs, keys: int, what: Bytes, twice: Bytes) -> None:
    """Read consistency inside each transaction: fills `what` and `twice`. NOT_OWN is provisional."""
    last = np.full((keys, 2), -1, np.int64)  # of each key: the last write, the last read
    for t in range(begin.size - 1):
        start = begin[t]
        for i in range(start, begin[t + 1]):
            own, before = last[key[i], 0], last[key[i], 1]
            if write[i]:
                if own >= start:
                    what[own] = OVERWRITTEN
                what[i] = FINAL
                last[key[i], 0] = i
                continue
            if before >= start and before > own and value[before] != value[i]:
                twice[i] = 1
            if own < start:
                what[i] = READ
            else:
                what[i] = INTERNAL if value[own] == value[i] else NOT_OWN
            last[key[i], 1] = i


def match(
    key: Ints, value: Longs, txn: Ints, keys: int, aborted: tuple[Ints, Longs], what: Bytes, twice: Bytes
) -> Ints:  # fmt: skip
    """The writer of every external read. Classifies reads that are wrong, and marks REPEATED writes in `twice`.

    Of several writes of one value the first is taken, unless only a later one is final. `aborted`: keys and values that
    aborted transactions wrote.
    """
    begin, place = sort_pairs(key, np.arange(key.size, dtype=np.int32), keys)
    kind, source, again = what[place], np.full(key.size, INIT, np.int32), np.zeros(key.size, np.uint8)
    _match(begin, value[place], txn[place], kind, again, source)
    writer = np.empty(key.size, np.int32)
    writer[place], what[place] = source, kind
    twice[place[again > 0]] = REPEATED
    if aborted[0].size:
        gone = set(zip(aborted[0].tolist(), aborted[1].tolist(), strict=True))
        thin = np.flatnonzero(what == THIN)
        what[[i for i in thin.tolist() if (int(key[i]), int(value[i])) in gone]] = ABORTED
    return writer


@compiled
def _slot(table: Ints, value: Longs, i: int) -> int:
    """Where in the hash table an operation with the value of operation i is, or would be."""
    h = np.uint64(value[i]) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= h >> np.uint64(29)
    at = np.int64((h * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(20)) & (table.size - 1)
    while table[at] >= 0 and value[table[at]] != value[i]:
        at = (at + 1) & (table.size - 1)
    return at  # type: ignore[return-value]


@compiled
def _match(begin: Longs, value: Longs, txn: Ints, kind: Bytes, again: Bytes, source: Ints) -> None:
    """The operations by key. The writes of one key at a time are in a hash table by value."""
    largest = 2
    for x in range(begin.size - 1):
        largest = max(largest, begin[x + 1] - begin[x])
    whole = np.empty(4 * largest, np.int32)
    for x in range(begin.size - 1):
        size = 4
        while size < 2 * (begin[x + 1] - begin[x]):
            size *= 2
        table = whole[:size]
        table[:] = -1
        for i in range(begin[x], begin[x + 1]):
            if (kind[i] != FINAL and kind[i] != OVERWRITTEN) or value[i] == NOTHING:
                continue
            at = _slot(table, value, i)
            again[i] = table[at] >= 0
            if table[at] < 0 or (kind[i] == FINAL and kind[table[at]] != FINAL):
                table[at] = i
        for i in range(begin[x], begin[x + 1]):
            if (kind[i] != READ and kind[i] != NOT_OWN) or value[i] == NOTHING:
                continue
            w = table[_slot(table, value, i)]
            if w < 0:
                kind[i] = THIN
            elif txn[w] == txn[i]:
                kind[i] = NOT_LAST if kind[i] == NOT_OWN else FUTURE
            elif kind[i] == READ:
                source[i] = txn[w]
                if kind[w] != FINAL:
                    kind[i] = INTERMEDIATE  # its writer is known all the same


# -- lists


class Listed(NamedTuple):
    """What the operations on lists are, by operation."""

    what: Bytes
    twice: Bytes
    """1: differs from the read before it in its transaction (NonRepeatableRead). REPEATED: see `match`."""
    apart: Bytes
    """1: is no prefix of the longest list of its key (IncompatibleOrder)."""
    writer: Ints
    value: Longs
    """Of an append what it appends, of a read the last element."""
    versions: Ints
    """Neighbours in the longest list of a key. Rows: one, other, key."""


def judge_lists(
    begin: Longs, write: Bytes, key: Ints, offset: Longs, element: Longs, keys: int, aborted: tuple[Ints, Longs]
) -> Listed:
    """`offset`: where the elements of each operation begin; an append has one. `begin`: of each transaction."""
    size = key.size
    op_of = np.repeat(np.arange(size, dtype=np.int32), np.diff(offset))
    kind = np.where(write[op_of] == 1, FINAL, READ).astype(np.uint8)
    names = np.where(write[op_of] == 1, op_of, np.int32(-2)).astype(np.int32)  # so that `match` names the append
    again = np.zeros(op_of.size, np.uint8)
    author = match(key[op_of], element, names, keys, aborted, kind, again)
    value = np.full(size, NOTHING, np.int64)
    full = np.flatnonzero(np.diff(offset) > 0)
    value[full] = element[offset[full + 1] - 1]
    txn = np.repeat(np.arange(begin.size - 1, dtype=np.int32), np.diff(begin))
    what, twice, apart = (np.zeros(size, np.uint8) for _ in range(3))
    twice[op_of[again > 0]] = REPEATED
    before, following = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    _own(txn, write, key, offset, element, keys, what, twice, before, following)
    writer = np.full(size, INIT, np.int32)
    _judge_reads(txn, write, offset, element, author, kind, before, following, what, writer)
    longest = _longest(write, key, offset, element, keys, what, apart)
    return Listed(what, twice, apart, writer, value, _versions(txn, key, offset, author, longest[longest >= 0]))


@compiled
def _own(
    txn: Ints, write: Bytes, key: Ints, offset: Longs, element: Longs, keys: int, what: Bytes, twice: Bytes,
    before: Ints, following: Ints,
) -> None:  # fmt: skip
    """The appends of its own transaction to the same key: the last one `before` an operation, and the one `following`
    an append; -1: there is none. FINAL is the last append."""
    last = np.full((keys, 2), -1, np.int64)  # of each key: the last append, the last read
    for i in range(key.size):
        a, r = last[key[i], 0], last[key[i], 1]
        own = a >= 0 and txn[a] == txn[i]
        if own:
            before[i] = a
        if write[i]:
            what[i] = FINAL
            if own:
                what[a] = OVERWRITTEN
                following[a] = i
            last[key[i], 0] = i
            continue
        what[i] = INTERNAL if own else READ
        if r >= 0 and txn[r] == txn[i] and not (own and a > r):
            one, other = element[offset[i] : offset[i + 1]], element[offset[r] : offset[r + 1]]
            twice[i] = one.size != other.size or (one != other).any()
        last[key[i], 1] = i


@compiled
def _judge_reads(
    txn: Ints, write: Bytes, offset: Longs, element: Longs, author: Ints, kind: Bytes, before: Ints, following: Ints,
    what: Bytes, writer: Ints,
) -> None:  # fmt: skip
    seen = np.full(txn.size, -1, np.int32)
    for i in range(txn.size):
        if write[i]:
            continue
        wrong = _wrong_list(i, txn, offset, element, author, kind, before, following, seen)
        if wrong:
            what[i] = wrong
        elif what[i] == READ and offset[i + 1] > offset[i]:
            writer[i] = txn[author[offset[i + 1] - 1]]


@compiled
def _wrong_list(
    i: int, txn: Ints, offset: Longs, element: Longs, author: Ints, kind: Bytes, before: Ints, following: Ints,
    seen: Ints,
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
    while mine >= 0:  # the list ends with the own appends so far
        if high == low or element[high - 1] != element[offset[mine]]:
            last = offset[i + 1] - 1
            own = last >= low and txn[author[last]] == txn[i]
            return NOT_LAST if own else NOT_OWN
        high -= 1
        mine = before[mine]
    due = -1
    for f in range(low, high):  # before them, all appends of one transaction after the other
        a = author[f]
        if a != due and (due >= 0 or before[a] >= 0):
            return PARTIAL
        due = following[a]
    return PARTIAL if due >= 0 else 0


@compiled
def _longest(
    write: Bytes, key: Ints, offset: Longs, element: Longs, keys: int, what: Bytes, apart: Bytes
) -> Longs:  # fmt: skip
    """The read of the longest list of each key (-1: there is none). Marks reads of no prefix of it as `apart`."""
    longest = np.full(keys, -1, np.int64)
    for i in range(key.size):
        if not write[i] and what[i] != FUTURE:
            best = longest[key[i]]
            if best < 0 or offset[i + 1] - offset[i] > offset[best + 1] - offset[best]:
                longest[key[i]] = i
    for i in range(key.size):
        if not write[i] and what[i] != FUTURE:
            start, size = offset[longest[key[i]]], offset[i + 1] - offset[i]
            apart[i] = (element[offset[i] : offset[i + 1]] != element[start : start + size]).any()
    return longest


def _versions(txn: Ints, key: Ints, offset: Longs, author: Ints, reads: Longs) -> Ints:
    """Neighbours in the lists that these operations read. Rows: one, other, key."""
    sizes = offset[reads + 1] - offset[reads]
    at = np.repeat(offset[reads] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    known = author[at] >= 0
    of, t = np.repeat(key[reads], sizes)[known], txn[author[at[known]]]
    new = (of[1:] == of[:-1]) & (t[1:] != t[:-1])
    return np.stack([t[:-1][new], t[1:][new], of[1:][new]], axis=1).astype(np.int32)


# -- transactions


class Transactions(NamedTuple):
    """Sessions, and the external reads of each transaction."""

    first: Ints
    """Of each session."""
    session: Ints
    """Of each transaction."""
    begin: Longs
    """Of each transaction: its first read; one more entry for all."""
    source: Ints
    """Of each read: its writer."""
    at: Ints
    """Of each read: which operation of its transaction it is."""


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
    is a cycle."""
    waits = np.zeros(session.size, np.int32)
    for other in after:
        waits[other] += 1
    for t in range(session.size):
        if t > first[session[t]]:
            waits[t] += 1
    ready = [(wish[t], np.int64(t)) for t in range(session.size) if waits[t] == 0]
    heapify(ready)
    order = np.empty(session.size, np.int32)
    done = 0
    while ready:
        now = heappop(ready)[1]
        order[done] = now
        done += 1
        if now + 1 < session.size and session[now + 1] == session[now]:
            waits[now + 1] -= 1
            if waits[now + 1] == 0:
                heappush(ready, (wish[now + 1], now + 1))
        for other in after[begin[now] : begin[now + 1]]:
            waits[other] -= 1
            if waits[other] == 0:
                heappush(ready, (wish[other], np.int64(other)))
    return order[:done]


def is_topological(session: Ints, reader: Ints, writer: Ints, rank: Ints) -> bool:
    """Whether a recorded order keeps session order and reads-from."""
    later = rank[1:] > rank[:-1]
    known = writer >= 0
    return bool(later[session[1:] == session[:-1]].all() and (rank[writer[known]] <= rank[reader[known]]).all())


@compiled
def clocks(txns: Transactions, order: Ints, low: int, high: int) -> Clock:
    """Columns low .. high - 1 of the clocks: how many transactions of each session are in the past. They do not depend
    on the other columns; but only a writer of these sessions can be known to be covered already."""
    first, session = txns.first, txns.session
    wide = high - low
    clock = np.zeros((session.size, wide), np.int32)
    for t in order:
        s = session[t]
        mine = clock[t]
        if t > first[s]:
            mine[:] = clock[t - 1]
            if low <= s < high:
                mine[s - low] = t - first[s]
        for i in range(txns.begin[t], txns.begin[t + 1]):
            w = txns.source[i]
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
def sort_each(begin: Longs, values: Ints) -> None:
    """Sort the values of each key. Most keys have a few, which an insertion sort puts in order six times as fast."""
    for x in range(begin.size - 1):
        mine = values[begin[x] : begin[x + 1]]
        if mine.size > 24:
            mine.sort()
            continue
        for n in range(1, mine.size):
            value, i = mine[n], n
            while i and mine[i - 1] > value:
                mine[i] = mine[i - 1]
                i -= 1
            mine[i] = value


@compiled
def _level(t2: int, t3: int, at: int, txns: Transactions) -> int:
    """The weakest level whose condition holds for t2 and the read of t3 at operation `at`, given TCC's does."""
    level = RA if txns.session[t2] == txns.session[t3] else TCC
    for i in range(txns.begin[t3], txns.begin[t3 + 1]):
        if txns.source[i] == t2:
            if txns.at[i] < at:
                return RC
            level = RA
    return level


@compiled
def _emit(out: Rows, count: int, a: int, b: int, c: int, d: int, e: int) -> Rows:
    """Put a row into `out`, which is made larger if need be."""
    if count == out.shape[0]:
        out = np.concatenate((out, np.empty_like(out)))
    out[count, 0], out[count, 1], out[count, 2], out[count, 3], out[count, 4] = a, b, c, d, e
    return out


@compiled
def necessary(
    reads: Rows, txns: Transactions, begin: Longs, writers: Ints, ranks: Ints, order: Ints, rank: Ints, clock: Clock,
    low: int, high: int, everything: bool,
) -> Rows:  # fmt: skip
    """Necessary edges that contradict the guess (or else `everything`), with t2 of the sessions low .. high - 1.

    `reads`: rows of reader, writer, operation and key. `begin`, `writers`: the writers of each key, by number; `ranks`:
    their ranks, sorted. Rows of the result: t2, t1, t3, key, level. Where the guess puts many writers between, the
    edges are found directly.
    """
    out = np.empty((1 << 10, 5), np.int32)
    count = 0
    for r in range(reads.shape[0]):
        t3, t1, at, x = reads[r, 0], reads[r, 1], reads[r, 2], reads[r, 3]
        mine, by_rank = writers[begin[x] : begin[x + 1]], ranks[begin[x] : begin[x + 1]]
        if not mine.size:
            continue
        before = INIT if t1 == INIT else rank[t1]
        lo = np.searchsorted(by_rank, before + 1)
        if not everything and (lo == mine.size or by_rank[lo] >= rank[t3]):
            continue
        hi = np.searchsorted(by_rank, rank[t3])
        if not everything and hi - lo <= 32 + 4 * (high - low):
            for n in by_rank[lo:hi]:
                t2 = order[n]
                s = txns.session[t2]
                if t2 != t1 and low <= s < high and clock[t3, s - low] > t2 - txns.first[s]:
                    out = _emit(out, count, t2, t1, t3, x, _level(t2, t3, at, txns))
                    count += 1
            continue
        before = INIT if everything else before
        for s in range(low, high):  # directly (AWDIT): the last writer of each session in the past of t3
            seen = clock[t3, s - low]
            i = np.searchsorted(mine, txns.first[s] + seen) - 1
            if seen and i >= 0 and mine[i] >= txns.first[s] and mine[i] != t1 and rank[mine[i]] > before:
                out = _emit(out, count, mine[i], t1, t3, x, _level(mine[i], t3, at, txns))
                count += 1
        for j in range(txns.begin[t3], txns.begin[t3 + 1]):  # and those that t3 reads from
            t2 = txns.source[j]
            if t2 >= 0 and t2 != t1 and low <= txns.session[t2] < high and rank[t2] > before:
                i = np.searchsorted(mine, t2)
                if i < mine.size and mine[i] == t2:
                    out = _emit(out, count, t2, t1, t3, x, RC if txns.at[j] < at else RA)
                    count += 1
    return out[:count]


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
            while at[node] < begin[node + 1]:
                other = after[at[node]]
                at[node] += 1
                if index[other] == 0:
                    path[depth] = other
                    depth += 1
                    break
                if component[other] < 0:
                    low[node] = min(low[node], low[other])
            else:  # all that follow it are done
                depth -= 1
                if low[node] == index[node]:
                    while component[node] < 0:
                        held -= 1
                        component[stack[held]] = count
                    count += 1
                if depth:
                    low[path[depth - 1]] = min(low[path[depth - 1]], low[node])
    return component
