"""The rows of a trace, in pieces and in any order between members, judged one at a time. A `Follower` is all of its
state: msgspec saves it and loads it again.

A member **waits**: for a step of its own that is not here yet, for the publish of what it delivers, for the state that
it begins with. A verdict depends only on the member's own steps and on the past of events, so it is the same whenever
it is given. What waits at the end of the trace is released by `settle`.

What the state grows with, besides `causality`: steps that wait. This is the judge of traces that grow, and of those
that are whole. Where steps are missing for good, what follows them waits for ever: the arrays judge that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from whence.audit.judge import findings, report
from whence.audit.judge.causality import IN_ORDER, UNKNOWN, Causality, DeliveredState
from whence.audit.judge.findings import EventName, Finding
from whence.audit.judge.promises import Verdict
from whence.audit.judge.tickets import Tenures, owner_of, two_owners
from whence.audit.trace import Row, by_member
from whence.errors import TraceError

CHECKPOINTS: Final = 16
"""States of a member's own checkpoints that are kept: a live member takes one after every batch, and its next life goes
on from the last or the one before. Those taken for others are all kept."""
ROOT: Final = "checkpoint "  # how the tokens of a member's own checkpoints begin (recorder)

KINDS: Final = frozenset(("publish", "deliver", "drop", "join", "snapshot", "leave", "crash", "ticket"))
"""Rows of other kinds only count as steps."""

ACTS: Final = frozenset(("publish", "deliver", "join", "snapshot"))
"""Steps of a member that is there."""

Cause = tuple[str, str]
"""What a step waits for: ("event", id), ("token", token), ("life", member)."""
Use = tuple[int, str, int, str]
"""A publish: time, member, step, event."""


class Queue(msgspec.Struct, array_like=True):
    """The steps of one member that are not judged yet."""

    name: str
    next: int = 0
    """The step that comes next."""
    ahead: dict[int, Row | None] = {}
    """Steps that wait, by number; None: a row of a kind that does not matter."""
    blocked: Cause | None = None
    """What the next one waits for."""
    ended: bool = False
    """The member said that it left or crashed: all its steps are known."""
    checkpoints: list[str] = []
    """Tokens of its last checkpoints."""


class Judged(NamedTuple):
    """A delivery and its verdict."""

    member: str
    step: int
    event: str | None
    origin: str | None
    """Its publisher; if it is unknown, the one that its id names."""
    seq: int | None
    verdict: Verdict
    order: str
    cause: EventName | None
    """What it is wrong with respect to."""


class Follower(msgspec.Struct, array_like=True):
    """One run of one cluster. `feed` it rows in any order; a row may come twice. `complete`: once it is settled, the
    rows of all members are here, to the end; what is missing did not happen. Otherwise nobody is accused for it."""

    complete: bool = False
    causality: Causality = msgspec.field(default_factory=Causality)
    tickets: Tenures = msgspec.field(default_factory=Tenures)
    queues: dict[str, Queue] = {}
    _used: dict[str, Use] = {}
    """Id without its owner -> its first use by time."""
    _waiting: dict[Cause, list[str]] = {}
    _ready: list[str] = []
    """Members that may go on."""
    _released: set[tuple[str, str, str]] = set()
    _settled: bool = False
    _out: list[Judged] = []
    _findings: list[Finding] = []

    # -- rows

    def feed(self, rows: Iterable[Row]) -> list[Judged]:
        """The verdicts on what does not have to wait."""
        for row in rows:
            queue = self.queues.get(row.member)
            if queue is None:
                queue = self.queues[row.member] = Queue(row.member)
            if row.lseq < queue.next or row.lseq in queue.ahead:
                continue
            queue.ahead[row.lseq] = row if row.kind in KINDS else None
            if row.lseq == queue.next:
                self._ready.append(row.member)
        return self._run()

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        """Members that wait -> (how many steps do, what for)."""
        return {
            q.name: (len(q.ahead), f"{q.blocked[0]} {q.blocked[1]}" if q.blocked else f"its step {q.next}")
            for q in self.queues.values()
            if q.ahead
        }

    def copy(self) -> Follower:
        """Another one in the same state."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self), type=Follower)

    def settle(self) -> list[Judged]:
        """No more rows will come: nobody waits for what no row gives, and steps that are missing are missing."""
        self._settled = True
        self._ready = sorted(self.queues)
        out = self._run()
        while stuck := sorted(q.name for q in self.queues.values() if q.blocked):
            given = {cause: q.name for q in self.queues.values() for step in q.ahead.values() for cause in _gives(step)}
            given |= {("life", q.name): q.name for q in self.queues.values() if q.ahead}
            waits = {m: self.queues[m].blocked or ("", "") for m in stuck}
            free = [m for m in stuck if waits[m] not in given]
            circle = stuck[:1]
            for _ in () if free else 2 * stuck:  # whoever waits for a circle comes to it in so many steps
                circle = [*circle, given[waits[circle[-1]]]][-len(stuck) :]
            for member in free or [min(circle)]:
                self._release(self.queues[member], bool(free))
            out += self._run()
        return out

    def _release(self, queue: Queue, possible: bool) -> None:
        """It waits no longer, although what it waits for has not happened. Not `possible`: it waits for itself. What it
        has then is not known, and nobody is accused of what follows from that."""
        step = queue.ahead[queue.next]
        assert queue.blocked is not None and step is not None
        self._waiting[queue.blocked].remove(queue.name)
        event = step.event if step.kind == "deliver" else None
        if possible or event is None:
            self._released.add((queue.name, *queue.blocked))
        else:
            queue.ahead[queue.next] = None
            self.causality.forget(queue.name)
        if not possible:
            self._findings.append(findings.impossible(queue.name, queue.next, event))
        queue.blocked = None
        self._ready.append(queue.name)

    def _run(self) -> list[Judged]:
        """The verdicts on what does not have to wait any longer."""
        while self._ready:
            self._go_on(self.queues[self._ready.pop()])
        out, self._out = self._out, []
        return out

    def _go_on(self, queue: Queue) -> None:
        """All steps of the member that do not have to wait."""
        ahead = queue.ahead
        while ahead:
            if queue.next not in ahead:
                return
            step = ahead[queue.next]
            if step is not None:
                queue.blocked = self._step(queue, step)
                if queue.blocked is not None:
                    self._waiting.setdefault(queue.blocked, []).append(queue.name)
                    return
            del ahead[queue.next]
            queue.next += 1

    def _happened(self, cause: Cause) -> None:
        for member in self._waiting.pop(cause, ()):
            self.queues[member].blocked = None
            self._ready.append(member)

    def _step(self, queue: Queue, row: Row) -> Cause | None:
        """Carry out a step, or say what it has to wait for."""
        member = row.member
        if row.kind in ACTS:
            queue.ended = False
        match row.kind:
            case "deliver":
                cause = ("event", row.event or "")
                unknown = row.event not in self.causality.units
                if unknown and row.event is not None and (member, *cause) not in self._released:
                    return cause
                self._deliver(row)
            case "drop" if row.event is not None:
                self.causality.life(member).dropped.add(row.event)
            case "publish" if row.event is not None:
                self._publish(row, row.event)
            case "ticket":
                self.tickets.changed(row, self._delivered)
            case "snapshot" if row.token is None:
                self.causality.life(member)
            case "snapshot":
                self._snapshot(queue, row.token or "")
            case "join":
                return self._join(row)
            case "leave" | "crash":
                self.causality.left(member)
                queue.ended = True
                self._happened(("life", member))
        return None

    def _join(self, row: Row) -> Cause | None:
        """With nothing, with a state taken under a token, or after everything that a previous life has delivered."""
        how, peer = row.reason or "", row.peer
        if how != "genesis":
            cause: Cause | None = None
            if row.token is not None:
                cause, there = ("token", row.token), row.token in self.causality.taken
            elif how == "checkpoint" and peer is not None and peer != row.member:
                cause, there = ("life", peer), peer in self.queues and self._over(self.queues[peer])
            if cause is not None and not there and (row.member, *cause) not in self._released:
                return cause
        trusted = True
        if how == "checkpoint" and peer in self.queues and peer != row.member:
            # the end of the life that it goes on from may be cut off
            trusted = row.token is not None or self.complete or self.queues[peer].ended
        self.causality.joined(
            row.member, how, order=row.order, peer=peer, token=row.token, unclear=True, trusted=trusted
        )
        return None

    def _over(self, queue: Queue) -> bool:
        return queue.ended or (self._settled and not queue.ahead)

    def _snapshot(self, queue: Queue, token: str) -> None:
        self.causality.snapshot(queue.name, token)
        if token.startswith(ROOT):
            if token in queue.checkpoints:
                queue.checkpoints.remove(token)
            queue.checkpoints.append(token)
            if len(queue.checkpoints) > CHECKPOINTS:
                del self.causality.taken[queue.checkpoints.pop(0)]
        self._happened(("token", token))

    # -- events

    def _publish(self, row: Row, event: str) -> None:
        bare, use = event.partition("@")[0], (row.t_ns, row.member, row.lseq, event)
        first = self._used.get(bare)
        if first is None:
            self._used[bare] = use
        else:  # an id, whoever its owner is, is used once more; the first use by time was right
            self._used[bare], (_, member, step, again) = min(first, use), max(first, use)
            self._findings.append(findings.reused(member, step, again))
        unit = self.causality.published(row.member, event)
        if unit is not None:
            self.tickets.published(row, unit[:2], self._delivered)
            self._happened(("event", event))

    def _delivered(self, member: str) -> DeliveredState:
        return DeliveredState.copy(self.causality.lives.get(member) or DeliveredState())

    def _deliver(self, row: Row) -> None:
        causality, cause = self.causality, None
        verdict = causality.delivered(row.member, row.event)
        life = causality.lives[row.member]
        if verdict is UNKNOWN:
            origin, seq = owner_of(row.event) or row.origin, None
        else:
            number, seq, _ = causality.units[row.event]
            origin = causality.origins[number].name
        if verdict is UNKNOWN and row.event is not None and not self.complete:
            life.doubted += 1  # its publish may be in a part of the trace that is not here
        elif verdict is not IN_ORDER:
            finding = causality.explained(row.member, row.lseq, row.event, verdict)
            if finding is not None:
                self._findings.append(finding)
            cause = causality.event(causality.cause) if causality.cause is not None else None
        if row.event in life.dropped:
            self._findings.append(findings.after_drop(row.member, row.lseq, row.event or ""))
        self._out.append(Judged(row.member, row.lseq, row.event, origin, seq, verdict, life.order, cause))

    # -- what is wrong

    def findings(self) -> list[Finding]:
        """What was found since this was asked last: broken promises, and what is in doubt."""
        for pair in self.tickets.overlaps():
            self._findings.append(two_owners(*pair, self._vague))
        out, self._findings = self._findings, []
        return out

    def _vague(self, member: str) -> bool:
        life = self.causality.lives.get(member)
        return life is not None and life.sure is not None

    def report(self, found: Iterable[Finding] = ()) -> report.Report:
        """The run so far; `found`: what `findings` gave before."""
        every = [*found, *self.findings()]
        done = report.report(self.causality, every, settled=self._settled and self.complete)
        done.tenures = len(self.tickets.tenures)
        return done


def _gives(step: Row | None) -> list[Cause]:
    """What others may be waiting for."""
    if step is not None and step.kind == "publish":
        return [("event", step.event or "")]
    if step is not None and step.kind == "snapshot":
        return [("token", step.token or "")]
    return []


def judge(rows: Iterable[Row], *, complete: bool = True, each: Callable[[Judged], None] | None = None) -> report.Report:
    """The verdict on the trace of one run of one cluster, rows in any order; `each` is told about every delivery.
    `complete`: what is missing in the trace did not happen; a missing step is a TraceError. Otherwise nobody is accused
    of what nobody published, or of what a member lacks at the end, and what follows a missing step is not judged."""
    rows = list(rows)
    if len(several := {(row.run, row.cluster) for row in rows}) > 1:
        first, other = sorted(several)[:2]
        raise TraceError(f"rows of two runs or clusters: {first} and {other}; take one at a time")
    if complete:
        by_member(rows)
    used = {None} | {row.token for row in rows if row.kind == "join"}  # of a live member's checkpoints, one at most
    follower = Follower(complete)
    fed = follower.feed(row if row.token in used else replace(row, token=None) for row in rows)
    judged = [*fed, *follower.settle()]
    if each is not None:
        for one in judged:
            each(one)
    return follower.report()
