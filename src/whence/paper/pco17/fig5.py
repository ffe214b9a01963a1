"""PCO17 Figure 5: the error rate against N, each process sending every 5 seconds."""

from __future__ import annotations

from whence.paper.frame import Claim, Context, Outcome, count, measure
from whence.paper.pco17 import PAPER, plot

NS = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000)


def run(context: Context) -> Outcome:
    """R = 100, K = 4, lambda = 5000 ms."""
    deliveries = context.size(1e8, quick=4e6)
    rows = measure(context, [{**PAPER, "processes": n, "rate": n / 5, "deliveries": deliveries} for n in NS])
    rate = {row["processes"]: row["exact_rate"] for row in rows}
    relative = {n: rate[n] / rate[1000] for n in NS}
    steps = {n: rate[n] - rate[n - 500] for n in (1000, 1500, 2000, 2500, 3000)}
    claims = [
        Claim(
            "rises fast as soon as N is above 1000 (2000 has 5 times the errors of 1000 or more)",
            relative[2000] >= 5,
            {"relative_to_1000": relative},
        ),
        Claim(
            "every further 500 processes above 1000 add more than the 500 before",
            all(steps[n] > steps[n - 500] for n in (1500, 2000, 2500, 3000)),
            {"added": steps},
        ),
    ]
    title = f"PCO17 Figure 5: R = 100, K = 4, λ = 5000 ms, {count(deliveries)}"
    label = "N, processes (each sends every 5 s)"
    figure = plot(title, label, rows, "processes", mark=(1000, "N = 1000, for which K = 4 is chosen"))
    return Outcome(rows, claims, figure)
