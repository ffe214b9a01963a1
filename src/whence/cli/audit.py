"""`whence audit`: did order ever break in these traces, where, and why."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from re import fullmatch
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from whence.audit import Summary, audit_files
from whence.audit.spark.driver import FEW
from whence.audit.spark.foreign import audit_logs
from whence.audit.spark.growing import FollowedBatch, follow
from whence.audit.spark.place import is_local, join, place_of
from whence.audit.spark.tables import IMPORTED, PAGE, claim
from whence.audit.trace import open_trace
from whence.audit.trace.otel import NotTaken, read_spans
from whence.cli import CLEAN, DOUBT, VIOLATED
from whence.cli.show import console, progress
from whence.errors import TraceError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WALL_CLOCK = 10**18
"""Times from here on (2001) are a live cluster's; smaller ones are virtual, and have no lag."""
REFUSALS = 10
"""Refused parts of an import that are shown."""


def audit(args: argparse.Namespace) -> int:
    """0: clean, 1: violations found, 3: none, but some things cannot be judged. Raises TraceError where nothing could
    be read: that is not clean."""
    _check(args)
    if args.follow:
        return _watch(args)
    shiviz = args.format == "shiviz"
    command = f"whence audit {' '.join(map(str, args.paths))} --out {args.out}"
    refused = _import(args) if args.format == "otel" else []
    began = time.monotonic()
    if shiviz:
        found = audit_logs(args.paths, args.out, args.parser, args.delimiter)
    else:
        with progress("reading", every=0.0) as tick:
            found = audit_files(
                args.paths,
                args.out,
                spark=None if args.engine == "local" else partial(_session, args),
                few=FEW if args.engine == "auto" and not (args.master or os.environ.get("SPARK_REMOTE")) else 0,
                progress=lambda what: tick(None, what),
                complete=args.complete and not refused,
                error_rate=args.error_rate,
                sparse=args.verdicts != "all",
                command=command,
            )
    took = time.monotonic() - began
    said = asdict(found)
    if args.json:
        said |= {"not_imported": list(map(str, refused))} if args.format == "otel" else {}
        print(json.dumps({"clean": found.clean, **said, "seconds": round(took, 3), "out": str(args.out)}))
    else:
        if args.error_rate is not None and not found.rates:
            said["rates"] = {"no probabilistic members": found.runs}
        _show(said, args.out, took)
        if not shiviz:
            console().print(f"the page: {escape(join(place_of(args.out), PAGE))}", soft_wrap=True)
    return _code(found, not refused and (shiviz or found.deliveries > 0))


def _code(found: Summary, judged: bool) -> int:
    return VIOLATED if not found.clean else CLEAN if found.sure and judged else DOUBT


def _check(args: argparse.Namespace) -> None:
    """Options that make no sense together."""
    shiviz, local, follow = args.format == "shiviz", args.engine == "local", args.follow
    away = not all(map(is_local, [*args.paths, args.out]))
    for wrong, text in (
        (args.once and not follow, "--once is for --follow"),
        (not shiviz and (args.parser or args.delimiter), "--parser and --delimiter are for --format shiviz"),
        (args.order and args.format != "otel", "--order is for --format otel"),
        (follow and len(args.paths) > 1, "--follow watches one directory"),
        (follow and args.format != "whence", "--follow reads whence traces"),
        (shiviz and args.error_rate is not None, "--error-rate is for whence traces: logs do not tell deliveries"),
        (shiviz and away, "--format shiviz reads and writes on this machine only: copy the logs here first"),
        (is_local(args.out) and Path(args.out).is_file(), f"--out {args.out} is a file; name a directory"),
        (not fullmatch(r"(?i)(\d+[kmgt]?b?)?", args.memory or ""), f"--memory {args.memory}: want a size such as 4g"),
        (local and args.master, "--master needs Spark: leave --engine local out"),
    ):
        if wrong:
            raise UsageError(text)


def _session(args: argparse.Namespace) -> SparkSession:
    from whence.audit import session  # pyspark is imported only where it is used

    return session(args.master, args.memory, args.talk > 0)


def _import(args: argparse.Namespace) -> list[NotTaken]:
    """What another system recorded, as a trace in --out, which is then audited; returns what was refused."""
    made = read_spans(list(map(Path, args.paths)), order=args.order or "causal")
    for refused in made.refused[:REFUSALS]:
        print(f"whence: {refused}", file=sys.stderr)
    if len(made.refused) > REFUSALS:
        print(f"whence: and {len(made.refused) - REFUSALS:,} more", file=sys.stderr)
    if not made.rows:
        why = f"; the first reason: {made.refused[0]}" if made.refused else ""
        raise TraceError(f"nothing to import in {' '.join(args.paths)}{why}")
    claim(args.out)
    args.paths = [join(place_of(args.out), IMPORTED)]
    with open_trace(args.paths[0]) as file:
        file.append_many(made.rows)
    return made.refused


_COUNTED = ("rows", "runs", "members", "published", "deliveries")
_NOTED = {
    "free": "inverted where no causal order was asked for",
    "repeated": "rows that were there twice, alike",
    "missing": "steps missing",
    "doubts": "in doubt: some traces are not all here (table doubts)",
    "assumed": "members whose order no row tells: taken as causal",
    "quarantined": "rows or files in quarantine",
}


def _show(said: Mapping[str, Any], out: str, seconds: float) -> None:
    table = Table(title=f"audit in {seconds:.1f} s", show_header=False)
    table.add_row("judged", "in this process" if said["design"] in ("", "local") else "on Spark")
    for name in _COUNTED:
        table.add_row(name, f"{said[name]:,}")
    for verdict, count in said.get("verdicts", {}).items():
        table.add_row(f"  {verdict}", f"{count:,}")
    broken = sum(said["violations"].get(rule, 0) for rule in ("causal", "fifo"))
    said = {**said, "free": said.get("verdicts", {}).get("inverted", 0) - broken}
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
    texts = [text for some in said["first"].values() for text in some[:2]]
    rated = [text for text in said["rated"] if text not in texts]
    for text in [*texts, *rated, *said["unjudged"]]:
        show.print(f"• {escape(text)}", soft_wrap=True)
    show.print(f"tables: {escape(str(out))}", soft_wrap=True)


# -- --follow ------------------------------------------------------------------------------------------------------


def _watch(args: argparse.Namespace) -> int:
    """Judge a directory of traces until Ctrl-C, or with `--once` what is in it now. 0: clean, 1: violations, 3: none,
    but some things cannot be judged."""
    trace, stop = Path(args.paths[0]), _on_signal()
    with progress("reading", every=math.inf) as tick:

        def batch(judged: FollowedBatch) -> None:
            _print(args, judged)
            tick(None, _line(_numbers(judged)))

        tick(None, "waiting for a trace")
        last = follow(trace, Path(args.out), batch, once=args.once, stop=stop, sparse=args.verdicts != "all")
    numbers = _numbers(last)
    if args.json:
        said = {"summary": numbers, "violations": last.sums.violations, "verdicts": last.sums.verdicts}
        print(json.dumps(said), flush=True)
    else:
        broken = ", ".join(f"{n:,} {rule}" for rule, n in last.sums.violations.items())
        print(f"{_line(numbers)}; {f'broken: {broken}' if broken else 'nothing broken'}", file=sys.stderr)
        for member, (steps, what) in list(last.waiting.items())[:5]:
            print(f"{steps:,} steps of {member} wait for {what}", file=sys.stderr)
        print(f"verdicts: {args.out}", file=sys.stderr)
    return _code(last.sums, last.sums.deliveries > 0)


def _on_signal() -> threading.Event:
    """Set when SIGINT or SIGTERM comes; the second one interrupts at once."""
    stop = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, handler)
    return stop


def _print(args: argparse.Namespace, batch: FollowedBatch) -> None:
    """Violations go to standard output as they are found; with --json each batch, too."""
    for found in batch.violations:
        where = "" if found["lseq"] is None else f" at step {found['lseq']}"
        text = f"{found['rule']}: {found['run']}, {found['member']}{where}: {found['detail']}"
        print(json.dumps({"violation": found, "batch": batch.number}) if args.json else text, flush=True)
    if args.json:
        said = {"batch": batch.number, **_numbers(batch), "seconds": round(batch.seconds, 4)}
        print(json.dumps(said), flush=True)


def _numbers(batch: FollowedBatch) -> dict[str, Any]:
    found, newest = batch.sums.verdicts, batch.newest_ns
    return {
        "rows": batch.sums.rows,
        "deliveries": batch.sums.deliveries,
        "inversions": found.get("inverted", 0),
        "gaps": found.get("over a gap", 0),
        "violated": sum(batch.sums.violations.values()),
        "waiting": sum(steps for steps, _ in batch.waiting.values()),
        "doubts": batch.sums.doubts,
        "bad": batch.sums.quarantined,
        # from the newest row judged to now
        "lag_s": round((time.time_ns() - newest) / 1e9, 3) if newest > WALL_CLOCK else None,
    }


def _line(n: dict[str, Any]) -> str:
    always = (
        f"{n['rows']:,} rows, {n['deliveries']:,} deliveries, {n['inversions']:,} inverted, {n['gaps']:,} over a gap"
    )
    more = {"waiting": "steps wait", "doubts": "in doubt", "bad": "bad rows"}
    parts = [always, f"{n['violated']:,} violations", *(f"{n[k]:,} {what}" for k, what in more.items() if n[k])]
    return ", ".join(parts + ([f"lag {n['lag_s']:.1f} s"] if n["lag_s"] is not None else []))
