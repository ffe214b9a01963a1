"""A table of numbers that is mostly empty: for runs with so many publishers that one number for each pair of them would
take more room than all their rows.

An entry takes about 30 bytes, and there is one for each pair of a member and a publisher of which it knows an event. A
hash finds the entry of a row and a column; the entries of a row are linked, and so are those that rose since somebody
asked. There is no growing in place: `roomy` gives a larger table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.audit.judge.batch.compiled import Ints, Longs, compiled

FIRST = 1024
"""Entries that there is room for at the beginning; a power of two."""

SAME = -2
"""In the place of a link: the entry did not rise."""


class Rows(NamedTuple):
    """The table. What it does not have is 0."""

    slot: Ints
    """Where the hash says -> an entry; -1: none. Twice as many as entries, a power of two."""
    row: Ints
    column: Ints
    value: Ints
    link: Ints
    """Entry -> another one of the row; -1: none."""
    head: Ints
    """Row -> one of its entries; -1: none."""
    link_risen: Ints
    """The same for entries that rose; SAME: it did not."""
    risen: Ints
    used: Longs
    """How many entries; an array of one."""


@compiled
def empty_rows(rows: int) -> Rows:
    """So many rows, without entries."""
    head, risen = np.full(rows, -1, np.int32), np.full(rows, -1, np.int32)
    slot, link = np.full(2 * FIRST, -1, np.int32), np.empty(FIRST, np.int32)
    row, column, value = np.empty(FIRST, np.int32), np.empty(FIRST, np.int32), np.empty(FIRST, np.int32)
    return Rows(slot, row, column, value, link, head, np.empty(FIRST, np.int32), risen, np.zeros(1, np.int64))


@compiled
def _place(slot: Ints, row: Ints, column: Ints, r: int, c: int) -> int:
    """Where the entry is, or would be (linear probing)."""
    h = r * 2654435761 + c * 2246822519  # far below 2^63: r and c are below 2^31
    h = (h ^ (h >> 17)) & (len(slot) - 1)
    while slot[h] >= 0 and (row[slot[h]] != r or column[slot[h]] != c):
        h = (h + 1) & (len(slot) - 1)
    return int(h)


@compiled
def roomy(rows: Rows, more: int) -> Rows:
    """The table with room for so many more entries."""
    n, size = rows.used[0], len(rows.row)
    if n + more <= size:
        return rows
    while size < n + more:
        size *= 2
    kept = np.empty((5, size), np.int32)
    kept[0, :n], kept[1, :n], kept[2, :n] = rows.row[:n], rows.column[:n], rows.value[:n]
    kept[3, :n], kept[4, :n] = rows.link[:n], rows.link_risen[:n]
    slot = np.full(2 * size, -1, np.int32)
    for e in range(n):
        slot[_place(slot, kept[0], kept[1], int(kept[0, e]), int(kept[1, e]))] = e
    return Rows(slot, kept[0], kept[1], kept[2], kept[3], rows.head, kept[4], rows.risen, rows.used)


@compiled
def get(rows: Rows, r: int, c: int) -> int:
    """The number there."""
    e = rows.slot[_place(rows.slot, rows.row, rows.column, r, c)]
    return int(rows.value[e]) if e >= 0 else 0


@compiled
def rise(rows: Rows, r: int, c: int, value: int) -> None:
    """The number there is this at least. There is room."""
    h = _place(rows.slot, rows.row, rows.column, r, c)
    e = rows.slot[h]
    if e < 0:
        e = rows.used[0]
        rows.used[0] += 1
        rows.slot[h] = e
        rows.row[e], rows.column[e], rows.value[e] = r, c, 0
        rows.link[e], rows.head[r] = rows.head[r], e
        rows.link_risen[e] = SAME
    if rows.value[e] < value:
        rows.value[e] = value
        if rows.link_risen[e] == SAME:
            rows.link_risen[e], rows.risen[r] = rows.risen[r], e


@compiled
def clear(rows: Rows, r: int) -> None:
    """All of the row is 0."""
    e = rows.head[r]
    while e >= 0:
        rows.value[e] = 0
        e = rows.link[e]


@compiled
def merge(rows: Rows, source: int, to: int) -> Rows:
    """Row `to` to its maximum with row `source`."""
    e = rows.head[source]
    while e >= 0:
        rows = roomy(rows, 1)
        rise(rows, to, int(rows.column[e]), int(rows.value[e]))
        e = rows.link[e]
    return rows
