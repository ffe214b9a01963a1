"""PCO17 Figure 5: the error rate against N, each process sending as often as before."""

from __future__ import annotations

from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, by_x, plot
from whence.lab.stats import Estimate, mean, quotient

NS = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000)


def measure(context: Context) -> list[Row]:
    """R = 100, K = 4, lambda = 5000 ms."""
    deliveries, seeds = context.size(1e8, quick=4e6), 4 if context.quick else 16
    return run_points(context, [{**PAPER, "processes": n, "rate": n / 5, "deliveries": deliveries} for n in NS], seeds)


def outcome(rows: list[Row]) -> Outcome:
    """Rising fast above N = 1000."""
    title = f"PCO17 Figure 5: R = 100, K = 4, λ = 5000 ms, {count(rows[0]['deliveries'])}"
    label = "N, processes (each sends every 5 s)"
    figure = plot(title, label, rows, "processes", mark=(1000, "N = 1000, for which K = 4 is chosen"))
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Rates by that of N = 1000, and by how much more the processes from 1000 to 1500 add than the 500 before. Runs of
    different N are independent, so the interval is over sums of one run of each."""
    rate = by_x(rows, "processes")
    bend = [a - 2 * b + c for a, b, c in zip(rate[1500], rate[1000], rate[500], strict=True)]
    return {
        "fast": [quotient("N = 2000", rate[2000], rate[1000])],
        "bend": [mean("500 to 1000 to 1500", bend)],
    }
