"""Orders that go by counts or names.

**Vector clocks** (Birman, Schiper and Stephenson 91; SURVEY 3.2), and the two ways to compact them (SURVEY 3.3).

Deliver `m` of `i` when `VC_m[i] = VC[i] + 1` and `VC_m[k] <= VC[k]` for all other k. A compacted stamp leaves entries
out: those that have not changed since a message that the receiver must deliver first anyhow. What is left out was
therefore checked when that message was delivered, and the rule is the same with fewer entries.

Departs from the SURVEY, whose slots are set to zero when the membership changes: here they go on counting, because
`(sender, seq)` names a message for recovery too. A slot of a process that left is zero in stamps from then on (rule 6).

**Identifiers** only (Psync 89, lazy replication 92; SURVEY 3.1): a message names the messages it follows, and waits for
them.

It names its **direct** predecessors: the leaves of its sender's context graph (Psync), that is everything delivered
that no other delivered message follows. All else in its past precedes one of them, so waiting for them is enough.

**Interval tree clocks** as a causal order (SURVEY 3.2, Almeida et al. 2008): no global ids, no view changes.

A message carries its sender's stamp just **before** the multicast; the receiver computes the event itself. So one stamp
says what must come before the message (all of `before`) and what the message is (`event(before)`). A joiner gets half
of a member's interval with its snapshot; a leaver's share goes to an heir. Nobody else is told.

It cannot name what is missing: recovery has to compare what peers have delivered. The share of a process that crashes
is lost, and stays in the trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from whence.core.clock.bounds import keep_last
from whence.core.clock.interval import MAX_DEPTH, SEED, decode, depth, encode, event, fork, join, leq, peek, top
from whence.core.clock.interval import TreeStamp as Itc
from whence.core.order.survey.base import (
    Counting,
    Counts,
    Gap,
    Id,
    Mechanism,
    MechanismState,
    Message,
    ProcessId,
    Stamp,
    Vector,
    Wait,
    dense,
    gaps,
    renumbered,
    renumbered_rows,
    sparse,
)
from whence.errors import BadFrame, UsageError


class VectorStamp(Stamp, frozen=True, array_like=True, gc=False, tag=3):
    """`VC_m`, by process number."""

    clock: Vector

    numbers: ClassVar = {"clock": renumbered}


class CompactStamp(Stamp, frozen=True, array_like=True, gc=False, tag=4):
    """The entries of `VC_m` that the receivers may not know: `(process, count)`, ascending."""

    entries: tuple[Id, ...]

    numbers: ClassVar = {"entries": renumbered_rows}


class VectorState(MechanismState, frozen=True, array_like=True, gc=False, tag=3):
    """`VC` of the member that gave the state, and which chains are broken there."""

    clock: Vector
    broken: tuple[Id, ...] = ()

    numbers: ClassVar = {"clock": renumbered, "broken": renumbered_rows}


class VectorClock(Counting):
    """The whole vector in every message."""

    name = "vector"
    stamp_type: ClassVar[type[Stamp]] = VectorStamp
    state_type = VectorState

    def needed(self, stamp: Any) -> Iterable[Id]:
        """What the stamp says must be delivered before its message."""
        return enumerate(stamp.clock)

    def missing(self, message: Message) -> tuple[Gap, ...]:
        others = (entry for entry in self.needed(message.stamp) if entry[0] != message.sender)
        return gaps(self.delivered, [(message.sender, message.seq - 1), *others])

    def stamp(self, seq: int, now: int) -> Stamp:
        return VectorStamp(dense({**self.delivered, self.me: seq}))

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.delivered[message.sender] = message.seq
        self.broken.pop(message.sender, None)
        return [message]

    def admit(self, joiner: ProcessId) -> VectorState:
        return VectorState(dense(self.delivered), tuple(sorted(self.broken.items())))

    def install(self, state: Any) -> None:
        self.delivered, self.broken = sparse(state.clock), dict(state.broken)


class CompactMulticast(VectorClock):
    """Only the entries that have changed since the last own multicast (BSS 91; SURVEY Fig. 7)."""

    name = "compact-multicast"
    stamp_type = CompactStamp
    chained = True

    def __init__(self, me: ProcessId) -> None:
        super().__init__(me)
        self.last: Counts = {}  # `LM`: the clock at the last own multicast

    def anchor(self) -> None:
        self.last = {}

    def needed(self, stamp: Any) -> Iterable[Id]:
        return (*stamp.entries,)

    def stamp(self, seq: int, now: int) -> Stamp:
        clock = {**self.delivered, self.me: seq}
        changed = tuple((p, n) for p, n in sorted(clock.items()) if n > self.last.get(p, 0))
        self.last = clock
        return CompactStamp(changed)


class CompactUnicast(CompactMulticast):
    """Only the entries that have changed since the last message to the same destination: `LU` and `LS` of Singhal and
    Kshemkalyani 92, for a multicast, which has to serve all its destinations with one stamp.

    `tick` is the process's local time (one per send and per delivery, `VC[i]` of SURVEY Ex3; see `SkClock` for the
    clock as published). Against `CompactMulticast` it costs a vector more and gains that a destination to
    which nothing was sent yet is told everything, whatever it started from.
    """

    name = "compact-unicast"

    def __init__(self, me: ProcessId, members: tuple[ProcessId, ...] = ()) -> None:
        super().__init__(me)
        self.tick = 0
        self.lu: dict[ProcessId, int] = {}
        self.ls: dict[ProcessId, int] = {p: 0 for p in members if p != me}
        self._full = False

    def anchor(self) -> None:
        self._full = True

    def stamp(self, seq: int, now: int) -> Stamp:
        self.tick += 1
        clock = {**self.delivered, self.me: seq}
        self.lu[self.me] = self.tick
        since = -1 if self._full else min(self.ls.values(), default=0)
        self._full = False
        self.ls = dict.fromkeys(self.ls, self.tick)
        return CompactStamp(tuple((p, n) for p, n in sorted(clock.items()) if since < self.lu.get(p, 0)))

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.tick += 1
        if message.sender != self.me:
            self.lu[message.sender] = self.tick
        return super().deliver(message, now)

    def skip(self, message: Message, now: int) -> None:
        self.lu.update((p, self.tick + 1) for p, _, _ in self.missing(message))
        super().skip(message, now)

    def join(self, process: ProcessId) -> None:
        if process != self.me:
            self.ls.setdefault(process, 0)

    def leave(self, process: ProcessId) -> None:
        super().leave(process)
        self.lu.pop(process, None)
        self.ls.pop(process, None)

    def install(self, state: Any) -> None:
        super().install(state)
        self.tick = 1
        self.lu = dict.fromkeys(self.delivered, 1)  # all of it is news to everybody
        self.ls = dict.fromkeys(self.ls, 0)


class IdStamp(Stamp, frozen=True, array_like=True, gc=False, tag=2):
    """The ids of the direct predecessors, ascending."""

    after: tuple[Id, ...]

    numbers: ClassVar = {"after": renumbered_rows}


class IdState(MechanismState, frozen=True, array_like=True, gc=False, tag=2):
    """What was delivered of each process, the leaves of the context graph, and what was given up."""

    delivered: Vector
    leaves: tuple[Id, ...]
    dead: tuple[Id, ...] = ()

    numbers: ClassVar = {"leaves": renumbered_rows, "dead": renumbered_rows, "delivered": renumbered}


class Identifiers(Counting):
    """Ids of precedent messages."""

    name = "identifiers"
    chained = True
    MAX_DEAD = 10_000
    """Ids remembered that were given up; of more the oldest are forgotten."""
    stamp_type = IdStamp
    state_type = IdState

    def __init__(self, me: ProcessId) -> None:
        super().__init__(me)
        self.leaves: dict[Id, None] = {}
        self.dead: dict[Id, None] = {}
        self._full = False

    def anchor(self) -> None:
        self._full = True

    def stamp(self, seq: int, now: int) -> IdStamp:
        named = ((p, n) for p, n in self.delivered.items() if p != self.me) if self._full else self.leaves
        stamp = IdStamp(tuple(sorted(named)))
        self._full = False
        self.leaves = {(self.me, seq): None}  # the own message follows all that was there
        return stamp

    def obsolete(self, message: Message, now: int) -> str | None:
        have = self.delivered.get(message.sender, 0)
        if message.seq <= have:
            return "duplicate"
        if message.anchor or not self.dead or message.seq > have + 1:  # what is between may still come
            return None
        follows = ((message.sender, message.seq - 1), *message.stamp.after)
        return "broken" if any(one in self.dead for one in follows) else None

    def give_up(self, process: ProcessId, last: int) -> None:
        first = self.delivered.get(process, 0) + 1
        self.delivered[process] = max(last, first - 1)
        for seq in range(max(first, last - self.MAX_DEAD), last + 1):
            self.dead[process, seq] = None
        keep_last(self.dead, self.MAX_DEAD)

    def missing(self, message: Message) -> tuple[Gap, ...]:
        # A sender's message before is in the past of the next one, so ids of a sender are delivered without holes and a
        # count of them says it all. It is looked at here too, because a message must not hide a hole from a careless
        # peer.
        return gaps(self.delivered, [(message.sender, message.seq - 1), *message.stamp.after])

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.delivered[message.sender] = message.seq
        if message.sender != self.me:
            for predecessor in message.stamp.after:
                self.leaves.pop(predecessor, None)
            self.leaves[message.id] = None
        return [message]

    def leave(self, process: ProcessId) -> None:
        super().leave(process)
        self.leaves = {leaf: None for leaf in self.leaves if leaf[0] != process}  # everybody has them (rule 6)

    def settle(self, upto: Counts) -> None:
        self.leaves = {(p, n): None for p, n in self.leaves if n > upto.get(p, 0)}

    def admit(self, joiner: ProcessId) -> IdState:
        return IdState(dense(self.delivered), tuple(sorted(self.leaves)), tuple(self.dead))

    def install(self, state: Any) -> None:
        self.delivered = sparse(state.delivered)
        self.leaves = dict.fromkeys(state.leaves)
        self.dead = dict.fromkeys(state.dead)


class IntervalStamp(Stamp, frozen=True, array_like=True, gc=False, tag=5):
    """The sender's stamp before its multicast, encoded."""

    before: bytes


class IntervalState(MechanismState, frozen=True, array_like=True, gc=False, tag=4):
    """A share of the interval, and the events known with it."""

    stamp: bytes


class IntervalTree(Mechanism):
    """Causal order by interval tree clocks. A founder starts from the whole interval (`share`); a joiner has none
    until it installs what a member gave it."""

    name = "interval"
    stamp_type = IntervalStamp
    state_type = IntervalState

    def __init__(self, me: ProcessId, share: Itc = Itc(0, 0)) -> None:  # noqa: B008 - a tuple, never changed
        self.me = me
        self.sent = share  # what was delivered, and the own multicasts
        self.delivered = peek(share)

    def stamp(self, seq: int, now: int) -> IntervalStamp:
        before, self.sent = self.sent, event(self.sent)
        return IntervalStamp(encode(before))

    def check(self, stamp: Any) -> None:
        if decode(stamp.before).id == 0:
            raise BadFrame("a message from a process without a share of the interval")

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if leq(event(_before(message)), self.delivered) else None

    def wait(self, message: Message, now: int) -> Wait | None:
        return None if leq(_before(message), self.delivered) else Wait()

    def precedes(self, a: Message, b: Message, now: int) -> bool:
        return leq(event(_before(a)), _before(b))

    def skip(self, message: Message, now: int) -> None:
        self._learn(peek(_before(message)))

    def beyond(self, stamp: Any) -> int:
        return top(decode(stamp.before).event) - top(self.delivered.event)

    def deliver(self, message: Message, now: int) -> list[Message]:
        self._learn(peek(event(_before(message))))
        return [message]

    def _learn(self, known: Itc) -> None:
        self.delivered = join(self.delivered, known)
        self.sent = join(self.sent, known)

    def save(self) -> IntervalState:
        return IntervalState(encode(self.sent))

    def admit(self, joiner: ProcessId) -> IntervalState:
        if self.sent.id == 0:
            raise UsageError("a process without a share of the interval cannot admit others")
        if depth(self.sent.id) >= MAX_DEPTH // 2:  # peers refuse what is deeper than MAX_DEPTH
            raise UsageError("this process has split its share of the interval too often to admit others")
        if not leq(self.sent, self.delivered):  # its event would be counted in the joiner's half too
            raise UsageError("a process whose own multicast is not delivered yet cannot admit others")
        self.sent, half = fork(self.sent)
        return IntervalState(encode(Itc(half.id, self.delivered.event)))

    def install(self, state: Any) -> None:
        self.sent = decode(state.stamp)
        self.delivered = peek(self.sent)


def shares(processes: list[ProcessId]) -> dict[ProcessId, Itc]:
    """The interval among the founders, by halving: each with a share, the trees as flat as can be."""

    def deal(some: list[ProcessId], share: Itc) -> dict[ProcessId, Itc]:
        if len(some) == 1:
            return {some[0]: share}
        left, right = fork(share)
        middle = (len(some) + 1) // 2
        return deal(some[:middle], left) | deal(some[middle:], right)

    return deal(processes, SEED) if processes else {}


def _before(message: Message) -> Itc:
    return decode(message.stamp.before)
