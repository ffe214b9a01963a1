"""Reading the tables of a quorum and claiming what is nobody's: mending the ring, founding it again. Rules C4 to C6."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whence.core.clock import MemberId
from whence.core.ring.applicant import Applicant
from whence.core.ring.config import between, distance
from whence.core.ring.context import Context, Timer
from whence.core.ring.council.known import Councils
from whence.core.ring.council.seat import Seat
from whence.core.ring.council.voting import merged
from whence.core.ring.founding import agreed_epoch
from whence.core.ring.interface import Announce, Excluded, State
from whence.core.ring.messages import ERA_SHIFT, Agree, Claim, GoneNews, Holder, Ledger, Read, Seats, term_of
from whence.core.ring.table import floor_of

Purpose = Literal["mend", "found"]


@dataclass
class Question:
    """What a quorum is asked: first for its tables, then to agree to a claim."""

    nonce: int
    council: int
    purpose: Purpose
    tables: dict[MemberId, Ledger] = field(default_factory=dict)
    era: int = 0
    """Under which the claim is made; 0: still reading."""
    tickets: tuple[int, ...] = ()
    succ: Holder | None = None
    agreed: dict[MemberId, None] = field(default_factory=dict)


class Reading:
    """One question at a time."""

    def __init__(self, ctx: Context, councils: Councils, applicant: Applicant, seat: Seat) -> None:
        self.ctx = ctx
        self.councils = councils
        self.applicant = applicant
        self.seat = seat
        self.question: Question | None = None
        self.era = 0
        """The highest era heard of."""
        self.claimed = 0
        """The highest era claimed by this process."""
        councils.when_new.append(self.forget)
        ctx.when_seated.append(self.forget)
        ctx.when_vacated.append(self.forget)

    def forget(self) -> None:
        self.question = None
        self.ctx.stop(Timer.READ)

    def read(self, purpose: Purpose) -> None:
        if self.question is None and self.councils.now.number:
            self.question = Question(self.ctx.next_nonce(), self.councils.now.number, purpose)
            self.councils.tell_all(Read(self.question.council, self.question.nonce))
            self.ctx.after(2 * self.ctx.config.answer_ns, Timer.READ)

    def on_seats(self, m: Seats) -> None:
        q = self.question
        if q is None or (q.nonce, q.council) != (m.nonce, m.council) or q.era:
            return
        q.tables[m.voter] = m.table
        if not self.councils.quorum(q.council, q.tables):
            return
        known = merged(q.tables.values())
        before, self.era = self.era, max(self.era, known.era, self.ctx.table.era)
        for row in known.rows:
            least = self.seat.least
            least[row.ticket] = max(least.get(row.ticket, 0), row.floor, row.top + 1)
            self.ctx.table.last[row.ticket] = max(self.ctx.table.last[row.ticket], row.last)
        if q.purpose == "mend":
            self._mend(q, known.seats)
        else:
            self._found(q, known.seats, before)

    # --- mending (rule C5) ---

    def _mend(self, q: Question, seats: tuple[Holder, ...]) -> None:
        """The nearest ticket for which anybody vouches is the successor's; what lies between is nobody's."""
        ctx = self.ctx
        if ctx.state is not State.OWNER:
            self.forget()
            return
        holder, edge = ctx.sitting()
        n = ctx.config.tickets
        others = [s for s in seats if s.ticket != holder.ticket]
        succ = min(others, key=lambda s: (distance(holder.ticket, s.ticket, n), -s.inc), default=holder)
        if others and succ.ticket == edge.succ.ticket:
            self.forget()
            self.seat.new_edge(succ)
            return
        q.succ = succ
        self._claim(q, tuple(between(holder.ticket, succ.ticket, n)), self.era + 1)

    # --- founding again (rule C6) ---

    def _found(self, q: Question, seats: tuple[Holder, ...], before: int) -> None:
        ctx = self.ctx
        if ctx.state is not State.JOINING or self.applicant.asked is not None:
            self.forget()
        elif seats and not self.over_the_living:
            self.forget()
            self._coordinators(seats)
            ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(0.02, 0.3)), Timer.APPLY)
        elif before and self.era > max(before, self.claimed):
            self.forget()  # somebody else is founding: give it a round
            ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(0.5, 1.5)), Timer.APPLY)
        else:
            self._claim(q, tuple(range(ctx.config.tickets)), agreed_epoch(self.era >> ERA_SHIFT) << ERA_SHIFT)

    over_the_living = False

    def _coordinators(self, seats: tuple[Holder, ...]) -> None:
        """A quorum knows who the coordinators are: forget all others, and whom was asked in vain."""
        for ticket in range(self.ctx.config.tickets):
            self.ctx.table.owner[ticket] = ""
        self.applicant.tried, self.applicant.hints = [], {}
        self.applicant.learn({s.ticket: s.member for s in seats if s.member != self.ctx.me})

    # --- claiming (rule C4) ---

    def _claim(self, q: Question, tickets: tuple[int, ...], era: int) -> None:
        q.era, q.tickets = era, tickets
        self.era = self.claimed = max(self.era, era)
        self.councils.tell_all(Claim(q.council, q.nonce, era, tickets))

    def on_agree(self, m: Agree) -> None:
        q, ctx = self.question, self.ctx
        if q is None or (q.nonce, q.council) != (m.nonce, m.council) or not q.era:
            return
        q.agreed[m.voter] = None
        if not self.councils.quorum(q.council, q.agreed):
            return
        self.forget()
        for ticket in q.tickets:
            self.seat.least[ticket] = floor_of(q.era)
        if q.purpose == "found":
            if ctx.state is State.JOINING:
                self.seat.found(q.era >> ERA_SHIFT)
        elif ctx.state is State.OWNER and q.succ is not None:
            for ticket in q.tickets:
                ctx.table.end(ticket, floor_of(q.era))
            self.seat.new_edge(q.succ)
            ctx.say(Excluded(q.tickets, term_of(q.era), tuple(q.agreed)))
            if q.tickets:
                ctx.say(Announce(GoneNews(q.tickets, floor_of(q.era), ctx.me)))
