"""Trace files into rows: what is a row, and what is not, with file, position and reason.

Files are cut into **pieces**, each read by one task with Arrow, text as dictionaries; only the columns that are asked
for are read. What cannot be read never stops the run: a damaged file loses what is damaged, and the quarantine says so.
Unknown columns are passed over, optional ones that are missing are null.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.audit.judge.batch.coding import LAST, codes, typed
from whence.audit.judge.promises import PROMISES
from whence.audit.spark.place import Anywhere, TraceFile, found, opened, parquet, place_of
from whence.audit.spark.tables import MANIFEST, arrow_schema
from whence.audit.trace.parquet import gate
from whence.audit.trace.read import SUFFIXES, decoded, lines
from whence.audit.trace.schema import COLUMNS, KINDS, LOST, PARQUET, REQUIRED, TRACE_VERSION
from whence.errors import TraceError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame, SparkSession

PIECE_ROWS: Final = 1 << 20
"""Rows of a Parquet file that one task reads at a time."""
PIECE_BYTES: Final = 128 << 20
"""The same for JSON lines."""
BATCH_ROWS: Final = 1 << 14
"""Rows of JSON lines that are put into columns at a time."""
RAW_LIMIT: Final = 4096
"""Bytes of a line that are kept in the quarantine."""
ROWS_A_BYTE: Final = 16
"""A file that says it holds more is no trace, however well it is compressed: it would fill the memory."""
TASKS: Final = 4
"""Tasks for each core: enough for the last ones to end at about the same time."""

COLUMN: Final = {column.name: column for column in COLUMNS}
TYPES: Final[dict[str, Any]] = {
    "text": pa.dictionary(pa.int32(), pa.string()),
    "int32": pa.int32(),
    "int64": pa.int64(),
}
NEEDED: Final = ("run", "cluster", "member", "lseq", "kind", "event")
"""Columns that a table has to have. Without `t_ns` all times are 0; `version` is then the current one."""
_BLANK: Final = {"t_ns": 0, "version": TRACE_VERSION}
_LEAST: Final = {"version": 1, "lseq": 0}
_EVENTFUL: Final = ("publish", "deliver", "drop")
"""Kinds whose rows name an event."""
_SAID: Final = {name: re.compile(rf'"{name}"\s*:\s*("(?:[^"\\]|\\.)*")') for name in ("run", "cluster", "member")}
_STEP: Final = re.compile(r'"lseq"\s*:\s*(-?\d{1,18})(?=\s*[,}])')


class Piece(NamedTuple):
    """A part of a file that one task reads."""

    file: str
    parquet: bool
    groups: tuple[int, ...]
    """Parquet: these row groups."""
    first: int
    """The number of the first row, or the first byte of a JSON file."""
    end: int
    """One beyond the last."""
    rows: int
    """At most; of a JSON file a guess."""
    of: tuple[str, str] | None
    """The run and cluster of all its rows, if that is known without reading them."""
    given: tuple[tuple[str, str], ...] = ()
    """Columns that the file does not have, but the names of its directories (`run=7/cluster=a/...`)."""


class Bad(NamedTuple):
    """A row of the quarantine."""

    file: str
    position: int
    reason: str
    raw: str | None = None
    run: str | None = None
    cluster: str | None = None
    member: str | None = None
    lseq: int | None = None

    @property
    def placed(self) -> bool:
        """It is known whose step it was."""
        return None not in (self.run, self.cluster, self.member)


Read = tuple[pa.Table, list[Bad]]
_text: Final = msgspec.json.Decoder(str).decode


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Of rows with these columns, as they are read."""
    fields: list[Any] = [pa.field(name, TYPES[COLUMN[name].type]) for name in columns]
    return pa.schema([*fields, pa.field("position", pa.int64())])


# -- which files


def find(paths: Iterable[Anywhere]) -> list[TraceFile]:
    """The trace files at these places, each once; tables that an audit wrote there are none. A path may be a URI, a
    glob, a directory. Raises TraceError for a path that is not there or holds no trace."""
    all_: dict[str, TraceFile] = {}
    for path in paths:
        files = found(path, without=MANIFEST)
        if len(files) != 1 or files[0].place != place_of(path):
            files = [file for file in files if file.place.partition("?")[0].endswith(SUFFIXES)]
        if not files:
            raise TraceError(f"{path}: no trace in this directory (no {' or '.join(SUFFIXES)} file, or only tables)")
        all_ |= {file.place: file for file in files}
    return list(all_.values())


def plan(files: Sequence[TraceFile]) -> tuple[list[Piece], list[Bad]]:
    """The pieces of these files, by what their footers say; and the files that are no traces."""
    pieces: list[Piece] = []
    bad: list[Bad] = []
    with ThreadPoolExecutor(16) as pool:
        for found in pool.map(_pieces, files):
            if isinstance(found, Bad):
                bad.append(found)
            else:
                pieces += found
    return pieces, bad


def _pieces(found: TraceFile) -> list[Piece] | Bad:
    file, size = found.place, found.size
    try:
        if size == 0:
            return Bad(file, -1, "empty file: not even the header of a trace")
        with opened(file) as data:
            head = data.read(512)
        if head[:4] == PARQUET:
            return _parquet_pieces(file, size, pq.read_metadata(parquet(file)), _given(file))
        name = file.partition("?")[0]
        if name.endswith(".parquet"):
            return Bad(file, -1, f"not a Parquet file (it begins with {head[:4]!r})")
        if not name.endswith(SUFFIXES) and head.lstrip()[:1] not in (b"{", b""):
            raise TraceError(
                f"{file}: no trace: it begins with {head.lstrip()[:20]!r}, not with a JSON object or as Parquet does. "
                "A log with vector clocks is read with --format shiviz; other tables: docs/pipeline.md"
            )
        cuts = [*range(0, size, PIECE_BYTES), size]
        return [Piece(file, False, (), a, b, (b - a) // 150, None) for a, b in pairwise(cuts)]
    except (OSError, pa.ArrowException) as error:
        return Bad(file, -1, _said(f"damaged, truncated or no Parquet file: {error}"))


def _given(file: str) -> dict[str, str]:
    """Columns by the names of directories, as Spark and Hive write them: `run=7/cluster=a/...`."""
    parts = file.partition("?")[0].split("/")[:-1]
    pairs = (part.partition("=") for part in parts if "=" in part)
    return {name: unquote(value) for name, _, value in pairs if name in COLUMN}


def _said(error: object) -> str:
    return " ".join(str(error).split())[:500]


def _parquet_pieces(file: str, size: int, footer: Any, given: dict[str, str]) -> list[Piece] | Bad:
    schema = footer.schema.to_arrow_schema()
    why = gate(schema, [name for name in NEEDED if name not in given])
    if footer.num_rows > ROWS_A_BYTE * size:
        why = f"{footer.num_rows:,} rows in {size:,} bytes: no trace is so repetitive"
    if why is not None:
        return Bad(file, -1, why)
    told = tuple((name, value) for name, value in given.items() if schema.get_field_index(name) < 0)
    out: list[Piece] = []
    groups: list[int] = []
    first = rows = 0
    for g in range(footer.num_row_groups):
        groups.append(g)
        rows += footer.row_group(g).num_rows
        if rows >= PIECE_ROWS or g == footer.num_row_groups - 1:
            of = _one_run(footer, groups, dict(told))
            out.append(Piece(file, True, tuple(groups), first, first + rows, rows, of, told))
            groups, first, rows = [], first + rows, 0
    return out


def _one_run(footer: Any, groups: list[int], given: dict[str, str]) -> tuple[str, str] | None:
    """The run and cluster of these row groups, if directories or statistics tell that there is one."""
    at = {footer.row_group(groups[0]).column(c).path_in_schema: c for c in range(footer.num_columns)}
    said: list[str] = []
    for name in ("run", "cluster"):
        values = {given[name]} if name in given else set()
        for g in groups if name not in given else ():
            known = footer.row_group(g).column(at[name]).statistics
            if known is None or not known.has_min_max or known.null_count:
                return None
            values |= {known.min, known.max}
        if len(values) != 1:
            return None
        said.append(str(values.pop()))
    return said[0], said[1]


# -- reading


def read_piece(piece: Piece, columns: Sequence[str]) -> Read:
    """The rows of a piece, with these columns (text as dictionaries) and `position`; and what is no row."""
    try:
        return _read_parquet(piece, columns) if piece.parquet else _read_lines(piece, columns)
    except (OSError, pa.ArrowException) as error:
        if len(piece.groups) > 1:  # what is damaged is lost, not what is beside it
            parts = [read_piece(group, columns) for group in by_group(piece)]
            return pa.concat_tables([rows for rows, _ in parts]), [one for _, bad in parts for one in bad]
        position = piece.first if piece.parquet else -1
        return schema_of(columns).empty_table(), [Bad(piece.file, position, _said(f"damaged: {error}"))]


def by_group(piece: Piece) -> Iterator[Piece]:
    """The row groups of a piece, each as a piece."""
    footer, first = pq.read_metadata(parquet(piece.file)), piece.first
    for g in piece.groups:
        rows = footer.row_group(g).num_rows
        yield piece._replace(groups=(g,), first=first, end=first + rows, rows=rows)
        first += rows


def _read_parquet(piece: Piece, columns: Sequence[str]) -> Read:
    wanted = list(dict.fromkeys([*REQUIRED, *columns]))
    source, given = parquet(piece.file), dict(piece.given)
    footer = pq.read_metadata(source)
    there = [name for name in wanted if name in footer.schema.names and name not in given]
    texts = [name for name in there if COLUMN[name].type == "text"]
    with pq.ParquetFile(source, metadata=footer, read_dictionary=texts) as file:
        table = file.read_row_groups(list(piece.groups), columns=there, use_threads=False)
    full = [
        typed(table[name], TYPES[COLUMN[name].type])
        if name in there
        else constant(given.get(name, _BLANK.get(name)), name, piece.rows)
        for name in wanted
    ]
    positions: Any = np.arange(piece.first, piece.end)
    rows = pa.table(full, names=wanted).append_column("position", pa.array(positions))
    good, bad = sound(rows, REQUIRED, piece.file)
    return good.select([*columns, "position"]), bad


def constant(value: Any, name: str, rows: int) -> Any:
    """A column of this name with one value."""
    kind = TYPES[COLUMN[name].type] if name in COLUMN else TYPES["text"]
    if value is None or not pa.types.is_dictionary(kind):
        return pa.repeat(pa.scalar(value, kind), rows) if value is not None else pa.nulls(rows, kind)
    zeros: Any = np.zeros(rows, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([value], pa.string()))


def sound(rows: pa.Table, required: Sequence[str], file: str = "") -> Read:
    """Rows that can be judged, and the others. `rows` may themselves say where each is from (`file`, `position`), and
    which is no row and why not (`bad`, `raw`)."""
    bad: list[Bad] = []
    gone: Any = None
    for mask, why in _wrong(rows, required):
        mask = pc.fill_null(mask, False)
        new = mask if gone is None else pc.and_(mask, pc.invert(gone))
        for row in rows.filter(new).to_pylist():
            where, position = row.pop("file", file), row.pop("position", -1)
            told, raw = row.pop("bad", None), row.pop("raw", None)
            said = json.dumps({name: value for name, value in row.items() if value is not None})
            bad.append(unread(where, position, why or told, raw if told else said))
        gone = mask if gone is None else pc.or_(gone, mask)
    good = rows if gone is None else rows.filter(pc.invert(gone))
    return good.drop_columns([name for name in ("bad", "raw") if name in good.column_names]), bad


def unread(file: str, position: int, reason: str, raw: str | None) -> Bad:
    """What is no row, and whose step it was, if its text tells. One that names several is nobody's."""
    said = {name: set(pattern.findall(raw or "")) for name, pattern in _SAID.items()}
    run, cluster, member = (
        decoded(found.pop().encode(), _text)[0] if len(found) == 1 else None for found in said.values()
    )
    step = _STEP.search(raw or "")
    return Bad(file, position, reason, raw and raw[:RAW_LIMIT], run, cluster, member, int(step[1]) if step else None)


def lost(rows: pa.Table, bad: Iterable[Bad]) -> pa.Table:
    """These rows, with a row of kind `LOST` for each step that the quarantine took: so that whose steps are not all
    here is seen wherever the rows go."""
    mine = [one for one in bad if one.placed]
    if not mine:
        return rows
    steps = [LAST if one.lseq is None else max(-1, min(one.lseq, LAST)) for one in mine]
    known = {name: [getattr(one, name) for one in mine] for name in ("run", "cluster", "member")}
    told: dict[str, Any] = {**known, "lseq": steps, "kind": [LOST] * len(mine), "t_ns": [0] * len(mine)}
    told |= {"file": [one.file for one in mine], "position": [one.position for one in mine]}
    columns = [pa.array(told.get(f.name, [None] * len(mine)), _plain(f.type)).cast(f.type) for f in rows.schema]
    return pa.concat_tables([rows, pa.Table.from_arrays(columns, schema=rows.schema)])


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _wrong(rows: pa.Table, required: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Which rows cannot be judged, as masks, and why."""
    there = set(rows.column_names)
    if "bad" in there and rows["bad"].null_count < rows.num_rows:
        yield rows["bad"].is_valid(), ""
    for name in required:
        if rows[name].null_count:
            yield rows[name].is_null(), f"no value in column {name!r}"
    for name, least in _LEAST.items():
        low = pc.min(rows[name]).as_py() if name in there else None
        if low is not None and low < least:
            yield pc.less(rows[name], pa.scalar(least)), f"{name} is below {least}"
    if rows.num_rows and (pc.max(rows["lseq"]).as_py() or 0) >= LAST:
        yield pc.greater_equal(rows["lseq"], pa.scalar(LAST)), f"lseq is above {LAST - 1}"
    # nobody knows what such a row says, so it is not judged as if it said nothing
    for name, known in (("kind", KINDS), ("order", tuple(PROMISES))):
        chunks: Any = rows[name].chunks if name in there else ()
        for value in sorted({o for chunk in chunks for o in chunk.dictionary.to_pylist()} - {*known, None}):
            why = f"unknown {name} {value!r} (known: {', '.join(known)})"
            yield pc.equal(rows[name].cast(pa.string()), pa.scalar(value)), why
    if "event" in there and rows["event"].null_count:
        code, kinds = codes(rows["kind"])
        named: Any = np.isin(code, [k for k, kind in enumerate(kinds.to_pylist()) if kind in _EVENTFUL])
        yield pc.and_(rows["event"].is_null(), pa.array(named)), "it names no event"


# -- JSON lines


def _read_lines(piece: Piece, columns: Sequence[str]) -> Read:
    """The rows in the lines that begin in this piece; `position` counts lines from the first of them."""
    wanted = tuple(dict.fromkeys([*REQUIRED, *columns]))
    decode = _decoder(wanted).decode
    tables, bad = [schema_of(columns).empty_table()], []
    rows: list[Any] = []
    at: list[int] = []

    def keep() -> None:
        table = pa.table({name: _column(rows, name) for name in wanted})
        good, wrong = sound(table.append_column("position", pa.array(at, pa.int64())), REQUIRED, piece.file)
        tables.append(good.select([*columns, "position"]))
        bad.extend(wrong)
        rows.clear()
        at.clear()

    with opened(piece.file) as file:
        if piece.first:  # a line belongs to the piece that it begins in
            file.seek(piece.first - 1)
            file.readline()
        start = file.tell()
        for number, (_, line) in enumerate(lines(file, piece.end), 1):
            row, why = decoded(line, decode)
            if row is None:
                bad.append(unread(piece.file, number, why, line.decode("utf-8", "replace").rstrip()))
                continue
            rows.append(row)
            at.append(number)
            if len(rows) == BATCH_ROWS:
                keep()
        keep()
        before = _newlines(file, start) if bad else 0
    bad = [one._replace(position=one.position + before) for one in bad]
    return pa.concat_tables(tables), sorted(bad, key=lambda one: one.position)


def _newlines(file: BinaryIO, end: int) -> int:
    """How many there are before this byte."""
    file.seek(0)
    count, left = 0, end
    while left and (block := file.read(min(left, 1 << 20))):
        count += block.count(b"\n")
        left -= len(block)
    return count


@cache
def _decoder(columns: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Of lines with these columns. Numbers that no row has are errors, like text that is no JSON."""
    fields: list[Any] = []
    for name in columns:
        column = COLUMN[name]
        bits = {"int32": 31, "int64": 63}.get(column.type, 0)
        least = _LEAST.get(name, -(1 << bits))
        kind: Any = str if column.type == "text" else Annotated[int, msgspec.Meta(ge=least, le=(1 << bits) - 1)]
        if name in _BLANK:
            fields.append((name, kind, _BLANK[name]))
        else:
            fields.append((name, kind) if column.required else (name, kind | None, None))
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False, kw_only=True))


def _column(rows: list[Any], name: str) -> Any:
    kind = COLUMN[name].type
    values = pa.array(list(map(attrgetter(name), rows)), pa.string() if kind == "text" else TYPES[kind])
    return values.dictionary_encode() if kind == "text" else values


# -- as tables


def bad_table(bad: Sequence[Bad]) -> pa.Table:
    """The table `quarantine`."""
    columns = {name: [row[at] for row in bad] for at, name in enumerate(Bad._fields)}
    return pa.Table.from_pydict(columns, schema=arrow_schema("quarantine"))


RAW: Final = pa.schema(
    [pa.field(f.name, f.type) for f in arrow_schema("events")]
    + [pa.field("position", pa.int64()), pa.field("bad", pa.string()), pa.field("raw", pa.string())]
)
"""The columns of `events`, and those of `quarantine` with `reason` as `bad`; a row has either a `bad` or none."""


def raw_rows(file: str, table: pa.Table, bad: Sequence[Bad]) -> pa.Table:
    """What was read of a file, as rows of `RAW`: those of a trace, and what is no row."""
    good = table.append_column("file", constant(file, "file", table.num_rows))
    wrong = bad_table(bad).select(Bad._fields[:4]).rename_columns(["file", "position", "bad", "raw"])
    return pa.concat_tables([_as_raw(good), _as_raw(wrong)])


def _as_raw(rows: pa.Table) -> pa.Table:
    there = set(rows.column_names)
    columns = [rows[f.name].cast(f.type) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in RAW]
    return pa.Table.from_arrays(columns, schema=RAW)


def over(
    spark: SparkSession,
    jobs: Sequence[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: Any,
    tasks: int | None = None,
) -> DataFrame:
    """`work` on each job. A task takes several, one after the other, as it costs 0.05 s by itself: `tasks` of them, by
    default a few for each core. Jobs are rows of a DataFrame, so a task gets its own only."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for job in batch.column(1).to_pylist():
                yield from work(pickle.loads(job or b""))

    from whence.audit.spark import session

    n = len(jobs)
    wanted = max(1, min(n, tasks or TASKS * session.cores(spark)))
    rows = [(k * wanted // n, pickle.dumps(job)) for k, job in enumerate(jobs)]
    frame = spark.createDataFrame(rows, "task int, job binary")
    return frame.repartitionById(wanted, "task").mapInArrow(task, schema)


def read_traces(spark: SparkSession, paths: Iterable[Anywhere], columns: Sequence[str] = RAW.names) -> DataFrame:
    """The rows of the traces at these places, for `whence.audit.audit` or anything else: the columns of the table
    `events`, and `position`, `bad` and `raw`. Where something is no row, `bad` says why, with its text in `raw`;
    `audit` puts it into the quarantine. Only these `columns` are read."""
    from pyspark.sql.pandas.types import from_arrow_schema

    pieces, wrong = plan(find(paths))
    names = [name for name in columns if name in COLUMN]

    def rows(job: Piece | Bad) -> Iterator[pa.RecordBatch]:
        none = schema_of(names).empty_table()
        table, bad = read_piece(job, names) if isinstance(job, Piece) else (none, [job])
        yield from raw_rows(job.file, table, bad).select(list(columns)).to_batches(max_chunksize=1 << 16)

    kinds = from_arrow_schema(pa.schema([RAW.field(name) for name in columns]))
    return over(spark, [*pieces, *wrong], rows, kinds)
