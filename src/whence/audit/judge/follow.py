"""The rows of a trace, in pieces and in any order between members, judged one at a time from a state that can be saved.

A member **waits**: for a step of its own that is not here yet, for the publish of what it delivers, for the state that
it begins with. A verdict depends only on the member's own steps and on the past of events, so it is the same whenever
it is given. What waits at the end of the trace is released by `settle`.

What the state grows with, besides `causality`: steps that wait. A trace that is not complete accuses nobody: a delivery
whose publish may be in a part that is not here is in doubt (`Finding.doubt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from whence.audit.judge import findings, report
from whence.audit.judge.causality import IN_ORDER, UNKNOWN, Causality, DeliveredState, Life, News, UnitId
from whence.audit.judge.findings import Doubt, EventName, Finding
from whence.audit.judge.promises import Verdict
from whence.audit.judge.tickets import At, Holding, Pair, Tenures, doubtful, owner_of, parse_id, two_owners
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


class TraceStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is needed of a row."""

    kind: str
    event: str | None = None
    origin: str | None = None
    reason: str | None = None
    peer: str | None = None
    order: str | None = None
    token: str | None = None
    ticket: int | None = None
    t: int = 0


class Queue(msgspec.Struct, array_like=True):
    """The steps of one member that are not judged yet."""

    name: str
    next: int = 0
    """The step that comes next."""
    ahead: dict[int, TraceStep | None] = {}
    """Steps that wait, by number."""
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


class PublishedUnit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event: the number of its origin, its id, when and at which step it was published, the news in its past."""

    origin: int
    event: str
    step: int
    t: int
    news: News


class StateChanges(msgspec.Struct, array_like=True):
    """What is new since the changes before: all that has to be saved."""

    origins: list[str] = []
    published: list[PublishedUnit] = []
    lives: list[Life] = []
    queues: list[Queue] = []
    taken: dict[str, DeliveredState] = {}
    dropped: list[str] = []
    tenures: list[Holding] = []
    told: list[tuple[str, int]] = []
    earliest: dict[str, Use] = {}

    def any(self) -> bool:
        """Something is new."""
        return bool(self.queues or self.published or self.taken)


class Follower:
    """One run of one cluster. `feed` it rows in any order; a row may come twice. `complete`: once it is settled, the
    rows of all members are here, to the end; what is missing did not happen."""

    def __init__(self, complete: bool = False) -> None:
        self.complete = complete
        self.causality = Causality()
        self.tickets = Tenures()
        self.queues: dict[str, Queue] = {}
        self.repeated = 0
        """Rows that came again, since the state was loaded."""
        self.torn: dict[str, int] = {}
        """Members with steps that are missing for good, and how many."""
        self.published: list[PublishedUnit] = []
        """All events, as they were published."""
        self._used: dict[str, Use] = {}  # id without its owner -> its first use by time
        self._reused: dict[str, None] = {}
        self._waiting: dict[Cause, list[str]] = {}
        self._ready: list[str] = []  # members that may go on
        self._released: set[tuple[str, str, str]] = set()
        self._settled = False
        self._out: list[Judged] = []
        self._findings: list[Finding] = []
        self._overlaps: list[Pair] = []
        self._unknown: list[tuple[str, int, TraceStep]] = []
        self._new = StateChanges()
        self._dirty: dict[str, None] = {}

    # -- rows

    def feed(self, rows: Iterable[tuple[str, int, TraceStep | None]]) -> list[Judged]:
        """(member, step number, step; None: a row of another kind) -> verdicts on what does not have to wait."""
        for member, number, step in rows:
            self._dirty[member] = None
            queue = self.queues.get(member)
            if queue is None:
                queue = self.queues[member] = Queue(member)
            if number < queue.next or number in queue.ahead:
                self.repeated += 1
                continue
            queue.ahead[number] = step
            if number == queue.next:
                self._ready.append(member)
        return self._run()

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        """Members that wait -> (how many steps do, what for)."""
        return {
            q.name: (len(q.ahead), f"{q.blocked[0]} {q.blocked[1]}" if q.blocked else f"its step {q.next}")
            for q in self.queues.values()
            if q.ahead
        }

    def settled(self) -> tuple[Follower, list[Judged]]:
        """A copy that is settled, and the verdicts on what waited. What this one will be fed later does not change."""
        end = self.copy()
        return end, end.settle()

    def settle(self) -> list[Judged]:
        """No more rows will come: nobody waits for what no row gives, and steps that are missing are missing."""
        self._settled = True
        self._ready = sorted(self.queues)
        out = self._run()
        while stuck := sorted(q.name for q in self.queues.values() if q.blocked):
            given = {cause for q in self.queues.values() for step in q.ahead.values() for cause in _gives(step)}
            given |= {("life", q.name) for q in self.queues.values() if q.ahead}
            free = [m for m in stuck if self.queues[m].blocked not in given]
            # Only a false trace has a circle. The first member whom others may wait for is released.
            circle = [m for m in stuck if any(map(_gives, self.queues[m].ahead.values()))] or stuck
            for member in free or circle[:1]:
                self._release(self.queues[member])
            out += self._run()
        return out

    def _release(self, queue: Queue) -> None:
        """It waits no longer, although what it waits for has not happened."""
        if queue.blocked is not None:
            self._released.add((queue.name, *queue.blocked))
            self._waiting[queue.blocked].remove(queue.name)
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
        self._dirty[queue.name] = None
        while ahead:
            if queue.next not in ahead:
                if not self._settled:
                    return
                first = min(ahead)
                self.causality.missing(queue.name)
                self.torn[queue.name] = self.torn.get(queue.name, 0) + first - queue.next
                queue.next = first
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

    def _step(self, queue: Queue, step: TraceStep) -> Cause | None:
        """Carry out a step, or say what it has to wait for."""
        member = queue.name
        if step.kind in ACTS:
            queue.ended = False
        match step.kind:
            case "deliver":
                cause = ("event", step.event or "")
                unknown = step.event not in self.causality.units
                if unknown and step.event is not None and (member, *cause) not in self._released:
                    return cause
                self._deliver(queue, step)
            case "drop" if step.event is not None:
                self.causality.life(member).dropped.add(step.event)
            case "publish" if step.event is not None:
                self._publish(queue, step.event, step.t)
            case "ticket":
                at = At(member, queue.next, step.t, self.causality.lives.get(member) or DeliveredState())
                self._overlaps += self.tickets.changed(step.ticket, step.reason, at)
            case "snapshot" if step.token is None:
                self.causality.life(member)
            case "snapshot":
                self._snapshot(queue, step.token or "")
            case "join":
                return self._join(queue, step)
            case "leave" | "crash":
                self.causality.left(member)
                queue.ended = True
                self._happened(("life", member))
        return None

    def _join(self, queue: Queue, step: TraceStep) -> Cause | None:
        """With nothing, with a state taken under a token, or after everything that a previous life has delivered."""
        how, peer = step.reason or "", step.peer
        if how != "genesis":
            cause: Cause | None = None
            if step.token is not None:
                cause, there = ("token", step.token), step.token in self.causality.taken
            elif how == "checkpoint" and peer is not None and peer != queue.name:
                cause, there = ("life", peer), peer in self.queues and self._over(self.queues[peer])
            if cause is not None and not there and (queue.name, *cause) not in self._released:
                return cause
        trusted = True
        if how == "checkpoint" and peer in self.queues and peer != queue.name:
            self._dirty[peer] = None  # the end of the life that it goes on from may be cut off
            trusted = step.token is not None or self.complete or self.queues[peer].ended
        self.causality.joined(
            queue.name, how, order=step.order, peer=peer, token=step.token, unclear=True, trusted=trusted
        )
        return None

    def _over(self, queue: Queue) -> bool:
        return queue.ended or (self._settled and not queue.ahead)

    def _snapshot(self, queue: Queue, token: str) -> None:
        self.causality.snapshot(queue.name, token)
        self._new.taken[token] = self.causality.taken[token]
        if token.startswith(ROOT):
            if token in queue.checkpoints:
                queue.checkpoints.remove(token)
            queue.checkpoints.append(token)
            if len(queue.checkpoints) > CHECKPOINTS:
                old = queue.checkpoints.pop(0)
                del self.causality.taken[old]
                if self._new.taken.pop(old, None) is None:
                    self._new.dropped.append(old)
        self._happened(("token", token))

    # -- events

    def _publish(self, queue: Queue, event: str, t: int) -> None:
        bare, use = event.partition("@")[0], (t, queue.name, queue.next, event)
        first = self._used.get(bare)
        if first is None:
            self._used[bare] = use
        else:  # an id, whoever its owner is, is used once more; the first use by time was right
            self._used[bare], (_, member, step, again) = min(first, use), max(first, use)
            self._reused[bare] = None
            self._findings.append(findings.reused(member, step, again))
        unit = self.causality.published(queue.name, event)
        if unit is None:
            return
        if unit.seq == 1:
            self._new.origins.append(queue.name)
        published = PublishedUnit(unit.origin, event, queue.next, t, unit.news)
        self.published.append(published)
        self._new.published.append(published)
        at = At(queue.name, queue.next, t, self.causality.lives[queue.name])
        self._overlaps += self.tickets.published(event, unit[:2], at)
        self._happened(("event", event))

    def _deliver(self, queue: Queue, step: TraceStep) -> None:
        causality, member, number = self.causality, queue.name, queue.next
        verdict = causality.delivered(member, step.event)
        unit: UnitId | None = None
        if verdict is UNKNOWN:
            origin = owner_of(step.event) or step.origin
            self._unknown.append((member, number, step))
        else:
            unit = causality.units[step.event][:2]
            origin = causality.origins[unit[0]].name
        cause = None
        if verdict is not IN_ORDER and unit is not None:
            finding = causality.explained(member, number, step.event, verdict)
            if finding is not None:
                self._findings.append(finding)
            cause = causality.event(causality.cause) if causality.cause is not None else None
        life = causality.lives[member]
        if step.event in life.dropped:
            self._findings.append(findings.after_drop(member, number, step.event or ""))
        order, seq = life.order, None if unit is None else unit[1]
        self._out.append(Judged(member, number, step.event, origin, seq, verdict, order, cause))

    # -- what is wrong

    def findings(self) -> list[Finding]:
        """What was found since this was asked last: broken promises, and what is in doubt."""
        for member, number, step in self._unknown:
            doubt = self._doubt(step)
            if doubt is not None:
                self.causality.lives[member].doubted += 1
            finding = self.causality.explained(member, number, step.event, UNKNOWN, doubt)
            if finding is not None:
                self._findings.append(finding)
        for pair in self._overlaps:
            self._findings.append(two_owners(*pair, doubtful(*pair, self._vague)))
        out, self._findings, self._unknown, self._overlaps = self._findings, [], [], []
        return out

    def _vague(self, member: str) -> bool:
        life = self.causality.lives.get(member)
        return life is not None and life.sure is not None

    def _doubt(self, step: TraceStep) -> str | None:
        """The member in whose trace the publish of this event may be missing; None: nobody has published it."""
        if step.event is None:
            return None
        owner = owner_of(step.event) or step.origin or findings.NOBODY
        if owner in self.torn:
            return owner
        if self.complete:
            return None
        queue = self.queues.get(owner)
        over = queue is not None and (queue.ended or self._went_beyond(step.event, owner))
        return None if over else owner

    def _why(self, member: str) -> str:
        """What is the matter with the trace of a member that leaves a doubt."""
        if member not in self.queues:
            return findings.NO_TRACE
        if member in self.torn:
            return findings.MISSING_STEPS
        return findings.UNKNOWN_START if self.complete or self.queues[member].ended else findings.OPEN_END

    def _went_beyond(self, event: str, owner: str) -> bool:
        """The owner has published later numbers: this one is not in a part of its trace that was cut off."""
        named = parse_id(event)
        if named is None:
            life = self.causality.life(owner)
            number = event.rpartition("/")[2]
            return (
                life.origin >= 0 and number.isdecimal() and int(number) <= len(self.causality.origins[life.origin].keys)
            )
        tenure = self.tickets.tenures.get((named.ticket, named.incarnation, owner))
        last = parse_id(tenure.last) if tenure is not None and tenure.last is not None else None
        return last is not None and last.seq > named.seq

    def report(self, found: Iterable[Finding] = ()) -> report.Report:
        """The run so far; `found`: what `findings` gave before."""
        every = [*found, *self.findings()]
        done = report.report(self.causality, every, settled=self._settled, complete=self.complete, missing=self.torn)
        done.doubts = [Doubt(member, self._why(member), n) for member, n in sorted(done.doubtful.items())]
        done.tenures = len(self.tickets.tenures)
        return done

    # -- the state

    def copy(self) -> Follower:
        """Another one in the same state."""
        other = Follower(self.complete)
        other.apply(msgspec.msgpack.decode(msgspec.msgpack.encode(self.whole()), type=StateChanges))
        return other

    def changes(self) -> StateChanges:
        """What is new since this was asked last."""
        new, self._new = self._new, StateChanges()
        new.queues = [self.queues[member] for member in self._dirty]
        new.lives = [self.causality.lives[member] for member in self._dirty if member in self.causality.lives]
        self._dirty = {}
        return self._with_claims(new)

    def whole(self) -> StateChanges:
        """Everything, as changes to nothing."""
        origins = [origin.name for origin in self.causality.origins]
        lives, queues = list(self.causality.lives.values()), list(self.queues.values())
        return self._with_claims(StateChanges(origins, self.published, lives, queues, self.causality.taken))

    def _with_claims(self, changes: StateChanges) -> StateChanges:
        """They are few: all of them, each time."""
        changes.tenures, changes.told = list(self.tickets.tenures.values()), list(self.tickets.told)
        changes.earliest = {bare: self._used[bare] for bare in self._reused}
        return changes

    def apply(self, changes: StateChanges) -> None:
        """Take over what another one has saved."""
        causality = self.causality
        for name in changes.origins:
            causality.add_origin(name)
        for published in changes.published:
            causality.add_unit(published.origin, published.event, published.news, 1)
            self.published.append(published)
            name = causality.origins[published.origin].name
            use = (published.t, name, published.step, published.event)
            self._used.setdefault(published.event.partition("@")[0], use)
        for life in changes.lives:
            causality.lives[life.name] = life
        for life in causality.lives.values():
            life.X += [0] * (len(causality.origins) - len(life.X))
        self.queues.update((queue.name, queue) for queue in changes.queues)
        causality.taken.update(changes.taken)
        for token in changes.dropped:
            causality.taken.pop(token, None)
        self.tickets.load(changes.tenures, changes.told)
        self._used |= changes.earliest
        self._reused = dict.fromkeys(changes.earliest)
        self._waiting = {}
        for queue in self.queues.values():
            if queue.blocked is not None:
                self._waiting.setdefault(queue.blocked, []).append(queue.name)


def _gives(step: TraceStep | None) -> list[Cause]:
    """What others may be waiting for."""
    if step is not None and step.kind == "publish":
        return [("event", step.event or "")]
    if step is not None and step.kind == "snapshot":
        return [("token", step.token or "")]
    return []


def step_of(row: Row, used: bool = True) -> TraceStep | None:
    """What the judge needs of a row; None: nothing but its number. `used`: somebody joins with the row's token."""
    if row.kind not in KINDS:
        return None
    token = row.token if used else None
    return TraceStep(row.kind, row.event, row.origin, row.reason, row.peer, row.order, token, row.ticket, row.t_ns)


def judge(rows: Iterable[Row], *, complete: bool = True, each: Callable[[Judged], None] | None = None) -> report.Report:
    """The verdict on the trace of one run of one cluster, rows in any order; `each` is told about every delivery.
    `complete`: what is missing in the trace did not happen; a missing step is a TraceError. Else it puts in doubt."""
    rows = list(rows)
    for row in rows:
        if (row.run, row.cluster) != (rows[0].run, rows[0].cluster):
            where = (rows[0].run, rows[0].cluster), (row.run, row.cluster)
            raise TraceError(f"rows of two runs or clusters: {where[0]} and {where[1]}; take one at a time")
    if complete:
        by_member(rows)
    used = {row.token for row in rows if row.kind == "join"}  # of the checkpoints of a live member, one at most
    follower = Follower(complete)
    steps = ((row.member, row.lseq, step_of(row, row.token in used)) for row in rows)
    judged = [*follower.feed(steps), *follower.settle()]
    if each is not None:
        for one in judged:
            each(one)
    return follower.report()
