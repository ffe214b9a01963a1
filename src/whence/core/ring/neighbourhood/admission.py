"""Admitting a newcomer, and being one (CCC11 Algorithm 3). Rules 1, 7, 10, 13 and 14."""

from __future__ import annotations

from dataclasses import dataclass

from whence.core.clock import MemberId
from whence.core.ring.applicant import BUSY, Applicant
from whence.core.ring.context import Context, Timer
from whence.core.ring.edge import Edge
from whence.core.ring.interface import State
from whence.core.ring.messages import AckCJoin, CJoin, Decline, Holder, Update
from whence.core.ring.neighbourhood.exclusion import Exclusion
from whence.core.ring.neighbourhood.neighbours import Neighbours
from whence.core.ring.neighbourhood.underway import Newcomer, Underway


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

    def on_cjoin(self, sender: MemberId, m: CJoin) -> None:
        if not self.admits:
            self.reject(sender, m.nonce)
            return
        ctx, (holder, before) = self.ctx, self.ctx.sitting()
        newcomer = ctx.grant(sender, m.wish)
        ctx.edge = Edge(newcomer, [])
        self.underway.newcomer = Newcomer(newcomer, ctx.now, before)
        update = ctx.next_nonce()
        R, rows = ctx.edge.offer(update, self.neighbours.R()), ctx.table.rows()
        mine, yours = holder.tenure, newcomer.tenure
        ctx.send(sender, AckCJoin(m.nonce, update, mine, yours, before.succ, R, before.held, rows))
        ctx.after(ctx.config.answer_ns, Timer.UPDATE)
        ctx.after(ctx.config.probation_ns + 2 * ctx.config.round_ns, Timer.NEWCOMER)

    def reject(self, to: MemberId, nonce: int) -> None:
        ctx = self.ctx
        owner = ctx.state in (State.OWNER, State.LEAVING)
        if not owner:
            reason = "not a coordinator"
        elif len(ctx.table.coordinators()) >= ctx.config.tickets:
            reason = "full"
        elif ctx.state is State.LEAVING or ctx.resigning:
            reason = "leaving"
        else:
            reason = "no free ticket here" if self.underway.settled else BUSY
        ctx.reject(to, nonce, reason, owner)

    def on_decline(self, sender: MemberId, m: Decline) -> None:
        newcomer = self.underway.newcomer
        if newcomer is None or newcomer.holder != Holder(sender, *m.tenure):
            return
        self.underway.cancel_attempt()
        self.ctx.edge, self.underway.newcomer = newcomer.before, None
        self.ctx.edge.waiting = None
        self.ctx.stop(Timer.UPDATE, Timer.NEWCOMER)
        self.ctx.table.end(newcomer.holder.ticket, newcomer.holder.inc + 1)

    def unconfirmed(self) -> None:
        """The newcomer answers, but nobody vouches for it, and it has not given up by itself."""
        if self.underway.newcomer and self.underway.attempt is None and self.ctx.state is State.OWNER:
            self.exclusion.begin()
            self.ctx.after(self.ctx.config.round_ns, Timer.NEWCOMER)

    # --- the newcomer's side ---

    def take_ticket(self, sender: MemberId, grant: AckCJoin) -> None:
        ctx, neighbours = self.ctx, self.neighbours
        ctx.sit(Holder(ctx.me, *grant.yours))
        ctx.state = State.PROBATION
        ctx.pred = Holder(sender, *grant.mine)
        ctx.table.owns(ctx.pred)
        ctx.edge = Edge(grant.succ, grant.inherited)
        neighbours.L, neighbours.L_nonce, neighbours.heard = grant.L, grant.update, grant.update
        neighbours.ack_update(grant.update)
        neighbours.poll(grant.L)
        ctx.timers[Timer.PROBATION] = self.applicant.asked_at + ctx.config.probation_ns

    def confirm_if_vouched(self) -> None:
        """The end of probation (rule 10)."""
        if self.ctx.state is State.PROBATION and self.neighbours.vouched_at(self.ctx.now):
            self.ctx.stop(Timer.PROBATION)
            self.ctx.own()
            self.neighbours.ack_update(self.neighbours.heard)
            self.neighbours.update()

    def declines(self, sender: MemberId, m: Update) -> bool:
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
