"""Churn: processes leave, and others join with new keys and a copy of a member's state. PCO17 allows it, unmeasured."""

from __future__ import annotations

from statistics import fmean, stdev

from whence.lab.paper.claims.intervals import exact
from whence.lab.paper.claims.model import Point
from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, plot, rates, relative, unalerted

CHURN = (0.0, 1.0, 5.0, 20.0, 50.0, 100.0)


def measure(context: Context) -> list[Row]:
    """N = 1000, R = 100, K = 4; up to a tenth of all processes are replaced every second."""
    deliveries, seeds = context.size(3e8, quick=2e6), 8 if context.quick else 16
    points = [{**PAPER, "churn": churn, "alerts": True, "deliveries": deliveries} for churn in CHURN]
    return run_points(context, points, seeds)


def outcome(rows: list[Row]) -> Outcome:
    """The error rate by that without churn."""
    title = f"Churn: N = 1000, R = 100, K = 4, 200 messages/s, {count(rows[0]['deliveries'])}"
    figure = plot(title, "processes replaced per second", rows, "churn", "linear")
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Point]]:
    """Processes differ, so runs are independent."""
    return {
        "churn": relative(rows, "churn", 0.0, CHURN[1:]),
        "churn-noisy": [_errors(row, rows[0]) for row in rows[1:]],
        "unalerted": unalerted(rows),
    }


def _errors(a: Row, b: Row) -> Point:
    """The statistic of the earlier wording: the distance in standard errors."""
    x, y = rates(a), rates(b)
    error = (stdev(x) ** 2 / len(x) + stdev(y) ** 2 / len(y)) ** 0.5
    return exact(f"churn = {a['churn']:g}", abs(fmean(x) - fmean(y)) / max(1e-12, error))
