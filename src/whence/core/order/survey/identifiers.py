"""Identifiers only (Psync 89, lazy replication 92; SURVEY 3.1): a message names the messages it follows, and waits for
them.

It names its **direct** predecessors: the leaves of its sender's context graph (Psync), that is everything delivered
that no other delivered message follows. All else in its past precedes one of them, so waiting for them is enough.
"""

from __future__ import annotations

from typing import Self

from whence.core.order.survey.base import Mechanism, MechanismState, Message, Stamp, Wait
from whence.core.order.survey.counts import (
    Counts,
    Gap,
    Id,
    ProcessId,
    Renumber,
    dense,
    gaps,
    renumbered,
    renumbered_ids,
    sparse,
)


class IdStamp(Stamp, frozen=True, array_like=True, gc=False, tag=2):
    """The ids of the direct predecessors, ascending."""

    after: tuple[Id, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered_ids(self.after, to))


class IdState(MechanismState, frozen=True, array_like=True, gc=False, tag=2):
    """What was delivered of each process, the leaves of the context graph, and what was given up."""

    delivered: tuple[int, ...]
    leaves: tuple[Id, ...]
    dead: tuple[Id, ...] = ()

    def renumbered(self, to: Renumber) -> Self:
        leaves, dead = renumbered_ids(self.leaves, to), renumbered_ids(self.dead, to)
        return type(self)(renumbered(self.delivered, to), leaves, dead)


class Identifiers(Mechanism):
    """Ids of precedent messages."""

    name = "identifiers"
    chained = True
    MAX_DEAD = 10_000
    """Ids remembered that were given up; of more the oldest are forgotten."""
    stamp_type = IdStamp
    state_type = IdState

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.delivered: Counts = {}
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
        assert isinstance(message.stamp, IdStamp)
        have = self.delivered.get(message.sender, 0)
        if message.seq <= have:
            return "duplicate"
        if message.anchor or not self.dead or message.seq > have + 1:  # what is between may still come
            return None
        follows = ((message.sender, message.seq - 1), *message.stamp.after)
        return "broken" if any(one in self.dead for one in follows) else None

    def forget(self, message: Message) -> None:
        self._give_up((message.sender, message.seq, message.seq))

    def _give_up(self, gap: Gap) -> None:
        process, first, last = gap
        self.delivered[process] = max(last, self.delivered.get(process, 0))
        for seq in range(max(first, last - self.MAX_DEAD), last + 1):
            self.dead[process, seq] = None
        while len(self.dead) > self.MAX_DEAD:
            del self.dead[next(iter(self.dead))]

    def wait(self, message: Message, now: int) -> Wait | None:
        assert isinstance(message.stamp, IdStamp)
        # A sender's message before is in the past of the next one, so ids of a sender are delivered without holes and a
        # count of them says it all. It is looked at here too, because a message must not hide a hole from a careless
        # peer.
        found = gaps(self.delivered, [(message.sender, message.seq - 1), *message.stamp.after])
        return Wait(found) if found else None

    def deliver(self, message: Message, now: int) -> list[Message]:
        assert isinstance(message.stamp, IdStamp)
        self.delivered[message.sender] = message.seq
        if message.sender != self.me:
            for predecessor in message.stamp.after:
                self.leaves.pop(predecessor, None)
            self.leaves[message.id] = None
        return [message]

    def skip(self, message: Message, now: int) -> None:
        wait = self.wait(message, now)
        for gap in wait.missing if wait is not None else ():
            self._give_up(gap)

    def leave(self, process: ProcessId) -> None:
        self.delivered.pop(process, None)
        self.leaves = {leaf: None for leaf in self.leaves if leaf[0] != process}  # everybody has them (rule 6)

    def settle(self, upto: Counts) -> None:
        self.leaves = {(p, n): None for p, n in self.leaves if n > upto.get(p, 0)}

    def admit(self, joiner: ProcessId) -> IdState:
        return IdState(dense(self.delivered), tuple(sorted(self.leaves)), tuple(self.dead))

    def install(self, state: MechanismState) -> None:
        assert isinstance(state, IdState)
        self.delivered = sparse(state.delivered)
        self.leaves = dict.fromkeys(state.leaves)
        self.dead = dict.fromkeys(state.dead)
