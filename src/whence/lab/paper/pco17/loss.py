"""The error rate when copies are lost and retransmitted. PCO17 assumes that none are lost."""

from __future__ import annotations

from itertools import pairwise

from whence.lab.paper.frame import Context, Outcome, Row, count
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import PAPER, by_bound, plot, relative, unalerted
from whence.lab.stats import Estimate

LOSSES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)


def measure(context: Context) -> list[Row]:
    """N = 1000, R = 100, K = 4; a lost copy is sent again after 100 ms. The errors come closest to the bound at the
    largest loss: there five times as many deliveries are run."""
    base = {**PAPER, "alerts": True, "deliveries": context.size(1e8, quick=2e6)}
    most = {**base, "loss": LOSSES[-1], "deliveries": context.size(5e8, quick=2e6)}
    rows = run_points(context, [{**base, "loss": loss} for loss in LOSSES[:-1]])
    return rows + run_points(context, [most], 8 if context.quick else 16)


def outcome(rows: list[Row]) -> Outcome:
    """The error rate by that without loss."""
    title = f"Lost copies are sent again after 100 ms: N = 1000, R = 100, K = 4\n{count(rows[0]['deliveries'])} or more"
    figure = plot(title, "copies lost (%)", [{**row, "percent": 100 * row["loss"]} for row in rows], "percent")
    [axes] = figure.axes
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_xlim(left=-0.02)
    axes.set_xticks([0, 0.1, 0.3, 1, 3, 10], ["0", "0.1", "0.3", "1", "3", "10"])
    return Outcome(rows, statistics(rows), figure)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Delays differ, so runs are independent."""
    return {
        "doubles": relative(rows, "loss", 0.0, [0.01]),
        "grows": [relative(rows, "loss", a, [b])[0] for a, b in pairwise(LOSSES)],
        "unalerted": unalerted(rows),
        "bound": by_bound(rows, "loss"),
    }
