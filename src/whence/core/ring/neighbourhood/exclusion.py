"""Excluding a successor that does not answer (CCC11 Algorithm 4). Rules 8, 11, 12, 13, 15, 17 and 18."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from whence.core.clock import MemberId
from whence.core.ring.config import between, need_acks
from whence.core.ring.context import Context, Timer
from whence.core.ring.edge import Edge, Holders
from whence.core.ring.interface import Announce, Excluded, State
from whence.core.ring.messages import (
    AckCoord,
    AckExclude,
    Exclude,
    GoneNews,
    Holder,
    NackCoord,
    ReqCoord,
    Tenure,
    term_of,
)
from whence.core.ring.neighbourhood.neighbours import Neighbours
from whence.core.ring.neighbourhood.underway import Attempt, Underway
from whence.core.ring.table import floor_of


@dataclass(eq=False)
class Exclusion:
    """Both sides of an exclusion."""

    MAX_RETRIES: ClassVar = 8  # higher terms proposed within one attempt

    ctx: Context
    underway: Underway
    neighbours: Neighbours

    # --- the excluder: find the next reachable coordinator ---

    def begin(self) -> None:
        _, edge = self.ctx.sitting()
        self.underway.attempt = Attempt(0, edge.succ)
        self.next_candidate()

    def next_candidate(self) -> None:
        ctx, attempt, (holder, _) = self.ctx, self.underway.attempt, self.ctx.sitting()
        assert attempt is not None
        q = ctx.table.next_owner(holder.ticket, attempt.candidate.ticket)
        if q is not None:
            attempt.nonce, attempt.candidate = ctx.next_nonce(), q
            attempt.asked.append(q.member)
            ctx.send(q.member, Exclude(attempt.nonce, holder.tenure, q.ticket))
            ctx.after(ctx.config.answer_ns, Timer.EXCLUDE)
        elif self.neighbours.L == ():  # all the way round; of two that do not see each other none may win (rule 8)
            self._request(attempt, holder, ())
        else:
            self.failed("no reachable coordinator")

    def on_exclude(self, sender: MemberId, m: Exclude) -> None:
        """Only an owner answers. A leaver may have been released by the very predecessor that is to be excluded; if it
        answered, two would inherit its edge. For the same reason a process that has answered does not leave until
        that is decided."""
        ctx, excluder = self.ctx, Holder(sender, *m.mine)
        if ctx.holder is None or ctx.state is not State.OWNER or m.ticket != ctx.holder.ticket:
            return
        if not ctx.table.over(excluder):
            self.underway.courted = (excluder, m.nonce)
            ctx.send(sender, AckExclude(m.nonce, ctx.holder.tenure, m.mine, ctx.table.era, self.neighbours.L))

    def _attempt(self, nonce: int, tenure: Tenure) -> Attempt | None:
        """The attempt that a reply belongs to (rule 18)."""
        attempt = self.underway.attempt
        return attempt if attempt is not None and self.ctx.addressed(tenure) and attempt.nonce == nonce else None

    def on_ack_exclude(self, sender: MemberId, m: AckExclude) -> None:
        ctx, table = self.ctx, self.ctx.table
        table.saw(m.era)
        attempt = self._attempt(m.nonce, m.yours)
        if attempt is None or attempt.tickets:
            return
        if (sender, m.mine.ticket) != (attempt.candidate.member, attempt.candidate.ticket):
            return
        holder, edge = ctx.sitting()
        nearer = between(holder.ticket, m.mine.ticket, ctx.config.tickets)
        strangers = [z for z in m.L if z.ticket in nearer and table.owner[z.ticket] != z.member]
        for z in strangers:
            table.owns(z)
        if any(table.owner[z.ticket] == z.member for z in strangers):
            attempt.candidate = edge.succ
            self.next_candidate()  # q knows coordinators nearer than itself that Cview did not
        else:
            self._request(attempt, Holder(sender, *m.mine), m.L)

    # --- the excluder: get a quorum ---

    def _request(self, attempt: Attempt, q: Holder, L_q: Holders) -> None:
        """REQCOORD(E) to `(L_q + {q}) n R`, for every R that the successor may hold."""
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        ctx.stop(Timer.EXCLUDE)
        attempt.candidate = q
        attempt.tickets = tuple(between(holder.ticket, q.ticket, ctx.config.tickets))
        lists = [tuple(z for z in R if z.member != edge.succ.member) for R in edge.held]  # nobody is in its own L
        newcomer = self.underway.newcomer
        if newcomer is not None and newcomer.before.succ.ticket in attempt.tickets:
            lists += newcomer.before.held  # the successor behind the newcomer goes, too
        attempt.lists = tuple(lists)
        reachable = (*L_q, q)
        attempt.electorate = tuple(z for z in dict.fromkeys(sum(attempt.lists, ())) if z in reachable)
        self._propose(attempt)

    def _propose(self, attempt: Attempt) -> None:
        ctx, (holder, _) = self.ctx, self.ctx.sitting()
        attempt.nonce, attempt.era = ctx.next_nonce(), ctx.table.era + 1
        ctx.table.saw(attempt.era)
        attempt.acks = [z for z in attempt.electorate if z == holder]
        until = attempt.candidate.ticket
        for z in attempt.electorate:
            if z != holder:
                attempt.asked.append(z.member)
                ctx.send(z.member, ReqCoord(attempt.nonce, holder.tenure, z.tenure, until, attempt.era))
        ctx.after(ctx.config.answer_ns, Timer.ACKS)
        self.decide(attempt)

    def on_ack_coord(self, sender: MemberId, m: AckCoord) -> None:
        attempt = self._attempt(m.nonce, m.yours)
        if attempt is not None:
            self.ctx.table.merge(m.rows)
            attempt.acks += [z for z in attempt.electorate if z.member == sender and z not in attempt.acks]
            self.decide(attempt)

    def on_nack_coord(self, sender: MemberId, m: NackCoord) -> None:
        self.ctx.table.saw(m.era)
        attempt = self._attempt(m.nonce, m.yours)
        if attempt is not None and m.era >= attempt.era and attempt.retries < self.MAX_RETRIES:
            attempt.retries += 1
            self._propose(attempt)

    def decide(self, attempt: Attempt) -> None:
        """A quorum of each R agrees, of those in it that are not certainly out. (The dead must not count as agreeing:
        they are not in the lists further down the ring.) A list of which all are out vouches for nobody."""

        def agreed(R: Holders) -> bool:
            live = [z for z in R if not self.ctx.table.silent(z, self.ctx.now)]
            return sum(z in attempt.acks for z in live) >= need_acks(len(live)) or bool(R and not live)

        if all(map(agreed, attempt.lists)):
            self._succeeded(attempt)

    def _succeeded(self, attempt: Attempt) -> None:
        ctx, underway, (holder, edge) = self.ctx, self.underway, self.ctx.sitting()
        floor, q = floor_of(attempt.era), attempt.candidate
        # What lies before the successor is this coordinator's own: free, unless an earlier exclusion is not over yet.
        first = attempt.tickets[0] if underway.waiting else edge.succ.ticket
        free, perhaps_owned = attempt.tickets[: (at := attempt.tickets.index(first))], attempt.tickets[at:]
        for ticket in free:
            ctx.table.end(ticket, floor)
        for far, ticket in enumerate(perhaps_owned, 1):
            ctx.table.out(ticket, floor, ctx.now + ctx.config.temp_ns(far))
        held, newcomer = edge.held, underway.newcomer
        if newcomer is not None and newcomer.before.succ != holder:
            held += newcomer.before.held  # what the successor behind an unconfirmed newcomer may hold
        if q == holder:
            ctx.edge, ctx.pred, self.neighbours.next_L = Edge.alone(holder), None, None
        else:
            ctx.table.owns(q)
            ctx.edge = Edge(q, held, tuple(Tenure(ticket, floor) for ticket in attempt.tickets))
        underway.attempt = underway.newcomer = None
        underway.thaw()
        ctx.stop(Timer.ACKS, Timer.NEWCOMER, Timer.UPDATE)
        temp = ctx.config.temp_ns(len(perhaps_owned))  # rule 11
        underway.temp_until = ctx.now + temp
        ctx.after(temp, Timer.TEMP)
        ctx.say(Excluded(attempt.tickets, term_of(attempt.era), tuple(z.member for z in attempt.acks)))
        ctx.say(Announce(GoneNews(perhaps_owned, floor, ctx.me)))

    def temp_over(self) -> None:
        """Everybody in between is out: declare the takeover to the new successor."""
        if self.ctx.state is State.OWNER and not self.ctx.alone and self.underway.attempt is None:
            self.neighbours.update()

    def failed(self, reason: str) -> None:
        self.underway.cancel_attempt()
        self.underway.freeze(reason)

    # --- who is asked to agree ---

    def on_req_coord(self, sender: MemberId, m: ReqCoord) -> None:
        """Agree unless it concerns the own ticket, the excluder is over itself, or the term is not new."""
        ctx, excluder = self.ctx, Holder(sender, *m.mine)
        if ctx.holder is None or ctx.state is State.PROBATION or not ctx.addressed(m.yours):
            return
        tickets = between(excluder.ticket, m.until, ctx.config.tickets)
        over = self.underway.excluding(excluder.ticket) or ctx.table.over(excluder)
        if ctx.holder.ticket in tickets or over or m.era <= ctx.table.era:
            ctx.send(sender, NackCoord(m.nonce, m.mine, ctx.table.era))
            return
        ctx.table.promise(excluder, m.nonce, tickets, m.era)
        ctx.send(sender, AckCoord(m.nonce, m.mine, ctx.table.rows(tickets)))
