"""Did order ever break? One driver, with three ways in: trace files with Spark, trace files in this process, and a
DataFrame of one's own.

    rows -> gate -> coded columns -> judge -> findings -> tables, page, exit code

The judge is the same everywhere and takes one run at a time. The ways differ in how the rows of a run get to one place,
which the layout of the files decides, read from their footers:

========== ====================================================== ==================================================
design     when                                                   how
========== ====================================================== ==================================================
`local`    without Spark                                          this process reads the files of each run
`runs`     each piece of a file is of one run (or all is small)   a task reads the files of its runs: no shuffle
`shuffle`  files hold rows of several runs, and DataFrames        rows are packed by run, shuffled as blocks
`giant`    a run is too large for one worker                      `whence.audit.spark.giant`
========== ====================================================== ==================================================
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from hashlib import blake2b
from importlib.resources import files as package_files
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec
import pyarrow as pa

from whence.audit.judge.batch.audited import warm
from whence.audit.judge.batch.coding import Run
from whence.audit.report import render
from whence.audit.report.view import facts
from whence.audit.spark import blocks as rows_in_blocks
from whence.audit.spark import foreign, ingest
from whence.audit.spark.blocks import BLOCKS, REFUSED, judge_pieces, judged, packed
from whence.audit.spark.findings import (
    INTERPRETED,
    TABLES,
    VIEWS,
    Judged,
    Out,
    Summary,
    TaskResult,
    Terms,
    as_files,
    as_rows,
    leave_note,
)
from whence.audit.spark.ingest import Bad, Piece
from whence.audit.spark.place import Anywhere, TraceFile, join, names_in, place_of, read_bytes, remove, replace_bytes
from whence.audit.spark.tables import TASKS, Parts, alone, arrow_schema, frame, publish
from whence.errors import TraceError, UsageError

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
EVERY: Final = 5.0
"""Seconds from one word about progress to the next."""
WRITTEN: Final = (*TABLES, "in_order", "shiviz")
"""What an audit of traces writes: tables, and ShiViz logs of violations."""
OF_LOGS: Final = ("events", "violations", "quarantine")
"""The same of logs with vector clocks."""
PAGE: Final = "report.html"

Progress = Callable[[str], None]


# -- what there is to judge


class Planned(NamedTuple):
    """What the footers of the files say. They are read once."""

    files: list[TraceFile]
    pieces: list[Piece]
    bad: list[Bad]

    @property
    def rows(self) -> int:
        """About how many."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def mixed(self) -> bool:
        """Some files may hold rows of several runs."""
        return any(piece.of is None for piece in self.pieces)


def plan(paths: Iterable[Anywhere], logs: foreign.Expressions | None = None) -> Planned:
    """Find the traces at these places and read their footers. TraceError if none of them can be read. `logs`: they are
    logs with vector clocks, each a run of its own."""
    if logs is not None:
        files = foreign.find_logs(paths, logs)
        return Planned(files, [Piece(f.place, False, (), 0, f.size, f.size // 100, (f.place, "")) for f in files], [])
    files = ingest.find(paths)
    planned = Planned(files, *ingest.plan(files))
    if planned.bad and not planned.pieces:
        raise TraceError(f"{planned.bad[0].file}: {planned.bad[0].reason}")
    return planned


@cache
def our_version() -> str:
    """A digest of our own code: another version takes nothing over."""
    digest = blake2b(digest_size=8)
    for folder in ("judge", "judge.batch", "spark", "trace", "report"):
        for file in sorted(package_files(f"whence.audit.{folder}").iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def digests_of(planned: Planned, *terms: object) -> dict[Run | None, str]:
    """Run -> a digest of the pieces of files that its rows are in, and of the terms. Where a file may hold rows of
    several runs all is one (None): whether a new file adds to an old run is known when all is read."""
    known = {file.place: file for file in planned.files}
    digests: dict[Run | None, Any] = {}
    for piece in planned.pieces:  # in the order in which they are read: of rows that contradict each other one is kept
        key = None if planned.mixed else piece.of
        digest = digests.setdefault(key, blake2b(repr((our_version(), key, terms)).encode(), digest_size=8))
        digest.update(repr((known[piece.file], piece.first, piece.end, piece.given)).encode())
    return {key: digest.hexdigest() for key, digest in digests.items()}


def together(pieces: Sequence[Piece], cores: int = 1, whole: bool = False) -> list[list[list[Piece]]]:
    """Task -> runs -> pieces: the pieces of a run together, small runs together in one task, the largest tasks first.
    `whole`: all in one, whatever is in it."""
    if whole:
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


# -- what was made of it


class Made:
    """What tasks have written, and the sums of it."""

    def __init__(self, out: str, tables: Sequence[str]) -> None:
        self.out = out
        self.total = Summary()
        self.files: dict[str, dict[str, int]] = {name: {} for name in tables}
        self.notes: set[str] = set()
        self.views: dict[str, tuple[int, int]] = {}
        """Views of runs, and how much there is to see."""

    def add(self, said: TaskResult) -> None:
        """What a task said."""
        self.total.add(said.summary)
        self.notes.add(said.note)
        for table, names in said.files.items():
            if table == VIEWS:
                self.views |= dict.fromkeys(names, said.show)
            else:
                self.files.setdefault(table, {}).update(names)

    def take(self, digests: Sequence[str]) -> set[str]:
        """Take over what earlier audits into this place, whether they finished or were killed, have judged of these
        runs. Returns the digests of these."""
        there = {table: set(names_in(join(self.out, table))) for table in self.files}
        for table in (*there, VIEWS):
            there.setdefault(table, set()).update(names_in(join(self.out, TASKS, table)))
        taken: set[str] = set()
        for name in names_in(join(self.out, TASKS)):
            try:
                said = msgspec.json.decode(read_bytes(join(self.out, TASKS, name)), type=TaskResult)
            except (OSError, msgspec.DecodeError):
                continue  # half a note, or none of ours
            whole = all(names.keys() <= there.get(table, set()) for table, names in said.files.items())
            if said.digests and whole and set(digests) >= set(said.digests) and taken.isdisjoint(said.digests):
                taken.update(said.digests)
                self.notes.add(name)
                self.add(said)
        return taken

    def publish(self, planned: Planned, cost: dict[str, float], command: str) -> None:
        """Make what was written the tables of `out`, then the page, and remove what tasks left that is of no use."""
        size = {"rows": self.total.rows, "bytes": sum(file.size for file in planned.files)}
        inputs = [{"file": f.place, "size": f.size, "mtime_ns": f.mtime_ns} for f in planned.files]
        publish(self.out, self.files, {"inputs": inputs, "design": self.total.design, "cost": {**cost, **size}})
        if self.views:
            best = max(self.views, key=lambda name: (self.views[name], name))
            page = facts(read_bytes(join(self.out, TASKS, VIEWS, best)), self.total.runs, command)
            replace_bytes(join(self.out, PAGE), render(page).encode())
        for table, used in ((TASKS, self.notes), (VIEWS, set(self.views)), *((name, set()) for name in self.files)):
            place = join(self.out, TASKS) if table == TASKS else join(self.out, TASKS, table)
            for name in set(names_in(place)) - used:
                remove(join(place, name))


# -- files


def audit_files(
    paths: Iterable[Anywhere],
    out: Anywhere,
    *,
    spark: SparkSession | Callable[[], SparkSession] | None = None,
    logs: foreign.Expressions | None = None,
    progress: Progress = lambda what: None,
    giant: int | None = None,
    metrics: bool = False,
    complete: bool = False,
    error_rate: float | None = None,
    sparse: bool = False,
    fresh: bool = False,
    command: str = "",
) -> Summary:
    """Audit the traces at these places and write the tables and the page (`report.html`) into `out`, all or none; and
    beside them ShiViz logs of the first violations of each run. Paths are of this machine, or URIs
    (`whence.audit.spark.place`). TraceError if nothing can be read.

    `spark`: a session, or a function that starts one, which is called if there is something to judge; None: judge in
    this process, about 200 bytes a row. `logs`: the traces are logs with vector clocks. `progress` is told what is
    going on. `giant`: rows above which a run is spread over workers (0: every run is), by default as many as fit into a
    worker's share of memory. `metrics`: measure, too; that takes many times as long, as every row with all its columns
    goes through Spark. `complete`, `error_rate`: see `audit`. `sparse`: `verdicts` has only what is not in order, and
    `in_order` the ranges of what is; writing every verdict is a third of the work. `fresh`: judge everything, also what
    an earlier audit into `out` has judged. `command`: for the page: what made it."""
    terms = Terms(complete, error_rate)
    if metrics and (sparse or spark is None or logs is not None):
        raise UsageError("metrics need Spark, a trace, and every verdict: not sparse ones")
    begun, planned, place = time.monotonic(), plan(paths, logs), place_of(out)
    progress(f"{len(planned.files):,} files with about {planned.rows:,} rows")
    with alone(out):
        made = Made(place, WRITTEN if logs is None else OF_LOGS)
        digests = digests_of(planned, terms, sparse, logs)
        taken = set() if fresh else made.take(list(digests.values()))
        if taken:
            runs = "all" if len(taken) == len(digests) else f"{len(taken):,} of {len(digests):,}"
            progress(f"{runs} runs are as in an earlier audit, and are not judged again")
        left = [p for p in planned.pieces if digests.get(None if planned.mixed else p.of) not in taken]
        work = _Work(made, digests, terms, sparse, giant, progress, logs)
        if callable(spark):
            spark = _started(spark, planned.rows, progress) if left or metrics else None
        _note_bad(made, planned.bad)
        work.judge(spark, left)
        if metrics and spark is not None:
            progress("measuring")
            _measure(spark, planned.files, made)
        progress("publishing the tables")
        made.publish(planned, {"seconds": round(time.monotonic() - begun, 3)}, command)
    if made.total.quarantined and not made.total.rows:
        raise TraceError(
            f"nothing readable in {' '.join(map(str, paths))}; the first of {made.total.quarantined:,} reasons: "
            f"{made.total.refused[0]} (all: table {join(place, 'quarantine')})"
        )
    return made.total


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


def _note_bad(made: Made, bad: Sequence[Bad]) -> None:
    """Files that are no traces."""
    with Parts(made.out, "files") as parts:
        parts.write("quarantine", ingest.bad_table(bad))
    said = TaskResult(Summary(), parts.written)
    said.summary.refuse(ingest.bad_table(bad))
    made.add(said)


class _Work(NamedTuple):
    """Judging, by the design that fits."""

    made: Made
    digests: dict[Run | None, str]
    terms: Terms
    sparse: bool
    giant: int | None
    progress: Progress
    logs: foreign.Expressions | None

    def judge(self, spark: SparkSession | None, pieces: Sequence[Piece]) -> None:
        total = self.made.total
        rows = sum(piece.rows for piece in pieces)
        mixed = any(piece.of is None for piece in pieces)
        total.design = "local" if spark is None else "shuffle" if mixed and rows > SMALL else "runs"
        large: dict[Run, int] = {}
        if spark is not None and self.logs is None and pieces:
            large = self._large(spark, pieces)
        if not pieces:
            return
        self.progress(f"auditing about {rows:,} rows in {len(pieces):,} pieces, design {total.design!r}")
        if spark is not None and (large or total.design == "shuffle"):
            self._by_blocks(spark, pieces, large)
        else:
            self._by_runs(spark, pieces, mixed)

    def _limit(self, spark: SparkSession) -> int:
        from whence.audit.spark import session

        return min(GIANT, session.worker_memory(spark) // ROW_BYTES) if self.giant is None else self.giant

    def _large(self, spark: SparkSession, pieces: Sequence[Piece]) -> dict[Run, int]:
        """Runs that are to be spread. Where footers do not tell of which run a piece is, and there are enough rows,
        they are counted."""
        limit = self._limit(spark)
        size: Counter[Run | None] = Counter()
        for piece in pieces:
            size[piece.of] += piece.rows
        if None in size:
            return _sizes_of(_counted(spark, pieces), limit).large if sum(size.values()) > limit else {}
        return {run: n for run, n in size.items() if n > limit and run is not None}

    def _by_runs(self, spark: SparkSession | None, pieces: Sequence[Piece], mixed: bool) -> None:
        """A task has all the pieces of its runs."""
        judge: Callable[[list[list[Piece]]], Iterator[Judged]] = partial(judge_pieces, terms=self.terms)
        if self.logs is not None:
            judge = partial(foreign.judge_logs, self.logs)
        cores = 1
        if spark is not None:
            from whence.audit.spark import session

            cores = session.cores(spark)
        tasks = together(pieces, cores, whole=mixed)
        jobs = [(runs, self._of([piece for mine in runs for piece in mine])) for runs in tasks]
        out = as_files(self.made.out, "run", self.sparse)
        work = partial(_job, out, judge)
        if spark is None:
            for job in jobs:
                self._add(work(job))
        else:
            with _telling(self.made.out, len(jobs), self.progress):
                self._collect(ingest.over(spark, jobs, work, out.schema, len(jobs)))

    def _by_blocks(self, spark: SparkSession, pieces: Sequence[Piece], large: dict[Run, int]) -> None:
        """Rows are shuffled: all of them, as what is in one note has to be judged from the same rows again."""
        if large:
            self.made.total.design = "giant"
        packed = rows_in_blocks.of_pieces(spark, pieces)
        sizes = _Sizes(sum(piece.rows for piece in pieces), large)
        out = partial(as_files, self.made.out, sparse=self.sparse)
        found = _findings(packed, out, self.terms, sizes, self._limit(spark))
        try:
            said = [one for each in found.findings for one in self._collect(each)]
        finally:
            found.unpersist()
        whole, files = Summary(), dict[str, dict[str, int]]()
        for one in said:
            whole.add(one.summary)
            for table, names in one.files.items():
                files.setdefault(table, {}).update(names)
        note = TaskResult(whole, files, self._of(pieces), max((one.show for one in said), default=(0, 0)))
        self.made.notes.add(leave_note(self.made.out, f"all-{time.time_ns():x}.json", note))

    def _of(self, pieces: Sequence[Piece]) -> list[str]:
        """The digests of these pieces, which are whole runs."""
        return [self.digests[key] for key in dict.fromkeys(None if None in self.digests else p.of for p in pieces)]

    def _collect(self, done: DataFrame) -> list[TaskResult]:
        """Run these tasks. One row each comes to the driver, and is what they said."""
        return self._add(done.where("summary is not null").select("summary").toArrow().to_batches())

    def _add(self, batches: Iterable[pa.RecordBatch]) -> list[TaskResult]:
        texts = [text for batch in batches for text in batch.column("summary").to_pylist()]
        said = [msgspec.json.decode(text, type=TaskResult) for text in texts if text is not None]
        for one in said:
            self.made.add(one)
        return said


def _job(
    out: Out, judge: Callable[[list[list[Piece]]], Iterator[Judged]], job: tuple[list[list[Piece]], list[str]]
) -> Iterator[pa.RecordBatch]:
    runs, digests = job
    return out.emit(judge(runs), digests)


@contextmanager
def _telling(out: str, tasks: int, progress: Progress) -> Iterator[None]:
    """Meanwhile tell how many tasks have left a note."""
    over = threading.Event()
    before = len(names_in(join(out, TASKS)))

    def tell() -> None:
        last = 0
        while not over.wait(EVERY):
            done = len(names_in(join(out, TASKS))) - before
            if done > last:
                last = done
                progress(f"{done:,} of {tasks:,} tasks")

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _counted(spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        table, _ = ingest.read_piece(piece, ("run", "cluster"))
        counts = table.group_by(["run", "cluster"], use_threads=False).aggregate([([], "count_all")])
        texts = [counts[name].cast(pa.string()) for name in ("run", "cluster")]
        yield from pa.table([*texts, counts["count_all"]], names=["run", "cluster", "rows"]).to_batches()

    return ingest.over(spark, pieces, work, "run string, cluster string, rows long")


def _measure(spark: SparkSession, files: Sequence[TraceFile], made: Made) -> None:
    """The table `metrics`."""
    from whence.audit.spark import measure, sources

    rows = sources.read(spark, [file.place for file in files])
    plain = rows.where("bad is null").select(*arrow_schema("events").names)
    alike = not made.total.repeated and not made.total.quarantined
    waiting = set(names_in(join(made.out, TASKS, "verdicts")))
    verdicts = [join(made.out, *([TASKS] if n in waiting else []), "verdicts", n) for n in made.files["verdicts"]]
    events = (plain if alike else ingest.events(rows)).persist()  # each metric reads them: the files once is enough
    try:
        measured = measure.metrics(events, frame(spark, "verdicts", verdicts)).toArrow()
    finally:
        events.unpersist()
    with Parts(made.out, "metrics") as parts:
        parts.write("metrics", measured)
    made.files["metrics"] = parts.written.get("metrics", {})


# -- a DataFrame


class Audit:
    """What was found, as DataFrames. They are columns of one DataFrame, which is computed when the first of them is
    used and kept (in memory, what does not fit on disk) until `unpersist`, or the end of a `with` block."""

    def __init__(self, findings: DataFrame, kept: list[DataFrame]) -> None:
        from pyspark import StorageLevel

        self.findings = findings.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept = kept

    @property
    def verdicts(self) -> DataFrame:
        """A row for each delivery."""
        return self._table("verdicts")

    @property
    def violations(self) -> DataFrame:
        """A row for each broken promise."""
        return self._table("violations")

    @property
    def members(self) -> DataFrame:
        """A row for each member, with counts."""
        return self._table("members")

    @property
    def rates(self) -> DataFrame:
        """A row for each run with probabilistic members, if it was said what error rate is allowed."""
        return self._table("rates")

    @property
    def doubts(self) -> DataFrame:
        """A row for each member whose trace is not all here."""
        return self._table("doubts")

    @property
    def quarantine(self) -> DataFrame:
        """What is no row, and rows that contradict each other."""
        return self._table("quarantine")

    def _table(self, name: str) -> DataFrame:
        return self.findings.where(f"{name} is not null").select(f"{name}.*")

    def unpersist(self) -> None:
        """Give back the memory and disk that the findings take. What is used afterwards is computed anew."""
        for held in (self.findings, *self._kept):
            held.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpersist()


def audit(df: DataFrame, *, complete: bool = False, error_rate: float | None = None, giant: int | None = None) -> Audit:
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
    """
    from pyspark import StorageLevel

    from whence.audit.spark import gate, session

    terms = Terms(complete, error_rate)
    session.check_workers(df.sparkSession)
    blocks = gate.rows(df).mapInArrow(packed, BLOCKS)
    limit = session.worker_memory(df.sparkSession) // ROW_BYTES if giant is None else giant
    kept: list[DataFrame] = []
    size = _bytes(df)
    sizes = _Sizes(0 if size is None else size // STORED_BYTES, {})
    if giant is not None or size is None or size >= limit:  # a row takes a byte at least
        blocks = blocks.persist(StorageLevel.MEMORY_AND_DISK)
        kept.append(blocks)
        sizes = _sizes_of(blocks, limit)
    found = _findings(blocks, lambda kind: as_rows(), terms, sizes, limit)
    findings = found.findings[0]
    for more in found.findings[1:]:
        findings = findings.unionByName(more)
    return Audit(findings, [*kept, *found.kept])


def _bytes(df: DataFrame) -> int | None:
    """How large the input is at most, by its plan; None: the plan does not tell."""
    try:
        return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # Spark Connect
        return None


class _Sizes(NamedTuple):
    """How many rows there are."""

    rows: int
    """In all; some may be no rows of a trace."""
    large: dict[Run, int]
    """In each of the large runs."""


def _sizes_of(blocks: DataFrame, limit: int) -> _Sizes:
    """Count the rows, and those of runs with more than `limit`. Only the large runs come to the driver."""
    from pyspark.sql import functions as F

    runs = blocks.groupBy("run", "cluster").agg(F.sum("rows").alias("n"))
    large = F.when((F.col("n") > limit) & (F.col("run") != REFUSED), F.struct("run", "cluster", "n"))
    (found,) = runs.agg(F.sum("n").alias("rows"), F.collect_list(large).alias("large")).collect()
    return _Sizes(found["rows"] or 0, {(row["run"], row["cluster"]): row["n"] for row in found["large"]})


class _Findings(NamedTuple):
    findings: list[DataFrame]
    kept: list[DataFrame]
    """What to unpersist when the findings are not needed any more."""

    def unpersist(self) -> None:
        for held in self.kept:
            held.unpersist()


def _findings(blocks: DataFrame, out: Callable[[str], Out], terms: Terms, sizes: _Sizes, limit: int) -> _Findings:
    """All runs in these blocks that fit into a worker, and the large ones, each spread over workers."""
    from pyspark import StorageLevel

    from whence.audit.spark import session
    from whence.audit.spark.giant import spread_out

    spark, large = blocks.sparkSession, sizes.large
    tasks = session.tasks(spark, sizes.rows - sum(large.values()))
    if not large:
        return _Findings([judged(blocks, out("run"), terms, tasks)], [])
    held, own = blocks.persist(StorageLevel.MEMORY_AND_DISK), _is_one_of(large)
    spread = spread_out(held.where(own), out("giant"), terms, len(large), _buckets(large, limit))
    rest = judged(held.where(~own), out("run"), terms, tasks)
    return _Findings([spread.findings, rest], [held, *spread.kept])


def _is_one_of(runs: dict[Run, int]) -> Column:
    """The condition of being a row of one of these runs."""
    from pyspark.sql import functions as F

    keys = [F.struct(F.lit(run).alias("run"), F.lit(cluster).alias("cluster")) for run, cluster in sorted(runs)]
    return F.struct("run", "cluster").isin(keys)


def _buckets(runs: dict[Run, int], limit: int) -> int:
    """How many parts the members of each of these runs are cut into."""
    from whence.audit.spark.giant import BUCKET_ROWS

    return max(2, -(-max(runs.values()) // min(BUCKET_ROWS, limit or BUCKET_ROWS)))
