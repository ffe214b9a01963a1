"""What an experiment consists of, how it is run, and the runs of many settings."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from whence.lab.stats import Estimate

Row = dict[str, Any]
Statistics = dict[str, list[Estimate]]
"""Key of a claim -> what it is judged by (`whence.lab.paper.claims`)."""
Setting = Mapping[str, Any]
Progress = Callable[[int, int], None]
"""`(done, all)`."""


class Made(msgspec.Struct, frozen=True):
    """Where and when rows were measured."""

    commit: str = ""
    date: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"Commit {self.commit or 'unknown'}, {self.date or 'no date'}, {self.machine or 'unknown machine'}."

    @classmethod
    def here(cls) -> Made:
        """This commit (with a + if it was changed), today, this machine."""
        git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
        try:
            commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            commit = ""
        machine = f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}"
        return cls(commit, datetime.now(UTC).date().isoformat(), machine)


class StudyOutcome(msgspec.Struct):
    """The result of an experiment."""

    rows: list[Row]
    statistics: Statistics
    figure: Any = None
    note: str = ""
    made: Made = Made()


class RunOptions(msgspec.Struct):
    """How to run an experiment."""

    quick: bool = False
    """Takes seconds, with far fewer deliveries and larger errors."""
    seed: int = 0
    tell: Callable[[float, str], None] | None = None
    data: str = ""
    """A file with an editing session, for the experiment that uses one. Empty: see
    `whence.lab.replay.session`."""

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


# -- many settings: a runner is named `module:function`, and takes a setting with its seed, as in `whence sweep`

ARRAYS = "whence.lab.scale.run:point"
"""The runner of the array engine, which uses all cores for each setting."""


def run_all(runner: str, settings: Sequence[Setting], progress: Progress | None = None) -> list[Row]:
    """The runner's result for each setting, in order."""
    found: list[Row] = []
    jobs = 1 if runner == ARRAYS else min(len(settings), os.cpu_count() or 1)
    die = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # Ctrl-C does not wait for the runs that have begun
    with ProcessPoolExecutor(jobs, initializer=die) if jobs > 1 else nullcontext() as pool:
        for result in (map if pool is None else pool.map)(_call, [runner] * len(settings), settings):
            found.append(result)
            if progress:
                progress(len(found), len(settings))
    return found


def _call(runner: str, setting: Setting) -> Row:
    module, _, function = runner.partition(":")
    found: Row = getattr(import_module(module), function)(dict(setting))
    return found


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
    found = run_all(runner, todo, options.count(what))
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


COUNTED = ("deliveries", "errors", "overtaken", "alerts4", "alerts5", "unalerted4", "unalerted5")
"""Results of the array engine that add up over the runs of a point."""


def on_arrays(options: RunOptions, points: Sequence[Row], seeds: int = 8) -> list[Row]:
    """Run each point on the array engine with several seeds, which share its deliveries. One row per point.

    Points with the same seed, processes and rate have the same messages, so they can be compared run by run. Runs are
    independent; the deliveries of one run are not.
    """
    shared = [{**point, "deliveries": point["deliveries"] / seeds, "threads": None} for point in points]
    found = []
    for point, runs in zip(points, grid(options, shared, seeds, ARRAYS, "points"), strict=True):
        row = summary(point, runs, [key for key in point if key != "deliveries"])
        found.append(row | {key: round(total(row, key)) for key in COUNTED})
    return found
