"""The error rate when copies are lost and retransmitted. PCO17 assumes that none are lost."""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, count, measure
from whence.paper.pco17 import PAPER, bounded, never_unalerted, plot

LOSSES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)


def run(context: Context) -> Outcome:
    """N = 1000, R = 100, K = 4; a lost copy is sent again after 100 ms."""
    deliveries = context.size(1e8, quick=1e6)
    rows = measure(context, [{**PAPER, "loss": loss, "alerts": True, "deliveries": deliveries} for loss in LOSSES])
    rate = {row["loss"]: row["exact_rate"] for row in rows}
    claims = [
        Claim("a loss of 1 % at least doubles the error rate", rate[0.01] >= 2 * rate[0.0], {"rates": rate}),
        Claim(
            "the error rate grows with the loss", all(rate[a] < rate[b] for a, b in pairwise(LOSSES)), {"rates": rate}
        ),
        never_unalerted(rows),
        bounded("the bound, with the measured P_nc, still holds", rows, "loss"),
    ]
    title = f"Lost copies are sent again after 100 ms: N = 1000, R = 100, K = 4\n{count(deliveries)}"
    figure = plot(title, "copies lost (%)", [{**row, "percent": 100 * row["loss"]} for row in rows], "percent")
    [axes] = figure.axes
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_xlim(left=-0.02)
    axes.set_xticks([0, 0.1, 0.3, 1, 3, 10], ["0", "0.1", "0.3", "1", "3", "10"])
    return Outcome(rows, claims, figure)
