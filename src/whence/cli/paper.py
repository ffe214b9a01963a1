"""`whence paper`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
from rich.table import Table

from whence.cli.show import console, progress
from whence.errors import UsageError
from whence.paper import EXPERIMENTS, experiment


def paper(args: argparse.Namespace) -> int:
    """Redo an experiment, or list them."""
    if args.name is None:
        _list(args.json)
        return 0
    run = experiment(args.name)
    from whence.paper.frame import Context, save  # needs numba and pyarrow: the list does not
    from whence.scale import CITIES, read_latencies

    latencies = read_latencies(args.latencies or CITIES)
    out = args.out or Path("out") / args.name
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a directory")
    with progress("starting") as tell:
        outcome = run(Context(args.quick, args.seed, latencies, args.master, tell, args.live, str(args.data or "")))
    files = save(out, args.name, outcome)
    if args.json:
        claims = msgspec.to_builtins(outcome.claims)
        print(
            json.dumps(
                {"experiment": args.name, "note": outcome.note, "claims": claims, "files": list(map(str, files))}
            )
        )
        return 0
    table = Table("claim", "holds", title=args.name)
    for claim in outcome.claims:
        table.add_row(claim.text, "yes" if claim.holds else "[bold red]no[/]")
    show = console()
    if outcome.claims:
        show.print(table)
    if outcome.note:
        show.print(outcome.note, markup=False)
    show.print(f"written: {', '.join(map(str, files))}", markup=False, soft_wrap=True)
    return 0


def _list(as_json: bool) -> None:
    if as_json:
        print(json.dumps(EXPERIMENTS))
        return
    table = Table("experiment", "what it shows")
    for name, what in EXPERIMENTS.items():
        table.add_row(name, what)
    console().print(table)
