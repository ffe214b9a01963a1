"""A Spark source for traces that grow: JSON lines to which members append, Parquet files that appear when complete.

Spark's own file source takes a file once, when it appears. This one remembers how far it has read each file: an offset
is `{file: {"bytes", "rows"}}` for JSON lines (always behind a complete line) and `{file: {"groups", "rows"}}` (row
groups) for Parquet. Spark writes the offsets of every batch into its checkpoint before it runs it, so a batch that is
run again has the same rows.

    spark.dataSource.register(GrowingTrace)
    rows = spark.readStream.format("whence").load("traces")

The rows have the columns of a trace and `file`, `position` (line or row, from 1), and, instead of all but those where
something is no row, `bad` (why) and `raw` (what it looks like).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from whence.errors import TraceError
from whence.spark.tables import arrow_schema, spark_schema
from whence.trace import Row
from whence.trace.read import LINE_LIMIT, SUFFIXES

BATCH_BYTES: Final = 16 << 20
"""Bytes of trace in one batch, unless the option `max_bytes` says otherwise: what memory and the time of a batch grow
with. A row is about 200 bytes as JSON, and about 20 as Parquet."""

RAW: Final = 4096
"""Characters that are kept of what is no row."""

_BLOCK = 1 << 20
_EXTRA = ("position", "bad", "raw")
_SPARK: Final = StructType(
    [
        *(StructField(f.name, f.dataType) for f in spark_schema("events").fields),
        StructField("position", LongType()),
        StructField("bad", StringType()),
        StructField("raw", StringType()),
    ]
)
_ARROW: Final = pa.schema(
    [
        *(pa.field(f.name, f.type) for f in arrow_schema("events")),
        pa.field("position", pa.int64()),
        pa.field("bad", pa.string()),
        pa.field("raw", pa.string()),
    ]
)

Place = dict[str, int]
Offset = dict[str, Place]


class GrowingTrace(DataSource):
    """`spark.readStream.format("whence").load(directory)`; option `max_bytes`: see `BATCH_BYTES`."""

    @classmethod
    def name(cls) -> str:
        return "whence"

    def schema(self) -> StructType:
        return _SPARK

    def streamReader(self, schema: StructType) -> GrowingReader:
        return GrowingReader(Path(self.options["path"]), int(self.options.get("max_bytes", BATCH_BYTES)))


@dataclass
class Piece(InputPartition):
    """What one task reads: bytes `first` to `last` of a JSON file, or row groups of a Parquet file."""

    file: str
    first: int
    last: int
    rows: int
    """Rows or lines of the file before it."""

    def __post_init__(self) -> None:
        self.value = None  # Spark's base class has it; nobody reads it


class GrowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """How far there is something to read, and the reading."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = reach(self._path, {}, None)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        room = None if isinstance(limit, ReadAllAvailable) else self._max_bytes
        return reach(self._path, start, room, self._target)

    def partitions(self, start: Offset, end: Offset) -> list[Piece]:
        pieces = []
        for file, place in end.items():
            before = start.get(file, {})
            first, last = (p.get("bytes", p.get("groups", 0)) for p in (before, place))
            if last > first:
                pieces.append(Piece(str(self._path / file), first, last, before.get("rows", 0)))
        return pieces

    def read(self, partition: Piece) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        yield from read_piece(partition)


# -- how far


def reach(path: Path, start: Offset, room: int | None, target: Offset | None = None) -> Offset:
    """The offset up to which there are complete lines and row groups, `room` bytes from `start` at most (but one
    block or row group at least), and never beyond `target`."""
    end = dict(start)
    for file in growing_files(path):
        if room is not None and room <= 0:
            break
        name = str(file.relative_to(path))
        old = start.get(name, {"rows": 0})
        limit = None if target is None else target.get(name, {"rows": 0})
        step = _reach_groups if file.suffix == ".parquet" else _reach_lines
        new, taken = step(file, old, room, limit)
        if new != old:
            end[name] = new
        room = None if room is None else room - taken
    return end


def growing_files(path: Path) -> list[Path]:
    """The files that are there now; none is no error, they may come. Hidden ones are a writer's, or ours."""
    found = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
    return [p for p in found if not any(part[0] in "._" for part in p.relative_to(path).parts) and p.is_file()]


def _reach_lines(file: Path, old: Place, room: int | None, limit: Place | None) -> tuple[Place, int]:
    begin = old.get("bytes", 0)
    end, rows = begin, old["rows"]
    stop = None if limit is None else limit.get("bytes", 0)
    with file.open("rb") as data:
        data.seek(begin)
        at = begin
        while block := data.read(_BLOCK):
            if stop is not None:
                block = block[: max(0, stop - at)]
            last = block.rfind(b"\n") + 1
            if last:
                end = at + last
                rows += block.count(b"\n")
            at += len(block)
            if not block or (room is not None and end - begin >= room):
                break
    return ({"bytes": end, "rows": rows} if end > begin else old), end - begin


def _reach_groups(file: Path, old: Place, room: int | None, limit: Place | None) -> tuple[Place, int]:
    try:
        meta = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return old, 0  # perhaps it is still being copied; if not, the end of the trace will tell
    groups, rows, taken = old.get("groups", 0), old["rows"], 0
    last = meta.num_row_groups if limit is None else limit.get("groups", 0)
    while groups < last and (room is None or taken < room):
        group = meta.row_group(groups)
        taken += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        rows += group.num_rows
        groups += 1
    return ({"groups": groups, "rows": rows} if taken else old), taken


# -- reading


def read_piece(piece: Piece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, and what is none of its own."""
    file = Path(piece.file)
    if file.suffix == ".parquet":
        yield from _read_groups(file, piece)
        return
    with file.open("rb") as data:
        data.seek(piece.first)
        left, position = piece.last - piece.first, piece.rows
        while left > 0:
            block = data.read(min(left, _BLOCK))
            if not block:
                raise TraceError(f"{file}: it was {piece.last} bytes long and is shorter now: this trace only grows")
            if left > len(block):
                block += data.readline()
            left -= len(block)
            lines = block.splitlines(keepends=True) if b"\r" not in block else block.split(b"\n")[:-1]
            yield lines_to_batch(lines, piece.file, position)
            position += len(lines)


def lines_to_batch(lines: list[bytes], file: str, before: int) -> pa.RecordBatch:
    """JSON lines as rows; `before`: lines of the file before them."""
    try:
        rows = msgspec.json.Decoder(list[Row]).decode(b"[" + b",".join(lines) + b"]") if lines else []
        if all(row.version >= 1 for row in rows):
            return _batch(rows, file, range(before + 1, before + len(lines) + 1))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    decode = msgspec.json.Decoder(Row).decode
    rows, positions, bad = [], [], []
    for position, line in enumerate(lines, before + 1):
        try:
            if len(line) > LINE_LIMIT:
                raise TraceError(f"longer than {LINE_LIMIT} bytes: not a whence trace")
            row = decode(line)
            if row.version < 1:
                raise TraceError(f"version {row.version} is none")
            rows.append(row)
            positions.append(position)
        except (msgspec.DecodeError, UnicodeDecodeError, TraceError) as error:
            bad.append((position, str(error), line[:RAW].decode("utf-8", "replace")))
    return _batch(rows, file, positions, bad)


def _batch(
    rows: list[Row], file: str, positions: Iterable[int], bad: list[tuple[int, str, str]] | None = None
) -> pa.RecordBatch:
    wrong = bad or []
    nothing: list[Any] = [None] * len(wrong)
    columns: list[Any] = []
    for field in arrow_schema("events"):
        values = [file] * len(rows) if field.name == "file" else list(map(attrgetter(field.name), rows))
        columns.append(pa.array(values + ([file] * len(wrong) if field.name == "file" else nothing), field.type))
    columns.append(pa.array([*positions, *(b[0] for b in wrong)], pa.int64()))
    columns += [pa.array([None] * len(rows) + [b[i] for b in wrong], pa.string()) for i in (1, 2)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def no_rows(bad: list[tuple[int, str, str]] | None = None, file: str = "") -> pa.RecordBatch:
    """Only what is no row: position, reason, what it looks like."""
    return _batch([], file, [], bad)


def _read_groups(file: Path, piece: Piece) -> Iterator[pa.RecordBatch]:
    position = piece.rows
    try:
        with pq.ParquetFile(file) as data:
            names = set(data.schema_arrow.names)
            missing = [f.name for f in arrow_schema("events") if not f.nullable and f.name not in names | {"file"}]
            if missing:
                raise TraceError(f"not a whence trace: it has no column {missing[0]!r}")
            columns = [f.name for f in _ARROW if f.name in names and f.name not in (*_EXTRA, "file")]
            for batch in data.iter_batches(row_groups=list(range(piece.first, piece.last)), columns=columns):
                yield _as_ours(batch, piece.file, position)
                position += batch.num_rows
    except (pa.ArrowException, OSError, TraceError) as error:
        yield no_rows([(-1, str(error), "")], piece.file)


def _as_ours(batch: pa.RecordBatch, file: str, before: int) -> pa.RecordBatch:
    """A batch of any version with our columns and types; rows without a required value are bad."""
    n = batch.num_rows
    have = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    have |= {"file": pa.array([file] * n, pa.string()), "position": pa.array(range(before + 1, before + n + 1))}
    bad: list[str | None] = [None] * n
    for field in arrow_schema("events"):
        if not field.nullable and have[field.name].null_count:
            for i, null in enumerate(have[field.name].is_null().to_pylist()):
                bad[i] = f"no value in column {field.name!r}" if null else bad[i]
    have["bad"] = pa.array(bad, pa.string())
    columns = [have[f.name].cast(f.type) if f.name in have else pa.nulls(n, f.type) for f in _ARROW]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)
