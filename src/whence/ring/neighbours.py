"""Rounds: polling the predecessors for the lease, and telling the successor who its predecessors are (CCC11
Algorithm 2).

Rules of ring.md implemented here:

2.  Who is resigning has stopped publishing. 9, 14. The lease: see `lease.py`.
10. Who is on probation polls, but does not vouch, update or admit.
12. Who is over is not vouched for.
15. An UPDATE counts only from the predecessor, a closer one, or when the predecessor is over (a declared takeover).
13. A new L counts only from the moment its quorum vouches; only then is it acknowledged as adopted. Until then the
    old one stays in force, so a process is an owner under exactly one of the lists its predecessor remembers.
"""

from __future__ import annotations

import random
from abc import abstractmethod

import msgspec

from whence.clock import MemberId
from whence.ring.config import RingConfig, distance
from whence.ring.core import Core
from whence.ring.edge import Edge, Seats
from whence.ring.interface import State, Thawed
from whence.ring.lease import Lease
from whence.ring.messages import ERA_SHIFT, AckUpdate, Alive, Cancel, Poll, Seat, Update
from whence.ring.table import floor_of


class Newcomer(msgspec.Struct):
    """The one newcomer that a coordinator has admitted and that is not yet confirmed (rule 10)."""

    seat: Seat
    nonce: int
    """Of its CJOIN."""
    since: int
    before: Edge
    """The edge as it was, should the newcomer decline."""
    answered: bool = False


class Attempt(msgspec.Struct):
    """One exclusion under way (rule 18: a reply counts only for the nonce it answers)."""

    nonce: int
    candidate: Seat
    """Who is asked, or has answered, as the next reachable coordinator q."""
    tickets: tuple[int, ...] = ()
    """E, once q has answered."""
    era: int = 0
    lists: tuple[Seats, ...] = ()
    """Every R that needs a quorum (rule 13)."""
    electorate: Seats = ()
    """(L_q + {q}) n R."""
    acks: list[Seat] = []
    retries: int = 0
    asked: list[MemberId] = []
    """Everybody who was sent EXCLUDE or REQCOORD."""


class Neighbours(Core):
    """The part of a coordinator that keeps it one."""

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self.lease = Lease(config.lease_ns)
        self.L: Seats = ()
        self.L_nonce = 0
        """The nonce of the predecessor's UPDATE that L came with (0: of an earlier predecessor)."""
        self.next_L: tuple[int, Seats] | None = None
        """A newer L whose quorum does not vouch yet, and its nonce."""
        self.heard = 0
        """The nonce of the last UPDATE accepted from the predecessor."""
        self.newcomer: Newcomer | None = None
        self.attempt: Attempt | None = None
        self.temp_until = 0
        """The end of TempRounds."""
        self.frozen = False
        self.courted: tuple[Seat, int] | None = None
        """Who is excluding the predecessor and has this process's L, and the nonce it asked with."""

    @abstractmethod
    def _exclude(self) -> None: ...

    @abstractmethod
    def _give_up_attempt(self) -> None: ...

    @abstractmethod
    def _leave_if_possible(self) -> None: ...

    @abstractmethod
    def _ask_to_leave(self) -> None: ...

    # --- who am I ---

    def owns_at(self, now: int) -> bool:
        return self.state is State.OWNER and self.lease.valid(self.L, now)

    def steady_at(self, now: int) -> bool:
        return self.owns_at(now) and self.attempt is None and not self.frozen and now >= self.temp_until

    @property
    def alone(self) -> bool:
        return self.edge is not None and self.edge.succ == self.seat

    @property
    def settled(self) -> bool:
        """An owner with nothing under way (rule 1): it may admit, and it may begin to leave."""
        return (
            self.state is State.OWNER
            and self.edge is not None
            and self.edge.acked
            and self.attempt is None
            and self.newcomer is None
            and not self.frozen
            and self._now >= self.temp_until
        )

    def _vacate(self) -> None:
        if self.attempt is not None:
            self._give_up_attempt()
        self.L, self.L_nonce, self.next_L, self.heard = (), 0, None, 0
        self.lease = Lease(self.config.lease_ns)
        self.newcomer = None
        self.courted = None
        self.temp_until = 0
        self.frozen = False

    def _lease_end(self) -> int | None:
        return self.lease.until(self.L) if self.state in (State.OWNER, State.LEAVING) else None

    def _expire(self) -> None:
        if self.state in (State.OWNER, State.LEAVING) and not self.lease.valid(self.L, self._now):
            self._lose("lease ran out")

    # --- rounds ---

    def _round(self) -> None:
        self._after(self.config.round_ns, "round")
        self.table.void_promises(self._now)
        self._poll((*self.L, *(self.next_L[1] if self.next_L else ())))
        if self.state is State.OWNER:
            if self.attempt is None and self._now >= self.temp_until and not self.alone:
                self._update()
            self._leave_if_possible()
        elif self.state is State.LEAVING:
            self._ask_to_leave()

    def _poll(self, seats: Seats) -> None:
        assert self.seat is not None
        nonce = self._next_nonce()
        self.lease.polled(nonce, self._now)
        for z in dict.fromkeys(seats):
            self._send(z.member, Poll(nonce, self.seat.tenure, z.tenure, self.table.era, self._seq))

    def _on_poll(self, sender: MemberId, m: Poll) -> None:
        """Vouch for who is not known to be over. LEAVING still vouches: when all leave at once, leases must last."""
        self.table.saw(m.era)
        if self.seat is None or self.state is State.PROBATION or m.yours != self.seat.tenure:
            return
        z = Seat(sender, *m.mine)
        self.table.note(z, m.seq)
        excluding = self.attempt is not None and z.ticket in self.attempt.tickets  # its own ack to its own attempt
        if not excluding and not self.table.over(z):
            promised = self.table.promised(z)
            self._send(sender, Alive(m.nonce, self.seat.tenure, m.mine, self.table.era, promised))

    def _on_alive(self, sender: MemberId, m: Alive) -> None:
        self.table.saw(m.era)
        if self.seat is None or m.yours != self.seat.tenure:
            return
        self.lease.vouched(Seat(sender, *m.mine), m.nonce)
        if m.promised and self.attempt is None and self._now >= self.temp_until:
            self._send(sender, Cancel(m.promised, self.seat.tenure))
        self._adopt_if_vouched()
        if self.state is State.PROBATION and self.lease.valid(self.L, self._now):
            self._confirmed()

    def _confirmed(self) -> None:
        """The end of probation (rule 10)."""
        assert self.pred is not None
        self._timers.pop("probation", None)
        self._own()
        self._ack_update(self.heard)
        self._update()
        if self.resigning:
            self._leave_if_possible()

    # --- the edge to the successor ---

    def R(self) -> Seats:
        """Self and the 2k closest predecessors: what the successor's L should be.

        Only who is certainly out is left out. Who is merely being excluded may still agree to other exclusions; were it
        dropped here, a quorum that it is part of would not be one of the L further down the ring."""
        assert self.seat is not None and self.edge is not None
        succ = self.edge.succ.member
        near = [z for z in self.L if z.member != succ and not self.table.silent(z, self._now)]
        return (self.seat, *near[: 2 * self.config.k])

    def _update(self) -> None:
        assert self.seat is not None and self.edge is not None
        nonce, edge = self._next_nonce(), self.edge
        R = edge.offer(nonce, self.R())
        m = Update(nonce, self.seat.tenure, edge.succ.tenure, self.table.era, R, edge.takeover)
        self._send(edge.succ.member, m)
        self._after(self.config.answer_ns, "update")

    def _pass_on(self) -> None:
        """A new R goes to the successor at once. Were it to wait for the next round, a ring of m would be m rounds old
        before everybody had a full L, and until then one crash could cost everybody their tickets."""
        edge = self.edge
        if self.state is State.OWNER and edge is not None and edge.acked and not self.alone:
            quiet = self.attempt is None and self.newcomer is None and self._now >= self.temp_until
            if quiet and edge.waiting is None and edge.last != self.R():
                self._update()

    def _on_ack_update(self, sender: MemberId, m: AckUpdate) -> None:
        edge = self.edge
        if edge is None or self.seat is None or m.yours != self.seat.tenure or edge.succ != Seat(sender, *m.mine):
            return
        if edge.start is None or m.nonce < edge.start:
            return
        if edge.answered(m.nonce, m.adopted):
            self._timers.pop("update", None)
            if self.attempt is not None:
                self._give_up_attempt()
            self._thaw()
        if self.newcomer is not None and self.newcomer.seat == edge.succ:
            self.newcomer.answered = True
            if not m.confirmed:
                return
            self.newcomer = None
            self._timers.pop("newcomer", None)
        self.table.owns(edge.succ)
        edge.acked = True
        self._leave_if_possible()
        self._pass_on()

    def _thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self._timers.pop("frozen", None)
            self._say(Thawed())

    def _update_unanswered(self) -> None:
        """The successor is weakly detected as faulty. A newcomer's first answer may take longer: it is not known yet
        whether
        its link is good, and an exclusion costs the tickets for a long time."""
        if self.edge is None or self.edge.waiting is None or self.attempt is not None or self.state is not State.OWNER:
            return
        newcomer = self.newcomer
        if newcomer is not None and not newcomer.answered and self._now < newcomer.since + 2 * self.config.round_ns:
            return
        if self.rng.random() < self.config.exclude_probability:
            self._exclude()

    # --- the edge to the predecessor ---

    def _on_update(self, sender: MemberId, m: Update) -> None:
        self.table.saw(m.era)
        if self.seat is None or m.yours != self.seat.tenure:
            return
        p = Seat(sender, *m.mine)
        if self.table.over(p):
            return
        for ticket, floor in m.takeover:
            if floor == floor_of(floor >> ERA_SHIFT):
                self.table.out(ticket, floor, self._now)  # excluded: UPDATE is sent after TempRounds
            else:
                self.table.end(ticket, floor)  # released: not out before its ACKCLEAVE has arrived
        if not self._is_predecessor(p, self.pred, self.seat.ticket):
            return
        if p != self.pred:
            self.pred, self.L_nonce = p, 0
        if self.courted is not None and self.courted[0] == p:
            self.courted = None
        self.heard = m.nonce
        self.table.owns(p)
        self._offered(m.nonce, tuple(z for z in m.R if z.member != self.me))
        self._ack_update(m.nonce)
        if self.state is State.LEAVING:
            self._ask_to_leave()
        elif self.resigning:
            self._leave_if_possible()

    def _is_predecessor(self, p: Seat, pred: Seat | None, ticket: int) -> bool:
        """Rule 15: `p` is the known predecessor `pred` of `ticket`, or closer, or that one is over."""
        n = self.config.tickets
        if pred is None or p == pred or self.table.over(pred):
            return True
        return distance(p.ticket, ticket, n) < distance(pred.ticket, ticket, n)

    def _offered(self, nonce: int, R: Seats) -> None:
        if R == self.L:
            self.L_nonce, self.next_L = nonce, None
            return
        fresh = self.next_L is None or self.next_L[1] != R
        new = tuple(z for z in R if z not in self.L)
        self.next_L = (nonce, R)
        if not self._adopt_if_vouched():
            if fresh:
                self._poll(R)
        elif new:
            # Not first in the next round: until they vouch, the others carry the lease alone, and k crashes among these
            # would cost it.
            self._poll(new)

    def _adopt_if_vouched(self) -> bool:
        if self.next_L is None or not self.lease.valid(self.next_L[1], self._now):
            return False
        (self.L_nonce, self.L), self.next_L = self.next_L, None
        self._ack_update(self.L_nonce)
        self._pass_on()
        return True

    def _ack_update(self, nonce: int) -> None:
        if self.seat is not None and self.pred is not None:
            confirmed = self.state is not State.PROBATION
            m = AckUpdate(nonce, self.seat.tenure, self.pred.tenure, self.L_nonce, confirmed)
            self._send(self.pred.member, m)
