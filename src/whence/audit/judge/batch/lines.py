"""JSON lines as columns: one compiled pass over the bytes, for lines exactly as our writers write them.

A line is **plain** if it is one JSON object without spaces, with known keys in the order of the schema, all required
ones among them, integers of 64 bits, and text without escapes and control characters. What is not plain may
still be a row: the caller decodes it line by line. So nothing is accepted here that the decoder would refuse.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, compiled
from whence.audit.trace.schema import COLUMNS, Row

_TYPE: Final = {column.name: column.type for column in COLUMNS}
KEYS: Final = Row.__struct_fields__
"""In the order in which they are written."""
_NEEDED: Final = sum(1 << k for k, key in enumerate(KEYS) if {c.name: c.required for c in COLUMNS}[key])


class Plain(NamedTuple):
    """The plain lines of a block."""

    columns: dict[str, Any]
    """Arrow arrays, text as dictionaries."""
    line: Longs
    """Which line of the block each row is, from 0."""
    end: Longs
    """Where each line of the block ends: its newline, or the end of the block."""

    def text(self, block: bytes, line: int) -> bytes:
        """A line, with its newline."""
        return block[self.end[line - 1] + 1 if line else 0 : self.end[line] + 1]


def _words() -> tuple[Longs, Longs, Bytes]:
    """Of each key: where it begins and ends in one text of all, and whether its value is text."""
    ends = np.cumsum([len(key) for key in KEYS])
    starts = ends - [len(key) for key in KEYS]
    return starts.astype(np.int64), ends.astype(np.int64), np.array([_TYPE[k] == "text" for k in KEYS], np.uint8)


_STARTS, _ENDS, _TEXT = _words()
_NAMES: Final = np.frombuffer("".join(KEYS).encode(), np.uint8)

QUOTE, COLON, COMMA, OPEN, CLOSE, END_OF_LINE, BACKSLASH, MINUS, ZERO = 34, 58, 44, 123, 125, 10, 92, 45, 48


@compiled
def _key(data: Bytes, at: int, last: int, names: Bytes, starts: Longs, ends: Longs) -> int:
    """The key after number `last` whose name begins here, with quote and colon after it; -1: none."""
    for k in range(last + 1, len(starts)):
        after = at + ends[k] - starts[k]
        same = after + 2 < len(data) and data[after] == QUOTE and data[after + 1] == COLON
        for i in range(ends[k] - starts[k]):
            same = same and data[at + i] == names[starts[k] + i]
        if same:
            return k
    return -1


@compiled
def _scan(
    data: Bytes, lines: int, names: Bytes, starts: Longs, ends: Longs, text: Bytes, needed: int, limit: int, slot: Longs
) -> tuple[Longs, Longs, Longs, Longs]:
    """All lines: where the value of each key with a slot begins and ends (of a number: its value, and 1; -1, -1: the
    line has none) in plain ones, and which lines these are; where each line ends. Mostly in one function, as a call
    that passes arrays costs as much as ten bytes."""
    keys, slots, size = len(starts), slot.max() + 1, len(data)
    low, high = np.empty((slots, lines), np.int64), np.full((slots, lines), -1, np.int64)
    which, line_end = np.empty(lines, np.int64), np.empty(lines, np.int64)
    follows = np.zeros(keys + 1, np.int64)  # which key came after each in an earlier line: it is tried first
    at = rows = 0
    for number in range(lines):
        first, last, has = at, -1, 0
        good = at < size and data[at] == OPEN
        while good:
            at += 1
            k = max(follows[last + 1], last + 1) if last + 1 < keys else last
            after = at + 1 + ends[k] - starts[k]
            good = after + 2 < size and data[at] == QUOTE and data[after] == QUOTE and data[after + 1] == COLON
            for i in range(ends[k] - starts[k] if good else 0):
                good = good and data[at + 1 + i] == names[starts[k] + i]
            if not good and at < size and data[at] == QUOTE:
                k = follows[last + 1] = _key(data, at + 1, last, names, starts, ends)
                good = k > last
                after = at + 1 + ends[k] - starts[k]
            if not good or k <= last or (text[k] and data[after + 2] != QUOTE):
                good = False
                break
            has, last, at = has | 1 << k, k, after + 2 + text[k]
            value, stop, begin = at, 1, at
            if text[k]:
                while at < size and data[at] != QUOTE and data[at] != BACKSLASH and data[at] >= 32:
                    at += 1
                good = at < size and data[at] == QUOTE
                stop = at
                at += good
            else:
                begin += data[at] == MINUS
                at, value = begin, 0
                while at < size and ZERO <= data[at] <= ZERO + 9:
                    value = value * 10 + (data[at] - ZERO)
                    at += 1
                good = begin < at <= begin + 19 and value >= 0 and (data[begin] != ZERO or at == begin + 1)
                value = -value if data[begin - 1] == MINUS else value
            if good and slot[k] >= 0:
                low[slot[k], rows], high[slot[k], rows] = value, stop
            if not good or at >= size or data[at] != COMMA:
                break
        good = good and at < size and data[at] == CLOSE and (at + 1 == size or data[at + 1] == END_OF_LINE)
        if good and has & needed == needed and at + 1 - first < limit:
            which[rows] = number
            rows += 1
        else:
            high[:, rows] = -1
        while at < size and data[at] != END_OF_LINE:
            at += 1
        line_end[number] = at
        at += 1
    return low[:, :rows], high[:, :rows], which[:rows], line_end


@compiled
def _copied(data: Bytes, low: Longs, high: Longs) -> tuple[Bytes, Ints]:
    """These texts one after the other, and where each begins."""
    n = len(low)
    at = np.zeros(n + 1, np.int32)
    for r in range(n):
        at[r + 1] = at[r] + (high[r] - low[r] if high[r] >= 0 else 0)
    out, k = np.empty(at[n], np.uint8), 0
    for r in range(n):
        for i in range(low[r], high[r] if high[r] >= 0 else low[r]):
            out[k] = data[i]
            k += 1
    return out, at


@compiled
def _all_alike(data: Bytes, low: Longs, high: Longs) -> bool:
    """Whether all these texts are the same; -1 at the end of one that is not there."""
    size = high[0] - low[0]
    for r in range(len(low)):
        alike = high[r] >= 0 and high[r] - low[r] == size
        for i in range(size if alike else 0):
            alike = alike and data[low[r] + i] == data[low[0] + i]
        if not alike:
            return False
    return True


def newlines(block: bytes) -> int:
    """How many; `bytes.count` is several times slower."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == END_OF_LINE))


def plain(block: bytes, columns: tuple[str, ...], limit: int) -> Plain:
    """The plain lines of a block of whole lines (the last may lack its end) that are shorter than `limit`, with these
    columns. A block that is not UTF-8 has none."""
    data = np.frombuffer(block, np.uint8)
    needed = _NEEDED
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            needed = -1  # more than there is
    slot = np.array([columns.index(key) if key in columns else -1 for key in KEYS], np.int64)
    lines = newlines(block) + (not block.endswith(b"\n") and len(block) > 0)
    low, high, which, end = _scan(data, lines, _NAMES, _STARTS, _ENDS, _TEXT, needed, limit, slot)
    made = {name: _column(data, low[k], high[k], _TYPE[name]) for k, name in enumerate(columns)}
    return Plain(made, which, end)


def _column(data: Bytes, low: Longs, high: Longs, kind: str) -> Any:
    gone = high < 0
    if gone.all():
        return pa.nulls(len(low), pa.dictionary(pa.int32(), pa.string()) if kind == "text" else pa.int64())
    mask: Any = gone if gone.any() else None
    if kind != "text":
        values: Any = low
        return pa.array(values, mask=mask)
    if _all_alike(data, low, high):
        zeros: Any = np.zeros(len(low), np.int32)
        one = data[low[0] : high[0]].tobytes().decode()
        return pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([one], pa.string()))
    texts, at = _copied(data, low, high)
    bits = None if mask is None else np.packbits(~gone, bitorder="little")
    parts: list[Any] = [bits, at, texts]
    buffers: list[Any] = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(pa.string(), len(low), buffers).dictionary_encode()
