"""A Spark source for traces that grow: JSON lines to which members append, Parquet files that appear when complete.

Spark's own file source takes a file once, when it appears. This one remembers how far it has read each file: an offset
is `{file: n}`, n the bytes of a JSON file (always behind a complete line), or the row groups of a Parquet file. Spark
writes the offsets of every batch into its checkpoint before it runs it, so a batch that is run again has the same rows.
What is a row and what is not is `ingest`'s to say.

It is the stream of the source `whence` (`whence.audit.spark.sources`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from whence.audit.spark import ingest
from whence.audit.spark.place import found
from whence.audit.trace.schema import COLUMNS, PARQUET
from whence.errors import TraceError

BATCH_BYTES: Final = 16 << 20
"""Bytes of trace in one batch, unless the option `max_bytes` says otherwise: what memory and the time of a batch grow
with."""

ROW_BYTES: Final = 200
"""Of a row as JSON, about. A row of a Parquet file counts as much: on disk it is smaller, in memory it is not."""

_BLOCK: Final = 1 << 20
_NAMES: Final = tuple(column.name for column in COLUMNS)
Offset = dict[str, int]


class Span(InputPartition):
    """What one task reads: bytes or row groups `first` to `end` of a file."""

    def __init__(self, file: str, first: int, end: int) -> None:
        super().__init__((file, first, end))


class GrowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """How far there is something to read, and the reading."""

    def __init__(self, path: str, max_bytes: int, blocks: bool = False) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._blocks = blocks
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

    def partitions(self, start: Offset, end: Offset) -> list[Span]:
        grown = ((file, start.get(file, 0), n) for file, n in end.items())
        return [Span(str(self._path / file), first, n) for file, first, n in grown if n > first]

    def read(self, partition: Span) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        if self._blocks:
            from whence.audit.spark.blocks import of_piece  # lazily, as in `sources`

            yield from of_piece(0, piece_of(*partition.value))
        else:
            yield from read(*partition.value).to_batches()


# -- how far


def growing_files(path: Path) -> list[Path]:
    """The files that are there now; none is no error, they may come."""
    try:
        return [Path(file.place) for file in ingest.find([path])]
    except TraceError:
        return []


def reach(path: Path, start: Offset, room: int | None, target: Offset | None = None) -> Offset:
    """The offset up to which there are complete lines and row groups: `room` bytes from `start`, or a block or row
    group more; never beyond `target`."""
    end = dict(start)
    root = path.absolute()
    for file in growing_files(path):
        if room is not None and room <= 0:
            break
        name = str(file.relative_to(root))
        old = start.get(name, 0)
        new, taken = (_groups if is_parquet(file) else _lines)(file, old, room)
        new = new if target is None else min(new, target.get(name, 0))
        if new > old:
            end[name] = new
            room = None if room is None else room - taken
    return end


def is_parquet(file: Path) -> bool:
    """By its name, or else by its first bytes."""
    if file.suffix == ".parquet":
        return True
    with file.open("rb") as data:
        return data.read(4) == PARQUET


def _lines(file: Path, old: int, room: int | None) -> tuple[int, int]:
    end = at = old
    with file.open("rb") as data:
        data.seek(old)
        while block := data.read(_BLOCK):
            last = block.rfind(b"\n") + 1
            end = at + last if last else end
            at += len(block)
            if room is not None and end - old >= room:
                break
    return end, end - old


def _groups(file: Path, old: int, room: int | None) -> tuple[int, int]:
    _, bad = ingest.plan(found(file))
    if bad:
        return old, 0  # perhaps it is still being copied; if not, the end of the trace will tell
    footer = pq.read_metadata(file)
    end, taken = old, 0
    while end < footer.num_row_groups and (room is None or taken < room):
        taken += max(1, footer.row_group(end).num_rows * ROW_BYTES)
        end += 1
    return end, taken


# -- reading


def read(file: str, first: int, end: int) -> pa.Table:
    """These bytes or row groups, as rows of `ingest.RAW`."""
    return ingest.raw_rows(file, *ingest.read_piece(piece_of(file, first, end), _NAMES))


def piece_of(file: str, first: int, end: int) -> ingest.Piece:
    """The piece of the file that these bytes or row groups are."""
    if not is_parquet(Path(file)):
        if Path(file).stat().st_size < end:
            raise TraceError(f"{file}: it was {end} bytes long and is shorter now; a trace only grows")
        return ingest.Piece(file, False, (), first, end, 0, None)
    footer = pq.read_metadata(file)
    sizes = [footer.row_group(g).num_rows for g in range(end)]
    before, upto = sum(sizes[:first]), sum(sizes)
    return ingest.Piece(file, True, tuple(range(first, end)), before, upto, upto - before, None)
