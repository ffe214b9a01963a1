"""Polling the predecessors for the lease, and telling the successor who its predecessors are (CCC11 Algorithm 2).

Rules 9, 12, 13, 14, 15 and 16.
"""

from __future__ import annotations

from whence.core.clock import MemberId
from whence.core.ring.config import distance
from whence.core.ring.context import Context, Timer
from whence.core.ring.edge import Holders
from whence.core.ring.interface import State
from whence.core.ring.lease import Lease
from whence.core.ring.messages import ERA_SHIFT, AckUpdate, Alive, Cancel, Holder, Poll, Update
from whence.core.ring.neighbourhood.underway import Underway
from whence.core.ring.table import floor_of


class Neighbours:
    """The lease, the list L it rests on, and the list R that the successor's will rest on."""

    def __init__(self, ctx: Context, underway: Underway) -> None:
        self.ctx = ctx
        self.underway = underway
        self.lease = Lease(ctx.config.lease_ns)
        self.L: Holders = ()
        self.L_nonce = 0
        """The nonce of the predecessor's UPDATE that L came with (0: of an earlier predecessor)."""
        self.next_L: tuple[int, Holders] | None = None
        """A newer L whose quorum does not vouch yet, and its nonce."""
        self.heard = 0
        """The nonce of the last UPDATE accepted from the predecessor."""
        ctx.when_seated.append(self._begin)
        ctx.when_vacated.append(self._clear)

    def _begin(self) -> None:
        self.ctx.after(self.ctx.config.round_ns, Timer.ROUND)

    def _clear(self) -> None:
        self.L, self.L_nonce, self.next_L, self.heard = (), 0, None, 0
        self.lease = Lease(self.ctx.config.lease_ns)

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
            ctx.send(z.member, Poll(nonce, holder.tenure, z.tenure, ctx.table.era, ctx.seq))

    def on_poll(self, sender: MemberId, m: Poll) -> None:
        """Vouch, unless the tenure is known to be over (rules 12 and 15). Not on probation (rule 10). LEAVING still
        vouches: when all leave at once, leases must last."""
        ctx = self.ctx
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours) or ctx.state is State.PROBATION:
            return
        z = Holder(sender, *m.mine)
        ctx.table.note(z, m.seq)
        if not self.underway.excluding(z.ticket) and not ctx.table.over(z):
            ctx.send(sender, Alive(m.nonce, m.yours, m.mine, ctx.table.era, ctx.table.promised(z)))

    def on_alive(self, sender: MemberId, m: Alive) -> bool:
        """Returns whether it is for the present tenure."""
        ctx = self.ctx
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours):
            return False
        self.lease.vouched(Holder(sender, *m.mine), m.nonce)
        if m.promised and self.underway.attempt is None and not self.underway.waiting:
            ctx.send(sender, Cancel(m.promised, m.yours))
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
        ctx.send(edge.succ.member, Update(nonce, holder.tenure, edge.succ.tenure, ctx.table.era, R, edge.takeover))
        ctx.after(ctx.config.answer_ns, Timer.UPDATE)

    def pass_on(self) -> None:
        """Send a new R to the successor at once. Were it to wait for the next round, a ring of m would be m rounds old
        before everybody had a full L, and until then one crash could cost everybody their tickets."""
        ctx, edge = self.ctx, self.ctx.edge
        if ctx.state is not State.OWNER or edge is None or not edge.acked or ctx.alone or not self.underway.quiet:
            return
        if edge.waiting is None and edge.last != self.R():
            self.update()

    def on_ack_update(self, sender: MemberId, m: AckUpdate) -> bool:
        """Returns whether the edge is settled: the successor has accepted this process as its predecessor."""
        ctx, edge, underway = self.ctx, self.ctx.edge, self.underway
        if edge is None or not ctx.addressed(m.yours) or edge.succ != Holder(sender, *m.mine):
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
            underway.newcomer = None
            ctx.stop(Timer.NEWCOMER)
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

    def on_update(self, sender: MemberId, m: Update) -> bool:
        """Returns whether it came from the predecessor."""
        ctx, p = self.ctx, Holder(sender, *m.mine)
        ctx.table.saw(m.era)
        if not ctx.addressed(m.yours) or ctx.table.over(p):
            return False
        for ticket, floor in m.takeover:
            if floor == floor_of(floor >> ERA_SHIFT):
                ctx.table.out(ticket, floor, ctx.now)  # excluded: UPDATE is sent after TempRounds
            else:
                ctx.table.end(ticket, floor)  # released: not out before its ACKCLEAVE has arrived
        if not self._is_predecessor(p):
            return False
        if p != ctx.pred:
            ctx.pred, self.L_nonce = p, 0
        if self.underway.courted is not None and self.underway.courted[0] == p:
            self.underway.courted = None
        self.heard = m.nonce
        ctx.table.owns(p)
        self._offered(m.nonce, tuple(z for z in m.R if z.member != ctx.me))
        self.ack_update(m.nonce)
        return True

    def _is_predecessor(self, p: Holder) -> bool:
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
            m = AckUpdate(nonce, ctx.holder.tenure, ctx.pred.tenure, self.L_nonce, confirmed)
            ctx.send(ctx.pred.member, m)
