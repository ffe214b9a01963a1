"""Did order ever break? Three ways in, four designs: trace files with Spark, trace files in this process, and a
DataFrame of one's own.

    rows -> gate -> coded columns -> judge -> findings -> tables, page, exit code

The judge is the same everywhere and takes one run at a time. The ways differ in how the rows of a run get to one place,
which the layout of the files decides, read from their footers:

========== ====================================================== ==================================================
design     when                                                   how
========== ====================================================== ==================================================
`local`    without Spark                                          this process reads the files of each run
`runs`     each piece of a file is of one run (or all is small)   a task reads the files of its runs: no shuffle
`shuffle`  files of several runs, JSON lines, and DataFrames      rows are packed by run, shuffled as blocks
`giant`    a run is too large for one worker                      `whence.audit.spark.giant`
========== ====================================================== ==================================================
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
import pyarrow as pa

from whence.audit.judge.batch.audited import warm
from whence.audit.judge.batch.coding import Run
from whence.audit.report import render
from whence.audit.report.facts import Overview, RunLine
from whence.audit.report.view import MOST, OTHERS, facts
from whence.audit.spark import ingest
from whence.audit.spark.blocks import BLOCKS, NOTICE, REFUSED, judge_pieces, judged, of_pieces, packed
from whence.audit.spark.findings import (
    INTERPRETED,
    LISTED,
    PAGED,
    TABLES,
    VIEWS,
    Out,
    Summary,
    TaskResult,
    Terms,
    as_files,
    as_rows,
    refused,
)
from whence.audit.spark.ingest import Piece
from whence.audit.spark.place import (
    Anywhere,
    TraceFile,
    join,
    make_directory,
    names_in,
    place_of,
    read_bytes,
    remove,
    replace_bytes,
)
from whence.audit.spark.tables import OURS, PAGE, PAGES, STAGING, meanwhile, publish, staging
from whence.errors import TraceError

if TYPE_CHECKING:  # pyspark is imported where it is used: an audit without Spark does not load it
    from pyspark.sql import Column, DataFrame, SparkSession

SMALL: Final = 1_000_000
"""Rows that one task takes whatever their layout is: a shuffle would cost more than it saves."""
TASK_ROWS: Final = 2_000_000
"""Rows of small runs that are put together for one task."""
GIANT: Final = 40_000_000
"""Rows of a run above which it is spread over workers, however much memory there is."""
ROW_BYTES: Final = 200
"""About what a worker takes for a row while it judges."""
STORED_BYTES: Final = 5
"""About what a row takes in a Parquet file, where it takes least."""
FEW: Final = 5_000_000
"""Rows that this process judges before Spark would have: Spark takes ten seconds to start."""
EVERY: Final = 5.0
"""Seconds from one word about progress to the next."""

Progress = Callable[[str], None]


# -- files


def audit_files(
    paths: Iterable[Anywhere],
    out: Anywhere,
    *,
    spark: SparkSession | Callable[[], SparkSession] | None = None,
    few: int = 0,
    progress: Progress = lambda what: None,
    giant: int | None = None,
    complete: bool = False,
    error_rate: float | None = None,
    sparse: bool = False,
    command: str = "",
) -> Summary:
    """Audit the traces at these places and write the tables and the page (`report.html`) into `out`, all or none.
    Paths are of this machine, or URIs (`whence.audit.spark.place`). TraceError if nothing can be read.

    `spark`: a session, or a function that starts one; None: judge in this process, about 200 bytes a row. `few`: below
    so many rows none is started (`FEW`: where that is faster). `progress` is told what is going on. `giant`: rows above
    which a run is spread over workers (0: every run is), default: what fits into a worker's memory. `complete`,
    `error_rate`: see `audit`. `sparse`: `verdicts` has only what is not in order; writing every verdict is a third of
    the work. `command`: for the page: what made it."""
    terms = Terms(complete, error_rate)
    begun, files = time.monotonic(), ingest.find(paths)
    pieces, bad = ingest.plan(files)
    if bad and not pieces:
        raise TraceError(f"{bad[0].file}: {bad[0].reason}")
    if bad:  # nobody knows what was in there
        terms = terms.doubted()
    rows = sum(piece.rows for piece in pieces)
    progress(f"{len(files):,} files with about {rows:,} rows")
    if callable(spark):
        spark = _started(spark, rows, progress) if rows >= few else None
    with staging(out):
        work = Work(out, terms, sparse, progress)
        work.collect([as_files(work.out, "files").emit([refused(ingest.bad_table(bad))])])
        if spark is None:
            work.here(pieces)
        else:
            work.on(spark, pieces, giant)
        progress("publishing the tables")
        work.publish(files, TABLES, begun, command)
    return work.checked()


def _started(start: Callable[[], SparkSession], rows: int, progress: Progress) -> SparkSession:
    """Spark takes seconds to start; so does compiling the kernel the first time."""
    progress("starting Spark (most of the time that a small audit takes)")
    if rows < INTERPRETED:
        return start()
    compiling = threading.Thread(target=warm, daemon=True)
    compiling.start()
    spark = start()
    compiling.join()
    return spark


class Work:
    """Judging files by the design that fits; what tasks have written, and the sums of it."""

    def __init__(
        self, out: Anywhere, terms: Terms | None = None, sparse: bool = False, progress: Progress = lambda what: None
    ) -> None:
        self.out = place_of(out)
        self.total = Summary(design="local")
        self.files: dict[str, dict[str, int]] = {}
        self._terms, self._sparse, self._progress = terms or Terms(), sparse, progress
        self._runs: dict[Run, RunLine] = {}
        self._views: dict[Run, tuple[RunLine, str]] = {}
        """Run -> the part of it that a page can show, and its file."""

    def here(self, pieces: Sequence[Piece]) -> None:
        """In this process."""
        self._begin("local", pieces)
        out = as_files(self.out, "run", self._sparse)
        for runs in together(pieces):
            self.collect([out.emit(judge_pieces(runs, self._terms))])

    def on(self, spark: SparkSession, pieces: Sequence[Piece], giant: int | None) -> None:
        """In tasks of Spark. Rows of several runs in one file are shuffled, and those of large runs; a task reads the
        other files itself."""
        from whence.audit.spark import session

        limit = min(GIANT, session.worker_memory(spark) // ROW_BYTES) if giant is None else giant
        rows = Counter[Run | None]()
        for piece in pieces:
            rows[piece.of] += piece.rows
        mixed = None in rows and rows.total() > min(SMALL, limit)
        moved = [piece for piece in pieces if mixed or rows[piece.of] > limit]
        self._begin("shuffle" if mixed else "giant" if moved else "runs", pieces)
        if len(moved) < len(pieces):
            tasks = together([piece for piece in pieces if piece not in set(moved)], session.cores(spark))
            out, terms = as_files(self.out, "run", self._sparse), self._terms
            found = ingest.over(spark, tasks, lambda runs: out.emit(judge_pieces(runs, terms)), out.schema, len(tasks))
            self._run(found, f" of {len(tasks):,}")
        if moved:
            size = sum(piece.rows for piece in moved)
            out_of = partial(as_files, self.out, sparse=self._sparse)
            blocks = of_pieces(spark, moved)
            with closing(_judged_blocks(blocks, out_of, self._terms, size, limit, size > limit)) as spread:
                if spread.large:
                    self.total.design = "giant"
                for each in spread.findings:
                    self._run(each)

    def _begin(self, design: str, pieces: Sequence[Piece]) -> None:
        rows = sum(piece.rows for piece in pieces)
        self.total.design = design
        self._progress(f"auditing about {rows:,} rows in {len(pieces):,} pieces, design {design!r}")

    def _run(self, done: DataFrame, tasks: str = "") -> None:
        """Run these tasks; meanwhile tell how many are done, by the views that they have left."""
        views = join(self.out, STAGING, VIEWS)

        def told() -> None:
            here = sum(name.endswith("-0.msgpack") for name in names_in(views))
            self._progress(f"{here:,}{tasks} tasks are done")

        with meanwhile(told, EVERY):
            self.collect([done.where("summary is not null").select("summary").toArrow().to_batches()])

    def collect(self, tasks: Iterable[Iterable[pa.RecordBatch]]) -> None:
        """What tasks said at their end."""
        for text in (text for task in tasks for batch in task for text in batch.column("summary").to_pylist()):
            said = msgspec.json.decode(str(text), type=TaskResult)
            self.total.add(said.summary)
            for table, names in said.files.items():
                if table != VIEWS:
                    self.files.setdefault(table, {}).update(names)
            for line in said.runs:
                self._runs[line[3:]] = line.plus(self._runs.get(line[3:]))
            for line, name in said.views:
                self._views[line[3:]] = max(self._views.get(line[3:], (line, name)), (line, name))

    def publish(self, inputs: Sequence[TraceFile], tables: Sequence[str], begun: float, command: str = "") -> None:
        """Make what was written the tables of `out`, and the page. `tables`: those that are there even if empty."""
        written = {name: self.files.get(name, {}) for name in (*tables, *self.files)}
        cost = {"seconds": round(time.monotonic() - begun, 3), "rows": self.total.rows}
        cost["bytes"] = sum(file.size for file in inputs)
        read = [{"file": f.place, "size": f.size, "mtime_ns": f.mtime_ns} for f in inputs]
        publish(self.out, written, {"inputs": read, "design": self.total.design, "cost": cost})
        self._pages(command)

    def _pages(self, command: str) -> None:
        """The page of the worst run, with a list of all, and pages of others; then those of before go."""
        lines = sorted(self._runs.values(), reverse=True)[:LISTED]
        paged = [line for line in lines if line[3:] in self._views][:PAGED]
        files = [PAGE, *(f"{PAGES}/{k:03}-{uuid.uuid4().hex[:12]}.html" for k in range(1, len(paged)))]
        page_of = dict(zip(paged, files, strict=False))
        total = self.total
        counts = {"rows": total.rows, "members": total.members, "published": total.published}
        counts |= {"deliveries": total.deliveries, "inversions": total.verdicts.get("inverted", 0)}
        counts |= {"in doubt": total.doubts, "in quarantine": total.quarantined}
        worst = [(line, page_of.get(line, "")) for line in lines] if len(lines) > 1 else []
        for line, file in reversed(page_of.items()):  # the list comes last
            data = read_bytes(join(self.out, STAGING, VIEWS, self._views[line[3:]][1]))
            overview, most = Overview(total.runs, total.violations, counts, worst), MOST
            if file != PAGE:
                make_directory(join(self.out, PAGES))
                overview, most = Overview(total.runs, back=f"../{PAGE}"), OTHERS
            replace_bytes(join(self.out, file), render(facts(data, overview, command, most)).encode())
        for name in names_in(join(self.out, PAGES)):
            if f"{PAGES}/{name}" not in files and OURS.fullmatch(name):
                remove(join(self.out, PAGES, name))

    def checked(self) -> Summary:
        """The sums; TraceError if nothing was readable."""
        if self.total.quarantined and not self.total.rows:
            raise TraceError(
                f"nothing readable; the first of {self.total.quarantined:,} reasons: {self.total.refused[0]} "
                f"(all: table {join(self.out, 'quarantine')})"
            )
        return self.total


def together(pieces: Sequence[Piece], cores: int = 1) -> list[list[list[Piece]]]:
    """Task -> runs -> pieces: the pieces of a run together, small runs together in one task, the largest tasks first.
    Where a piece may hold rows of any run, all is one task."""
    if any(piece.of is None for piece in pieces):
        return [[list(pieces)]]
    runs: dict[Run | None, list[Piece]] = {}
    for piece in pieces:
        runs.setdefault(piece.of, []).append(piece)
    total = sum(piece.rows for piece in pieces)
    most = TASK_ROWS if total < INTERPRETED else min(TASK_ROWS, -(-total // (2 * cores)))
    tasks: list[list[list[Piece]]] = []
    room = 0
    for rows, mine in sorted(((sum(p.rows for p in mine), mine) for mine in runs.values()), key=lambda r: -r[0]):
        if not tasks or rows > room:
            tasks.append([])
            room = most
        tasks[-1].append(mine)
        room -= rows
    return tasks


# -- a DataFrame


class Audit:
    """What was found, as DataFrames. They are columns of one DataFrame, which is computed when the first of them is
    used and kept (in memory, what does not fit on disk) until `unpersist`, or the end of a `with` block."""

    def __init__(self, found: _Found) -> None:
        from pyspark import StorageLevel

        every = reduce(lambda some, more: some.unionByName(more), found.findings)
        self.findings = every.persist(StorageLevel.MEMORY_AND_DISK)
        self._found = found
        self.verdicts = self._table("verdicts")
        """A row for each delivery that is not in order, or for each one."""
        self.violations = self._table("violations")
        """A row for each broken promise."""
        self.members = self._table("members")
        """A row for each member, with counts."""
        self.rates = self._table("rates")
        """A row for each run with probabilistic members, if it was said what error rate is allowed."""
        self.doubts = self._table("doubts")
        """A row for each member whose trace is not all here."""
        self.quarantine = self._table("quarantine")
        """What is no row, and rows that contradict each other."""

    def _table(self, name: str) -> DataFrame:
        return self.findings.where(f"{name} is not null").select(f"{name}.*")

    def unpersist(self) -> None:
        """Give back the memory and disk that the findings take. What is used afterwards is computed anew."""
        self.findings.unpersist()
        self._found.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.unpersist()


def audit(
    df: DataFrame,
    *,
    complete: bool = False,
    error_rate: float | None = None,
    giant: int | None = None,
    sparse: bool = True,
) -> Audit:
    """Judge a table of steps: did every member get what its order promises?

    Columns: `run`, `cluster`, `member`, `lseq`, `kind` and `event`, and any of `t_ns`, `ticket`, `reason`, `peer`,
    `order`, `token`, `file`, `position`; others are passed over. Raises UsageError that names all that is missing or of
    a wrong type, or workers without our package. A row without a value where one is needed goes to `quarantine`. The
    session is not reconfigured.

    `complete`: the rows of all members are here, to the end of each run; what no row tells of did not happen. Otherwise
    what depends on rows that may be missing is in `doubts`.

    `error_rate`: the share of deliveries that the probabilistic members of a cluster may invert, as its contract says.
    The share of each run is in `rates`; above it with statistical certainty is a violation. UsageError if it is not a
    share.

    `giant`: rows above which a run is spread over workers; by default as many as fit into the memory of one, by the
    settings of the session. Where the plan of `df` cannot tell that all of it is smaller than that, its rows are
    counted now, by run, and kept for the judge; otherwise nothing is read before the first table is used.

    `sparse`: `verdicts` has only what is not in order (counts are in `members`). With all verdicts, most of the work is
    to write and to keep them.
    """
    from whence.audit.spark import gate, session

    session.check_workers(df.sparkSession)
    limit = session.worker_memory(df.sparkSession) // ROW_BYTES if giant is None else giant
    size = _bytes(df)
    count = giant is not None or size is None or size >= limit  # a row takes a byte at least
    blocks, terms = gate.rows(df).mapInArrow(packed, BLOCKS), Terms(complete, error_rate)
    return Audit(_judged_blocks(blocks, lambda kind: as_rows(sparse), terms, (size or 0) // STORED_BYTES, limit, count))


def _bytes(df: DataFrame) -> int | None:
    """How large the input is at most, by its plan; None: the plan does not tell."""
    try:
        return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # Spark Connect
        return None


# -- both: rows in blocks


class _Found(NamedTuple):
    """What was found in blocks, until it is closed."""

    findings: list[DataFrame]
    large: dict[Run, int]
    """Runs that were spread, and their rows."""
    kept: list[DataFrame]

    def close(self) -> None:
        """Give back what is kept."""
        for held in self.kept:
            held.unpersist()


def _judged_blocks(
    blocks: DataFrame, out: Callable[[str], Out], terms: Terms, rows: int, limit: int, count: bool
) -> _Found:
    """All runs in these blocks: those that fit into a worker, and those with more than `limit` rows, each spread over
    workers. `rows`: about how many there are; `count`: count them, as some run may be that large."""
    from pyspark import StorageLevel

    from whence.audit.spark import session
    from whence.audit.spark.giant import spread_out

    large: dict[Run, int] = {}
    kept: list[DataFrame] = []
    if count:
        blocks = blocks.persist(StorageLevel.MEMORY_AND_DISK)
        kept.append(blocks)
        rows, large, noticed = _counted(blocks, limit)
        terms = terms.doubted() if noticed else terms
    tasks = session.tasks(blocks.sparkSession, rows - sum(large.values()))
    if not large:
        return _Found([judged(blocks, out("run"), terms, tasks)], large, kept)
    own = _is_one_of(large)
    spread, more = spread_out(blocks.where(own), out("giant"), terms, len(large), _buckets(large, limit))
    rest = judged(blocks.where(~own), out("run"), terms, tasks)
    return _Found([spread, rest], large, kept + more)


def _counted(blocks: DataFrame, limit: int) -> tuple[int, dict[Run, int], bool]:
    """How many rows there are (some may be no rows of a trace), and of each run with more than `limit`; and whether
    there is a `NOTICE`. Only the large runs come to the driver."""
    from pyspark.sql import functions as F

    runs = blocks.groupBy("run", "cluster").agg(F.sum("rows").alias("n"))
    large = F.when((F.col("n") > limit) & ~F.col("run").isin(REFUSED, NOTICE), F.struct("run", "cluster", "n"))
    noticed = F.count_if(F.col("run") == NOTICE) > 0
    said = F.sum("n").alias("rows"), F.collect_list(large).alias("large"), noticed.alias("noticed")
    (found,) = runs.agg(*said).collect()
    return found["rows"] or 0, {(row["run"], row["cluster"]): row["n"] for row in found["large"]}, found["noticed"]


def _is_one_of(runs: dict[Run, int]) -> Column:
    """The condition of being a row of one of these runs."""
    from pyspark.sql import functions as F

    keys = [F.struct(F.lit(run).alias("run"), F.lit(cluster).alias("cluster")) for run, cluster in sorted(runs)]
    return F.struct("run", "cluster").isin(keys)


def _buckets(runs: dict[Run, int], limit: int) -> int:
    """How many parts the members of each of these runs are cut into."""
    from whence.audit.spark.giant import BUCKET_ROWS

    return max(2, -(-max(runs.values()) // min(BUCKET_ROWS, limit or BUCKET_ROWS)))
