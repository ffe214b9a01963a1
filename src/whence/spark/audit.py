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
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from whence.errors import UsageError
from whence.judge.batch import tables as results
from whence.judge.batch.audited import Audited, audited
from whence.judge.batch.audited import doubts as doubts_of
from whence.judge.batch.coding import READ, code
from whence.spark import ingest, measure, session
from whence.spark.blocks import Run, blocks, by_run, groups, read, unpacked
from whence.spark.giant import audit_giant
from whence.spark.ingest import Piece
from whence.spark.parts import Parts
from whence.spark.pictures import draw
from whence.spark.summary import Summary, conflicts, summed
from whence.spark.tables import arrow_schema, inputs, publish, require, spark_schema, staging

SMALL: Final = 1_000_000
"""Rows that one task takes whatever their layout is: a shuffle would cost more than it saves."""
TASK_ROWS: Final = 2_000_000
"""Rows of small runs that are put together for one task."""
GIANT: Final = 40_000_000
"""Rows of a run above which it is spread over workers, however much memory there is."""
ROW_BYTES: Final = 200
"""About what a worker takes for a row while it judges."""

WRITTEN: Final = ("verdicts", "violations", "members", "doubts", "quarantine")
"""The tables that every audit writes."""

_SUMMARY: Final = "run string, cluster string, summary string"

# -- in a task


def audit_run(table: pa.Table, run: str, cluster: str, parts: Parts, complete: bool = False) -> Summary:
    """Audit all rows of a run of a cluster (columns `READ` without run and cluster, `file`, `position`), write what is
    found, and say it in numbers. `complete`: see `audit`."""
    a = audited(code(table, complete=complete))
    wrong = results.violations(a, run, cluster)
    members = results.members(a, run, cluster)
    parts.write("verdicts", results.verdicts(a, run, cluster))
    parts.write("violations", wrong)
    parts.write("members", members)
    doubted = doubts_of(a)
    parts.write("doubts", results.doubts_table(doubted, run, cluster))
    parts.write("quarantine", ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())))
    out = summed(a, members, wrong, table.num_rows)
    out.doubt(doubted)
    out.pictures = draw(table, a.coded, wrong, run, cluster, parts.stage)
    return out


def _row(run: str, cluster: str, summary: Summary) -> pa.RecordBatch:
    said = json.dumps(summary.__dict__)
    return pa.RecordBatch.from_pydict({"run": [run], "cluster": [cluster], "summary": [said]})


# -- designs


def _by_runs(
    spark: SparkSession, pieces: Sequence[Piece], stage: str, without: Collection[Run], complete: bool
) -> DataFrame:
    """A task has all the pieces of its runs."""
    jobs = list(enumerate(together(pieces, session.cores(spark))))

    def work(job: tuple[int, list[list[Piece]]]) -> Iterator[pa.RecordBatch]:
        number, runs = job
        with Parts(stage, f"run-{number:05d}") as parts:
            for mine in runs:
                for run, cluster, table in by_run(read(mine, stage)):
                    if (run, cluster) not in without:
                        yield _row(run, cluster, audit_run(table, run, cluster, parts, complete))

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


def _by_shuffle(
    spark: SparkSession, pieces: Sequence[Piece], stage: str, without: Collection[Run], complete: bool
) -> DataFrame:
    """Rows are packed into a block for each run that a piece holds; a block is one row of the shuffle."""
    rows = sum(p.rows for p in pieces)
    packed = blocks(
        spark, pieces, stage, lambda run, cluster, t: [] if (run, cluster) in without else [(run, cluster, t)]
    )
    n = max(session.partitions(rows, session.cores(spark)), 2 * session.cores(spark))
    return (
        packed.repartition(n, "run", "cluster")
        .sortWithinPartitions("run", "cluster", "piece")
        .mapInArrow(_judge(stage, complete), _SUMMARY)
    )


def _judge(stage: str, complete: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        with Parts(stage, f"run-{number:05d}") as parts:
            for run, cluster, mine in groups(batches):
                yield _row(run, cluster, audit_run(unpacked(mine), run, cluster, parts, complete))

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


def verdicts(events: DataFrame, *, complete: bool = False) -> DataFrame:
    """`events` -> `verdicts`. `complete`: see `audit`."""
    return _of_runs(events, "verdicts", results.verdicts, complete)


def violations(events: DataFrame, *, complete: bool = False) -> DataFrame:
    """`events` -> `violations`. `complete`: see `audit`."""
    return _of_runs(events, "violations", results.violations, complete)


def doubts(events: DataFrame, *, complete: bool = False) -> DataFrame:
    """`events` -> `doubts`. `complete`: see `audit`."""
    return _of_runs(events, "doubts", _doubts_table, complete)


def _doubts_table(a: Audited, run: str, cluster: str) -> pa.Table:
    return results.doubts_table(doubts_of(a), run, cluster)


def members(events: DataFrame) -> DataFrame:
    """`events` -> `members`."""
    return _of_runs(events, "members", results.members)


def past(events: DataFrame) -> DataFrame:
    """`events` -> `past`."""
    return _of_runs(events, "past", results.past_table)


def origins(events: DataFrame) -> DataFrame:
    """`events` -> `origins`."""
    return _of_runs(events, "origins", results.origins_table)


def _of_runs(events: DataFrame, table: str, make: Make, complete: bool = False) -> DataFrame:
    """Shuffle by run and cluster, and make this table of each. A run has to fit into a worker."""
    schema = arrow_schema(table)

    def of_run(rows: pa.Table) -> pa.Table:
        named = rows.slice(0, 1).to_pylist()[0]
        a = audited(code(rows, complete=complete))
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
    complete: bool = False,
) -> Summary:
    """Audit these traces and write the tables into `out`, all or none; and beside them ShiViz logs of the first
    violations of each run. `progress` is told what is going on. `design`: instead of the one that fits the layout
    (`giant`: every run is spread over workers). `giant`: rows above which a run is spread, by default as many as fit
    into a worker's share of memory. `metrics`: measure, too; that takes many times as long, as
    every row with all its columns goes through Spark, and is kept there (in memory, what does not fit on disk).
    `complete`: the rows of all members are here, to the end of the run; what no row tells of did not happen. Otherwise
    what depends on rows that may be missing is in doubt."""
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
        for summary in _summaries(spark, pieces, stage, total, giant, progress, complete):
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
    spark: SparkSession,
    pieces: Sequence[Piece],
    stage: Path,
    total: Summary,
    giant: int,
    progress: Progress,
    complete: bool,
) -> Iterator[Summary]:
    """Run by run, the giants last."""
    large = giants(spark, pieces, giant)
    rest = [piece for piece in pieces if piece.of not in large]
    if rest:
        rows = sum(p.rows for p in rest)
        progress(f"auditing about {rows:,} rows in {len(rest):,} pieces, design {total.design!r}")
        design = _by_runs if total.design == "runs" else _by_shuffle
        made = design(spark, rest, str(stage), large, complete)
        yield from (Summary(**json.loads(row["summary"])) for row in made.collect())
    for number, run in enumerate(large):
        total.design = "giant"
        mine = _holding(pieces, run)
        progress(f"auditing {run[0]} ({run[1]}) alone: about {sum(p.rows for p in mine):,} rows")
        yield audit_giant(spark, mine, run, stage, number, complete)
