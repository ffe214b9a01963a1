"""PCO17 Figure 5: the error rate against N, each process sending as often as before."""

from __future__ import annotations

from whence.paper.claims.intervals import mean, minus, quotient
from whence.paper.claims.model import Point
from whence.paper.frame import Context, Outcome, Row, count
from whence.paper.frame import measure as run_points
from whence.paper.pco17 import PAPER, by_x, plot

NS = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000)


def measure(context: Context) -> list[Row]:
    """R = 100, K = 4, lambda = 5000 ms."""
    deliveries = context.size(1e8, quick=4e6)
    return run_points(context, [{**PAPER, "processes": n, "rate": n / 5, "deliveries": deliveries} for n in NS])


def outcome(rows: list[Row]) -> Outcome:
    """Rising fast above N = 1000."""
    title = f"PCO17 Figure 5: R = 100, K = 4, λ = 5000 ms, {count(rows[0]['deliveries'])}"
    label = "N, processes (each sends every 5 s)"
    figure = plot(title, label, rows, "processes", mark=(1000, "N = 1000, for which K = 4 is chosen"))
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Point]]:
    """Rates by that of N = 1000, and what each further 500 processes add."""
    rate = by_x(rows, "processes")
    sizes = (500, 1000, 1500, 2000, 2500, 3000)
    found = {n: mean("", rate[n], len(sizes)) for n in sizes}
    added = {n: minus("", found[n], found[n - 500]) for n in sizes[1:]}
    return {
        "fast": [quotient("N = 2000", rate[2000], rate[1000])],
        "steeper": [minus(f"N = {n}", added[n], added[n - 500]) for n in sizes[2:]],
    }
