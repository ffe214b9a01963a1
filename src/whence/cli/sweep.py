"""`whence sweep`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import pyarrow as pa
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
    results = gather(grid, out)
    failed = [row for row in results.select(["setting", "seed", "error"]).to_pylist() if row["error"] is not None]
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
        console().print(_results(results))
        for error in failed[:SHOWN]:
            print(f"failed: seed {error['seed']} of {error['setting']}: {error['error']}", file=sys.stderr)
    return 1 if failed else 0


def _results(results: pa.Table) -> Table:
    """Each setting, with the mean over its seeds of every number in the results: what differs between settings first,
    as many columns as fit."""
    while any(pa.types.is_struct(type) for type in results.schema.types):
        results = results.flatten()
    rows = results.to_pandas()
    rows = rows[rows["error"].isna()]
    settings = {text: json.loads(text) for text in rows["setting"].unique()}
    varied = [key for key in next(iter(settings.values()), {}) if len({str(s.get(key)) for s in settings.values()}) > 1]
    known = POINT | {name.replace(".", "_") for setting in settings.values() for name in setting}
    means = rows.select_dtypes("number").groupby(rows["setting"], sort=False).mean()
    numbers = sorted(set(means.columns) - known, key=lambda name: (means[name].nunique() < 2, [*means].index(name)))
    shown = numbers[: max(1, COLUMNS - len(varied))]
    more = f"; {len(numbers) - len(shown)} more numbers in the results" if len(numbers) > len(shown) else ""
    table = Table(*varied, "seeds", *shown, title=f"means over seeds{more}")
    for text, setting in settings.items():
        cells = [f"{means.at[text, name]:,.6g}" for name in shown]
        table.add_row(*(str(setting.get(key)) for key in varied), str((rows["setting"] == text).sum()), *cells)
    return table
