"""Did order ever break? From trace files, wherever they are, to the tables of an audit.

The judge is the same everywhere and takes one run at a time. The designs differ in how the rows of a run get to one
place. The design is chosen by the layout of the files, read from their footers:

========== ====================================================== ==================================================
design     when                                                   how
========== ====================================================== ==================================================
`runs`     each piece of a file is of one run (or all is small)   a task reads the files of its runs: no shuffle
`shuffle`  files hold rows of several runs                        rows are packed by run, shuffled as blocks
`giant`    a run is too large for one worker                      `whence.audit.spark.giant`
========== ====================================================== ==================================================

For a DataFrame of one's own there is `whence.audit.spark.audit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from whence.audit.spark import blocks, ingest, measure, session
from whence.audit.spark.blocks import Run, judge_pieces, judged
from whence.audit.spark.cost import Cost
from whence.audit.spark.findings import Out, Terms, as_files
from whence.audit.spark.frames import ROW_BYTES, buckets, large_ones, sizes_of
from whence.audit.spark.giant import spread_out
from whence.audit.spark.ingest import Piece
from whence.audit.spark.kept import Kept, kept_of
from whence.audit.spark.made import Made, Planned, plan, publish_made
from whence.audit.spark.parts import Group, Parts
from whence.audit.spark.place import Anywhere, TraceFile, join
from whence.audit.spark.summary import Summary
from whence.audit.spark.tables import NOTES, arrow_schema, frame, staging
from whence.errors import UsageError

SMALL: Final = 1_000_000
"""Rows that one task takes whatever their layout is: a shuffle would cost more than it saves."""
TASK_ROWS: Final = 2_000_000
"""Rows of small runs that are put together for one task."""
GIANT: Final = 40_000_000
"""Rows of a run above which it is spread over workers, however much memory there is."""

Progress = Callable[[str], None]


# -- designs


def by_runs(spark: SparkSession, pieces: Sequence[Piece], out: Out, terms: Terms, kept: Kept) -> DataFrame:
    """A task has all the pieces of its runs."""

    def work(job: tuple[list[list[Piece]], list[Group]]) -> Iterator[pa.RecordBatch]:
        runs, groups = job
        return out.emit(judge_pieces(runs, terms), groups)

    tasks = together(pieces, session.cores(spark))
    jobs = [(runs, kept.of([piece for mine in runs for piece in mine])) for runs in tasks]
    return ingest.over(spark, jobs, work, out.schema, len(jobs))


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


def layout(pieces: Sequence[Piece]) -> str:
    """`runs` or `shuffle`."""
    rows = sum(p.rows for p in pieces)
    return "runs" if rows <= SMALL or all(p.of is not None for p in pieces) else "shuffle"


def _large(spark: SparkSession, pieces: Sequence[Piece], rows: int) -> dict[Run, int]:
    """Runs of more than so many rows. Where footers do not tell of which run a piece is, and there are enough rows,
    they are counted."""
    if any(piece.of is None for piece in pieces):
        if sum(piece.rows for piece in pieces) <= rows:
            return {}
        return sizes_of(_counted(spark, pieces), rows).large
    size: Counter[Run] = Counter()
    for piece in pieces:
        if piece.of is not None:
            size[piece.of] += piece.rows
    return {run: n for run, n in size.items() if n > rows}


def _counted(spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        table, _ = ingest.read_piece(piece, ("run", "cluster"))
        counts = table.group_by(["run", "cluster"], use_threads=False).aggregate([([], "count_all")])
        texts = [counts[name].cast(pa.string()) for name in ("run", "cluster")]
        yield from pa.table([*texts, counts["count_all"]], names=["run", "cluster", "rows"]).to_batches()

    return ingest.over(spark, pieces, work, "run string, cluster string, rows long")


# -- all of it


def _add(made: Made, done: DataFrame) -> list[str]:
    """Run these tasks. One row each comes to the driver, and is what they said."""
    said = [str(row["summary"]) for row in done.where("summary is not null").select("summary").collect()]
    for summary in said:
        made.add(summary)
    return said


def _note(made: Made, stage: str, groups: Sequence[Group], said: Sequence[str]) -> None:
    """Of tasks that have judged this together."""
    if groups:
        made.files[NOTES].append(Parts(stage, "job").note(groups, said))


def audit_files(
    spark: SparkSession,
    paths: Iterable[Anywhere],
    out: Anywhere,
    *,
    planned: Planned | None = None,
    progress: Progress = lambda what: None,
    design: str | None = None,
    giant: int | None = None,
    metrics: bool = False,
    complete: bool = False,
    error_rate: float | None = None,
    sparse: bool = False,
    fresh: bool = False,
) -> Summary:
    """Audit the traces at these places and write the tables into `out`, all or none; and beside them ShiViz logs of the
    first violations of each run. Paths are of this machine, or URIs (`whence.audit.spark.place`).

    `planned`: what `plan(paths)` said, if it was asked. `progress` is told what is going on. `design`: instead of the
    one that fits the layout (`giant`: every run is spread over workers). `giant`: rows above which a run is spread, by
    default as many as fit into a worker's share of memory. `metrics`: measure, too; that takes many times as long, as
    every row with all its columns goes through Spark, and is kept there (in memory, what does not fit on disk).
    `complete`, `error_rate`: see `whence.audit.spark.audit`. `sparse`: `verdicts` has only what is not in order, and
    `in_order` the ranges of what is; writing every verdict is a third of the work. `fresh`: judge everything, also what
    an earlier audit into `out` has judged (`whence.audit.spark.kept`)."""
    terms = Terms(complete, error_rate)
    if sparse and metrics:
        raise UsageError("metrics need every verdict: not with sparse ones")
    if design not in (None, "runs", "shuffle", "giant"):
        raise UsageError(f"no design {design!r}; there are runs, shuffle and giant")
    if giant is None:
        giant = 0 if design == "giant" else min(GIANT, session.worker_memory(spark) // ROW_BYTES)
    planned = planned or plan(paths)
    progress(f"{len(planned.files):,} files with about {planned.rows:,} rows")
    made = Made(design or layout(planned.pieces))
    cost = Cost(spark, planned.rows, progress)
    kept = kept_of(planned, terms, sparse)
    with staging(out, lambda stage: None if fresh else kept.take(stage, made, out, progress)) as stage, cost.open():
        with Parts(stage, "files") as parts:
            parts.write("quarantine", ingest.bad_table(planned.bad))
        made.wrote(parts.written)
        _run(spark, kept.left(planned.pieces), stage, made, giant, progress, terms, sparse, kept)
        made.total.quarantined = made.rows["quarantine"]
        if metrics:
            progress("measuring")
            _metrics(spark, planned.files, stage, made)
        progress("publishing the tables")
        publish_made(made, planned, stage, out, cost.told())
    return made.total


def _run(
    spark: SparkSession,
    pieces: Sequence[Piece],
    stage: str,
    made: Made,
    giant: int,
    progress: Progress,
    terms: Terms,
    sparse: bool,
    kept: Kept,
) -> None:
    """All runs that fit into a worker, then the giants, side by side."""
    large = _large(spark, pieces, giant)
    mixed = any(piece.of is None for piece in pieces)
    mine = [piece for piece in pieces if large and (mixed or piece.of in large)]
    rest = [] if large and mixed else [piece for piece in pieces if piece.of not in large]
    if rest:
        rows = sum(p.rows for p in rest)
        progress(f"auditing about {rows:,} rows in {len(rest):,} pieces, design {made.total.design!r}")
        ways = as_files(stage, "run", sparse)
        if made.total.design == "runs":
            _add(made, by_runs(spark, rest, ways, terms, kept))
        else:
            said = _add(made, judged(blocks.of_pieces(spark, rest), ways, terms, session.tasks(spark, rows)))
            _note(made, stage, kept.of(rest), said)
    if large:
        made.total.design = "giant"
        progress(f"auditing {len(large):,} runs too large for one worker: about {sum(large.values()):,} rows")
        own, packed = large_ones(large), blocks.of_pieces(spark, mine).persist(StorageLevel.MEMORY_AND_DISK)
        ways, parts = as_files(stage, "giant", sparse), buckets(large, giant)
        spread = spread_out(packed.where(own), ways, terms, len(large), parts)
        tasks = session.tasks(spark, sum(piece.rows for piece in mine) - sum(large.values()))
        try:
            said = _add(made, spread.findings)
            said += _add(made, judged(packed.where(~own), as_files(stage, "other", sparse), terms, tasks))
            _note(made, stage, kept.of(mine), said)
        finally:
            for held in (packed, *spread.kept):
                held.unpersist()


def _metrics(spark: SparkSession, files: Sequence[TraceFile], stage: str, made: Made) -> None:
    rows = ingest.raw(spark, [file.place for file in files])
    plain = rows.where("bad is null").select(*arrow_schema("events").names)
    alike = not made.total.repeated and not made.total.quarantined
    judged = frame(spark, "verdicts", [join(stage, "verdicts", name) for name in made.files["verdicts"]])
    events = (plain if alike else ingest.events(rows)).persist()  # each metric reads them: the files once is enough
    with session.small_jobs(spark, made.total.rows):
        try:
            measured = measure.metrics(events, judged).toArrow()
        finally:
            events.unpersist()
    with Parts(stage, "metrics") as parts:
        parts.write("metrics", measured)
    made.files["metrics"] = []
    made.rows["metrics"] = 0
    made.wrote(parts.written)
