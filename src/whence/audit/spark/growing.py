"""How far traces have grown: JSON lines to which members append, Parquet files that appear when complete.

An offset is `{file: n}`, n the bytes of a JSON file (always behind a complete line), or the row groups of a Parquet
file. What is between two offsets never changes, so a batch that is run again has the same rows. `ingest` decides
what is a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.spark import ingest
from whence.audit.spark.place import found
from whence.audit.trace.schema import COLUMNS, PARQUET
from whence.errors import TraceError

BATCH_BYTES: Final = 16 << 20
"""Bytes of trace in one batch: what memory and the time of a batch grow with."""

ROW_BYTES: Final = 200
"""Of a row as JSON, about. A row of a Parquet file counts as much: on disk it is smaller, in memory it is not."""

_BLOCK: Final = 1 << 20
_NAMES: Final = tuple(column.name for column in COLUMNS)
Offset = dict[str, int]


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
    """The rows in bytes or row groups `first` to `end` of a file, as rows of `ingest.RAW`."""
    if not is_parquet(Path(file)):
        if Path(file).stat().st_size < end:
            raise TraceError(f"{file}: it was {end} bytes long and is shorter now; a trace only grows")
        piece = ingest.Piece(file, False, (), first, end, 0, None)
    else:
        footer = pq.read_metadata(file)
        sizes = [footer.row_group(g).num_rows for g in range(end)]
        before, upto = sum(sizes[:first]), sum(sizes)
        piece = ingest.Piece(file, True, tuple(range(first, end)), before, upto, upto - before, None)
    return ingest.raw_rows(file, *ingest.read_piece(piece, _NAMES))
