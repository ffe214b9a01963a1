"""Excluding a successor that does not answer (CCC11 Algorithm 4).

Rules of ring.md implemented here:

8.  `floor(|R| / 2) + 1` acks out of `(L_q + {q}) n R`: of R too few are left to vouch for the successor. Walking
    all the way round leads back to oneself; that is allowed only to who has an empty L, since of two who do not see
    each other none may win.
11. TempRounds: nothing is done with the excluded tickets until everybody there is certainly out.
12. Exclusion raises the term. Departs from the rule (term = max of the ackers + 1, told to them afterwards): the
    term is proposed with REQCOORD and refused by who has seen it, so ackers know it from the start, and a lost
    message changes nothing. Polls carry terms; a coordinator that admits under a term has been vouched for under it
    by a quorum that meets every later one.
13. A quorum in every R that the successor may hold.
15. The excluder PrCasts GONE(E, term).
17. After a failed exclusion freeze and try again; do not disconnect (before `patience_ns` are over).
18. Reply, E and q are bound to one attempt by its nonce. A failed attempt is void, and who agreed is told so.
"""

from __future__ import annotations

from whence.clock import MemberId
from whence.ring.admission import Admission
from whence.ring.config import between, need_acks
from whence.ring.edge import Edge, Seats
from whence.ring.interface import Announce, Excluded, Frozen, State
from whence.ring.messages import (
    ERA_SHIFT,
    AckCoord,
    AckExclude,
    Cancel,
    Exclude,
    GoneNews,
    NackCoord,
    ReqCoord,
    Seat,
    Tenure,
)
from whence.ring.neighbours import Attempt
from whence.ring.table import floor_of


class Exclusion(Admission):
    """Both sides of an exclusion."""

    MAX_RETRIES = 8  # higher terms proposed within one attempt

    # --- the excluder: find the next reachable coordinator ---

    def _exclude(self) -> None:
        assert self.edge is not None
        self.attempt = Attempt(0, self.edge.succ)
        self._next_candidate()

    def _next_candidate(self) -> None:
        assert self.seat is not None and self.attempt is not None
        attempt = self.attempt
        q = self.table.next_owner(self.seat.ticket, attempt.candidate.ticket)
        if q is not None:
            attempt.nonce, attempt.candidate = self._next_nonce(), q
            attempt.asked.append(q.member)
            self._send(q.member, Exclude(attempt.nonce, self.seat.tenure, q.ticket))
            self._after(self.config.answer_ns, "exclude")
        elif self.L == ():
            self._request(self.seat, ())
        else:
            self._failed("no reachable coordinator")

    def _on_exclude(self, sender: MemberId, m: Exclude) -> None:
        """Only an owner answers. A leaver may have been released by the very predecessor that is to be excluded; if it
        answered, two would inherit its edge. For the same reason who has answered does not leave until that is
        decided."""
        excluder = Seat(sender, *m.mine)
        if self.seat is None or self.state is not State.OWNER or m.ticket != self.seat.ticket:
            return
        if not self.table.over(excluder):
            self.courted = (excluder, m.nonce)
            self._send(sender, AckExclude(m.nonce, self.seat.tenure, m.mine, self.table.era, self.L))

    def _on_ack_exclude(self, sender: MemberId, m: AckExclude) -> None:
        self.table.saw(m.era)
        attempt = self.attempt
        if attempt is None or self.seat is None or m.yours != self.seat.tenure or attempt.nonce != m.nonce:
            return
        if attempt.tickets or (sender, m.mine.ticket) != (attempt.candidate.member, attempt.candidate.ticket):
            return
        nearer = between(self.seat.ticket, m.mine.ticket, self.config.tickets)
        strangers = [z for z in m.L if z.ticket in nearer and self.table.owner[z.ticket] != z.member]
        for z in strangers:
            self.table.owns(z)
        if any(self.table.owner[z.ticket] == z.member for z in strangers):
            attempt.candidate = self.edge.succ if self.edge else attempt.candidate
            self._next_candidate()  # q knows coordinators nearer than itself that Cview did not
            return
        self._request(Seat(sender, *m.mine), m.L)

    # --- the excluder: get a quorum ---

    def _request(self, q: Seat, L_q: Seats) -> None:
        """REQCOORD(E) to `(L_q + {q}) n R`, for every R that the successor may hold."""
        assert self.seat is not None and self.edge is not None and self.attempt is not None
        attempt, edge = self.attempt, self.edge
        self._timers.pop("exclude", None)
        attempt.candidate = q
        attempt.tickets = tuple(between(self.seat.ticket, q.ticket, self.config.tickets))
        lists = [tuple(z for z in R if z.member != edge.succ.member) for R in edge.held]  # nobody is in its own L
        if self.newcomer is not None and self.newcomer.before.succ.ticket in attempt.tickets:
            lists += self.newcomer.before.held  # the successor behind the newcomer goes, too
        attempt.lists = tuple(lists)
        reachable = (*L_q, q)
        attempt.electorate = tuple(z for z in dict.fromkeys(sum(attempt.lists, ())) if z in reachable)
        self._propose()

    def _propose(self) -> None:
        assert self.seat is not None and self.attempt is not None
        attempt = self.attempt
        attempt.nonce, attempt.era = self._next_nonce(), self.table.era + 1
        self.table.saw(attempt.era)
        attempt.acks = [z for z in attempt.electorate if z == self.seat]
        for z in attempt.electorate:
            if z != self.seat:
                attempt.asked.append(z.member)
                until = attempt.candidate.ticket
                self._send(z.member, ReqCoord(attempt.nonce, self.seat.tenure, z.tenure, until, attempt.era))
        self._after(self.config.answer_ns, "acks")
        self._decide()

    def _on_ack_coord(self, sender: MemberId, m: AckCoord) -> None:
        attempt = self.attempt
        if attempt is None or self.seat is None or m.yours != self.seat.tenure or attempt.nonce != m.nonce:
            return
        self.table.merge(m.rows)
        attempt.acks += [z for z in attempt.electorate if z.member == sender and z not in attempt.acks]
        self._decide()

    def _on_nack_coord(self, sender: MemberId, m: NackCoord) -> None:
        self.table.saw(m.era)
        attempt = self.attempt
        if attempt is None or self.seat is None or m.yours != self.seat.tenure or attempt.nonce != m.nonce:
            return
        if m.era >= attempt.era and attempt.retries < self.MAX_RETRIES:
            attempt.retries += 1
            self._propose()

    def _decide(self) -> None:
        """A quorum of each R agrees, of those in it that are not certainly out. (The dead must not count as agreeing:
        they are not in the lists further down the ring.) A list of which all are out vouches for nobody."""
        attempt = self.attempt
        assert attempt is not None

        def agreed(R: Seats) -> bool:
            live = [z for z in R if not self.table.silent(z, self._now)]
            return sum(z in attempt.acks for z in live) >= need_acks(len(live)) or bool(R and not live)

        if all(map(agreed, attempt.lists)):
            self._succeeded(attempt)

    def _succeeded(self, attempt: Attempt) -> None:
        assert self.seat is not None and self.edge is not None
        floor, q = floor_of(attempt.era), attempt.candidate
        # What lies before the successor is this coordinator's own: free, unless an earlier exclusion is not over yet.
        first = self.edge.succ.ticket if self._now >= self.temp_until else attempt.tickets[0]
        free, perhaps_owned = attempt.tickets[: (at := attempt.tickets.index(first))], attempt.tickets[at:]
        for ticket in free:
            self.table.end(ticket, floor)
        for seats, ticket in enumerate(perhaps_owned, 1):
            self.table.out(ticket, floor, self._now + self.config.temp_ns(seats))
        temp = self.config.temp_ns(len(perhaps_owned))
        held = self.edge.held
        if self.newcomer is not None and self.newcomer.before.succ != self.seat:
            held += self.newcomer.before.held  # what the successor behind an unconfirmed newcomer may hold
        if q == self.seat:
            self.edge, self.pred, self.next_L = Edge.alone(self.seat), None, None
        else:
            self.table.owns(q)
            self.edge = Edge(q, held, tuple(Tenure(ticket, floor) for ticket in attempt.tickets))
        self.attempt = self.newcomer = None
        self._thaw()
        for timer in ("acks", "newcomer", "update"):
            self._timers.pop(timer, None)
        self.temp_until = self._now + temp
        self._after(temp, "temp")
        ackers = tuple(z.member for z in attempt.acks)
        self._say(Excluded(attempt.tickets, attempt.era & (1 << ERA_SHIFT) - 1, ackers))
        self._say(Announce(GoneNews(perhaps_owned, floor, self.me)))

    def _temp_over(self) -> None:
        """Everybody in between is out: declare the takeover to the new successor."""
        if self.state is State.OWNER:
            if self.alone:
                self._leave_if_possible()
            elif self.attempt is None:
                self._update()

    def _failed(self, reason: str) -> None:
        self._give_up_attempt()
        if not self.frozen:
            self.frozen = True
            self._after(self.config.patience_ns, "frozen")
            self._say(Frozen(reason))

    def _frozen_too_long(self) -> None:
        """Nothing helps here: give up, so that the predecessor, which has other lists, can exclude all of it."""
        self._lose("frozen too long")

    def _give_up_attempt(self) -> None:
        assert self.seat is not None and self.attempt is not None
        for member in dict.fromkeys(self.attempt.asked):
            self._send(member, Cancel(self.attempt.nonce, self.seat.tenure))
        self.attempt = None
        self._timers.pop("exclude", None)
        self._timers.pop("acks", None)

    # --- who is asked to agree ---

    def _on_req_coord(self, sender: MemberId, m: ReqCoord) -> None:
        """Agree unless it concerns the own ticket, the excluder is over itself, or the term is not new."""
        if self.seat is None or self.state is State.PROBATION or m.yours != self.seat.tenure:
            return
        excluder = Seat(sender, *m.mine)
        tickets = between(excluder.ticket, m.until, self.config.tickets)
        excluded = self.attempt is not None and excluder.ticket in self.attempt.tickets
        if self.seat.ticket in tickets or excluded or self.table.over(excluder) or m.era <= self.table.era:
            self._send(sender, NackCoord(m.nonce, m.mine, self.table.era))
            return
        self.table.promise(excluder, m.nonce, tickets, m.era)
        self._send(sender, AckCoord(m.nonce, m.mine, self.table.rows(tickets)))

    def _on_cancel(self, sender: MemberId, m: Cancel) -> None:
        self.table.cancel(sender, m.nonce)
        if self.courted is not None and self.courted[0] == Seat(sender, *m.mine) and self.courted[1] <= m.nonce:
            self.courted = None
            self._leave_if_possible()
