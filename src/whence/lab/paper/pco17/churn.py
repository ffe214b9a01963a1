"""Churn: processes leave, and others join with new keys and a copy of a member's state. PCO17 allows it, unmeasured."""

from __future__ import annotations

from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, plot, relative, unalerted
from whence.lab.stats import Estimate

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


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Processes differ, so runs are independent."""
    return {
        "churn": relative(rows, "churn", 0.0, CHURN[1:]),
        "unalerted": unalerted(rows),
    }
