"""Churn: processes leave, and others join with new keys and a copy of a member's state. PCO17 allows it, unmeasured."""

from __future__ import annotations

from whence.paper.frame import Claim, Context, Outcome, count, measure
from whence.paper.pco17 import PAPER, never_unalerted, plot

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
        never_unalerted(rows),
    ]
    title = f"Churn: N = 1000, R = 100, K = 4, 200 messages/s, {count(deliveries)}"
    return Outcome(rows, claims, plot(title, "processes replaced per second", rows, "churn", "linear"))
