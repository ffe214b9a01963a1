"""PCO17 Figure 4: the error rate against lambda, the mean interval between two messages of one process."""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, count, measure
from whence.paper.pco17 import PAPER, plot

LAMBDAS = (1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000)


def run(context: Context) -> Outcome:
    """N = 1000, R = 100, K = 4."""
    deliveries = context.size(1e8, quick=4e6)
    points = [
        {**PAPER, "lambda_ms": ms, "rate": 1e6 / ms, "deliveries": deliveries / (10 if ms < 2000 else 1)}
        for ms in LAMBDAS
    ]
    names = [{key: value for key, value in p.items() if key != "lambda_ms"} for p in points]
    rows = [{"lambda_ms": p["lambda_ms"], **row} for p, row in zip(points, measure(context, names), strict=True)]
    rate = {row["lambda_ms"]: row["exact_rate"] for row in rows}
    around = {ms: rate[ms] / rate[5000] for ms in (4000, 5000, 6000)}
    below = {ms: rate[ms] / rate[5000] for ms in (1000, 1500, 2000, 2500, 3000)}
    each = {f"{b}->{a}": rate[a] - rate[b] for a, b in pairwise(LAMBDAS)}
    claims = [
        Claim(
            "stable around lambda = 5000 ms (4000 and 6000 within a factor of 2)",
            all(0.5 < v < 2 for v in around.values()),
            {"relative_to_5000": around},
        ),
        Claim(
            "rises fast below 3000 ms (2000 ms has 5 times the errors of 5000 ms or more)",
            below[2000] >= 5,
            {"relative_to_5000": below},
        ),
        Claim(
            "from 3000 to 2000 ms it rises by more than from 10000 to 3000 ms",
            rate[2000] - rate[3000] > rate[3000] - rate[10000],
            {"rise_by_step": each},
        ),
    ]
    title = f"PCO17 Figure 4: N = 1000, R = 100, K = 4, {count(deliveries)}"
    label = "λ, mean interval between two messages of one process (ms)"
    figure = plot(title, label, rows, "lambda_ms", mark=(5000, "λ = 5000 ms, for which K = 4 is chosen"))
    return Outcome(rows, claims, figure)
