"""What the parts of a ring share: outputs and states, the edge to the successor, the table of tickets, and the context:
who this process is, the tenure it has, the time, its timers and its outputs.

A part is a small class with the state of one job. Its constructor takes the context and the parts it builds on; a part
changes its own state only, and asks others to change theirs. At the end of the protocol's own file (`neighbours.py`,
`council.py`) one class composes the parts, and says which message and which timer goes to which of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from typing import Protocol

import msgspec

import whence.core.ring.messages as msg
from whence.core.clock import NEVER, Entry, Incarnation, MemberId, Send
from whence.core.clock.bounds import keep_last
from whence.core.clock.logs import Lamport, LogReport, LogRow, Logs
from whence.core.ring.config import RingConfig, between, distance


class State(Enum):
    """Where a process stands in the ring."""

    OUT = "out"
    """Without a ticket and not trying for one at the moment."""
    FOUNDING = "founding"
    """The designated founder in quarantine."""
    JOINING = "joining"
    """Looking for a coordinator that grants a ticket."""
    PROBATION = "probation"
    """Granted a ticket, not yet vouched for (fault-free: the successor has not yet answered); not an owner."""
    OWNER = "owner"
    """Coordinator: owns the ticket."""
    LEAVING = "leaving"
    """Has stopped publishing and asked its predecessor to take over; no longer an owner."""


class Vote(msgspec.Struct, frozen=True, array_like=True):
    """What a voter has to remember, and nothing that depends on a clock (rule C3)."""

    council: msg.Council
    ballot: msg.Ballot
    accepted: tuple[msg.Ballot, tuple[msg.Voter, ...]] | None
    """The next council that it has accepted, and in which ballot."""
    table: msg.Ledger
    """Without seats: for a lease after a restart a voter says nothing (rule C9)."""
    rested: bool = False
    """No vouch ran when this was written, and whoever gives one writes again."""


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What a process remembers of the council across its lives, if it has a disk. Some KB at most."""

    voter: MemberId
    known: msg.Council
    vote: Vote | None


class _Output(msgspec.Struct, frozen=True, gc=False):
    pass


class Announce(_Output, frozen=True):
    """PrCast it."""

    news: msg.RingNews


class _Tenure(_Output, frozen=True):
    ticket: int
    inc: Incarnation


class Granted(_Tenure, frozen=True):
    """A ticket is assigned, but not yet owned. `closes`: the last event known to have been published on it before."""

    closes: Entry


class BecameOwner(_Tenure, frozen=True):
    """From now on this process may publish under that incarnation."""


class Lost(_Tenure, frozen=True):
    """The ticket is gone without a leave; nothing may be published under that incarnation any more."""

    reason: str


class Released(_Tenure, frozen=True):
    """The graceful leave is complete."""


class Remember(_Output, frozen=True):
    """What this process remembers as a voter has changed: where there is a disk, have the member's checkpoint on it
    before anything of this step leaves the process (rule C3)."""


class Excluded(_Output, frozen=True):
    """For the record: this process took over the tickets; `ackers` agreed."""

    tickets: tuple[int, ...]
    term: int
    ackers: tuple[MemberId, ...] = ()


class Rejected(_Output, frozen=True):
    """A request for a ticket, or a founding, was refused. `coordinate` goes on trying; a founding does not."""

    reason: str
    founding: bool = False


class Frozen(_Output, frozen=True):
    """For the record: the successor neither answers nor can be excluded; no newcomer is admitted meanwhile (rule
    17)."""

    reason: str


class Thawed(_Output, frozen=True):
    """For the record: the end of `Frozen`."""


_Records = Excluded | Rejected | Frozen | Thawed
RingOutput = Send | Announce | Granted | BecameOwner | Lost | Released | Remember | _Records


Holders = tuple[msg.Holder, ...]

MAX_HELD = 8  # lists an exclusion may need a quorum of; beyond it the last one is repeated until it is adopted


class Logbook(Protocol):
    """A voter's part in total order (`ring.logs`), as the council needs it."""

    begun: Logs

    def begin(self, council: int, logs: Logs) -> None: ...

    def found(self, generation: int) -> Logs: ...

    def now(self) -> Logs: ...

    def save(self) -> None: ...

    def lacking(self, rows: Iterable[LogRow], holder: MemberId | None) -> bool: ...

    def vouched(self, holder: msg.Holder, seq: int, clock: int) -> None: ...

    def report(self) -> LogReport | None: ...

    def round(self) -> None: ...


class Edge:
    """From this process to `succ` (itself when alone), and what `succ` may hold as its L. Rule 1: until the successor
    has answered, the edge is pending. Rule 13: every R sent since the last one known to be adopted is kept. Rule 15: a
    takeover is declared until the successor has answered."""

    def __init__(self, succ: msg.Holder, held: Iterable[Holders], takeover: tuple[msg.Tenure, ...] = ()) -> None:
        self.succ = succ
        self.takeover = takeover
        self.start: int | None = None  # nonce of the first UPDATE on this edge
        self.acked = False  # the successor has accepted this process as its predecessor
        self.waiting: int | None = None  # nonce of the last UPDATE, while unanswered
        self.refused = 0
        """CLEAVEs of the successor up to this nonce were refused: a copy of one must not be served later."""
        self._held: list[tuple[int, Holders]] = [(0, R) for R in dict.fromkeys(held)]

    @classmethod
    def alone(cls, me: msg.Holder) -> Edge:
        """The ring of one: nobody vouches, nobody can exclude (rule 8)."""
        edge = cls(me, [()])
        edge.acked = True
        return edge

    @property
    def held(self) -> tuple[Holders, ...]:
        """Every list that the successor may hold as its L."""
        return tuple(dict.fromkeys(R for _, R in self._held))

    @property
    def last(self) -> Holders | None:
        """The R that was sent last on this edge; None: none yet."""
        sent, R = self._held[-1] if self._held else (0, ())
        return R if sent else None

    def restored(self) -> Edge:
        """The edge that was here before a newcomer, which has declined."""
        self.waiting = None
        return self

    def offer(self, nonce: int, R: Holders) -> Holders:
        """An UPDATE goes out; returns the R it must carry: the one before, while that is unanswered, since every
        further list is one more in which an exclusion needs a quorum."""
        if self.start is None:
            self.start = nonce
        sent, last = self._held[-1] if self._held else (0, ())
        repeat = self.waiting is not None or len(self._held) >= MAX_HELD
        self.waiting = nonce
        if sent and repeat:
            return last
        if not sent or last != R:
            self._held.append((nonce, R))
        return R

    def answered(self, nonce: int, adopted: int) -> bool:
        """ACKUPDATE arrived; returns whether the UPDATE that was waited for is answered."""
        for at in range(len(self._held) - 1, -1, -1):
            first = self._held[at][0]
            if 0 < first <= adopted:
                del self._held[:at]
                break
        if self.start is not None and nonce >= self.start:
            self.takeover = ()
        if self.waiting is not None and nonce >= self.waiting:
            self.waiting = None
            return True
        return False


MAX_EPOCH_JUMP = 1024
"""By how much the epochs that one message names may be above all known ones. Higher: a process that was away for more
foundings still understands the ring. Lower: fewer lies are needed to use up all epochs. There are 2^16."""
MAX_TERM_JUMP = 1 << 20
"""Likewise for terms, which rise with each exclusion. There are 2^24."""
LAST_ERA = (msg.MAX_EPOCH << msg.ERA_SHIFT) - MAX_TERM_JUMP
"""No era above is believed: what this process adds to one that it believes never passes 64 bits."""


class _Promised(msgspec.Struct, frozen=True):
    """Given by ACKCOORD: to vouch for nobody on these tickets below `floor`."""

    excluder: msg.Holder
    nonce: int
    tickets: frozenset[int]
    floor: int


def floor_of(era: int) -> int:
    """The first incarnation of an era."""
    return era << msg.ERA_SHIFT | 1


class Table:
    """Cview and the incarnations: what a process knows of each ticket, for its whole life, coordinator or not.

    Rules 6, 12 and 15: the table travels with ACKCJOIN and CLEAVE and is merged; an incarnation below a ticket's floor,
    or below a newer one, is over. Everything in it only ever grows, so news may come late, twice or in any order. The
    one exception is a promise given to an excluder: it acts as a floor, but is taken back when the exclusion is known
    to have failed."""

    MAX_PROMISES = 64  # excluders whose attempts may be open at a time; older promises become floors

    def __init__(self, tickets: int) -> None:
        self.tickets = tickets
        self.owner: list[MemberId] = [""] * tickets
        self.top = [0] * tickets
        self.floor = [0] * tickets
        self.last: list[Entry] = [NEVER] * tickets
        self.era = 0
        self.anchor = 0  # an era known from a snapshot, a disk or a voter
        self.promises: dict[MemberId, _Promised] = {}
        self._silent: dict[int, tuple[int, int]] = {}

    # --- what is over ---

    def reached(self, era: int) -> None:
        """The ring has come at least so far, says somebody who is trusted: jumps are measured from there, too."""
        self.anchor = max(self.anchor, era)

    def over(self, holder: msg.Holder) -> bool:
        """The tenure has ended, or this process has promised to take it as ended."""
        if self.ended(holder):
            return True
        return any(holder.ticket in p.tickets and holder.inc < p.floor for p in self.promises.values())

    def ended(self, holder: msg.Holder) -> bool:
        """The tenure has ended, for good: it was excluded or released, or there is a newer one."""
        return holder.inc < self.floor[holder.ticket] or holder.inc < self.top[holder.ticket]

    def end(self, ticket: int, floor: int) -> None:
        """Everything below `floor` on the ticket is over."""
        if floor > self.floor[ticket]:
            self.floor[ticket] = floor
            self.saw(floor >> msg.ERA_SHIFT)
            if self.top[ticket] < floor:
                self.owner[ticket] = ""

    def out(self, ticket: int, floor: int, out_at: int) -> None:
        """Everything below `floor` on the ticket was excluded or released, and vouches for nobody after `out_at`."""
        self.end(ticket, floor)
        known, at = self._silent.get(ticket, (0, 0))
        if floor > known or (floor == known and out_at < at):
            self._silent[ticket] = (floor, out_at)

    def silent(self, holder: msg.Holder, now: int) -> bool:
        """The tenure is certainly out: it vouches for nobody any more."""
        floor, out_at = self._silent.get(holder.ticket, (0, 0))
        return holder.inc < floor and now >= out_at

    def promise(self, excluder: msg.Holder, nonce: int, tickets: Iterable[int], era: int) -> None:
        """Agree to an exclusion. A new attempt of the same excluder voids its earlier one (rule 18)."""
        self.promises.pop(excluder.member, None)
        while len(self.promises) >= self.MAX_PROMISES:
            self._keep_for_good(next(iter(self.promises)))
        self.promises[excluder.member] = _Promised(excluder, nonce, frozenset(tickets), floor_of(era))
        self.saw(era)

    def promised(self, excluder: msg.Holder) -> int:
        """The nonce of what was promised to it (0: nothing). What was promised to an earlier tenure of it is void."""
        kept = self.promises.get(excluder.member)
        if kept is not None and kept.excluder != excluder:
            del self.promises[excluder.member]
            return 0
        return kept.nonce if kept is not None else 0

    def void_promises(self, now: int) -> None:
        """Who is certainly out makes no use of a promise any more."""
        for kept in list(self.promises.values()):
            if self.silent(kept.excluder, now):
                del self.promises[kept.excluder.member]

    def cancel(self, excluder: MemberId, nonce: int) -> None:
        """The attempt failed: its acks are never used."""
        kept = self.promises.get(excluder)
        if kept is not None and kept.nonce == nonce:
            del self.promises[excluder]

    def committed(self, excluder: MemberId, floor: int) -> None:
        """The excluder announced its exclusion: what was promised to it holds for good."""
        kept = self.promises.get(excluder)
        if kept is not None and kept.floor <= floor:
            self._keep_for_good(excluder)

    def _keep_for_good(self, excluder: MemberId) -> None:
        kept = self.promises.pop(excluder)
        for ticket in sorted(kept.tickets):
            self.end(ticket, kept.floor)

    # --- what is known ---

    @property
    def epoch(self) -> int:
        """The highest epoch known to have been founded."""
        return self.era >> msg.ERA_SHIFT

    def plausible(self, era: int) -> bool:
        """Whether an era that somebody else names can be true: it is no further than one jump away."""
        known = max(self.era, self.anchor)
        epoch, known_epoch = era >> msg.ERA_SHIFT, known >> msg.ERA_SHIFT
        term = msg.term_of(known) if epoch == known_epoch else 0
        return (
            era <= LAST_ERA
            and epoch <= known_epoch + MAX_EPOCH_JUMP
            and era <= epoch << msg.ERA_SHIFT | term + MAX_TERM_JUMP
        )

    def saw(self, era: int) -> None:
        self.era = max(self.era, era)

    def note(self, holder: msg.Holder, seq: int = 0) -> None:
        """The tenure exists; whether it is an owner (and not a newcomer on probation) is not known."""
        if holder.inc > self.top[holder.ticket]:
            self.top[holder.ticket] = holder.inc
            self.owner[holder.ticket] = ""
            self.saw(holder.inc >> msg.ERA_SHIFT)
        if seq:
            self.last[holder.ticket] = max(self.last[holder.ticket], (holder.inc, seq))

    def owns(self, holder: msg.Holder) -> None:
        """The tenure is an owner, unless it is known to be over."""
        if not self.over(holder):
            self.note(holder)
            self.owner[holder.ticket] = holder.member

    def forget(self, holder: msg.Holder) -> None:
        """The tenure is no owner any more (its incarnation stays used up)."""
        if self.owner[holder.ticket] == holder.member and self.top[holder.ticket] <= holder.inc:
            self.owner[holder.ticket] = ""

    def forget_owners(self) -> None:
        self.owner = [""] * self.tickets

    def grant(self, ticket: int, least: int = 0) -> int:
        """A new incarnation for the ticket, above all known ones: count + 1."""
        inc = max(self.top[ticket] + 1, self.floor[ticket], least)
        self.top[ticket] = inc
        self.owner[ticket] = ""
        return inc

    def rows(self, tickets: Iterable[int] | None = None) -> tuple[msg.TicketRow, ...]:
        """For ACKCJOIN, CLEAVE and ACKCOORD: what is known of these tickets (all)."""
        wanted = range(self.tickets) if tickets is None else tickets
        return tuple(
            msg.TicketRow(t, self.owner[t], self.top[t], self.floor[t], self.last[t])
            for t in wanted
            if self.top[t] or self.floor[t] or self.last[t] != NEVER
        )

    def merge(self, rows: Iterable[msg.TicketRow]) -> None:
        """Take over what another one knows."""
        for row in rows:
            self.end(row.ticket, row.floor)
            if row.top > self.top[row.ticket]:
                self.note(msg.Holder(row.owner, row.ticket, row.top))
                if row.owner:
                    self.owns(msg.Holder(row.owner, row.ticket, row.top))
            elif row.owner and row.top == self.top[row.ticket] >= self.floor[row.ticket]:
                self.owner[row.ticket] = self.owner[row.ticket] or row.owner
            self.last[row.ticket] = max(self.last[row.ticket], row.last)

    # --- Cview ---

    def coordinators(self) -> dict[int, MemberId]:
        """Cview: ticket -> owner."""
        return {ticket: owner for ticket, owner in enumerate(self.owner) if owner}

    def next_owner(self, start: int, after: int) -> msg.Holder | None:
        """The next known coordinator beyond ticket `after`, walking down from ticket `start` (Algorithm 4)."""
        beyond = distance(start, after, self.tickets)
        found = [(distance(start, t, self.tickets), t) for t, owner in enumerate(self.owner) if owner and t != start]
        for far, ticket in sorted(found):
            if far > beyond:
                return msg.Holder(self.owner[ticket], ticket, self.top[ticket])
        return None


SEATED = (State.PROBATION, State.OWNER, State.LEAVING)
"""The states with a ticket."""


class Timer(StrEnum):
    """What a ring waits for. There is one of each; a stale one finds nothing to do. Timers that are due at the same
    moment go off in the order of their names."""

    # founding and applying: every protocol
    QUARANTINE = "quarantine"
    LOOK = "look"
    APPLY = "apply"
    ANSWER = "answer"
    # the neighbourhood protocol
    ROUND = "round"
    UPDATE = "update"
    EXCLUDE = "exclude"
    ACKS = "acks"
    TEMP = "temp"
    FROZEN = "frozen"
    NEWCOMER = "newcomer"
    PROBATION = "probation"
    LEAVE = "leave"
    PATIENCE = "patience"
    # the council
    COUNCIL = "council"
    POLL = "poll"
    READ = "read"
    PREPARED = "prepared"
    PROPOSAL = "proposal"


BUSY = "busy"
"""The reason of a REJECT by a coordinator that will serve CJOINs again soon."""


class Context:
    """One process's place in the ring."""

    MAX_DONE = 4096  # tenures remembered as taken or declined

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.table = Table(config.tickets)
        self.state = State.OUT
        self.holder: msg.Holder | None = None  # this process and its tenure (rule 4); None: it has no ticket
        self.pred: msg.Holder | None = None
        self.edge: Edge | None = None
        self.wanted = False  # `coordinate` was called: after a loss, apply again
        self.resigning = False  # `resign` was called: stop publishing now, leave when possible (rule 2)
        self.done: dict[msg.Tenure, None] = {}
        """Tenures this process has had or declined: it never takes one of them again."""
        self.seq = 0  # the last event published under the tenure
        self.turned_away = -1  # when somebody was last refused because all tickets are taken
        self.lamport = Lamport()
        """The clock of the total order (docs/total.md); without one it stands at 0."""
        self.now = 0
        self.out: list[RingOutput] = []
        self.inbox: list[msg.RingMessage] = []  # what this process tells itself: received before the step ends
        self.timers: dict[Timer, int] = {}
        self.lasting: tuple[Timer, ...] = ()  # timers that do not end with a tenure
        self.when_seated: list[Callable[[], None]] = []  # what the parts do when a ticket was granted
        self.when_vacated: list[Callable[[], None]] = []  # what the parts do, and forget, when the ticket is given up
        self.when_lost: list[Callable[[], None]] = []  # what they do before that, when it is not given up but lost
        self.when_stopped: list[Callable[[], None]] = []  # what they forget with the timers of a tenure or a request
        self._nonce = 0

    def send(self, to: MemberId, message: msg.RingMessage) -> None:
        self.out.append(Send(to, message, reliable=True))

    def say(self, output: RingOutput) -> None:
        self.out.append(output)

    def refuse(self, to: MemberId, nonce: int, busy: bool) -> None:
        """No ticket from here, and why. `busy`: there may be one soon."""
        known, owner = self.table.coordinators(), self.state in (State.OWNER, State.LEAVING)
        if not owner:
            reason = "not a coordinator"
        elif len(known) >= self.config.tickets:
            reason, self.turned_away = "full", self.now
        elif self.state is State.LEAVING or self.resigning:
            reason = "leaving"
        else:
            reason = BUSY if busy else "no free ticket here"
        self.send(to, msg.Reject(nonce, reason, owner, self.table.era, tuple(known.items())))

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def after(self, ns: int, timer: Timer) -> None:
        self.timers[timer] = self.now + ns

    def stop(self, *timers: Timer) -> None:
        for timer in timers:
            self.timers.pop(timer, None)

    def stop_all(self) -> None:
        self.timers = {timer: at for timer, at in self.timers.items() if timer in self.lasting}
        for act in self.when_stopped:
            act()

    # --- the tenure ---

    def addressed(self, tenure: msg.Tenure) -> bool:
        """A message for this tenure is for the present one (rule 4)."""
        return self.holder is not None and tenure == self.holder.tenure

    def sitting(self) -> tuple[msg.Holder, Edge]:
        """The tenure and the edge to the successor, where there must be one."""
        assert self.holder is not None and self.edge is not None
        return self.holder, self.edge

    @property
    def alone(self) -> bool:
        return self.edge is not None and self.edge.succ == self.holder

    def coordinated(self) -> list[int]:
        """S_p: the own ticket and those down to the successor's."""
        if self.holder is None or self.edge is None or self.state not in (State.OWNER, State.LEAVING):
            return []
        return [self.holder.ticket, *between(self.holder.ticket, self.edge.succ.ticket, self.config.tickets)]

    def free(self) -> list[int]:
        """The tickets that this coordinator can grant: never its own (rule 7)."""
        return self.coordinated()[1:]

    def grant(self, to: MemberId, wish: int, least: Mapping[int, int] | None = None) -> msg.Holder:
        """A free ticket, the one wished for if possible, under a new incarnation. `least`: the lowest one that may be
        used on a ticket."""
        free = self.free()
        ticket = wish if wish in free else self.rng.choice(free)
        return msg.Holder(to, ticket, self.table.grant(ticket, (least or {}).get(ticket, 0)))

    def finish(self, tenure: msg.Tenure) -> None:
        """Never take this tenure (again). The oldest are forgotten: their grants are long below every floor."""
        self.done[tenure] = None
        keep_last(self.done, self.MAX_DONE)

    def sit(self, holder: msg.Holder) -> None:
        """A ticket is assigned: not yet an owner."""
        self.holder, self.state = holder, State.PROBATION
        self.finish(holder.tenure)
        self.pred = None
        self.edge = Edge.alone(holder)
        self.seq = 0
        self.stop_all()
        for act in self.when_seated:
            act()
        self.say(Granted(holder.ticket, Incarnation.unpack(holder.inc), self.table.last[holder.ticket]))

    def own(self) -> None:
        """From now on an owner."""
        holder, _ = self.sitting()
        self.state = State.OWNER
        self.table.owns(holder)
        self.say(BecameOwner(holder.ticket, Incarnation.unpack(holder.inc)))
        self.say(Announce(msg.JoinedNews(holder)))

    def vacate(self) -> tuple[int, Incarnation]:
        """Give up the ticket; returns which it was."""
        holder, _ = self.sitting()
        for act in self.when_vacated:
            act()
        self.table.forget(holder)
        self.holder = self.pred = self.edge = None
        self.state = State.OUT
        self.stop_all()
        return holder.ticket, Incarnation.unpack(holder.inc)
