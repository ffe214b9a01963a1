"""The fault-free ring: CCC11 Algorithm 1 with rules 1-6 of docs/ring.md. Processes do not fail and streams lose
nothing; delays are arbitrary, so there are no time-outs.

A newcomer is an owner from ACKSUCC on (`PROBATION` before), as the paper's prose has it ("can then perform as a
coordinator").
"""

from __future__ import annotations

import random

import whence.core.ring.messages as msg
from whence.core.clock import MemberId
from whence.core.ring.base import Applicant, Ring
from whence.core.ring.config import RingConfig
from whence.core.ring.context import BUSY, Announce, Context, Edge, Rejected, State, Timer

COORDINATOR = (State.PROBATION, State.OWNER)


class BasicRing(Ring):
    """One process's part in a ring without failures: which message and which timer goes where."""

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng, answer_ns=None)
        self.edges = Edges(self.ctx, self.applicant)

    def owns_at(self, now: int) -> bool:
        return self.ctx.state is State.OWNER

    def steady_at(self, now: int) -> bool:
        return self.ctx.state is State.OWNER

    def _found(self, epoch: int, force: bool) -> None:
        if self.applicant.asked is not None:
            self.ctx.say(Rejected("a request for a ticket is under way"))
        else:
            super()._found(epoch, force)

    def _resign(self) -> None:
        if self.applicant.asked is None:
            super()._resign()
        else:
            self.ctx.wanted, self.ctx.resigning = False, True  # what is granted now is given back at once

    def _leave(self) -> None:
        self.edges.leave_if_possible()

    def _receive(self, sender: MemberId, m: msg.RingMessage) -> None:
        match m:
            case msg.AckCJoin():
                self.founding.heard_owner(sender)
                if self.applicant.takes(sender, m):
                    self.edges.seated(m)
            case msg.Reject():
                self.founding.on_reject(sender, m)
            case msg.CJoin():
                self.edges.on_cjoin(sender, m)
                self.edges.early = []
            case msg.Who():
                self.edges.reject(sender, m.nonce, "not asked for a ticket")
            case msg.NewSucc():
                self.edges.on_new_succ(sender, m)
            case msg.AckSucc():
                self.edges.on_ack_succ(sender, m)
            case msg.CLeave():
                self.edges.on_cleave(sender, m)
            case msg.AckCLeave():
                self.edges.on_ack_cleave(m)
            case msg.NackLeave():
                self.edges.on_nack_leave(m)
            case _:
                pass

    def _timer(self, timer: Timer) -> None:
        match timer:
            case Timer.QUARANTINE:
                self.founding.quarantine_over()
            case Timer.LOOK:
                self.founding.look()
            case Timer.APPLY:
                self.applicant.apply()
            case _:
                raise AssertionError(timer)


class Edges:
    """Algorithm 1: the edges to the successor and to the predecessor, and how they change."""

    MAX_DEFERRED = 64  # CJOINs deferred at a time (more are rejected), NEWSUCCs queued by a joiner

    def __init__(self, ctx: Context, applicant: Applicant) -> None:
        self.ctx = ctx
        self.applicant = applicant
        self.deferred: list[tuple[MemberId, msg.CJoin]] = []
        self.early: list[tuple[MemberId, msg.NewSucc]] = []
        """NEWSUCCs that have overtaken the ACKCJOIN (rule 3)."""
        self.held_leave: tuple[MemberId, msg.CLeave] | None = None
        self.leave_nonce = 0
        self.refused = False
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        deferred, self.deferred = self.deferred, []
        for sender, request in deferred:
            self.reject(sender, request.nonce, "leaving")
        self.early, self.held_leave, self.leave_nonce, self.refused = [], None, 0, False

    # --- joining ---

    @property
    def admits(self) -> bool:
        ctx = self.ctx
        ready = ctx.state is State.OWNER and ctx.edge is not None and ctx.edge.acked and not ctx.resigning
        return ready and bool(ctx.free())

    def on_cjoin(self, sender: MemberId, m: msg.CJoin) -> None:
        ctx = self.ctx
        if ctx.state not in COORDINATOR or ctx.resigning:
            self.reject(sender, m.nonce, "leaving" if ctx.holder is not None else "not a coordinator")
        elif ctx.edge is not None and not ctx.edge.acked:  # rule 1
            if len(self.deferred) < self.MAX_DEFERRED:
                self.deferred.append((sender, m))
            else:
                self.reject(sender, m.nonce, BUSY)
        elif not self.admits:
            full = len(ctx.table.coordinators()) >= ctx.config.tickets
            self.reject(sender, m.nonce, "full" if full else "no free ticket here")
        else:
            self._grant(sender, m)

    def _grant(self, sender: MemberId, m: msg.CJoin) -> None:
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        newcomer = ctx.grant(sender, m.wish)
        ctx.edge = Edge(newcomer, [])
        ctx.edge.acked = True
        mine, yours = holder.tenure, newcomer.tenure
        ctx.send(sender, msg.AckCJoin(m.nonce, 0, mine, yours, edge.succ, (), (), ctx.table.rows()))

    def reject(self, to: MemberId, nonce: int, reason: str) -> None:
        self.ctx.reject(to, nonce, reason, self.ctx.state in COORDINATOR)

    def seated(self, grant: msg.AckCJoin) -> None:
        early, self.early = self.early, []
        self.new_edge(grant.succ)
        for pred, m in early:
            self.on_new_succ(pred, m)

    # --- the edge between neighbours ---

    def new_edge(self, succ: msg.Holder) -> None:
        holder, _ = self.ctx.sitting()
        self.ctx.edge = Edge(succ, [])
        self.ctx.send(succ.member, msg.NewSucc(holder.tenure, succ.tenure))

    def on_new_succ(self, sender: MemberId, m: msg.NewSucc) -> None:
        ctx = self.ctx
        if ctx.state is State.JOINING:
            if len(self.early) < self.MAX_DEFERRED:
                self.early.append((sender, m))
            return
        if not ctx.addressed(m.yours):
            return
        ctx.pred = msg.Holder(sender, *m.mine)
        if ctx.state is State.LEAVING:
            self._ask_to_leave()
            return
        ctx.send(sender, msg.AckSucc(m.yours, m.mine))
        if self.refused:
            self.refused = False
            self.leave_if_possible()

    def on_ack_succ(self, sender: MemberId, m: msg.AckSucc) -> None:
        ctx, z = self.ctx, msg.Holder(sender, *m.mine)
        if ctx.state in COORDINATOR and ctx.edge is not None and ctx.addressed(m.yours) and ctx.edge.succ == z:
            self.performing()

    def performing(self) -> None:
        """The edge is settled: serve what was deferred, then the own leave."""
        _, edge = self.ctx.sitting()
        edge.acked = True
        if self.ctx.state is State.PROBATION:
            self.ctx.own()
        deferred, self.deferred = self.deferred, []
        for sender, request in deferred:
            self.on_cjoin(sender, request)
        self.leave_if_possible()

    # --- leaving ---

    def leave_if_possible(self) -> None:
        ctx = self.ctx
        if not ctx.resigning or ctx.state is not State.OWNER or ctx.edge is None or not ctx.edge.acked:
            return
        if ctx.alone:
            ctx.say(Announce(msg.ReleasedNews(ctx.sitting()[0], ctx.seq)))
            self.applicant.released()
        elif not self.refused:
            ctx.state = State.LEAVING
            self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        """CLEAVE to the predecessor of now; only the answer to the last one counts. A coordinator that was alone and
        has admitted a newcomer has no predecessor until that one's NEWSUCC, and asks it then."""
        ctx, pred, (holder, edge) = self.ctx, self.ctx.pred, self.ctx.sitting()
        if pred is not None:
            self.leave_nonce = ctx.next_nonce()
            mine, rows = holder.tenure, ctx.table.rows()
            ctx.send(pred.member, msg.CLeave(self.leave_nonce, mine, pred.tenure, edge.succ, 0, (), rows))

    def on_cleave(self, sender: MemberId, m: msg.CLeave) -> None:
        ctx, z = self.ctx, msg.Holder(sender, *m.mine)
        if ctx.holder is None or ctx.edge is None or not ctx.addressed(m.yours) or z != ctx.edge.succ:
            return
        if ctx.state is not State.LEAVING:
            self._take_over(z, m)
        elif z.ticket > ctx.holder.ticket:  # the wrap edge (rule 5)
            ctx.send(sender, msg.NackLeave(m.nonce, m.mine))
        else:
            self.held_leave = (sender, m)

    def _take_over(self, z: msg.Holder, m: msg.CLeave) -> None:
        ctx, (holder, _) = self.ctx, self.ctx.sitting()
        ctx.send(z.member, msg.AckCLeave(m.nonce, m.mine))
        ctx.table.merge(m.rows)
        ctx.table.end(z.ticket, z.inc + 1)
        inc, seq = ctx.table.last[z.ticket]
        ctx.say(Announce(msg.ReleasedNews(z, seq if inc == z.inc else 0)))
        if m.succ == holder:
            ctx.edge, ctx.pred = Edge.alone(holder), None
            self.performing()
        else:
            self.new_edge(m.succ)

    def on_ack_cleave(self, m: msg.AckCLeave) -> None:
        if self.ctx.state is State.LEAVING and self.ctx.addressed(m.yours):
            self.applicant.released()

    def on_nack_leave(self, m: msg.NackLeave) -> None:
        ctx = self.ctx
        if ctx.state is not State.LEAVING or not ctx.addressed(m.yours) or m.nonce != self.leave_nonce:
            return
        ctx.state = State.OWNER
        self.refused = True
        held, self.held_leave = self.held_leave, None
        if held is not None:
            self.on_cleave(*held)
