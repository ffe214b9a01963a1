"""`whence scale`."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec
from rich.table import Table

from whence.cli.show import console
from whence.scale import Settings, read_latencies, run
from whence.scale.run import Progress, Result


def told(quiet_for: float = 1.0) -> Progress:
    """Progress on standard error: a line that rewrites itself for people, a line now and then otherwise."""
    last, live = [time.monotonic() + quiet_for], sys.stderr.isatty()

    def tell(done: float, what: str) -> None:
        now = time.monotonic()
        compiling = what.startswith("loading")
        if not compiling and now < last[0]:
            return
        last[0] = now + (0.2 if live else 10.0)
        line = f"whence: {what}" + ("" if compiling else f", {100 * done:.0f} %")
        print(f"\r\x1b[K{line}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)
        if live and done >= 1:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return tell


def scale(args: argparse.Namespace) -> int:
    """One run."""
    settings = Settings(
        processes=args.processes,
        entries=args.entries,
        keys=args.keys,
        deliveries=args.deliveries,
        rate=args.rate,
        delay=args.delay,
        spread=args.spread,
        skew=args.skew,
        loss=args.loss,
        retry=args.retry,
        churn=args.churn,
        memory=args.memory,
        latencies=() if args.latencies is None else read_latencies(args.latencies),
        seed=args.seed,
        alerts=args.alerts,
    )
    result = run(settings, args.threads, engine=args.engine, progress=told())
    if args.json:
        print(msgspec.json.encode(result).decode())
    else:
        _show(settings, result)
    return 0


def _show(settings: Settings, result: Result) -> None:
    s, r = settings, result
    table = Table(title=f"(N, R, K) = ({s.processes}, {s.entries}, {s.keys}), {s.rate:g} messages/s")
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in (
        ("deliveries", f"{r.deliveries:,}"),
        ("delivered too early (exact)", f"{r.errors:,} = {r.exact_rate:.3g}"),
        ("the paper's estimates, eps_min .. eps_max", f"{r.eps_min:.3g} .. {r.eps_max:.3g}"),
        ("the paper's bound, with the measured P_nc", f"{r.theory:.3g}"),
        ("P_nc: arrived before some of its past", f"{r.p_nc:.3g}"),
        (f"alerts of Algorithm 4, of {r.alerts_deliveries:,} deliveries", f"{r.alerts4:,}"),
        ("alerts of Algorithm 5", f"{r.alerts5:,}"),
        (
            "overtaken without an alert of Algorithm 4 / 5",
            f"{r.unalerted4:,} / {r.unalerted5:,} of {r.overtaken_sample:,}",
        ),
        ("engine, threads", f"{r.engine}, {r.threads}"),
        ("seconds", f"{r.seconds:.2f}"),
        ("deliveries per second", f"{r.deliveries_per_s:,.0f}"),
    ):
        table.add_row(name, value)
    console().print(table)
