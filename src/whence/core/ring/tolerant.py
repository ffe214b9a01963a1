"""The fault-tolerant ring: CCC11 Algorithms 2-4 with rules 7-20 of docs/ring.md, and the graceful leave of rules 2-6.

The parts, each in a file of its own. A part calls only those above it:

    context.py                   the tenure, timers, outputs              every protocol
    applicant.py                 applying for a ticket                    every protocol
    founding.py                  the first coordinator                    every protocol
    neighbourhood/underway.py    what is under way at the edge
    neighbourhood/neighbours.py  polls and the lease, UPDATE and L        (lease.py, edge.py)
    neighbourhood/exclusion.py   EXCLUDE, REQCOORD, TempRounds
    neighbourhood/admission.py   CJOIN, probation
    neighbourhood/departure.py   CLEAVE
    neighbourhood/reunion.py     RALLY: a dead ring is founded again

This file says which message and which timer goes to which part.
"""

from __future__ import annotations

import random

import whence.core.ring.messages as msg
from whence.core.clock import MemberId
from whence.core.ring.base import Ring
from whence.core.ring.config import RingConfig
from whence.core.ring.context import Timer
from whence.core.ring.interface import State
from whence.core.ring.neighbourhood.admission import Admission
from whence.core.ring.neighbourhood.departure import Departure
from whence.core.ring.neighbourhood.exclusion import Exclusion
from whence.core.ring.neighbourhood.neighbours import Neighbours
from whence.core.ring.neighbourhood.reunion import Reunion
from whence.core.ring.neighbourhood.underway import Underway


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
        self.reunion = Reunion(ctx, applicant, self.founding, self.departure)

    @property
    def admits(self) -> bool:
        return self.admission.admits

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

    def _lose(self, reason: str) -> None:
        if self.ctx.state is not State.PROBATION:
            self.departure.remember()
        super()._lose(reason)

    def _receive(self, sender: MemberId, m: msg.RingMessage) -> None:
        match m:
            case msg.Poll():
                self.neighbours.on_poll(sender, m)
            case msg.Alive():
                if self.neighbours.on_alive(sender, m):
                    self.admission.confirm_if_vouched()
            case msg.Update():
                if self.departure.hands_over(sender, m) or self.admission.declines(sender, m):
                    return
                if self.neighbours.on_update(sender, m):
                    self.departure.heard_predecessor()
            case msg.AckUpdate():
                if self.neighbours.on_ack_update(sender, m):
                    self.departure.leave_if_possible()
                    self.neighbours.pass_on()
            case msg.CJoin():
                self.admission.on_cjoin(sender, m)
            case msg.AckCJoin():
                self.founding.heard_owner(sender)
                if self.applicant.accepts(sender, m):
                    self.admission.take_ticket(sender, m)
            case msg.Reject():
                self.reunion.on_reject(m)
                if m.owner:
                    self.founding.heard_owner(sender)
                self.applicant.on_reject(sender, m)
            case msg.Decline():
                self.departure.on_farewell(sender, m)
                self.admission.on_decline(sender, m)
            case msg.Who():
                self.reunion.reserve()
                self.admission.reject(sender, m.nonce)
            case msg.Rally():
                self.reunion.on_rally(sender, m)
            case msg.Witness():
                self.reunion.on_witness(sender, m)
            case msg.Exclude():
                self.exclusion.on_exclude(sender, m)
            case msg.AckExclude():
                self.exclusion.on_ack_exclude(sender, m)
            case msg.ReqCoord():
                self.exclusion.on_req_coord(sender, m)
            case msg.AckCoord():
                self.exclusion.on_ack_coord(sender, m)
            case msg.NackCoord():
                self.exclusion.on_nack_coord(sender, m)
            case msg.Cancel():
                self.ctx.table.cancel(sender, m.nonce)
                self.departure.on_cancel(sender, m)
            case msg.CLeave():
                self.departure.on_cleave(sender, m)
            case msg.AckCLeave():
                self.departure.on_ack_cleave(sender, m)
            case msg.NackLeave():
                self.departure.on_nack_leave(sender, m)
            case _:
                pass  # another protocol's: here UPDATE says what NEWSUCC does

    def _timer(self, timer: Timer) -> None:
        match timer:
            case Timer.ROUND:
                self._round()
            case Timer.UPDATE:
                if self.neighbours.unanswered():
                    self.exclusion.begin()
            case Timer.EXCLUDE:
                self.exclusion.next_candidate()
            case Timer.ACKS:
                self.exclusion.failed("no quorum")
            case Timer.TEMP:
                self.exclusion.temp_over()
                if self.ctx.alone:
                    self.departure.leave_if_possible()
            case Timer.FROZEN:  # so that the predecessor, which has other lists, can exclude all of it
                self._lose("frozen too long")
            case Timer.NEWCOMER:
                self.admission.unconfirmed()
            case Timer.PROBATION:
                self.admission.abandon()
                self._lose("not confirmed")
            case Timer.LEAVE:
                self.departure.leave_if_possible()
            case Timer.PATIENCE:  # just stop; the predecessor will find out
                if self.ctx.resigning or self.ctx.state is State.LEAVING:
                    self._lose("could not leave in time")
            case Timer.QUARANTINE:
                self.founding.complete()
            case Timer.LOOK:
                self.founding.look()
            case Timer.APPLY:
                self.applicant.apply()
            case Timer.ANSWER:
                self.applicant.no_answer()
            case Timer.RALLY:
                self.reunion.rally()
            case Timer.GATHERED:
                self.reunion.gathered()
            case _:
                raise AssertionError(timer)

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
