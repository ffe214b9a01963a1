"""The frame of every experiment: measured points, claims that can fail, plots, and the files they are saved to."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from whence.errors import ConfigError
from whence.lab.paper.claims import JudgedClaim, judged
from whence.lab.paper.points import on_spark
from whence.lab.scale.sweep import point as scale_point
from whence.lab.stats import Estimate, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
Tell = Callable[[float, str], None]


class Outcome(msgspec.Struct):
    """The result of an experiment."""

    rows: list[Row]
    statistics: dict[str, list[Estimate]]
    """What the claims are judged by (`whence.lab.paper.claims`)."""
    figure: Any = None
    note: str = ""


class Recorded(msgspec.Struct, kw_only=True):
    """claims.json of one experiment."""

    experiment: str
    quick: bool
    seed: int
    note: str
    statistics: dict[str, list[Estimate]]
    claims: list[JudgedClaim]


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
    as_published: bool = False
    """Recovery and its buffer as CCC11 prints them, for the experiments that have a choice."""
    data: str = ""
    """A file with an editing session, for the experiment that uses one. Empty: see
    `whence.live.objects.replay.session`."""

    def size(self, deliveries: float, quick: float) -> float:
        """Deliveries of a point. Many, because errors are correlated: one slow message is late at many receivers."""
        return quick if self.quick else deliveries

    def published(self) -> Row:
        """Settings of `ccc11.evaluation` for the protocol as printed."""
        return {"once": True, "aging": True} if self.as_published else {}

    def say(self, share: float, what: str) -> None:
        """Report progress: the share that is done, and the current step."""
        if self.tell:
            self.tell(share, what)

    def count(self, what: str) -> Callable[[int, int], None]:
        """A progress callback `(done, total)`."""
        return lambda done, total: self.say(done / total, f"{what}: {done} of {total}")


RUNS = ("exact_rate", "eps_min", "eps_max", "theory", "p_nc", "errors", "overtaken", "alerts4", "alerts5", "unalerted5")
"""Results of the array engine that are kept run by run, for paired comparisons."""


def measure(context: Context, points: Sequence[Row], seeds: int = 8) -> list[Row]:
    """Run each point on the array engine with several seeds, which share its deliveries. One row per point.

    Points with the same seed, processes and rate have the same messages, so their `<figure>_runs` can be compared pair
    by pair. Runs are independent; the deliveries of one run are not.
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
            if key in RUNS:
                row[f"{key}_runs"] = values
        row["engine"] = runs[0]["engine"]
        rows.append(row)
    return rows


def _here(context: Context, points: Sequence[Row]) -> list[Row]:
    found = []
    for i, p in enumerate(points):
        context.say(i / len(points), f"point {i + 1} of {len(points)}")
        found.append(scale_point({**p, "threads": None}))
    return found


def prepare(out: Path) -> None:
    """Make the directory, before hours are spent on what cannot be saved there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: cannot make {out}: {error.strerror}") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise ConfigError(f"out: cannot write into {out}: permission denied; name another directory with --out")


def save(out: Path, name: str, context: Context, outcome: Outcome) -> list[Path]:
    """Write the data (CSV and Parquet), the plot (PNG and SVG) and claims.json. Returns the paths."""
    stem = name.partition(" ")[0].rpartition("/")[2]
    found = Recorded(
        experiment=name,
        quick=context.quick,
        seed=context.seed,
        note=outcome.note,
        statistics=outcome.statistics,
        claims=judged(name, outcome.statistics),
    )
    prepare(out)
    try:
        files = [out / "claims.json"]
        files[0].write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        columns = list(dict.fromkeys(key for row in outcome.rows for key in row))
        files += [out / f"{stem}.csv", out / f"{stem}.parquet"]
        with files[1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(
                {k: json.dumps(v) if isinstance(v, list | tuple) else v for k, v in r.items()} for r in outcome.rows
            )
        table = pa.table({c: [row.get(c) for row in outcome.rows] for c in columns})
        pq.write_table(table, files[2])
        if outcome.figure is not None:
            files += [out / f"{stem}.png", out / f"{stem}.svg"]
            _draw(outcome.figure, *files[-2:])
    except OSError as error:
        raise ConfigError(f"out: cannot write into {out}: {error.strerror}") from None
    return files


def load(out: Path, name: str, context: Context) -> list[Row] | None:
    """The rows that an earlier run with the same settings saved here, or None."""
    stem = name.partition(" ")[0].rpartition("/")[2]
    try:
        found = msgspec.json.decode((out / "claims.json").read_bytes(), type=Recorded)
        table = pq.read_table(out / f"{stem}.parquet")
    except (OSError, msgspec.DecodeError, pa.ArrowInvalid):
        return None
    if (found.experiment, found.quick, found.seed) != (name, context.quick, context.seed):
        return None
    return [_without_nulls(row) for row in table.to_pylist()]


def _without_nulls(row: Row) -> Row:
    """Parquet gives every row all columns; a column that a row did not have is null."""
    return {k: v for k, v in row.items() if v is not None}


def _draw(figure: Any, png: Path, svg: Path) -> None:
    """Equal rows give equal bytes (no date); text in SVG stays text."""
    import matplotlib as mpl

    figure.savefig(png, dpi=150)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence"}):
        figure.savefig(svg, metadata={"Date": None})


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


BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
"""The box of a label that lies on lines."""


def count(deliveries: float) -> str:
    """For a title: "10^8 deliveries a point"."""
    digits, power = f"{deliveries:.0e}".split("e")
    factor = "" if digits == "1" else digits + r" \cdot "
    return f"${factor}10^{int(power)}$ deliveries a point"


def error_bars(axes: Any, x: Sequence[Any], y: Sequence[Any], error: Any, mark: str, colour: str, label: str) -> None:
    """Points joined by a line, with error bars."""
    style = {"markersize": 4, "linewidth": 1.4, "capsize": 2.5}
    axes.errorbar(x, y, yerr=error, fmt=mark, color=colour, label=label, **style)


def around(points: Sequence[Estimate], scale: float = 1.0, least: float = 0.0) -> list[list[float]]:
    """Lengths of error bars below and above each point. A bar ends at `least` times the value at the latest: a
    logarithmic axis has no zero."""
    below = [scale * max(0.0, p.value - max(p.low, least * p.value)) for p in points]
    return [below, [scale * max(0.0, p.high - p.value) if p.high < 1e299 else 0.0 for p in points]]


def curve(axes: Any, rows: Sequence[Row], x: str, label: str, colour: str, figure: str = "exact_rate") -> None:
    """Measured points with their 95 % intervals."""
    rows = [row for row in rows if row[figure] > 0]  # a logarithmic axis has no zero
    found = [mean("", row[f"{figure}_runs"]) for row in rows]
    bars = around(found, least=0.01)
    error_bars(axes, [row[x] for row in rows], [row[figure] for row in rows], bars, "o-", colour, label)


def theory(axes: Any, rows: Sequence[Row], x: str, label: str | None, colour: str) -> None:
    """The paper's bound with the measured P_nc."""
    axes.plot([row[x] for row in rows], [row["theory"] for row in rows], "--", linewidth=1.1, color=colour, label=label)
