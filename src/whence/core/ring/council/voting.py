"""The voter: for whom it vouches, to whose claims it agrees, and when it says nothing. Rules C3, C4, C7, C8 and C9."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from whence.core.clock import NEVER, MemberId
from whence.core.ring.context import Context
from whence.core.ring.council.known import Councils
from whence.core.ring.interface import Remember, Vote
from whence.core.ring.messages import (
    Agree,
    Ballot,
    Claim,
    Council,
    Holder,
    Known,
    Ledger,
    Read,
    Row,
    Seats,
    Sit,
    Vacate,
    Voter,
    Vouch,
)
from whence.core.ring.table import floor_of

NO_BALLOT = Ballot(0, "")


@dataclass
class Book:
    """What a voter of one council knows. All of it but `running` belongs on the disk, if there is one."""

    council: Council
    ballot: Ballot = NO_BALLOT
    accepted: tuple[Ballot, tuple[Voter, ...]] | None = None
    era: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    running: dict[int, dict[Holder, int]] = field(default_factory=dict)
    """Ticket -> for whom a vouch runs, and until when."""

    @property
    def number(self) -> int:
        return self.council.number

    def row(self, ticket: int) -> Row:
        return self.rows.get(ticket) or Row(ticket, "", 0, 0, NEVER)

    def seats(self, now: int) -> tuple[Holder, ...]:
        return tuple(holder for row in self.running.values() for holder, until in row.items() if until > now)

    def table(self, now: int) -> Ledger:
        return Ledger(self.era, self.seats(now), tuple(self.rows.values()))

    def saved(self) -> Vote:
        return Vote(self.council, self.ballot, self.accepted, Ledger(self.era, (), tuple(self.rows.values())))


def merged(tables: Iterable[Ledger]) -> Ledger:
    """What several voters know together: seats and rows of all, the highest of each."""
    era, seats, rows = 0, dict[Holder, None](), dict[int, Row]()
    for table in tables:
        era = max(era, table.era)
        seats.update(dict.fromkeys(table.seats))
        for row in table.rows:
            had = rows.get(row.ticket)
            if had is None:
                rows[row.ticket] = row
                continue
            top, owner = max((had.top, had.owner), (row.top, row.owner))
            rows[row.ticket] = Row(row.ticket, owner, top, max(had.floor, row.floor), max(had.last, row.last))
    return Ledger(era, tuple(seats), tuple(rows.values()))


class Voting:
    """This process as a voter; without a `book` it is none."""

    MAX_EARLY = 16  # polls kept for a council that has not begun here yet

    def __init__(self, ctx: Context, councils: Councils) -> None:
        self.ctx = ctx
        self.councils = councils
        self.book: Book | None = None
        self.silent_until = 0
        """After a restart: until then vouches of the last life may run (rule C9)."""
        self.still_until: int | None = None
        """PREPARE was answered: until then it stands still (rule C8)."""
        self.closed_at = 0
        """When it accepted the next council."""
        self.early: list[tuple[MemberId, Sit]] = []
        councils.when_new.append(self._retire)

    @property
    def lease(self) -> int:
        """So long that an owner's lease is over on every clock (rule C3)."""
        return self.ctx.config.on_any_clock(self.ctx.config.lease_ns)

    def resume(self, vote: Vote) -> None:
        """A voter is back with its disk. It has forgotten which vouches run, so it waits for the last of them."""
        rows = {row.ticket: row for row in vote.table.rows}
        self.book = Book(vote.council, vote.ballot, vote.accepted, vote.table.era, rows)
        self.silent_until = self.ctx.now + self.lease

    def begin(self, council: Council, table: Ledger) -> None:
        """A council begins with what a quorum of the last one knew; vouches that run get a whole lease (rule C7)."""
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
        book.ballot = Ballot(book.ballot.number + 1, self.councils.me.member)
        self.changed()

    def of(self, number: int, sender: MemberId) -> Book | None:
        """The book of that council, if it is the one that this voter serves in now. A sender that is behind is told
        which council is the newest."""
        if self.book is not None and self.book.number == number:
            return self.book if self.serving() else None
        if self.councils.now.number > number:
            self.councils.answer(sender, Known(self.councils.now))
        return None

    # --- what it is asked ---

    def on_sit(self, sender: MemberId, m: Sit) -> None:
        if m.council >= self.councils.now.number and (self.book is None or self.book.number < m.council):
            self.early = [*self.early[1 - self.MAX_EARLY :], (sender, m)]  # it will hear how this council begins
            return
        book, holder = self.of(m.council, sender), Holder(sender, *m.mine)
        if book is None or not self.may_vouch(book, holder):
            return
        row = book.row(holder.ticket)
        new = (holder.inc, sender) != (row.top, row.owner)
        last = max(row.last, (holder.inc, m.seq)) if m.seq else row.last
        book.rows[holder.ticket] = Row(holder.ticket, sender, holder.inc, row.floor, last)
        book.running[holder.ticket] = {holder: self.ctx.now + self.lease}
        if new:
            self.changed()
        self.councils.answer(sender, Vouch(m.council, m.nonce, self.councils.me.member))

    def may_vouch(self, book: Book, holder: Holder) -> bool:
        """One seat of a ticket at a time, never an older incarnation, never one in two hands (rule C3)."""
        return self.newest(book.row(holder.ticket), holder) and not self.taken(book, holder)

    def newest(self, row: Row, holder: Holder) -> bool:
        if holder.inc < row.floor or holder.inc < row.top:
            return False
        return holder.inc > row.top or holder.member == row.owner

    def taken(self, book: Book, holder: Holder) -> bool:
        running = book.running.get(holder.ticket, {})
        return any(until > self.ctx.now for other, until in running.items() if other != holder)

    def on_read(self, sender: MemberId, m: Read) -> None:
        book = self.of(m.council, sender)
        if book is not None:
            self.councils.answer(sender, Seats(m.council, m.nonce, self.councils.me.member, book.table(self.ctx.now)))

    def on_claim(self, sender: MemberId, m: Claim) -> None:
        book = self.of(m.council, sender)
        if book is None or not self.new_era(book, m.era) or not self.vacant(book, m.tickets):
            return
        book.era = max(book.era, m.era)
        for ticket in m.tickets:
            row = book.row(ticket)
            book.rows[ticket] = row._replace(floor=max(row.floor, floor_of(m.era)))
        self.changed()
        self.councils.answer(sender, Agree(m.council, m.nonce, self.councils.me.member))

    def new_era(self, book: Book, era: int) -> bool:
        """An era is claimed once (rule C4)."""
        return era > book.era

    def vacant(self, book: Book, tickets: Iterable[int]) -> bool:
        """Nobody may own one of these (rule C4)."""
        now = self.ctx.now
        return not any(until > now for ticket in tickets for until in book.running.get(ticket, {}).values())

    def on_vacate(self, sender: MemberId, m: Vacate) -> None:
        """The owner is out already, so the vouch ends at once (rule C12)."""
        book, holder = self.book, Holder(sender, *m.tenure)
        if book is None or holder not in book.running.get(holder.ticket, {}):
            return
        del book.running[holder.ticket][holder]
        row = book.row(holder.ticket)
        last = max(row.last, (holder.inc, m.seq)) if m.seq else row.last
        book.rows[holder.ticket] = row._replace(floor=max(row.floor, holder.inc + 1), last=last)
        self.changed()
