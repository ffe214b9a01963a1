"""PCO17 Figure 6: the error rate against N, with 200 messages a second in total."""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, count, measure
from whence.paper.pco17 import PAPER, plot

NS = (50, 100, 200, 300, 500, 750, 1000, 2000, 5000, 10000)


def run(context: Context) -> Outcome:
    """R = 100, K = 4, X = 20."""
    deliveries = context.size(1e8, quick=4e6)
    rows = measure(context, [{**PAPER, "processes": n, "deliveries": deliveries} for n in NS])
    rate = {row["processes"]: row["exact_rate"] for row in rows}
    relative = {n: rate[n] / rate[1000] for n in NS}
    claims = [
        Claim(
            "constant when N grows beyond 1000 (within a quarter)",
            all(abs(relative[n] - 1) <= 0.25 for n in (2000, 5000, 10000)),
            {"relative_to_1000": relative},
        ),
        Claim(
            "higher when N shrinks (100 has more errors than 1000)", relative[100] > 1, {"relative_to_1000": relative}
        ),
        Claim(
            "rises steadily as N shrinks from 1000 to 50",
            all(rate[a] > rate[b] for a, b in pairwise(NS[:7])),
            {"relative_to_1000": relative},
        ),
    ]
    title = f"PCO17 Figure 6: R = 100, K = 4, 200 messages/s in total, {count(deliveries)}"
    figure = plot(title, "N, processes (together 200 messages/s)", rows, "processes", "linear")
    figure.axes[0].set_xscale("log")
    return Outcome(rows, claims, figure)
