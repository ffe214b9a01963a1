"""`whence audit --follow`: the audit of traces while they grow."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from whence.audit.spark import stream
from whence.audit.spark.growing import growing_files
from whence.cli import CLEAN, DOUBT, VIOLATED
from whence.cli.show import spinner
from whence.errors import TraceError, UsageError

WALL_CLOCK = 10**18
"""Times from here on (2001) are a live cluster's; smaller ones are virtual, and have no lag."""


def watch(args: argparse.Namespace) -> int:
    """Judge a directory of traces until Ctrl-C, or with `--once` what is in it now. 0: clean, 1: violations, 3: none,
    but some things cannot be judged."""
    trace = Path(args.paths[0])
    if len(args.paths) > 1:
        raise UsageError("--follow watches one directory")
    if not trace.is_dir():
        raise TraceError(f"{trace}: no such directory; name the one that the members write their traces into")
    if args.once and not growing_files(trace):
        raise TraceError(f"{trace}: no trace in this directory")
    with spinner(lines=False) as say:

        def batch(judged: stream.WatchedBatch) -> None:
            _print(args, judged)
            say(_line(_numbers(judged)))

        with stream.StreamAudit(Path(args.out), batch) as audit:
            stop = _on_signal()
            say("reading" if growing_files(trace) else "waiting for a trace")
            stream.watch(trace, audit, once=args.once, stop=stop)
            last = None
            if args.once and not stop.is_set():
                batch(last := audit.settle(trace))
    last = last or stream.WatchedBatch(audit.mark.batch, audit.mark.sums, [], audit.waiting, 0.0)
    numbers = _numbers(last)
    if args.json:
        said = {"summary": numbers, "violations": last.sums.violations, "verdicts": last.sums.verdicts}
        print(json.dumps(said), flush=True)
    else:
        broken = ", ".join(f"{n:,} {rule}" for rule, n in last.sums.violations.items())
        print(f"{_line(numbers)}; {f'broken: {broken}' if broken else 'nothing broken'}", file=sys.stderr)
        for member, (steps, what) in list(last.waiting.items())[:5]:
            print(f"{steps:,} steps of {member} wait for {what}", file=sys.stderr)
        print(f"verdicts: {audit.out}", file=sys.stderr)
    return VIOLATED if last.sums.violations else DOUBT if last.sums.doubts else CLEAN


def _on_signal() -> threading.Event:
    """Set when SIGINT or SIGTERM comes; the second one interrupts at once."""
    stop = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    return stop


def _print(args: argparse.Namespace, batch: stream.WatchedBatch) -> None:
    """Violations go to standard output as they are found; with --json each batch, too."""
    for found in batch.violations:
        where = "" if found["lseq"] is None else f" at step {found['lseq']}"
        text = f"{found['rule']}: {found['run']}, {found['member']}{where}: {found['detail']}"
        print(json.dumps({"violation": found, "batch": batch.number}) if args.json else text, flush=True)
    if args.json:
        said = {"batch": batch.number, **_numbers(batch), "seconds": round(batch.seconds, 4)}
        print(json.dumps(said), flush=True)


def _numbers(batch: stream.WatchedBatch) -> dict[str, Any]:
    found, newest = batch.sums.verdicts, batch.sums.newest_ns
    return {
        "rows": batch.sums.rows,
        "deliveries": sum(found.values()),
        "inversions": found.get("inverted", 0),
        "gaps": found.get("over a gap", 0),
        "violated": sum(batch.sums.violations.values()),
        "waiting": sum(steps for steps, _ in batch.waiting.values()),
        "doubts": batch.sums.doubts,
        "bad": batch.sums.bad,
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
