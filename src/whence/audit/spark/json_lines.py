"""JSON lines as Arrow columns: a block of lines at a time, plain ones all at once, the others one by one.

Both ways give the same rows and refuse the same lines for the same reasons (`tests/audit/spark/test_json_lines.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch import lines
from whence.audit.judge.batch.compiled import compiles
from whence.audit.judge.promises import PROMISES
from whence.audit.trace import Row
from whence.audit.trace.schema import COLUMNS

BLOCK_BYTES: Final = 16 << 20
"""Bytes of JSON lines that are decoded at a time."""
QUICK_BYTES: Final = 16 << 20
"""Bytes below which it is not worth compiling the fast way: of all that this process has read, as a live trace is many
files, of which each may be small."""
LINE_LIMIT: Final = 1 << 20
"""Bytes of one JSON line; a longer one is no row of ours."""
RAW_LIMIT: Final = 4096
"""Bytes of a line that are kept in the quarantine."""

TYPES: Final[dict[str, Any]] = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "int32": pa.int32(),
    "int64": pa.int64(),
}
COLUMN: Final = {column.name: column for column in COLUMNS}
_BITS: Final = {
    "version": 31, "lseq": 62, "t_ns": 63, "ticket": 31, "age": 31, "bytes": 63, "control": 31, "held": 31,
}  # fmt: skip
_RANGES: Final = {name: ({"version": 1, "lseq": 0}.get(name, -(1 << bits)), 1 << bits) for name, bits in _BITS.items()}
"""Column -> (least value, one beyond the greatest)."""


_read = 0
"""Bytes that this process has read."""


class Refused(NamedTuple):
    """A line that is no row."""

    line: int
    """From 1, in the file."""
    reason: str
    raw: str


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Of rows with these columns, as they are read."""
    fields: list[Any] = [pa.field(name, TYPES[COLUMN[name].type]) for name in columns]
    return pa.schema([*fields, pa.field("position", pa.int64())])


def read(file: BinaryIO, first: int, end: int, columns: Sequence[str]) -> tuple[pa.Table, list[Refused]]:
    """The rows in the lines that begin between these bytes, with these columns and `position` (the number of the line,
    counted from the first of them); and what is no row."""
    tables: list[pa.Table] = []
    wrong: list[tuple[int, str, bytes]] = []
    global _read
    _read += end - first
    quick = _read >= QUICK_BYTES and compiles()
    before = _to_line(file, first)
    for number, block in _blocks_of_lines(file, end, wrong):
        tables.append(_quick(block, number, columns, wrong) if quick else _slow(block, number, columns, wrong))
    skipped = _lines_before(file, before) if wrong else 0
    bad = [
        Refused(n + skipped, why, x[:RAW_LIMIT].decode("utf-8", "replace").rstrip())
        for n, why, x in sorted(wrong, key=lambda one: one[0])
    ]
    return pa.concat_tables([schema_of(columns).empty_table(), *tables]), bad


def _blocks_of_lines(file: BinaryIO, end: int, wrong: list[tuple[int, str, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The lines that begin before byte `end`, some at a time, with the number of lines before them. A line that is too
    long is wrong, and is not kept in memory."""
    number = 0
    while (at := file.tell()) < end:
        block = file.read(min(BLOCK_BYTES, end - at))
        if not block.endswith(b"\n"):
            block += file.readline(LINE_LIMIT)
        cut = block.rfind(b"\n") + 1
        if len(block) - cut >= LINE_LIMIT:
            if cut:
                yield number, block[:cut]
                number += lines.newlines(block)
            number += 1
            wrong.append((number, f"longer than {LINE_LIMIT} bytes: not a whence trace", block[cut:][:RAW_LIMIT]))
            while (line := file.readline(LINE_LIMIT)) and not line.endswith(b"\n"):
                pass
        elif block:
            yield number, block
            number += lines.newlines(block)
        else:
            return


def _quick(block: bytes, number: int, columns: Sequence[str], wrong: list[tuple[int, str, bytes]]) -> pa.Table:
    """`number`: of lines before the block."""
    found = lines.plain(block, tuple(dict.fromkeys([*columns, *_RANGES, "order"])), LINE_LIMIT)
    fits = _fitting(found.columns, len(found.line))
    good, line = found.columns, found.line
    if not fits.all():
        good, line = {name: values.filter(pa.array(fits)) for name, values in good.items()}, line[fits]
    positions: Any = line + number + 1
    arrays = [good[name].cast(TYPES[COLUMN[name].type]) for name in columns]
    table = pa.table([*arrays, pa.array(positions)], schema=schema_of(columns))
    other = np.ones(len(found.end), bool)
    other[line] = False
    few = [_slow(found.text(block, n), number + n, columns, wrong) for n in np.flatnonzero(other).tolist()]
    few = [one for one in few if one.num_rows]
    if few:
        table = pa.concat_tables([table, *few]).unify_dictionaries()
        table = table.take(pc.sort_indices(table["position"]))
    return table


def _fitting(good: Mapping[str, Any], n: int) -> Any:
    """Which of these rows `_not_fitting` has nothing against."""
    fits = np.ones(n, bool)
    for name, (low, high) in _RANGES.items():
        values = good[name]
        if values.null_count < n:
            numbers = values.fill_null(low).to_numpy(zero_copy_only=False)
            fits &= (numbers >= low) & (numbers < high)
    orders = good["order"]
    if orders.null_count < n:
        known = np.array([order in PROMISES for order in orders.dictionary.to_pylist()] + [True])
        fits &= known[orders.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return fits


def _slow(block: bytes, number: int, columns: Sequence[str], wrong: list[tuple[int, str, bytes]]) -> pa.Table:
    """As `_quick`, a line at a time."""
    decode = msgspec.json.Decoder(Row).decode
    rows: list[Row] = []
    at: list[int] = []
    for line in BytesIO(block):
        number += 1
        if len(line) > LINE_LIMIT or (len(line) == LINE_LIMIT and not line.endswith(b"\n")):
            wrong.append((number, f"longer than {LINE_LIMIT} bytes: not a whence trace", line[:RAW_LIMIT]))
            continue
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            wrong.append((number, ("" if line.endswith(b"\n") else "truncated: ") + str(error), line))
            continue
        why = _not_fitting(row)
        if why is not None:
            wrong.append((number, why, line))
            continue
        rows.append(row)
        at.append(number)
    arrays: list[Any] = [_column(rows, name) for name in columns]
    return pa.table([*arrays, pa.array(at, pa.int64())], schema=schema_of(columns))


def _column(rows: list[Row], name: str) -> Any:
    kind = COLUMN[name].type
    values = pa.array([getattr(row, name) for row in rows], pa.string() if kind == "text" else TYPES[kind])
    return values.dictionary_encode() if kind == "text" else values


def _not_fitting(row: Row) -> str | None:
    if row.version < 1:
        return f"version {row.version} does not exist"
    if row.lseq < 0:
        return f"lseq is {row.lseq}, below 0"
    if row.order is not None and row.order not in PROMISES:
        return unknown_order(row.order)
    for name, (low, high) in _RANGES.items():
        value = getattr(row, name)
        if value is not None and not low <= value < high:
            return f"{name} is {value}: out of range"
    return None


def unknown_order(order: str) -> str:
    """Why a row is refused. Nobody knows what such a member promises, so it is not judged as if it promised nothing."""
    return f"unknown order {order!r} (known: {', '.join(PROMISES)})"


def _to_line(file: BinaryIO, first: int) -> int:
    """Go to the first line that begins at or after this byte. A line belongs to the piece that it begins in."""
    if first:
        file.seek(first - 1)
        file.readline()
    return file.tell()


def _lines_before(file: BinaryIO, end: int) -> int:
    file.seek(0)
    count, left = 0, end
    while left and (block := file.read(min(left, 1 << 20))):
        count += lines.newlines(block)
        left -= len(block)
    return count
