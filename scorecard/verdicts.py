"""What `whence audit` says of the traces, and the table of it. It judges nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from scorecard.runs import RUNS
from scorecard.servers import ROOT
from scorecard.systems import SYSTEMS, System

from whence.audit.spark.tables import table_files

LISTENER = "C#1"


def audit(folder: Path) -> None:
    """Run `whence audit` on the traces of a system; the page is of its worst run."""
    argv = [sys.executable, "-m", "whence", "audit", str(folder / "traces"), "--out", str(folder / "verdicts")]
    done = subprocess.run([*argv, "--engine", "local"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: violations were found
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr[-500:]}")


@dataclass
class Cell:
    """All runs of a system in one layout under one setting."""

    facts: list[dict[str, Any]]
    inverted: list[int] = field(default_factory=list)
    """Questions that C delivered after something that depends on them, of each run."""
    doubled: int = 0

    def sum(self, name: str) -> int:
        """Of `asked`, `lost` (of questions and answers, by C), `orphans` (answers whose question is lost)."""
        return sum(fact[name] for fact in self.facts)

    @property
    def total(self) -> int:
        return sum(self.inverted)


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table of the audit."""
    return [row for file in table_files(folder / "verdicts", name) for row in pq.read_table(file).to_pylist()]


def cells(folder: Path, system: System) -> dict[tuple[str, str], Cell]:
    """(layout, setting) -> what was found."""
    facts = [json.loads(path.read_text()) for path in sorted(folder.glob("traces/*.json"))]
    if not facts:
        return {}
    late = Counter(
        row["run"]
        for row in table(folder, "verdicts")
        if row["verdict"] == "inverted" and row["member"] == LISTENER and row["origin"] == "A#1"
    )
    members = {row["run"]: row for row in table(folder, "members") if row["member"] == LISTENER}
    out: dict[tuple[str, str], Cell] = {}
    for fact in facts:
        run = f"{system.key}/{fact['layout']}-{fact['setting']}-{fact['run']}"
        cell = out.setdefault((fact["layout"], fact["setting"]), Cell([]))
        cell.facts.append(fact)
        cell.inverted.append(late[run])
        cell.doubled += members[run]["duplicates"]
    return out


def shown(cell: Cell | None) -> str:
    """`31/800(12-19)`: inverted of asked in all runs, and the least and the most of one run. `0/4(10s)`: it waited, the
    longest time in brackets."""
    if cell is None:
        return "-"
    text = f"{cell.total}/{cell.sum('asked')}"
    if len(cell.inverted) > 1 and cell.total:
        text += f"({min(cell.inverted)}-{max(cell.inverted)})"
    if sum(fact.get("waited", 0) for fact in cell.facts):
        text += f"({max(fact['held_s'] for fact in cell.facts):g}s)"
    return text


def verdict(system: System, layout: str, found: dict[str, Cell]) -> str:
    """Against what the documentation promises."""
    if layout not in system.promise.order:
        return "none"
    return "broken" if any(cell.total for cell in found.values()) else "kept"


def page(out: Path, keys: list[str]) -> str:
    """The table, in Markdown."""
    settings = list(RUNS)
    head = ["system", *settings, "lost", "ms", "/s", "promise"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key in keys:
        system, every = SYSTEMS[key], cells(out / key, SYSTEMS[key])
        for layout in system.layouts:
            found = {setting: cell for (where, setting), cell in every.items() if where == layout}
            if not found:
                continue
            calm = [cell for setting, cell in found.items() if setting != "bulk"]  # what bulk loses is too much at once
            lost, orphans = (sum(cell.sum(name) for cell in calm) for name in ("lost", "orphans"))
            delays = [f["delay_ms"] for f in found["plain"].facts if f["delay_ms"]] if "plain" in found else []
            doubled = sum(cell.doubled for cell in calm)
            speed = found["bulk"].facts[0].get("per_s") if "bulk" in found else None
            row = [system.label + (", two subjects" if layout == "two" else "")]
            row += [*[shown(found.get(s)) for s in settings], f"{lost}/{orphans}/{doubled}"]
            row += [f"{sorted(delays)[len(delays) // 2]:.2g}" if delays else "-", f"{speed:,}" if speed else "-"]
            row.append(verdict(system, layout, found))
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"
