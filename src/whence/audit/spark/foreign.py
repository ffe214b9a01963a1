"""Logs of others: are the vector clocks of a ShiViz log well formed? The rules are in `whence.audit.judge.clocks`.

A log is a file, and each execution in it a run of its own. Its records are steps: the host is the member, `lseq` its
place among the host's lines, `event` is `host:own`, `clock` the vector clock as JSON, `reason` the log's text. Logs are
small: this process judges them, one after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from whence.audit.judge.batch.tables import violations_table
from whence.audit.judge.clocks import ClockStep, judge
from whence.audit.spark import ingest
from whence.audit.spark.driver import Work
from whence.audit.spark.findings import RunFindings, Summary, as_files, refused, summed
from whence.audit.spark.ingest import RAW_LIMIT, Bad
from whence.audit.spark.place import Anywhere, TraceFile, found, opened
from whence.audit.spark.tables import arrow_schema, staging
from whence.audit.trace.schema import TRACE_VERSION
from whence.audit.trace.shiviz import Log, compile_expression, load_log
from whence.errors import TraceError, UsageError

TABLES: Final = ("events", "violations", "quarantine")


def audit_logs(
    paths: Iterable[Anywhere], out: Anywhere, parser: str | None = None, delimiter: str | None = None
) -> Summary:
    """Audit the logs at these places and write the tables into `out`, all or none. `parser`, `delimiter`: see
    `whence.audit.trace.shiviz.load_log`; without a parser each file has to begin with its own. UsageError if they are
    no expressions, TraceError if nothing can be read."""
    begun, files = time.monotonic(), _find(paths, parser, delimiter)
    with staging(out):
        work = Work(out)
        runs = (run for file in files for run in _judged(file.place, parser, delimiter))
        work.collect([as_files(work.out, "logs").emit(runs)])
        work.publish(files, TABLES, begun)
    return work.checked()


def _find(paths: Iterable[Anywhere], parser: str | None, delimiter: str | None) -> list[TraceFile]:
    """The files, and the files below the directories (hidden ones excepted)."""
    if parser is not None:
        compile_expression(parser)
    if delimiter is not None:
        compile_expression(delimiter, needed=(), what="delimiter")
    files: dict[str, TraceFile] = {}
    for path in paths:
        here = found(path)
        if not here:
            raise TraceError(f"{path}: no log here")
        files |= {file.place: file for file in here}
    for file in files if parser is None else ():
        with opened(file) as log:
            if b"(?<clock>" not in log.readline(1 << 16):
                raise TraceError(
                    f"{file}: line 1 is no parser expression: give --parser, a regular expression with the groups "
                    "host, clock and event, such as '(?<host>\\S+) (?<clock>\\{.*\\})\\n(?<event>.*)'"
                )
    return list(files.values())


def _judged(file: str, parser: str | None, delimiter: str | None) -> Iterator[RunFindings]:
    """What was found in the executions of a log; and what in it belongs to no record, or has no usable clock."""
    try:
        log = load_log(file, parser, delimiter)
    except (TraceError, UsageError) as error:
        yield refused(ingest.bad_table([Bad(file, -1, str(error).removeprefix(f"{file}: "))]))
        return
    rest = [(line, "belongs to no record of the parser expression", text) for line, text in log.passed_over]
    bad = [Bad(file, line, why, raw[:RAW_LIMIT]) for line, why, raw in sorted([*rest, *log.refused])]
    if bad:
        yield refused(ingest.bad_table(bad))
    for run, steps in _steps(file, log).items():
        wrong = judge(step for _, step in steps)
        made = {
            "events": pa.Table.from_pylist([row for row, _ in steps], arrow_schema("events")),
            "violations": violations_table(((0, one) for one in wrong), [(run, "")]),
        }
        members = len({row["member"] for row, _ in steps})
        yield RunFindings(made, summed(made, rows=len(steps), runs=1, members=members))


def _steps(file: str, log: Log) -> dict[str, list[tuple[dict[str, Any], ClockStep]]]:
    """Run -> its records, each as a row of `events` and as the judge takes it."""
    runs: dict[str, list[tuple[dict[str, Any], ClockStep]]] = {}
    place: Counter[tuple[str, str]] = Counter()
    for record in log.records:
        run, host = f"{file}#{record.execution}" if record.execution else file, record.host
        row = {
            "version": TRACE_VERSION,
            "run": run,
            "cluster": "",
            "member": host,
            "lseq": place[run, host],
            "t_ns": 0,
            "kind": "step",
            "event": f"{host}:{record.own}",
            "origin": host,
            "clock": msgspec.json.encode(record.clock).decode(),
            "reason": record.event,
            "file": file,
        }
        step = ClockStep(host, record.own, record.clock, place[run, host], record.line)
        runs.setdefault(run, []).append((row, step))
        place[run, host] += 1
    return runs
