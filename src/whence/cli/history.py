"""`whence history`: are these client histories consistent, and if not, why?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.errors import HistoryError, UsageError

if TYPE_CHECKING:
    from whence.audit.history import History, HistoryReport, Level
    from whence.audit.spark.histories import Checked


def history(args: argparse.Namespace) -> int:
    """Check every history; the exit code is the worst of all."""
    from whence.audit.history import discover
    from whence.audit.history.levels import parse_level

    if args.certificate and args.out is None:
        raise UsageError("--certificate writes a file: say where with --out DIR")
    levels = [parse_level(level) for level in args.level] or None
    args.out = None if args.out is None else Path(args.out)
    worst = 0
    found = discover(args.paths)
    if args.master is not None:
        return _on_spark(found, args, levels)
    taken: set[str] = set()
    if args.out is not None:
        if (args.out / "findings.jsonl").exists():
            raise UsageError(f"{args.out} has findings of an earlier check: name another folder")
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "findings.jsonl").touch()  # a folder that cannot be written to is named now, not after the check
    reports: list[HistoryReport] = []
    for path in found:
        try:
            reports.append(_one(path, args, levels, taken))
        except HistoryError as error:
            if len(found) == 1:
                raise
            print(f"whence: {error}", file=sys.stderr)
            worst = 2
            continue
        worst = max(worst, 0 if reports[-1].holds else 1)
    if args.out is not None and reports:
        from whence.audit.history.picture import page

        (args.out / "index.html").write_text(page(reports), encoding="utf-8")
        print(f"page: {args.out / 'index.html'}", file=sys.stderr)
    return worst


def _one(path: Path, args: argparse.Namespace, levels: list[Level] | None, taken: set[str]) -> HistoryReport:
    from whence.audit.history import check, read
    from whence.audit.history.save import save
    from whence.audit.history.story import story

    report = check(read(path, args.format), levels)
    if args.out is not None:
        name = stem = path.name.partition(".")[0] or "history"
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        save(args.out, name, report, args.certificate)
    print(json.dumps(report.as_dict(), default=str) if args.json else f"{story(report)}\n", flush=True)
    report.order = None  # written; it is as long as the history
    return report


def _on_spark(paths: list[Path], args: argparse.Namespace, levels: list[Level] | None) -> int:
    """Parquet tables of operations are spread one after the other; other formats are checked side by side."""
    from whence.audit.history.formats import read, suffix_of
    from whence.audit.spark import histories
    from whence.audit.spark.session import session

    tables = [path for path in paths if args.format == "auto" and suffix_of(path) == ".parquet"]
    small: list[History] = []
    worst = 0
    for path in paths:
        try:
            small += [] if path in tables else [read(path, args.format)]
        except HistoryError as error:
            if len(paths) == 1:
                raise
            print(f"whence: {error}", file=sys.stderr)
            worst = 2
    spark = session(args.master)
    frames = [(str(path), histories.read(spark, str(path))) for path in tables]
    for file, frame in [*frames, *(("", frame) for frame in histories.frames(spark, small))]:
        checked = histories.check(frame, levels, args.certificate)
        if args.out is not None:
            for name in ("verdicts", "findings", "order"):
                getattr(checked, name).write.mode("append").parquet(str(args.out / name))
        worst = max(worst, _tell_spark(file, checked, args.json))
    return worst


def _tell_spark(file: str, checked: Checked, as_json: bool) -> int:
    """Print the verdicts of one check; returns its exit code."""
    told: dict[str, dict[str, Any]] = {}
    for row in checked.verdicts.collect():
        name = file or row["history"]
        one = told.setdefault(name, {"file": name, "levels": {}, "patterns": {}})
        one["levels"][row["level"]] = row["holds"]
        one |= {each: row[each] for each in ("operations", "transactions", "sessions", "seconds")}
        one |= {"counterexample": None, "story": None, "notes": row["notes"].split("; ") if row["notes"] else []}
    for row in checked.findings.collect():
        one = told[file or row["history"]]
        one["patterns"][row["pattern"]] = row["count"]
        one["story"] = row["story"].replace("history:", f"{file}:", 1) if file else row["story"]
        if row["smallest"]:
            one["counterexample"] = json.loads(row["finding"])
    for name, one in told.items():
        if as_json:
            print(json.dumps(one), flush=True)
        else:
            said = ", ".join(f"{level} {'holds' if good else 'violated'}" for level, good in one["levels"].items())
            notes = "".join(f"\n  note: {note}" for note in one["notes"])
            print(f"{one['story'] or f'{name}: {said}{notes}'}\n", flush=True)
    return 0 if all(good for one in told.values() for good in one["levels"].values()) else 1
