"""`whence paper`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec
from rich.markup import escape
from rich.table import Table

from whence.cli.show import console, progress
from whence.errors import UsageError
from whence.lab.paper import EXPERIMENTS, Experiment
from whence.lab.paper.claims import STATEMENTS, JudgedClaim, judged
from whence.lab.paper.claims.page import Results, command, figure, shown, stored

STYLE = {"holds": "green", "fails": "bold red", "refuted": "bold red", "not decided": "yellow"}


def paper(args: argparse.Namespace) -> int:
    """Print the table of all claims, redo an experiment, or redo all of them."""
    if args.name is None:
        if args.quick or args.live or args.out:
            raise UsageError("which experiment? `whence paper` lists them; all redoes every one")
        _table(stored(), args.json)
        return 0
    everything = args.name == "all"
    one = None if everything else Experiment(args.name, args.live)
    out = Path(args.out or f"out/{args.name}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a directory")
    from whence.lab.paper import run as every  # needs numba and pyarrow: the table does not
    from whence.lab.paper.frame import RunOptions

    with progress("starting") as tell:
        options = RunOptions(quick=args.quick, seed=args.seed, data=str(args.editing or ""), tell=tell)
        try:
            if one is None:
                results, files = every.run(options, out, args.live)
            else:
                outcome, files = every.one(one, options, out)
        except KeyboardInterrupt:
            if one is None:
                print(f"whence: finished experiments are in {out}; the same command continues", file=sys.stderr)
            raise
    if one is None:
        _table(results, args.json)
    else:
        _claims(one.title, judged(one.title, outcome.statistics), outcome.note, files, args.json)
    if not args.json:
        console().print(f"written: {', '.join(map(str, files))}", markup=False, soft_wrap=True)
    return 0


def _claims(name: str, found: list[JudgedClaim], note: str, files: list[Path], as_json: bool) -> None:
    if as_json:
        claims = msgspec.to_builtins(found)
        print(json.dumps({"experiment": name, "note": note, "claims": claims, "files": list(map(str, files))}))
        return
    table = Table("claim", "wanted", "measured", "verdict", title=name)
    for claim in found:
        measured = figure(claim.worst) + (f" at {claim.worst.at}" if claim.worst else "")
        verdict = f"[{STYLE.get(claim.status, 'cyan')}]{claim.status}[/]"
        table.add_row(escape(claim.text), claim.threshold, escape(measured), verdict)
    show = console()
    show.print(table)
    if note:
        show.print(note, markup=False)


def _table(results: Results, as_json: bool) -> None:
    found = [
        (name, s, results.verdict(name, s), judged(name, results.statistics(name)))
        for name, some in STATEMENTS.items()
        for s in some
    ]
    if as_json:
        said = [
            {
                "place": s.place,
                "says": s.says,
                "verdict": verdict,
                "depends": s.depends,
                "command": command(name, results),
                "claims": msgspec.to_builtins(claims),
            }
            for name, s, verdict, claims in found
        ]
        print(json.dumps({"statements": said, "experiments": EXPERIMENTS}))
        return
    table = Table("place", "statement", "verdict", "whence paper ...", title="What the papers say, tested")
    for name, s, verdict, _ in found:
        text = f"[{STYLE.get(verdict, 'cyan')}]{escape(shown(verdict, s))}[/]"
        table.add_row(escape(s.place), escape(s.says), text, name)
    console().print(table)
