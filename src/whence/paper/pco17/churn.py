"""Processes leave and others join, with new keys and a copy of somebody's state: the paper allows it and does not
measure it."""

from __future__ import annotations

from whence.paper.frame import Claim, Context, Outcome, canvas, count, curve, measure, theory
from whence.paper.pco17 import BOUND, COLOURS, PAPER

CHURN = (0.0, 1.0, 5.0, 20.0, 50.0, 100.0)


def run(context: Context) -> Outcome:
    """N = 1000, R = 100, K = 4; up to a tenth of all processes are replaced every second."""
    deliveries = context.size(1e8, quick=1e6)
    rows = measure(context, [{**PAPER, "churn": churn, "alerts": True, "deliveries": deliveries} for churn in CHURN])
    rate = {row["churn"]: row["exact_rate"] for row in rows}
    error = {row["churn"]: row["exact_rate_error"] for row in rows}
    within = all(abs(rate[c] - rate[0.0]) <= 3 * (error[c] ** 2 + error[0.0] ** 2) ** 0.5 for c in CHURN)
    claims = [
        Claim(
            "joins and leaves do not raise the error rate (3 standard errors)",
            within,
            {"rates": rate, "standard_errors": error},
        ),
        Claim(
            "still no overtaken message goes without an alert of Algorithm 4",
            sum(r["unalerted4"] for r in rows) == 0,
            {"overtaken": sum(r["overtaken"] for r in rows)},
        ),
    ]
    figure, axes = canvas(
        f"Churn: N = 1000, R = 100, K = 4, 200 messages/s, {count(deliveries)}",
        "processes replaced per second",
        "share of deliveries before their past",
    )
    curve(axes, rows, "churn", "measured (exact)", COLOURS[0])
    theory(axes, rows, "churn", BOUND, "black")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    return Outcome(rows, claims, figure)
