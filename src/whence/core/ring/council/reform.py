"""How the council renews itself: who should be in the next one, and the one decree of Paxos that decides it. Rules C7,
C8 and C10 (L. Lamport, The Part-Time Parliament, 1998)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whence.core.clock import MemberId, address_of
from whence.core.ring.context import Context, Timer
from whence.core.ring.council.known import Councils
from whence.core.ring.council.voting import Book, Voting, merged
from whence.core.ring.messages import (
    Accept,
    Accepted,
    Attend,
    Ballot,
    Begin,
    Council,
    Higher,
    Known,
    Ledger,
    Missing,
    Prepare,
    Promise,
    Volunteer,
    Voter,
)


@dataclass
class Proposal:
    """One attempt to decide the next council."""

    council: int
    ballot: Ballot
    want: tuple[Voter, ...]
    expected: int
    """Promises after which there is nobody else to wait for."""
    promises: dict[MemberId, Promise] = field(default_factory=dict)
    accepted: set[MemberId] = field(default_factory=set)
    value: tuple[Voter, ...] = ()
    table: Ledger = field(default_factory=lambda: Ledger(0, (), ()))


class Reform:
    """A voter's part in the choice of the next council."""

    SUSPECT = 2.5
    """Rounds of silence after which a voter is not proposed again (rule C10). A suspicion is never a proof."""
    FRESH = 1.5
    """Rounds for which a volunteer counts as there."""
    MAX_VOLUNTEERS = 64

    def __init__(self, ctx: Context, councils: Councils, voting: Voting) -> None:
        self.ctx = ctx
        self.councils = councils
        self.voting = voting
        self.willing = True
        """This process may be asked to vote. A member that may only receive is not, and tells nobody of councils."""
        self.leaving = False
        """This process wants to be replaced."""
        self.proposal: Proposal | None = None
        self.heard: dict[MemberId, int] = {}
        self.gone: dict[MemberId, None] = {}
        """Voters that want to be replaced."""
        self.volunteers: dict[Voter, int] = {}
        self.urge = 0
        """Rounds for which another council was wanted: the next voter proposes a round later."""
        self.highest = 0
        """The highest ballot number heard of."""

    @property
    def _round(self) -> int:
        return self.ctx.config.round_ns

    # --- a round ---

    def attend(self) -> None:
        """Voters show that they are there; others, that they could be."""
        ctx, councils, voting = self.ctx, self.councils, self.voting
        if councils.moved is not None:
            self._volunteer(ctx.config.window)
            self.consider()
        elif councils.seated:
            book = voting.book
            for voter in councils.members():
                if voter != councils.me.member:
                    councils.tell(voter, Attend(book.number if book else 0, councils.me.member, self.leaving))
            self.consider()
            if book is None or book.number < councils.now.number:
                for each in dict.fromkeys((*councils.now.voters, *councils.now.before)):
                    councils.tell(each.member, Missing(councils.now.number))
        elif self.willing and not self.leaving and councils.now.number:
            self._volunteer(ctx.config.window)

    def _volunteer(self, size: int) -> None:
        """A full council needs to hear of a few only; one that has lost a voter, and one in which an earlier life of
        this process sits, of everybody."""
        councils, ctx = self.councils, self.ctx
        mine = Volunteer(councils.moved or councils.me)
        homes = [address_of(voter) for voter in councils.members()]
        if len(homes) < size or address_of(ctx.me) in homes:
            councils.tell_all(mine)
        elif ctx.rng.random() < 0.25:
            councils.tell(ctx.rng.choice(councils.members()), mine)

    def on_attend(self, sender: MemberId, m: Attend) -> None:
        if m.voter in self.councils.members():
            self.heard[m.voter] = self.ctx.now
            if m.leaving:
                self.gone[m.voter] = None
        book = self.voting.book
        if book is not None and m.council < book.number and not self.voting.silent:
            self._tell_begin(sender, book)

    def _tell_begin(self, to: MemberId, book: Book) -> None:
        self.councils.answer(to, Begin(book.council, book.table(self.ctx.now)))

    def on_volunteer(self, sender: MemberId, m: Volunteer) -> None:
        if len(self.volunteers) >= self.MAX_VOLUNTEERS:
            self.volunteers = {v: at for v, at in self.volunteers.items() if self.ctx.now - at < self._round}
        if len(self.volunteers) < self.MAX_VOLUNTEERS:
            self.volunteers[m.as_voter] = self.ctx.now
        for voter in self.councils.now.voters:
            # another life at the address of a voter without a disk: suspect the voter at once
            if not voter.disk and voter != m.as_voter and address_of(voter.member) == address_of(sender):
                self.heard.pop(voter.member, None)

    def on_missing(self, sender: MemberId, m: Missing) -> None:
        """A voter has not heard how its council begins. One of the council before finds out again (rule C8)."""
        book, councils = self.voting.book, self.councils
        if book is None or self.voting.silent:
            return
        if book.number >= m.council:
            self._tell_begin(sender, book)
        elif book.number == m.council - 1 and self.proposal is None and councils.now.number == m.council:
            self.propose(book, councils.now.voters)

    # --- whom to propose (rule C10) ---

    def present(self, book: Book) -> list[Voter]:
        """The voters that are not suspected."""
        now, me = self.ctx.now, self.councils.me.member
        limit = int(self.SUSPECT * self._round)
        heard = self.heard
        return [v for v in book.council.voters if v.member == me or now - heard.get(v.member, now - limit) < limit]

    def wanted(self, book: Book, present: Sequence[Voter]) -> tuple[Voter, ...]:
        ctx = self.ctx
        me = self.councils.me
        stay = [v for v in present if v.member not in self.gone and not (self.leaving and v == me)]
        if self.councils.moved is not None:
            stay = [self.councils.moved if v == me else v for v in stay]
        fresh = int(self.FRESH * self._round)
        new = [v for v, at in self.volunteers.items() if ctx.now - at < fresh and self.eligible(v, book)]
        new.sort(key=lambda v: (not v.disk, ctx.rng.random()))
        want = [*stay, *new[: max(0, ctx.config.window - len(stay))]]
        if want and not want[0].disk:
            want.sort(key=lambda v: not v.disk)  # the first one should be one that can come back
        return tuple(want)

    def eligible(self, voter: Voter, book: Book) -> bool:
        return voter not in book.council.voters

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
        if [v.member for v in present].index(me) < self.urge:
            self.propose(book, want, len(present))

    # --- the proposer ---

    def propose(self, book: Book, want: tuple[Voter, ...], expected: int = 0) -> None:
        ballot = Ballot(max(book.ballot.number, self.highest) + 1, self.councils.me.member)
        self.proposal = Proposal(book.number, ballot, want, expected or len(book.council.voters))
        for voter in book.council.voters:
            self.councils.tell(voter.member, Prepare(book.number, ballot))
        self.ctx.after(self.ctx.config.answer_ns, Timer.PREPARED)
        self.ctx.after(3 * self.ctx.config.answer_ns, Timer.PROPOSAL)

    def give_up(self) -> None:
        self.proposal = None
        self.ctx.stop(Timer.PREPARED, Timer.PROPOSAL)

    def on_higher(self, m: Higher) -> None:
        self.highest = max(self.highest, m.ballot.number)

    def on_promise(self, m: Promise) -> None:
        p = self.proposal
        if p is None or (p.council, p.ballot) != (m.council, m.ballot) or p.value:
            return
        p.promises[m.voter] = m
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
        for voter in self.asked(p, book):
            self.councils.tell(voter, Accept(p.council, p.ballot, p.value))

    def decree(self, p: Proposal) -> tuple[Voter, ...]:
        """What the highest ballot among the promises has accepted, if anything (Paxos)."""
        accepted = [promise.accepted for promise in p.promises.values() if promise.accepted is not None]
        return max(accepted)[1] if accepted else p.want

    def asked(self, p: Proposal, book: Book) -> Sequence[MemberId]:
        return list(p.promises)

    def on_accepted(self, m: Accepted) -> None:
        p, book = self.proposal, self.voting.book
        if p is None or (p.council, p.ballot) != (m.council, m.ballot) or not p.value:
            return
        p.accepted.add(m.voter)
        old = self.councils.recent.get(p.council, book.council.voters if book and book.number == p.council else ())
        if self.councils.enough(old, p.accepted):
            self.give_up()
            begin = Begin(Council(p.council + 1, p.value, old), p.table)
            for voter in dict.fromkeys((*p.value, *old)):
                self.councils.tell(voter.member, begin)

    # --- the acceptor ---

    def on_prepare(self, sender: MemberId, m: Prepare) -> None:
        ctx, book = self.ctx, self.voting.book
        if book is None or book.number != m.council or self.voting.silent:
            if self.councils.now.number > m.council:
                self.councils.answer(sender, Known(self.councils.now))
            return
        if m.ballot <= book.ballot:
            self.councils.answer(sender, Higher(m.council, book.ballot))
            return
        book.ballot = m.ballot
        if m.ballot.by != self.councils.me.member:
            self.urge = -1  # one at a time
        if book.accepted is None:
            self.voting.still_until = ctx.now + ctx.config.answer_ns * 3 // 2
        self.voting.changed()
        mine = self.councils.me.member
        promise = Promise(m.council, m.ballot, mine, book.accepted, book.table(ctx.now))
        self.councils.answer(sender, promise)

    def on_accept(self, sender: MemberId, m: Accept) -> None:
        book, voting = self.voting.book, self.voting
        if book is None or book.number != m.council or not self.may_accept(book, m.ballot):
            return
        book.ballot, book.accepted = m.ballot, (m.ballot, m.voters)
        voting.still_until, voting.closed_at = None, self.ctx.now
        voting.changed()
        self.councils.answer(sender, Accepted(m.council, m.ballot, self.councils.me.member))

    def may_accept(self, book: Book, ballot: Ballot) -> bool:
        """Only who has stood still since it promised this very ballot: its table is the one that was read."""
        return book.ballot == ballot and (book.accepted is not None or self.voting.still_until is not None)

    def on_begin(self, sender: MemberId, m: Begin) -> None:
        book = self.voting.book
        if not self.councils.told(sender, m.now):
            return
        if self.councils.me.member in [v.member for v in m.now.voters] and (book is None or book.number < m.now.number):
            self.give_up()
            self.heard = dict.fromkeys((voter.member for voter in m.now.voters), self.ctx.now)
            self.gone = {}
            self.voting.begin(m.now, m.table)
