"""PCO17 Figure 3 with recorded round-trip times between cities instead of N(100, 20)."""

from __future__ import annotations

from math import log

from whence.paper.frame import Claim, Context, Outcome, best, count, curve, measure, panels, theory, worse
from whence.paper.pco17 import BOUND, COLOURS, PAPER, SHARE, bounded

KS = (1, 2, 3, 4, 5, 6, 8, 10)
SKEW = 5.0
"""Standard deviation of a copy's delay from the recorded latency, ms."""


def run(context: Context) -> Outcome:
    """N = 1000 processes in the cities of the matrix."""
    deliveries = context.size(1e8, quick=1e6)
    base = {**PAPER, "latencies": context.latencies, "spread": 0.0, "skew": SKEW, "deliveries": deliveries}
    rows = measure(context, [{**base, "keys": k} for k in KS])
    plain = measure(context, [{**PAPER, "keys": k, "deliveries": deliveries} for k in KS])
    found, X = best(rows, "keys"), rows[0]["in_flight"]
    optimum = log(2) * 100 / X
    nearest = min(rows, key=lambda row: abs(row["keys"] - optimum))
    by, error = worse(nearest, found)
    ratio = {r["keys"]: r["exact_rate"] / max(1e-12, p["exact_rate"]) for r, p in zip(rows, plain, strict=True)}
    overtakes = rows[3]["p_nc"] / plain[3]["p_nc"]
    claims = [
        Claim(
            "the best K is within 1 of ln 2 * R / X, X the mean in flight, or not measurably better (2 std. errors)",
            abs(found["keys"] - optimum) <= 1 or by <= 2 * error,
            {
                "best_K": found["keys"],
                "theory": optimum,
                "X": X,
                "K_nearest_to_theory_worse_by": by,
                "standard_error_of_that": error,
                "rates": {row["keys"]: row["exact_rate"] for row in rows},
            },
        ),
        Claim(
            "between cities more messages overtake their past than with N(100, 20); errors grow by no more than that",
            overtakes > 1 and ratio[4] <= overtakes,
            {
                "errors_times_the_paper's_network": ratio,
                "p_nc_recorded": rows[3]["p_nc"],
                "p_nc_paper": plain[3]["p_nc"],
            },
        ),
        bounded("the error rate is at most P_nc (1 - (1 - 1/R)^(KX))^K", rows, "keys"),
    ]
    title = (
        f"Recorded latencies, {len(context.latencies)} cities: N = 1000, R = 100, 200 messages/s\n{count(deliveries)}"
    )
    figure, [axes] = panels(title, ("K, entries of each process", SHARE))
    curve(axes, rows, "keys", "recorded latencies", COLOURS[1])
    theory(axes, rows, "keys", BOUND + ", recorded", COLOURS[1])
    curve(axes, plain, "keys", "the paper's network", COLOURS[0])
    theory(axes, plain, "keys", BOUND + ", paper's", COLOURS[0])
    axes.set_yscale("log")
    axes.set_xticks(range(1, 11))
    axes.legend(fontsize=8)
    return Outcome(
        [{"network": "recorded", **r} for r in rows] + [{"network": "paper", **r} for r in plain], claims, figure
    )
