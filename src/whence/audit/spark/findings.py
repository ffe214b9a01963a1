"""Judges runs in a Spark task, many in one call. There are two ways for the findings to leave the task.

As rows (`as_rows`): one DataFrame of all findings, a struct column for each table of which a row fills one. A table is
a column of it, so one pass over the trace makes all of them. As files (`as_files`): the task writes the tables itself,
text as dictionaries all the way, and only sums leave it.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch import audited as judged_runs
from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.coding import code, codes, picked
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.judge.batch.rates import UNDECIDED, Rate
from whence.audit.judge.findings import Doubt
from whence.audit.judge.promises import DEFAULT, NAMES
from whence.audit.report.facts import RunLine
from whence.audit.report.view import runs_in, view
from whence.audit.spark import ingest
from whence.audit.spark.ingest import RAW_LIMIT, Bad
from whence.audit.spark.tables import Parts, arrow_schema, spark_schema
from whence.audit.trace.schema import LOST
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

LISTED: Final = 2_000
"""Runs that a page lists, at most."""
PAGED: Final = 10
"""Runs that have a page of their own, at most."""

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

    def doubted(self) -> Terms:
        """The same where rows are lost of which nobody knows whose they were: any member may lack them."""
        return replace(self, complete=False)


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
    assumed: int = 0
    """Members that are held to `DEFAULT` because no row tells their order."""
    doubts: int = 0
    """Deliveries, events and steps that cannot be judged: the traces of some members are not all here."""
    unjudged: list[str] = field(default_factory=list)
    """The first of these doubts, in words."""
    rates: dict[str, int] = field(default_factory=dict)
    """Error rates of runs, by outcome (`whence.audit.judge.batch.rates`)."""
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

    @property
    def sure(self) -> bool:
        """Everything could be judged, and there was something to judge."""
        return not (self.doubts or self.quarantined or UNDECIDED in self.rates) and self.rows > 0

    @property
    def clean(self) -> bool:
        """No promise was broken, as far as can be told."""
        return not self.violations


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}


_TOTALS: Final = (
    "deliveries", "missing", "in_order", "inverted", "over_gap", "after_gap", "duplicates", "unknown",
)  # fmt: skip
"""Columns of `members`; the last ones are those of `NAMES`."""


def summed(tables: Mapping[str, pa.Table], **numbers: Any) -> Summary:
    """What is in these tables, in numbers and first sentences. `numbers`: what no table tells."""
    out, members = Summary(**numbers), tables.get("members")
    if members is not None:
        out.members, total = members.num_rows, {name: pc.sum(members[name]).as_py() or 0 for name in _TOTALS}
        out.deliveries, out.missing = total["deliveries"], total["missing"]
        out.verdicts = dict(zip(NAMES, (total[name] for name in _TOTALS[2:]), strict=True))
    wrong = _told(tables, "violations", "rule", "detail")
    out.violations = dict(sorted(Counter(row["rule"] for row in wrong).items()))
    for rule in out.violations:
        out.first[rule] = list(islice((row["detail"] for row in wrong if row["rule"] == rule), SHOWN))
    doubts = [Doubt(*row.values()) for row in _told(tables, "doubts", "member", "reason", "deliveries")]
    out.doubts += sum(doubt.count for doubt in doubts)
    out.unjudged = [str(doubt) for doubt in doubts[:SHOWN]]
    rates = [Rate(**row) for row in _told(tables, "rates", *Rate._fields)]
    out.rates, out.rated = dict(Counter(rate.outcome for rate in rates)), [str(rate) for rate in rates[:SHOWN]]
    bad = tables.get("quarantine", ())
    out.quarantined = len(bad)
    for row in bad.slice(0, SHOWN).to_pylist() if bad else ():
        at = "" if row["position"] < 0 else f": position {row['position']}"
        out.refused.append(f"{row['file']}{at}: {row['reason']}")
    return out


def _told(tables: Mapping[str, pa.Table], name: str, *columns: str) -> list[dict[str, Any]]:
    """These columns of a table; nothing, if it is not there."""
    return tables[name].select(list(columns)).to_pylist() if name in tables else []


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
        runs, doubts = a.coded.runs, judged_runs.doubts(a)
        rates = judged_runs.rates(a, doubts, terms.error_rate)
        found = {
            "verdicts": results.verdicts(a),
            "violations": results.violations_table([*judged_runs.found(a), *judged_runs.too_many(rates)], runs),
            "members": results.members(a),
            "rates": results.rates_table(rates, runs),
            "doubts": results.doubts_table(doubts, runs),
            "quarantine": ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())),
        }
    said = {"runs": len(runs), "published": len(a.coded.known.origin)}
    table = told(table)
    said |= {"rows": table.num_rows, "assumed": assumed(table, a.coded.order, a.coded.there())}
    return RunFindings(found, summed(found, repeated=a.coded.repeated, **said), table)


def told(table: pa.Table) -> pa.Table:
    """The rows that the trace has: without those of `ingest.lost`."""
    lost = _rows_with(table["kind"], LOST)
    return table.take(np.delete(np.arange(table.num_rows), lost)) if len(lost) else table


def assumed(table: pa.Table, order: Sequence[str], there: Any) -> int:
    """How many of these members declare no order in these rows and are held to `DEFAULT`."""
    keys = [name for name in ("run", "cluster", "member") if name in table.column_names]
    joins = picked(table.select(keys), _rows_with(table["order"], DEFAULT))
    declared = len({tuple(row.values()) for row in joins})
    return max(0, sum(o == DEFAULT and bool(t) for o, t in zip(order, there.tolist(), strict=True)) - declared)


def _rows_with(column: Any, text: str) -> Any:
    """Which rows have this text."""
    code, texts = codes(column)
    return np.flatnonzero(code == pc.index(texts, pa.scalar(text)).as_py()) if text in texts.to_pylist() else code[:0]


def task_number() -> int:
    """The number of this task; 0 where there is no Spark."""
    pyspark = sys.modules.get("pyspark")  # an audit without Spark does not load it
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def refused(bad: pa.Table) -> RunFindings:
    """What is no row."""
    return RunFindings({"quarantine": bad}, summed({"quarantine": bad}))


def frozen(value: Any) -> bytes:
    """What tasks tell each other, and themselves."""
    data = pickle.dumps(value, protocol=5)
    return len(data).to_bytes(8, "big") + pa.compress(data, "lz4", asbytes=True)


def thawed(data: bytes) -> Any:
    """What was `frozen`."""
    return pickle.loads(pa.decompress(pa.py_buffer(data[8:]), int.from_bytes(data[:8], "big"), "lz4"))


# -- out of a task

_PASSED: Final = "struct<run string, cluster string, what string, blob binary>"


class Out(NamedTuple):
    """A way out of a task, and the schema of the rows that take it. Each has a column `passed`: what tasks leave for
    others (`whence.audit.spark.giant`)."""

    emit: Callable[[Iterable[RunFindings]], Iterator[pa.RecordBatch]]
    schema: str


def as_rows(sparse: bool) -> Out:
    """The rows of all tables. `sparse`: no verdicts on deliveries that are in order."""
    kinds = ", ".join(f"{name} {spark_schema(name).simpleString()}" for name in TABLES)
    return Out(partial(_emit_rows, sparse), f"{kinds}, passed {_PASSED}")


def _emit_rows(sparse: bool, found: Iterable[RunFindings]) -> Iterator[pa.RecordBatch]:
    for judged in found:
        for name, table in judged.tables.items():
            schema = arrow_schema(name)
            rows = results.exceptions(table) if sparse and name == "verdicts" else table
            for batch in rows.cast(schema).to_batches(max_chunksize=BATCH):
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
    runs: list[RunLine]
    """The worst first."""
    views: list[tuple[RunLine, str]]
    """Of the worst runs, and the file of each."""


def as_files(out: str, kind: str, sparse: bool = False) -> Out:
    """The tables go into files below `out`, named after the task and `kind`; what was written, and the sums of it,
    leave as one row a task. A file that is not named there is of a task that failed or was run twice. `sparse`: no
    verdicts on deliveries that are in order."""

    def emit(found: Iterable[RunFindings]) -> Iterator[pa.RecordBatch]:
        total, runs, views = Summary(), list[RunLine](), list[tuple[RunLine, bytes]]()
        with Parts(out, f"{kind}-{task_number():05d}") as parts:
            for judged in found:
                total.add(judged.summary)
                if judged.passed is not None:
                    yield _batch(_SUMS, {"passed": _passed(judged)}, 1)
                mine = sorted(runs_in(judged.tables), reverse=True) if "violations" in judged.tables else []
                runs = sorted([*runs, *mine], reverse=True)[:LISTED]
                for line in mine[:PAGED] if judged.rows is not None else ():
                    if len(views) < PAGED or line > views[-1][0]:
                        one = view(judged.rows, judged.tables, (line.run, line.cluster))  # type: ignore[arg-type]
                        views = sorted([*views, (line, one)], key=itemgetter(0), reverse=True)[:PAGED]
                for name, table in judged.tables.items():
                    parts.write(name, results.exceptions(table) if sparse and name == "verdicts" else table)
            named = [(line, f"{parts.name}-{k}.msgpack", data) for k, (line, data) in enumerate(views)]
            for _, name, data in named:
                parts.add(VIEWS, name, data)
        said = TaskResult(total, parts.written, runs, [(line, name) for line, name, _ in named])
        yield _batch(_SUMS, {"summary": pa.array([msgspec.json.encode(said).decode()])}, 1)

    return Out(emit, f"summary string, passed {_PASSED}")


_LEFT: Final = pa.struct(
    [pa.field(name, pa.string()) for name in ("run", "cluster", "what")] + [pa.field("blob", pa.binary())]
)
_ROWS: Final = pa.schema(
    [*(pa.field(name, pa.struct(list(arrow_schema(name)))) for name in TABLES), pa.field("passed", _LEFT)]
)
_SUMS: Final = pa.schema([pa.field("summary", pa.string()), pa.field("passed", _LEFT)])
