"""`python -m bench [--json] [name ...]`: runs every `bench/<name>.py` and prints one table.

Each has a `main() -> list[dict]`, one dict per row: `what` was measured, and the figures under their names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))


def show(value: object) -> str:
    """A number with a sensible number of digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def table(rows: list[Row]) -> Table:
    """One line per row: benchmarks measure different things, so the figures keep their names."""
    out = Table("bench", "what", "measured")
    for row in rows:
        figures = [f"{name} {show(value)}" for name, value in row.items() if name not in ("bench", "what")]
        out.add_row(str(row["bench"]), str(row.get("what", "")), ", ".join(figures))
    return out


def run(chosen: list[str], log: Console) -> tuple[list[Row], list[str]]:
    """The rows of each benchmark, and the names of those that failed."""
    rows: list[Row] = []
    failed: list[str] = []
    for name in chosen:
        log.print(f"bench: {name} ...")
        try:
            found = importlib.import_module(f"bench.{name}").main()
            if not isinstance(found, list):
                raise TypeError(f"bench/{name}.py: main() has to return a list of dicts, not {type(found).__name__}")
            rows += [{"bench": name, **row} for row in found]
        except Exception:
            traceback.print_exc()
            failed.append(name)
    return rows, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and print one table.")
    parser.add_argument("name", nargs="*", help="run only these: " + ", ".join(names()))
    parser.add_argument("--json", action="store_true", help="print a JSON list of rows instead of the table")
    args = parser.parse_args()
    unknown = [name for name in args.name if name not in names()]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are: {', '.join(names())})")
    rows, failed = run(args.name or names(), Console(stderr=True))
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
