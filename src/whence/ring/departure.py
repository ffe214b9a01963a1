"""The graceful leave of the fault-tolerant protocol, which the paper does not have (rule 19), built on Algorithm 1.

Rules of ring.md implemented here:

1.  Nobody leaves while something is under way at its edge; a successor's CLEAVE is served also on a pending edge.
2.  A leaver has stopped publishing before it sends CLEAVE.
4.  CLEAVE names both tenures, and by `answers` the edge it belongs to: a late copy is not honoured on a later edge.
5.  All leave at once: a leaver holds its successor's CLEAVE; on the wrap edge it refuses it. Who was refused goes on as
    coordinator, serves what it holds and tries again when its predecessor changes, when it is alone, or (here
    messages get lost) after
    some rounds. The last one leaves directly.
6.  CLEAVE carries the successor's seat and the table.
13. It also carries every L that the successor may hold: the predecessor inherits the edge. A leaver changes it no more.

ACKCLEAVE is repeated until the leaver says farewell (DECLINE): only then it is certain that it vouches for nobody.
Having sent CLEAVE, a leaver goes back to being a coordinator only when told so: the predecessor may have taken over
already.
"""

from __future__ import annotations

import random

import msgspec

from whence.clock import MemberId
from whence.ring.config import RingConfig, between
from whence.ring.edge import Edge, Seats
from whence.ring.exclusion import Exclusion
from whence.ring.interface import Announce, State
from whence.ring.messages import AckCLeave, Cancel, CLeave, Decline, NackLeave, ReleasedNews, Seat, Tenure, Update


class Ended(msgspec.Struct):
    """A seat that was lost, or given up by the last one in the ring; it was not handed over yet."""

    succ: Seat
    before: Seat | None
    """The successor before the newcomer `succ`, if that one had not confirmed yet."""
    at: int
    """When it was lost."""
    pred: Seat | None
    nonce: int
    held: tuple[Seats, ...]
    courted: tuple[Seat, int] | None
    """Nobody gets it until this exclusion of the predecessor is decided (see `Exclusion._on_exclude`)."""
    seq: int
    whole: bool
    """What it coordinated was surely its own, so that it can be handed over."""


class Departure(Exclusion):
    """Both sides of a leave."""

    MAX_RELEASED = 16  # released successors whose ACKCLEAVE can be repeated
    MAX_ENDED = 4  # lost seats that are remembered
    MAX_TOLD = 32  # rounds in which ACKCLEAVE is repeated

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self._leave_nonce = 0
        self._asked_pred: Seat | None = None
        """To whom CLEAVE went under `_leave_nonce`."""
        self._refused_by: Seat | None = None
        """Who refused the leave; try again when it is not the predecessor any more."""
        self._held_leave: CLeave | None = None
        """The successor's CLEAVE, held while leaving."""
        self._accepted: dict[Seat, int] = {}
        """Successors that were released here, and the nonce of their CLEAVE."""
        self._unheard: dict[Seat, int] = {}
        """Those of them that have not yet said that they are out, and how often they were told."""
        self._ended: dict[Seat, Ended] = {}

    def _vacate(self) -> None:
        super()._vacate()
        self._leave_nonce, self._refused_by, self._held_leave = 0, None, None

    def _round(self) -> None:
        """Also tell the released again that they are, until they say so: then nobody need reckon with them any more."""
        super()._round()
        for z, told in list(self._unheard.items()):
            self._send(z.member, AckCLeave(self._accepted.get(z, 0), z.tenure))
            self._unheard[z] = told + 1
            if told >= self.MAX_TOLD:
                del self._unheard[z]

    # --- the leaver ---

    def _resign_seat(self) -> None:
        if self.state is State.PROBATION:
            self._abandon()
            self._released()
        else:
            self._after(self.config.patience_ns, "patience")
            self._leave_if_possible()

    def _leave_if_possible(self) -> None:
        if self.courted is not None and self.table.ended(self.courted[0]):
            self.courted = None
        if not (self.resigning and self.settled and self.courted is None):
            return
        assert self.seat is not None and self.edge is not None
        if self.alone:
            self._say(Announce(ReleasedNews(self.seat, self._seq)))
            self._remember()
            self._released()
            return
        pred = self.pred
        if pred is None or self.table.over(pred) or (pred == self._refused_by and "leave" in self._timers):
            return
        self.state = State.LEAVING
        self._asked_pred = None
        self._timers.pop("leave", None)
        self._timers.pop("update", None)
        self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        """CLEAVE to whoever is the predecessor now; again in every round, since it may be lost. Each predecessor is
        asked under a nonce of its own: one that is none any more may refuse when the next has accepted already."""
        if self.pred is None or self.seat is None or self.edge is None:
            return
        if self.pred != self._asked_pred:
            self._leave_nonce, self._asked_pred = self._next_nonce(), self.pred
        edge, rows = self.edge, self.table.rows()
        m = CLeave(self._leave_nonce, self.seat.tenure, self.pred.tenure, edge.succ, self.heard, edge.held, rows)
        self._send(self.pred.member, m)

    def _give_up_leaving(self) -> None:
        """Resigning has taken too long: just stop. The predecessor will find out."""
        if self.resigning or self.state is State.LEAVING:
            self._lose("could not leave in time")

    def _on_ack_cleave(self, sender: MemberId, m: AckCLeave) -> None:
        lost = Seat(self.me, *m.yours)
        ended = self._ended.pop(lost, None)
        if ended is not None:
            self._say(Announce(ReleasedNews(lost, ended.seq)))
        leaving = self.state is State.LEAVING and self.seat is not None
        if leaving and self.seat is not None and m.yours == self.seat.tenure:
            self._say(Announce(ReleasedNews(self.seat, self._seq)))  # by the leaver, who knows that it is out
            self._released()
        if m.yours in self._done and (self.seat is None or self.seat.tenure != m.yours):
            self._send(sender, Decline(m.nonce, m.yours))  # farewell: this tenure is over

    def _on_nack_leave(self, sender: MemberId, m: NackLeave) -> None:
        for ended in self._ended.values():
            if ended.nonce == m.nonce:
                ended.nonce = self._next_nonce()
        if self.state is not State.LEAVING or self.seat is None or self.edge is None:
            return
        if (m.nonce, m.yours) != (self._leave_nonce, self.seat.tenure):
            return
        self.state = State.OWNER
        self._refused_by = self.pred
        self._after(int(self.config.round_ns * self.rng.uniform(1, 3)), "leave")
        held, self._held_leave = self._held_leave, None
        if held is not None:
            self._on_cleave(self.edge.succ.member, held)

    # --- whoever did not get to leave ---

    def _lose(self, reason: str) -> None:
        if self.state is not State.PROBATION:
            self._remember()
        super()._lose(reason)

    def _remember(self) -> None:
        """What there is to say of this seat when the ring is dead (see `reunion.py`)."""
        assert self.seat is not None and self.edge is not None
        edge, newcomer = self.edge, self.newcomer
        before = newcomer.before.succ if newcomer is not None else None
        whole = newcomer is None and self._now >= self.temp_until and not self.alone
        nonce = self._leave_nonce or self._next_nonce()
        ended = Ended(edge.succ, before, self._now, self.pred, nonce, edge.held, self.courted, self._seq, whole)
        self._ended = {**dict(list(self._ended.items())[1 - self.MAX_ENDED :]), self.seat: ended}

    def _on_cancel(self, sender: MemberId, m: Cancel) -> None:
        for ended in self._ended.values():
            if ended.courted is not None and ended.courted[0] == Seat(sender, *m.mine) and ended.courted[1] <= m.nonce:
                ended.courted = None
        super()._on_cancel(sender, m)

    def _on_update(self, sender: MemberId, m: Update) -> None:
        """Its predecessor still counts on it: hand over. Only to the predecessor that it had: were that one excluded
        meanwhile, it may first have excluded this seat, and have granted its ticket to somebody else."""
        lost, p = Seat(self.me, *m.yours), Seat(sender, *m.mine)
        ended = self._ended.get(lost)
        if ended is None or not ended.whole:
            super()._on_update(sender, m)
        elif p == ended.pred and not self.table.over(p) and lost.inc >= self.table.floor[lost.ticket]:
            if ended.courted is not None and self.table.ended(ended.courted[0]):
                ended.courted = None
            if ended.courted is None:
                rows = self.table.rows()
                self._send(sender, CLeave(ended.nonce, m.yours, m.mine, ended.succ, m.nonce, ended.held, rows))

    # --- its predecessor ---

    def _on_cleave(self, sender: MemberId, m: CLeave) -> None:
        z, edge = Seat(sender, *m.mine), self.edge
        if z in self._accepted:
            self._send(sender, AckCLeave(m.nonce, m.mine))  # the first one was lost
            return
        if self.seat is None or edge is None or self.state is State.PROBATION or m.yours != self.seat.tenure:
            return
        if z != edge.succ or m.nonce <= edge.refused or edge.start is None or m.answers < edge.start:
            return
        if self.state is State.LEAVING:
            if z.ticket > self.seat.ticket:
                self._refuse_leave(sender, m)
            else:
                self._held_leave = m
        elif self.attempt is not None or self.newcomer is not None or self._now < self.temp_until:
            self._refuse_leave(sender, m)
        else:
            self._take_over(z, m)

    def _on_decline(self, sender: MemberId, m: Decline) -> None:
        z = Seat(sender, *m.tenure)
        if z in self._accepted:
            self._unheard.pop(z, None)
            self.table.out(z.ticket, z.inc + 1, self._now)
        super()._on_decline(sender, m)

    def _refuse_leave(self, sender: MemberId, m: CLeave) -> None:
        assert self.edge is not None
        self.edge.refused = m.nonce
        self._send(sender, NackLeave(m.nonce, m.mine))

    def _take_over(self, z: Seat, m: CLeave) -> None:
        """The leaver's tickets and its edge are this process's now."""
        assert self.seat is not None and self.edge is not None
        self._send(z.member, AckCLeave(m.nonce, m.mine))
        self._accepted = {**dict(list(self._accepted.items())[1 - self.MAX_RELEASED :]), z: m.nonce}
        self._unheard = {**dict(list(self._unheard.items())[1 - self.MAX_RELEASED :]), z: 0}
        self.table.merge(m.rows)
        self.table.end(z.ticket, z.inc + 1)
        self._timers.pop("update", None)
        self._thaw()
        if m.succ == self.seat:  # they were two: nobody is left to vouch, and nobody to fear
            self.edge, self.pred, self.L, self.next_L = Edge.alone(self.seat), None, (), None
            self._leave_if_possible()
        else:
            floor, top = self.table.floor, self.table.top
            between_us = between(self.seat.ticket, m.succ.ticket, self.config.tickets)
            takeover = tuple(Tenure(t, max(floor[t], top[t] + 1)) for t in between_us if top[t])
            self.edge = Edge(m.succ, m.held, takeover)
            self._update()
