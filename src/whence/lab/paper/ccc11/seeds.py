"""Runs each setting with several seeds, one row per setting with all of its runs; tunes rounds; fits curves."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import fmean
from typing import Any

from whence.lab.paper.ccc11.evaluation import FAILED, POINT, TRACED, UPLINK, tuned
from whence.lab.paper.frame import Context, Row, around, error_bars
from whence.lab.paper.points import run_all
from whence.lab.stats import Estimate, mean, share

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Safe for colour-blind readers (Okabe and Ito), also in print."""
MARKS = ("o", "s", "^", "D", "v")


def over_seeds(
    context: Context, settings: Sequence[Row], seeds: int, keep: Sequence[str], runner: str = POINT
) -> list[Row]:
    """Run each setting with each seed. A row has the settings to keep, the mean of every result, and `runs`. All
    settings use the same seeds, so they can be compared run by run."""
    found = _runs(context, runner, settings, seeds, "runs")
    return [_row(setting, runs, keep) for setting, runs in zip(settings, found, strict=True)]


def _runs(context: Context, runner: str, settings: Sequence[Row], seeds: int, what: str) -> list[list[Row]]:
    todo = [{**s, "seed": context.seed * 1_000_003 + n} for s in settings for n in range(seeds)]
    found = run_all(runner, todo, context.master, context.count(what))
    return [found[i * seeds : (i + 1) * seeds] for i in range(len(settings))]


def _row(setting: Row, runs: Sequence[Row], keep: Sequence[str]) -> Row:
    row: Row = {key: setting[key] for key in keep} | {"seeds": len(runs)}
    row |= {key: fmean(float(run[key]) for run in runs) for key in runs[0]}
    return row | {"runs": [{key: float(value) for key, value in run.items()} for run in runs]}


def by_run(row: Row, key: str) -> list[float]:
    """A result of each of the row's runs."""
    return [run[key] for run in row["runs"]]


def total(row: Row, key: str) -> float:
    """A count, over the row's runs."""
    return sum(by_run(row, key))


TRIES = 5
"""How often a round is tuned. Each run's messages differ slightly from those the round was tuned by."""
NEAR = 1.02
"""A tuned round is at most this many times the shortest one."""


def tuned_runs(context: Context, settings: Sequence[Row], seeds: int, keep: Sequence[str]) -> list[Row]:
    """Run each setting with each seed, and tune its round until at most `FAILED` of the connections of these runs fail.
    `shortest` is the shortest such round, as a share of the tuned one."""
    pilots = _runs(context, TRACED, settings, 1, "pilots")
    rounds = [tuned([run["curve"] for run in runs]) for runs in pilots]
    done: list[Row | None] = [None] * len(settings)
    todo = list(range(len(settings)))
    for number in range(TRIES):
        wanted: list[Row] = [{**settings[i], "round_ms": rounds[i], "uplink": UPLINK} for i in todo]
        again = []
        found = _runs(context, TRACED, wanted, seeds, "runs" if not number else "runs with a better round")
        for i, setting, runs in zip(todo, wanted, found, strict=True):
            shortest = tuned([run["curve"] for run in runs])
            numbers = [{key: value for key, value in run.items() if key != "curve"} for run in runs]
            row = _row(setting, numbers, keep) | {"shortest": shortest / rounds[i]}
            done[i] = row = _better(row, done[i])
            if row["failed"] > FAILED or row["shortest"] < 1 / NEAR:
                again.append(i)
                rounds[i] = shortest if abs(shortest / rounds[i] - 1) > 0.001 else 1.01 * rounds[i]
        todo = again
        if not todo:
            break
    return [row for row in done if row is not None]


def _better(row: Row, other: Row | None) -> Row:
    """The better of two tries: few enough failures first, then the shorter round."""
    if other is None:
        return row
    return min(row, other, key=lambda r: (max(FAILED, r["failed"]), -r["shortest"], r["round_ms"]))


def success(row: Row, at: str = "", of: int = 1) -> Estimate:
    """The success rate of recovery. Events that gossip delivered meanwhile do not count."""
    tried = total(row, "asked") - total(row, "overtaken")
    return share(at, min(tried, total(row, "answered")), max(0, tried), of)


LEAST = 10
"""Attempts needed for a useful interval."""


def success_bars(axes: Any, rows: Sequence[Row], x: str, index: int, label: str, line: str = "-") -> None:
    """Success rates in per cent with their intervals, for rows with `LEAST` attempts or more."""
    rows = [r for r in rows if total(r, "asked") - total(r, "overtaken") >= LEAST]
    if not rows:
        return
    found = [success(row) for row in rows]
    y = [100 * p.value for p in found]
    error_bars(axes, [row[x] for row in rows], y, around(found, 100), f"{MARKS[index]}{line}", COLOURS[index], label)
    lowest = 100 * min(p.low for p in found) - 1
    axes.set_ylim(max(0.0, min(90.0, lowest, axes.get_ylim()[0])), 101)


def fit(xs: Sequence[float], ys: Sequence[float], logarithmic: bool = False) -> dict[str, float]:
    """Fits `y = a + b x` (or `a + b ln x`) by least squares; `r2` is the explained share of the variance."""
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
    """Measured points with their 95 % intervals; of a single run without one."""
    found = [mean("", by_run(row, y)) for row in rows]
    values = [row[y] * scale for row in rows]
    error_bars(
        axes, [row[x] for row in rows], values, around(found, scale), f"{MARKS[index]}{line}", COLOURS[index], label
    )


def from_zero(*plots: Any) -> None:
    """Let the y axis of these plots begin at zero."""
    for axes in plots:
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)
