"""Runs many settings, in local processes or on a Spark master.

A runner is named `module:function`, or `scale`, and takes a setting (plain values) with its seed, as in `whence sweep`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import Any

from whence.errors import UsageError

Setting = Mapping[str, Any]
Result = dict[str, Any]
Progress = Callable[[int, int], None]
"""`(done, all)`."""


def run_all(
    runner: str, settings: Sequence[Setting], master: str | None = None, progress: Progress | None = None
) -> list[Result]:
    """The runner's result for each setting, in order. Raises UsageError for a run that failed."""
    if master is not None:
        return on_spark(runner, settings, master)
    jobs = min(len(settings), os.cpu_count() or 1)
    if jobs <= 1:
        return _collect(map(_call, [runner] * len(settings), settings), len(settings), progress)
    with ProcessPoolExecutor(jobs) as pool:
        return _collect(pool.map(_call, [runner] * len(settings), settings), len(settings), progress)


def _collect(results: Iterable[Result], total: int, progress: Progress | None) -> list[Result]:
    found: list[Result] = []
    for result in results:
        found.append(result)
        if progress:
            progress(len(found), total)
    return found


def _call(runner: str, setting: Setting) -> Result:
    module, _, function = runner.partition(":")
    found: Result = getattr(import_module(module), function)(dict(setting))
    return found


def on_spark(runner: str, settings: Sequence[Setting], master: str) -> list[Result]:
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
