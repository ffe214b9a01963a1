"""Admitting a newcomer, and being one (CCC11 Algorithm 3).

Rules of ring.md implemented here:

1.  Nobody is admitted before the successor has answered.
7.  The ticket given away is never the own one.
10. Probation: one newcomer at a time, until it confirms that its quorum vouches for it.
13. The newcomer's L is exactly the R it was sent; what its successor may hold, it inherits.
14. A grant that is not waited for any more is declined, and the edge goes back to what it was: the newcomer
    promises never to take that tenure, so nothing needs to be excluded.
"""

from __future__ import annotations

from whence.clock import MemberId
from whence.ring.core import BUSY, SEATED
from whence.ring.edge import Edge
from whence.ring.interface import State
from whence.ring.messages import AckCJoin, CJoin, Decline, Reject, Seat, Update, Who
from whence.ring.neighbours import Neighbours, Newcomer


class Admission(Neighbours):
    """Serving CJOIN, and taking the seat that was granted."""

    @property
    def admits(self) -> bool:
        return self.settled and not self.resigning and len(self.coordinated()) > 1

    # --- the coordinator's side ---

    def _on_cjoin(self, sender: MemberId, m: CJoin) -> None:
        if not self.admits:
            self._reject(sender, m.nonce)
            return
        assert self.seat is not None and self.edge is not None
        free = self.coordinated()[1:]
        ticket = m.wish if m.wish in free else self.rng.choice(free)
        newcomer = Seat(sender, ticket, self.table.grant(ticket))
        before = self.edge
        self.edge = Edge(newcomer, [])
        self.newcomer = Newcomer(newcomer, m.nonce, self._now, before)
        update = self._next_nonce()
        R = self.edge.offer(update, self.R())
        grant = AckCJoin(
            m.nonce, update, self.seat.tenure, newcomer.tenure, before.succ, R, before.held, self.table.rows()
        )
        self._send(sender, grant)
        self._after(self.config.answer_ns, "update")
        self._after(self.config.probation_ns + 2 * self.config.round_ns, "newcomer")

    def _reject(self, to: MemberId, nonce: int) -> None:
        if self.state not in (State.OWNER, State.LEAVING):
            reason = "not a coordinator"
        elif len(self.table.coordinators()) >= self.config.tickets:
            reason = "full"
        elif self.state is State.LEAVING or self.resigning:
            reason = "leaving"
        elif self.settled:
            reason = "no free ticket here"
        else:
            reason = BUSY
        owner = self.state in (State.OWNER, State.LEAVING)
        self._send(to, Reject(nonce, reason, owner, self.table.era, self._known()))

    def _on_who(self, sender: MemberId, m: Who) -> None:
        self._reject(sender, m.nonce)

    def _on_decline(self, sender: MemberId, m: Decline) -> None:
        newcomer = self.newcomer
        if newcomer is None or newcomer.seat != Seat(sender, *m.tenure):
            return
        if self.attempt is not None:
            self._give_up_attempt()
        self.edge, self.newcomer = newcomer.before, None
        self.edge.waiting = None
        for timer in ("update", "newcomer"):
            self._timers.pop(timer, None)
        self.table.end(newcomer.seat.ticket, newcomer.seat.inc + 1)

    def _newcomer_unconfirmed(self) -> None:
        """It answers, but nobody vouches for it, and it has not given up by itself."""
        if self.newcomer is not None and self.attempt is None and self.state is State.OWNER:
            self._exclude()
            self._after(self.config.round_ns, "newcomer")

    # --- the newcomer's side ---

    def _on_update(self, sender: MemberId, m: Update) -> None:
        """An UPDATE for a tenure that was granted, while the ACKCJOIN that came before it is lost."""
        if m.yours in self._done:
            super()._on_update(sender, m)
        else:
            self._decline(sender, 0, m.yours)

    def _take_seat(self, sender: MemberId, grant: AckCJoin) -> None:
        seat = Seat(self.me, *grant.yours)
        self._sit(seat)
        self.state = State.PROBATION
        self.pred = Seat(sender, *grant.mine)
        self.table.owns(self.pred)
        self.edge = Edge(grant.succ, grant.inherited)
        self.L, self.L_nonce, self.heard = grant.L, grant.update, grant.update
        self._ack_update(self.heard)
        self._poll(self.L)
        self._after(self.config.round_ns, "round")
        self._timers["probation"] = self._asked_at + self.config.probation_ns

    def _not_confirmed(self) -> None:
        self._abandon()
        self._lose("not confirmed")

    def _abandon(self) -> None:
        """Give back a seat that never became an owner's."""
        assert self.state in SEATED and self.seat is not None and self.pred is not None
        self._decline(self.pred.member, self._joined_by, self.seat.tenure)
