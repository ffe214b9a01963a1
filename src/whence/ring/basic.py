"""The fault-free ring: CCC11 Algorithm 1 with rules 1-6 of ring.md. Processes do not fail and streams lose nothing;
delays are arbitrary, so there are no time-outs.

1. Serving before ACKSUCC overlaps two coordinated sets. While awaiting ACKSUCC, CJOIN and the own leave are deferred
   and only the successor's CLEAVE is served. ACKSUCC only clears the pending flag, and only from the successor.
2. A leaver stops publishing before it sends CLEAVE.
3. NEWSUCC can overtake ACKCJOIN: a joiner queues it.
4. Members are `(process, incarnation)`; every message names both ends' and is dropped on a mismatch.
5. All leave at once, or the last one leaves. Alone: leave directly, rejecting what was deferred. A leaver holds its
   successor's CLEAVE, except on the wrap edge, where it answers NACKLEAVE; the refused one goes on, serves what it
   holds, and tries again only after the next NEWSUCC or when alone.
6. CLEAVE carries the successor, its ticket and incarnation, and the table.

A newcomer is an owner from ACKSUCC on (`PROBATION` before), as the paper's prose has it ("can then perform as a
coordinator").
"""

from __future__ import annotations

import random

from whence.clock import MemberId
from whence.ring.config import RingConfig
from whence.ring.core import Core
from whence.ring.edge import Edge
from whence.ring.interface import Announce, Rejected, State
from whence.ring.messages import (
    AckCJoin,
    AckCLeave,
    AckSucc,
    CJoin,
    CLeave,
    NackLeave,
    NewSucc,
    Reject,
    ReleasedNews,
    RingMessage,
    Seat,
    Who,
)

COORDINATOR = (State.PROBATION, State.OWNER)


class BasicRing(Core):
    """One process's part in a ring without failures."""

    MAX_DEFERRED = 64  # CJOINs deferred at a time (more are rejected), NEWSUCCs queued by a joiner

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self._deferred: list[tuple[MemberId, CJoin]] = []
        self._early: list[tuple[MemberId, NewSucc]] = []
        self._held_leave: tuple[MemberId, CLeave] | None = None
        self._leave_nonce = 0
        self._refused = False

    # --- who am I ---

    def owns_at(self, now: int) -> bool:
        return self.state is State.OWNER

    def steady_at(self, now: int) -> bool:
        return self.state is State.OWNER

    @property
    def admits(self) -> bool:
        ready = self.state is State.OWNER and self.edge is not None and self.edge.acked and not self.resigning
        return ready and len(self.coordinated()) > 1

    def _lease_end(self) -> int | None:
        return None

    def _expire(self) -> None:
        pass

    def _vacate(self) -> None:
        deferred, self._deferred = self._deferred, []
        for sender, request in deferred:
            self._reject(sender, request.nonce, "leaving")
        self._early, self._held_leave, self._leave_nonce, self._refused = [], None, 0, False

    def _receive(self, sender: MemberId, message: RingMessage) -> None:
        match message:
            case CJoin():
                self._on_cjoin(sender, message)
            case Who():
                self._reject(sender, message.nonce, "not asked for a ticket")
            case Reject():
                self._on_reject(sender, message)
                self._early = []
            case AckCJoin():
                self._on_ack_cjoin(sender, message)
            case NewSucc():
                self._on_new_succ(sender, message)
            case AckSucc():
                self._on_ack_succ(sender, message)
            case CLeave():
                self._on_cleave(sender, message)
            case AckCLeave():
                self._on_ack_cleave(message)
            case NackLeave():
                self._on_nack_leave(message)
            case _:
                pass  # the fault-tolerant protocol's

    def _timer(self, name: str) -> None:
        match name:
            case "apply":
                self._apply()
            case "quarantine":
                self._founded()
            case "look":
                self._look_around()
            case _:
                raise AssertionError(name)

    # --- joining ---

    def _apply(self) -> None:
        super()._apply()
        self._timers.pop("answer", None)  # an answer always comes

    def _found(self, epoch: int) -> None:
        if self._asked is not None:
            self._say(Rejected("a request for a ticket is under way"))
        else:
            super()._found(epoch)

    def _resign(self) -> None:
        if self._asked is None:
            super()._resign()
        else:
            self.wanted, self.resigning = False, True  # what is granted now is given back at once

    def _on_cjoin(self, sender: MemberId, m: CJoin) -> None:
        if self.state not in COORDINATOR or self.resigning:
            self._reject(sender, m.nonce, "leaving" if self.seat is not None else "not a coordinator")
        elif self.edge is not None and not self.edge.acked:
            if len(self._deferred) < self.MAX_DEFERRED:
                self._deferred.append((sender, m))
            else:
                self._reject(sender, m.nonce, "busy")
        elif not self.admits:
            full = len(self.table.coordinators()) >= self.config.tickets
            self._reject(sender, m.nonce, "full" if full else "no free ticket here")
        else:
            self._grant(sender, m)

    def _grant(self, sender: MemberId, m: CJoin) -> None:
        assert self.seat is not None and self.edge is not None
        free = self.coordinated()[1:]
        ticket = m.wish if m.wish in free else self.rng.choice(free)
        newcomer = Seat(sender, ticket, self.table.grant(ticket))
        succ, rows = self.edge.succ, self.table.rows()
        self.edge = Edge(newcomer, [])
        self.edge.acked = True
        self._send(sender, AckCJoin(m.nonce, 0, self.seat.tenure, newcomer.tenure, succ, (), (), rows))

    def _reject(self, to: MemberId, nonce: int, reason: str) -> None:
        self._send(to, Reject(nonce, reason, self.state in COORDINATOR, self.table.era, self._known()))

    def _take_seat(self, sender: MemberId, grant: AckCJoin) -> None:
        early, self._early = self._early, []
        self._sit(Seat(self.me, *grant.yours))
        self.state = State.PROBATION
        self.pred = Seat(sender, *grant.mine)
        self._new_edge(grant.succ)
        for pred, m in early:
            self._on_new_succ(pred, m)

    # --- the edge between neighbours ---

    def _new_edge(self, succ: Seat) -> None:
        assert self.seat is not None
        self.edge = Edge(succ, [])
        self._send(succ.member, NewSucc(self.seat.tenure, succ.tenure))

    def _on_new_succ(self, sender: MemberId, m: NewSucc) -> None:
        if self.state is State.JOINING:
            if len(self._early) < self.MAX_DEFERRED:
                self._early.append((sender, m))
            return
        if self.seat is None or m.yours != self.seat.tenure:
            return
        self.pred = Seat(sender, *m.mine)
        if self.state is State.LEAVING:
            self._ask_to_leave()
            return
        self._send(sender, AckSucc(self.seat.tenure, m.mine))
        if self._refused:
            self._refused = False
            self._leave_if_possible()

    def _on_ack_succ(self, sender: MemberId, m: AckSucc) -> None:
        if self.state not in COORDINATOR or self.seat is None or self.edge is None:
            return
        if m.yours == self.seat.tenure and self.edge.succ == Seat(sender, *m.mine):
            self._performing()

    def _performing(self) -> None:
        """The edge is settled: serve what was deferred, then the own leave."""
        assert self.edge is not None
        self.edge.acked = True
        if self.state is State.PROBATION:
            self._own()
        deferred, self._deferred = self._deferred, []
        for sender, request in deferred:
            self._on_cjoin(sender, request)
        self._leave_if_possible()

    # --- leaving ---

    def _resign_seat(self) -> None:
        self._leave_if_possible()

    def _leave_if_possible(self) -> None:
        if not self.resigning or self.state is not State.OWNER or self.edge is None or not self.edge.acked:
            return
        assert self.seat is not None
        if self.edge.succ == self.seat:
            self._say(Announce(ReleasedNews(self.seat, self._seq)))
            self._released()
        elif not self._refused:
            self.state = State.LEAVING
            self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        """CLEAVE to the predecessor of now; only the answer to the last one counts. Who was alone and has admitted a
        newcomer has no predecessor until that one's NEWSUCC, and asks it then."""
        assert self.seat is not None and self.edge is not None
        if self.pred is None:
            return
        self._leave_nonce = self._next_nonce()
        mine, succ, rows = self.seat.tenure, self.edge.succ, self.table.rows()
        self._send(self.pred.member, CLeave(self._leave_nonce, mine, self.pred.tenure, succ, 0, (), rows))

    def _on_cleave(self, sender: MemberId, m: CLeave) -> None:
        if self.seat is None or self.edge is None or m.yours != self.seat.tenure:
            return
        z = Seat(sender, *m.mine)
        if z != self.edge.succ:
            return
        if self.state is State.LEAVING:
            if z.ticket > self.seat.ticket:
                self._send(sender, NackLeave(m.nonce, m.mine))
            else:
                self._held_leave = (sender, m)
            return
        self._take_over(z, m)

    def _take_over(self, z: Seat, m: CLeave) -> None:
        self._send(z.member, AckCLeave(m.nonce, m.mine))
        self.table.merge(m.rows)
        self.table.end(z.ticket, z.inc + 1)
        inc, seq = self.table.last[z.ticket]
        self._say(Announce(ReleasedNews(z, seq if inc == z.inc else 0)))
        if m.succ == self.seat:
            self.edge, self.pred = Edge.alone(self.seat), None
            self._performing()
        else:
            self._new_edge(m.succ)

    def _on_ack_cleave(self, m: AckCLeave) -> None:
        if self.state is State.LEAVING and self.seat is not None and m.yours == self.seat.tenure:
            self._released()

    def _on_nack_leave(self, m: NackLeave) -> None:
        if self.state is not State.LEAVING or self.seat is None:
            return
        if (m.nonce, m.yours) != (self._leave_nonce, self.seat.tenure):
            return
        self.state = State.OWNER
        self._refused = True
        held, self._held_leave = self._held_leave, None
        if held is not None:
            self._on_cleave(*held)
