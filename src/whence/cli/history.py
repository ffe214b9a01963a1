"""`whence history`: are these client histories consistent, and if not, why?"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from whence.audit.history import LEVELS, check, discover, read
from whence.audit.history.picture import page
from whence.audit.history.save import save
from whence.audit.history.story import story
from whence.cli.show import progress
from whence.errors import HistoryError, UsageError


def history(args: argparse.Namespace) -> int:
    """Check every history; the exit code is the worst of all."""
    if args.certificate and args.out is None:
        raise UsageError("--certificate writes a file: say where with --out DIR")
    levels = [level for level in LEVELS if level.lower() in args.level] or None
    paths, out = discover(args.paths), None if args.out is None else Path(args.out)
    if out is not None:
        if out.is_dir() and any(out.iterdir()):
            raise UsageError(f"{out} is not empty (it may have findings of an earlier check): name another folder")
        out.mkdir(parents=True, exist_ok=True)
        (out / "findings.jsonl").touch()  # a folder that cannot be written to is named now, not after the check
    reports, taken, worst = [], Counter[str](), 0
    for path in paths:
        try:
            with progress("checking (the first check on a machine compiles for a while)"):
                report = check(read(path, args.format), levels)
        except HistoryError as error:
            if len(paths) == 1:
                raise
            print(f"whence: {error}", file=sys.stderr)  # and the others are checked
            worst = 2
            continue
        if out is not None:
            stem = path.name.partition(".")[0] or "history"
            taken[stem] += 1
            save(out, stem if taken[stem] == 1 else f"{stem}-{taken[stem]}", report, args.certificate)
        print(json.dumps(report.as_dict(), default=str) if args.json else f"{story(report)}\n", flush=True)
        report.order = None  # written; it is as long as the history
        reports.append(report)
        worst = max(worst, 0 if report.holds else 1)
    if out is not None and reports:
        (out / "index.html").write_text(page(reports), encoding="utf-8")
        print(f"page: {out / 'index.html'}", file=sys.stderr)
    return worst
