"""A Probabilistic Causal Message Ordering Mechanism (PaCT'17): its figures, and what it does not measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.paper.frame import Claim, Row, curve, panels, theory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
BOUND = r"bound $P_{nc}\,(1-(1-1/R)^{KX})^K$"
SHARE = "share of deliveries before their past"
PAPER = {"processes": 1000, "entries": 100, "keys": 4, "rate": 200.0, "sample": False}
"""The setting of PCO17 section 5.4.3; X = 20 messages in flight."""


def plot(title: str, label: str, rows: Sequence[Row], x: str, scale: str = "log", mark: Any = None) -> Figure:
    """The measured error rate and the bound. `mark`: a vertical line at (x, label)."""
    figure, [axes] = panels(title, (label, SHARE))
    curve(axes, rows, x, "measured (exact)", COLOURS[0])
    theory(axes, rows, x, BOUND, "black")
    if mark:
        axes.axvline(mark[0], color="grey", linestyle=":", linewidth=1.2, label=mark[1])
    axes.set_yscale(scale)
    if scale == "linear":
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    return figure


def never_unalerted(rows: Sequence[Row]) -> Claim:
    """PCO17 section 4.2, in a setting that the paper does not have."""
    return Claim(
        "still no overtaken message goes without an alert of Algorithm 4",
        sum(r["unalerted4"] for r in rows) == 0,
        {"overtaken": sum(r["overtaken"] for r in rows)},
    )


def bounded(text: str, rows: Sequence[Row], x: str) -> Claim:
    """The error rate is below the paper's bound with the measured P_nc."""
    ratios = {r[x]: r["exact_rate"] / r["theory"] for r in rows}
    return Claim(text, all(r["exact_rate"] <= r["theory"] for r in rows), {"measured_over_bound": ratios})
