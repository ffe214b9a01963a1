"""Logs of others: are the vector clocks of a ShiViz log well formed?

    log_files(paths) -> steps -> violations
                     -> quarantine

The rules of a vector clock (Fidge 1988, Mattern 1989), and what a breach of each is called:

* its host's own entry counts that host's steps, 1, 2, 3, ... (`own entry`), no number twice (`duplicate`);
* an entry for another host names a step that this host took, and that does not in turn have the step with this clock
  in its past (`future`);
* no entry goes backwards (`backwards`): not from one line of a host to its next, not from one step of a host to its
  next, and not from a step to one that claims to follow it.

A breach is reported where it begins, not again at every step that takes it over from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from whence.errors import TraceError, UsageError
from whence.spark.session import cores
from whence.spark.tables import arrow_schema, inputs, publish, require, spark_schema, staging
from whence.trace.schema import TRACE_VERSION
from whence.trace.shiviz import Log, compile_expression, load_log

# -- the rules, without Spark

Clock = dict[str, int]
"""Host -> count."""


class Step(NamedTuple):
    """One record of a log."""

    host: str
    own: int
    """The host's own entry."""
    clock: Clock
    lseq: int
    """Its place among the host's records in the log, from 0."""
    line: int

    @property
    def event(self) -> str:
        """What the step is called elsewhere."""
        return f"{self.host}:{self.own}"

    def __str__(self) -> str:
        return f"{self.event} (line {self.line})"


class Finding(NamedTuple):
    """A step that breaks a rule."""

    rule: str
    step: Step
    detail: str
    witness: list[str]
    """The events of the explanation; the step's own is the first."""


def judge(steps: Iterable[Step]) -> list[Finding]:
    """What is wrong in one execution, given in the order of its log. The findings are in that order, too."""
    rules = _Rules(steps)
    return sorted(rules.findings, key=lambda f: (f.step.line, f.step.lseq, f.rule, f.detail))


class _Rules:
    """The rules, applied one after the other; a later one does not repeat what an earlier one has found."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.findings: list[Finding] = []
        self._at: dict[tuple[str, int], Step] = {}
        self._by_host: dict[str, list[Step]] = {}
        self._false: dict[tuple[str, int], dict[str, None]] = {}
        """Step -> its entries that are `future`. What they say is not held against anybody else."""
        self._cycles: dict[tuple[str, str], None] = {}
        self._counted(steps)
        for mine in self._by_host.values():
            mine.sort(key=lambda step: step.own)  # from here on: in the order in which the host counted
            self._gaps(mine)
        for impossible in (self._never_taken, self._came_later):
            false = [found for mine in self._by_host.values() for found in self._changed(mine, impossible)]
            for step, other in false:  # after all have been asked: of two in a cycle each is told by the other
                self._false.setdefault((step.host, step.own), {})[other] = None
        for mine in self._by_host.values():
            self._backwards(mine)

    def _find(self, rule: str, step: Step, detail: str, *others: Step | str) -> None:
        witness = [step.event, *(o.event if isinstance(o, Step) else o for o in others)]
        self.findings.append(Finding(rule, step, detail, witness))

    def _counted(self, steps: Iterable[Step]) -> None:
        """Line by line: a number twice, or one that comes too late."""
        highest: dict[str, Step] = {}
        for step in steps:
            first = self._at.setdefault((step.host, step.own), step)
            if first is not step:
                how = "with the same clock" if first.clock == step.clock else "with another clock"
                self._find("duplicate", step, f"{step} was already on line {first.line}, {how}.", first)
                continue
            self._by_host.setdefault(step.host, []).append(step)
            top = highest.setdefault(step.host, step)
            if step.own < top.own:
                self._find("backwards", step, f"{step} stands after {top} in the log.", top)
            else:
                highest[step.host] = step

    def _gaps(self, mine: Sequence[Step]) -> None:
        """Own entries that do not count 1, 2, 3, ..."""
        before = 0
        for step in mine:
            if step.own < 1:
                self._find("own entry", step, f"{step}: a host counts its steps from 1.")
                continue
            if step.own > before + 1:
                missing = f"{before + 1}" if step.own == before + 2 else f"{before + 1} to {step.own - 1}"
                detail = f"{step} comes next after {step.host}:{before}" if before else f"{step} is the first"
                known = [f"{step.host}:{before}"] if before else []
                self._find("own entry", step, f"{detail}: {step.host} has no step {missing}.", *known)
            before = step.own

    def _changed(
        self, mine: Sequence[Step], impossible: Callable[[Step, str, int, Clock], bool]
    ) -> Iterator[tuple[Step, str]]:
        """The entries of a host that are impossible. Only one that is not as in the step before is asked about; what
        it is it stays, while nothing changes it."""
        previous: Clock = {}
        false_before: dict[str, None] = {}
        for step in mine:
            false: dict[str, None] = {}
            for other, count in step.clock.items():
                if other == step.host or other in self._false.get((step.host, step.own), ()):
                    continue
                same = count == previous.get(other, 0)
                if other in false_before if same else impossible(step, other, count, previous):
                    false[other] = None
                    yield step, other
            previous, false_before = step.clock, false

    def _never_taken(self, step: Step, other: str, count: int, previous: Clock) -> bool:
        theirs = self._by_host.get(other, [])
        if theirs and count <= theirs[-1].own:
            return False
        if not self._taken_over(step, other, count, previous):
            came = f"{other} only came to {theirs[-1]}" if theirs else f"the log has no step of {other}"
            self._find("future", step, f"{step} knows {other} up to {count}, but {came}.", *theirs[-1:])
        return True

    def _came_later(self, step: Step, other: str, count: int, previous: Clock) -> bool:
        named = self._at.get((other, count))
        if named is None or self._knows(named, step.host) < step.own:
            return False
        # The two steps by which the hosts are in each other's past: found from either side, reported once.
        back = self._first_to_know(other, count, step)
        ours = self._first_to_know(step.host, step.own, back)
        first, second = sorted((ours, back), key=lambda s: s.line)
        if (first.event, second.event) not in self._cycles and not self._taken_over(step, other, count, previous):
            self._cycles[first.event, second.event] = None
            what = f"{first} has {second.host}:{first.clock[second.host]} in its past"
            its = f"{second} had {first.host}:{second.clock[first.host]} in its own"
            self._find("future", first, f"{what}, but before that {its}.", second)
        return True

    def _knows(self, step: Step, other: str) -> int:
        """An entry, unless it is false."""
        return 0 if other in self._false.get((step.host, step.own), ()) else step.clock.get(other, 0)

    def _first_to_know(self, host: str, own: int, step: Step) -> Step:
        """The first step of `host`, going back from `own`, that has `step` in its past."""
        first = self._at[host, own]
        while (before := self._at.get((host, first.own - 1))) and before.clock.get(step.host, 0) >= step.own:
            first = before
        return first

    def _taken_over(self, step: Step, other: str, count: int, previous: Clock) -> bool:
        """Whether a step that this one has just taken in had the entry already: then it begins there."""
        for third, at in step.clock.items():
            if third not in (step.host, other) and at != previous.get(third, 0):
                source = self._at.get((third, at))
                if source is not None and source.clock.get(other, 0) >= count:
                    return True
        return False

    def _backwards(self, mine: Sequence[Step]) -> None:
        """Entries below those of the host's step before, or of a step that has just been taken in."""
        held: dict[str, tuple[int, Step]] = {}
        for step in mine:
            false = self._false.get((step.host, step.own), {})
            told = [other for other in step.clock if other != step.host and other not in false]
            lost: dict[str, Step | None] = {}
            for other in [*told, *(o for o in held if o not in step.clock)]:
                before, since = held.get(other, (0, None))
                if step.clock.get(other, 0) < before:
                    lost[other] = since
            for other in told:
                count = step.clock[other]
                source = self._at.get((other, count))
                if source is not None and count > (held[other][0] if other in held else 0):
                    self._not_taken_in(step, source, lost)
            for other, since in lost.items():
                knows = f"{step} knows {other} up to {step.clock.get(other, 0)}"
                if since is None:
                    self._find("backwards", step, f"{knows}, less than nothing.")
                    continue
                then = since.clock.get(other, 0)
                self._find("backwards", step, f"{knows}, but follows {since}, which knows it up to {then}.", since)
            held.update((other, (step.clock.get(other, 0), step)) for other in [*told, *lost])

    def _not_taken_in(self, step: Step, source: Step, lost: dict[str, Step | None]) -> None:
        """Add what `source` knew and `step`, which has it in its past, does not."""
        false = self._false.get((step.host, step.own), {})
        for other in source.clock:
            if other not in (step.host, *false) and step.clock.get(other, 0) < self._knows(source, other):
                lost.setdefault(other, source)


# -- DataFrame -> DataFrame

RAW_LIMIT = 4096
"""Characters of a text that are kept in `quarantine`."""

FILES = StructType([StructField("file", StringType(), False)])
STEPS = StructType([*spark_schema("events").fields, StructField("line", LongType(), False)])
"""The table `events` (kind `step`: the host is the member, `lseq` its place among the host's lines, `event` is
`host:own`, `clock` the vector clock as JSON, `reason` the log's text), and the line where the record begins."""

_STEPS = arrow_schema("events").append(pa.field("line", pa.int64(), nullable=False))
_BATCH = 65_536
_clock = msgspec.json.Decoder(dict[str, int]).decode


def log_files(spark: SparkSession, files: Sequence[str | os.PathLike[str]]) -> DataFrame:
    """The files as a DataFrame, spread so that no task has many."""
    rows = [(str(file),) for file in files]
    return spark.createDataFrame(rows, FILES).repartition(max(1, min(len(rows), 4 * cores(spark))))


def steps(files: DataFrame, parser: str | None = None, delimiter: str = "") -> DataFrame:
    """The records of these logs: `STEPS`. `parser` and `delimiter` as in `whence.trace.shiviz.load_log`; without a
    parser each file has to begin with its own. A file (and each execution in it) is a run of its own."""
    return files.mapInArrow(partial(_read_steps, parser, delimiter), STEPS)


def quarantine(files: DataFrame, parser: str | None = None, delimiter: str = "") -> DataFrame:
    """What in these logs belongs to no record, or has no usable clock: the table `quarantine`."""
    return files.mapInArrow(partial(_read_rest, parser, delimiter), spark_schema("quarantine"))


def violations(steps: DataFrame) -> DataFrame:
    """The breaches of the rules above: the table `violations`. One execution is judged by one task."""
    needed = steps.select("run", "cluster", "member", "lseq", "event", "clock", "line")
    return needed.groupBy("run").applyInArrow(_judge_run, spark_schema("violations"))


def _logs(batches: Iterator[pa.RecordBatch], parser: str | None, delimiter: str) -> Iterator[tuple[str, Log | str]]:
    """File, and its log or the reason why there is none."""
    for batch in batches:
        for file in map(str, batch.column(0).to_pylist()):
            try:
                yield file, load_log(file, parser, delimiter, on_bad="collect")
            except (TraceError, UsageError) as error:
                yield file, str(error).removeprefix(f"{file}: ")


def _read_steps(parser: str | None, delimiter: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for file, log in _logs(batches, parser, delimiter):
        if isinstance(log, str):
            continue
        place: Counter[tuple[str, str]] = Counter()
        rows = []
        for record in log.records:
            rows.append(
                {
                    "version": TRACE_VERSION,
                    "run": f"{file}#{record.execution}" if record.execution else file,
                    "cluster": "",
                    "member": record.host,
                    "lseq": place[record.execution, record.host],
                    "t_ns": 0,
                    "kind": "step",
                    "event": f"{record.host}:{record.own}",
                    "origin": record.host,
                    "clock": msgspec.json.encode(record.clock).decode(),
                    "reason": record.event,
                    "file": file,
                    "line": record.line,
                }
            )
            place[record.execution, record.host] += 1
        yield from pa.Table.from_pylist(rows, _STEPS).to_batches(_BATCH)


def _read_rest(parser: str | None, delimiter: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for file, log in _logs(batches, parser, delimiter):
        if isinstance(log, str):
            rows: list[tuple[int, str, str | None]] = [(-1, log, None)]
        else:
            rows = [(line, "belongs to no record of the parser expression", text) for line, text in log.passed_over]
            rows += [_unusable(file, error) for error in log.bad]
        table = [
            {"file": file, "position": line, "reason": reason, "raw": raw and raw[:RAW_LIMIT]}
            for line, reason, raw in sorted(rows)
        ]
        yield from pa.Table.from_pylist(table, arrow_schema("quarantine")).to_batches(_BATCH)


def _unusable(file: str, error: TraceError) -> tuple[int, str, str | None]:
    """Line, reason and text of a record that `load_log` refused: `file: line 7: reason`."""
    line, _, reason = str(error).removeprefix(f"{file}: line ").partition(": ")
    with Path(file).open(encoding="utf-8") as lines:
        raw = next((text for number, text in enumerate(lines, 1) if number == int(line)), "")
    return int(line), reason, raw.rstrip("\n")


def _judge_run(run: pa.Table) -> pa.Table:
    """The violations of one execution."""
    ordered = run.sort_by([("line", "ascending"), ("lseq", "ascending")])
    columns = (ordered[name].to_pylist() for name in ("member", "clock", "lseq", "line"))
    clocked = ((member, _clock(clock), lseq, line) for member, clock, lseq, line in zip(*columns, strict=True))
    found = judge(Step(host, clock[host], clock, lseq, line) for host, clock, lseq, line in clocked)
    name = run["run"][0].as_py() if len(run) else ""
    rows = [
        {
            "run": name,
            "cluster": "",
            "rule": finding.rule,
            "member": finding.step.host,
            "lseq": finding.step.lseq,
            "event": finding.step.event,
            "detail": finding.detail,
            "witness": finding.witness,
        }
        for finding in found
    ]
    return pa.Table.from_pylist(rows, arrow_schema("violations"))


# -- the whole job


class Summary(msgspec.Struct, kw_only=True):
    """What became of these logs."""

    files: int
    runs: int
    """Executions: a file is one, unless a delimiter separates several."""
    members: int
    """Hosts, counted anew in each execution."""
    events: int
    """Records."""
    quarantined: int
    violations: dict[str, int]
    """Rule -> how often it was broken."""
    examples: list[str]
    """The first few, in words."""

    @property
    def clean(self) -> bool:
        """No rule was broken."""
        return not self.violations


EXAMPLES = 10


def find_logs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files, and the files below the directories (hidden ones excepted), sorted. TraceError when there is none."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise TraceError(f"{path}: no such file or directory")
        below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        files = [p for p in below if not any(part.startswith((".", "_")) for part in p.relative_to(path).parts)]
        if not files:
            raise TraceError(f"{path}: no log here")
        found.update(dict.fromkeys(files))
    return list(found)


def audit_logs(
    spark: SparkSession,
    paths: Iterable[str | os.PathLike[str]],
    parser: str | None,
    out: str | os.PathLike[str],
    delimiter: str = "",
) -> Summary:
    """Audit the logs at these paths: writes the tables `events`, `quarantine` and `violations` into `out`."""
    if parser is not None:
        compile_expression(parser)
    logs = find_logs(paths)
    files = log_files(spark, logs)
    with staging(out) as stage:
        steps(files, parser, delimiter).write.parquet(str(stage / "events"))
        quarantine(files, parser, delimiter).write.parquet(str(stage / "quarantine"))
        read = spark.read.schema(STEPS).parquet(str(stage / "events"))
        violations(read).write.parquet(str(stage / "violations"))
        found = require(spark.read.parquet(str(stage / "violations")), "violations")
        summary = _summary(len(logs), read, spark.read.parquet(str(stage / "quarantine")), found)
        rows = {
            "events": summary.events,
            "quarantine": summary.quarantined,
            "violations": sum(summary.violations.values()),
        }
        publish(stage, out, rows, {"inputs": inputs(logs), "format": "shiviz"})
    return summary


def _summary(files: int, read: DataFrame, refused: DataFrame, found: DataFrame) -> Summary:
    counted = read.agg(F.count("*"), F.countDistinct("run"), F.countDistinct("run", "member")).collect()[0]
    rules = found.groupBy("rule").count().orderBy("rule").collect()
    first = found.select("run", "detail").orderBy("run", "lseq", "detail").limit(EXAMPLES).collect()
    return Summary(
        files=files,
        runs=counted[1],
        members=counted[2],
        events=counted[0],
        quarantined=refused.count(),
        violations={row["rule"]: row["count"] for row in rules},
        examples=[f"{row['run']}: {row['detail']}" for row in first],
    )
