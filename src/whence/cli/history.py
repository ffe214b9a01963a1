"""`whence history`: are these client histories consistent, and if not, why?"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.audit.history import History, Level, check, discover, read
from whence.audit.history.formats import suffix_of
from whence.audit.history.levels import parse_level
from whence.audit.history.picture import page
from whence.audit.history.save import save
from whence.audit.history.story import story
from whence.errors import HistoryError, UsageError

if TYPE_CHECKING:
    from whence.audit.spark.histories import Checked


def history(args: argparse.Namespace) -> int:
    """Check every history; the exit code is the worst of all."""
    if args.certificate and args.out is None:
        raise UsageError("--certificate writes a file: say where with --out DIR")
    levels = [parse_level(level) for level in args.level] or None
    paths, out = discover(args.paths), None if args.out is None else Path(args.out)
    if args.master is not None:
        return _on_spark(args, paths, levels, out)
    if out is not None:
        if (out / "findings.jsonl").exists():
            raise UsageError(f"{out} has findings of an earlier check: name another folder")
        out.mkdir(parents=True, exist_ok=True)
        (out / "findings.jsonl").touch()  # a folder that cannot be written to is named now, not after the check
    reports, taken = [], Counter[str]()

    def one(path: Path) -> None:
        report = check(read(path, args.format), levels)
        if out is not None:
            stem = path.name.partition(".")[0] or "history"
            taken[stem] += 1
            save(out, stem if taken[stem] == 1 else f"{stem}-{taken[stem]}", report, args.certificate)
        print(json.dumps(report.as_dict(), default=str) if args.json else f"{story(report)}\n", flush=True)
        report.order = None  # written; it is as long as the history
        reports.append(report)

    worst = _each(paths, one)
    if out is not None and reports:
        (out / "index.html").write_text(page(reports), encoding="utf-8")
        print(f"page: {out / 'index.html'}", file=sys.stderr)
    return max(worst, *(0 if report.holds else 1 for report in reports), 0)


def _each(paths: list[Path], work: Callable[[Path], object]) -> int:
    """Do it for each; of several the bad ones are told (2) and the others done."""
    worst = 0
    for path in paths:
        try:
            work(path)
        except HistoryError as error:
            if len(paths) == 1:
                raise
            print(f"whence: {error}", file=sys.stderr)
            worst = 2
    return worst


def _on_spark(args: argparse.Namespace, paths: list[Path], levels: list[Level] | None, out: Path | None) -> int:
    """Parquet tables of operations are spread one after the other; other formats are checked side by side."""
    from whence.audit.spark import histories
    from whence.audit.spark.session import session

    tables = [path for path in paths if args.format == "auto" and suffix_of(path) == ".parquet"]
    small: list[History] = []
    worst = _each([path for path in paths if path not in tables], lambda path: small.append(read(path, args.format)))
    spark = session(args.master)
    frames = [(str(path), histories.read(spark, str(path))) for path in tables]
    for file, frame in [*frames, *(("", frame) for frame in histories.frames(spark, small))]:
        checked = histories.check(frame, levels, args.certificate)
        if out is not None:
            for name in ("verdicts", "findings", "order"):
                getattr(checked, name).write.mode("append").parquet(str(out / name))
        worst = max(worst, _tell_spark(file, checked, args.json))
    return worst


def _tell_spark(file: str, checked: Checked, as_json: bool) -> int:
    """Print the verdicts of one check; returns its exit code."""
    told: dict[str, dict[str, Any]] = {}
    for row in checked.verdicts.collect():
        name = file or row["history"]
        one = told.setdefault(name, {"file": name, "levels": {}, "patterns": {}, "counterexample": None, "story": None})
        one["levels"][row["level"]] = row["holds"]
        one |= {each: row[each] for each in ("operations", "transactions", "sessions", "seconds")}
        one["notes"] = row["notes"].split("; ") if row["notes"] else []
    for row in checked.findings.collect():
        one = told[file or row["history"]]
        one["patterns"][row["pattern"]] = row["count"]
        one["story"] = row["story"].replace("history:", f"{file}:", 1) if file else row["story"]
        if row["smallest"]:
            one["counterexample"] = json.loads(row["finding"])
    for name, one in told.items():
        said = ", ".join(f"{level} {'holds' if good else 'violated'}" for level, good in one["levels"].items())
        notes = "".join(f"\n  note: {note}" for note in one["notes"])
        print(json.dumps(one) if as_json else f"{one['story'] or f'{name}: {said}{notes}'}\n", flush=True)
    return 0 if all(good for one in told.values() for good in one["levels"].values()) else 1
