"""The voter's part in total order (docs/total.md, rules T3, T5, T8, T10, T11, T13 and T14): what it holds of each log,
the closing of logs whose owners are gone (L. Lamport, The Part-Time Parliament; ballot 0 is the owner's), and what one
council hands over to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import whence.core.ring.messages as msg
from whence.core.clock import MemberId
from whence.core.clock.event import LAST, Log
from whence.core.clock.logs import NO_TURN, LogReport, LogRow, Logs, Turn
from whence.core.ring.context import Context, Remember
from whence.core.ring.council import CouncilRing, Councils, Reform, Voting

WRITE_AHEAD = 1 << 16
"""How far ahead of the clock the disk has it (rule T11)."""
LAST_WORDS = 3
"""Rounds that a last tick has to be decided in, before its log is closed without."""


class Archive(Protocol):
    """The frames, and what is known of logs: the order layer of this member."""

    def ready(self) -> bool:
        """It has the state of the total order (rule T12)."""
        ...

    def logs(self) -> Iterable[Log]:
        """The logs of which it has frames."""
        ...

    def holds(self, log: Log) -> int: ...

    def want(self, log: Log, upto: int, now: int, holder: MemberId | None = None) -> None: ...

    def closed(self, log: Log) -> int | None: ...

    def ended(self, log: Log) -> int | None: ...

    def tick(self, log: Log) -> tuple[int, int]:
        """The best tick known: clock and seq."""
        ...

    def ticked(self, log: Log, seq: int, clock: int) -> None: ...

    def forgettable(self, council: int) -> tuple[dict[int, int], int]: ...

    def known(self, generation: int) -> Logs:
        """All that this member knows, as rows: what a generation of councils begins with that it founds alone."""
        ...


@dataclass
class _Closing:
    """One attempt to close a log (rule T8)."""

    council: int
    turn: Turn
    rows: dict[MemberId, LogRow] = field(default_factory=dict)
    end: int | None = None


class LogKeeper:
    """This process as a keeper of logs; without a book of `Voting` it keeps none."""

    MAX_ATTEMPTS = 1024

    def __init__(self, ctx: Context, councils: Councils, voting: Voting, reform: Reform, archive: Archive) -> None:
        self.ctx = ctx
        self.councils = councils
        self.voting = voting
        self.reform = reform
        self.archive = archive
        self.lamport = ctx.lamport
        self.number = 0  # of the council that the rows belong to
        self.rows: dict[Log, LogRow] = {}
        self.floors: dict[int, int] = {}
        self.dropped = 0
        self.begun = Logs()
        """What the council began with, as it was decided: whoever begins late gets this, not what is known now."""
        self.whole = False  # it holds what its council began with
        self.changed = True  # since the last report
        self.reported = -1  # the clock of the last report
        self.attempts: dict[Log, _Closing] = {}
        self.urge: dict[Log, int] = {}  # rounds for which a log should be closed: the next voter tries a round later
        self._highest: dict[Log, int] = {}  # ballots heard of
        self._serial = 0
        self._written = 0

    # --- what it keeps, and on the disk (rule T11) ---

    def now(self) -> Logs:
        floors = tuple(sorted(self.floors.items()))
        return Logs(self.lamport.now, tuple(self.rows.values()), floors, self.dropped, self.begun.start)

    def _put(self, row: LogRow) -> None:
        self.rows[row.log], self.changed = row, True

    def _row(self, log: Log) -> LogRow:
        return self.rows.get(log) or LogRow(*log)

    def save(self) -> None:
        """On the disk before anything of this step leaves."""
        self._written = self.lamport.now + WRITE_AHEAD
        self.ctx.say(Remember())

    def resume(self, council: int, now: Logs, begun: Logs) -> None:
        """Back with a disk."""
        self.number, self.begun = council, begun
        self._take(now)

    def _take(self, logs: Logs) -> None:
        self.rows, self.floors = {row.log: row for row in logs.rows}, dict(logs.floors)
        self.dropped, self.whole, self.changed = logs.dropped, False, True
        self.lamport.saw(logs.clock)
        self.attempts, self.urge, self._highest = {}, {}, {}

    def begin(self, council: int, logs: Logs) -> None:
        """Rule T10: a council begins with what a quorum of the last one knew."""
        self.number, self.begun = council, logs
        self._take(logs)

    def found(self, generation: int) -> Logs:
        """Rule C0: a council of one, by decision. Rule T14: it goes on from here."""
        return self.archive.known(generation)._replace(clock=self.lamport.now)

    # --- holding (rules T3 and T10) ---

    def lacking(self, rows: Iterable[LogRow], holder: MemberId | None) -> bool:
        """Whether it lacks anything of what these speak of; it asks for that."""
        lacking = False
        for row in rows:
            if row.inc >= self.floors.get(row.ticket, 0) and self.archive.holds(row.log) < row.needs:
                lacking = True
                self.archive.want(row.log, row.needs, self.ctx.now, holder)
        return lacking

    def speaks(self) -> bool:
        """It may speak of logs now (rule T5): not while it stands still, is silent, or has let the next council begin;
        not before it holds what its own began with."""
        book = self.voting.book
        if book is None or book.number != self.number or not self.archive.ready():
            return False
        if self.councils.me.member not in [voter.member for voter in book.council.voters]:
            return False
        if not self.whole:
            self.whole = not self.lacking(self.begun.rows, None)
        return self.whole and self.voting.serving()

    def vouched(self, holder: msg.Holder, seq: int, clock: int) -> None:
        """Rule T5: from now on it is in the reports, whether or not it ever publishes."""
        log = (holder.ticket, holder.inc)
        self.archive.ticked(log, seq, clock)
        if log not in self.rows:
            self._put(LogRow(*log))

    def report(self) -> LogReport | None:
        """Rule T5: all of it, in one message. None: it may not speak, or has nothing new to say."""
        if not self.speaks():
            return None
        raised = False
        for log in dict.fromkeys([*self.rows, *self.archive.logs()]):
            if log[1] < self.floors.get(log[0], 0):
                continue
            row = self._row(log)
            clock, seq = self.archive.tick(log)
            new = row._replace(seq=max(seq, 0), clock=max(clock, 0)) if (clock, seq) > (row.clock, row.seq) else row
            if row.promised == NO_TURN and (held := self.archive.holds(log)) > row.ack:
                new, raised = new._replace(ack=held), True
            if new != row or log not in self.rows:
                self._put(new)
        if not self.changed and self.lamport.now == self.reported:
            return None
        if raised or self.lamport.now > self._written:
            self.save()
        self.changed, self.reported = False, self.lamport.now
        self._serial += 1
        return LogReport(self.number, self.councils.me.member, self._serial, self.now())

    # --- closing (rule T8) ---

    def round(self) -> None:
        """Close what nobody vouches for: the first voter that is not suspected, the next one a round later."""
        book = self.voting.book
        if book is None or book.number != self.councils.now.number or not self.speaks():
            return
        here = [voter.member for voter in self.reform.present(book)]
        turn = here.index(self.councils.me.member)
        for log, row in list(self.rows.items()):
            if self.archive.closed(log) is not None or self._runs(log):
                self.urge.pop(log, None)
                continue
            self.urge[log] = urge = self.urge.get(log, 0) + 1
            said = self.archive.tick(log)[0] == LAST and self.archive.ended(log) is None
            if urge > 1 + turn + said * LAST_WORDS:
                self._close(log, row)
        self._forget()

    def _runs(self, log: Log) -> bool:
        """Its own vouch runs: the owner may live."""
        book = self.voting.book
        running = book.running.get(log[0], {}) if book is not None else {}
        return any(until > self.ctx.now for holder, until in running.items() if holder.inc == log[1])

    def _close(self, log: Log, row: LogRow) -> None:
        book = self.voting.book
        assert book is not None
        known = self.attempts.get(log)
        if known is not None and known.end is not None and self.urge[log] % 4:  # give it some rounds
            self._end(log, known)
            return
        turn = (max(row.promised[0], self._highest.get(log, 0)) + 1, self.councils.me.member)
        self.attempts[log] = _Closing(book.number, turn)
        self.councils.tell_all(msg.CloseLog(book.number, msg.Tenure(*log), turn))

    def on_close_log(self, sender: MemberId, m: msg.CloseLog) -> None:
        book, log = self.voting.book, (m.tenure.ticket, m.tenure.inc)
        if book is None or book.number != m.council or not self.speaks() or self._runs(log) or self._forgotten(log):
            return
        row = self._row(log)
        if m.turn > row.promised:
            if row.promised == NO_TURN:
                row = row._replace(ack=max(row.ack, self.archive.holds(log)))
            row = row._replace(promised=m.turn)
            self._promise(row)
        self.councils.answer(sender, msg.ClosedLog(m.council, self.councils.me.member, m.turn, row))

    def _promise(self, row: LogRow) -> None:
        """It acknowledges no more of the log, and never vouches for the tenure again."""
        book = self.voting.book
        assert book is not None
        ticket = book.row(row.ticket)
        book.rows[row.ticket] = ticket._replace(floor=max(ticket.floor, row.inc + 1))
        self._put(row)
        self.save()

    def _forgotten(self, log: Log) -> bool:
        return log[1] < self.floors.get(log[0], 0)

    def on_closed_log(self, sender: MemberId, m: msg.ClosedLog) -> None:
        """A promise; of a quorum, the end with the highest ballot, else all that any of them holds."""
        log = m.row.log
        p, book = self.attempts.get(log), self.voting.book
        self._highest[log] = max(self._highest.get(log, 0), m.row.promised[0])
        if p is None or book is None or (p.council, p.turn) != (m.council, m.turn) or book.number != m.council:
            return
        if m.row.promised != p.turn or p.end is not None:
            return
        p.rows[m.voter] = m.row
        if not self.councils.enough(book.council.voters, p.rows):
            return
        ends = [row.accepted for row in p.rows.values() if row.accepted is not None]
        acks = [row.ack for row in p.rows.values()]
        p.end = max(ends)[1] if ends else max([*acks, self.archive.holds(log)])
        for voter, row in p.rows.items():
            if row.needs >= p.end:
                self.archive.want(log, p.end, self.ctx.now, voter)
        self._end(log, p)

    def _end(self, log: Log, p: _Closing) -> None:
        assert p.end is not None
        self.councils.tell_all(msg.EndLog(p.council, msg.Tenure(*log), p.turn, p.end))

    def on_end_log(self, sender: MemberId, m: msg.EndLog) -> None:
        """It accepts only what it holds."""
        book, log = self.voting.book, (m.tenure.ticket, m.tenure.inc)
        if book is None or book.number != m.council or not self.speaks() or self._forgotten(log):
            return
        row = self._row(log)
        if m.turn < row.promised or row.accepted == (m.turn, m.end):
            return
        if self.archive.holds(log) < m.end:
            self.archive.want(log, m.end, self.ctx.now, sender)
            return
        self._promise(row._replace(promised=m.turn, accepted=(m.turn, m.end)))

    # --- forgetting (rule T13) ---

    def _forget(self) -> None:
        floors, stamp = self.archive.forgettable(self.number)
        for ticket, floor in floors.items():
            if floor > self.floors.get(ticket, 0):
                self.floors[ticket], self.dropped = floor, max(self.dropped, stamp)
                self.changed = True
        for table in (self.rows, self.urge, self.attempts, self._highest):
            for log in [log for log in table if self._forgotten(log)]:
                del table[log]
        if len(self.attempts) > self.MAX_ATTEMPTS:
            self.attempts.clear()


def keep_logs(ring: CouncilRing, archive: Archive) -> LogKeeper:
    """This process keeps logs whenever it is a voter."""
    logs = LogKeeper(ring.ctx, ring.councils, ring.voting, ring.reform, archive)
    ring.keep(logs)
    return logs
