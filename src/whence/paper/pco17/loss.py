"""Copies are lost and come a retransmission time later: what that does to the error rate. The paper assumes none
are."""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, canvas, count, curve, measure, theory
from whence.paper.pco17 import BOUND, COLOURS, PAPER

LOSSES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)


def run(context: Context) -> Outcome:
    """N = 1000, R = 100, K = 4; a lost copy is sent again after 100 ms."""
    deliveries = context.size(1e8, quick=1e6)
    rows = measure(context, [{**PAPER, "loss": loss, "alerts": True, "deliveries": deliveries} for loss in LOSSES])
    rate = {row["loss"]: row["exact_rate"] for row in rows}
    claims = [
        Claim("a loss of 1 % at least doubles the error rate", rate[0.01] >= 2 * rate[0.0], {"rates": rate}),
        Claim(
            "the error rate grows with the loss",
            all(rate[a] < rate[b] for a, b in pairwise(LOSSES)),
            {"rates": rate},
        ),
        Claim(
            "still no overtaken message goes without an alert of Algorithm 4",
            sum(r["unalerted4"] for r in rows) == 0,
            {"overtaken": sum(r["overtaken"] for r in rows)},
        ),
        Claim(
            "the bound, with the measured P_nc, still holds",
            all(r["exact_rate"] <= r["theory"] for r in rows),
            {"measured_over_bound": {r["loss"]: r["exact_rate"] / r["theory"] for r in rows}},
        ),
    ]
    figure, axes = canvas(
        f"Lost copies are sent again after 100 ms: N = 1000, R = 100, K = 4\n{count(deliveries)}",
        "copies lost (%)",
        "share of deliveries before their past",
    )
    shown = [{**row, "percent": 100 * row["loss"]} for row in rows]
    curve(axes, shown, "percent", "measured (exact)", COLOURS[0])
    theory(axes, shown, "percent", BOUND, "black")
    axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_xlim(left=-0.02)
    axes.set_xticks([0, 0.1, 0.3, 1, 3, 10], ["0", "0.1", "0.3", "1", "3", "10"])
    axes.legend(fontsize=8)
    return Outcome(rows, claims, figure)
