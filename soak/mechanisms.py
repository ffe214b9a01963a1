"""`python -m soak.mechanisms`: the hostile world with every mechanism of the survey and many seeds.

Exits with 1 if a run has a violation: an inversion, a duplicate, a stuck member, a buffer beyond its bound.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from whence.core.order import MECHANISMS
from whence.lab.sim.soak import SUMS, soak, with_mechanism


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(prog="python -m soak.mechanisms", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of each mechanism (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS, help="default: all; may be repeated")
    parser.add_argument("--jobs", type=int, help="processes (default: all cores)")
    args = parser.parse_args(arguments)
    broken = 0
    for mechanism in args.mechanism or MECHANISMS:
        total: Counter[str] = Counter()
        for result in soak(with_mechanism(mechanism), args.seeds, args.start, args.jobs):
            total.update(result.orders["causal"])
            if result.violation is not None:
                broken += 1
                print(f"{mechanism}, seed {result.seed}: {result.violation}", flush=True)
        print(f"{mechanism:18}" + "  ".join(f"{what} {total[what]}" for what in SUMS), flush=True)
    print(f"{broken} broken runs")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
