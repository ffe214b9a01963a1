"""The reference that the arrays are compared with: a whole trace, judged one step at a time by `Causality`, each step
after those that it depends on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from whence.audit.judge import Causality, Finding, Report, Verdict, findings
from whence.audit.judge.causality import DeliveredState
from whence.audit.judge.findings import EventName
from whence.audit.judge.report import report
from whence.audit.judge.tickets import Holding, Tenures, overlapping, owner_of, two_owners
from whence.audit.trace import Row, by_member

Pair = tuple[Holding, Holding]


class Judged(NamedTuple):
    """A delivery and its verdict."""

    member: str
    step: int
    event: str | None
    origin: str | None
    seq: int | None
    verdict: Verdict
    order: str
    cause: EventName | None


class Follower:
    """One run of one cluster, all of it. It has to be a possible one."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.causality, self.tickets = Causality(), Tenures()
        self.judged: list[Judged] = []
        self.findings: list[Finding] = []
        self._steps = by_member(rows)
        self._published = {row.event for mine in self._steps.values() for row in mine if row.kind == "publish"}
        self._used: dict[str, tuple[int, str, int, str]] = {}
        self._dropped: set[tuple[str, str | None]] = set()
        self._knew: dict[tuple[str, int], DeliveredState] = {}
        at = dict.fromkeys(self._steps, 0)
        while left := [member for member, n in at.items() if n < len(self._steps[member])]:
            for member in left:
                mine = self._steps[member]
                while at[member] < len(mine) and self._may(mine[at[member]], at):
                    self._step(mine[at[member]])
                    at[member] += 1
        tenures = sorted(self.tickets.tenures.values(), key=lambda tenure: tenure.ticket)
        pairs = [pair for _, of in groupby(tenures, key=lambda tenure: tenure.ticket) for pair in overlapping(of)]
        self.findings += [two_owners(*pair) for pair in pairs if not self._followed(pair)]

    def report(self) -> Report:
        return report(self.causality, self.findings)

    def _may(self, row: Row, at: dict[str, int]) -> bool:
        """What the step depends on has happened."""
        if row.kind == "deliver":
            return row.event in self.causality.units or row.event not in self._published
        if row.kind != "join" or row.reason == "genesis":
            return True
        if row.token is not None:
            return row.token in self.causality.taken
        return at[row.peer or ""] == len(self._steps[row.peer or ""])

    def _step(self, row: Row) -> None:
        causality, member = self.causality, row.member
        match row.kind:
            case "deliver":
                self._deliver(row)
            case "drop":
                self._dropped.add((member, row.event))
            case "publish":
                self._publish(row, row.event or "")
            case "ticket":
                self.tickets.changed(row)
                self._began(member)
            case "snapshot":
                causality.snapshot(member, row.token or "")
            case "join":
                self._dropped = {one for one in self._dropped if one[0] != member}
                causality.joined(member, row.reason or "", order=row.order, peer=row.peer, token=row.token)
            case "leave" | "crash":
                causality.left(member)

    def _publish(self, row: Row, event: str) -> None:
        bare, use = event.partition("@")[0], (row.t_ns, row.member, row.lseq, event)
        first = self._used.setdefault(bare, use)
        if first is not use:  # an id, whoever its owner is, is used once more; the first use by time was right
            self._used[bare], (_, member, step, again) = min(first, use), max(first, use)
            self.findings.append(findings.reused(member, step, again))
        if self.causality.published(row.member, event) is not None:
            self.tickets.published(row)
            self._began(row.member)

    def _deliver(self, row: Row) -> None:
        causality, cause = self.causality, None
        verdict = causality.delivered(row.member, row.event)
        order = causality.lives[row.member].order
        if verdict is Verdict.UNKNOWN:
            origin, seq = owner_of(row.event), None
        else:
            number, seq, _ = causality.units[row.event]
            origin = causality.origins[number].name
        if verdict is not Verdict.IN_ORDER:
            finding = causality.explained(row.member, row.lseq, row.event, verdict)
            self.findings += [finding] if finding else []
            cause = causality.event(causality.cause) if causality.cause is not None else None
        if (row.member, row.event) in self._dropped:
            self.findings.append(findings.after_drop(row.member, row.lseq, row.event or ""))
        self.judged.append(Judged(row.member, row.lseq, row.event, origin, seq, verdict, order, cause))

    # -- two owners of one ticket

    def _began(self, member: str) -> None:
        """What the member has delivered, if a tenure of it has just begun."""
        for tenure in self.tickets.tenures.values():
            if tenure.member == member and (member, tenure.step) not in self._knew:
                self._knew[member, tenure.step] = DeliveredState.copy(self.causality.life(member))

    def _followed(self, pair: Pair) -> bool:
        """The later owner began with the last event of the earlier one delivered."""
        earlier, later = pair
        unit, knew = self.causality.units.get(earlier.last), self._knew[later.member, later.step]
        if unit is None or earlier.incarnation == later.incarnation or unit.origin >= len(knew.X):
            return False
        holes = [h for table in (knew.holes, knew.passed) for h in table.get(unit.origin, ())]
        return unit.seq <= knew.X[unit.origin] and not any(first <= unit.seq <= last for first, last, *_ in holes)
