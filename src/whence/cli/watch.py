"""`whence audit --follow`: the audit of a trace while it grows."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.status import Status

from whence.audit.spark import stream
from whence.audit.spark.growing import growing_files
from whence.audit.spark.session import session
from whence.cli import CLEAN, DOUBT, VIOLATED
from whence.errors import TraceError, UsageError

WALL_CLOCK = 10**18
"""Times from here on (2001) are a live cluster's; smaller ones are virtual, and have no lag."""


def watch(args: argparse.Namespace) -> int:
    """Judge a directory of traces until Ctrl-C, or with `--once` what is in it now. 0: clean, 1: violations, 3: none,
    but some things cannot be judged."""
    if len(args.paths) > 1:
        raise UsageError("--follow watches one directory")
    trace = Path(args.paths[0])
    if not trace.is_dir():
        raise TraceError(f"{trace}: no such directory; name the one that the members write their traces into")
    if args.once and not growing_files(trace):
        raise TraceError(f"{trace}: no trace in this directory")
    with ExitStack() as stack:
        show = stack.enter_context(_Show(args.json))
        audit = stack.enter_context(stream.StreamAudit(Path(args.out), show.batch))
        show.say("starting Spark (some seconds)")
        spark = session(args.master, args.memory, args.talk > 0)
        stop = _on_signal()
        show.say("reading" if growing_files(trace) else "waiting for a trace")
        stream.watch(spark, trace, audit, once=args.once, stop=stop)
        if args.once and not stop.is_set():
            show.batch(audit.settle(trace))
        show.summary(audit)
        sums = audit.mark.settled if args.once and audit.mark.settled else audit.mark.sums
        return VIOLATED if sums.violations else DOUBT if sums.doubts else CLEAN


def _on_signal() -> threading.Event:
    """Set when SIGINT or SIGTERM comes; the second one interrupts at once. Spark's own handler talks to the JVM from
    within whatever was being said to it."""
    stop = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    return stop


class _Show:
    """Violations go to standard output as they are found, the state of things to standard error."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._err = Console(stderr=True)
        self._status: Status | None = None
        self._last: stream.Batch | None = None

    def __enter__(self) -> _Show:
        if self._err.is_terminal and not self._json:
            self._status = self._err.status("")
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Progress, on a terminal only."""
        if self._status is not None:
            self._status.update(text)

    def batch(self, batch: stream.Batch) -> None:
        """A batch was judged."""
        self._last = batch
        for found in batch.violations:
            if self._json:
                self._print({"violation": found, "batch": batch.number})
            else:
                where = "" if found["lseq"] is None else f" at step {found['lseq']}"
                print(f"{found['rule']}: {found['run']}, {found['member']}{where}: {found['detail']}", flush=True)
        if self._json:
            self._print({"batch": batch.number, **_numbers(batch), "seconds": round(batch.seconds, 4)})
        self.say(_line(batch))

    def summary(self, audit: stream.StreamAudit) -> None:
        """The end."""
        self.__exit__()
        last = self._last or stream.Batch(audit.mark.batch, audit.mark.sums, [], audit.waiting, 0.0)
        if self._json:
            self._print({"summary": _numbers(last), "violations": last.sums.violations, "verdicts": last.sums.verdicts})
            return
        broken = ", ".join(f"{n:,} {rule}" for rule, n in last.sums.violations.items())
        print(_line(last) + (f"; broken: {broken}" if broken else "; nothing broken"), file=sys.stderr)
        for member, (steps, what) in list(last.waiting.items())[:5]:
            print(f"{steps:,} steps of {member} wait for {what}", file=sys.stderr)
        print(f"verdicts: {audit.out}", file=sys.stderr)

    def _print(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)


def _numbers(batch: stream.Batch) -> dict[str, Any]:
    found = batch.sums.verdicts
    return {
        "rows": batch.sums.rows,
        "bad": batch.sums.bad,
        "deliveries": sum(found.values()),
        "inversions": found.get("inverted", 0),
        "gaps": found.get("over a gap", 0),
        "violated": sum(batch.sums.violations.values()),
        "doubts": batch.sums.doubts,
        "waiting": sum(steps for steps, _ in batch.waiting.values()),
        "lag_s": _lag(batch),
    }


def _lag(batch: stream.Batch) -> float | None:
    """From the newest row judged to now; None without a wall clock in the trace."""
    newest = batch.sums.newest_ns
    return round((time.time_ns() - newest) / 1e9, 3) if newest > WALL_CLOCK else None


def _line(batch: stream.Batch) -> str:
    n = _numbers(batch)
    parts = [f"{n['rows']:,} rows", f"{n['deliveries']:,} deliveries", f"{n['inversions']:,} inverted"]
    parts += [f"{n['gaps']:,} over a gap", f"{n['violated']:,} violations"]
    parts += [f"{n['waiting']:,} steps wait"] if n["waiting"] else []
    parts += [f"{n['doubts']:,} in doubt"] if n["doubts"] else []
    parts += [f"{n['bad']:,} bad rows"] if n["bad"] else []
    parts += [f"lag {n['lag_s']:.1f} s"] if n["lag_s"] is not None else []
    return ", ".join(parts)
