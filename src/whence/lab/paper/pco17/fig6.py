"""PCO17 Figure 6: the error rate against N, with 200 messages a second in total."""

from __future__ import annotations

from itertools import pairwise

from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, plot, relative
from whence.lab.stats import Estimate

NS = (50, 100, 200, 300, 500, 750, 1000, 2000, 5000, 10000)


def measure(context: Context) -> list[Row]:
    """R = 100, K = 4, X = 20. Each slow message causes more errors at once in a large group, so intervals are wide
    there: more deliveries."""
    deliveries, seeds = context.size(1e8, quick=4e6), 4 if context.quick else 16
    more = dict.fromkeys(NS[-4:], 1 if context.quick else 10)
    points = [{**PAPER, "processes": n, "deliveries": deliveries * more.get(n, 1)} for n in NS]
    return run_points(context, points, seeds)


def outcome(rows: list[Row]) -> Outcome:
    """Constant where N grows, higher where it shrinks."""
    title = f"PCO17 Figure 6: R = 100, K = 4, 200 messages/s in total, {count(rows[0]['deliveries'])} or more"
    figure = plot(title, "N, processes (together 200 messages/s)", rows, "processes", "linear")
    figure.axes[0].set_xscale("log")
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Rates by that of N = 1000, and of neighbours."""
    steps = [relative(rows, "processes", b, [a])[0] for a, b in pairwise(NS[:7])]
    return {
        "constant": relative(rows, "processes", 1000, NS[-3:]),
        "higher": relative(rows, "processes", 1000, [100]),
        "steady": steps,
    }
