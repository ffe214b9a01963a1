"""The array form's kernels (numba). Transactions are numbered session by session: `t - first[s]` is the position.

Take an external read of x by t3 from t1, and a guess of the commit order (`rank`, topological for `so u wr`). Only
writers of x that the guess puts between t1 and t3 can break it. One of them for which the level's condition holds must
commit before t1: a *necessary* edge, whatever the guess. If there is none, the guess is a commit order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NOTHING: Final = -(1 << 63)
"""The initial value."""
INIT: Final = -1

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


@compiled
def external(begin: Longs, key: Ints, value: Longs, what: Bytes, writer: Ints) -> tuple[Ints, Ints, Ints, Ints, Longs]:
    """External reads whose writer is known, by reader: reader, operation, key, writer, value."""
    count = 0
    for i in range(key.size):
        count += what[i] == READ or what[i] == INTERMEDIATE
    reader, at, keys, writers = (
        np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32)
    )  # fmt: skip
    values = np.empty(count, np.int64)
    n = 0
    for t in range(begin.size - 1):
        for i in range(begin[t], begin[t + 1]):
            if what[i] == READ or what[i] == INTERMEDIATE:
                reader[n], at[n], keys[n], writers[n] = t, i - begin[t], key[i], writer[i]
                values[n] = value[i]
                n += 1
    return reader, at, keys, writers, values


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


@compiled
def is_topological(first: Ints, session: Ints, reader: Ints, writer: Ints, rank: Ints) -> bool:
    """Whether a recorded order keeps session order and reads-from."""
    for t in range(1, session.size):
        if session[t] == session[t - 1] and rank[t] < rank[t - 1]:
            return False
    wrong = 0
    for i in range(reader.size):
        wrong += writer[i] >= 0 and rank[writer[i]] > rank[reader[i]]
    return wrong == 0


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
    t3: int, t1: int, x: int, at: int, b: int, e: int, by_number: Ints, rank: Ints, first: Ints, session: Ints,
    begin: Longs, sources: Ints, when: Ints, clock: NDArray[np.int32], low: int, high: int,
    out: NDArray[np.int32], count: int,
) -> int:  # fmt: skip
    """The last writer of x in the past of t3 of each session (AWDIT), and those that t3 reads from."""
    before = INIT if t1 == INIT else rank[t1]
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
    high: int, out: NDArray[np.int32],
) -> tuple[int, int]:  # fmt: skip
    """Necessary edges that contradict the guess, with t2 of the sessions low .. high - 1.

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
        lo = b if t1 == INIT else _find_rank(by_rank, b, e, rank, rank[t1] + 1)
        if lo == e or rank[by_rank[lo]] >= rank[t3]:
            continue
        hi = _find_rank(by_rank, lo, e, rank, rank[t3])
        if hi - lo > 32 + 4 * (high - low):
            looked += high - low
            count = _direct(
                t3,
                t1,
                x,
                at[r],
                b,
                e,
                by_number,
                rank,
                first,
                session,
                begin,
                sources,
                when,
                clock,
                low,
                high,
                out,
                count,
            )
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
