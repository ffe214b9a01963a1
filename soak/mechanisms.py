"""`python -m soak.mechanisms`: the hostile world with every mechanism of the survey and many seeds.

Exits with 1 if a run has a violation: an inversion, a duplicate, a stuck member, a buffer beyond its bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from whence.lab.sim.mechanisms import MECHANISMS, hostile
from whence.lab.sim.run import run

SUMS = ("published", "delivered", "inversions", "lost", "late", "over_gap", "recovered")


def one(point: tuple[str, int]) -> tuple[str, int, str | None, dict[str, int]]:
    """One run: mechanism, seed, violation if any, and counters."""
    mechanism, seed = point
    outcome = run(hostile(mechanism), seed)
    sums = {name: sum(getattr(line, name) for line in outcome.report.lines) for name in SUMS}
    return mechanism, seed, outcome.report.violation, sums


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(prog="python -m soak.mechanisms", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of each mechanism (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS, help="default: all; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    args = parser.parse_args(arguments)
    wanted = args.mechanism or MECHANISMS
    points = [(name, seed) for seed in range(args.start, args.start + args.seeds) for name in wanted]
    began, broken = time.monotonic(), 0
    totals: dict[str, Counter[str]] = {name: Counter() for name in wanted}
    with ProcessPoolExecutor(args.jobs) as pool:
        for mechanism, seed, violation, sums in pool.map(one, points):
            totals[mechanism].update(sums)
            if violation is not None:
                broken += 1
                print(f"{mechanism}, seed {seed}: {violation}", flush=True)
    for name, counter in totals.items():
        print(f"{name:18}" + "  ".join(f"{what} {counter[what]}" for what in SUMS))
    print(f"{len(points)} runs, {broken} broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
