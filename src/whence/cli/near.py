"""The steps of a run around one of its steps, read without reading the trace.

Files are written in the order of time, more or less: where a time lies in a file is found by statistics of row groups
(Parquet) or by bisection (JSON lines). Time only chooses what is shown; it orders nothing. What is read is bounded, so
a member with a file of its own may be missing around a step when there are hundreds of them.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.audit.judge.batch.coding import codes
from whence.audit.spark import ingest
from whence.audit.spark.ingest import Piece
from whence.audit.spark.json_lines import LINE_LIMIT
from whence.audit.spark.place import opened, parquet
from whence.audit.trace import Row

MOST: Final = 30_000
"""Steps of a page."""
READ_ROWS: Final = 200_000
"""Rows after which no further part of a file is read."""
SEARCHED: Final = 3_000_000
"""Rows of Parquet files among which the step is looked for."""
SEARCHED_BYTES: Final = 1 << 30
"""Bytes of JSON lines files among which it is looked for."""
FILES: Final = 256
"""Files that are looked into."""
WINDOW: Final = 2 << 20
"""Bytes of a JSON lines file that are read at a time."""
_NOT_SHOWN: Final = ("clock", "age", "bytes", "control", "held")
COLUMNS: Final = tuple(name for name in Row.__struct_fields__ if name not in _NOT_SHOWN)


class _Part(NamedTuple):
    """A part of a file, and the statistics of its rows as far as they are known: (least, greatest) of each column."""

    piece: Piece
    told: dict[str, tuple[Any, Any]]

    def may_hold(self, **values: Any) -> bool:
        """Whether a row with these values may be in it."""
        return all(
            name not in self.told or self.told[name][0] <= value <= self.told[name][1] for name, value in values.items()
        )

    def away(self, t_ns: int) -> int:
        """How far it is from this time."""
        low, high = self.told.get("t_ns", (t_ns, t_ns))
        return max(0, int(low) - t_ns, t_ns - int(high))


def rows(pieces: Sequence[Piece], of: tuple[str, str], member: str | None = None, lseq: int | None = None) -> list[Row]:
    """At most `MOST` steps of this run and cluster: those nearest in time to this step, or the first."""
    parts = [part for piece in _mine(pieces, of) for part in _parts(piece)]
    centre = None if member is None or lseq is None else _time(parts, member, lseq)
    if centre is None:
        centre = min((part.told["t_ns"][0] for part in parts if "t_ns" in part.told), default=0)
    parts.sort(key=lambda part: (part.away(centre), member is not None and not part.may_hold(member=member)))
    tables: list[pa.Table] = []
    seen = 0
    for part in parts:
        if seen >= READ_ROWS:
            break
        table, _ = ingest.read_piece(_around(part.piece, centre), COLUMNS)  # what is no row is in the quarantine
        mine: Any = (pc.field("run") == of[0]) & (pc.field("cluster") == of[1])
        tables.append(table.filter(mine))
        seen += table.num_rows
    if not tables:
        return []
    steps = pa.concat_tables(tables).combine_chunks()
    if steps.num_rows > MOST:
        away = pc.abs(pc.subtract(steps["t_ns"], pa.scalar(centre)))
        steps = steps.take(pc.sort_indices(away).slice(0, MOST))
    values = {name: _listed(steps[name]) for name in COLUMNS}
    empty = [None] * steps.num_rows
    return list(map(Row, *(values.get(name, empty) for name in Row.__struct_fields__)))


def _listed(column: Any) -> list[Any]:
    """Its values; of text each distinct one is looked at once."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_dictionary(column.type):
        found: list[Any] = column.to_pylist() if column.null_count else column.to_numpy().tolist()
        return found
    numbers, texts = codes(column)
    names = [*texts.to_pylist(), None]  # the last is for -1
    return [names[k] for k in numbers.tolist()]


def _mine(pieces: Sequence[Piece], of: tuple[str, str]) -> Iterator[Piece]:
    """Pieces that may hold rows of this run, of a bounded number of files."""
    files: set[str] = set()
    for piece in pieces:
        if piece.of in (None, of) and (piece.file in files or len(files) < FILES):
            files.add(piece.file)
            yield piece


# -- Parquet


def _parts(piece: Piece) -> Iterator[_Part]:
    """Its row groups; JSON lines as they are."""
    if not piece.parquet:
        yield _Part(piece, {})
        return
    footer = pq.read_metadata(parquet(piece.file))
    first = piece.first
    for g in piece.groups:
        group = footer.row_group(g)
        told = {}
        for c in range(footer.num_columns):
            known = group.column(c).statistics
            if group.column(c).path_in_schema in ("member", "lseq", "t_ns") and known is not None and known.has_min_max:
                told[group.column(c).path_in_schema] = (known.min, known.max)
        end = first + group.num_rows
        yield _Part(piece._replace(groups=(g,), first=first, end=end, rows=group.num_rows), told)
        first = end


def _time(parts: Sequence[_Part], member: str, lseq: int) -> int | None:
    """When this step was, if it is found."""
    searched = searched_bytes = 0
    for part in parts:
        if not part.piece.parquet and searched_bytes < SEARCHED_BYTES:
            found = _time_in_lines(part.piece, member, lseq)
            searched_bytes += part.piece.end - part.piece.first
        elif part.piece.parquet and part.may_hold(member=member, lseq=lseq) and searched < SEARCHED:
            table, _ = ingest.read_piece(part.piece, ("member", "lseq", "t_ns"))
            searched += table.num_rows
            there: Any = table.filter((pc.field("lseq") == lseq) & (pc.field("member") == member))
            found = there["t_ns"][0].as_py() if there.num_rows else None
        else:
            continue
        if found is not None:
            return found
    return None


# -- JSON lines


def _time_in_lines(piece: Piece, member: str, lseq: int) -> int | None:
    """By the text that our writers leave."""
    text = f'"member":{json.dumps(member, ensure_ascii=False)},"lseq":{lseq},'.encode()
    with suppress(OSError, ValueError), Path(piece.file).open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        at = data.find(text, piece.first, piece.end)
        if at >= 0:
            return _t_ns(data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at) + 1 or len(data)])
    return None


def _t_ns(line: bytes) -> int | None:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=Row).t_ns
    return None


def _around(piece: Piece, t_ns: int) -> Piece:
    """The bytes of a JSON lines file around this time; Parquet as it is."""
    if piece.parquet or piece.end - piece.first <= WINDOW:
        return piece
    low, high = piece.first, piece.end
    with suppress(OSError), opened(piece.file) as file:
        while high - low > WINDOW // 2:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline(LINE_LIMIT)
            at = _t_ns(file.readline(LINE_LIMIT))
            if at is not None and at < t_ns:
                low = middle
            else:
                high = middle
    first = max(piece.first, min(low - WINDOW // 2, piece.end - WINDOW))
    return piece._replace(first=first, end=min(piece.end, first + WINDOW))
