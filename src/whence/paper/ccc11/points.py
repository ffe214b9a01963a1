"""Many simulated runs, on local processes or on the executors of a Spark master.

A runner is named `module:function` and takes a setting (plain values) with its seed, as in `whence sweep`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import Any

from whence.errors import UsageError

Setting = Mapping[str, Any]
Progress = Callable[[int, int], None]
"""`(done, all)`."""


def run_all(
    runner: str, settings: Sequence[Setting], master: str | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """What the runner gives for each setting, in their order. UsageError names a run that failed."""
    if master is not None:
        return _on_spark(runner, settings, master)
    jobs = min(len(settings), os.cpu_count() or 1)
    results: list[dict[str, Any]] = []
    if jobs <= 1:
        for setting in settings:
            results.append(_call(runner, setting))
            if progress:
                progress(len(results), len(settings))
        return results
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(_call, [runner] * len(settings), settings):
            results.append(result)
            if progress:
                progress(len(results), len(settings))
    return results


def _call(runner: str, setting: Setting) -> dict[str, Any]:
    module, _, function = runner.partition(":")
    found: dict[str, Any] = getattr(import_module(module), function)(dict(setting))
    return found


def _on_spark(runner: str, settings: Sequence[Setting], master: str) -> list[dict[str, Any]]:
    from whence.spark.session import session
    from whence.spark.sweep import Point, points, run_points

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
