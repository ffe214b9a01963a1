"""`whence sweep`."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from whence.cli.show import console
from whence.spark.session import session
from whence.spark.sweep import all_points, gather, load_grid, missing, run_missing

SHOWN = 10
"""Errors that are shown; all are in the table."""


def sweep(args: argparse.Namespace) -> int:
    """Run a grid. Exit code 1 when a point failed."""
    begun = time.perf_counter()
    grid = load_grid(args.grid)
    total, todo = len(all_points(grid)), len(missing(grid, args.out))
    if todo:
        with _bar() as bar:
            task = bar.add_task("starting Spark", total=total, completed=total - todo)
            spark = session(args.master, args.memory, args.verbose)

            def tick(done: int, failed: int, _: int) -> None:
                what = f"{grid.name}, {failed} failed" if failed else grid.name
                bar.update(task, completed=done, description=what)

            run_missing(spark, grid, args.out, tick)
    table = gather(grid, args.out)
    failed = [row for row in table.select(["setting", "seed", "error"]).to_pylist() if row["error"] is not None]
    summary = {
        "grid": grid.name,
        "points": total,
        "finished_before": total - todo,
        "failed": len(failed),
        "seconds": round(time.perf_counter() - begun, 1),
        "results": str(args.out / "results"),
    }
    errors = failed[:SHOWN]
    if args.json:
        print(msgspec.json.encode({**summary, "errors": errors}).decode())
        return 1 if summary["failed"] else 0
    shown = Table(show_header=False)
    for key, value in summary.items():
        shown.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    console().print(shown)
    for error in errors:
        print(f"failed: seed {error['seed']} of {error['setting']}: {error['error']}", file=sys.stderr)
    return 1 if summary["failed"] else 0


def _bar() -> Progress:
    """On standard error, if somebody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )
