"""The council: a few voters, which renew themselves, vouch for the owners of tickets (docs/ring.md, rules C0 to C12).

The parts; a part calls only those above it. `CouncilRing`, at the end, composes them, and says which message and timer
goes where.

    Councils      which council is the newest; talking to its voters (C1, C8)
    CouncilLease  the owner's lease: a quorum of one council vouches (C2)
    Voting        the voter: for whom it vouches, to whose claims it agrees, when it is silent (C3, C4, C7, C8, C9)
    Seat          the owner: polls, the edge to the successor, newcomers, leaving (C2, C5, C12; 7, 10, 14). The edge is
                  a successor and a ping: NEWSUCC, answered by ACKSUCC, or by DECLINE by one who does not have that
                  tenure. A newcomer confirms with its first ACKSUCC.
    Reading       reads the tables of a quorum, claims what is nobody's: mending, founding again (C4, C5, C6)
    Reform        the next council, decided by one decree of Paxos (C7, C8, C10; L. Lamport, The Part-Time Parliament)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import whence.core.ring.messages as msg
from whence.core.clock import NEVER, MemberId, address_of, any_life
from whence.core.clock.logs import Lamport, LogReport, Logs
from whence.core.clock.logs import merged as merged_logs
from whence.core.ring.base import Applicant, Founding, Ring, agreed_epoch
from whence.core.ring.config import RingConfig, between, distance
from whence.core.ring.context import (
    Announce,
    Context,
    Edge,
    Excluded,
    Logbook,
    Memory,
    Rejected,
    Remember,
    RingOutput,
    State,
    Timer,
    Vote,
    floor_of,
)

NONE = msg.Council(0, (), ())
"""No council is known."""
REMEMBERED = 3
"""Councils whose vouches still count: the newest and those just before it (rule C2)."""
HINT_ROUNDS = 3
"""Rounds of silence of all voters after which others are believed about the council."""


def quorum(voters: Sequence[msg.Voter], have: Collection[MemberId]) -> bool:
    """More than half of the voters, or half with the first one (rule C1): two quorums always share a voter."""
    got = sum([voter.member in have for voter in voters])
    return 2 * got > len(voters) or (0 < 2 * got == len(voters) and voters[0].member in have)


def votes(sender: MemberId, voters: Sequence[msg.Voter]) -> bool:
    """One of them, in whichever life, is at the sender's address."""
    return address_of(sender) in [address_of(voter.member) for voter in voters]


class Councils:
    """The newest council known, and who this process is as a voter."""

    def __init__(self, ctx: Context, voter: MemberId, disk: bool) -> None:
        self.ctx = ctx
        self.me = msg.Voter(voter, disk)
        self.moved = None if address_of(voter) == address_of(ctx.me) else msg.Voter(ctx.me, disk)
        """This process is back with its disk at another address, where others do not look for its vote: as whom it asks
        to be elected instead (rule C9)."""
        self.now = NONE
        self.recent: dict[int, tuple[msg.Voter, ...]] = {}
        self.when_new: list[Callable[[], None]] = []
        self.heard_at: int | None = None  # when a voter of the newest council last spoke; None: none ever did
        self.spoke: dict[MemberId, int] = {}  # voter of the newest council -> when it last spoke
        self.learned_at = 0
        self.hint: msg.Council | None = None  # A council that a member which is no voter has told of

    # --- hearsay (rule C1) ---

    def heard(self, sender: MemberId) -> None:
        if sender != self.ctx.me and votes(sender, self.now.voters):
            self.heard_at, self.hint = self.ctx.now, None
            self.spoke |= {v: self.ctx.now for v in self.members() if address_of(v) == address_of(sender)}

    def told(self, sender: MemberId, council: msg.Council) -> bool:
        """Somebody tells of a council; returns whether it is believed now. A voter of the newest council known is
        believed, a voter of a higher generation (rule C0), and anybody while no council is known. Otherwise it is a
        hint: ask the voters, and believe it only if none of them speaks for some rounds. So a single false report has
        no effect."""
        if not council.number:
            return False  # whoever may only receive cannot tell
        known = self.now
        higher = council.number >> msg.GENERATION > known.number >> msg.GENERATION and votes(sender, council.voters)
        same = council.number == known.number and votes(sender, known.before)
        if not known.number or sender == self.ctx.me or votes(sender, known.voters) or higher or same:
            self.learn(council)
            return True
        if council.number > known.number or (self.heard_at is None and council.number != known.number):
            if self.hint is None:
                self.tell_all(msg.Read(known.number, 0))
            self.hint = council
        return False

    def consider_hint(self) -> None:
        """Once a round."""
        hint, now = self.hint, self.ctx.now
        if hint is None or self.members() == [self.me.member]:
            self.hint = None  # a voter alone decides which council is next
        elif now - max(self.learned_at, self.heard_at or 0) < HINT_ROUNDS * self.ctx.config.round_ns:
            self.tell_all(msg.Read(self.now.number, 0))
        else:
            if self.heard_at is None and not self.seated:
                self.now = NONE  # no voter has ever confirmed it: it may have been a lie
            self.hint = None
            self.learn(hint)

    def learn(self, council: msg.Council) -> None:
        """Somebody knows of this council; the higher number counts."""
        if council.number <= self.now.number:
            return
        self.settle(council)
        self.now, self.learned_at, self.heard_at = council, self.ctx.now, None
        self.spoke = {voter: self.spoke.get(voter, self.ctx.now) for voter in self.members()}
        self.recent = {n: v for n, v in self.recent.items() if n > council.number - REMEMBERED}
        self.recent[council.number] = council.voters
        self.ctx.say(Remember())
        for act in self.when_new:
            act()

    def settle(self, council: msg.Council) -> None:
        """Elected at the new address: the vote at the old one is over."""
        if self.moved in council.voters:
            self.me, self.moved = self.moved, None

    @property
    def seated(self) -> bool:
        """This process is a voter of the newest council."""
        return self.me.member in self.members()

    def members(self) -> list[MemberId]:
        return [voter.member for voter in self.now.voters]

    def quorum(self, number: int, have: Collection[MemberId]) -> bool:
        """Of a council that is remembered."""
        return self.enough(self.recent.get(number, ()), have)

    def enough(self, voters: Sequence[msg.Voter], have: Collection[MemberId]) -> bool:
        return quorum(voters, have)

    def tell(self, voter: MemberId, message: msg.RingMessage) -> None:
        """To a voter, in whichever life it is."""
        if voter == self.me.member:
            self.ctx.inbox.append(message)
        else:
            self.ctx.send(any_life(voter), message)

    def answer(self, sender: MemberId, message: msg.RingMessage) -> None:
        """To the very life that asked."""
        if sender == self.ctx.me:
            self.ctx.inbox.append(message)
        else:
            self.ctx.send(sender, message)

    def tell_all(self, message: msg.RingMessage) -> None:
        for voter in self.members():
            self.tell(voter, message)


class CouncilLease:
    """Which voters vouch for the present tenure, and until when."""

    def __init__(self, length: int, councils: Councils) -> None:
        self.length = length
        self.councils = councils
        self.sent: dict[int, int] = {}  # nonce -> when that poll was sent
        self.until: dict[int, dict[MemberId, int]] = {}  # council -> voter -> how long it vouches
        self._end: tuple[int, int] | None = None
        """The newest council, and when the lease runs out by what is known; None: count again."""

    def clear(self) -> None:
        self.sent, self.until, self._end = {}, {}, None

    def polled(self, nonce: int, now: int) -> None:
        self.sent = {n: at for n, at in self.sent.items() if at + self.length > now}
        self.until = {n: got for n, got in self.until.items() if n in self.councils.recent}
        self.sent[nonce], self._end = now, None

    def vouched(self, council: int, voter: MemberId, nonce: int, now: int) -> None:
        """A vouch counts from when its poll was sent: a slow answer only buys less time."""
        sent = self.sent.get(nonce)
        if sent is not None and council in self.councils.recent:
            got, self._end = self.until.setdefault(council, {}), None
            got[voter] = max(got.get(voter, 0), self.dated(sent, now) + self.length)

    def dated(self, sent: int, now: int) -> int:
        return sent

    def end(self) -> int:
        """When it runs out: the last moment at which a quorum of one council vouches. The councils before the newest
        count, too, until their vouches have run out."""
        if self._end is None or self._end[0] != self.councils.now.number:
            self._end = self.councils.now.number, self._count()
        return self._end[1]

    def _count(self) -> int:
        ends = [0]
        for number, got in self.until.items():
            quorum = self.councils.quorum
            ends += [end for end in got.values() if quorum(number, [v for v, until in got.items() if until >= end])]
        return max(ends)


NO_BALLOT = msg.Ballot(0, "")
_LEADING = msg.Prepare | msg.Higher | msg.Accept | msg.CloseLog | msg.EndLog


@dataclass
class Book:
    """What a voter of one council knows. All of it but `running` belongs on the disk, if there is one."""

    council: msg.Council
    ballot: msg.Ballot = NO_BALLOT
    accepted: tuple[msg.Ballot, tuple[msg.Voter, ...]] | None = None
    era: int = 0
    rows: dict[int, msg.TicketRow] = field(default_factory=dict)
    running: dict[int, dict[msg.Holder, int]] = field(default_factory=dict)
    """Ticket -> for whom a vouch runs, and until when."""

    @property
    def number(self) -> int:
        return self.council.number

    def row(self, ticket: int) -> msg.TicketRow:
        return self.rows.get(ticket) or msg.TicketRow(ticket, "", 0, 0, NEVER)

    def seats(self, now: int) -> tuple[msg.Holder, ...]:
        return tuple(holder for row in self.running.values() for holder, until in row.items() if until > now)

    def table(self, now: int) -> msg.Ledger:
        return msg.Ledger(self.era, self.seats(now), tuple(self.rows.values()))


def merged(tables: Iterable[msg.Ledger]) -> msg.Ledger:
    """What several voters know together: seats and rows of all, the highest of each."""
    era, seats, rows = 0, dict[msg.Holder, None](), dict[int, msg.TicketRow]()
    for table in tables:
        era = max(era, table.era)
        seats.update(dict.fromkeys(table.seats))
        for row in table.rows:
            had = rows.get(row.ticket)
            if had is None:
                rows[row.ticket] = row
                continue
            top, owner = max((had.top, had.owner), (row.top, row.owner))
            rows[row.ticket] = msg.TicketRow(row.ticket, owner, top, max(had.floor, row.floor), max(had.last, row.last))
    return msg.Ledger(era, tuple(seats), tuple(rows.values()))


class Voting:
    """This process as a voter; without a `book` it is none."""

    MAX_EARLY = 16  # polls kept for a council that has not begun here yet

    def __init__(self, ctx: Context, councils: Councils) -> None:
        self.ctx = ctx
        self.councils = councils
        self.book: Book | None = None
        self.silent_until = 0  # after a restart: until then vouches of the last life may run (rule C9)
        self.still_until: int | None = None  # PREPARE was answered: until then it stands still (rule C8)
        self.closed_at = 0  # when it accepted the next council
        self.early: list[tuple[MemberId, msg.Sit]] = []
        self.logs: Logbook | None = None  # where there is total order
        councils.when_new.append(self._retire)

    @property
    def lease(self) -> int:
        return self.ctx.config.vouch_ns

    def resume(self, vote: Vote) -> None:
        """A voter is back with its disk. It has forgotten which vouches ran, if any, and waits for the last of them."""
        rows = {row.ticket: row for row in vote.table.rows}
        self.book = Book(vote.council, vote.ballot, vote.accepted, vote.table.era, rows)
        self.silent_until = self.ctx.now + (0 if vote.rested else self.lease)

    def memory(self) -> Vote | None:
        book = self.book
        if book is None:
            return None
        table, rested = book.table(self.ctx.now), not self.silent
        return Vote(book.council, book.ballot, book.accepted, table._replace(seats=()), rested and not table.seats)

    def begin(self, council: msg.Council, table: msg.Ledger, logs: Logs | None = None) -> None:
        """A council begins with what a quorum of the last one knew; vouches that run get a whole lease (rule C7)."""
        if self.logs is not None:
            self.logs.begin(council.number, logs or Logs())
        book = Book(council, era=table.era, rows={row.ticket: row for row in table.rows})
        for holder in table.seats:
            book.running.setdefault(holder.ticket, {})[holder] = self.ctx.now + self.lease
        self.book, self.still_until = book, None
        self.changed()
        early, self.early = self.early, []
        for sender, poll in early:
            self.on_sit(sender, poll)

    def _retire(self) -> None:
        """Its table may be needed until the council after the next one is known (rule C8)."""
        now = self.councils.now
        if self.book is not None and self.book.number < now.number - 1 and not self.councils.seated:
            self.book = None

    def changed(self) -> None:
        if self.logs is not None:
            self.logs.save()
        else:
            self.ctx.say(Remember())

    # --- when it speaks ---

    @property
    def silent(self) -> bool:
        return self.ctx.now < self.silent_until

    def serving(self) -> bool:
        """It may vouch, be read and agree to claims: not after a restart, not after it has let the next council begin,
        not while that is being prepared (rules C7, C8 and C9)."""
        book = self.book
        if book is None or self.silent or book.accepted is not None:
            return False
        if self.still_until is not None:
            if self.ctx.now < self.still_until:
                return False
            self.resumes(book)
        return True

    def resumes(self, book: Book) -> None:
        """It goes on vouching, so what was prepared is void (rule C8)."""
        self.still_until = None
        book.ballot = msg.Ballot(book.ballot.number + 1, self.councils.me.member)
        self.changed()

    def promise(self, book: Book, ballot: msg.Ballot) -> None:
        """PREPARE is answered: stand still for 1.5 answer times, unless a council is accepted already (rule C8)."""
        book.ballot = ballot
        if book.accepted is None:
            self.still_until = self.ctx.now + self.ctx.config.answer_ns * 3 // 2
        self.changed()

    def accept(self, book: Book, ballot: msg.Ballot, voters: tuple[msg.Voter, ...]) -> None:
        """From now on silent in this council (rule C7)."""
        book.ballot, book.accepted = ballot, (ballot, voters)
        self.still_until, self.closed_at = None, self.ctx.now
        self.changed()

    def of(self, number: int, sender: MemberId) -> Book | None:
        """The book of that council, if it is the one that this voter serves in now. A sender that is behind is told
        which council is the newest."""
        if self.book is not None and self.book.number == number:
            return self.book if self.serving() else None
        if self.councils.now.number > number:
            self.councils.answer(sender, msg.Known(self.councils.now))
        return None

    # --- what it is asked ---

    def on_sit(self, sender: MemberId, m: msg.Sit) -> None:
        if m.council >= self.councils.now.number and (self.book is None or self.book.number < m.council):
            self.early = [*self.early[1 - self.MAX_EARLY :], (sender, m)]  # it will hear how this council begins
            return
        book, holder = self.of(m.council, sender), msg.Holder(sender, *m.mine)
        if book is None:
            return
        row = book.row(holder.ticket)
        if not self.newest(row, holder) or self.taken(book, holder):
            return
        new = (holder.inc, sender) != (row.top, row.owner) or not book.seats(self.ctx.now)
        last = max(row.last, (holder.inc, m.seq)) if m.seq else row.last
        book.rows[holder.ticket] = msg.TicketRow(holder.ticket, sender, holder.inc, row.floor, last)
        book.running[holder.ticket] = {holder: self.ctx.now + self.lease}
        if new:
            self.changed()
        if self.logs is not None:
            self.logs.vouched(holder, m.seq, m.clock)
        self.councils.answer(sender, msg.Vouch(m.council, m.nonce, self.councils.me.member, self.ctx.lamport.now))

    def newest(self, row: msg.TicketRow, holder: msg.Holder) -> bool:
        """Never an older incarnation, never one in two hands (rule C3)."""
        if holder.inc < row.floor or holder.inc < row.top:
            return False
        return holder.inc > row.top or holder.member == row.owner

    def taken(self, book: Book, holder: msg.Holder) -> bool:
        """One seat of a ticket at a time (rule C3)."""
        running = book.running.get(holder.ticket, {})
        return any(until > self.ctx.now for other, until in running.items() if other != holder)

    def on_read(self, sender: MemberId, m: msg.Read) -> None:
        book, voter = self.of(m.council, sender), self.councils.me.member
        if book is not None:
            self.councils.answer(sender, msg.Seats(m.council, m.nonce, voter, book.table(self.ctx.now)))

    def on_claim(self, sender: MemberId, m: msg.Claim) -> None:
        book = self.of(m.council, sender)
        if book is None or not self.new_era(book, m.era) or not self.vacant(book, m.tickets):
            return
        book.era = max(book.era, m.era)
        for ticket in m.tickets:
            row = book.row(ticket)
            book.rows[ticket] = row._replace(floor=max(row.floor, floor_of(m.era)))
        self.changed()
        self.councils.answer(sender, msg.Agree(m.council, m.nonce, self.councils.me.member))

    def new_era(self, book: Book, era: int) -> bool:
        """An era is claimed once (rule C4)."""
        return era > book.era

    def vacant(self, book: Book, tickets: Iterable[int]) -> bool:
        """Nobody may own one of these (rule C4)."""
        now = self.ctx.now
        return not any(until > now for ticket in tickets for until in book.running.get(ticket, {}).values())

    def on_vacate(self, sender: MemberId, m: msg.Vacate) -> None:
        """The owner is out already, so the vouch ends at once (rule C12)."""
        book, holder = self.book, msg.Holder(sender, *m.tenure)
        if book is None or holder not in book.running.get(holder.ticket, {}):
            return
        del book.running[holder.ticket][holder]
        row = book.row(holder.ticket)
        last = max(row.last, (holder.inc, m.seq)) if m.seq else row.last
        book.rows[holder.ticket] = row._replace(floor=max(row.floor, holder.inc + 1), last=last)
        self.changed()


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
        self.lease = CouncilLease(ctx.config.lease_ns, councils)
        self.newcomer: tuple[msg.Holder, msg.Holder] | None = None
        """Who was admitted and has not confirmed yet, and the successor before it."""
        self.least: dict[int, int] = {}  # ticket -> the lowest incarnation that may be granted, as voters say
        councils.when_new.append(self._council_changed)
        ctx.when_seated.append(self._clear)
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        self.lease.clear()
        self.newcomer = None

    def _council_changed(self) -> None:
        if self.ctx.holder is not None:
            self.poll()

    def not_below(self, ticket: int, inc: int) -> None:
        """A quorum says which incarnations are used up."""
        self.least[ticket] = max(self.least.get(ticket, 0), inc)

    # --- taking a seat ---

    def found(self, epoch: int) -> None:
        """All tickets are this process's, once it is vouched for."""
        if self.founding.take_all(epoch):
            self.ask_for_vouchers()

    def ask_for_vouchers(self) -> None:
        """On probation: an owner once a quorum vouches."""
        self.ctx.after(self.ctx.config.vouch_ns * 3 // 2, Timer.PROBATION)
        self.ctx.after(self.ctx.config.round_ns, Timer.ROUND)
        self.poll()

    # --- the lease (rule C2) ---

    def poll(self) -> None:
        ctx = self.ctx
        holder, _ = ctx.sitting()
        nonce = ctx.next_nonce()
        self.lease.polled(nonce, ctx.now)
        self.councils.tell_all(msg.Sit(self.councils.now.number, nonce, holder.tenure, ctx.seq, ctx.lamport.now))
        ctx.after(int(self.POLL * ctx.config.round_ns), Timer.POLL)

    def poll_again(self) -> None:
        """A council that is being renewed does not answer for a moment: ask again before the next round."""
        ctx = self.ctx
        if ctx.holder is None:
            return
        short = self.lease.end() - ctx.now < int(self.SHORT * ctx.config.round_ns)
        if ctx.state is State.PROBATION or short:
            self.poll()

    def on_vouch(self, sender: MemberId, m: msg.Vouch) -> None:
        ctx = self.ctx
        if ctx.holder is None:
            return
        self.lease.vouched(m.council, m.voter, m.nonce, ctx.now)
        ctx.lamport.saw(m.clock)
        if ctx.state is State.PROBATION and ctx.now < self.lease.end():
            ctx.stop(Timer.PROBATION)
            ctx.own()
            if ctx.pred is not None:
                ctx.send(ctx.pred.member, msg.AckSucc(ctx.holder.tenure, ctx.pred.tenure))
            self.ping()

    # --- the edge to the successor ---

    def new_edge(self, succ: msg.Holder) -> None:
        holder, _ = self.ctx.sitting()
        self.newcomer = None
        self.ctx.stop(Timer.NEWCOMER, Timer.UPDATE)
        self.ctx.edge = Edge.alone(holder) if succ == holder else Edge(succ, [])
        self.ping()

    def ping(self) -> None:
        """Is the successor still there? If no answer comes, mend (rule C5)."""
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        if not ctx.alone and self.newcomer is None:
            ctx.send(edge.succ.member, msg.NewSucc(holder.tenure, edge.succ.tenure))
            ctx.after(ctx.config.answer_ns, Timer.UPDATE)

    def on_new_succ(self, sender: MemberId, m: msg.NewSucc) -> None:
        ctx = self.ctx
        if ctx.addressed(m.yours):
            ctx.pred = msg.Holder(sender, *m.mine)
            ctx.send(sender, msg.AckSucc(m.yours, m.mine))
        else:
            ctx.finish(m.yours)
            ctx.send(sender, msg.Decline(0, m.yours))

    def on_ack_succ(self, sender: MemberId, m: msg.AckSucc) -> None:
        ctx = self.ctx
        if ctx.edge is None or not ctx.addressed(m.yours) or ctx.edge.succ != msg.Holder(sender, *m.mine):
            return
        ctx.stop(Timer.UPDATE)
        if self.newcomer is not None:  # confirmed
            self.newcomer = None
            ctx.stop(Timer.NEWCOMER)
            ctx.table.owns(ctx.edge.succ)

    def on_decline(self, sender: MemberId, m: msg.Decline) -> bool:
        """Whether the edge has to be mended: the successor does not have that tenure any more."""
        ctx, declined = self.ctx, msg.Holder(sender, *m.tenure)
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

    def admit(self, sender: MemberId, m: msg.CJoin) -> None:
        ctx, (holder, edge) = self.ctx, self.ctx.sitting()
        newcomer, before = ctx.grant(sender, m.wish, self.least), edge.succ
        ctx.edge, self.newcomer = Edge(newcomer, []), (newcomer, before)
        ctx.stop(Timer.UPDATE)
        ctx.send(sender, msg.Known(self.councils.now))
        mine, yours = holder.tenure, newcomer.tenure
        ctx.send(sender, msg.AckCJoin(m.nonce, 0, mine, yours, before, (), (), ctx.table.rows()))
        ctx.after(ctx.config.vouch_ns * 17 // 10, Timer.NEWCOMER)

    # --- leaving (rule C12) ---

    def leave(self) -> None:
        """Out first; then the voters hear of it and need not wait for the vouch to run out."""
        ctx = self.ctx
        holder, _ = ctx.sitting()
        owned, seq = ctx.state is State.OWNER, ctx.seq
        self.applicant.released()
        self.councils.tell_all(msg.Vacate(holder.tenure, seq))
        if owned:
            ctx.say(Announce(msg.ReleasedNews(holder, seq)))


Purpose = Literal["mend", "found"]


@dataclass
class Question:
    """What a quorum is asked: first for its tables, then to agree to a claim."""

    nonce: int
    council: int
    purpose: Purpose
    tables: dict[MemberId, msg.Ledger] = field(default_factory=dict)
    era: int = 0
    """Under which the claim is made; 0: still reading."""
    tickets: tuple[int, ...] = ()
    succ: msg.Holder | None = None
    agreed: dict[MemberId, None] = field(default_factory=dict)


class Reading:
    """One question at a time."""

    def __init__(self, ctx: Context, councils: Councils, applicant: Applicant, seat: Seat) -> None:
        self.ctx = ctx
        self.councils = councils
        self.applicant = applicant
        self.seat = seat
        self.question: Question | None = None
        self.era = 0  # the highest era heard of
        self.claimed = 0  # the highest era claimed by this process
        councils.when_new.append(self.forget)
        ctx.when_stopped.append(self.forget)

    def forget(self) -> None:
        self.question = None
        self.ctx.stop(Timer.READ)

    def heard(self, era: int) -> None:
        self.era = max(self.era, era)

    def read(self, purpose: Purpose) -> None:
        if self.question is None and self.councils.now.number:
            self.question = Question(self.ctx.next_nonce(), self.councils.now.number, purpose)
            self.councils.tell_all(msg.Read(self.question.council, self.question.nonce))
            self.ctx.after(2 * self.ctx.config.answer_ns, Timer.READ)

    def on_seats(self, sender: MemberId, m: msg.Seats) -> None:
        q = self.question
        if q is None or (q.nonce, q.council) != (m.nonce, m.council) or q.era:
            return
        q.tables[m.voter] = m.table
        if not self.councils.quorum(q.council, q.tables):
            return
        known = merged(q.tables.values())
        before, self.era = self.era, max(self.era, known.era, self.ctx.table.era)
        for row in known.rows:
            self.seat.not_below(row.ticket, max(row.floor, row.top + 1))
            self.ctx.table.last[row.ticket] = max(self.ctx.table.last[row.ticket], row.last)
        if q.purpose == "mend":
            self._mend(q, known.seats)
        else:
            self._found(q, known.seats, before)

    # --- mending (rule C5) ---

    def _mend(self, q: Question, seats: tuple[msg.Holder, ...]) -> None:
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

    def _found(self, q: Question, seats: tuple[msg.Holder, ...], before: int) -> None:
        ctx = self.ctx
        if ctx.state is not State.JOINING or self.applicant.asked is not None:
            self.forget()
        elif seats:
            self.forget()  # a quorum knows who the coordinators are
            ctx.table.forget_owners()
            self.applicant.replace_hints({s.ticket: s.member for s in seats if s.member != ctx.me})
            ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(0.02, 0.3)), Timer.APPLY)
        elif before and self.era > max(before, self.claimed):
            self.forget()  # somebody else is founding: give it a round
            ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(0.5, 1.5)), Timer.APPLY)
        else:
            self._claim(q, tuple(range(ctx.config.tickets)), agreed_epoch(self.era >> msg.ERA_SHIFT) << msg.ERA_SHIFT)

    # --- claiming (rule C4) ---

    def _claim(self, q: Question, tickets: tuple[int, ...], era: int) -> None:
        q.era, q.tickets = era, tickets
        self.era = self.claimed = max(self.era, era)
        self.councils.tell_all(msg.Claim(q.council, q.nonce, era, tickets))

    def on_agree(self, sender: MemberId, m: msg.Agree) -> None:
        q, ctx = self.question, self.ctx
        if q is None or (q.nonce, q.council) != (m.nonce, m.council) or not q.era:
            return
        q.agreed[m.voter] = None
        if not self.councils.quorum(q.council, q.agreed):
            return
        self.forget()
        for ticket in q.tickets:
            self.seat.not_below(ticket, floor_of(q.era))
        if q.purpose == "found":
            if ctx.state is State.JOINING:
                self.seat.found(q.era >> msg.ERA_SHIFT)
        elif ctx.state is State.OWNER and q.succ is not None:
            for ticket in q.tickets:
                ctx.table.end(ticket, floor_of(q.era))
            self.seat.new_edge(q.succ)
            ctx.say(Excluded(q.tickets, msg.term_of(q.era), tuple(q.agreed)))
            if q.tickets:
                ctx.say(Announce(msg.GoneNews(q.tickets, floor_of(q.era), ctx.me)))


@dataclass
class Proposal:
    """One attempt to decide the next council."""

    council: int
    ballot: msg.Ballot
    want: tuple[msg.Voter, ...]
    expected: int
    """Promises after which there is nobody else to wait for."""
    promises: dict[MemberId, msg.Promise] = field(default_factory=dict)
    accepted: set[MemberId] = field(default_factory=set)
    value: tuple[msg.Voter, ...] = ()
    table: msg.Ledger = field(default_factory=lambda: msg.Ledger(0, (), ()))
    logs: Logs | None = None


class Reform:
    """A voter's part in the choice of the next council."""

    SUSPECT = 2.5
    """Rounds of silence after which a voter is not proposed again (rule C10). A suspicion is never a proof."""
    FRESH = 1.5
    """Rounds for which a volunteer counts as there."""
    MAX_VOLUNTEERS = 64

    def __init__(self, ctx: Context, councils: Councils, voting: Voting, willing: bool) -> None:
        self.ctx = ctx
        self.councils = councils
        self.voting = voting
        self.willing = willing
        """This process may be asked to vote. A member that may only receive is not, and tells nobody of councils."""
        self.leaving = False  # this process wants to be replaced
        self.others: list[MemberId] = []  # whom it knew then
        self.proposal: Proposal | None = None
        self.heard: dict[MemberId, int] = {}
        self.gone: dict[MemberId, None] = {}  # voters that want to be replaced
        self.volunteers: dict[msg.Voter, int] = {}
        self.urge = 0  # rounds for which another council was wanted: the next voter proposes a round later
        self.highest = 0  # the highest ballot number heard of

    @property
    def _round(self) -> int:
        return self.ctx.config.round_ns

    def abstain(self) -> None:
        self.willing = False

    def retire(self, others: Iterable[MemberId]) -> None:
        """Ask to be replaced, at once. Who is no voter is not to become one."""
        self.leaving, self.others, self.urge = True, list(others), max(self.urge, 0)
        if self.councils.seated:
            self.seek_heirs()
            self.attend()
        elif self.willing and self.councils.moved is None:
            self.councils.tell_all(msg.Attend(0, self.councils.me.member, True))

    def seek_heirs(self) -> None:
        """No voter stays: ask others to vote."""
        councils, me = self.councils, self.councils.me.member
        if councils.moved is None and all(voter in self.gone or voter == me for voter in councils.members()):
            self.volunteers = {}  # some of them may be leaving, too
            self.tell(self.others, msg.Known(councils.now))
            self.tell(self.others, msg.Attend(0, me, True))

    def tell(self, members: Iterable[MemberId], message: msg.RingMessage) -> None:
        for member in members:
            self.ctx.send(member, message)

    # --- a round ---

    def attend(self) -> None:
        """Voters show that they are there; others, that they could be."""
        ctx, councils, voting = self.ctx, self.councils, self.voting
        if councils.moved is not None and (self.willing or councils.seated):
            self._volunteer(ctx.config.window)
            self.consider()
        elif councils.seated:
            book = voting.book
            for voter in councils.members():
                if voter != councils.me.member:
                    councils.tell(voter, msg.Attend(book.number if book else 0, councils.me.member, self.leaving))
            self.consider()
            if book is None or book.number < councils.now.number:
                for each in dict.fromkeys((*councils.now.voters, *councils.now.before)):
                    councils.tell(each.member, msg.Missing(councils.now.number))
        elif self.willing and not self.leaving and councils.now.number:
            self._volunteer(ctx.config.window)

    def _volunteer(self, size: int) -> None:
        """A full council needs to hear of a few only; one that has lost a voter, and one in which an earlier life of
        this process sits, of everybody."""
        councils, ctx = self.councils, self.ctx
        mine = msg.Volunteer(councils.moved or councils.me)
        homes = [address_of(voter) for voter in councils.members()]
        if len(homes) < size or address_of(ctx.me) in homes:
            councils.tell_all(mine)
        elif ctx.rng.random() < 0.25:
            councils.tell(ctx.rng.choice(councils.members()), mine)

    def on_attend(self, sender: MemberId, m: msg.Attend) -> None:
        if m.leaving:
            self.volunteers = {v: at for v, at in self.volunteers.items() if v.member != m.voter}
        if m.voter in self.councils.members():
            self.heard[m.voter] = self.ctx.now
            if not m.leaving:
                self.gone.pop(m.voter, None)
            elif m.voter not in self.gone:
                self.gone[m.voter], self.urge = None, max(self.urge, 0)
                if self.leaving and self.councils.seated:
                    self.seek_heirs()
                self.consider()
                if self.willing and not self.leaving and not self.councils.seated:
                    self.councils.tell_all(msg.Volunteer(self.councils.moved or self.councils.me))
        book = self.voting.book
        if book is not None and m.council < book.number and not self.voting.silent:
            self._tell_begin(sender, book)

    def _tell_begin(self, to: MemberId, book: Book) -> None:
        logs = self.voting.logs.begun if self.voting.logs is not None else None
        self.councils.answer(to, msg.Begin(book.council, book.table(self.ctx.now), logs))

    def on_volunteer(self, sender: MemberId, m: msg.Volunteer) -> None:
        if len(self.volunteers) >= self.MAX_VOLUNTEERS:
            self.volunteers = {v: at for v, at in self.volunteers.items() if self.ctx.now - at < self._round}
        if len(self.volunteers) < self.MAX_VOLUNTEERS:
            self.volunteers[m.as_voter] = self.ctx.now
        if self.leaving:
            self.consider()
        for voter in self.councils.now.voters:
            # another life at the address of a voter without a disk: suspect the voter at once
            if not voter.disk and voter != m.as_voter and address_of(voter.member) == address_of(sender):
                self.heard.pop(voter.member, None)

    def on_missing(self, sender: MemberId, m: msg.Missing) -> None:
        """A voter has not heard how its council begins. One of the council before finds out again (rule C8)."""
        book, councils = self.voting.book, self.councils
        if book is None or self.voting.silent:
            return
        if book.number >= m.council:
            self._tell_begin(sender, book)
        elif book.number == m.council - 1 and self.proposal is None and councils.now.number == m.council:
            self.propose(book, councils.now.voters)

    # --- whom to propose (rule C10) ---

    def present(self, book: Book) -> list[msg.Voter]:
        """The voters that are not suspected."""
        now, me = self.ctx.now, self.councils.me.member
        limit = int(self.SUSPECT * self._round)
        heard = self.heard
        return [v for v in book.council.voters if v.member == me or now - heard.get(v.member, now - limit) < limit]

    def wanted(self, book: Book, present: Sequence[msg.Voter]) -> tuple[msg.Voter, ...]:
        ctx = self.ctx
        me = self.councils.me
        stay = [v for v in present if v.member not in self.gone and not (self.leaving and v == me)]
        if self.councils.moved is not None:
            stay = [self.councils.moved if v == me else v for v in stay]
        fresh = int(self.FRESH * self._round)
        new = [v for v, at in self.volunteers.items() if ctx.now - at < fresh and v not in book.council.voters]
        new.sort(key=lambda v: (not v.disk, ctx.rng.random()))
        want = [*stay, *new[: max(0, ctx.config.window - len(stay))]]
        if want and not want[0].disk:
            want.sort(key=lambda v: not v.disk)  # the first one should be one that can come back
        return tuple(want)

    def consider(self) -> None:
        """Propose another council if this one should change, and it is this voter's turn."""
        ctx, voting, book = self.ctx, self.voting, self.voting.book
        if book is None or book.number != self.councils.now.number or voting.silent or self.proposal is not None:
            return
        if book.accepted is not None:
            patience = 2 * ctx.config.answer_ns + int(ctx.rng.random() * self._round)
            if ctx.now > voting.closed_at + patience:
                self.propose(book, book.accepted[1])  # finish what was begun
            return
        present = self.present(book)
        if not self.councils.enough(book.council.voters, [v.member for v in present]):
            return
        want, have = self.wanted(book, present), book.council.voters
        if not want or (set(want) == set(have) and want[0] == have[0]):
            self.urge = 0
            return
        self.urge += 1
        me = self.councils.me.member
        late = int(1.3 * self._round)
        unsure = any(v.member != me and ctx.now - self.heard.get(v.member, 0) > late for v in present)
        if self.urge < 3 and unsure:
            return  # it would wait for somebody who may be dead
        present.sort(key=lambda voter: voter not in want)  # those that stay: of those that leave all may go
        if [v.member for v in present].index(me) < self.urge:
            self.propose(book, want, len(present))

    # --- the proposer ---

    def propose(self, book: Book, want: tuple[msg.Voter, ...], expected: int = 0) -> None:
        ballot = msg.Ballot(max(book.ballot.number, self.highest) + 1, self.councils.me.member)
        self.proposal = Proposal(book.number, ballot, want, expected or len(book.council.voters))
        for voter in book.council.voters:
            self.councils.tell(voter.member, msg.Prepare(book.number, ballot))
        self.ctx.after(self.ctx.config.answer_ns, Timer.PREPARED)
        self.ctx.after(3 * self.ctx.config.answer_ns, Timer.PROPOSAL)

    def give_up(self) -> None:
        self.proposal = None
        self.ctx.stop(Timer.PREPARED, Timer.PROPOSAL)

    def on_higher(self, sender: MemberId, m: msg.Higher) -> None:
        self.highest = max(self.highest, m.ballot.number)

    def on_promise(self, sender: MemberId, m: msg.Promise) -> None:
        p = self.proposal
        if p is None or (p.council, p.ballot) != (m.council, m.ballot) or p.value:
            return
        p.promises[m.voter] = m
        if self.voting.logs is not None and m.logs is not None:
            self.voting.logs.lacking(m.logs.rows, sender)
        if len(p.promises) >= p.expected:
            self.prepared()

    def prepared(self) -> None:
        """Enough voters stand still: ask exactly these to accept (rule C8)."""
        p, book = self.proposal, self.voting.book
        if p is None or p.value or book is None or book.number != p.council:
            return
        if not self.councils.enough(book.council.voters, p.promises):
            return
        p.value = self.decree(p)
        p.table = merged(promise.table for promise in p.promises.values())
        if self.voting.logs is not None:
            p.logs = merged_logs(promise.logs or Logs() for promise in p.promises.values())
        for voter in self.asked(p, book):
            self.councils.tell(voter, msg.Accept(p.council, p.ballot, p.value, p.logs))

    def decree(self, p: Proposal) -> tuple[msg.Voter, ...]:
        """What the highest ballot among the promises has accepted, if anything (Paxos)."""
        accepted = [promise.accepted for promise in p.promises.values() if promise.accepted is not None]
        return max(accepted)[1] if accepted else p.want

    def asked(self, p: Proposal, book: Book) -> Sequence[MemberId]:
        return list(p.promises)

    def on_accepted(self, sender: MemberId, m: msg.Accepted) -> None:
        p, book = self.proposal, self.voting.book
        if p is None or (p.council, p.ballot) != (m.council, m.ballot) or not p.value:
            return
        p.accepted.add(m.voter)
        old = self.councils.recent.get(p.council, book.council.voters if book and book.number == p.council else ())
        if self.councils.enough(old, p.accepted):
            self.give_up()
            begin = msg.Begin(msg.Council(p.council + 1, p.value, old), p.table, p.logs)
            for voter in dict.fromkeys((*p.value, *old)):
                self.councils.tell(voter.member, begin)

    # --- the acceptor ---

    def on_prepare(self, sender: MemberId, m: msg.Prepare) -> None:
        ctx, book = self.ctx, self.voting.book
        if book is None or book.number != m.council or self.voting.silent:
            if self.councils.now.number > m.council:
                self.councils.answer(sender, msg.Known(self.councils.now))
            return
        if m.ballot <= book.ballot:
            self.councils.answer(sender, msg.Higher(m.council, book.ballot))
            return
        if m.ballot.by != self.councils.me.member:
            self.urge = -1  # one at a time
        self.voting.promise(book, m.ballot)
        mine = self.councils.me.member
        logs = self.voting.logs.now() if self.voting.logs is not None else None
        promise = msg.Promise(m.council, m.ballot, mine, book.accepted, book.table(ctx.now), logs)
        self.councils.answer(sender, promise)

    def on_accept(self, sender: MemberId, m: msg.Accept) -> None:
        book = self.voting.book
        if book is None or book.number != m.council or not self.may_accept(book, m.ballot):
            return
        if self.voting.logs is not None and self.voting.logs.lacking((m.logs or Logs()).rows, sender):
            return  # a quorum of this council holds what the next one begins with (docs/total.md, rule T10)
        self.voting.accept(book, m.ballot, m.voters)
        self.councils.answer(sender, msg.Accepted(m.council, m.ballot, self.councils.me.member))

    def may_accept(self, book: Book, ballot: msg.Ballot) -> bool:
        """Only who has stood still since it promised this very ballot: its table is the one that was read."""
        return book.ballot == ballot and (book.accepted is not None or self.voting.still_until is not None)

    def on_begin(self, sender: MemberId, m: msg.Begin) -> None:
        book = self.voting.book
        if not self.councils.told(sender, m.now) or m.now.number < self.councils.now.number:
            return  # a voter that has retired would begin an old council twice, and vouch for whom that one let go
        if self.councils.me.member in [v.member for v in m.now.voters] and (book is None or book.number < m.now.number):
            self.give_up()
            self.heard = dict.fromkeys((voter.member for voter in m.now.voters), self.ctx.now)
            self.gone = {voter: None for voter in self.gone if voter in self.heard}
            self.voting.begin(m.now, m.table, m.logs)


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
        lamport: Lamport | None = None,
    ) -> None:
        super().__init__(me, config, rng, answer_ns=config.answer_ns * 3 // 2)
        ctx, applicant = self.ctx, self.applicant
        ctx.lamport = lamport or ctx.lamport
        ctx.lasting = (Timer.COUNCIL, Timer.PREPARED, Timer.PROPOSAL)
        self.councils = Councils(ctx, me if memory is None else memory.voter, disk)
        self.voting = Voting(ctx, self.councils)
        self.reform = Reform(ctx, self.councils, self.voting, votes)
        self.votes = votes
        self.seat = Seat(ctx, self.councils, applicant, self.founding)
        self.reading = Reading(ctx, self.councils, applicant, self.seat)
        self.forced = False  # the founding under way is an operator's decision (rule C0)
        self._memory = memory
        self._owner_answered = False
        applicant.when_waiting.append(self._waiting)
        applicant.epoch_ends = False
        self.dispatch(self.voting, self.seat, self.reading, self.reform)

    def keep(self, logs: Logbook) -> None:
        """There is total order, and this process may be a voter."""
        self.voting.logs = logs
        self.dispatch(self.voting, self.seat, self.reading, self.reform, logs)

    def report(self, now: int) -> tuple[LogReport | None, list[RingOutput]]:
        """What this voter has to tell of logs (docs/total.md, rule T5), and what goes before it."""
        found: list[LogReport | None] = [None]
        outputs = self._step(now, lambda: found.append(self.voting.logs.report() if self.voting.logs else None))
        return found[-1], outputs

    # --- what others ask ---

    def owns_at(self, now: int) -> bool:
        return self.ctx.state is State.OWNER and now < self.seat.lease.end()

    def steady_at(self, now: int) -> bool:
        return self.owns_at(now) and self.seat.newcomer is None and self.reading.question is None

    def _lease_end(self) -> int | None:
        return self.seat.lease.end() if self.ctx.state is State.OWNER else None

    def memory(self) -> Memory:
        if self._memory is not None:  # it has not started yet
            return self._memory
        return Memory(self.councils.me.member, self.councils.now, self.voting.memory())

    def silent(self, now: int) -> dict[MemberId, int]:
        """Voters that have not spoken for longer than a living one would, and for how long (ns). Only an owner, a voter
        and a member that asks for a ticket hear voters in every round; others know of none."""
        if self.ctx.state is State.OUT and not self.councils.seated:
            return {}
        limit = int(self.reform.SUSPECT * self.ctx.config.round_ns)
        others = [voter for voter in self.councils.members() if voter != self.councils.me.member]
        return {v: now - at for v in others if now - (at := self.councils.spoke.get(v, now)) >= limit}

    @property
    def safe_at(self) -> int:
        return max(super().safe_at, self.voting.silent_until if self.councils.seated else 0)

    # --- begin and end ---

    def abstain(self) -> None:
        """Never be a voter: the process is known to be short-lived, or its operator wants it so."""
        self.reform.abstain()

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
        return self._step(now, lambda: self.reform.retire(self.applicant.members))

    @property
    def retired(self) -> bool:
        """Also when all others leave, too: then there is nobody to be replaced by."""
        leaving = {address_of(voter) for voter in self.reform.gone}
        stays = any(address_of(member) not in leaving for member in self.applicant.members)
        return self.ctx.holder is None and not (stays and self.councils.seated)

    def _found(self, epoch: int, force: bool) -> None:
        """Rule C0: a council is made by a decision, when nobody remembers one."""
        if self.councils.now.number and not force:
            self.ctx.say(Rejected("there is a council already: asking it for a ticket"))
            self.applicant.coordinate()
            return
        self.forced = force
        self.founding.found(epoch)

    def _quarantine_over(self) -> None:
        councils, founding = self.councils, self.founding
        if not self.seat_all_allowed():
            founding.give_up("a council is known")
            return
        generation = (councils.now.number >> msg.GENERATION) + 1 if councils.now.number else 0
        council = msg.Council(generation << msg.GENERATION | 1, (councils.me,), ())
        era = founding.epoch << msg.ERA_SHIFT
        logs = self.voting.logs.found(generation) if self.voting.logs is not None else None
        self.voting.begin(council, msg.Ledger(era, (), ()), logs)
        councils.learn(council)
        self.reading.heard(era)
        self.seat.found(founding.epoch)

    def seat_all_allowed(self) -> bool:
        return self.forced or not self.councils.now.number

    def _leave(self) -> None:
        self.seat.leave()

    # --- messages ---

    def _receive(self, sender: MemberId, m: msg.RingMessage) -> None:
        if sender != self.ctx.me:
            msg.check_voter(sender, m)
        if isinstance(m, msg.CouncilMessage):
            era = m.era if isinstance(m, msg.Claim) else m.table.era if isinstance(m, msg.Seats | msg.Begin) else 0
            self.ctx.table.reached(era)  # claims that failed have raised it, too
            self.councils.heard(sender)
            if not self.votes and not isinstance(m, msg.Known | msg.Begin):
                return  # others would cut it off for voting (rule C10)
            if isinstance(m, _LEADING) and not self._by_a_voter(sender):
                return  # only voters lead the choice of the next council, or close a log
        super()._receive(sender, m)

    # --- messages that concern more than one part ---

    def on_ack_cjoin(self, sender: MemberId, m: msg.AckCJoin) -> None:
        self.founding.heard_owner(sender)
        if self.applicant.takes(sender, m):
            self.seat.ask_for_vouchers()

    def on_reject(self, sender: MemberId, m: msg.Reject) -> None:
        self._owner_answered = m.owner
        self.founding.on_reject(sender, m)
        self._owner_answered = False

    def on_cjoin(self, sender: MemberId, m: msg.CJoin) -> None:
        if self.seat.admits and self.reading.question is None:
            self.seat.admit(sender, m)
        else:
            self._refuse(sender, m.nonce)

    def on_who(self, sender: MemberId, m: msg.Who) -> None:
        if self.councils.now.number and self.votes:
            self.ctx.send(sender, msg.Known(self.councils.now))
        self._refuse(sender, m.nonce)

    def _refuse(self, to: MemberId, nonce: int) -> None:
        self.ctx.refuse(to, nonce, busy=self.reading.question is not None or not self.seat.settled)

    def on_decline(self, sender: MemberId, m: msg.Decline) -> None:
        if self.seat.on_decline(sender, m):
            self.reading.read("mend")

    def on_known(self, sender: MemberId, m: msg.Known) -> None:
        self.councils.told(sender, m.now)
        self._council_heard()

    def on_begin(self, sender: MemberId, m: msg.Begin) -> None:
        self.reform.on_begin(sender, m)
        self._council_heard()
        if self.reform.leaving:  # those who still count on this voter believe it
            self.reform.tell(self.reform.others, msg.Known(self.councils.now))

    def _by_a_voter(self, sender: MemberId) -> bool:
        book = self.voting.book
        return sender == self.ctx.me or (book is not None and votes(sender, book.council.voters))

    def _council_heard(self) -> None:
        if self.ctx.state is State.FOUNDING and not self.seat_all_allowed():
            self.founding.give_up("a council is known")

    def _hear(self, news: msg.RingNews) -> None:
        ctx = self.ctx
        if isinstance(news, msg.JoinedNews) and Timer.APPLY in ctx.timers and not ctx.table.coordinators():
            ctx.after(int(ctx.config.round_ns * ctx.rng.uniform(0, 0.1)), Timer.APPLY)  # the first one to be heard of
        self.founding.on_news(news)
        gone = news.holder if isinstance(news, msg.ReleasedNews) else None
        if self.seat.settled and ctx.edge is not None and ctx.edge.succ == gone:
            self.reading.read("mend")

    # --- timers ---

    def _timer(self, timer: Timer) -> None:
        ctx = self.ctx
        match timer:
            case Timer.QUARANTINE:
                self._quarantine_over()
            case Timer.APPLY if self.reading.question is not None:
                ctx.after(ctx.config.round_ns // 4, Timer.APPLY)
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
                self.applicant.lost("not confirmed")
            case Timer.READ:
                self.reading.forget()
            case Timer.PREPARED:
                self.reform.prepared()
            case Timer.PROPOSAL:
                self.reform.give_up()
            case _:
                super()._timer(timer)

    def _council_round(self) -> None:
        """Gossip the newest council, and show that this process is there."""
        ctx, councils = self.ctx, self.councils
        ctx.after(ctx.config.round_ns, Timer.COUNCIL)
        if not councils.now.number:
            self.applicant.ask_who()
        elif self.applicant.members and self.votes:
            ctx.send(ctx.rng.choice(self.applicant.members), msg.Known(councils.now))
        councils.consider_hint()
        self.reform.attend()
        if self.voting.logs is not None:
            self.voting.logs.round()

    def _waiting(self) -> None:
        """No ticket yet. Unless a coordinator has just answered, ask the council who is one (rule C6)."""
        if not self._owner_answered:
            self.reading.read("found")
