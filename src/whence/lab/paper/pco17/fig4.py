"""PCO17 Figure 4: the error rate against lambda, the mean interval between two messages of one process."""

from __future__ import annotations

from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, by_x, plot
from whence.lab.stats import Estimate, mean, minus, quotient

LAMBDAS = (1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000)
AROUND = (4000, 5000, 6000)
"""Errors are rare here, and a claim compares them: more deliveries."""


def measure(context: Context) -> list[Row]:
    """N = 1000, R = 100, K = 4."""
    deliveries, seeds = context.size(1e8, quick=4e6), 8 if context.quick else 16
    more = {1000: 0.1, 1500: 0.1} if context.quick else {1000: 0.1, 1500: 0.1, **dict.fromkeys(AROUND, 20)}
    points = [{**PAPER, "rate": 1e6 / ms, "deliveries": deliveries * more.get(ms, 1)} for ms in LAMBDAS]
    return [{"lambda_ms": ms, **row} for ms, row in zip(LAMBDAS, run_points(context, points, seeds), strict=True)]


def outcome(rows: list[Row]) -> Outcome:
    """Stable around 5000 ms, rising below 3000 ms."""
    title = f"PCO17 Figure 4: N = 1000, R = 100, K = 4, {count(rows[-1]['deliveries'])} or more"
    label = "λ, mean interval between two messages of one process (ms)"
    figure = plot(title, label, rows, "lambda_ms", mark=(5000, "λ = 5000 ms, for which K = 4 is chosen"))
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Rates by that of 5000 ms."""
    rate = by_x(rows, "lambda_ms")
    found = {ms: mean("", runs, 3) for ms, runs in rate.items()}
    rise = {f"{a} to {b}": minus("", found[b], found[a]) for a, b in ((3000, 2000), (10000, 3000))}
    return {
        "stable": [quotient(f"{ms} ms", rate[ms], rate[5000], 2) for ms in (4000, 6000)],
        "fast": [quotient("2000 ms", rate[2000], rate[5000])],
        "steep": [minus("3000 to 2000 ms, less 10000 to 3000 ms", *rise.values())],
    }
