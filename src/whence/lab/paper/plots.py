"""The pictures of the experiments: panels, points with error bars, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whence.lab.paper.frame import Row, by_run
from whence.lab.stats import UNKNOWN, Estimate, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Safe for colour-blind readers (Okabe and Ito), also in print."""
MARKS = ("o", "s", "^", "D", "v")
Names = Mapping[Any, str]
"""What a plot calls the values of a column."""
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
"""The box of a label that lies on lines."""


def panels(title: str, *names: tuple[str, str]) -> tuple[Figure, list[Any]]:
    """Empty plots side by side (four: two by two), each with the labels of its x and y axis."""
    from matplotlib.figure import Figure

    width, height = {1: (7.5, 4.8), 2: (11, 4.8), 4: (11, 8.4)}.get(len(names), (4.6 * len(names), 4.2))
    lines = 2 if len(names) == 4 else 1
    figure = Figure(figsize=(width, height), layout="constrained")
    plots = list(figure.subplots(lines, len(names) // lines, squeeze=False).flat)
    figure.suptitle(title, fontsize=11)
    for axes, (x, y) in zip(plots, names, strict=True):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(True, which="major", alpha=0.35)
        axes.grid(True, which="minor", alpha=0.12)
    return figure, plots


def count(deliveries: float) -> str:
    """For a title: "10^8 deliveries a point"."""
    digits, power = f"{deliveries:.0e}".split("e")
    factor = "" if digits == "1" else digits + r" \cdot "
    return f"${factor}10^{int(power)}$ deliveries a point"


def error_bars(
    axes: Any,
    x: Sequence[Any],
    found: Sequence[Estimate],
    label: str,
    index: int = 0,
    scale: float = 1.0,
    line: str = "-",
    least: float = 0.0,
) -> None:
    """Estimates joined by a line, with their intervals. A bar ends at `least` times the value at the latest: a
    logarithmic axis has no zero. An estimate of a single run has no bar."""
    known = [e if e.high < UNKNOWN else Estimate("", e.value, e.value, e.value) for e in found]
    below = [scale * max(0.0, e.value - max(e.low, least * e.value)) for e in known]
    above = [scale * max(0.0, e.high - e.value) for e in known]
    style: dict[str, Any] = {"markersize": 4, "linewidth": 1.4, "capsize": 2.5, "color": COLOURS[index]}
    y = [scale * e.value for e in found]
    axes.errorbar(x, y, yerr=[below, above], fmt=f"{MARKS[index]}{line}", label=label, **style)


def bars(
    axes: Any, rows: Sequence[Row], x: str, y: str, index: int, label: str, scale: float = 1.0, line: str = "-"
) -> None:
    """The means of a column over the runs of each row, with their intervals."""
    error_bars(axes, [row[x] for row in rows], [mean("", by_run(row, y)) for row in rows], label, index, scale, line)


def curves(
    plots: Sequence[Any],
    rows: Sequence[Row],
    x: str,
    columns: Sequence[str],
    by: str,
    names: Names,
    line: str = "-",
) -> None:
    """In each plot one column (shares as per cent), with a curve for each value of `by`."""
    for i, (value, name) in enumerate(names.items()):
        mine = [row for row in rows if row[by] == value]
        for axes, column in zip(plots, columns, strict=True):
            bars(axes, mine, x, column, i, name, 100 if column == "lost_ordered" else 1, line)


def from_zero(*plots: Any) -> None:
    """Let the y axis of these plots begin at zero."""
    for axes in plots:
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)


def losses(axes: Any) -> None:
    """A y axis for shares from nothing to much."""
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_ylim(bottom=0)
