"""Did order ever break? From trace files to the tables `verdicts`, `violations`, `members` and `quarantine`.

The judge (`whence.judge.batch`) is the same everywhere and takes one run at a time. The designs differ in
how the rows of a run get to one place. The design is chosen by the layout of the files, read from their footers:

========== ====================================================== ==================================================
design     when                                                   how
========== ====================================================== ==================================================
`runs`     each piece of a file is of one run (or all is small)   a task reads the files of its runs: no shuffle
`shuffle`  files hold rows of several runs                        rows are packed by run, shuffled as blocks
`giant`    a run is too large for one worker                      `whence.spark.giant`
========== ====================================================== ==================================================

`verdicts(events)`, `violations(events)`, `members(events)`, `past(events)` and `origins(events)` do the same as
functions from DataFrame to DataFrame, for notebooks and jobs of one's own.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from whence.errors import UsageError
from whence.judge.batch import tables as results
from whence.judge.batch.audited import Audited, audited, doubts
from whence.judge.batch.coding import READ, code, codes, picked
from whence.judge.promises import NAMES
from whence.spark import ingest, measure, session
from whence.spark.ingest import Bad, Piece
from whence.spark.parts import Parts
from whence.spark.pictures import draw
from whence.spark.tables import arrow_schema, inputs, publish, require, spark_schema, staging

SMALL: Final = 1_000_000
"""Rows that one task takes whatever their layout is: a shuffle would cost more than it saves."""
TASK_ROWS: Final = 2_000_000
"""Rows of small runs that are put together for one task."""
GIANT: Final = 40_000_000
"""Rows of a run above which it is spread over workers, however much memory there is."""
ROW_BYTES: Final = 200
"""About what a worker takes for a row while it judges."""
SHOWN: Final = 5
"""Violations of a run that are shown, of each rule; all of them are in the table."""

WRITTEN: Final = ("verdicts", "violations", "members", "doubts", "quarantine")
"""The tables that every audit writes."""

_SUMMARY: Final = "run string, cluster string, summary string"
_BLOCKS: Final = "run string, cluster string, rows long, block binary, piece int"

Run = tuple[str, str]
"""And its cluster."""


@dataclass
class Summary:
    """An audit in numbers."""

    rows: int = 0
    runs: int = 0
    """Runs of clusters."""
    members: int = 0
    published: int = 0
    deliveries: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    violations: dict[str, int] = field(default_factory=dict)
    """By rule."""
    first: dict[str, list[str]] = field(default_factory=dict)
    """The first of each rule, in words."""
    repeated: int = 0
    """Rows that were there before, alike."""
    missing: int = 0
    """Steps of members that no row tells of: verdicts there are given in doubt for the member."""
    circles: int = 0
    """Members that waited for what waited for them: no execution can have left such a trace."""
    doubts: int = 0
    """Deliveries that cannot be judged: the traces of their publishers are not all here."""
    quarantined: int = 0
    pictures: int = 0
    """ShiViz logs of violations."""
    design: str = ""

    def add(self, other: Summary) -> None:
        """Another run."""
        for name, n in vars(other).items():
            if isinstance(n, int):
                setattr(self, name, getattr(self, name) + n)
        self.verdicts = _sum(self.verdicts, other.verdicts)
        self.violations = _sum(self.violations, other.violations)
        for rule, texts in other.first.items():
            self.first[rule] = (self.first.get(rule, []) + texts)[:SHOWN]

    @property
    def clean(self) -> bool:
        return not self.violations


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


# -- in a task


def audit_run(table: pa.Table, run: str, cluster: str, parts: Parts) -> Summary:
    """Audit all rows of a run of a cluster (columns `READ` without run and cluster, `file`, `position`), write what is
    found, and say it in numbers."""
    a = audited(code(table))
    wrong = results.violations(a, run, cluster)
    members = results.members(a, run, cluster)
    parts.write("verdicts", results.verdicts(a, run, cluster))
    parts.write("violations", wrong)
    parts.write("members", members)
    doubted = doubts(a)
    parts.write("doubts", results.doubts_table(doubted, run, cluster))
    parts.write("quarantine", ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())))
    out = summed(a, members, wrong, table.num_rows)
    out.doubts = sum(doubt.count for doubt in doubted)
    out.pictures = draw(table, a.coded, wrong, run, cluster, parts.stage)
    return out


def summed(a: Audited, members: pa.Table, wrong: pa.Table, rows: int) -> Summary:
    """What was found in a run, in numbers."""

    def total(name: str) -> int:
        return sum(map(int, filter(None, members[name].to_pylist())))

    names = ("in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown")
    return Summary(
        rows=rows,
        runs=1,
        members=members.num_rows,
        published=len(a.past.origin),
        deliveries=total("deliveries"),
        verdicts=dict(zip(NAMES, map(total, names), strict=True)),
        **counted(wrong),
        repeated=a.coded.repeated,
        missing=total("missing"),
        circles=a.circles,
    )


def counted(wrong: pa.Table) -> dict[str, Any]:
    """Violations by rule, and the first of each."""
    first: dict[str, list[str]] = {}
    rules = [str(rule) for rule in wrong["rule"].to_pylist()]
    for rule, detail in zip(rules, wrong["detail"].to_pylist(), strict=True):
        if len(first.setdefault(rule, [])) < SHOWN:
            first[rule].append(str(detail))
    return {"violations": dict(sorted(Counter(rules).items())), "first": first}


def conflicts(table: pa.Table, rows: list[int]) -> list[Bad]:
    """Rows that contradict others of the same step."""
    out = []
    for row in picked(table, np.array(rows, np.int64)):
        file, position = row.pop("file"), row.pop("position")
        why = f"step {row['lseq']} of {row['member']} is told of in different ways"
        said = {name: value for name, value in row.items() if value is not None}
        out.append(Bad(file, position, why, json.dumps(said)[: ingest.RAW_LIMIT]))
    return out


def by_run(table: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
    """The rows of each run and cluster, without these two columns."""
    if not table.num_rows:
        return
    (run, runs), (cluster, clusters) = codes(table["run"]), codes(table["cluster"])
    rest = table.drop_columns(["run", "cluster"])
    if len(runs) == len(clusters) == 1:
        yield str(runs[0]), str(clusters[0]), rest
        return
    key = run * np.int64(len(clusters)) + cluster
    order = np.argsort(key, kind="stable")
    rest = rest.unify_dictionaries().take(order)
    keys, begin = np.unique(key[order], return_index=True)
    for k, a, b in zip(keys.tolist(), begin.tolist(), [*begin.tolist()[1:], len(key)], strict=True):
        yield str(runs[k // len(clusters)]), str(clusters[k % len(clusters)]), rest.slice(a, b - a)


def _read(pieces: Sequence[Piece], stage: str) -> pa.Table:
    """The rows of these pieces with their file; what is no row goes to the quarantine, in a file named after the piece:
    however often it is read, it is there once."""
    tables = []
    for piece in pieces:
        table, bad = ingest.read_piece(piece, READ)
        if bad:
            name = blake2b(f"{piece.file} {piece.first}".encode(), digest_size=8).hexdigest()
            with Parts(stage, f"piece-{name}") as parts:
                parts.write("quarantine", ingest.bad_table(bad))
        zeros: Any = np.zeros(table.num_rows, np.int32)
        files = pa.DictionaryArray.from_arrays(pa.array(zeros), [piece.file])
        tables.append(table.append_column("file", files))
    return pa.concat_tables(tables)


def _row(run: str, cluster: str, summary: Summary) -> pa.RecordBatch:
    said = json.dumps(summary.__dict__)
    return pa.RecordBatch.from_pydict({"run": [run], "cluster": [cluster], "summary": [said]})


# -- designs


def _by_runs(spark: SparkSession, pieces: Sequence[Piece], stage: str, without: Collection[Run]) -> DataFrame:
    """A task has all the pieces of its runs."""
    jobs = list(enumerate(together(pieces, session.cores(spark))))

    def work(job: tuple[int, list[list[Piece]]]) -> Iterator[pa.RecordBatch]:
        number, runs = job
        with Parts(stage, f"run-{number:05d}") as parts:
            for mine in runs:
                for run, cluster, table in by_run(_read(mine, stage)):
                    if (run, cluster) not in without:
                        yield _row(run, cluster, audit_run(table, run, cluster, parts))

    return ingest.over(spark, jobs, work, _SUMMARY, len(jobs))


def together(pieces: Sequence[Piece], cores: int = 1) -> list[list[list[Piece]]]:
    """Task -> runs -> pieces: the pieces of a run together, small runs together in one task, the largest tasks first.
    What is small is taken as a whole, whatever is in it."""
    total = sum(piece.rows for piece in pieces)
    if session.interpreted(total) or (total <= SMALL and any(piece.of is None for piece in pieces)):
        return [[list(pieces)]]
    runs: dict[tuple[str, str] | None, list[Piece]] = {}
    for piece in pieces:
        runs.setdefault(piece.of, []).append(piece)
    sized = sorted(runs.values(), key=lambda mine: -sum(p.rows for p in mine))
    tasks: list[list[list[Piece]]] = []
    room = 0
    for mine in sized:
        rows = sum(p.rows for p in mine)
        if rows > room:
            tasks.append([])
            room = min(TASK_ROWS, -(-total // (2 * cores)))
        tasks[-1].append(mine)
        room -= rows
    return tasks


def _by_shuffle(spark: SparkSession, pieces: Sequence[Piece], stage: str, without: Collection[Run]) -> DataFrame:
    """Rows are packed into a block for each run that a piece holds; a block is one row of the shuffle."""
    rows = sum(p.rows for p in pieces)
    packed = blocks(
        spark, pieces, stage, lambda run, cluster, t: [] if (run, cluster) in without else [(run, cluster, t)]
    )
    n = max(session.partitions(rows, session.cores(spark)), 2 * session.cores(spark))
    return (
        packed.repartition(n, "run", "cluster")
        .sortWithinPartitions("run", "cluster", "piece")
        .mapInArrow(_judge(stage), _SUMMARY)
    )


Split = Callable[[str, str, pa.Table], Iterable[tuple[str, str, pa.Table]]]


def blocks(spark: SparkSession, pieces: Sequence[Piece], stage: str, split: Split) -> DataFrame:
    """The rows of these pieces as blocks: compressed Arrow tables, text still as dictionaries. `split` cuts the rows of
    a run in a piece further, or leaves some out. Columns without any value (there are many) are left out, too. With
    the blocks in the order of pieces, as files are written, mostly nothing has to be sorted."""

    def work(job: tuple[int, Piece]) -> Iterator[pa.RecordBatch]:
        number, piece = job
        rows = _read([piece], stage)
        filled = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
        for run, cluster, table in by_run(rows.select(filled)):
            for name, part, mine in split(run, cluster, table):
                if mine.num_rows:
                    yield _block(name, part, mine, number)

    return ingest.over(spark, list(enumerate(pieces)), work, _BLOCKS)


def _block(run: str, cluster: str, table: pa.Table, piece: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.unify_dictionaries().combine_chunks())
    data = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    named = pa.array([run]), pa.array([cluster]), pa.array([table.num_rows])
    number = pa.array([piece], pa.int32())
    return pa.RecordBatch.from_arrays([*named, data, number], names=["run", "cluster", "rows", "block", "piece"])


def unpacked(blocks_of_one: Iterable[bytes]) -> pa.Table:
    """The rows of these blocks, with all columns."""
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks_of_one]
    rows = pa.concat_tables(tables, promote_options="default")
    for column in ingest.schema_of(READ[2:]):
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.type))
    return rows


def groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, list[bytes]]]:
    """The blocks of each run, which come one after the other."""
    now: tuple[str, str] | None = None
    mine: list[bytes] = []
    for batch in batches:
        for run, cluster, block in zip(*(batch.column(c).to_pylist() for c in (0, 1, 3)), strict=True):
            if now is not None and (run, cluster) != now:
                yield *now, mine
                mine = []
            now = run, cluster
            mine.append(block)
    if now is not None:
        yield *now, mine


def _judge(stage: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        with Parts(stage, f"run-{number:05d}") as parts:
            for run, cluster, mine in groups(batches):
                yield _row(run, cluster, audit_run(unpacked(mine), run, cluster, parts))

    return task


def layout(pieces: Sequence[Piece]) -> str:
    """`runs` or `shuffle`."""
    rows = sum(p.rows for p in pieces)
    return "runs" if rows <= SMALL or all(p.of is not None for p in pieces) else "shuffle"


def giants(spark: SparkSession, pieces: Sequence[Piece], rows: int) -> list[Run]:
    """Runs of more than so many rows. Where footers do not tell of which run a piece is, and there are enough rows,
    they are counted."""
    size: Counter[Run] = Counter()
    for piece in pieces:
        if piece.of is not None:
            size[piece.of] += piece.rows
    mixed = [piece for piece in pieces if piece.of is None]

    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        table, _ = ingest.read_piece(piece, ("run", "cluster"))
        counts = table.group_by(["run", "cluster"], use_threads=False).aggregate([([], "count_all")])
        texts = [counts[name].cast(pa.string()) for name in ("run", "cluster")]
        yield from pa.table([*texts, counts["count_all"]], names=["run", "cluster", "n"]).to_batches()

    if sum(piece.rows for piece in pieces) > rows and mixed:
        for row in ingest.over(spark, mixed, work, "run string, cluster string, n long").collect():
            size[row[0], row[1]] += row[2]
    return sorted(run for run, n in size.items() if n > rows)


def _holding(pieces: Sequence[Piece], run: Run) -> list[Piece]:
    return [piece for piece in pieces if piece.of in (None, run)]


# -- from DataFrame to DataFrame


Make = Callable[[Audited, str, str], pa.Table]


def verdicts(events: DataFrame) -> DataFrame:
    """`events` -> `verdicts`."""
    return _of_runs(events, "verdicts", results.verdicts)


def violations(events: DataFrame) -> DataFrame:
    """`events` -> `violations`."""
    return _of_runs(events, "violations", results.violations)


def members(events: DataFrame) -> DataFrame:
    """`events` -> `members`."""
    return _of_runs(events, "members", results.members)


def past(events: DataFrame) -> DataFrame:
    """`events` -> `past`."""
    return _of_runs(events, "past", results.past_table)


def origins(events: DataFrame) -> DataFrame:
    """`events` -> `origins`."""
    return _of_runs(events, "origins", results.origins_table)


def _of_runs(events: DataFrame, table: str, make: Make) -> DataFrame:
    """Shuffle by run and cluster, and make this table of each. A run has to fit into a worker."""
    schema = arrow_schema(table)

    def of_run(rows: pa.Table) -> pa.Table:
        named = rows.slice(0, 1).to_pylist()[0]
        a = audited(code(rows))
        return make(a, named["run"], named["cluster"]).cast(schema)

    needed = require(events, "events").select(*READ)
    return needed.groupBy("run", "cluster").applyInArrow(of_run, spark_schema(table))


# -- all of it


Progress = Callable[[str], None]


def rows_in(table: Path) -> int:
    """By the footers of its files."""
    return sum(pq.read_metadata(file).num_rows for file in table.glob("*.parquet"))


def audit(
    spark: SparkSession,
    paths: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    progress: Progress = lambda what: None,
    design: str | None = None,
    giant: int | None = None,
    metrics: bool = False,
) -> Summary:
    """Audit these traces and write the tables into `out`, all or none; and beside them ShiViz logs of the first
    violations of each run. `progress` is told what is going on. `design`: instead of the one that fits the layout
    (`giant`: every run is spread over workers). `giant`: rows above which a run is spread, by default as many as fit
    into a worker's share of memory. `metrics`: measure, too; that takes many times as long, as
    every row with all its columns goes through Spark, and is kept there (in memory, what does not fit on disk)."""
    if design not in (None, "runs", "shuffle", "giant"):
        raise UsageError(f"no design {design!r}; there are runs, shuffle and giant")
    if giant is None:
        giant = 0 if design == "giant" else min(GIANT, session.worker_memory(spark) // ROW_BYTES)
    files = ingest.find(paths)
    progress(f"reading the footers of {len(files):,} files")
    pieces, bad = ingest.plan(files)
    known = inputs(files)
    total = Summary(design=design or layout(pieces))
    with staging(out) as stage:
        with Parts(str(stage), "files") as parts:
            parts.write("quarantine", ingest.bad_table(bad))
        for summary in _summaries(spark, pieces, stage, total, giant, progress):
            total.add(summary)
        counts = {table: rows_in(stage / table) for table in WRITTEN}
        total.quarantined = counts["quarantine"]
        if metrics:
            progress("measuring")
            counts["metrics"] = _metrics(spark, files, stage, total)
        counts["shiviz"] = total.pictures
        progress("moving the tables into place")
        publish(stage, out, counts, {"inputs": known, "rows": total.rows, "design": total.design})
    return total


def _metrics(spark: SparkSession, files: Sequence[Path], stage: Path, total: Summary) -> int:
    rows = ingest.raw(spark, files)
    plain = rows.where("bad is null").select(*arrow_schema("events").names)
    alike = not total.repeated and not total.quarantined
    judged = spark.read.schema(spark_schema("verdicts")).parquet(str(stage / "verdicts"))
    events = (plain if alike else ingest.events(rows)).persist()  # each metric reads them: the files once is enough
    with session.small_jobs(spark, total.rows):
        try:
            measure.metrics(events, judged).coalesce(session.cores(spark)).write.parquet(str(stage / "metrics"))
        finally:
            events.unpersist()
    return rows_in(stage / "metrics")


def _summaries(
    spark: SparkSession, pieces: Sequence[Piece], stage: Path, total: Summary, giant: int, progress: Progress
) -> Iterator[Summary]:
    """Run by run, the giants last."""
    from whence.spark.giant import audit_giant  # which needs what is here

    large = giants(spark, pieces, giant)
    rest = [piece for piece in pieces if piece.of not in large]
    if rest:
        rows = sum(p.rows for p in rest)
        progress(f"auditing about {rows:,} rows in {len(rest):,} pieces, design {total.design!r}")
        design = _by_runs if total.design == "runs" else _by_shuffle
        made = design(spark, rest, str(stage), large)
        yield from (Summary(**json.loads(row["summary"])) for row in made.collect())
    for number, run in enumerate(large):
        total.design = "giant"
        mine = _holding(pieces, run)
        progress(f"auditing {run[0]} ({run[1]}) alone: about {sum(p.rows for p in mine):,} rows")
        yield audit_giant(spark, mine, run, stage, number)
