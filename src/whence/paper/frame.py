"""The frame of every experiment: measured points, claims that can fail, plots, and the files they are saved to."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from whence.errors import ConfigError
from whence.paper.points import on_spark
from whence.scale.sweep import point as scale_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
Tell = Callable[[float, str], None]


class Claim(msgspec.Struct, frozen=True):
    """One statement of a paper (or of ours), and whether the measurement confirms it."""

    text: str
    holds: bool
    numbers: dict[str, Any]


class Outcome(msgspec.Struct):
    """The result of an experiment. Without rows it was skipped, and the note says why."""

    rows: list[Row]
    claims: list[Claim]
    figure: Any = None
    note: str = ""


class Context(msgspec.Struct):
    """How to run an experiment."""

    quick: bool = False
    """Takes seconds, with far fewer deliveries and larger errors."""
    seed: int = 0
    latencies: tuple[tuple[float, ...], ...] = ()
    """Round-trip times in ms, for the experiments that use them."""
    master: str | None = None
    """A Spark master to run the points on. Without one they run here, one after the other, each on all cores."""
    tell: Tell | None = None
    live: bool = False
    """Run on real sockets, for the experiments that can."""
    data: str = ""
    """A file with an editing session, for the experiment that uses one. Empty: see `whence.objects.replay.session`."""

    def size(self, deliveries: float, quick: float) -> float:
        """Deliveries of a point. Many, because errors are correlated: one slow message is late at many receivers."""
        return quick if self.quick else deliveries

    def say(self, share: float, what: str) -> None:
        """Report progress: the share that is done, and the current step."""
        if self.tell:
            self.tell(share, what)

    def count(self, what: str) -> Callable[[int, int], None]:
        """A progress callback `(done, total)`."""
        return lambda done, total: self.say(done / total, f"{what}: {done} of {total}")


def measure(context: Context, points: Sequence[Row], seeds: int = 4, figure: str = "exact_rate") -> list[Row]:
    """Run each point on the array engine with several seeds, which share its deliveries. One row per point.

    Points with the same seed, processes and rate have the same messages, so their `<figure>_runs` can be compared pair
    by pair. `<figure>_error` is the standard error of the mean over the seeds: runs are independent, the deliveries of
    one run are not.
    """
    sized = [
        {**p, "deliveries": p["deliveries"] / seeds, "seed": context.seed * 1000 + i}
        for p in points
        for i in range(seeds)
    ]
    found = on_spark("scale", sized, context.master) if context.master else _here(context, sized)
    rows = []
    for i, p in enumerate(points):
        runs = found[i * seeds : (i + 1) * seeds]
        row: Row = {key: value for key, value in p.items() if key not in ("latencies", "sample", "engine")}
        for key, first in runs[0].items():
            if (key in row and key != "deliveries") or key in ("seed", "latencies", "engine", "threads"):
                continue
            values = [run[key] for run in runs]
            if None in values:
                row[key] = None
            else:
                row[key] = sum(values) if isinstance(first, int) or key.endswith("seconds") else fmean(values)
        row[f"{figure}_runs"] = [run[figure] for run in runs]
        row[f"{figure}_error"] = stdev([run[figure] for run in runs]) / seeds**0.5 if seeds > 1 else 0.0
        row["engine"] = runs[0]["engine"]
        rows.append(row)
    return rows


def _here(context: Context, points: Sequence[Row]) -> list[Row]:
    found = []
    for i, p in enumerate(points):
        context.say(i / len(points), f"point {i + 1} of {len(points)}")
        found.append(scale_point({**p, "threads": None}))
    return found


def save(out: Path, name: str, outcome: Outcome) -> list[Path]:
    """Write the data (CSV and Parquet), the plot (PNG and SVG) and claims.json. Returns the paths."""
    stem = name.rpartition("/")[2]
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = [out / "claims.json"]
        claims = {"experiment": name, "note": outcome.note, "claims": msgspec.to_builtins(outcome.claims)}
        files[0].write_text(json.dumps(claims, indent=2) + "\n", encoding="utf-8")
        if outcome.rows:
            columns = list(dict.fromkeys(key for row in outcome.rows for key in row))
            files += [out / f"{stem}.csv", out / f"{stem}.parquet"]
            with files[1].open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(
                    {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in outcome.rows
                )
            table = pa.table({c: [row.get(c) for row in outcome.rows] for c in columns})
            pq.write_table(table, files[2])
        if outcome.figure is not None:
            files += [out / f"{stem}.png", out / f"{stem}.svg"]
            _draw(outcome.figure, *files[-2:])
    except OSError as error:
        raise ConfigError(f"out: cannot write into {out}: {error.strerror}") from None
    return files


def _draw(figure: Any, png: Path, svg: Path) -> None:
    """Equal rows give equal bytes (no date); text in SVG stays text."""
    import matplotlib as mpl

    figure.savefig(png, dpi=150)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence"}):
        figure.savefig(svg, metadata={"Date": None})


def panels(title: str, *names: tuple[str, str]) -> tuple[Figure, list[Any]]:
    """Empty plots side by side, each with the labels of its x and y axis."""
    from matplotlib.figure import Figure

    width, height = {1: (7.5, 4.8), 2: (11, 4.8)}.get(len(names), (4.6 * len(names), 4.2))
    figure = Figure(figsize=(width, height), layout="constrained")
    plots = list(figure.subplots(1, len(names), squeeze=False)[0])
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


def error_bars(axes: Any, x: Sequence[Any], y: Sequence[Any], error: Any, mark: str, colour: str, label: str) -> None:
    """Points joined by a line, with error bars."""
    style = {"markersize": 4, "linewidth": 1.4, "capsize": 2.5}
    axes.errorbar(x, y, yerr=error, fmt=mark, color=colour, label=label, **style)


def curve(axes: Any, rows: Sequence[Row], x: str, label: str, colour: str, figure: str = "exact_rate") -> None:
    """Measured points with their standard errors."""
    rows = [row for row in rows if row[figure] > 0]  # a logarithmic axis has no zero
    errors = [row.get(f"{figure}_error", 0) for row in rows]
    error_bars(axes, [row[x] for row in rows], [row[figure] for row in rows], errors, "o-", colour, label)


def theory(axes: Any, rows: Sequence[Row], x: str, label: str | None, colour: str) -> None:
    """The paper's bound with the measured P_nc."""
    axes.plot([row[x] for row in rows], [row["theory"] for row in rows], "--", linewidth=1.1, color=colour, label=label)


def best(rows: Sequence[Row], key: str, figure: str = "exact_rate") -> Row:
    """The row with the smallest figure."""
    return min(rows, key=lambda row: (row[figure], row[key]))


def worse(row: Row, other: Row, figure: str = "exact_rate") -> tuple[float, float]:
    """By how much a row is worse than another with the same messages, and the standard error of the difference."""
    pairs = zip(row[f"{figure}_runs"], other[f"{figure}_runs"], strict=True)
    differences = [a - b for a, b in pairs]
    return fmean(differences), stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
