"""`whence sweep`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from whence.audit.spark.session import session
from whence.audit.spark.sweep import all_points, gather, load_grid, missing, run_missing
from whence.cli.show import console, facts, progress

SHOWN = 10
"""Errors that are shown; all are in the table."""
COLUMNS = 10
POINT = {"point", "seed_number", "seed", "setting", "error", "seconds"}
"""The columns of the results that are neither a setting nor a figure (`whence.audit.spark.sweep.results`)."""


def sweep(args: argparse.Namespace) -> int:
    """Run a grid. Exit code 1 when a point failed."""
    begun, out = time.perf_counter(), Path(args.out)
    grid = load_grid(args.grid)
    total, todo = len(all_points(grid)), len(missing(grid, out))
    if todo:
        with progress("starting Spark") as tick:
            spark = session(args.master, verbose=args.talk > 0)
            run_missing(spark, grid, out, lambda done, bad, _: tick(done / total, f"{grid.name}, {bad} failed"))
    rows = gather(grid, out).to_pylist()
    failed = [{name: row[name] for name in ("setting", "seed", "error")} for row in rows if row["error"] is not None]
    summary = {
        "grid": grid.name,
        "points": total,
        "finished_before": total - todo,
        "failed": len(failed),
        "seconds": round(time.perf_counter() - begun, 1),
        "results": str(out / "results"),
    }
    if args.json:
        print(json.dumps({**summary, "errors": failed[:SHOWN]}))
    else:
        console().print(facts("", {key.replace("_", " "): str(value) for key, value in summary.items()}))
        console().print(_results(rows))
        for error in failed[:SHOWN]:
            print(f"failed: seed {error['seed']} of {error['setting']}: {error['error']}", file=sys.stderr)
    return 1 if failed else 0


def _results(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Each setting, with the mean over its seeds of every number in the results: what differs between settings first,
    as many columns as fit."""
    found: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        if row["error"] is None:
            known = POINT | {name.replace(".", "_") for name in json.loads(row["setting"])}
            figures = {name: value for name, value in row.items() if name not in known}
            found.setdefault(row["setting"], []).append(numbers(figures))
    settings = {setting: json.loads(setting) for setting in found}
    varied = [key for key in next(iter(settings.values()), {}) if len({str(s.get(key)) for s in settings.values()}) > 1]
    means = {
        setting: {name: sum(seed.get(name, 0.0) for seed in seeds) / len(seeds) for name in seeds[0]}
        for setting, seeds in found.items()
    }
    names = list(next(iter(means.values()), {}))
    names.sort(key=lambda name: len({mean.get(name) for mean in means.values()}) == 1)
    shown = names[: max(1, COLUMNS - len(varied))]
    more = f"; {len(names) - len(shown)} more numbers in the results" if len(names) > len(shown) else ""
    table = Table(*varied, "seeds", title=f"means over seeds{more}")
    for name in shown:
        table.add_column(name, justify="right")
    for setting, mean in means.items():
        cells = [f"{mean[name]:,.6g}" if name in mean else "-" for name in shown]
        table.add_row(*(str(settings[setting].get(key)) for key in varied), str(len(found[setting])), *cells)
    return table


def numbers(result: object, prefix: str = "") -> dict[str, float]:
    """The numbers in a result, by their path."""
    if isinstance(result, int | float) and not isinstance(result, bool):
        return {prefix: float(result)}
    pairs = result.items() if isinstance(result, dict) else enumerate(result) if isinstance(result, list) else ()
    out: dict[str, float] = {}
    for key, value in pairs:
        out |= numbers(value, f"{prefix}.{key}" if prefix else str(key))
    return out
