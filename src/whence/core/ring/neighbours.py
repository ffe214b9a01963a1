"""The neighbours: the fault-tolerant ring of CCC11 Algorithms 2-4 with rules 7-19 of docs/ring.md, and the graceful
leave of rules 2-6.

The parts; a part calls only those above it. `TolerantRing`, at the end, composes them, and says which message and timer
goes where.

    Lease       how long a process may take itself for an owner (8, 9, 14, 16). A vouch counts from when its poll was
                *sent*: a slow answer only buys less time.
    Underway    what is under way at a coordinator's edge; while anything is, it neither admits nor leaves (1)
    Neighbours  polls the predecessors, tells the successor who its predecessors are (Algorithm 2; 9, 12 to 16)
    Exclusion   excludes a successor that does not answer (Algorithm 4; 8, 11, 12, 13, 15, 17, 18)
    Admission   admits a newcomer, and is one (Algorithm 3; 1, 7, 10, 13, 14)
    Departure   the graceful leave, which the paper does not have (19), built on Algorithm 1 (1, 2, 4, 5, 6, 13)

As in the papers, an empty core stays empty until somebody founds the ring again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

import whence.core.ring.messages as msg
from whence.core.clock import MemberId
from whence.core.clock.bounds import keep_last
from whence.core.ring.base import Applicant, Ring
from whence.core.ring.config import RingConfig, between, distance, need_acks, need_alive
from whence.core.ring.context import Announce, Context, Edge, Excluded, Frozen, Holders, State, Thawed, Timer, floor_of


class Lease:
    """Which vouchers a process holds, and until when."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._sent: dict[int, int] = {}
        self._until: dict[msg.Holder, int] = {}

    def polled(self, nonce: int, now: int) -> None:
        """A round of polls goes out."""
        self._sent = {n: at for n, at in self._sent.items() if at + self.length > now}
        self._until = {holder: until for holder, until in self._until.items() if until > now}
        self._sent[nonce] = now

    def vouched(self, holder: msg.Holder, nonce: int) -> None:
        """ALIVE arrived, in answer to that poll."""
        sent = self._sent.get(nonce)
        if sent is not None:
            self._until[holder] = max(self._until.get(holder, 0), sent + self.length)

    def until(self, L: Sequence[msg.Holder]) -> int | None:
        """When fewer than the quorum of L will vouch; None: never, since L is empty."""
        need = need_alive(len(L))
        if need == 0:
            return None
        return sorted([self._until.get(holder, 0) for holder in L], reverse=True)[need - 1]

    def valid(self, L: Sequence[msg.Holder], now: int) -> bool:
        """The quorum of L vouches now."""
        until = self.until(L)
        return until is None or now < until


class Newcomer(msgspec.Struct):
    """The one newcomer that a coordinator has admitted and that is not yet confirmed (rule 10)."""

    holder: msg.Holder
    since: int
    before: Edge
    """The edge as it was, should the newcomer decline."""
    answered: bool = False


class Attempt(msgspec.Struct):
    """One exclusion (rule 18: a reply counts only for the nonce it answers)."""

    nonce: int
    candidate: msg.Holder
    """Who is asked, or has answered, as the next reachable coordinator q."""
    tickets: tuple[int, ...] = ()
    """E, once q has answered."""
    era: int = 0
    lists: tuple[Holders, ...] = ()
    """Every R that needs a quorum (rule 13)."""
    electorate: Holders = ()
    """(L_q + {q}) n R."""
    acks: list[msg.Holder] = []
    retries: int = 0
    asked: list[MemberId] = []
    """Everybody who was sent EXCLUDE or REQCOORD."""


class Underway:
    """An unconfirmed newcomer, an exclusion, its TempRounds, or the freeze after it failed."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.newcomer: Newcomer | None = None
        self.attempt: Attempt | None = None
        self.temp_until = 0  # the end of TempRounds
        self.frozen = False
        self.courted: tuple[msg.Holder, int] | None = None
        """Who is excluding the predecessor and has this process's L, and the nonce it asked with: until that is
        decided, this process does not leave."""
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        self.cancel_attempt()
        self.newcomer = self.courted = None
        self.temp_until = 0
        self.frozen = False

    @property
    def waiting(self) -> bool:
        """TempRounds are not over."""
        return self.ctx.now < self.temp_until

    @property
    def quiet(self) -> bool:
        return self.attempt is None and self.newcomer is None and not self.waiting

    @property
    def settled(self) -> bool:
        """An owner with nothing under way: it may admit, and it may begin to leave."""
        ctx = self.ctx
        return ctx.state is State.OWNER and ctx.edge is not None and ctx.edge.acked and self.quiet and not self.frozen

    def court(self, excluder: msg.Holder, nonce: int) -> None:
        self.courted = (excluder, nonce)

    def decided(self, by: msg.Holder) -> None:
        """The exclusion that this process was asked about has succeeded or failed."""
        if self.courted is not None and self.courted[0] == by:
            self.courted = None

    def begin_attempt(self, successor: msg.Holder) -> Attempt:
        self.attempt = Attempt(0, successor)
        return self.attempt

    def succeeded(self, temp_ns: int) -> None:
        """The attempt has its quorum: TempRounds begin (rule 11)."""
        self.attempt = self.newcomer = None
        self.thaw()
        self.ctx.stop(Timer.ACKS, Timer.NEWCOMER, Timer.UPDATE)
        self.temp_until = self.ctx.now + temp_ns
        self.ctx.after(temp_ns, Timer.TEMP)

    def admitted(self, newcomer: msg.Holder, before: Edge) -> None:
        ctx = self.ctx
        self.newcomer = Newcomer(newcomer, ctx.now, before)
        ctx.after(ctx.config.answer_ns, Timer.UPDATE)
        ctx.after(ctx.config.probation_ns + 2 * ctx.config.round_ns, Timer.NEWCOMER)

    def confirmed(self) -> None:
        self.newcomer = None
        self.ctx.stop(Timer.NEWCOMER)

    def declined(self) -> None:
        self.cancel_attempt()
        self.newcomer = None
        self.ctx.stop(Timer.UPDATE, Timer.NEWCOMER)

    def excluding(self, ticket: int) -> bool:
        return self.attempt is not None and ticket in self.attempt.tickets

    def cancel_attempt(self) -> None:
        """The attempt failed, or is no longer needed: it is void, and those who were asked are told so (rule 18)."""
        if self.attempt is not None:
            holder, _ = self.ctx.sitting()
            for member in dict.fromkeys(self.attempt.asked):
                self.ctx.send(member, msg.Cancel(self.attempt.nonce, holder.tenure))
            self.attempt = None
            self.ctx.stop(Timer.EXCLUDE, Timer.ACKS)

    def freeze(self, reason: str) -> None:
        """Rule 17: a failed exclusion does not disconnect; admit nobody and try again, until patience is over."""
        if not self.frozen:
            self.frozen = True
            self.ctx.after(self.ctx.config.patience_ns, Timer.FROZEN)
            self.ctx.say(Frozen(reason))

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self.ctx.stop(Timer.FROZEN)
            self.ctx.say(Thawed())


class Neighbours:
    """The lease, the list L it rests on, and the list R that the successor's will rest on."""

    def __init__(self, ctx: Context, underway: Underway) -> None:
        self.ctx = ctx
        self.underway = underway
        self.lease = Lease(ctx.config.lease_ns)
        self.L: Holders = ()
        self.L_nonce = 0  # the nonce of the predecessor's UPDATE that L came with (0: of an earlier predecessor)
        self.next_L: tuple[int, Holders] | None = None  # A newer L whose quorum does not vouch yet, and its nonce
        self.heard = 0  # the nonce of the last UPDATE accepted from the predecessor
        ctx.when_seated.append(self._begin)
        ctx.when_vacated.append(self._clear)

    def _begin(self) -> None:
        self.ctx.after(self.ctx.config.round_ns, Timer.ROUND)

    def _clear(self) -> None:
        self.L, self.L_nonce, self.next_L, self.heard = (), 0, None, 0
        self.lease = Lease(self.ctx.config.lease_ns)

    def seated(self, grant: msg.AckCJoin) -> None:
        self.L, self.L_nonce, self.heard = grant.L, grant.update, grant.update
        self.ack_update(grant.update)
        self.poll(grant.L)

    def alone(self, holder: msg.Holder) -> None:
        """Nobody else is left on the ring: nobody vouches, nobody can exclude (rule 8)."""
        self.ctx.edge, self.ctx.pred, self.L, self.next_L = Edge.alone(holder), None, (), None

    # --- the lease ---

    def vouched_at(self, now: int) -> bool:
        return self.lease.valid(self.L, now)

    def poll_all(self) -> None:
        self.poll((*self.L, *(self.next_L[1] if self.next_L else ())))

    def poll(self, holders: Holders) -> None:
        ctx, (holder, _) = self.ctx, self.ctx.sitting()
        nonce = ctx.next_nonce()
        self.lease.polled(nonce, ctx.now)
        for z in dict.fromkeys(holders):
            ctx.send(z.member, msg.Poll(nonce, holder.tenure, z.tenure, ctx.table.era, ctx.seq))

    def on_poll(self, sender: MemberId, m: msg.Poll) -> None:
        """Vouch, unless the tenure is known to be over (rules 12 and 15). Not on probation (rule 10). LEAVING still
        vouches: when all leave at once, leases must last."""
        ctx = self.ctx
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours) or ctx.state is State.PROBATION:
            return
        z = msg.Holder(sender, *m.mine)
        ctx.table.note(z, m.seq)
        if not self.underway.excluding(z.ticket) and not ctx.table.over(z):
            ctx.send(sender, msg.Alive(m.nonce, m.yours, m.mine, ctx.table.era, ctx.table.promised(z)))

    def on_alive(self, sender: MemberId, m: msg.Alive) -> bool:
        """Returns whether it is for the present tenure."""
        ctx = self.ctx
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours):
            return False
        self.lease.vouched(msg.Holder(sender, *m.mine), m.nonce)
        if m.promised and self.underway.attempt is None and not self.underway.waiting:
            ctx.send(sender, msg.Cancel(m.promised, m.yours))
        self._adopt_if_vouched()
        return True

    # --- the edge to the successor ---

    def R(self) -> Holders:
        """Self and the 2k closest predecessors: what the successor's L should be.

        Leave out only who is certainly out. A coordinator that is merely being excluded may still agree to other
        exclusions; were it dropped here, a quorum with it would not be one of the L further down the ring."""
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        near = [z for z in self.L if z.member != edge.succ.member and not ctx.table.silent(z, ctx.now)]
        return (holder, *near[: 2 * ctx.config.k])

    def update(self) -> None:
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        nonce = ctx.next_nonce()
        R = edge.offer(nonce, self.R())
        ctx.send(edge.succ.member, msg.Update(nonce, holder.tenure, edge.succ.tenure, ctx.table.era, R, edge.takeover))
        ctx.after(ctx.config.answer_ns, Timer.UPDATE)

    def pass_on(self) -> None:
        """Send a new R to the successor at once. Were it to wait for the next round, a ring of m would be m rounds old
        before everybody had a full L, and until then one crash could cost everybody their tickets."""
        ctx, edge = self.ctx, self.ctx.edge
        if ctx.state is not State.OWNER or edge is None or not edge.acked or ctx.alone or not self.underway.quiet:
            return
        if edge.waiting is None and edge.last != self.R():
            self.update()

    def on_ack_update(self, sender: MemberId, m: msg.AckUpdate) -> bool:
        """Returns whether the edge is settled: the successor has accepted this process as its predecessor."""
        ctx, edge, underway = self.ctx, self.ctx.edge, self.underway
        if edge is None or not ctx.addressed(m.yours) or edge.succ != msg.Holder(sender, *m.mine):
            return False
        if edge.start is None or m.nonce < edge.start:
            return False
        if edge.answered(m.nonce, m.adopted):
            ctx.stop(Timer.UPDATE)
            underway.cancel_attempt()
            underway.thaw()
        newcomer = underway.newcomer
        if newcomer is not None and newcomer.holder == edge.succ:
            newcomer.answered = True
            if not m.confirmed:
                return False
            underway.confirmed()
        ctx.table.owns(edge.succ)
        edge.acked = True
        return True

    def unanswered(self) -> bool:
        """Whether to exclude the successor, which is weakly detected as faulty. A newcomer's first answer may take
        longer: its link may be slow, and an exclusion costs the tickets for a long time."""
        ctx, newcomer = self.ctx, self.underway.newcomer
        if ctx.edge is None or ctx.edge.waiting is None or self.underway.attempt or ctx.state is not State.OWNER:
            return False
        if newcomer is not None and not newcomer.answered and ctx.now < newcomer.since + 2 * ctx.config.round_ns:
            return False
        return ctx.rng.random() < ctx.config.exclude_probability

    # --- the edge to the predecessor ---

    def on_update(self, sender: MemberId, m: msg.Update) -> bool:
        """Returns whether it came from the predecessor."""
        ctx, p = self.ctx, msg.Holder(sender, *m.mine)
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours) or ctx.table.over(p):
            return False
        for ticket, floor in m.takeover:
            if floor == floor_of(floor >> msg.ERA_SHIFT):
                ctx.table.out(ticket, floor, ctx.now)  # excluded: UPDATE is sent after TempRounds
            else:
                ctx.table.end(ticket, floor)  # released: not out before its ACKCLEAVE has arrived
        if not self._is_predecessor(p):
            return False
        if p != ctx.pred:
            ctx.pred, self.L_nonce = p, 0
        self.underway.decided(p)
        self.heard = m.nonce
        ctx.table.owns(p)
        self._offered(m.nonce, tuple(z for z in m.R if z.member != ctx.me))
        self.ack_update(m.nonce)
        return True

    def _is_predecessor(self, p: msg.Holder) -> bool:
        """Rule 15: `p` is the known predecessor, or closer, or that one is over."""
        ctx, (holder, _) = self.ctx, self.ctx.sitting()
        if ctx.pred is None or p == ctx.pred or ctx.table.over(ctx.pred):
            return True
        n = ctx.config.tickets
        return distance(p.ticket, holder.ticket, n) < distance(ctx.pred.ticket, holder.ticket, n)

    def _offered(self, nonce: int, R: Holders) -> None:
        if R == self.L:
            self.L_nonce, self.next_L = nonce, None
            return
        fresh = self.next_L is None or self.next_L[1] != R
        new = tuple(z for z in R if z not in self.L)
        self.next_L = (nonce, R)
        if not self._adopt_if_vouched():
            if fresh:
                self.poll(R)
        elif new:
            # Not first in the next round: until they vouch, the others carry the lease alone, and k crashes among these
            # would cost it.
            self.poll(new)

    def _adopt_if_vouched(self) -> bool:
        if self.next_L is None or not self.lease.valid(self.next_L[1], self.ctx.now):
            return False
        (self.L_nonce, self.L), self.next_L = self.next_L, None
        self.ack_update(self.L_nonce)
        self.pass_on()
        return True

    def ack_update(self, nonce: int) -> None:
        ctx = self.ctx
        if ctx.holder is not None and ctx.pred is not None:
            confirmed = ctx.state is not State.PROBATION
            m = msg.AckUpdate(nonce, ctx.holder.tenure, ctx.pred.tenure, self.L_nonce, confirmed)
            ctx.send(ctx.pred.member, m)


@dataclass(eq=False)
class Exclusion:
    """Both sides of an exclusion."""

    MAX_RETRIES: ClassVar = 8  # higher terms proposed within one attempt

    ctx: Context
    underway: Underway
    neighbours: Neighbours

    # --- the excluder: find the next reachable coordinator ---

    def begin(self) -> None:
        self.next_candidate(self.underway.begin_attempt(self.ctx.sitting()[1].succ))

    def no_answer(self) -> None:
        """The candidate is not reachable."""
        if self.underway.attempt is not None:
            self.next_candidate(self.underway.attempt)

    def next_candidate(self, attempt: Attempt) -> None:
        ctx, (holder, _) = self.ctx, self.ctx.sitting()
        q = ctx.table.next_owner(holder.ticket, attempt.candidate.ticket)
        if q is not None:
            attempt.nonce, attempt.candidate = ctx.next_nonce(), q
            attempt.asked.append(q.member)
            ctx.send(q.member, msg.Exclude(attempt.nonce, holder.tenure, q.ticket))
            ctx.after(ctx.config.answer_ns, Timer.EXCLUDE)
        elif self.neighbours.L == ():  # all the way round; of two that do not see each other none may win (rule 8)
            self._request(attempt, holder, ())
        else:
            self.failed("no reachable coordinator")

    def on_exclude(self, sender: MemberId, m: msg.Exclude) -> None:
        """Only an owner answers. A leaver may have been released by the very predecessor that is to be excluded; if it
        answered, two would inherit its edge. For the same reason a process that has answered does not leave until
        that is decided."""
        ctx, excluder = self.ctx, msg.Holder(sender, *m.mine)
        if ctx.holder is None or ctx.state is not State.OWNER or m.ticket != ctx.holder.ticket:
            return
        if not ctx.table.over(excluder):
            self.underway.court(excluder, m.nonce)
            ctx.send(sender, msg.AckExclude(m.nonce, ctx.holder.tenure, m.mine, ctx.table.era, self.neighbours.L))

    def _attempt(self, nonce: int, tenure: msg.Tenure) -> Attempt | None:
        """The attempt that a reply belongs to (rule 18)."""
        attempt = self.underway.attempt
        return attempt if attempt is not None and self.ctx.addressed(tenure) and attempt.nonce == nonce else None

    def on_ack_exclude(self, sender: MemberId, m: msg.AckExclude) -> None:
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
            self.next_candidate(attempt)  # q knows coordinators nearer than itself that Cview did not
        else:
            self._request(attempt, msg.Holder(sender, *m.mine), m.L)

    # --- the excluder: get a quorum ---

    def _request(self, attempt: Attempt, q: msg.Holder, L_q: Holders) -> None:
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
                ctx.send(z.member, msg.ReqCoord(attempt.nonce, holder.tenure, z.tenure, until, attempt.era))
        ctx.after(ctx.config.answer_ns, Timer.ACKS)
        self.decide(attempt)

    def on_ack_coord(self, sender: MemberId, m: msg.AckCoord) -> None:
        attempt = self._attempt(m.nonce, m.yours)
        if attempt is not None:
            self.ctx.table.merge(m.rows)
            attempt.acks += [z for z in attempt.electorate if z.member == sender and z not in attempt.acks]
            self.decide(attempt)

    def on_nack_coord(self, sender: MemberId, m: msg.NackCoord) -> None:
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
            self.neighbours.alone(holder)
        else:
            ctx.table.owns(q)
            ctx.edge = Edge(q, held, tuple(msg.Tenure(ticket, floor) for ticket in attempt.tickets))
        underway.succeeded(ctx.config.temp_ns(len(perhaps_owned)))
        ctx.say(Excluded(attempt.tickets, msg.term_of(attempt.era), tuple(z.member for z in attempt.acks)))
        ctx.say(Announce(msg.GoneNews(perhaps_owned, floor, ctx.me)))

    def temp_over(self) -> None:
        """Everybody in between is out: declare the takeover to the new successor."""
        if self.ctx.state is State.OWNER and not self.ctx.alone and self.underway.attempt is None:
            self.neighbours.update()

    def failed(self, reason: str) -> None:
        self.underway.cancel_attempt()
        self.underway.freeze(reason)

    # --- who is asked to agree ---

    def on_req_coord(self, sender: MemberId, m: msg.ReqCoord) -> None:
        """Agree unless it concerns the own ticket, the excluder is over itself, or the term is not new."""
        ctx, excluder = self.ctx, msg.Holder(sender, *m.mine)
        if ctx.holder is None or ctx.state is State.PROBATION or not ctx.addressed(m.yours):
            return
        tickets = between(excluder.ticket, m.until, ctx.config.tickets)
        over = self.underway.excluding(excluder.ticket) or ctx.table.over(excluder)
        if ctx.holder.ticket in tickets or over or m.era <= ctx.table.era:
            ctx.send(sender, msg.NackCoord(m.nonce, m.mine, ctx.table.era))
            return
        ctx.table.promise(excluder, m.nonce, tickets, m.era)
        ctx.send(sender, msg.AckCoord(m.nonce, m.mine, ctx.table.rows(tickets)))


@dataclass(eq=False)
class Admission:
    """Serving CJOIN, and taking the tenure that was granted."""

    ctx: Context
    underway: Underway
    neighbours: Neighbours
    exclusion: Exclusion
    applicant: Applicant

    # --- the coordinator's side ---

    @property
    def admits(self) -> bool:
        return self.underway.settled and not self.ctx.resigning and bool(self.ctx.free())

    def on_cjoin(self, sender: MemberId, m: msg.CJoin) -> None:
        if not self.admits:
            self.ctx.refuse(sender, m.nonce, busy=not self.underway.settled)
            return
        ctx, (holder, before) = self.ctx, self.ctx.sitting()
        newcomer = ctx.grant(sender, m.wish)
        ctx.edge = Edge(newcomer, [])
        update = ctx.next_nonce()
        R, rows = ctx.edge.offer(update, self.neighbours.R()), ctx.table.rows()
        mine, yours = holder.tenure, newcomer.tenure
        ctx.send(sender, msg.AckCJoin(m.nonce, update, mine, yours, before.succ, R, before.held, rows))
        self.underway.admitted(newcomer, before)

    def on_decline(self, sender: MemberId, m: msg.Decline) -> None:
        newcomer = self.underway.newcomer
        if newcomer is None or newcomer.holder != msg.Holder(sender, *m.tenure):
            return
        self.underway.declined()
        self.ctx.edge = newcomer.before.restored()
        self.ctx.table.end(newcomer.holder.ticket, newcomer.holder.inc + 1)

    def unconfirmed(self) -> None:
        """The newcomer answers, but nobody vouches for it, and it has not given up by itself."""
        if self.underway.newcomer and self.underway.attempt is None and self.ctx.state is State.OWNER:
            self.exclusion.begin()
            self.ctx.after(self.ctx.config.round_ns, Timer.NEWCOMER)

    # --- the newcomer's side ---

    def seated(self, grant: msg.AckCJoin) -> None:
        self.neighbours.seated(grant)
        self.ctx.timers[Timer.PROBATION] = self.applicant.asked_at + self.ctx.config.probation_ns

    def confirm_if_vouched(self) -> None:
        """The end of probation (rule 10)."""
        if self.ctx.state is State.PROBATION and self.neighbours.vouched_at(self.ctx.now):
            self.ctx.stop(Timer.PROBATION)
            self.ctx.own()
            self.neighbours.ack_update(self.neighbours.heard)
            self.neighbours.update()

    def declines(self, sender: MemberId, m: msg.Update) -> bool:
        """An UPDATE for a tenure that was granted, while the ACKCJOIN that came before it is lost."""
        if m.yours in self.ctx.done:
            return False
        self.applicant.decline(sender, 0, m.yours)
        return True

    def abandon(self) -> None:
        """Give back a ticket on probation."""
        holder, _ = self.ctx.sitting()
        assert self.ctx.pred is not None
        self.applicant.decline(self.ctx.pred.member, self.applicant.joined_by, holder.tenure)


class Ended(msgspec.Struct):
    """A tenure that was lost and not handed over yet."""

    succ: msg.Holder
    pred: msg.Holder | None
    nonce: int
    held: tuple[Holders, ...]
    courted: tuple[msg.Holder, int] | None
    """Nobody gets it until this exclusion of the predecessor is decided (see `Exclusion.on_exclude`)."""
    seq: int
    whole: bool
    """What it coordinated was surely its own, so that it can be handed over."""


class Departure:
    """Both sides of a leave."""

    MAX_RELEASED = 16  # released successors whose ACKCLEAVE can be repeated
    MAX_ENDED = 4  # lost tenures that are remembered
    MAX_TOLD = 32  # rounds in which ACKCLEAVE is repeated

    def __init__(
        self, ctx: Context, underway: Underway, neighbours: Neighbours, admission: Admission, applicant: Applicant
    ) -> None:
        self.ctx = ctx
        self.underway = underway
        self.neighbours = neighbours
        self.admission = admission
        self.applicant = applicant
        self.leave_nonce = 0
        self.ended: dict[msg.Holder, Ended] = {}
        self._asked_pred: msg.Holder | None = None  # to whom CLEAVE went under `leave_nonce`
        self._refused_by: msg.Holder | None = None
        """Who refused the leave; try again when it is not the predecessor any more."""
        self._held_leave: msg.CLeave | None = None  # the successor's CLEAVE, held while leaving (rule 5)
        self._accepted: dict[msg.Holder, int] = {}  # successors that were released here, and the nonce of their CLEAVE
        self._unheard: dict[msg.Holder, int] = {}
        """Those of them that have not yet said that they are out, and how often they were told."""
        ctx.when_lost.append(self._remember)
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        self.leave_nonce, self._refused_by, self._held_leave = 0, None, None

    # --- the leaver ---

    def resign(self) -> None:
        if self.ctx.state is State.PROBATION:
            self.admission.abandon()
            self.applicant.released()
        else:
            self.ctx.after(self.ctx.config.patience_ns, Timer.PATIENCE)
            self.leave_if_possible()

    def _announce(self, holder: msg.Holder, seq: int) -> None:
        """Said by the leaver, which knows that it is out."""
        self.ctx.say(Announce(msg.ReleasedNews(holder, seq)))

    def leave_if_possible(self) -> None:
        ctx, underway = self.ctx, self.underway
        if underway.courted is not None and ctx.table.ended(underway.courted[0]):
            underway.decided(underway.courted[0])
        if not (ctx.resigning and underway.settled and underway.courted is None):
            return
        holder, _ = ctx.sitting()
        if ctx.alone:
            self._announce(holder, ctx.seq)
            self.applicant.released()
            return
        pred = ctx.pred
        if pred is None or ctx.table.over(pred) or (pred == self._refused_by and Timer.LEAVE in ctx.timers):
            return
        ctx.state = State.LEAVING
        self._asked_pred = None
        ctx.stop(Timer.LEAVE, Timer.UPDATE)
        self.ask()

    def ask(self) -> None:
        """CLEAVE to whoever is the predecessor now; again in every round, since it may be lost. Each predecessor is
        asked under a nonce of its own: a former one may refuse when the next has accepted already."""
        ctx, pred = self.ctx, self.ctx.pred
        if pred is None or ctx.holder is None or ctx.edge is None:
            return
        if pred != self._asked_pred:
            self.leave_nonce, self._asked_pred = ctx.next_nonce(), pred
        edge, mine, heard = ctx.edge, ctx.holder.tenure, self.neighbours.heard
        m = msg.CLeave(self.leave_nonce, mine, pred.tenure, edge.succ, heard, edge.held, ctx.table.rows())
        ctx.send(pred.member, m)

    def heard_predecessor(self) -> None:
        if self.ctx.state is State.LEAVING:
            self.ask()
        elif self.ctx.resigning:
            self.leave_if_possible()

    def on_ack_cleave(self, sender: MemberId, m: msg.AckCLeave) -> None:
        ctx, lost = self.ctx, msg.Holder(self.ctx.me, *m.yours)
        ended = self.ended.pop(lost, None)
        if ended is not None:
            self._announce(lost, ended.seq)
        if ctx.state is State.LEAVING and ctx.addressed(m.yours):
            self._announce(lost, ctx.seq)
            self.applicant.released()
        if m.yours in ctx.done and not ctx.addressed(m.yours):
            ctx.send(sender, msg.Decline(m.nonce, m.yours))  # farewell: this tenure is over

    def on_nack_leave(self, sender: MemberId, m: msg.NackLeave) -> None:
        ctx = self.ctx
        for ended in self.ended.values():
            if ended.nonce == m.nonce:
                ended.nonce = ctx.next_nonce()
        if ctx.state is not State.LEAVING or not ctx.addressed(m.yours) or m.nonce != self.leave_nonce:
            return
        ctx.state = State.OWNER
        self._refused_by = ctx.pred
        ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(1, 3)), Timer.LEAVE)
        held, self._held_leave = self._held_leave, None
        if held is not None:
            self.on_cleave(ctx.sitting()[1].succ.member, held)

    # --- whoever did not get to leave ---

    def _remember(self) -> None:
        """The tenure is lost: what its predecessor needs to take it over (`hands_over`)."""
        ctx, underway, (holder, edge) = self.ctx, self.underway, self.ctx.sitting()
        if ctx.state is State.PROBATION:
            return
        whole = underway.newcomer is None and not underway.waiting and not ctx.alone
        nonce = self.leave_nonce or ctx.next_nonce()
        self.ended[holder] = Ended(edge.succ, ctx.pred, nonce, edge.held, underway.courted, ctx.seq, whole)
        keep_last(self.ended, self.MAX_ENDED)

    def on_cancel(self, sender: MemberId, m: msg.Cancel) -> None:
        """The exclusion of the predecessor has failed: who has waited for that may leave."""

        excluder = msg.Holder(sender, *m.mine)

        def failed(courted: tuple[msg.Holder, int] | None) -> bool:
            return courted is not None and courted[0] == excluder and courted[1] <= m.nonce

        for ended in self.ended.values():
            ended.courted = None if failed(ended.courted) else ended.courted
        if failed(self.underway.courted):
            self.underway.decided(excluder)
            self.leave_if_possible()

    def hands_over(self, sender: MemberId, m: msg.Update) -> bool:
        """Its predecessor still counts on a tenure that was lost: hand it over. Only to the predecessor that it had:
        were that one excluded meanwhile, it may first have excluded this tenure, and have granted its ticket to
        somebody else."""
        table, lost, p = self.ctx.table, msg.Holder(self.ctx.me, *m.yours), msg.Holder(sender, *m.mine)
        ended = self.ended.get(lost)
        if ended is None or not ended.whole:
            return False
        if p == ended.pred and not table.over(p) and lost.inc >= table.floor[lost.ticket]:
            if ended.courted is not None and table.ended(ended.courted[0]):
                ended.courted = None
            if ended.courted is None:
                leave = msg.CLeave(ended.nonce, m.yours, m.mine, ended.succ, m.nonce, ended.held, table.rows())
                self.ctx.send(sender, leave)
        return True

    # --- its predecessor ---

    def on_cleave(self, sender: MemberId, m: msg.CLeave) -> None:
        ctx, z, edge, underway = self.ctx, msg.Holder(sender, *m.mine), self.ctx.edge, self.underway
        if z in self._accepted:
            ctx.send(sender, msg.AckCLeave(m.nonce, m.mine))  # the first one was lost
            return
        if ctx.holder is None or edge is None or ctx.state is State.PROBATION or not ctx.addressed(m.yours):
            return
        if z != edge.succ or m.nonce <= edge.refused or edge.start is None or m.answers < edge.start:
            return
        wraps = z.ticket > ctx.holder.ticket
        if wraps if ctx.state is State.LEAVING else not underway.quiet:
            edge.refused = m.nonce
            ctx.send(sender, msg.NackLeave(m.nonce, m.mine))
        elif ctx.state is State.LEAVING:
            self._held_leave = m
        else:
            self._take_over(z, m)

    def _take_over(self, z: msg.Holder, m: msg.CLeave) -> None:
        """The leaver's tickets and its edge are this process's now."""
        ctx, table, (holder, _) = self.ctx, self.ctx.table, self.ctx.sitting()
        ctx.send(z.member, msg.AckCLeave(m.nonce, m.mine))
        self._accepted[z], self._unheard[z] = m.nonce, 0
        keep_last(self._accepted, self.MAX_RELEASED)
        keep_last(self._unheard, self.MAX_RELEASED)
        table.merge(m.rows)
        table.end(z.ticket, z.inc + 1)
        ctx.stop(Timer.UPDATE)
        self.underway.thaw()
        if m.succ == holder:  # they were two: nobody is left to vouch, and nobody to fear
            self.neighbours.alone(holder)
            self.leave_if_possible()
        else:
            between_us = between(holder.ticket, m.succ.ticket, ctx.config.tickets)
            takeover = (msg.Tenure(t, max(table.floor[t], table.top[t] + 1)) for t in between_us if table.top[t])
            ctx.edge = Edge(m.succ, m.held, tuple(takeover))
            self.neighbours.update()

    def repeat_acks(self) -> None:
        """Tell the released again that they are, until they say so: then nobody need reckon with them any more."""
        for z, told in list(self._unheard.items()):
            self.ctx.send(z.member, msg.AckCLeave(self._accepted.get(z, 0), z.tenure))
            self._unheard[z] = told + 1
            if told >= self.MAX_TOLD:
                del self._unheard[z]

    def on_farewell(self, sender: MemberId, m: msg.Decline) -> None:
        z = msg.Holder(sender, *m.tenure)
        if z in self._accepted:
            self._unheard.pop(z, None)
            self.ctx.table.out(z.ticket, z.inc + 1, self.ctx.now)


class TolerantRing(Ring):
    """One process's part in a ring that survives up to k failures in a neighbourhood of 2k+1."""

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng, answer_ns=config.round_ns)
        ctx, applicant = self.ctx, self.applicant
        self.underway = Underway(ctx)
        self.neighbours = Neighbours(ctx, self.underway)
        self.exclusion = Exclusion(ctx, self.underway, self.neighbours)
        self.admission = Admission(ctx, self.underway, self.neighbours, self.exclusion, applicant)
        self.departure = Departure(ctx, self.underway, self.neighbours, self.admission, applicant)
        self.dispatch(self.neighbours, self.exclusion, self.admission, self.departure, self.founding)

    def owns_at(self, now: int) -> bool:
        return self.ctx.state is State.OWNER and self.neighbours.vouched_at(now)

    def steady_at(self, now: int) -> bool:
        underway = self.underway
        return self.owns_at(now) and underway.attempt is None and not underway.frozen and now >= underway.temp_until

    def _lease_end(self) -> int | None:
        if self.ctx.state not in (State.OWNER, State.LEAVING):
            return None
        return self.neighbours.lease.until(self.neighbours.L)

    def _leave(self) -> None:
        self.departure.resign()

    # --- messages that concern more than one part ---

    def on_ack_cjoin(self, sender: MemberId, m: msg.AckCJoin) -> None:
        self.founding.heard_owner(sender)
        if self.applicant.takes(sender, m):
            self.admission.seated(m)

    def on_alive(self, sender: MemberId, m: msg.Alive) -> None:
        if self.neighbours.on_alive(sender, m):
            self.admission.confirm_if_vouched()

    def on_update(self, sender: MemberId, m: msg.Update) -> None:
        if self.departure.hands_over(sender, m) or self.admission.declines(sender, m):
            return
        if self.neighbours.on_update(sender, m):
            self.departure.heard_predecessor()

    def on_ack_update(self, sender: MemberId, m: msg.AckUpdate) -> None:
        if self.neighbours.on_ack_update(sender, m):
            self.departure.leave_if_possible()
            self.neighbours.pass_on()

    def on_decline(self, sender: MemberId, m: msg.Decline) -> None:
        self.departure.on_farewell(sender, m)
        self.admission.on_decline(sender, m)

    def on_who(self, sender: MemberId, m: msg.Who) -> None:
        self.ctx.refuse(sender, m.nonce, busy=not self.underway.settled)

    def on_cancel(self, sender: MemberId, m: msg.Cancel) -> None:
        self.ctx.table.cancel(sender, m.nonce)
        self.departure.on_cancel(sender, m)

    def _timer(self, timer: Timer) -> None:
        match timer:
            case Timer.ROUND:
                self._round()
            case Timer.UPDATE:
                if self.neighbours.unanswered():
                    self.exclusion.begin()
            case Timer.EXCLUDE:
                self.exclusion.no_answer()
            case Timer.ACKS:
                self.exclusion.failed("no quorum")
            case Timer.TEMP:
                self.exclusion.temp_over()
                if self.ctx.alone:
                    self.departure.leave_if_possible()
            case Timer.FROZEN:  # so that the predecessor, which has other lists, can exclude all of it
                self.applicant.lost("frozen too long")
            case Timer.NEWCOMER:
                self.admission.unconfirmed()
            case Timer.PROBATION:
                self.admission.abandon()
                self.applicant.lost("not confirmed")
            case Timer.LEAVE:
                self.departure.leave_if_possible()
            case Timer.PATIENCE:  # just stop; the predecessor will find out
                if self.ctx.resigning or self.ctx.state is State.LEAVING:
                    self.applicant.lost("could not leave in time")
            case _:
                super()._timer(timer)

    def _round(self) -> None:
        ctx, underway = self.ctx, self.underway
        ctx.after(ctx.config.round_ns, Timer.ROUND)
        ctx.table.void_promises(ctx.now)
        self.neighbours.poll_all()
        if ctx.state is State.OWNER:
            if underway.attempt is None and not underway.waiting and not ctx.alone:
                self.neighbours.update()
            self.departure.leave_if_possible()
        elif ctx.state is State.LEAVING:
            self.departure.ask()
        self.departure.repeat_acks()
