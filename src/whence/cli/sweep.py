"""`whence sweep`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
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
    good = results.filter(pc.is_null(results["error"]))
    settings = [json.loads(str(text)) for text in good["setting"].unique().to_pylist()]
    known = POINT | {name.replace(".", "_") for setting in settings for name in setting}
    numbers = [f.name for f in results.schema if f.name not in known and _is_number(f.type)]
    means = good.group_by("setting", use_threads=False).aggregate([(n, "mean") for n in numbers] + [("seed", "count")])
    differs = {name: len(set(means[f"{name}_mean"].to_pylist())) > 1 for name in numbers}
    varied = [key for key in (settings or [{}])[0] if len({str(setting.get(key)) for setting in settings}) > 1]
    shown = sorted(numbers, key=lambda name: not differs[name])[: max(1, COLUMNS - len(varied))]
    more = f"; {len(numbers) - len(shown)} more numbers in the results" if len(numbers) > len(shown) else ""
    table = Table(*varied, "seeds", *shown, title=f"means over seeds{more}")
    for row in means.to_pylist():
        setting = json.loads(row["setting"])
        cells = ["-" if row[f"{name}_mean"] is None else f"{row[f'{name}_mean']:,.6g}" for name in shown]
        table.add_row(*(str(setting.get(key)) for key in varied), str(row["seed_count"]), *cells)
    return table


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type))
