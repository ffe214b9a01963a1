"""Foreign logs: are the vector clocks of a ShiViz log well formed? The rules are in `whence.audit.judge.clocks`.

log_files(paths) -> steps -> violations
                 -> quarantine
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from whence.audit.judge.batch.tables import violations_table
from whence.audit.judge.clocks import ClockStep, judge
from whence.audit.spark.ingest import Bad, bad_table, raw_rows
from whence.audit.spark.json_lines import RAW_LIMIT
from whence.audit.spark.place import found
from whence.audit.spark.session import cores
from whence.audit.spark.tables import arrow_schema, inputs, publish, require, spark_schema, staging
from whence.audit.trace.schema import TRACE_VERSION
from whence.audit.trace.shiviz import Log, compile_expression, load_log
from whence.errors import TraceError, UsageError

# -- DataFrame -> DataFrame

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


def steps(files: DataFrame, parser: str | None = None, delimiter: str | None = None) -> DataFrame:
    """The records of these logs: `STEPS`. `parser` and `delimiter` as in `whence.audit.trace.shiviz.load_log`; without
    a parser each file has to begin with its own. A file (and each execution in it) is a run of its own."""
    return files.mapInArrow(partial(_read_steps, parser, delimiter), STEPS)


def quarantine(files: DataFrame, parser: str | None = None, delimiter: str | None = None) -> DataFrame:
    """What in these logs belongs to no record, or has no usable clock: the table `quarantine`."""
    return files.mapInArrow(partial(_read_rest, parser, delimiter), spark_schema("quarantine"))


def violations(steps: DataFrame) -> DataFrame:
    """The breaches of the rules above: the table `violations`. One execution is judged by one task."""
    needed = steps.select("run", "cluster", "member", "lseq", "event", "clock", "line")
    return needed.groupBy("run").applyInArrow(_judge_run, spark_schema("violations"))


def _logs(
    batches: Iterator[pa.RecordBatch], parser: str | None, delimiter: str | None
) -> Iterator[tuple[str, Log | str]]:
    """File, and its log or the reason why there is none."""
    for batch in batches:
        for file in map(str, batch.column(0).to_pylist()):
            try:
                yield file, load_log(file, parser, delimiter)
            except (TraceError, UsageError) as error:
                yield file, str(error).removeprefix(f"{file}: ")


def _read_steps(
    parser: str | None, delimiter: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
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


def _read_rest(
    parser: str | None, delimiter: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for file, log in _logs(batches, parser, delimiter):
        if isinstance(log, str):
            bad = [Bad(file, -1, log)]
        else:
            rest = [(line, "belongs to no record of the parser expression", text) for line, text in log.passed_over]
            bad = [Bad(file, line, why, raw[:RAW_LIMIT]) for line, why, raw in sorted([*rest, *log.refused])]
        yield from bad_table(bad).to_batches(_BATCH)


def log_rows(file: str, parser: str | None, delimiter: str | None) -> pa.Table:
    """All of a log as rows of `ingest.RAW`: its steps, with the line of each as `position`, and what is none."""
    batch = pa.RecordBatch.from_pydict({"file": [file]})
    steps = pa.Table.from_batches(_read_steps(parser, delimiter, iter([batch])), _STEPS)
    steps = steps.drop_columns(["file"]).rename_columns([*_STEPS.names[:-2], "position"])
    rest = pa.Table.from_batches(_read_rest(parser, delimiter, iter([batch])), arrow_schema("quarantine"))
    return raw_rows(file, steps, [Bad(**row) for row in rest.to_pylist()])


def _judge_run(run: pa.Table) -> pa.Table:
    """The violations of one execution."""
    ordered = run.sort_by([("line", "ascending"), ("lseq", "ascending")])
    columns = (ordered[name].to_pylist() for name in ("member", "clock", "lseq", "line"))
    clocked = ((member, _clock(clock), lseq, line) for member, clock, lseq, line in zip(*columns, strict=True))
    found = judge(ClockStep(host, clock[host], clock, lseq, line) for host, clock, lseq, line in clocked)
    whose = (str(run["run"][0].as_py()) if len(run) else "", "")
    return violations_table(((0, finding) for finding in found), [whose])


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


def check(parser: str | None, delimiter: str | None) -> None:
    """Raises UsageError if these are no expressions for a log."""
    if parser is not None:
        compile_expression(parser)
    if delimiter is not None:
        compile_expression(delimiter, needed=(), what="delimiter")


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
    delimiter: str | None = None,
) -> Summary:
    """Audit the logs at these paths: writes the tables `events`, `quarantine` and `violations` into `out`."""
    check(parser, delimiter)
    logs = find_logs(paths)
    files = log_files(spark, logs)
    with staging(out) as place:
        stage = Path(place)
        steps(files, parser, delimiter).write.parquet(str(stage / "events"))
        quarantine(files, parser, delimiter).write.parquet(str(stage / "quarantine"))
        read = spark.read.schema(STEPS).parquet(str(stage / "events"))
        violations(read).write.parquet(str(stage / "violations"))
        broken = require(spark.read.parquet(str(stage / "violations")), "violations")
        summary = _summary(len(logs), read, spark.read.parquet(str(stage / "quarantine")), broken)
        rows = {
            "events": summary.events,
            "quarantine": summary.quarantined,
            "violations": sum(summary.violations.values()),
        }
        publish(place, out, rows, {"inputs": inputs([f for log in logs for f in found(log)]), "format": "shiviz"})
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
