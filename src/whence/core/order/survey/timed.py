"""Orders that go by time.

**Hybrid logical clocks** (Kulkarni et al. 2014): physical time that never contradicts causality.

A timestamp is `(time, count)`: the largest physical time known, in nanoseconds, and a counter for events at the same
one. If a happened before b then `a < b`, however wrong the physical clocks are; if they are right within `e`, `time` is
within `e` of the truth.

**Physical timestamps** inside a subgroup (Kawanami et al. 2004, Prakash and Baldoni; SURVEY 3.4): no vector, no
membership.

A message is stamped with its sender's clock and delivered when the own clock says `now >= time + bound`, by timestamp.
The **assumption**: any two clocks differ by at most `skew`, and a message arrives within `delay`; then with `bound =
skew + delay` everything with a smaller timestamp is already here. The own clock has passed `time + bound` at delivery,
so later own multicasts are stamped later: timestamps follow causality as long as no clock goes back. The clocks are
hybrid logical ones, which do not need that either.

If the assumption is broken, the order is not: a message that comes after one with a larger timestamp was delivered is
**late**, dropped and counted.

**Deadlines** (Delta-causal order; Yavatkar 92, Baldoni, Mostefaoui and Raynal 96; SURVEY 3.4 on media streams).

A message is waited for until `lifetime` after its multicast, and discarded if it comes later. So a message waits at
most until its youngest predecessor has expired, which is before its own deadline: what arrives in time is delivered in
time.

Clocks decide what is lost, never what is inverted: a predecessor that was given up is *skipped*, and not delivered
later. A message is dated after all that its sender has delivered, so send times follow causality even where clocks do
not.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from whence.core.order.survey.base import (
    MAX_NUMBER,
    Delivered,
    Mechanism,
    MechanismState,
    Message,
    Number,
    ProcessId,
    Renumber,
    Stamp,
    Vector,
    Wait,
    dense,
    gaps,
    renumbered,
    renumbered_rows,
)
from whence.errors import ConfigError


class Hybrid(NamedTuple):
    """A timestamp; compared lexicographically."""

    time: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count


class HybridClock:
    """The clock of one process."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = Hybrid(0, 0)

    def tick(self, physical: int) -> Hybrid:
        """A local event, such as a send; `physical` is what the process's own clock says."""
        last = self.now
        self.now = Hybrid(physical, 0) if physical > last.time else Hybrid(last.time, last.count + 1)
        return self.now

    def witness(self, other: Hybrid, physical: int) -> Hybrid:
        """A message with this timestamp is delivered."""
        last = self.now
        time = max(last.time, other.time, physical)
        counts = [t.count for t in (last, other) if t.time == time]
        self.now = Hybrid(time, max(counts) + 1 if counts else 0)
        return self.now


class TimeStamp(Stamp, frozen=True, array_like=True, gc=False, tag=6):
    """When the message was multicast, by its sender's clock; `count` tells those of one moment apart."""

    time: Number
    count: Number = 0


Rank = tuple[Number, Number, Annotated[int, msgspec.Meta(ge=-1, le=MAX_NUMBER)]]
"""Time, count and sender of a message; sender -1: none yet."""


def _renumbered_rank(rank: Rank, to: Renumber) -> Rank:
    time, count, sender = rank
    return (time, count, to(sender) if sender >= 0 else sender)


class TimeState(MechanismState, frozen=True, array_like=True, gc=False, tag=5):
    """What was delivered of each process, the rank of the last delivery, the hybrid clock."""

    delivered: Vector
    last: Rank
    clock: tuple[Number, Number]

    numbers: ClassVar = {"last": _renumbered_rank, "delivered": renumbered}


class Physical(Mechanism):
    """Delivery by stability within a bound."""

    name = "physical"
    timed = True
    stamp_type = TimeStamp
    state_type = TimeState

    def __init__(self, me: ProcessId, skew: int, delay: int) -> None:
        """`skew`, `delay`: nanoseconds. Larger: every delivery waits longer. Smaller: more is late."""
        if skew < 0 or delay < 0:
            raise ConfigError(f"skew and delay must not be negative: {skew}, {delay}")
        self.me = me
        self.bound = skew + delay
        self.clock = HybridClock()
        self.last = (0, 0, -1)  # the rank of the last delivery of another process's message
        self.delivered = Delivered()

    def stamp(self, seq: int, now: int) -> TimeStamp:
        return TimeStamp(*self.clock.tick(now))

    def rank(self, message: Message) -> tuple[int, int, int]:
        return (message.stamp.time, message.stamp.count, message.sender)

    def obsolete(self, message: Message, now: int) -> str | None:
        late = message.sender != self.me and self.rank(message) <= self.last
        return self.delivered.reason(message) or ("late" if late else None)

    def wait(self, message: Message, now: int) -> Wait | None:
        until = self.rank(message)[0] + self.bound
        if message.sender == self.me or now >= until:
            return None
        return Wait(gaps(self.delivered.upto, [(message.sender, message.seq - 1)]), until)

    def deliver(self, message: Message, now: int) -> list[Message]:
        rank = self.rank(message)
        self.delivered.add(message)
        if message.sender != self.me:  # own ones are delivered at once, ahead of their rank: that makes nothing late
            self.last = max(self.last, rank)
            self.clock.witness(Hybrid(rank[0], rank[1]), now)
        return [message]

    def admit(self, joiner: ProcessId) -> TimeState:
        return TimeState(dense(self.delivered.upto), self.last, self.clock.now)

    def install(self, state: Any) -> None:
        self.delivered = Delivered(state.delivered)
        self.last = state.last
        self.clock.now = Hybrid(*state.clock)


Dated = tuple[ProcessId, Number, Number]
"""`(process, seq, sent_at)`: the last message of a process in the past of another message."""


class DeltaStamp(Stamp, frozen=True, array_like=True, gc=False, tag=7):
    """When the message was multicast, and the last message of each process before it with its own date, ascending."""

    sent_at: Number
    past: tuple[Dated, ...]

    numbers: ClassVar = {"past": renumbered_rows}


class DeltaState(MechanismState, frozen=True, array_like=True, gc=False, tag=6):
    """What was delivered or given up, with dates."""

    delivered: Vector
    past: tuple[Dated, ...]

    numbers: ClassVar = {"delivered": renumbered, "past": renumbered_rows}


class DeltaCausal(Mechanism):
    """Vector clocks whose entries have a date and expire."""

    name = "delta"
    timed = True
    stamp_type = DeltaStamp
    state_type = DeltaState

    def __init__(self, me: ProcessId, lifetime: int) -> None:
        """`lifetime`: Delta in nanoseconds. Shorter: less waiting, more loss."""
        if lifetime <= 0:
            raise ConfigError(f"a lifetime must be positive, not {lifetime}")
        self.me = me
        self.lifetime = lifetime
        self.delivered = Delivered()
        self.past: dict[ProcessId, tuple[int, int]] = {}
        """Of each process the last message delivered, given up, or sent: `(seq, sent_at)`."""
        self.date = 0

    def stamp(self, seq: int, now: int) -> DeltaStamp:
        self.date = max(now, self.date + 1)
        stamp = DeltaStamp(self.date, tuple((p, *self.past[p]) for p in sorted(self.past)))
        self.past[self.me] = (seq, self.date)
        return stamp

    def arrive(self, message: Message, now: int) -> str | None:
        reason = self.obsolete(message, now)
        return reason or ("expired" if now > message.stamp.sent_at + self.lifetime else None)

    def obsolete(self, message: Message, now: int) -> str | None:
        return self.delivered.reason(message)

    def rank(self, message: Message) -> tuple[int, ...]:
        return (message.stamp.sent_at, message.sender)  # what is in hand goes before what follows it

    def wait(self, message: Message, now: int) -> Wait | None:
        upto, alive = self.delivered.upto, now - self.lifetime
        missing = [(p, n, at) for p, n, at in message.stamp.past if n > upto.get(p, 0) and at >= alive]
        if not missing:
            return None
        until = max(at for _, _, at in missing) + self.lifetime + 1
        return Wait(tuple((p, upto.get(p, 0) + 1, n) for p, n, _ in missing), until)

    def deliver(self, message: Message, now: int) -> list[Message]:
        stamp = message.stamp
        for p, n, at in stamp.past:
            self.delivered.skip_to(p, n)
            self.past[p] = max(self.past.get(p, (0, 0)), (n, at))
        self.delivered.add(message)
        self.past[message.sender] = max(self.past.get(message.sender, (0, 0)), (message.seq, stamp.sent_at))
        self.date = max(self.date, stamp.sent_at)
        return [message]

    def leave(self, process: ProcessId) -> None:
        self.past.pop(process, None)  # everybody has it; its count stays, for what is held and mentions it

    def admit(self, joiner: ProcessId) -> DeltaState:
        return DeltaState(dense(self.delivered.upto), tuple((p, *self.past[p]) for p in sorted(self.past)))

    def install(self, state: Any) -> None:
        self.delivered = Delivered(state.delivered)
        self.past = {p: (n, at) for p, n, at in state.past}
        self.date = max((at for _, _, at in state.past), default=0)
