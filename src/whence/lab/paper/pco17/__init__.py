"""A Probabilistic Causal Message Ordering Mechanism (PaCT'17): its figures, and what it does not measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whence.lab.paper.frame import Row, by_run
from whence.lab.paper.plots import error_bars
from whence.lab.stats import Estimate, exact, mean, quotient, ratio

BOUND = r"bound $P_{nc}\,(1-(1-1/R)^{KX})^K$"
SHARE = "share of deliveries before their past"
PAPER = {"processes": 1000, "entries": 100, "keys": 4, "rate": 200.0}
"""The setting of PCO17 section 5.4.3; X = 20 messages in flight."""


def curve(axes: Any, rows: Sequence[Row], x: str, label: str, index: int, bound: str = "") -> None:
    """Measured error rates with their 95 % intervals, and the paper's bound with the measured P_nc."""
    seen = [row for row in rows if row["exact_rate"] > 0]  # a logarithmic axis has no zero
    found = [mean("", rates(row)) for row in seen]
    error_bars(axes, [row[x] for row in seen], found, label, index, least=0.01)
    if bound:
        axes.plot([row[x] for row in rows], [row["theory"] for row in rows], "--", linewidth=1.1, label=bound)


def band(axes: Any, rows: Sequence[Row], x: str, colour: str, label: str = "the paper's eps_min to eps_max") -> None:
    """What the paper could measure: its lower and upper estimate."""
    low, high = [row["eps_min"] for row in rows], [row["eps_max"] for row in rows]
    axes.fill_between([row[x] for row in rows], low, high, color=colour, alpha=0.18, linewidth=0, label=label)


def rates(row: Row) -> list[float]:
    """The error rate of each run."""
    return by_run(row, "exact_rate")


def by_x(rows: Sequence[Row], x: str) -> dict[Any, list[float]]:
    """The error rates of each point, run by run."""
    return {row[x]: rates(row) for row in rows}


def relative(rows: Sequence[Row], x: str, base: Any, wanted: Sequence[Any]) -> list[Estimate]:
    """Error rates by that of another point; the messages differ, so the runs are independent."""
    found = by_x(rows, x)
    return [quotient(f"{x} = {at:g}", found[at], found[base], len(wanted)) for at in wanted]


def unalerted(rows: Sequence[Row]) -> list[Estimate]:
    """Overtaken messages without an alert of Algorithm 4 (PCO17 section 4.2)."""
    return [exact(f"{sum(r['overtaken'] for r in rows)} overtaken", sum(r["unalerted4"] for r in rows))]


def by_bound(rows: Sequence[Row], x: str) -> list[Estimate]:
    """The error rate by the paper's bound with the measured P_nc, run by run."""
    return [ratio(f"{x} = {row[x]:g}", rates(row), by_run(row, "theory"), len(rows)) for row in rows]
