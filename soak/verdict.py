"""Judges the files of a fleet: order, ids, tickets, and what the applications saw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whence.audit.judge import judge
from whence.audit.judge.findings import Finding
from whence.audit.judge.promises import REUSED_ID
from whence.audit.judge.tickets import Holding, overlapping, two_owners
from whence.audit.trace import Row
from whence.live.fleet.fleet import Fleet


def verdict(fleet: Fleet) -> dict[str, Any]:
    """The judge's findings, and those of the applications."""
    rows, half = fleet.rows()
    report = judge(rows)
    owned_twice = held_twice(rows, fleet.killed())
    twice, skipped = _applications(fleet, rows)
    return {
        "ok": report.ok and not owned_twice and not twice and not skipped,
        "rows": len(rows),
        "half_lines": half,
        "published": report.published,
        "deliveries": report.total.deliveries,
        "inversions": report.total.inverted,
        "repeated_ids": report.broken.get(REUSED_ID, 0),
        "delivered_twice": report.total.duplicates,
        "over_gap": report.total.over_gap,
        "disagreements": report.total.disagreements,
        "lost_of_live": report.total.lost_of_live,
        "lives": len(report.members),
        "survivors": len(report.live),
        "tenures": report.tenures,
        "owned_twice": [str(finding) for finding in owned_twice],
        "seen_twice_by_application": twice,
        "skipped_by_application": skipped,
        "broken": report.broken,
        "findings": [str(finding) for finding in report.findings],
    }


def _applications(fleet: Fleet, rows: list[Row]) -> tuple[list[str], list[str]]:
    """Events that an application saw twice (except the one in progress when its process was killed), and events that
    its member delivered but the application never saw."""
    twice: list[str] = []
    skipped: list[str] = []
    delivered = _handed_on(rows)
    for spec in (spec for process in fleet.all for spec in process.task.members):
        known: dict[str, None] = {}
        last, fresh = "", False
        for event in Path(spec.seen or "/dev/null").read_text(encoding="utf-8").split("\n")[:-1]:
            if not event:  # a restart
                fresh = True
                continue
            if event in known and not (fresh and event == last):
                twice.append(f"{spec.listen}: {event}")
            known[event] = None
            last, fresh = event, False
        skipped += [f"{spec.listen}: {event}" for event in delivered.get(spec.listen, {}) if event not in known]
    return twice[:20], skipped[:20]


def _handed_on(rows: list[Row]) -> dict[str, dict[str, None]]:
    """Address -> the events that its application got. What was delivered after the checkpoint from which the next
    incarnation resumes was never passed on."""
    resumed = {row.token for row in rows if row.kind == "join" and row.reason == "checkpoint"}
    since: dict[str, list[str]] = {}
    handed: dict[str, dict[str, None]] = {}
    last = {row.member.rpartition("#")[0]: row.member for row in sorted(rows, key=lambda r: r.t_ns)}
    for row in sorted(rows, key=lambda r: (r.member, r.lseq)):
        if row.kind == "deliver" and row.event is not None:
            since.setdefault(row.member, []).append(row.event)
        elif row.kind == "snapshot" and row.token in resumed:
            handed.setdefault(row.member.rpartition("#")[0], {}).update(dict.fromkeys(since.pop(row.member, [])))
    for address, member in last.items():
        handed.setdefault(address, {}).update(dict.fromkeys(since.get(member, [])))
    return handed


def tell(args_json: bool, result: dict[str, Any]) -> int:
    """Print the result as text or JSON; returns the exit code."""
    if args_json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            if isinstance(value, dict | list):
                value = json.dumps(value, indent=2) if value else "none"
            print(f"{name.replace('_', ' '):28} {value}")
    return 0 if result["ok"] else 1


def held(rows: Iterable[Row], killed: Mapping[str, int]) -> list[Holding]:
    """The tenures, where all processes read one clock and it is known when each was killed: a member holds the ticket
    until its trace says that it lost it, also if it publishes nothing. Each begins with an `owner` row and ends with
    `lost` or `released`, or when its member left, crashed or was `killed` (member -> ns); otherwise it lasts."""
    tenures: list[Holding] = []
    open_: dict[tuple[str, int], Holding] = {}
    for row in sorted(rows, key=lambda row: (row.member, row.lseq)):
        change, _, rest = (row.reason or "").partition(" ")
        if row.kind == "ticket" and row.ticket is not None:
            key = (row.member, row.ticket)
            if change == "owner" and key not in open_:
                end = killed.get(row.member, 1 << 62)
                open_[key] = Holding(row.ticket, rest.partition(" ")[0], row.member, row.t_ns, end, row.lseq)
                tenures.append(open_[key])
            elif change in ("lost", "released") and key in open_:
                open_.pop(key).end = row.t_ns
        elif row.kind in ("leave", "crash"):
            for key in [key for key in open_ if key[0] == row.member]:
                open_.pop(key).end = row.t_ns
    return tenures


def held_twice(rows: Iterable[Row], killed: Mapping[str, int]) -> list[Finding]:
    """Two owners of one ticket at one instant of the one clock, whether or not they published."""
    of: dict[int, list[Holding]] = {}
    for tenure in held(rows, killed):
        of.setdefault(tenure.ticket, []).append(tenure)
    return [two_owners(earlier, later) for _, tenures in sorted(of.items()) for earlier, later in overlapping(tenures)]
