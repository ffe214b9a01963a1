"""`whence import`: what other systems recorded, as a trace that `whence audit` judges."""

from __future__ import annotations

import argparse
import json
import sys

from whence.audit.conform.broadcast import read_histories
from whence.audit.trace import open_trace
from whence.audit.trace.otel import COUNTER, read_spans
from whence.cli import CLEAN, DOUBT
from whence.errors import TraceError, UsageError

SHOWN = 10


def import_(args: argparse.Namespace) -> int:
    """Write the trace; 3 if not everything could be taken."""
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
