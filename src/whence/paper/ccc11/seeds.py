"""Settings run with several seeds each; one row a setting, with standard errors. And fits of a few points."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from statistics import fmean, stdev
from typing import Any

from whence.paper.ccc11.evaluation import tuned
from whence.paper.ccc11.points import run_all
from whence.paper.frame import Context, Row
from whence.sim.meter import wilson

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Distinguishable by all eyes (Okabe and Ito), also in print."""
MARKS = ("o", "s", "^", "D", "v")


def over_seeds(
    context: Context, runner: str, settings: Sequence[Row], seeds: int, keep: Sequence[str], what: str = "runs"
) -> list[Row]:
    """Each setting with each seed; a row has the settings to keep, the mean of every number and its standard error.
    All settings have the same seeds: what differs between two is not luck with the load."""
    todo = [{**s, "seed": context.seed * 1_000_003 + n} for s in settings for n in range(seeds)]

    def tell(done: int, total: int) -> None:
        if context.tell:
            context.tell(done / total, f"{what}: {done} of {total}")

    found = run_all(runner, todo, context.master, tell)
    rows = []
    for i, s in enumerate(settings):
        runs = found[i * seeds : (i + 1) * seeds]
        row: Row = {key: s[key] for key in keep} | {"seeds": seeds}
        for key in runs[0]:
            values = [float(run[key]) for run in runs]
            row[key] = fmean(values)
            row[f"{key}_error"] = stdev(values) / sqrt(seeds) if seeds > 1 else 0.0
        rows.append(row)
    return rows


def tuned_rounds(context: Context, settings: Sequence[Row], seeds: int) -> list[float]:
    """The round, in ms, that each setting needs (`evaluation.tuned`), by so many pilots each."""
    todo = [{**s, "seed": context.seed * 1_000_003 + n} for s in settings for n in range(seeds)]

    def tell(done: int, total: int) -> None:
        if context.tell:
            context.tell(done / total, f"tuning the rounds: {done} of {total}")

    curves = run_all(f"{tuned.__module__}:pilot", todo, context.master, tell)
    return [tuned(curves[i * seeds : (i + 1) * seeds]) for i in range(len(settings))]


def rate(row: Row) -> Row:
    """The success rate of recovery, and its standard error. What gossip brought meanwhile was no failure."""
    tried = round((row["asked"] - row["overtaken"]) * row["seeds"])
    if tried <= 0:
        return {"success": None, "success_error": None}
    low, high = wilson(min(tried, round(row["answered"] * row["seeds"])), tried)
    return {"success": row["answered"] * row["seeds"] / tried, "success_error": (high - low) / 4}


def fit(xs: Sequence[float], ys: Sequence[float], logarithmic: bool = False) -> dict[str, float]:
    """`y = a + b x` (or `a + b ln x`) by least squares, and the share of the variance that it explains."""
    us = [log(x) for x in xs] if logarithmic else list(xs)
    mu, my = fmean(us), fmean(ys)
    spread = sum((u - mu) ** 2 for u in us)
    b = sum((u - mu) * (y - my) for u, y in zip(us, ys, strict=True)) / spread
    a = my - b * mu
    left = sum((y - a - b * u) ** 2 for u, y in zip(us, ys, strict=True))
    total = sum((y - my) ** 2 for y in ys)
    return {"a": a, "b": b, "r2": 1 - left / total if total else 1.0}


def bars(
    axes: Any, rows: Sequence[Row], x: str, y: str, index: int, label: str, scale: float = 1.0, line: str = "-"
) -> None:
    """Measured points with their standard errors."""
    axes.errorbar(
        [row[x] for row in rows],
        [row[y] * scale for row in rows],
        yerr=[(row.get(f"{y}_error") or 0) * scale for row in rows],
        fmt=f"{MARKS[index]}{line}",
        color=COLOURS[index],
        markersize=4,
        linewidth=1.4,
        capsize=2.5,
        label=label,
    )


def panels(title: str, *names: tuple[str, str]) -> tuple[Any, list[Any]]:
    """Plots side by side, each with the names of its axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4.2), layout="constrained", squeeze=False)
    figure.suptitle(title, fontsize=11)
    for one, (x, y) in zip(axes[0], names, strict=True):
        one.set_xlabel(x)
        one.set_ylabel(y)
        one.grid(True, alpha=0.3)
    return figure, list(axes[0])


def rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    """For claims.json."""
    return [float(f"{v:.{digits}g}") for v in values]
