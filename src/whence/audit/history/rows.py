"""Kernels that bring rows into columns: numbers from text, codes for keys, and rows sorted by session."""

from __future__ import annotations

from typing import Final

import numpy as np

from whence.audit.history.kernels import Bytes, Ints, Longs, compiled, slot

SORTED: Final = -1
UNSORTED: Final = -2


@compiled
def survey(session: Ints, txn: Longs, op: Longs, rows: Longs, txns: Longs, last_txn: Longs, last_op: Longs) -> int:
    """Count rows and transactions of each session, batch after batch.

    Returns SORTED or UNSORTED, or the place of a row whose session, transaction and operation were there before.
    """
    for i in range(session.size):
        s, t = session[i], txn[i]
        if rows[s] == 0 or t > last_txn[s]:
            txns[s] += 1
        elif t < last_txn[s] or op[i] < last_op[s]:
            return UNSORTED
        elif op[i] == last_op[s]:
            return i
        rows[s] += 1
        last_txn[s] = t
        last_op[s] = op[i]
    return SORTED


@compiled
def scatter(
    session: Ints, txn: Longs, write: Bytes, key: Longs, value: Longs, seq: Longs, first: Ints, at: Longs, last: Ints,
    numbers: Longs, begin: Longs, recorded: Longs, out_write: Bytes, out_key: Ints, out_value: Longs, origin: Ints,
    offset: int,
) -> None:  # fmt: skip
    """Put rows behind the earlier ones of their session, batch after batch. Rows have to be sorted in each session.

    `at`: where the next row of each session goes; `last`: its latest transaction, at first the one before `first`.
    """
    for i in range(session.size):
        s = session[i]
        place = at[s]
        at[s] = place + 1
        t = last[s]
        if t < first[s] or numbers[t] != txn[i]:
            t += 1
            last[s] = t
            numbers[t] = txn[i]
            begin[t] = place
            recorded[t] = seq[i]
        out_write[place] = write[i]
        out_key[place] = key[i]
        out_value[place] = value[i]
        origin[place] = offset + i


@compiled
def code(keys: Longs, table: Longs, names: Ints, out: Ints) -> int:
    """Number 64-bit keys in the order of their first appearance; returns how many there are. `table` holds places."""
    mask = table.size - 1
    count = 0
    for i in range(keys.size):
        at = slot(keys[i], 0, mask)
        while table[at] >= 0 and keys[table[at]] != keys[i]:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = i
            names[at] = count
            count += 1
        out[i] = names[at]
    return count


@compiled
def parse_text(raw: Bytes, write: Bytes, key: Longs, value: Longs, session: Ints, txn: Longs) -> int:
    """`[rw](key,value,session,txn)` a line; returns how many there are, or -1 where a line is something else."""
    count = at = 0
    size = raw.size
    while at < size:
        c = raw[at]
        if c == 10 or c == 13:
            at += 1
            continue
        if (c != 114 and c != 119) or at + 9 > size or raw[at + 1] != 40:
            return -1
        write[count] = 1 if c == 119 else 0
        at += 2
        for part in range(4):
            number = np.uint64(0)
            begin = at
            if part == 3 and raw[at] == 45:
                if at + 2 >= size or raw[at + 1] != 49:
                    return -1
                txn[count] = -1
                at += 2
            else:
                while at < size and 48 <= raw[at] <= 57:
                    number = number * np.uint64(10) + np.uint64(raw[at] - 48)
                    at += 1
                digits = at - begin
                if digits == 0 or digits > (20 if part == 0 else 18) or (part == 2 and number >= 1 << 31):
                    return -1
                if digits == 20 and (raw[begin] != 49 or number < np.uint64(10**19)):  # more than 64 bits
                    return -1
                if part == 0:
                    key[count] = np.int64(number)
                elif part == 1:
                    value[count] = np.int64(number)
                elif part == 2:
                    session[count] = np.int32(number)
                else:
                    txn[count] = np.int64(number)
            if at >= size or raw[at] != (41 if part == 3 else 44):
                return -1
            at += 1
        if at < size and raw[at] != 10 and raw[at] != 13:
            return -1
        count += 1
    return count
