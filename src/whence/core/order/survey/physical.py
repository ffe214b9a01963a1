"""Physical timestamps inside a subgroup (Kawanami et al. 2004, Prakash and Baldoni; SURVEY 3.4): no vector, no
membership.

A message is stamped with its sender's clock and delivered when the own clock says `now >= time + bound`, by timestamp.
The **assumption**: any two clocks differ by at most `skew`, and a message arrives within `delay`; then with `bound =
skew + delay` everything with a smaller timestamp is already here. The own clock has passed `time + bound` at delivery,
so later own multicasts are stamped later: timestamps follow causality as long as no clock goes back. Hybrid logical
clocks (the default) do not need that either.

If the assumption is broken, the order is not: a message that comes after one with a larger timestamp was delivered is
**late**, dropped and counted. (With `keep_late` it is delivered, may be an inversion, and is counted in
`delivered_late`.) A timestamp more than `skew` ahead is counted in `ahead`. A bare clock that went back shows as
`inverted`: an own multicast stamped below something delivered before it.
"""

from __future__ import annotations

from typing import Self

from whence.core.clock.hybrid import Hybrid, HybridClock
from whence.core.order.survey.base import Delivered, Mechanism, MechanismState, Message, Stamp, Wait
from whence.core.order.survey.counts import ProcessId, Renumber, dense, gaps, renumbered
from whence.errors import ConfigError


class TimeStamp(Stamp, frozen=True, array_like=True, gc=False, tag=6):
    """When the message was multicast, by its sender's clock; `count` tells those of one moment apart."""

    time: int
    count: int = 0


class TimeState(MechanismState, frozen=True, array_like=True, gc=False, tag=5):
    """What was delivered of each process, the rank of the last delivery, the hybrid clock."""

    delivered: tuple[int, ...]
    last: tuple[int, int, int]
    clock: tuple[int, int]

    def renumbered(self, to: Renumber) -> Self:
        time, count, sender = self.last
        last = (time, count, to(sender) if sender >= 0 else sender)
        return type(self)(renumbered(self.delivered, to), last, self.clock)


class Physical(Mechanism):
    """Delivery by stability within a bound."""

    name = "physical"
    timed = True
    stamp_type = TimeStamp
    state_type = TimeState

    def __init__(self, me: ProcessId, skew: int, delay: int, hybrid: bool = True, keep_late: bool = False) -> None:
        """`skew`, `delay`: nanoseconds. Larger: every delivery waits longer. Smaller: more is late."""
        if skew < 0 or delay < 0:
            raise ConfigError(f"skew and delay must not be negative: {skew}, {delay}")
        self.me = me
        self.skew = skew
        self.bound = skew + delay
        self.hybrid = hybrid
        self.keep_late = keep_late
        self.clock = HybridClock()
        self.last = (0, 0, -1)
        """The rank of the last delivery of another process's message."""
        self.delivered = Delivered()
        self.delivered_late = 0
        self.ahead = 0
        self.inverted = 0
        self.skipped = 0
        """Messages that were missing when one of the same sender after them was delivered: lost, or late if they
        come."""

    def stamp(self, seq: int, now: int) -> TimeStamp:
        if self.hybrid:
            return TimeStamp(*self.clock.tick(now))
        self.inverted += now < self.last[0]
        at = max(now, self.clock.now.time)  # the own clock may be set back, an own message must not precede the last
        self.clock.now = Hybrid(at, self.clock.now.count + 1 if at == self.clock.now.time else 0)
        return TimeStamp(*self.clock.now)

    def rank(self, message: Message) -> tuple[int, int, int]:
        assert isinstance(message.stamp, TimeStamp)
        return (message.stamp.time, message.stamp.count, message.sender)

    def arrive(self, message: Message, now: int) -> str | None:
        self.ahead += self.rank(message)[0] > now + self.skew
        return self.obsolete(message, now)

    def obsolete(self, message: Message, now: int) -> str | None:
        reason = self.delivered.reason(message) or ("late" if self._is_late(message) else None)
        return None if reason == "late" and self.keep_late else reason

    def _is_late(self, message: Message) -> bool:
        return message.sender != self.me and self.rank(message) <= self.last

    def wait(self, message: Message, now: int) -> Wait | None:
        until = self.rank(message)[0] + self.bound
        if message.sender == self.me or now >= until:
            return None
        return Wait(gaps(self.delivered.upto, [(message.sender, message.seq - 1)]), until)

    def deliver(self, message: Message, now: int) -> list[Message]:
        rank = self.rank(message)
        self.delivered_late += self._is_late(message)
        self.skipped += self.delivered.add(message)
        if message.sender != self.me:  # own ones are delivered at once, ahead of their rank: that makes nothing late
            self.last = max(self.last, rank)
            if self.hybrid:
                self.clock.witness(Hybrid(rank[0], rank[1]), now)
        return [message]

    def admit(self, joiner: ProcessId) -> TimeState:
        return TimeState(dense(self.delivered.upto), self.last, self.clock.now)

    def install(self, state: MechanismState) -> None:
        assert isinstance(state, TimeState)
        self.delivered = Delivered(state.delivered)
        self.last = state.last
        self.clock.now = Hybrid(*state.clock)
