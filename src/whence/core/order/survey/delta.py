"""Deadlines (Delta-causal order; Yavatkar 92, Baldoni, Mostefaoui and Raynal 96; SURVEY 3.4 on media streams).

A message is waited for until `lifetime` after its multicast, and discarded if it comes later. So a message waits at
most until its youngest predecessor has expired, which is before its own deadline: what arrives in time is delivered in
time.

Clocks decide what is lost, never what is inverted: a predecessor that was given up is *skipped*, and not delivered
later. A message is dated after all that its sender has delivered, so send times follow causality even where clocks do
not.
"""

from __future__ import annotations

from typing import Self

from whence.core.order.survey.base import Delivered, Mechanism, MechanismState, Message, Stamp, Wait
from whence.core.order.survey.counts import ProcessId, Renumber, dense, renumbered
from whence.errors import ConfigError

Dated = tuple[ProcessId, int, int]
"""`(process, seq, sent_at)`: the last message of a process in the past of another message."""


class DeltaStamp(Stamp, frozen=True, array_like=True, gc=False, tag=7):
    """When the message was multicast, and the last message of each process before it with its own date, ascending."""

    sent_at: int
    past: tuple[Dated, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(self.sent_at, tuple((to(p), n, at) for p, n, at in self.past))


class DeltaState(MechanismState, frozen=True, array_like=True, gc=False, tag=6):
    """What was delivered or given up, with dates."""

    delivered: tuple[int, ...]
    past: tuple[Dated, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered(self.delivered, to), tuple((to(p), n, at) for p, n, at in self.past))


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
        self.skipped = 0

    def stamp(self, seq: int, now: int) -> DeltaStamp:
        self.date = max(now, self.date + 1)
        stamp = DeltaStamp(self.date, tuple((p, *self.past[p]) for p in sorted(self.past)))
        self.past[self.me] = (seq, self.date)
        return stamp

    def arrive(self, message: Message, now: int) -> str | None:
        reason = self.obsolete(message, now)
        return reason or ("expired" if now > _stamp(message).sent_at + self.lifetime else None)

    def obsolete(self, message: Message, now: int) -> str | None:
        return self.delivered.reason(message)

    def rank(self, message: Message) -> tuple[int, ...]:
        return (_stamp(message).sent_at, message.sender)  # what is in hand goes before what follows it

    def wait(self, message: Message, now: int) -> Wait | None:
        upto, alive = self.delivered.upto, now - self.lifetime
        missing = [(p, n, at) for p, n, at in _stamp(message).past if n > upto.get(p, 0) and at >= alive]
        if not missing:
            return None
        until = max(at for _, _, at in missing) + self.lifetime + 1
        return Wait(tuple((p, upto.get(p, 0) + 1, n) for p, n, _ in missing), until)

    def deliver(self, message: Message, now: int) -> list[Message]:
        stamp = _stamp(message)
        for p, n, at in stamp.past:
            self.skipped += self.delivered.skip_to(p, n)
            self.past[p] = max(self.past.get(p, (0, 0)), (n, at))
        self.skipped += self.delivered.add(message)
        self.past[message.sender] = max(self.past.get(message.sender, (0, 0)), (message.seq, stamp.sent_at))
        self.date = max(self.date, stamp.sent_at)
        return [message]

    def leave(self, process: ProcessId) -> None:
        self.past.pop(process, None)  # everybody has it; its count stays, for what is held and mentions it

    def admit(self, joiner: ProcessId) -> DeltaState:
        return DeltaState(dense(self.delivered.upto), tuple((p, *self.past[p]) for p in sorted(self.past)))

    def install(self, state: MechanismState) -> None:
        assert isinstance(state, DeltaState)
        self.delivered = Delivered(state.delivered)
        self.past = {p: (n, at) for p, n, at in state.past}
        self.date = max((at for _, _, at in state.past), default=0)


def _stamp(message: Message) -> DeltaStamp:
    assert isinstance(message.stamp, DeltaStamp)
    return message.stamp
