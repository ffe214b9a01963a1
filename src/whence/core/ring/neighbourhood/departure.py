"""The graceful leave of the fault-tolerant protocol, which the paper does not have (rule 19), built on Algorithm 1.

Rules 1, 2, 4, 5, 6 and 13.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from whence.core.clock import MemberId
from whence.core.ring.applicant import Applicant
from whence.core.ring.config import between
from whence.core.ring.context import Context, Timer
from whence.core.ring.edge import Edge, Holders
from whence.core.ring.interface import Announce, State
from whence.core.ring.messages import (
    AckCLeave,
    Cancel,
    CLeave,
    Decline,
    Holder,
    NackLeave,
    ReleasedNews,
    Tenure,
    Update,
)
from whence.core.ring.neighbourhood.admission import Admission
from whence.core.ring.neighbourhood.neighbours import Neighbours
from whence.core.ring.neighbourhood.underway import Underway

V = TypeVar("V")


class Ended(msgspec.Struct):
    """A tenure that was lost, or given up by the last one in the ring; it was not handed over yet."""

    succ: Holder
    before: Holder | None
    """The successor before the newcomer `succ`, if that one had not confirmed yet."""
    at: int
    """When it was lost."""
    pred: Holder | None
    nonce: int
    held: tuple[Holders, ...]
    courted: tuple[Holder, int] | None
    """Nobody gets it until this exclusion of the predecessor is decided (see `Exclusion.on_exclude`)."""
    seq: int
    whole: bool
    """What it coordinated was surely its own, so that it can be handed over."""


def _last(kept: dict[Holder, V], most: int, holder: Holder, value: V) -> dict[Holder, V]:
    """The last entries, with one more."""
    return {**dict(list(kept.items())[1 - most :]), holder: value}


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
        self.ended: dict[Holder, Ended] = {}
        self._asked_pred: Holder | None = None
        """To whom CLEAVE went under `leave_nonce`."""
        self._refused_by: Holder | None = None
        """Who refused the leave; try again when it is not the predecessor any more."""
        self._held_leave: CLeave | None = None
        """The successor's CLEAVE, held while leaving (rule 5)."""
        self._accepted: dict[Holder, int] = {}
        """Successors that were released here, and the nonce of their CLEAVE."""
        self._unheard: dict[Holder, int] = {}
        """Those of them that have not yet said that they are out, and how often they were told."""
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

    def _announce(self, holder: Holder, seq: int) -> None:
        """Said by the leaver, which knows that it is out."""
        self.ctx.say(Announce(ReleasedNews(holder, seq)))

    def leave_if_possible(self) -> None:
        ctx, underway = self.ctx, self.underway
        if underway.courted is not None and ctx.table.ended(underway.courted[0]):
            underway.courted = None
        if not (ctx.resigning and underway.settled and underway.courted is None):
            return
        holder, _ = ctx.sitting()
        if ctx.alone:
            self._announce(holder, ctx.seq)
            self.remember()
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
        m = CLeave(self.leave_nonce, mine, pred.tenure, edge.succ, heard, edge.held, ctx.table.rows())
        ctx.send(pred.member, m)

    def heard_predecessor(self) -> None:
        if self.ctx.state is State.LEAVING:
            self.ask()
        elif self.ctx.resigning:
            self.leave_if_possible()

    def on_ack_cleave(self, sender: MemberId, m: AckCLeave) -> None:
        ctx, lost = self.ctx, Holder(self.ctx.me, *m.yours)
        ended = self.ended.pop(lost, None)
        if ended is not None:
            self._announce(lost, ended.seq)
        if ctx.state is State.LEAVING and ctx.addressed(m.yours):
            self._announce(lost, ctx.seq)
            self.applicant.released()
        if m.yours in ctx.done and not ctx.addressed(m.yours):
            ctx.send(sender, Decline(m.nonce, m.yours))  # farewell: this tenure is over

    def on_nack_leave(self, sender: MemberId, m: NackLeave) -> None:
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

    def remember(self) -> None:
        """What there is to say of this tenure when the ring is dead (see `reunion.py`)."""
        ctx, newcomer, (holder, edge) = self.ctx, self.underway.newcomer, self.ctx.sitting()
        before = newcomer.before.succ if newcomer is not None else None
        whole = newcomer is None and not self.underway.waiting and not ctx.alone
        nonce, courted = self.leave_nonce or ctx.next_nonce(), self.underway.courted
        ended = Ended(edge.succ, before, ctx.now, ctx.pred, nonce, edge.held, courted, ctx.seq, whole)
        self.ended = _last(self.ended, self.MAX_ENDED, holder, ended)

    def on_cancel(self, sender: MemberId, m: Cancel) -> None:
        """The exclusion of the predecessor has failed: who has waited for that may leave."""

        def failed(courted: tuple[Holder, int] | None) -> bool:
            return courted is not None and courted[0] == Holder(sender, *m.mine) and courted[1] <= m.nonce

        for ended in self.ended.values():
            ended.courted = None if failed(ended.courted) else ended.courted
        if failed(self.underway.courted):
            self.underway.courted = None
            self.leave_if_possible()

    def hands_over(self, sender: MemberId, m: Update) -> bool:
        """Its predecessor still counts on a tenure that was lost: hand it over. Only to the predecessor that it had:
        were that one excluded meanwhile, it may first have excluded this tenure, and have granted its ticket to
        somebody else."""
        table, lost, p = self.ctx.table, Holder(self.ctx.me, *m.yours), Holder(sender, *m.mine)
        ended = self.ended.get(lost)
        if ended is None or not ended.whole:
            return False
        if p == ended.pred and not table.over(p) and lost.inc >= table.floor[lost.ticket]:
            if ended.courted is not None and table.ended(ended.courted[0]):
                ended.courted = None
            if ended.courted is None:
                leave = CLeave(ended.nonce, m.yours, m.mine, ended.succ, m.nonce, ended.held, table.rows())
                self.ctx.send(sender, leave)
        return True

    # --- its predecessor ---

    def on_cleave(self, sender: MemberId, m: CLeave) -> None:
        ctx, z, edge, underway = self.ctx, Holder(sender, *m.mine), self.ctx.edge, self.underway
        if z in self._accepted:
            ctx.send(sender, AckCLeave(m.nonce, m.mine))  # the first one was lost
            return
        if ctx.holder is None or edge is None or ctx.state is State.PROBATION or not ctx.addressed(m.yours):
            return
        if z != edge.succ or m.nonce <= edge.refused or edge.start is None or m.answers < edge.start:
            return
        wraps = z.ticket > ctx.holder.ticket
        if wraps if ctx.state is State.LEAVING else not underway.quiet:
            edge.refused = m.nonce
            ctx.send(sender, NackLeave(m.nonce, m.mine))
        elif ctx.state is State.LEAVING:
            self._held_leave = m
        else:
            self._take_over(z, m)

    def _take_over(self, z: Holder, m: CLeave) -> None:
        """The leaver's tickets and its edge are this process's now."""
        ctx, table, (holder, _) = self.ctx, self.ctx.table, self.ctx.sitting()
        ctx.send(z.member, AckCLeave(m.nonce, m.mine))
        self._accepted = _last(self._accepted, self.MAX_RELEASED, z, m.nonce)
        self._unheard = _last(self._unheard, self.MAX_RELEASED, z, 0)
        table.merge(m.rows)
        table.end(z.ticket, z.inc + 1)
        ctx.stop(Timer.UPDATE)
        self.underway.thaw()
        if m.succ == holder:  # they were two: nobody is left to vouch, and nobody to fear
            ctx.edge, ctx.pred, self.neighbours.L, self.neighbours.next_L = Edge.alone(holder), None, (), None
            self.leave_if_possible()
        else:
            between_us = between(holder.ticket, m.succ.ticket, ctx.config.tickets)
            takeover = (Tenure(t, max(table.floor[t], table.top[t] + 1)) for t in between_us if table.top[t])
            ctx.edge = Edge(m.succ, m.held, tuple(takeover))
            self.neighbours.update()

    def repeat_acks(self) -> None:
        """Tell the released again that they are, until they say so: then nobody need reckon with them any more."""
        for z, told in list(self._unheard.items()):
            self.ctx.send(z.member, AckCLeave(self._accepted.get(z, 0), z.tenure))
            self._unheard[z] = told + 1
            if told >= self.MAX_TOLD:
                del self._unheard[z]

    def on_farewell(self, sender: MemberId, m: Decline) -> None:
        z = Holder(sender, *m.tenure)
        if z in self._accepted:
            self._unheard.pop(z, None)
            self.ctx.table.out(z.ticket, z.inc + 1, self.ctx.now)
