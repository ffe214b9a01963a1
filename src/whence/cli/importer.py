"""`whence import`: what other systems recorded, as a trace that `whence audit` judges."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli import CLEAN, DOUBT
from whence.cli.later import later
from whence.errors import TraceError, UsageError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

SHOWN = 10


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "import",
        help="spans and histories of other systems as a trace, to audit",
        description="Turn what other systems recorded into a trace, for `whence audit`. Exit code 0: all of it is "
        "there, 2: bad input, 3: something was refused; file and line are named.",
    )
    command.add_argument(
        "format",
        choices=("otel", "broadcast"),
        help="otel: OpenTelemetry spans, OTLP JSON; broadcast: history.edn of a broadcast workload (Maelstrom, Jepsen)",
    )
    command.add_argument("paths", nargs="+", type=Path, metavar="FILE")
    command.add_argument("--out", type=Path, required=True, metavar="TRACE", help="a new .parquet or .jsonl file")
    command.add_argument(
        "--order",
        choices=("unordered", "fifo", "causal", "reliable"),
        default="causal",
        help="what the system promises (default causal)",
    )
    command.add_argument(
        "--counter",
        metavar="ATTRIBUTE",
        help="otel: the attribute with each process's count of its steps (default whence.counter)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(call=later("importer", "import_"))


def import_(args: argparse.Namespace) -> int:
    """Write the trace; 3 if not everything could be taken."""
    from whence.conform.broadcast import read_histories
    from whence.trace import open_trace
    from whence.trace.otel import COUNTER, read_spans

    if args.counter is not None and args.format != "otel":
        raise UsageError("--counter is for otel: a history numbers its own operations")
    if args.out.exists():
        raise UsageError(f"--out {args.out} exists; name a new file")
    if args.format == "otel":
        made = read_spans(args.paths, order=args.order, counter=args.counter or COUNTER)
    else:
        made = read_histories(args.paths, order=args.order)
    if not made.rows:
        why = f"; the first reason: {made.refused[0]}" if made.refused else ""
        raise TraceError(f"nothing to import in {' '.join(map(str, args.paths))}{why}")
    with open_trace(args.out) as trace:
        trace.append_many(made.rows)
    members = len({(row.run, row.member) for row in made.rows})
    for refused in made.refused[:SHOWN]:
        print(f"whence: {refused}", file=sys.stderr)
    if len(made.refused) > SHOWN:
        print(f"whence: and {len(made.refused) - SHOWN:,} more", file=sys.stderr)
    if args.json:
        said = {"rows": len(made.rows), "members": members, "refused": len(made.refused), "out": str(args.out)}
        print(json.dumps(said))
    else:
        refusals = f"; {len(made.refused):,} refused" if made.refused else ""
        print(f"{len(made.rows):,} steps of {members:,} members{refusals}: {args.out}")
        print(f"next: whence audit {args.out} --out verdicts")
    return DOUBT if made.refused else CLEAN
