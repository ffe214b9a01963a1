"""Runs of clusters, judged in a task, many in one call; and the two ways in which what is found leaves it.

As rows (`as_rows`): one DataFrame of all findings, a struct column for each table of which a row fills one. A table is
a column of it, so one pass over the trace makes all of them. As files (`as_files`): the task writes the tables itself,
text as dictionaries all the way, and only sums leave it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from whence.audit.judge.batch import audited as judged_runs
from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.audited import Audited
from whence.audit.judge.batch.coding import code
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.spark import ingest
from whence.audit.spark.parts import Group, Parts
from whence.audit.spark.pictures import draw
from whence.audit.spark.summary import Summary, conflicts, summed
from whence.audit.spark.tables import arrow_schema, spark_schema
from whence.errors import UsageError

TABLES: Final = ("verdicts", "violations", "members", "rates", "doubts", "quarantine")
"""The tables of every audit."""

INTERPRETED: Final = 100_000
"""Rows that a worker interprets before it compiles the kernel: tenths of a second, against 20 s and more for compiling
it the first time."""

PICTURES: Final = 100
"""Pictures that a task draws, about. All violations are in the table."""

BATCH: Final = 1 << 16
"""Rows that leave a task at a time."""

_judged = 0


@dataclass(frozen=True)
class Terms:
    """What the caller says of traces, and no row does."""

    complete: bool = False
    """The rows of all members are here, to the end of each run; what no row tells of did not happen."""
    error_rate: float | None = None
    """The share of deliveries that probabilistic members may invert; None: it is not judged."""

    def __post_init__(self) -> None:
        if self.error_rate is not None and not 0 < self.error_rate <= 1:
            raise UsageError(f"the error rate is {self.error_rate:g}; want more than 0, at most 1")


class Judged(NamedTuple):
    """What was found in runs, or in a part of one."""

    tables: dict[str, pa.Table]
    summary: Summary
    rows: pa.Table | None = None
    """The input, and below the same coded: where pictures can be drawn from it."""
    audited: Audited | None = None
    passed: tuple[str, str, str, bytes] | None = None
    """For other tasks: of which run and cluster it is, what it is, and the thing itself."""


def few(rows: int) -> bool:
    """Whether this process still interprets the kernel, with so many rows more."""
    global _judged
    _judged += rows
    return _judged <= INTERPRETED


def judge_runs(table: pa.Table, terms: Terms) -> Judged:
    """Judge all rows of some runs (columns `READ`, `file`, `position`)."""
    with interpreted(few(table.num_rows)):
        a = judged_runs.audited(code(table, complete=terms.complete))
        members, runs = results.members(a), a.coded.runs
        doubts = judged_runs.doubts(a)
        rates = judged_runs.rates(a, doubts, terms.error_rate)
        wrong = results.violations_table([*judged_runs.found(a), *judged_runs.too_many(rates)], runs)
        found = {
            "verdicts": results.verdicts(a),
            "violations": wrong,
            "members": members,
            "rates": results.rates_table(rates, runs),
            "doubts": results.doubts_table(doubts, runs),
            "quarantine": ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())),
        }
    summary = summed(a, members, wrong, table.num_rows)
    summary.doubt(found["doubts"])
    summary.rate(rate for _, rate in rates)
    return Judged(found, summary, table, a)


def task_number() -> int:
    """The number of this task; 0 where there is no Spark."""
    pyspark = sys.modules.get("pyspark")  # an audit without Spark does not load it
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def refused(bad: pa.Table) -> Judged:
    """What is no row."""
    return Judged({"quarantine": bad}, Summary())


# -- out of a task

_PASSED: Final = "struct<run string, cluster string, what string, blob binary>"


class Emit(Protocol):
    """Takes what is found. `groups`: what all of it is of, if a note of it is to be left."""

    def __call__(self, found: Iterable[Judged], groups: Sequence[Group] = ()) -> Iterator[pa.RecordBatch]: ...


class Out(NamedTuple):
    """A way out of a task, and the schema of the rows that take it. Each has a column `passed`: what tasks leave for
    others (`whence.audit.spark.giant`)."""

    emit: Emit
    schema: str


def as_rows() -> Out:
    """The rows of all tables."""
    kinds = ", ".join(f"{name} {spark_schema(name).simpleString()}" for name in TABLES)
    return Out(_emit_rows, f"{kinds}, passed {_PASSED}")


def _emit_rows(found: Iterable[Judged], groups: Sequence[Group] = ()) -> Iterator[pa.RecordBatch]:
    for judged in found:
        for name, table in judged.tables.items():
            schema = arrow_schema(name)
            for batch in table.cast(schema).to_batches(max_chunksize=BATCH):
                filled = pa.StructArray.from_arrays(batch.columns, fields=list(schema))
                yield _batch(_ROWS, {name: filled}, len(filled))
        if judged.passed is not None:
            yield _batch(_ROWS, {"passed": _passed(judged)}, 1)


def _batch(schema: pa.Schema, filled: dict[str, Any], rows: int) -> pa.RecordBatch:
    columns = [filled.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _passed(judged: Judged) -> Any:
    return pa.array([dict(zip(("run", "cluster", "what", "blob"), judged.passed or (), strict=True))], _LEFT)


def _shortened(tables: dict[str, pa.Table], sparse: bool) -> dict[str, pa.Table]:
    """These tables, with sparse verdicts if they are wanted."""
    if not sparse or "verdicts" not in tables:
        return tables
    exceptions, ranges = results.sparse(tables["verdicts"])
    return {**tables, "verdicts": exceptions, "in_order": ranges}


def as_files(stage: str, kind: str, sparse: bool = False) -> Out:
    """The tables go into files below `stage`, named after the task and `kind`; what was written, and the sums of it,
    leave as one row a task. A file that is not named there is of a task that failed or was run twice. `sparse`: of
    deliveries that are in order only ranges are written, into the table `in_order`."""

    def emit(found: Iterable[Judged], groups: Sequence[Group] = ()) -> Iterator[pa.RecordBatch]:
        task = f"{kind}-{task_number():05d}"
        total = Summary()
        pictures: list[str] = []
        with Parts(stage, task) as parts:
            for judged in found:
                for name, table in _shortened(judged.tables, sparse).items():
                    parts.write(name, table)
                total.add(judged.summary)
                if judged.rows is not None and judged.audited is not None and len(pictures) < PICTURES:
                    most = PICTURES - len(pictures)
                    pictures += draw(judged.rows, judged.audited.coded, judged.tables["violations"], stage, most)
                if judged.passed is not None:
                    yield _batch(_SUMS, {"passed": _passed(judged)}, 1)
        total.pictures = len(pictures)
        said = {"summary": asdict(total), "files": parts.written, "pictures": pictures}
        if groups:
            said["note"] = parts.note(groups, [json.dumps(said)])
        yield _batch(_SUMS, {"summary": pa.array([json.dumps(said)])}, 1)

    return Out(emit, f"summary string, passed {_PASSED}")


_LEFT: Final = pa.struct(
    [pa.field(name, pa.string()) for name in ("run", "cluster", "what")] + [pa.field("blob", pa.binary())]
)
_ROWS: Final = pa.schema(
    [*(pa.field(name, pa.struct(list(arrow_schema(name)))) for name in TABLES), pa.field("passed", _LEFT)]
)
_SUMS: Final = pa.schema([pa.field("summary", pa.string()), pa.field("passed", _LEFT)])
