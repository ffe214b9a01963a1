"""PCO17 Figure 4: the error rate against lambda, the mean interval between two messages of one process."""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, canvas, count, curve, measure, theory
from whence.paper.pco17 import BOUND, COLOURS, PAPER

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
    figure, axes = canvas(
        f"PCO17 Figure 4: N = 1000, R = 100, K = 4, {count(deliveries)}",
        "λ, mean interval between two messages of one process (ms)",
        "share of deliveries before their past",
    )
    curve(axes, rows, "lambda_ms", "measured (exact)", COLOURS[0])
    theory(axes, rows, "lambda_ms", BOUND, "black")
    axes.axvline(5000, color="grey", linestyle=":", linewidth=1.2, label="λ = 5000 ms, for which K = 4 is chosen")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    return Outcome(rows, claims, figure)
