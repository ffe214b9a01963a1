"""The ring whose owners are vouched for by a council (docs/ring.md, rules C0 to C12).

The parts, each in a file of its own. A part calls only those above it:

    known.py    which council is the newest; talking to its voters
    voting.py   the voter: vouches, tables, claims
    reform.py   the next council
    lease.py    the owner's lease
    seat.py     the owner: polls, the edge to the successor, newcomers, leaving
    reading.py  reading a quorum's tables: mending, founding again

This file says which message and which timer goes to which part.
"""

from __future__ import annotations

import random

import whence.core.ring.messages as msg
from whence.core.clock import MemberId
from whence.core.ring.base import Ring
from whence.core.ring.config import RingConfig
from whence.core.ring.context import Timer
from whence.core.ring.council.known import Councils, votes
from whence.core.ring.council.reading import Reading
from whence.core.ring.council.reform import Reform
from whence.core.ring.council.seat import Seat
from whence.core.ring.council.voting import Voting
from whence.core.ring.interface import Memory, Rejected, RingOutput, State


class CouncilRing(Ring):
    """One process's part in a ring with a council: perhaps a voter, perhaps an owner, perhaps neither."""

    def __init__(
        self,
        me: MemberId,
        config: RingConfig,
        rng: random.Random,
        memory: Memory | None = None,
        disk: bool = False,
        votes: bool = True,
    ) -> None:
        super().__init__(me, config, rng, answer_ns=config.answer_ns * 3 // 2)
        ctx, applicant = self.ctx, self.applicant
        ctx.lasting = (Timer.COUNCIL, Timer.PREPARED, Timer.PROPOSAL)
        self.councils = Councils(ctx, me if memory is None else memory.voter, disk)
        self.voting = Voting(ctx, self.councils)
        self.reform = Reform(ctx, self.councils, self.voting)
        self.reform.willing = self.votes = votes
        self.seat = Seat(ctx, self.councils, applicant, self.founding)
        self.reading = Reading(ctx, self.councils, applicant, self.seat)
        self.forced = False
        """The founding under way is an operator's decision (rule C0)."""
        self._memory = memory
        self._owner_answered = False
        applicant.when_waiting.append(self._waiting)
        applicant.epoch_ends = False

    # --- what others ask ---

    @property
    def admits(self) -> bool:
        return self.seat.admits and self.reading.question is None

    def owns_at(self, now: int) -> bool:
        return self.ctx.state is State.OWNER and now < self.seat.lease.end()

    def steady_at(self, now: int) -> bool:
        return self.owns_at(now) and self.seat.newcomer is None and self.reading.question is None

    def _lease_end(self) -> int | None:
        return self.seat.lease.end() if self.ctx.state is State.OWNER else None

    def memory(self) -> Memory:
        if self._memory is not None:  # it has not started yet
            return self._memory
        book = self.voting.book
        return Memory(self.councils.me.member, self.councils.now, None if book is None else book.saved())

    def silent(self, now: int) -> dict[MemberId, int]:
        """Voters that have not spoken for longer than a living one would, and for how long (ns). Only an owner, a voter
        and a member that asks for a ticket hear voters in every round; others know of none."""
        if self.ctx.state is State.OUT and not self.councils.seated:
            return {}
        limit = int(self.reform.SUSPECT * self.ctx.config.round_ns)
        others = [voter for voter in self.councils.members() if voter != self.councils.me.member]
        return {v: now - at for v in others if now - (at := self.councils.spoke.get(v, now)) >= limit}

    # --- begin and end ---

    def start(self, now: int) -> list[RingOutput]:
        return self._step(now, self._start)

    def _start(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            if memory.vote is not None:
                self.voting.resume(memory.vote)
            self.councils.learn(memory.known)
        self.ctx.after(int(self.ctx.rng.random() * self.ctx.config.round_ns / 10), Timer.COUNCIL)

    def retire(self, now: int) -> list[RingOutput]:
        return self._step(now, self._retire)

    def _retire(self) -> None:
        self.reform.leaving = True
        self.reform.urge = max(self.reform.urge, len(self.councils.now.voters))
        if self.councils.seated:
            self.reform.attend()

    @property
    def retired(self) -> bool:
        alone = self.councils.members() == [self.councils.me.member] and not self.applicant.members
        return super().retired and (alone or not self.councils.seated)

    def _found(self, epoch: int, force: bool) -> None:
        """Rule C0: a council is made by a decision, when nobody remembers one."""
        if self.councils.now.number and not force:
            self.ctx.say(Rejected("there is a council already: asking it for a ticket"))
            self.applicant.coordinate()
            return
        self.forced = force
        super()._found(epoch, force)

    def _quarantine_over(self) -> None:
        councils, founding = self.councils, self.founding
        if not self.seat_all_allowed():
            founding.give_up("a council is known")
            return
        generation = (councils.now.number >> msg.GENERATION) + 1 if councils.now.number else 0
        council = msg.Council(generation << msg.GENERATION | 1, (councils.me,), ())
        era = founding.epoch << msg.ERA_SHIFT
        self.voting.begin(council, msg.Ledger(era, (), ()))
        councils.learn(council)
        self.reading.era = max(self.reading.era, era)
        self.seat.found(founding.epoch)

    def seat_all_allowed(self) -> bool:
        return self.forced or not self.councils.now.number

    def _resign(self) -> None:
        super()._resign()
        if self.ctx.state is State.OUT:  # its timers are stopped: a question would stay open, and bar the next request
            self.reading.forget()

    def _leave(self) -> None:
        self.seat.leave()

    # --- messages ---

    def _receive(self, sender: MemberId, m: msg.RingMessage) -> None:
        if sender != self.ctx.me:
            msg.check_voter(sender, m)
        if isinstance(m, msg.CouncilMessage):
            era = m.era if isinstance(m, msg.Claim) else m.table.era if isinstance(m, msg.Seats | msg.Begin) else 0
            self.ctx.table.anchor = max(self.ctx.table.anchor, era)  # claims that failed have raised it, too
            self.councils.heard(sender)
            self._in_council(sender, m)
            return
        match m:
            case msg.CJoin():
                if self.admits:
                    self.seat.admit(sender, m)
                else:
                    self.seat.reject(sender, m.nonce, self.reading.question is not None)
            case msg.AckCJoin():
                self.founding.heard_owner(sender)
                if self.applicant.accepts(sender, m):
                    self.seat.take_ticket(sender, m)
            case msg.Reject():
                if m.owner:
                    self.founding.heard_owner(sender)
                self._owner_answered = m.owner
                self.applicant.on_reject(sender, m)
                self._owner_answered = False
            case msg.Who():
                if self.councils.now.number and self.votes:
                    self.ctx.send(sender, msg.Known(self.councils.now))
                self.seat.reject(sender, m.nonce, self.reading.question is not None)
            case msg.NewSucc():
                self.seat.on_new_succ(sender, m)
            case msg.AckSucc():
                self.seat.on_ack_succ(sender, m)
            case msg.Decline():
                if self.seat.on_decline(sender, m):
                    self.reading.read("mend")
            case _:
                pass  # the neighbourhood protocol's

    def _in_council(self, sender: MemberId, m: msg.CouncilMessage) -> None:
        if not self.votes and not isinstance(m, msg.Known | msg.Begin):
            return  # others would cut it off for voting (rule C10)
        match m:
            case msg.Sit():
                self.voting.on_sit(sender, m)
            case msg.Vouch():
                self.seat.on_vouch(m)
            case msg.Read():
                self.voting.on_read(sender, m)
            case msg.Seats():
                self.reading.on_seats(m)
            case msg.Claim():
                self.voting.on_claim(sender, m)
            case msg.Agree():
                self.reading.on_agree(m)
            case msg.Vacate():
                self.voting.on_vacate(sender, m)
            case msg.Known():
                self.councils.told(sender, m.now)
                self._council_heard()
            case msg.Attend():
                self.reform.on_attend(sender, m)
            case msg.Volunteer():
                self.reform.on_volunteer(sender, m)
            case msg.Missing():
                self.reform.on_missing(sender, m)
            case msg.Prepare() | msg.Higher() | msg.Accept():
                if self._by_a_voter(sender):
                    self._on_ballot(sender, m)
            case msg.Promise():
                self.reform.on_promise(m)
            case msg.Accepted():
                self.reform.on_accepted(m)
            case msg.Begin():
                self.reform.on_begin(sender, m)
                self._council_heard()

    def _by_a_voter(self, sender: MemberId) -> bool:
        """Only voters lead the choice of the next council."""
        book = self.voting.book
        return sender == self.ctx.me or (book is not None and votes(sender, book.council.voters))

    def _on_ballot(self, sender: MemberId, m: msg.Prepare | msg.Higher | msg.Accept) -> None:
        match m:
            case msg.Prepare():
                self.reform.on_prepare(sender, m)
            case msg.Higher():
                self.reform.on_higher(m)
            case msg.Accept():
                self.reform.on_accept(sender, m)

    def _council_heard(self) -> None:
        if self.ctx.state is State.FOUNDING and not self.seat_all_allowed():
            self.founding.give_up("a council is known")

    def _hear(self, news: msg.RingNews) -> None:
        ctx = self.ctx
        super()._hear(news)
        gone = news.holder if isinstance(news, msg.ReleasedNews) else None
        if self.seat.settled and ctx.edge is not None and ctx.edge.succ == gone:
            self.reading.read("mend")

    # --- timers ---

    def _timer(self, timer: Timer) -> None:
        ctx = self.ctx
        match timer:
            case Timer.COUNCIL:
                self._council_round()
            case Timer.ROUND:
                ctx.after(ctx.config.round_ns, Timer.ROUND)
                self.seat.poll()
                if self.seat.settled and self.reading.question is None:
                    self.seat.ping()
            case Timer.POLL:
                self.seat.poll_again()
            case Timer.UPDATE:
                if self.seat.settled:
                    self.reading.read("mend")
            case Timer.NEWCOMER:
                if ctx.state is State.OWNER and self.seat.newcomer is not None:
                    self.reading.read("mend")
                    ctx.after(ctx.config.round_ns // 2, Timer.NEWCOMER)
            case Timer.PROBATION:
                self._lose("not confirmed")
            case Timer.READ:
                self.reading.forget()
            case Timer.PREPARED:
                self.reform.prepared()
            case Timer.PROPOSAL:
                self.reform.give_up()
            case Timer.QUARANTINE:
                self._quarantine_over()
            case Timer.LOOK:
                self.founding.look()
            case Timer.APPLY:
                if self.reading.question is None:
                    self.applicant.apply()
                else:
                    ctx.after(ctx.config.round_ns // 4, Timer.APPLY)
            case Timer.ANSWER:
                self.applicant.no_answer()
            case _:
                raise AssertionError(timer)

    def _council_round(self) -> None:
        """Gossip the newest council, and show that this process is there."""
        ctx, councils = self.ctx, self.councils
        ctx.after(ctx.config.round_ns, Timer.COUNCIL)
        if not councils.now.number:
            self._look_for_council()
        elif self.applicant.members and self.votes:
            ctx.send(ctx.rng.choice(self.applicant.members), msg.Known(councils.now))
        councils.consider_hint()
        self.reform.attend()

    def _look_for_council(self) -> None:
        for member in self.applicant.everybody():
            self.ctx.send(member, msg.Who(self.ctx.next_nonce()))

    def _waiting(self) -> None:
        """No ticket yet. Unless a coordinator has just answered, ask the council who is one (rule C6)."""
        if not self._owner_answered:
            self.reading.read("found")

    # --- a step ---

    def _fence(self) -> None:
        """Deliver what this process has told its own vote. Then out if this tenure is known to be over; a higher epoch
        alone says nothing, since a claim may have failed (rule C4)."""
        councils = self.councils
        while councils.inbox:
            inbox, councils.inbox = councils.inbox, []
            for message in inbox:
                self._receive(self.ctx.me, message)
        if self.ctx.holder is not None and self.ctx.table.ended(self.ctx.holder):
            self._lose("excluded")
