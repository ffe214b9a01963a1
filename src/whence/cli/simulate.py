"""`whence sim`: one seed, or many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whence.audit.report import gather, write
from whence.audit.trace import Row, open_trace
from whence.cli import INTERRUPTED
from whence.cli.show import console, progress, report_tables, soak_table
from whence.core.recorder import Sink
from whence.errors import UsageError
from whence.files import replacing
from whence.lab.sim.actions import show
from whence.lab.sim.chaos import expand
from whence.lab.sim.run import Simulated, run, run_id
from whence.lab.sim.scenario import Loaded, load
from whence.lab.sim.shrink import shrink
from whence.lab.sim.soak import SUMS, SeedResult
from whence.lab.sim.soak import soak as seeds

SHRINK_RUNS = 300
"""How many runs `--shrink` spends at most."""


def wanted(args: argparse.Namespace) -> Loaded:
    """The scenario of a command line, with what `--set` changes."""
    variant = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in args.set)
    safe = "".join(c if c.isalnum() or c in ".-_" else "_" for c in variant)
    return msgspec.structs.replace(load(args.scenario, args.latencies, dict(args.set)), variant=safe)


def sim(args: argparse.Namespace) -> int:
    """One run, or one for each of so many seeds."""
    for option, path in (("report", args.report), ("shrink", args.shrink)):
        if path is not None and path.is_dir():
            raise UsageError(f"--{option} {path} is a directory; name a file")
    if args.seeds is not None:
        return _soak(args)
    loaded = wanted(args)
    seed = loaded.scenario.seed if args.seed is None else args.seed
    if args.schedule:
        schedule = show(expand(loaded, seed))
        print(msgspec.json.encode({"schedule": schedule.splitlines()}).decode() if args.json else schedule)
        return 0
    rows: list[Row] = []
    with progress("simulating") as tick, tracing(args.trace, loaded, seed) as trace:
        sink = rows.append if args.report else trace
        outcome = run(loaded, seed, sink=sink, progress=lambda now, end: tick(now / end, ""))
        if trace is not None:
            for row in rows:
                trace(row)
    _show(args, outcome)
    if args.report is not None:
        again = f"whence sim {args.scenario} --seed {seed} --report {args.report}"
        about = f"simulated: {loaded.name}, seed {seed}, {outcome.report.virtual_s:g} s of virtual time"
        clusters = Counter(row.cluster for row in rows).most_common() or [("", 0)]
        about += f"; cluster {clusters[0][0]} of {len(clusters)}" if len(clusters) > 1 else ""
        mine = [row for row in rows if row.cluster == clusters[0][0]]
        write(gather(mine, title=f"whence: {loaded.name}", about=about, command=again), args.report)
        print(f"the page: {args.report}", file=sys.stderr)
    if args.shrink is not None:
        _shrink(args, loaded, outcome)
    return 1 if outcome.violation else 0


def _show(args: argparse.Namespace, outcome: Simulated) -> None:
    """The report, for people or machines."""
    if args.json:
        print(msgspec.json.encode(outcome.report).decode())
        return
    out = console()
    for table in report_tables(outcome.report):
        out.print(table)
    if outcome.violation is not None:
        out.print(f"VIOLATION {outcome.violation}", style="bold red", markup=False, highlight=False)
        if args.shrink is None:
            again = f"whence sim {args.scenario} --seed {outcome.report.seed} --shrink short.toml"
            out.print(f"to make it readable: {again}", markup=False)


@contextmanager
def tracing(path: Path | None, loaded: Loaded, seed: int) -> Iterator[Sink | None]:
    """Where the rows of a run go: a file of its own in the directory, or this file. It gets its name when the run is
    over; a run that is interrupted leaves none."""
    if path is None:
        yield None
        return
    file = path if path.suffix in (".jsonl", ".parquet") else path / f"{run_id(loaded, seed)}.parquet"
    with replacing(file) as partial, open_trace(partial) as trace:
        yield trace.append


def _shrink(args: argparse.Namespace, loaded: Loaded, outcome: Simulated) -> None:
    """Make a seed readable: write the shortest scenario that still fails, or has an inversion that is allowed."""
    seed, found = outcome.report.seed, outcome.violation or outcome.inversion
    if found is None:
        print(f"whence: seed {seed} of {args.scenario} is clean: there is nothing to shrink", file=sys.stderr)
        return
    with progress(f"shrinking seed {seed}") as tick:
        told = lambda runs, left: tick(runs / SHRINK_RUNS, f"{left} actions left")  # noqa: E731
        shrunk = shrink(loaded, seed, found, outcome.schedule, budget=SHRINK_RUNS, progress=told)
    args.shrink.write_text(shrunk.toml(), encoding="utf-8")
    if args.json:
        said = {"seed": seed, "violation": str(shrunk.violation), "kind": shrunk.violation.kind}
        said |= {"actions": len(shrunk.schedule), "runs": shrunk.runs, "shrunk": str(args.shrink)}
        print(msgspec.json.encode(said).decode())
        return
    print(shrunk.text())
    print(f"# {len(shrunk.schedule)} actions, found in {shrunk.runs} runs; again: whence sim {args.shrink}")


def _soak(args: argparse.Namespace) -> int:
    """Many seeds. Interrupted, it sums up those that are done."""
    if args.trace or args.report or args.schedule:
        raise UsageError("--trace, --report and --schedule are for one seed: leave --seeds out")
    loaded = wanted(args)
    results: list[SeedResult] = []
    began = time.perf_counter()
    try:
        with progress(f"{args.seeds} seeds") as tick:
            for result in seeds(loaded, args.seeds, args.seed or 0, args.jobs):
                results.append(result)
                if result.kind and not args.json:
                    print(f"seed {result.seed}: {result.violation}", flush=True)
                tick(len(results) / args.seeds, "")
    except KeyboardInterrupt:
        if not results:
            raise
    results.sort(key=lambda r: r.seed)
    failed = [r for r in results if r.kind]
    orders: dict[str, Counter[str]] = {}
    for result in results:
        for order, sums in result.orders.items():
            orders.setdefault(order, Counter()).update(sums)
    summary = {
        "scenario": args.scenario,
        "seeds": len(results),
        "failed": [r.seed for r in failed],
        "kinds": dict(sorted(Counter(r.kind for r in failed).items())),
        "published": sum(sums["published"] for sums in orders.values()),
        "delivered": sum(sums["delivered"] for sums in orders.values()),
        "seconds": round(time.perf_counter() - began, 1),
    }
    if args.json:
        by_order = {order: {f: sums[f] for f in SUMS} for order, sums in sorted(orders.items())}
        print(msgspec.json.encode({**summary, "orders": by_order, "violations": failed}).decode())
    else:
        console().print(soak_table(orders))
        print(", ".join(f"{k}: {v}" for k, v in summary.items()))
    if len(results) < args.seeds:
        return INTERRUPTED
    if failed and args.shrink is not None:
        _shrink(args, loaded, run(loaded, failed[0].seed))
    return 1 if failed else 0
