"""The seat of an owner: its lease, the edge to its successor, newcomers, leaving. Rules C2, C5 and C12; 7, 10 and 14.

The edge is a successor and a ping: NEWSUCC, answered by ACKSUCC, or by DECLINE by one who does not have that tenure. A
newcomer confirms with its first ACKSUCC.
"""

from __future__ import annotations

from whence.core.clock import MemberId
from whence.core.ring.applicant import BUSY, Applicant
from whence.core.ring.context import Context, Timer
from whence.core.ring.council.known import Councils
from whence.core.ring.council.lease import Lease
from whence.core.ring.edge import Edge
from whence.core.ring.founding import Founding
from whence.core.ring.interface import Announce, State
from whence.core.ring.messages import (
    AckCJoin,
    AckSucc,
    CJoin,
    Decline,
    Holder,
    Known,
    NewSucc,
    ReleasedNews,
    Sit,
    Vacate,
    Vouch,
)


class Seat:
    """The owner's side."""

    POLL = 0.35
    """Rounds until a poll is repeated while less than `SHORT` rounds of the lease are left (rule C2)."""
    SHORT = 0.7

    def __init__(self, ctx: Context, councils: Councils, applicant: Applicant, founding: Founding) -> None:
        self.ctx = ctx
        self.councils = councils
        self.applicant = applicant
        self.founding = founding
        self.lease = Lease(ctx.config.lease_ns, councils)
        self.newcomer: tuple[Holder, Holder] | None = None
        """Who was admitted and has not confirmed yet, and the successor before it."""
        self.least: dict[int, int] = {}
        """Ticket -> the lowest incarnation that may be granted, as voters say."""
        councils.when_new.append(self._council_changed)
        ctx.when_seated.append(self._clear)
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        self.lease.clear()
        self.newcomer = None

    def _council_changed(self) -> None:
        if self.ctx.holder is not None:
            self.poll()

    @property
    def _any_lease(self) -> int:
        return self.ctx.config.on_any_clock(self.ctx.config.lease_ns)

    # --- taking a seat ---

    def found(self, epoch: int) -> None:
        """All tickets are this process's, once it is vouched for."""
        if self.founding.take_all(epoch):
            self._probation()

    def take_ticket(self, sender: MemberId, grant: AckCJoin) -> None:
        ctx = self.ctx
        ctx.sit(Holder(ctx.me, *grant.yours))
        ctx.pred = Holder(sender, *grant.mine)
        ctx.table.owns(ctx.pred)
        ctx.edge = Edge(grant.succ, [])
        self._probation()

    def _probation(self) -> None:
        self.ctx.state = State.PROBATION
        self.ctx.after(self._any_lease * 3 // 2, Timer.PROBATION)
        self.ctx.after(self.ctx.config.round_ns, Timer.ROUND)
        self.poll()

    # --- the lease (rule C2) ---

    def poll(self) -> None:
        ctx = self.ctx
        holder, _ = ctx.sitting()
        nonce = ctx.next_nonce()
        self.lease.polled(nonce, ctx.now)
        self.councils.tell_all(Sit(self.councils.now.number, nonce, holder.tenure, ctx.seq))
        ctx.after(int(self.POLL * ctx.config.round_ns), Timer.POLL)

    def poll_again(self) -> None:
        """A council that is being renewed does not answer for a moment: ask again before the next round."""
        ctx = self.ctx
        if ctx.holder is None:
            return
        short = self.lease.end() - ctx.now < int(self.SHORT * ctx.config.round_ns)
        if ctx.state is State.PROBATION or short:
            self.poll()

    def on_vouch(self, m: Vouch) -> None:
        ctx = self.ctx
        if ctx.holder is None:
            return
        self.lease.vouched(m.council, m.voter, m.nonce, ctx.now)
        if ctx.state is State.PROBATION and ctx.now < self.lease.end():
            ctx.stop(Timer.PROBATION)
            ctx.own()
            if ctx.pred is not None:
                ctx.send(ctx.pred.member, AckSucc(ctx.holder.tenure, ctx.pred.tenure))
            self.ping()

    # --- the edge to the successor ---

    def new_edge(self, succ: Holder) -> None:
        holder, _ = self.ctx.sitting()
        self.newcomer = None
        self.ctx.stop(Timer.NEWCOMER, Timer.UPDATE)
        self.ctx.edge = Edge.alone(holder) if succ == holder else Edge(succ, [])
        self.ping()

    def ping(self) -> None:
        """Is the successor still there? If no answer comes, mend (rule C5)."""
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        if not ctx.alone and self.newcomer is None:
            ctx.send(edge.succ.member, NewSucc(holder.tenure, edge.succ.tenure))
            ctx.after(ctx.config.answer_ns, Timer.UPDATE)

    def on_new_succ(self, sender: MemberId, m: NewSucc) -> None:
        ctx = self.ctx
        if ctx.addressed(m.yours):
            ctx.pred = Holder(sender, *m.mine)
            ctx.send(sender, AckSucc(m.yours, m.mine))
        else:
            ctx.finish(m.yours)
            ctx.send(sender, Decline(0, m.yours))

    def on_ack_succ(self, sender: MemberId, m: AckSucc) -> None:
        ctx = self.ctx
        if ctx.edge is None or not ctx.addressed(m.yours) or ctx.edge.succ != Holder(sender, *m.mine):
            return
        ctx.stop(Timer.UPDATE)
        if self.newcomer is not None:  # confirmed
            self.newcomer = None
            ctx.stop(Timer.NEWCOMER)
            ctx.table.owns(ctx.edge.succ)

    def on_decline(self, sender: MemberId, m: Decline) -> bool:
        """Whether the edge has to be mended: the successor does not have that tenure any more."""
        ctx, declined = self.ctx, Holder(sender, *m.tenure)
        if ctx.state is not State.OWNER or ctx.edge is None or ctx.edge.succ != declined:
            return False
        if self.newcomer is not None:  # it will never take what was granted: the edge is as before
            ctx.table.end(declined.ticket, declined.inc + 1)
            self.new_edge(self.newcomer[1])
            return False
        ctx.stop(Timer.UPDATE)
        return True

    # --- newcomers ---

    @property
    def settled(self) -> bool:
        return self.ctx.state is State.OWNER and self.newcomer is None

    @property
    def admits(self) -> bool:
        return self.settled and not self.ctx.resigning and bool(self.ctx.free())

    def admit(self, sender: MemberId, m: CJoin) -> None:
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        newcomer, before = ctx.grant(sender, m.wish, self.least), edge.succ
        ctx.edge, self.newcomer = Edge(newcomer, []), (newcomer, before)
        ctx.stop(Timer.UPDATE)
        ctx.send(sender, Known(self.councils.now))
        mine, yours = holder.tenure, newcomer.tenure
        ctx.send(sender, AckCJoin(m.nonce, 0, mine, yours, before, (), (), ctx.table.rows()))
        ctx.after(self._any_lease * 17 // 10, Timer.NEWCOMER)

    def reject(self, to: MemberId, nonce: int, busy: bool) -> None:
        ctx = self.ctx
        owner = ctx.state is State.OWNER
        if not owner:
            reason = "not a coordinator"
        elif len(ctx.table.coordinators()) >= ctx.config.tickets:
            reason = "full"
        else:
            reason = BUSY if busy or not self.settled else "no free ticket here"
        ctx.reject(to, nonce, reason, owner)

    # --- leaving (rule C12) ---

    def leave(self) -> None:
        """Out first; then the voters hear of it and need not wait for the vouch to run out."""
        ctx = self.ctx
        holder, _ = ctx.sitting()
        owned, seq = ctx.state is State.OWNER, ctx.seq
        self.applicant.released()
        self.councils.tell_all(Vacate(holder.tenure, seq))
        if owned:
            ctx.say(Announce(ReleasedNews(holder, seq)))
