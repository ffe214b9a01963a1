"""DataFrame in, DataFrames out: the audit in a session of the caller's own, which is not reconfigured.

    found = audit(df)
    found.violations.show()

`df` is any table of steps (`whence.audit.spark.gate`), so a source is whatever `spark.read` can read. Its rows are
packed by run and cluster into blocks and shuffled so; a run is judged by one task, or, if it is too large for a
worker, by many (`whence.audit.spark.giant`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.audited import Audited, audited
from whence.audit.judge.batch.coding import READ, code
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.spark import gate, session
from whence.audit.spark.blocks import BLOCKS, REFUSED, Run, judged, packed
from whence.audit.spark.findings import Terms, as_rows, few
from whence.audit.spark.giant import BUCKET_ROWS, spread_out
from whence.audit.spark.tables import arrow_schema, spark_schema

ROW_BYTES: Final = 200
"""About what a worker takes for a row while it judges."""

STORED_BYTES: Final = 5
"""About what a row takes in a Parquet file, where it takes least."""


class Audit:
    """What was found, as DataFrames. They are columns of one DataFrame, which is computed when the first of them is
    used and kept (in memory, what does not fit on disk) until `unpersist`, or the end of a `with` block."""

    def __init__(self, findings: DataFrame, kept: list[DataFrame]) -> None:
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
        return self.findings.where(F.col(name).isNotNull()).select(f"{name}.*")

    def unpersist(self) -> None:
        """Give back the memory and disk that the findings take. What is used afterwards is computed anew."""
        for frame in (self.findings, *self._kept):
            frame.unpersist()

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
    a wrong type, or workers without our package. A row without a value where one is needed goes to `quarantine`.

    `complete`: the rows of all members are here, to the end of each run; what no row tells of did not happen. Otherwise
    what depends on rows that may be missing is in `doubts`.

    `error_rate`: the share of deliveries that the probabilistic members of a cluster may invert, as its contract says.
    The share of each run is in `rates`; above it with statistical certainty is a violation. UsageError if it is not a
    share.

    `giant`: rows above which a run is spread over workers; by default as many as fit into the memory of one, by the
    settings of the session. Where the plan of `df` cannot tell that all of it is smaller than that, its rows are
    counted now, by run, and kept for the judge; otherwise nothing is read before the first table is used.
    """
    terms = Terms(complete, error_rate)
    session.check_workers(df.sparkSession)
    blocks = gate.rows(df).mapInArrow(packed, BLOCKS)
    limit = session.worker_memory(df.sparkSession) // ROW_BYTES if giant is None else giant
    kept: list[DataFrame] = []
    size = _bytes(df)
    sizes = Sizes(0 if size is None else size // STORED_BYTES, {})
    if giant is not None or size is None or size >= limit:  # a row takes a byte at least
        blocks = blocks.persist(StorageLevel.MEMORY_AND_DISK)
        kept.append(blocks)
        sizes = sizes_of(blocks, limit)
    out, large = as_rows(), sizes.large
    tasks = session.tasks(df.sparkSession, sizes.rows - sum(large.values()))
    if not large:
        return Audit(judged(blocks, out, terms, tasks), kept)
    own = large_ones(large)
    spread = spread_out(blocks.where(own), out, terms, len(large), buckets(large, limit))
    rest = judged(blocks.where(~own), out, terms, tasks)
    return Audit(rest.unionByName(spread.findings), [*kept, *spread.kept])


def _bytes(df: DataFrame) -> int | None:
    """How large the input is at most, by its plan; None: the plan does not tell."""
    try:
        return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # Spark Connect
        return None


class Sizes(NamedTuple):
    """How many rows there are."""

    rows: int
    """In all; some may be no rows of a trace."""
    large: dict[Run, int]
    """In each of the large runs."""


def sizes_of(blocks: DataFrame, limit: int) -> Sizes:
    """Count the rows, and those of runs with more than `limit`. Only the large runs come to the driver."""
    runs = blocks.groupBy("run", "cluster").agg(F.sum("rows").alias("n"))
    large = F.when((F.col("n") > limit) & (F.col("run") != REFUSED), F.struct("run", "cluster", "n"))
    (found,) = runs.agg(F.sum("n").alias("rows"), F.collect_list(large).alias("large")).collect()
    return Sizes(found["rows"] or 0, {(row["run"], row["cluster"]): row["n"] for row in found["large"]})


def large_ones(runs: dict[Run, int]) -> Column:
    """The condition of being a row of one of these runs."""
    keys = [F.struct(F.lit(run).alias("run"), F.lit(cluster).alias("cluster")) for run, cluster in sorted(runs)]
    return F.struct("run", "cluster").isin(keys)


def buckets(runs: dict[Run, int], limit: int) -> int:
    """How many parts the members of each of these runs are cut into."""
    return max(2, -(-max(runs.values()) // min(BUCKET_ROWS, limit or BUCKET_ROWS)))


# -- of each run by itself

Make = Callable[[Audited], pa.Table]


def past(df: DataFrame) -> DataFrame:
    """The table `past`: the true causal past of each event. A run has to fit into a worker."""
    return _of_runs(df, "past", results.past_table)


def origins(df: DataFrame) -> DataFrame:
    """The table `origins`: which entry of a vector of `past` is whose."""
    return _of_runs(df, "origins", results.origins_table)


def _of_runs(df: DataFrame, table: str, make: Make) -> DataFrame:
    schema = arrow_schema(table)

    def of_run(rows: pa.Table) -> pa.Table:
        with interpreted(few(rows.num_rows)):
            return make(audited(code(rows))).cast(schema)

    return gate.rows(df).select(*READ).groupBy("run", "cluster").applyInArrow(of_run, spark_schema(table))
