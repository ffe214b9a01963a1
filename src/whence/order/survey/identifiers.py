"""Identifiers only (Psync 89, lazy replication 92; SURVEY 3.1): a message names the messages it follows, and waits for
them.

It names its **direct** predecessors: the leaves of its sender's context graph (Psync), that is everything delivered
that no other delivered message follows. All else in its past precedes one of them, so waiting for them is enough.
"""

from __future__ import annotations

from typing import Self

from whence.order.survey.base import (
    Counts,
    Id,
    Message,
    ProcessId,
    Renumber,
    Rules,
    Stamp,
    State,
    Wait,
    dense,
    gaps,
    renumbered,
    sparse,
)


class IdStamp(Stamp, frozen=True, array_like=True, gc=False, tag=2):
    """The ids of the direct predecessors, ascending."""

    after: tuple[Id, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(tuple((to(p), n) for p, n in self.after))


class IdState(State, frozen=True, array_like=True, gc=False, tag=2):
    """What was delivered of each process, and the leaves of the context graph."""

    delivered: tuple[int, ...]
    leaves: tuple[Id, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered(self.delivered, to), tuple((to(p), n) for p, n in self.leaves))


class Identifiers(Rules):
    """Ids of precedent messages."""

    name = "identifiers"
    stamp_type = IdStamp
    state_type = IdState

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.delivered: Counts = {}
        self.leaves: dict[Id, None] = {}

    def stamp(self, seq: int, now: int) -> IdStamp:
        stamp = IdStamp(tuple(sorted(self.leaves)))
        self.leaves = {(self.me, seq): None}  # the own message follows all that was there
        return stamp

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if message.seq <= self.delivered.get(message.sender, 0) else None

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
        for p, _, last in wait.missing if wait is not None else ():
            self.delivered[p] = max(last, self.delivered.get(p, 0))

    def leave(self, process: ProcessId) -> None:
        self.delivered.pop(process, None)
        self.leaves = {leaf: None for leaf in self.leaves if leaf[0] != process}  # everybody has them (rule 5)

    def settle(self, upto: Counts) -> None:
        self.leaves = {(p, n): None for p, n in self.leaves if n > upto.get(p, 0)}

    def admit(self, joiner: ProcessId) -> IdState:
        return IdState(dense(self.delivered), tuple(sorted(self.leaves)))

    def install(self, state: State) -> None:
        assert isinstance(state, IdState)
        self.delivered = sparse(state.delivered)
        self.leaves = dict.fromkeys(state.leaves)
