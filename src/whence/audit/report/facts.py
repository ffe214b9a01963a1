"""The contents of the page, gathered from the rows of a trace and the judge's verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import add
from typing import NamedTuple

import msgspec

from whence.audit.judge import Causality, Finding, Verdict
from whence.audit.judge.report import report
from whence.audit.report.diagram import Diagram, Suspect, address, draw
from whence.audit.trace import Row

WINDOWS = 60
"""Points of the curves over time."""
_CURVES = {"publish": "published", "deliver": "delivered", "drop": "dropped", "receive": "recovered"}
_JOINED = {"snapshot": "joined, from a snapshot", "checkpoint": "came back, from its own disk"}
_INCIDENTS = {"fault": "fault", "crash": "crashed", "cutoff": "cutoff", "leave": "left"}
"""Kind -> what is said of it, if the row gives no reason."""
MAX_STEPS = 120_000
"""The most steps in the diagram that a browser pans smoothly."""


class RunVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's verdicts. Counts are of the whole trace, even if the page gets only a part of its rows."""

    by_order: Mapping[str, Mapping[str, int]] = {}
    """Promised order -> verdict -> deliveries."""
    violations: int = 0
    doubts: int = 0
    """Members whose trace is absent or incomplete, so that something could not be judged."""
    partial: bool = False
    """Counts are of some members only: a giant run is judged in pieces."""
    steps: int = 0
    """Steps of the whole trace; 0: the page gets all of them."""
    lost: int = 0
    """Deliveries due to live members that never came."""
    findings: tuple[Finding, ...] = ()
    """The first violations."""
    suspect: Mapping[tuple[str, int], Suspect] = {}
    """(member, lseq) of a delivery -> its verdict, for all that are not in order."""

    @property
    def verdicts(self) -> Counter[str]:
        """Verdict -> deliveries."""
        return sum(map(Counter, self.by_order.values()), Counter())


def judged(rows: list[Row]) -> RunVerdicts:
    """What is found in rows that are at hand, of one run of one cluster, in the order in which they happened: as the
    simulator gives them."""
    judge, found = Causality(), list[Finding]()
    by_order: dict[str, Counter[str]] = {}
    suspect: dict[tuple[str, int], Suspect] = {}
    for row in rows:
        match row.kind:
            case "join":
                judge.joined(row.member, row.reason or "", order=row.order, peer=row.peer, token=row.token)
            case "snapshot":
                judge.snapshot(row.member, row.token or "")
            case "leave" | "crash":
                judge.left(row.member)
            case "publish":
                judge.published(row.member, row.event)
            case "deliver":
                verdict = judge.delivered(row.member, row.event)
                by_order.setdefault(judge.lives[row.member].order, Counter())[verdict.text] += 1
                if verdict is not Verdict.IN_ORDER:
                    finding = judge.explained(row.member, row.lseq, row.event, verdict)
                    suspect[row.member, row.lseq] = Suspect(verdict.text, finding is not None)
                    found += [finding] if finding else []
    made = report(judge, found)
    return RunVerdicts(
        by_order=by_order,
        violations=sum(made.broken.values()),
        lost=made.total.lost,
        findings=tuple(made.findings),
        suspect=suspect,
    )


class Ownership(msgspec.Struct):
    """The time in which one owner held a ticket."""

    ticket: int
    owner: str
    granted_s: float
    owner_s: float | None = None
    """When it could publish."""
    end_s: float | None = None
    how: str = ""
    """released, lost, or ended with its owner."""


class Incident(msgspec.Struct):
    """An incident of a member, marked on the time axis."""

    at_s: float
    member: str
    what: str
    fault: bool
    """A fault; otherwise it joined or left."""


class RunLine(NamedTuple):
    """A run, in the list of all: the more of the first, the worse."""

    violations: int
    doubts: int
    deliveries: int
    run: str
    cluster: str

    def plus(self, other: RunLine | None) -> RunLine:
        """With another piece of the run."""
        counts = self[:3] if other is None else map(add, self[:3], other)
        return self._replace(**dict(zip(self._fields, counts, strict=False)))


class Overview(msgspec.Struct):
    """An audit in numbers, over all runs."""

    runs: int
    violations: dict[str, int] = {}
    """By rule."""
    counts: dict[str, int] = {}
    """What there was: rows, members, published, deliveries, inversions, in doubt, in quarantine."""
    worst: list[tuple[RunLine, str]] = []
    """The worst runs, and the page of each, if it has one."""
    back: str = ""
    """The page with the list, if it is another one."""

    @property
    def unsure(self) -> str:
        """What could not be judged, in words."""
        some = (f"{self.counts[name]:,} {name}" for name in ("in doubt", "in quarantine") if self.counts.get(name))
        return ", ".join(some)


class Facts(msgspec.Struct, kw_only=True):
    """Everything the page shows."""

    title: str
    about: str
    """The source, in one line."""
    command: str = ""
    """The command that makes this page."""
    seconds: float
    curves: dict[str, list[int]]
    """published, delivered, dropped, recovered -> how many events, in each of `WINDOWS` intervals of time."""
    dropped: dict[str, int]
    """Reason -> events that a member received and did not deliver."""
    asked: int
    given_up: int
    steps: int
    """Steps that the page was made of."""
    found: RunVerdicts
    latency_ms: list[float]
    """Publish to delivery at another member, sorted."""
    tenures: list[Ownership]
    marks: list[Incident]
    diagram: Diagram
    overview: Overview | None = None


def gather(
    rows: Iterable[Row],
    found: RunVerdicts | None = None,
    *,
    title: str,
    about: str,
    command: str = "",
    overview: Overview | None = None,
) -> Facts:
    """Gather the facts about one run of one cluster, judged here if nobody has. Steps are ordered by member and `lseq`;
    times only place them."""
    steps = list(rows)
    found = judged(steps) if found is None else found
    place = {member: n for n, member in enumerate(sorted({row.member for row in steps}, key=_natural))}
    steps.sort(key=lambda row: (place[row.member], row.lseq))
    start = min((row.t_ns for row in steps), default=0)
    end = max((row.t_ns for row in steps), default=0)
    seconds = max((end - start) / 1e9, 1e-9)
    return Facts(
        title=title,
        about=about,
        command=command,
        seconds=seconds,
        curves=_curves(steps, start, seconds),
        dropped=dict(Counter(row.reason or "" for row in steps if row.kind == "drop")),
        asked=sum(row.kind == "recover" and (row.reason or "").startswith("ask") for row in steps),
        given_up=sum(row.kind == "recover" and (row.reason or "").startswith("give up") for row in steps),
        steps=len(steps),
        found=found,
        latency_ms=_latencies(steps),
        tenures=_tenures(steps, start, end),
        marks=_marks(steps, start),
        diagram=draw(steps, start, found.suspect, MAX_STEPS),
        overview=overview,
    )


def _marks(steps: list[Row], start: int) -> list[Incident]:
    """Marks from the rows; a killed member leaves no row, so its last step is marked."""
    marks = []
    for row in steps:
        if row.kind == "join" and row.reason in _JOINED:
            what = _JOINED[row.reason]
        elif row.kind in _INCIDENTS:
            what = row.reason or _INCIDENTS[row.kind]
        else:
            continue
        fault = row.kind not in ("join", "leave")
        marks.append(Incident((row.t_ns - start) / 1e9, row.member, what, fault))
    last = {row.member: row.t_ns for row in steps}
    said = {row.member for row in steps if row.kind in ("leave", "crash")}
    for member in sorted(_ended(steps) - said, key=_natural):
        marks.append(Incident((last[member] - start) / 1e9, member, "ended without a word", True))
    return sorted(marks, key=lambda mark: mark.at_s)


def _ended(steps: list[Row]) -> set[str]:
    """Members that have ended: by a row, or because the same process has a later one."""
    latest = {address(row.member): row.member for row in steps}  # `gather` puts earlier ones first
    former = {row.member for row in steps if row.member != latest[address(row.member)]}
    return former | {row.member for row in steps if row.kind in ("leave", "crash")}


def _natural(name: str) -> list[tuple[int, str]]:
    """n2 before n10."""
    return [(int(part or -1), "") if i % 2 else (-1, part) for i, part in enumerate(re.split(r"(\d+)", name))]


def _latencies(steps: list[Row]) -> list[float]:
    published = {row.event: row for row in steps if row.kind == "publish" and row.event is not None}
    return sorted(
        (row.t_ns - published[row.event].t_ns) / 1e6
        for row in steps
        if row.kind == "deliver" and row.event in published and row.member != published[row.event].member
    )


def _curves(steps: list[Row], start: int, seconds: float) -> dict[str, list[int]]:
    curves = {name: [0] * WINDOWS for name in _CURVES.values()}
    for row in steps:
        if row.kind in _CURVES and (row.kind != "receive" or row.reason == "recovered"):
            window = int((row.t_ns - start) / 1e9 / seconds * WINDOWS)
            curves[_CURVES[row.kind]][min(WINDOWS - 1, window)] += 1
    return curves


def _tenures(steps: list[Row], start: int, end: int) -> list[Ownership]:
    """From `ticket` rows (`granted`, `owner`, `released`, `lost`); a tenure without an end row ends with its owner.

    A killed owner leaves no row. But live members deliver what is published: an owner without a step while much was
    published had ended by then.
    """
    found: list[Ownership] = []
    open_: dict[tuple[str, int], Ownership] = {}
    last = {row.member: row.t_ns for row in steps}
    for row in steps:
        if row.kind != "ticket" or row.ticket is None:
            continue
        at, what, key = (row.t_ns - start) / 1e9, (row.reason or "").partition(" ")[0], (row.member, row.ticket)
        tenure = open_.get(key)
        if what == "granted" or (what == "owner" and tenure is None):
            tenure = open_[key] = Ownership(row.ticket, row.member, at)
            found.append(tenure)
        if tenure is None:
            continue
        if what == "owner" and tenure.owner_s is None:
            tenure.owner_s = at
        elif what in ("released", "lost"):
            tenure.end_s, tenure.how = at, what
            del open_[key]
    ended = _ended(steps)
    busy = max((row.t_ns for row in steps if row.kind == "publish"), default=start) - (end - start) // 50
    for (member, _), tenure in open_.items():
        gone = member in ended or last[member] < busy
        tenure.end_s = ((last[member] if gone else end) - start) / 1e9
        tenure.how = "gone with its owner" if gone else ""
    return sorted(found, key=lambda t: (t.ticket, t.granted_s))
