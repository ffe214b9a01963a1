"""What the parts of a ring share: who this process is, the tenure it has, the time, its timers and its outputs.

A part is a small class with the state of one job. Its constructor takes the context and the parts it builds on. The
protocol's own file (`tolerant.py`, `council/ring.py`) says which message and which timer goes to which part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from enum import StrEnum

from whence.core.clock import Incarnation, MemberId, Send
from whence.core.ring.config import RingConfig, between
from whence.core.ring.edge import Edge
from whence.core.ring.interface import Announce, BecameOwner, Granted, RingOutput, State
from whence.core.ring.messages import Holder, JoinedNews, Reject, RingMessage, Tenure
from whence.core.ring.table import Table

SEATED = (State.PROBATION, State.OWNER, State.LEAVING)
"""The states with a ticket."""


class Timer(StrEnum):
    """What a ring waits for. There is one of each; a stale one finds nothing to do. Timers that are due at the same
    moment go off in the order of their names."""

    # founding and applying: every protocol
    QUARANTINE = "quarantine"
    LOOK = "look"
    APPLY = "apply"
    ANSWER = "answer"
    # the neighbourhood protocol
    ROUND = "round"
    UPDATE = "update"
    EXCLUDE = "exclude"
    ACKS = "acks"
    TEMP = "temp"
    FROZEN = "frozen"
    NEWCOMER = "newcomer"
    PROBATION = "probation"
    LEAVE = "leave"
    PATIENCE = "patience"
    RALLY = "rally"
    GATHERED = "gathered"
    # the council
    COUNCIL = "council"
    POLL = "poll"
    READ = "read"
    PREPARED = "prepared"
    PROPOSAL = "proposal"


class Context:
    """One process's place in the ring."""

    MAX_DONE = 4096  # tenures remembered as taken or declined

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.table = Table(config.tickets)
        self.state = State.OUT
        self.holder: Holder | None = None
        """This process and its tenure (rule 4); None: it has no ticket."""
        self.pred: Holder | None = None
        self.edge: Edge | None = None
        self.wanted = False
        """`coordinate` was called: after a loss, apply again."""
        self.resigning = False
        """`resign` was called: stop publishing now, leave when possible (rule 2)."""
        self.designated_at: int | None = None
        """When it was told to found; None: it was not, or has owned a ticket since."""
        self.done: dict[Tenure, None] = {}
        """Tenures this process has had or declined: it never takes one of them again."""
        self.seq = 0
        """The last event published under the tenure."""
        self.now = 0
        self.out: list[RingOutput] = []
        self.timers: dict[Timer, int] = {}
        self.lasting: tuple[Timer, ...] = ()
        """Timers that do not end with a tenure."""
        self.when_seated: list[Callable[[], None]] = []
        """What the parts do when a ticket was granted."""
        self.when_vacated: list[Callable[[], None]] = []
        """What the parts do, and forget, when the ticket is given up."""
        self._nonce = 0

    def send(self, to: MemberId, message: RingMessage) -> None:
        self.out.append(Send(to, message, reliable=True))

    def say(self, output: RingOutput) -> None:
        self.out.append(output)

    def reject(self, to: MemberId, nonce: int, reason: str, owner: bool) -> None:
        self.send(to, Reject(nonce, reason, owner, self.table.era, tuple(self.table.coordinators().items())))

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def after(self, ns: int, timer: Timer) -> None:
        self.timers[timer] = self.now + ns

    def stop(self, *timers: Timer) -> None:
        for timer in timers:
            self.timers.pop(timer, None)

    def stop_all(self) -> None:
        self.timers = {timer: at for timer, at in self.timers.items() if timer in self.lasting}

    # --- the tenure ---

    def addressed(self, tenure: Tenure) -> bool:
        """A message for this tenure is for the present one (rule 4)."""
        return self.holder is not None and tenure == self.holder.tenure

    def sitting(self) -> tuple[Holder, Edge]:
        """The tenure and the edge to the successor, where there must be one."""
        assert self.holder is not None and self.edge is not None
        return self.holder, self.edge

    @property
    def alone(self) -> bool:
        return self.edge is not None and self.edge.succ == self.holder

    def coordinated(self) -> list[int]:
        """S_p: the own ticket and those down to the successor's."""
        if self.holder is None or self.edge is None or self.state not in (State.OWNER, State.LEAVING):
            return []
        return [self.holder.ticket, *between(self.holder.ticket, self.edge.succ.ticket, self.config.tickets)]

    def free(self) -> list[int]:
        """The tickets that this coordinator can grant: never its own (rule 7)."""
        return self.coordinated()[1:]

    def grant(self, to: MemberId, wish: int, least: Mapping[int, int] | None = None) -> Holder:
        """A free ticket, the one wished for if possible, under a new incarnation. `least`: the lowest one that may be
        used on a ticket."""
        free = self.free()
        ticket = wish if wish in free else self.rng.choice(free)
        return Holder(to, ticket, self.table.grant(ticket, (least or {}).get(ticket, 0)))

    def finish(self, tenure: Tenure) -> None:
        """Never take this tenure (again). The oldest are forgotten: their grants are long below every floor."""
        self.done[tenure] = None
        while len(self.done) > self.MAX_DONE:
            del self.done[next(iter(self.done))]

    def sit(self, holder: Holder) -> None:
        """A ticket is assigned: not yet an owner."""
        self.holder = holder
        self.finish(holder.tenure)
        self.pred = None
        self.edge = Edge.alone(holder)
        self.seq = 0
        self.stop_all()
        for act in self.when_seated:
            act()
        self.say(Granted(holder.ticket, Incarnation.unpack(holder.inc), self.table.last[holder.ticket]))

    def own(self) -> None:
        """From now on an owner."""
        holder, _ = self.sitting()
        self.state = State.OWNER
        self.designated_at = None
        self.table.owns(holder)
        self.say(BecameOwner(holder.ticket, Incarnation.unpack(holder.inc)))
        self.say(Announce(JoinedNews(holder)))

    def vacate(self) -> tuple[int, Incarnation]:
        """Give up the ticket; returns which it was."""
        holder, _ = self.sitting()
        for act in self.when_vacated:
            act()
        self.table.forget(holder)
        self.holder = self.pred = self.edge = None
        self.state = State.OUT
        self.stop_all()
        return holder.ticket, Incarnation.unpack(holder.inc)
