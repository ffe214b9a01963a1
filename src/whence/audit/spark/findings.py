"""Judges runs in a Spark task, many in one call. There are two ways for the findings to leave the task.

As rows (`as_rows`): one DataFrame of all findings, a struct column for each table of which a row fills one. A table is
a column of it, so one pass over the trace makes all of them. As files (`as_files`): the task writes the tables itself,
text as dictionaries all the way, and only sums leave it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from whence.audit.judge.batch import audited as judged_runs
from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.audited import Audited
from whence.audit.judge.batch.coding import code, picked
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.judge.findings import Doubt
from whence.audit.judge.promises import NAMES
from whence.audit.judge.rates import UNDECIDED, Rate
from whence.audit.report.view import view, worst
from whence.audit.spark import ingest
from whence.audit.spark.ingest import RAW_LIMIT, Bad
from whence.audit.spark.tables import Parts, arrow_schema, spark_schema
from whence.errors import UsageError

TABLES: Final = ("verdicts", "violations", "members", "rates", "doubts", "quarantine")
"""The tables of every audit."""

INTERPRETED: Final = 100_000
"""Rows that a worker interprets before it compiles the kernel: tenths of a second, against 20 s and more for compiling
it the first time."""

BATCH: Final = 1 << 16
"""Rows that leave a task at a time."""

SHOWN: Final = 5
"""Violations of a run that are shown, of each rule; all of them are in the table."""

VIEWS: Final = "views"
"""The directory of the parts of runs that a page can show (`whence.audit.report.view`)."""

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


# -- in numbers


@dataclass
class Summary:
    """An audit in numbers, and in the first sentences of each rule."""

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
    """Deliveries, events and steps that cannot be judged: the traces of some members are not all here."""
    unjudged: list[str] = field(default_factory=list)
    """The first of these doubts, in words."""
    rates: dict[str, int] = field(default_factory=dict)
    """Error rates of runs, by outcome (`whence.audit.judge.rates`)."""
    rated: list[str] = field(default_factory=list)
    """The first of them, in words."""
    quarantined: int = 0
    refused: list[str] = field(default_factory=list)
    """The first rows or files in quarantine, and why."""
    design: str = ""

    def add(self, other: Summary) -> None:
        """Another run."""
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(theirs, int):
                setattr(self, name, mine + theirs)
            elif isinstance(theirs, list):
                setattr(self, name, (mine + theirs)[:SHOWN])
        for name in ("verdicts", "violations", "rates"):
            setattr(self, name, _sum(getattr(self, name), getattr(other, name)))
        for rule, texts in other.first.items():
            self.first[rule] = (self.first.get(rule, []) + texts)[:SHOWN]

    def doubt(self, table: pa.Table) -> None:
        """What cannot be judged: the table `doubts`."""
        self.doubts = sum(map(int, filter(None, table["deliveries"].to_pylist())))
        first = table.slice(0, SHOWN).to_pylist()
        self.unjudged = [str(Doubt(row["member"], row["reason"], row["deliveries"])) for row in first]

    def rate(self, found: Iterable[Rate]) -> None:
        """The error rates of runs."""
        rates = list(found)
        self.rates = dict(Counter(rate.outcome for rate in rates))
        self.rated = [str(rate) for rate in rates[:SHOWN]]

    def refuse(self, quarantine: pa.Table) -> None:
        """What is in quarantine."""
        self.quarantined += quarantine.num_rows
        for row in quarantine.slice(0, SHOWN - len(self.refused)).to_pylist():
            at = "" if row["position"] < 0 else f": position {row['position']}"
            self.refused.append(f"{row['file']}{at}: {row['reason']}")

    @property
    def sure(self) -> bool:
        """Everything could be judged."""
        return not self.doubts and UNDECIDED not in self.rates

    @property
    def clean(self) -> bool:
        """No promise was broken, as far as can be told."""
        return not self.violations


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


def summed(a: Audited, members: pa.Table, wrong: pa.Table, rows: int) -> Summary:
    """What was found in runs, in numbers."""

    def total(name: str) -> int:
        return sum(map(int, filter(None, members[name].to_pylist())))

    names = ("in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown")
    return Summary(
        rows=rows,
        runs=len(a.coded.runs),
        members=members.num_rows,
        published=len(a.coded.known.origin),
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
        said = {name: value for name, value in row.items() if value is not None and name not in ("run", "cluster")}
        out.append(Bad(file, position, why, json.dumps(said)[:RAW_LIMIT]))
    return out


# -- judging


class RunFindings(NamedTuple):
    """What was found in runs, or in a part of one."""

    tables: dict[str, pa.Table]
    summary: Summary
    rows: pa.Table | None = None
    """The input."""
    passed: tuple[str, str, str, bytes] | None = None
    """For other tasks: of which run and cluster it is, what it is, and the thing itself."""


def few(rows: int) -> bool:
    """Whether this process still interprets the kernel, with so many rows more."""
    global _judged
    _judged += rows
    return _judged <= INTERPRETED


def judge_runs(table: pa.Table, terms: Terms) -> RunFindings:
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
    return RunFindings(found, summary, table)


def task_number() -> int:
    """The number of this task; 0 where there is no Spark."""
    pyspark = sys.modules.get("pyspark")  # an audit without Spark does not load it
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def refused(bad: pa.Table) -> RunFindings:
    """What is no row."""
    return RunFindings({"quarantine": bad}, Summary())


# -- out of a task

_PASSED: Final = "struct<run string, cluster string, what string, blob binary>"


class Out(NamedTuple):
    """A way out of a task, and the schema of the rows that take it. Each has a column `passed`: what tasks leave for
    others (`whence.audit.spark.giant`)."""

    emit: Callable[[Iterable[RunFindings]], Iterator[pa.RecordBatch]]
    schema: str


def as_rows() -> Out:
    """The rows of all tables."""
    kinds = ", ".join(f"{name} {spark_schema(name).simpleString()}" for name in TABLES)
    return Out(_emit_rows, f"{kinds}, passed {_PASSED}")


def _emit_rows(found: Iterable[RunFindings]) -> Iterator[pa.RecordBatch]:
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


def _passed(judged: RunFindings) -> Any:
    return pa.array([dict(zip(("run", "cluster", "what", "blob"), judged.passed or (), strict=True))], _LEFT)


class TaskResult(msgspec.Struct):
    """What a task says at its end."""

    summary: Summary
    files: dict[str, dict[str, int]]
    """Table -> its files, and the rows in each."""
    show: tuple[int, int]
    """How much there is to show in the one run that a page could be made of: violations, deliveries."""


def as_files(out: str, kind: str, sparse: bool = False) -> Out:
    """The tables go into files below `out`, named after the task and `kind`; what was written, and the sums of it,
    leave as one row a task. A file that is not named there is of a task that failed or was run twice. `sparse`: no
    verdicts on deliveries that are in order."""

    def emit(found: Iterable[RunFindings]) -> Iterator[pa.RecordBatch]:
        total, show, shown = Summary(), (-1, -1), b""
        with Parts(out, f"{kind}-{task_number():05d}") as parts:
            for judged in found:
                total.add(judged.summary)
                if "quarantine" in judged.tables:
                    total.refuse(judged.tables["quarantine"])
                if judged.passed is not None:
                    yield _batch(_SUMS, {"passed": _passed(judged)}, 1)
                if judged.rows is not None:
                    much, whose = worst(judged.tables)
                    if much > show:
                        show, shown = much, view(judged.rows, judged.tables, whose)
                for name, table in judged.tables.items():
                    parts.write(name, results.exceptions(table) if sparse and name == "verdicts" else table)
            if shown:
                parts.add(VIEWS, f"{parts.name}.msgpack", shown)
        said = TaskResult(total, parts.written, show)
        yield _batch(_SUMS, {"summary": pa.array([msgspec.json.encode(said).decode()])}, 1)

    return Out(emit, f"summary string, passed {_PASSED}")


_LEFT: Final = pa.struct(
    [pa.field(name, pa.string()) for name in ("run", "cluster", "what")] + [pa.field("blob", pa.binary())]
)
_ROWS: Final = pa.schema(
    [*(pa.field(name, pa.struct(list(arrow_schema(name)))) for name in TABLES), pa.field("passed", _LEFT)]
)
_SUMS: Final = pa.schema([pa.field("summary", pa.string()), pa.field("passed", _LEFT)])
