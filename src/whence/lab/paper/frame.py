"""What an experiment consists of, how it is run, and the runs of many settings, in local processes or on Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from statistics import fmean
from typing import Any

import msgspec

from whence.errors import UsageError
from whence.lab.scale.run import point as scale_point
from whence.lab.stats import Estimate

Row = dict[str, Any]
Statistics = dict[str, list[Estimate]]
"""Key of a claim -> what it is judged by (`whence.lab.paper.claims`)."""
Setting = Mapping[str, Any]
Progress = Callable[[int, int], None]
"""`(done, all)`."""


class StudyOutcome(msgspec.Struct):
    """The result of an experiment."""

    rows: list[Row]
    statistics: Statistics
    figure: Any = None
    note: str = ""


class RunOptions(msgspec.Struct):
    """How to run an experiment."""

    quick: bool = False
    """Takes seconds, with far fewer deliveries and larger errors."""
    seed: int = 0
    latencies: tuple[tuple[float, ...], ...] = ()
    """Round-trip times in ms, for the experiments that use them."""
    master: str | None = None
    """A Spark master to run the points on. Without one they run here."""
    tell: Callable[[float, str], None] | None = None
    data: str = ""
    """A file with an editing session, for the experiment that uses one. Empty: see
    `whence.live.objects.replay.session`."""

    def size(self, deliveries: float, quick: float) -> float:
        """Deliveries of a point. Many, because errors are correlated: one slow message is late at many receivers."""
        return quick if self.quick else deliveries

    def say(self, share: float, what: str) -> None:
        """Report progress: the share that is done, and the current step."""
        if self.tell:
            self.tell(share, what)

    def count(self, what: str) -> Progress:
        """A progress callback `(done, total)`."""
        return lambda done, total: self.say(done / total, f"{what}: {done} of {total}")


class Study(msgspec.Struct, frozen=True):
    """An experiment: what is measured, what the claims are judged by, the picture and remarks for the reader."""

    measure: Callable[[RunOptions], list[Row]]
    statistics: Callable[[list[Row]], Statistics]
    draw: Callable[[list[Row]], Any] | None = None
    note: str | Callable[[list[Row]], str] = ""

    def outcome(self, rows: list[Row]) -> StudyOutcome:
        """What follows from the rows."""
        note = self.note if isinstance(self.note, str) else self.note(rows)
        return StudyOutcome(rows, self.statistics(rows), self.draw(rows) if self.draw else None, note)


# -- many settings: a runner is named `module:function`, or `scale`, and takes a setting with its seed, as in `whence
# sweep`


def run_all(
    runner: str, settings: Sequence[Setting], master: str | None = None, progress: Progress | None = None
) -> list[Row]:
    """The runner's result for each setting, in order. Raises UsageError for a run that failed."""
    if master is not None:
        return _on_spark(runner, settings, master)
    jobs = min(len(settings), os.cpu_count() or 1)
    if jobs <= 1:
        return _collect(map(_call, [runner] * len(settings), settings), len(settings), progress)
    with ProcessPoolExecutor(jobs) as pool:
        return _collect(pool.map(_call, [runner] * len(settings), settings), len(settings), progress)


def _collect(results: Iterable[Row], total: int, progress: Progress | None) -> list[Row]:
    found: list[Row] = []
    for result in results:
        found.append(result)
        if progress:
            progress(len(found), total)
    return found


def _call(runner: str, setting: Setting) -> Row:
    module, _, function = runner.partition(":")
    found: Row = getattr(import_module(module), function)(dict(setting))
    return found


def _on_spark(runner: str, settings: Sequence[Setting], master: str) -> list[Row]:
    """One Spark task per setting; the results are the same as locally."""
    from whence.audit.spark.session import session
    from whence.audit.spark.sweep import Point, points, run_points

    spark = session(master)
    some = [
        Point(f"{i:06}", 0, int(s.get("seed", 0)), json.dumps({k: v for k, v in s.items() if k != "seed"}))
        for i, s in enumerate(settings)
    ]
    rows = run_points(points(spark, some).repartition(len(some)), runner).collect()
    for row in rows:
        if row["error"] is not None:
            raise UsageError(f"a run failed: {row['setting']}, seed {row['seed']}: {row['error']}")
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: str(row["point"]))]


def over_seeds(
    options: RunOptions, settings: Sequence[Row], seeds: int, keep: Sequence[str], runner: str, what: str = "runs"
) -> list[Row]:
    """Run each setting with each seed. A row has the settings to keep, the mean of every number, and `runs`. All
    settings use the same seeds, so they can be compared run by run."""
    found = grid(options, settings, seeds, runner, what)
    return [summary(setting, runs, keep) for setting, runs in zip(settings, found, strict=True)]


def grid(options: RunOptions, settings: Sequence[Row], seeds: int, runner: str, what: str = "runs") -> list[list[Row]]:
    """The results of each setting with each seed."""
    todo = [{**s, "seed": options.seed * 1_000_003 + n} for s in settings for n in range(seeds)]
    found = run_all(runner, todo, options.master, options.count(what))
    return [found[i * seeds : (i + 1) * seeds] for i in range(len(settings))]


def summary(setting: Setting, runs: Sequence[Row], keep: Sequence[str]) -> Row:
    """One row of several runs of a setting."""
    numbers = [{k: float(v) for k, v in run.items() if isinstance(v, int | float) and k not in keep} for run in runs]
    row: Row = {key: setting[key] for key in keep} | {"seeds": len(runs)}
    return row | {key: fmean(run[key] for run in numbers) for key in numbers[0]} | {"runs": numbers}


def by_run(row: Row, key: str) -> list[float]:
    """A result of each of the row's runs."""
    return [run[key] for run in row["runs"]]


def total(row: Row, key: str) -> float:
    """A count, over the row's runs."""
    return sum(by_run(row, key))


RUNS = ("exact_rate", "eps_min", "eps_max", "theory", "p_nc", "errors", "overtaken", "alerts4", "alerts5", "unalerted5")
"""Results of the array engine that are kept run by run, for paired comparisons."""


def on_arrays(options: RunOptions, points: Sequence[Row], seeds: int = 8) -> list[Row]:
    """Run each point on the array engine with several seeds, which share its deliveries. One row per point.

    Points with the same seed, processes and rate have the same messages, so their `<figure>_runs` can be compared pair
    by pair. Runs are independent; the deliveries of one run are not.
    """
    sized = [
        {**p, "deliveries": p["deliveries"] / seeds, "seed": options.seed * 1000 + i}
        for p in points
        for i in range(seeds)
    ]
    found = _on_spark("scale", sized, options.master) if options.master else _one_by_one(options, sized)
    rows = []
    for i, p in enumerate(points):
        runs = found[i * seeds : (i + 1) * seeds]
        row: Row = {key: value for key, value in p.items() if key != "latencies"}
        for key, first in runs[0].items():
            if (key in row and key != "deliveries") or key in ("seed", "latencies", "threads"):
                continue
            values = [run[key] for run in runs]
            row[key] = sum(values) if isinstance(first, int) or key.endswith("seconds") else fmean(values)
            if key in RUNS:
                row[f"{key}_runs"] = values
        rows.append(row)
    return rows


def _one_by_one(options: RunOptions, points: Sequence[Row]) -> list[Row]:
    """Each point uses all cores."""
    found = []
    for i, p in enumerate(points):
        options.say(i / len(points), f"point {i + 1} of {len(points)}")
        found.append(scale_point({**p, "threads": None}))
    return found
