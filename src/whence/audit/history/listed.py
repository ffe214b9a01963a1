"""Lists as arrays: the rules of `lists.py` as kernels, and what they leave for the levels.

All rules of lists speak of one key at a time, so the kernels may be given the operations on some keys only: that is how
one history is spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.audit.history import bykey
from whence.audit.history.kernels import (
    ABORTED,
    DUPLICATE,
    FINAL,
    FUTURE,
    INIT,
    INTERNAL,
    NOT_LAST,
    NOT_OWN,
    NOTHING,
    OVERWRITTEN,
    PARTIAL,
    READ,
    THIN,
    Bytes,
    Ints,
    Longs,
    compiled,
)  # fmt: skip


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


def judge(
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
    count = bykey.match(whole, key[op_of], element, names, op_of, kind, author, *aborted, repeated)
    value = np.full(size, NOTHING, np.int64)
    full = np.flatnonzero(np.diff(offset) > 0)
    value[full] = element[offset[full + 1] - 1]
    txn = np.repeat(np.arange(begin.size - 1, dtype=np.int32), np.diff(begin))
    what, twice, apart = (np.zeros(size, np.uint8) for _ in range(3))
    writer = np.full(size, INIT, np.int32)
    position, many, before = (np.zeros(size, np.int32) for _ in range(3))
    _own(txn, write, key, offset, element, keys, what, twice, position, many, before)
    _judge(txn, write, offset, element, author, kind, position, many, before, what, writer)
    longest = np.full(keys, -1, np.int64)
    pairs = _versions(txn, write, key, offset, element, author, what, longest, apart)
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
def _judge(
    txn: Ints, write: Bytes, offset: Longs, element: Longs, author: Ints, kind: Bytes, position: Ints, many: Ints,
    before: Ints, what: Bytes, writer: Ints,
) -> None:  # fmt: skip
    seen = np.full(txn.size, -1, np.int32)
    for i in range(txn.size):
        if write[i]:
            continue
        wrong = _wrong(i, txn, offset, element, author, kind, position, many, before, seen)
        if wrong:
            what[i] = wrong
        elif what[i] == READ and offset[i + 1] > offset[i]:
            writer[i] = txn[author[offset[i + 1] - 1]]


@compiled
def _wrong(
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
def _versions(
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
