"""Trace files into tables: what is a row, and what is not, with file, position and reason.

Files are cut into **pieces**, each read by one task with Arrow, text as dictionaries; only the columns that are asked
for leave the disk. What cannot be read never stops the run: a damaged file loses what is damaged, and the quarantine
says so. Rows of several schema versions may lie side by side: unknown columns are passed over, optional ones that are
missing are null.
"""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whence.audit.judge.promises import PROMISES
from whence.audit.spark import json_lines
from whence.audit.spark.json_lines import COLUMN, RAW_LIMIT, TYPES, schema_of, unknown_order
from whence.audit.spark.place import Anywhere, TraceFile, found, opened, parquet, place_of
from whence.audit.spark.tables import MANIFEST, arrow_schema, spark_schema
from whence.audit.trace.read import SUFFIXES
from whence.audit.trace.schema import COLUMNS, TRACE_VERSION
from whence.errors import TraceError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PIECE_ROWS: Final = 1 << 20
"""Rows of a Parquet file that one task reads at a time."""
PIECE_BYTES: Final = 128 << 20
"""The same for JSON lines."""
TASKS: Final = 4
"""Tasks for each core: enough for the last ones to end at about the same time."""

_REQUIRED: Final = tuple(column.name for column in COLUMNS if column.required)
NEEDED: Final = ("run", "cluster", "member", "lseq", "kind", "event")
"""Columns that a table has to have. Without `t_ns` all times are 0; `version` is then the current one."""
_BLANK: Final = {"t_ns": 0, "version": TRACE_VERSION}


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


Read = tuple[pa.Table, list[Bad]]


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
    given = _given(file)
    try:
        if size == 0:
            return Bad(file, -1, "empty file: not even the header of a trace")
        with opened(file) as head:
            magic = head.read(4)
        if magic != b"PAR1" and file.partition("?")[0].endswith(".parquet"):
            return Bad(file, -1, f"not a Parquet file (it begins with {magic!r})")
        if magic != b"PAR1":
            cuts = [*range(0, size, PIECE_BYTES), size]
            return [Piece(file, False, (), a, b, (b - a) // 150, None) for a, b in pairwise(cuts)]
        return _parquet_pieces(file, pq.read_metadata(parquet(file)), given)
    except (OSError, pa.ArrowException) as error:
        return Bad(file, -1, _said(f"damaged, truncated or no Parquet file: {error}"))


def _given(file: str) -> dict[str, str]:
    """Columns by the names of directories, as Spark and Hive write them: `run=7/cluster=a/...`."""
    parts = file.partition("?")[0].split("/")[:-1]
    pairs = (part.partition("=") for part in parts if "=" in part)
    return {name: unquote(value) for name, _, value in pairs if name in COLUMN}


def _said(error: object) -> str:
    return " ".join(str(error).split())[:500]


def _parquet_pieces(file: str, footer: Any, given: dict[str, str]) -> list[Piece] | Bad:
    schema = footer.schema.to_arrow_schema()
    why = gate(schema, given)
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
        if name in given:
            said.append(given[name])
            continue
        values = set()
        for g in groups:
            known = footer.row_group(g).column(at[name]).statistics
            if known is None or not known.has_min_max or known.null_count:
                return None
            values |= {known.min, known.max}
        if len(values) != 1:
            return None
        said.append(str(values.pop()))
    return said[0], said[1]


def gate(schema: Any, given: Container[str] = ()) -> str | None:
    """Why a file with these columns is no trace; None if it is one. `given`: columns known from elsewhere."""
    missing, wrong = [], []
    for column in COLUMNS:
        at = schema.get_field_index(column.name)
        if at < 0:
            if column.name in NEEDED and column.name not in given:
                missing.append(column.name)
            continue
        kind = schema.field(at).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        fits = text if column.type == "text" else pa.types.is_integer(kind)
        if not fits and not (pa.types.is_null(kind) and not column.required):
            wrong.append(f"column {column.name!r} is {kind}, not {column.type}")
    if missing:
        wrong.insert(0, f"not a whence trace: it has no column {', '.join(map(repr, missing))}")
    return "; ".join(wrong) or None


# -- reading


def read_piece(piece: Piece, columns: Sequence[str]) -> Read:
    """The rows of a piece, with these columns (text as dictionaries) and `position`; and what is no row."""
    try:
        return _read_parquet(piece, columns) if piece.parquet else _read_jsonl(piece, columns)
    except (OSError, pa.ArrowException) as error:
        if len(piece.groups) > 1:  # what is damaged is lost, not what is beside it
            return _by_group(piece, columns)
        position = piece.first if piece.parquet else -1
        return _empty(columns), [Bad(piece.file, position, _said(f"damaged: {error}"))]


def _by_group(piece: Piece, columns: Sequence[str]) -> Read:
    footer = pq.read_metadata(parquet(piece.file))
    first, tables, bad = piece.first, [], []
    for g in piece.groups:
        rows = footer.row_group(g).num_rows
        table, wrong = read_piece(piece._replace(groups=(g,), first=first, end=first + rows, rows=rows), columns)
        tables.append(table)
        bad += wrong
        first += rows
    return pa.concat_tables(tables), bad


def _empty(columns: Sequence[str]) -> pa.Table:
    return schema_of(columns).empty_table()


def _read_parquet(piece: Piece, columns: Sequence[str]) -> Read:
    """What the footer tells is not read: a column with the same value everywhere, row groups where it is null."""
    wanted = list(dict.fromkeys([*_REQUIRED, *columns]))
    source = parquet(piece.file)
    footer = pq.read_metadata(source)
    if not piece.rows:
        return _empty(columns), []
    full: dict[str, Any] = _constants(piece, footer)
    rows = [footer.row_group(g).num_rows for g in piece.groups]
    where: dict[tuple[int, ...], list[str]] = {}
    for name in wanted:
        if name not in full:
            where.setdefault(_filled(piece, footer, name), []).append(name)
    texts = [name for groups, names in where.items() if groups for name in names if COLUMN[name].type == "text"]
    with pq.ParquetFile(source, metadata=footer, read_dictionary=texts) as file:
        for groups, names in where.items():
            table = file.read_row_groups(list(groups), columns=names, use_threads=False) if groups else None
            for name in names:
                values = None if table is None else _typed(table[name], name)
                full[name] = _spread(values, piece.groups, rows, groups, TYPES[COLUMN[name].type])
    positions: Any = np.arange(piece.first, piece.end)
    return _sound(piece.file, pa.table([full[name] for name in wanted], names=wanted), pa.array(positions), columns)


def _constants(piece: Piece, footer: Any) -> dict[str, Any]:
    """Run, cluster and version of all rows, where the statistics tell."""
    out: dict[str, Any] = {}
    known = dict(piece.given) | (dict(zip(("run", "cluster"), piece.of, strict=True)) if piece.of is not None else {})
    zeros: Any = np.zeros(piece.rows, np.int32)
    for name, value in known.items():
        if COLUMN[name].type == "text":
            out[name] = pa.DictionaryArray.from_arrays(pa.array(zeros), pa.array([value], pa.string()))
        else:
            out[name] = pa.repeat(pa.scalar(value).cast(TYPES[COLUMN[name].type]), piece.rows)
    for name, blank in _BLANK.items():
        if name not in out and _place(footer, name) is None:
            out[name] = pa.repeat(pa.scalar(blank, TYPES[COLUMN[name].type]), piece.rows)
    at = _place(footer, "version")
    if at is None:
        return out
    told = [footer.row_group(g).column(at).statistics for g in piece.groups]
    values = {v for s in told for v in ((s.min, s.max) if s is not None and s.has_min_max else (None,))}
    if len(values) == 1 and None not in values and not any(s.null_count for s in told):
        rows = [footer.row_group(g).num_rows for g in piece.groups]
        one = pa.repeat(pa.scalar(values.pop(), pa.int32()), max(rows))
        out["version"] = pa.chunked_array([one.slice(0, n) for n in rows])
    return out


def _place(footer: Any, name: str) -> int | None:
    """Which column this is; None: it is not there."""
    return next((c for c in range(footer.num_columns) if footer.schema.column(c).path == name), None)


def _filled(piece: Piece, footer: Any, name: str) -> tuple[int, ...]:
    """The row groups where this column has values."""
    at = _place(footer, name)
    if at is None:
        return ()
    if name in _REQUIRED:
        return piece.groups
    told = [(g, footer.row_group(g).num_rows, footer.row_group(g).column(at).statistics) for g in piece.groups]
    return tuple(g for g, n, s in told if s is None or not s.has_null_count or s.null_count < n)


def _typed(column: Any, name: str) -> Any:
    kind = TYPES[COLUMN[name].type]
    if column.type == kind:
        return column
    return column.cast(pa.string()).dictionary_encode() if COLUMN[name].type == "text" else column.cast(kind)


def _spread(values: Any, groups: tuple[int, ...], rows: list[int], there: tuple[int, ...], kind: Any) -> Any:
    """A column over all row groups, from its values in those that have some."""
    if there == groups:
        return values
    nulls: Any = pa.nulls(max(rows), kind)  # one for all groups
    chunks: list[Any] = []
    at = 0
    for g, n in zip(groups, rows, strict=True):
        if g in there:
            chunks += values.slice(at, n).chunks
            at += n
        else:
            chunks.append(nulls.slice(0, n))
    return pa.chunked_array(chunks, kind)


def _sound(file: str, rows: pa.Table, positions: Any, columns: Sequence[str]) -> Read:
    """Rows that have all they need, and the others."""
    rows = rows.append_column("position", positions)
    wrong: list[tuple[Any, str]] = [
        (rows[name].is_null(), f"no value in column {name!r}") for name in _REQUIRED if rows[name].null_count
    ]
    for name, least in (("version", 1), ("lseq", 0)):
        low = pc.min(rows[name]).as_py()
        if low is not None and low < least:
            wrong.append((pc.less(rows[name], pa.scalar(least)), f"{name} is below {least}"))
    if "order" in rows.column_names:
        chunks: Any = rows["order"].chunks
        for order in sorted({o for chunk in chunks for o in chunk.dictionary.to_pylist()} - set(PROMISES)):
            wrong.append((pc.equal(rows["order"].cast(pa.string()), pa.scalar(order)), unknown_order(order)))
    bad: list[Bad] = []
    if wrong:
        gone: Any = None
        for mask, why in wrong:
            mask = pc.fill_null(mask, False)
            new = mask if gone is None else pc.and_(mask, pc.invert(gone))
            for row in rows.filter(new).select([*_REQUIRED, "position"]).to_pylist():
                bad.append(Bad(file, row.pop("position"), why, json.dumps(row)[:RAW_LIMIT]))
            gone = mask if gone is None else pc.or_(gone, mask)
        rows = rows.filter(pc.invert(gone))
    return rows.select([*columns, "position"]), bad


def _read_jsonl(piece: Piece, columns: Sequence[str]) -> Read:
    with opened(piece.file) as file:
        table, bad = json_lines.read(file, piece.first, piece.end, columns)
    return table, [Bad(piece.file, *why) for why in bad]


# -- as tables


def bad_table(bad: Sequence[Bad]) -> pa.Table:
    """The table `quarantine`."""
    columns = {name: [row[at] for row in bad] for at, name in enumerate(Bad._fields)}
    return pa.Table.from_pydict(columns, schema=arrow_schema("quarantine"))


def raw(spark: SparkSession, paths: Iterable[Anywhere]) -> DataFrame:
    """Everything in these files: the columns of `events`, and those of `quarantine` with `reason` as `bad`; a row has
    either a `bad` or none. Reads footers now, and rows when the DataFrame is used."""
    files = find(paths)
    pieces, bad = plan(files)
    jobs: list[Piece | Bad] = [*pieces, *bad]
    names = [column.name for column in COLUMNS]

    def read(job: Piece | Bad) -> Iterator[pa.RecordBatch]:
        table, wrong = read_piece(job, names) if isinstance(job, Piece) else (_empty(names), [job])
        yield from raw_rows(job.file, table, wrong).to_batches(max_chunksize=65_536)

    return over(spark, jobs, read, raw_schema())


def raw_schema() -> StructType:
    """`RAW`, for Spark."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    return StructType(
        [StructField(f.name, f.dataType) for f in spark_schema("events").fields]
        + [StructField("position", LongType()), StructField("bad", StringType()), StructField("raw", StringType())]
    )


RAW: Final = pa.schema(
    [pa.field(f.name, f.type) for f in arrow_schema("events")]
    + [pa.field("position", pa.int64()), pa.field("bad", pa.string()), pa.field("raw", pa.string())]
)
"""The columns of `events`, and those of `quarantine` with `reason` as `bad`."""


def raw_rows(file: str, table: pa.Table, bad: Sequence[Bad]) -> pa.Table:
    """What was read of a file, as rows of `RAW`: those of a trace, and what is no row."""
    n = table.num_rows
    there = set(table.column_names)
    given: dict[str, Any] = {
        f.name: table[f.name].cast(f.type) if f.name in there else pa.nulls(n, f.type) for f in RAW
    }
    given |= {"file": pa.repeat(file, n).cast(pa.string()), "bad": pa.nulls(n, pa.string())}
    good = pa.Table.from_pydict({**given, "raw": given["bad"]}, schema=RAW)
    wrong: dict[str, Any] = {f.name: pa.nulls(len(bad), f.type) for f in RAW}
    wrong |= {"file": [b.file for b in bad], "position": [b.position for b in bad]}
    wrong |= {"bad": [b.reason for b in bad], "raw": [b.raw for b in bad]}
    return pa.concat_tables([good, pa.Table.from_pydict(wrong, schema=RAW)])


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
        _keep_imports()

    from whence.audit.spark import session

    n = len(jobs)
    wanted = max(1, min(n, tasks or TASKS * session.cores(spark)))
    rows = [(k * wanted // n, pickle.dumps(job)) for k, job in enumerate(jobs)]
    frame = spark.createDataFrame(rows, "task int, job binary")
    return frame.repartitionById(wanted, "task").mapInArrow(task, schema)


def _keep_imports() -> None:
    """After each task Spark has the worker's garbage collected, which looks through all that was imported: 0.05 s."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def events(rows: DataFrame) -> DataFrame:
    """The table `events` of `raw` rows: each step once. Rows that say the same are one; of those that contradict one
    another none is taken (see `quarantine`)."""
    return _claims(rows).where("claims = 1").select(*(name for name in arrow_schema("events").names))


def quarantine(rows: DataFrame) -> DataFrame:
    """The table `quarantine` of `raw` rows: what is no row, and what contradicts another row."""
    from pyspark.sql import functions as F

    wrong = rows.where("bad is not null").select("file", "position", F.col("bad").alias("reason"), "raw")
    claims = _claims(rows).where("claims > 1")
    what = F.format_string("step %d of %s is told of in %d different ways", "lseq", "member", "claims")
    said = F.to_json(F.struct(*(column.name for column in COLUMNS)))
    return wrong.unionByName(claims.select("file", "position", what.alias("reason"), said.alias("raw")))


def _claims(rows: DataFrame) -> DataFrame:
    """Rows that differ, with how many there are for the same step of the same member."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = [column.name for column in COLUMNS]
    step = Window.partitionBy("run", "cluster", "member", "lseq")
    once = rows.where("bad is null").dropDuplicates(names)
    return once.withColumn("claims", F.count(F.lit(1)).over(step))
