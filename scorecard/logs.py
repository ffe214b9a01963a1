"""The clients' logs as a trace, for `whence audit`: what A and B published, and what B and C delivered, in the order of
their own logs. Nothing is judged here. Warm-ups are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from whence.audit.trace import Row

ROLES = ("A", "B", "C")


class Line(NamedTuple):
    """One line of a client's log."""

    ns: int
    kind: str
    value: str


def read(path: Path) -> list[Line]:
    """The lines of a log; the last one may be half written."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            found.append(Line(*json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def rows(folder: Path, run: str) -> list[Row]:
    """The trace of a run. Members are held to `causal`, and all leave at the end: what did not come is lost, and no
    member is blamed for it. Ids have the form of ours (docs/trace.md); the value is the `reason` of the publish."""
    logs = {role: read(folder / f"{role}.log") for role in ROLES}
    ids: dict[str, str] = {}
    for ticket, role in enumerate("AB"):
        said = [line.value for line in logs[role] if line.kind == "pub" and line.value[0] in "qr"]
        ids |= {value: f"{ticket}:0.0.1:{n}@{role}#1" for n, value in enumerate(said, 1)}
    out: list[Row] = []
    for role in ROLES:
        mine = [line for line in logs[role] if line.kind in ("pub", "dlv") and line.value[0] in "qr"]
        begin, end = (mine[0].ns, mine[-1].ns) if mine else (0, 0)
        member = f"{role}#1"
        out.append(Row(run, "scorecard", member, 0, begin, "join", reason="genesis", order="causal"))
        for line in mine:
            event, publish = ids.get(line.value, f"unknown {line.value}"), line.kind == "pub"
            out.append(
                Row(
                    run,
                    "scorecard",
                    member,
                    out[-1].lseq + 1,
                    line.ns,
                    "publish" if publish else "deliver",
                    event=event,
                    origin=event.rpartition("@")[2],
                    reason=line.value if publish else None,
                )
            )
        out.append(Row(run, "scorecard", member, out[-1].lseq + 1, end, "leave"))
    return out


def counted(found: list[Row]) -> dict[str, int]:
    """What C never delivered of what was published; and answers whose question is among that."""
    said = {row.event: row.reason or "" for row in found if row.kind == "publish"}
    at_c = {said.get(row.event, "") for row in found if row.kind == "deliver" and row.member == "C#1"}
    orphans = sum(value[:1] == "r" and f"q{value[1:]}" not in at_c for value in at_c)
    asked = sum(value[0] == "q" for value in said.values())
    return {"asked": asked, "lost": len({*said.values()} - at_c), "orphans": orphans}


def delay_ms(found: list[Row]) -> float | None:
    """From asking to C's delivery, the median in ms; by the clock of the one machine on which all run."""
    asked = {row.event: row.t_ns for row in found if row.kind == "publish" and row.member == "A#1"}
    took = sorted(
        (row.t_ns - asked[row.event]) / 1e6
        for row in found
        if row.kind == "deliver" and row.member == "C#1" and row.event in asked
    )
    return round(took[len(took) // 2], 2) if took else None


def per_s(found: list[Row]) -> float | None:
    """Deliveries a second at C, from its first to its last."""
    at = [row.t_ns for row in found if row.kind == "deliver" and row.member == "C#1"]
    return round((len(at) - 1) * 1e9 / (at[-1] - at[0])) if len(at) > 1 and at[-1] > at[0] else None
