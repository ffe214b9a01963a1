"""What every experiment is made of: points that are measured, claims that hold or do not, a plot, and files."""

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

from whence.errors import ConfigError, UsageError
from whence.scale.sweep import point as scale_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
Tell = Callable[[float, str], None]


class Claim(msgspec.Struct, frozen=True):
    """One sentence of a paper (or of ours), and whether the measurement bears it out."""

    text: str
    holds: bool
    numbers: dict[str, Any]


class Outcome(msgspec.Struct):
    """What an experiment found. Without rows it was skipped, and the note says why."""

    rows: list[Row]
    claims: list[Claim]
    figure: Any = None
    note: str = ""


class Context(msgspec.Struct):
    """How an experiment is to be run."""

    quick: bool = False
    """Far fewer deliveries: seconds, and larger errors."""
    seed: int = 0
    latencies: tuple[tuple[float, ...], ...] = ()
    """Round-trip times in ms, for the experiments that use them."""
    master: str | None = None
    """A Spark master: run the points there. Otherwise here, one after the other, each on all cores."""
    tell: Tell | None = None
    live: bool = False
    """On real sockets, for the experiments that can."""
    data: str = ""
    """An editing session, for the experiment that uses one; none: see `whence.objects.replay.session`."""

    def size(self, deliveries: float, quick: float) -> float:
        """Deliveries of a point. Errors come in swarms, of one slow message at many receivers: it is messages that
        count."""
        return quick if self.quick else deliveries


def measure(context: Context, points: Sequence[Row], seeds: int = 4, figure: str = "exact_rate") -> list[Row]:
    """Run each point of the array engine with several seeds that share its deliveries; one row a point.

    Points with the same seed, processes and rate have the very same messages, so that their `<figure>_runs` can be
    compared one by one. `<figure>_error` is the standard error of the mean over the seeds: deliveries of one run are
    not independent, runs are.
    """
    sized = [
        {**p, "deliveries": p["deliveries"] / seeds, "seed": context.seed * 1000 + i}
        for p in points
        for i in range(seeds)
    ]
    found = _on_spark(context, sized) if context.master else _here(context, sized)
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
        if context.tell:
            context.tell(i / len(points), f"point {i + 1} of {len(points)}")
        found.append(scale_point({**p, "threads": None}))
    return found


def _on_spark(context: Context, points: Sequence[Row]) -> list[Row]:
    """The same points on the executors of Spark, a thread each: the same results."""
    from whence.spark.session import session
    from whence.spark.sweep import Point, run_points
    from whence.spark.sweep import points as table

    spark = session(context.master)
    wanted = [
        Point(f"{i:06}", 0, p["seed"], json.dumps({key: value for key, value in p.items() if key != "seed"}))
        for i, p in enumerate(points)
    ]
    rows = run_points(table(spark, wanted).repartition(len(wanted)), "scale").collect()
    for row in rows:
        if row["error"] is not None:
            raise UsageError(f"a point failed: {row['error']}; its settings: {row['setting'][:300]}")
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: str(row["point"]))]


def save(out: Path, name: str, outcome: Outcome) -> list[Path]:
    """Write data (CSV and Parquet), plot (PNG and SVG) and claims.json; returns the files."""
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
    """Same rows, same bytes: no date; text stays text."""
    import matplotlib as mpl

    figure.savefig(png, dpi=150)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence"}):
        figure.savefig(svg, metadata={"Date": None})


def canvas(title: str, x: str, y: str, right: str = "") -> tuple[Figure, Any]:
    """An empty plot, with a title and named axes; `right`: a second one beside it, over that."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11 if right else 7.5, 4.8), layout="constrained")
    panels = figure.subplots(1, 2 if right else 1, squeeze=False)[0]
    figure.suptitle(title, fontsize=11)
    for axes, name in zip(panels, (x, right), strict=False):
        axes.set_xlabel(name)
        axes.set_ylabel(y)
        axes.grid(True, which="major", alpha=0.35)
        axes.grid(True, which="minor", alpha=0.12)
    return figure, panels if right else panels[0]


def count(deliveries: float) -> str:
    """For a title: 10^8 deliveries a point."""
    digits, power = f"{deliveries:.0e}".split("e")
    factor = "" if digits == "1" else digits + r" \cdot "
    return f"${factor}10^{int(power)}$ deliveries a point"


def curve(axes: Any, rows: Sequence[Row], x: str, label: str, colour: str, figure: str = "exact_rate") -> None:
    """Measured points with their standard errors."""
    rows = [row for row in rows if row[figure] > 0]  # what never happened has no place on a logarithmic axis
    axes.errorbar(
        [row[x] for row in rows],
        [row[figure] for row in rows],
        yerr=[row.get(f"{figure}_error", 0) for row in rows],
        fmt="o-",
        markersize=4,
        linewidth=1.4,
        capsize=2.5,
        color=colour,
        label=label,
    )


def theory(axes: Any, rows: Sequence[Row], x: str, label: str | None, colour: str) -> None:
    """The paper's bound with the measured P_nc."""
    axes.plot([row[x] for row in rows], [row["theory"] for row in rows], "--", linewidth=1.1, color=colour, label=label)


def best(rows: Sequence[Row], key: str, figure: str = "exact_rate") -> Row:
    """The row with the least of a figure."""
    return min(rows, key=lambda row: (row[figure], row[key]))


def worse(row: Row, other: Row, figure: str = "exact_rate") -> tuple[float, float]:
    """By how much a row is worse than another with the same messages, and the standard error of that."""
    pairs = zip(row[f"{figure}_runs"], other[f"{figure}_runs"], strict=True)
    differences = [a - b for a, b in pairs]
    return fmean(differences), stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
