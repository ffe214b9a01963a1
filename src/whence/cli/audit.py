"""`whence audit`: did order ever break in these traces, where, and why."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
from rich.markup import escape
from rich.table import Table

from whence.audit.conform.broadcast import read_histories
from whence.audit.judge.batch.audited import warm as warm_kernel
from whence.audit.spark.findings import Terms
from whence.audit.spark.kept import kept_of
from whence.audit.spark.local import audit_here
from whence.audit.spark.made import Planned, plan
from whence.audit.spark.place import TraceFile, is_local, join, opened, parquet, place_of
from whence.audit.spark.summary import Summary
from whence.audit.spark.tables import table_files
from whence.audit.trace import open_trace
from whence.audit.trace.otel import read_spans
from whence.audit.trace.read import SUFFIXES
from whence.cli import CLEAN, DOUBT, VIOLATED
from whence.cli.audit_page import write_audit_page
from whence.cli.show import console, spinner
from whence.errors import TraceError, UsageError

if TYPE_CHECKING:
    from whence.audit.spark.foreign import Summary as Logs

REFUSALS = 10
"""Refused parts of an import that are shown."""
STARTING = "starting Spark (most of the time that a small audit takes)"


def audit(args: argparse.Namespace) -> int:
    """0: clean, 1: violations found, 3: none, but some things cannot be judged. Raises TraceError where nothing could
    be read: that is not clean."""
    if args.once and not args.follow:
        raise UsageError("--once is for --follow")
    if args.format != "shiviz" and (args.parser is not None or args.delimiter is not None):
        raise UsageError("--parser and --delimiter are for --format shiviz")
    if args.format == "shiviz" and args.error_rate is not None:
        raise UsageError("--error-rate is for whence traces: a log with vector clocks does not tell what was delivered")
    if args.format == "shiviz" and not all(map(is_local, [*args.paths, args.out])):
        raise UsageError("--format shiviz reads and writes on this machine only: copy the logs here first")
    if is_local(args.out) and Path(args.out).is_file():
        raise UsageError(f"--out {args.out} is a file; name a directory")
    if args.engine == "local" and (args.format == "shiviz" or args.measure or args.master):
        raise UsageError("--format shiviz, --measure and --master need Spark: leave --engine local out")
    Terms(args.complete, args.error_rate)
    if args.follow:
        from whence.cli.watch import watch

        if args.format != "whence":
            raise UsageError("--follow reads whence traces")
        return watch(args)
    refused = args.format in ("otel", "broadcast") and _import(args)
    page: str | None = None
    began = time.monotonic()
    with ExitStack() as stack:
        say = stack.enter_context(spinner())
        if args.format == "shiviz":
            logs = _logs(args, say)
            clean, sure, said = logs.clean, True, msgspec.to_builtins(logs)
        else:
            planned = plan(args.paths)
            _check_traces(planned.files)
            if planned.bad and not planned.pieces:
                raise TraceError(f"{planned.bad[0].file}: {planned.bad[0].reason}")
            found = (_here if args.engine == "local" or _unchanged(args, planned) else _with_spark)(args, planned, say)
            _need(found.rows, found.quarantined, args)
            clean, sure, said = found.clean, found.sure, asdict(found)
            say("drawing the page")
            again = f"whence audit {' '.join(map(str, args.paths))} --out {args.out}"
            page = write_audit_page(planned.pieces, args.out, found.runs, again)
        took = time.monotonic() - began
    if args.json:
        print(json.dumps({"clean": clean, **said, "seconds": round(took, 3), "out": str(args.out)}))
    else:
        if args.error_rate is not None and not said["rates"]:
            said["rates"] = {"no probabilistic members": said["runs"]}
        _show(said, args.out, took)
        if page is not None:
            console().print(f"the page: {escape(str(page))}", soft_wrap=True)
    return VIOLATED if not clean else CLEAN if sure and not refused else DOUBT


def _import(args: argparse.Namespace) -> int:
    """What another system recorded, as a trace in --out, which is then audited; returns how much was refused."""
    reader = read_spans if args.format == "otel" else read_histories
    made = reader(list(map(Path, args.paths)), order=args.order)
    for refused in made.refused[:REFUSALS]:
        print(f"whence: {refused}", file=sys.stderr)
    if len(made.refused) > REFUSALS:
        print(f"whence: and {len(made.refused) - REFUSALS:,} more", file=sys.stderr)
    if not made.rows:
        why = f"; the first reason: {made.refused[0]}" if made.refused else ""
        raise TraceError(f"nothing to import in {' '.join(args.paths)}{why}")
    trace = Path(args.out) / "imported.parquet"
    trace.unlink(missing_ok=True)
    with open_trace(trace) as file:
        file.append_many(made.rows)
    args.paths = [str(trace)]
    return len(made.refused)


# pyspark is imported only where it is used.


def _logs(args: argparse.Namespace, say: Callable[[str], None]) -> Logs:
    from whence.audit.spark import foreign
    from whence.audit.spark.session import session

    logs_here = foreign.find_logs(args.paths)
    foreign.check(args.parser, args.delimiter)
    _check_logs(logs_here, args.parser)
    say(STARTING)
    spark = session(args.master, args.memory, args.talk > 0)
    say("reading logs")
    logs = foreign.audit_logs(spark, args.paths, args.parser, args.out, args.delimiter)
    _need(logs.events, logs.quarantined, args)
    return logs


def _unchanged(args: argparse.Namespace, planned: Planned) -> bool:
    """The tables are there already: Spark need not be started."""
    kept = kept_of(planned, Terms(args.complete, args.error_rate), args.verdicts != "all")
    return not args.measure and kept.finished(args.out)


def _here(args: argparse.Namespace, planned: Planned, say: Callable[[str], None]) -> Summary:
    sparse = args.verdicts != "all"
    return audit_here(
        args.paths,
        args.out,
        planned=planned,
        progress=say,
        complete=args.complete,
        error_rate=args.error_rate,
        sparse=sparse,
    )


def _with_spark(args: argparse.Namespace, planned: Planned, say: Callable[[str], None]) -> Summary:
    from whence.audit.spark.job import audit_files
    from whence.audit.spark.session import interpreted, session

    warm = None if interpreted(planned.rows) else Thread(target=warm_kernel, daemon=True)
    if warm is not None:
        warm.start()
    say(STARTING)
    spark = session(args.master, args.memory, args.talk > 0, planned.rows, queries=args.measure)
    if warm is not None:
        warm.join()
    return audit_files(
        spark,
        args.paths,
        args.out,
        planned=planned,
        progress=say,
        metrics=args.measure,
        complete=args.complete,
        error_rate=args.error_rate,
        sparse=args.verdicts != "all" and not args.measure,
    )


# Wrong input is said at once, not after Spark has started.


def _check_traces(files: Sequence[TraceFile]) -> None:
    """Raises TraceError if one is certainly no trace: rows are JSON objects, one a line, or Parquet."""
    for file in (found.place for found in files if not found.place.partition("?")[0].endswith(SUFFIXES)):
        with opened(file) as data:
            head = data.read(512).lstrip()
        if head and head[:1] != b"{" and head[:4] != b"PAR1":
            raise TraceError(
                f"{file}: no trace: it begins with {head[:20]!r}, not with a JSON object or as Parquet does. A log "
                "with vector clocks is read with --format shiviz; other tables: docs/pipeline.md"
            )


def _check_logs(files: Sequence[Path], parser: str | None) -> None:
    """Without --parser each log has to begin with its own."""
    for file in files if parser is None else ():
        with file.open("rb") as log:
            if b"(?<clock>" not in log.readline(1 << 16):
                raise TraceError(
                    f"{file}: line 1 is no parser expression: give --parser, a regular expression with the groups "
                    "host, clock and event, such as '(?<host>\\S+) (?<clock>\\{.*\\})\\n(?<event>.*)'"
                )


def _need(rows: int, quarantined: int, args: argparse.Namespace) -> None:
    """Where nothing could be read, nothing is clean."""
    if rows or not quarantined:
        return
    files = (parquet(file) for file in table_files(args.out, "quarantine"))
    first = next(row for file in files for row in pq.read_table(file).slice(0, 1).to_pylist())
    place = "" if first["position"] is None or first["position"] < 0 else f": position {first['position']}"
    raise TraceError(
        f"nothing readable in {' '.join(map(str, args.paths))}; the first of {quarantined:,} reasons: {first['file']}"
        f"{place}: {first['reason']} (all: table {join(place_of(args.out), 'quarantine')})"
    )


_COUNTED = ("files", "rows", "events", "runs", "members", "published", "deliveries")
_NOTED = {
    "repeated": "rows that were there twice, alike",
    "missing": "steps missing",
    "doubts": "in doubt: some traces are not all here (table doubts)",
    "circles": "circles: no execution leaves such a trace",
    "quarantined": "rows or files in quarantine",
}


def _show(said: Mapping[str, Any], out: str, seconds: float) -> None:
    table = Table(title=f"audit in {seconds:.1f} s", show_header=False)
    for name in _COUNTED:
        if name in said:
            table.add_row(name, f"{said[name]:,}")
    for verdict, count in said.get("verdicts", {}).items():
        table.add_row(f"  {verdict}", f"{count:,}")
    for name, what in _NOTED.items():
        if said.get(name):
            table.add_row(what, f"{said[name]:,}")
    for outcome, count in said.get("rates", {}).items():
        table.add_row(f"error rate: {outcome}", f"{count:,} {'run' if count == 1 else 'runs'}")
    for rule, count in said["violations"].items():
        table.add_row(f"violations: {rule}", f"{count:,}", style="bold red")
    if not said["violations"]:
        table.add_row("violations", "none", style="green")
    show = console()
    show.print(table)
    texts = said.get("examples") or [text for some in said.get("first", {}).values() for text in some[:2]]
    rated = [text for text in said.get("rated", ()) if text not in texts]
    for text in [*texts, *rated, *said.get("unjudged", ())]:
        show.print(f"• {escape(text)}", soft_wrap=True)
    show.print(f"tables: {escape(str(out))}", soft_wrap=True)
    if said.get("pictures"):
        show.print(f"diagrams of violations, for ShiViz: {escape(join(place_of(out), 'shiviz'))}", soft_wrap=True)
