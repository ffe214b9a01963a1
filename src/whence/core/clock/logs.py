"""What is written down of each tenure in a cluster with total order (docs/total.md), as data.

The **log** of a tenure is the first `s` of its events, for one `s` that only grows until the log is closed. The voters
of the council keep copies. `Lamport` is the clock of L. Lamport (Time, Clocks, and the Ordering of Events); its stamps
order the frames of all logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from whence.core.clock.bounds import Count, Items, MaybeMember, PerTenure, Seq, Signature, TicketIndex
from whence.core.clock.event import LAST, Log, Moment

GENERATION = 32
"""Bits of a council's number below its generation."""


class Lamport:
    """The clock of one process: the highest of all stamps, ticks and reports that it has seen (rule T1)."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    def saw(self, stamp: int) -> None:
        """A stamp of somebody else; that of a last tick is no time."""
        if self.now < stamp < LAST:
            self.now = stamp


Turn = tuple[Count, MaybeMember]
"""The ballot of a closing: number and closer."""
NO_TURN: Turn = (0, "")


class LogRow(NamedTuple):
    """What a voter says of one log (rules T3 to T5, T8)."""

    ticket: TicketIndex
    inc: Count
    ack: Seq = 0
    """It holds all events up to here, with their causes."""
    promised: Turn = NO_TURN
    """The closing that it has promised; from then on it acknowledges no more."""
    accepted: tuple[Turn, Seq] | None = None
    """The closing that it has accepted, and where that ends the log."""
    seq: Seq = 0
    """The best tick it knows: up to `clock` the owner has published the events up to `seq`."""
    clock: Moment = 0

    @property
    def log(self) -> Log:
        return (self.ticket, self.inc)

    @property
    def needs(self) -> int:
        """How many events it speaks of."""
        return max(self.ack, self.accepted[1] if self.accepted else 0)

    def merged(self, other: LogRow) -> LogRow:
        """The highest of both."""
        ends = [end for end in (self.accepted, other.accepted) if end]
        clock, seq = max((self.clock, self.seq), (other.clock, other.seq))
        ack, promised = max(self.ack, other.ack), max(self.promised, other.promised)
        return LogRow(self.ticket, self.inc, ack, promised, max(ends, default=None), seq, clock)


class Logs(NamedTuple):
    """What a voter knows of all logs: it reports it, and hands it over to the next council (rules T5 and T10)."""

    clock: Moment = 0
    """A tenure that it vouches for later starts above it."""
    rows: PerTenure[LogRow] = ()
    floors: PerTenure[tuple[TicketIndex, Count]] = ()
    """Of a ticket, logs below this incarnation are closed and forgotten (rule T13)."""
    dropped: Moment = 0
    """No frame of a forgotten log has a higher stamp."""
    start: Moment = 0
    """The position at which this generation of councils began (rule T14)."""


def merged(several: Iterable[Logs]) -> Logs:
    """What several voters know together."""
    floors: dict[int, int] = {}
    rows: dict[Log, LogRow] = {}
    clock = dropped = start = 0
    for logs in several:
        clock, dropped, start = max(clock, logs.clock), max(dropped, logs.dropped), max(start, logs.start)
        for ticket, floor in logs.floors:
            floors[ticket] = max(floor, floors.get(ticket, 0))
        for row in logs.rows:
            rows[row.log] = row.merged(rows[row.log]) if row.log in rows else row
    kept = tuple(row for row in rows.values() if row.inc >= floors.get(row.ticket, 0))
    return Logs(clock, kept, tuple(sorted(floors.items())), dropped, start)


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=69):
    """Of an owner: up to `clock` my events under this tenure are those up to `seq` (rule T4)."""

    ticket: TicketIndex
    inc: Count
    seq: Seq
    clock: Moment


class LogReport(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=70):
    """Of a voter, in one message: all that it knows of logs, and its clock (rule T5)."""

    council: Count
    voter: MaybeMember
    serial: Count
    """Of two reports with the same clock the higher one is the newer."""
    logs: Logs
    signature: Signature = b""

    @property
    def age(self) -> tuple[int, int]:
        """The newer, the higher."""
        return (self.logs.clock, self.serial)

    def unsigned(self) -> bytes:
        """What the signature is about."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b""))


class Follow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=71):
    """Of a member in total order, to those whose ticks and reports it needs, in every round: how far it is."""

    council: Count
    position: Moment


class LogReports(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=72):
    """The newest reports known, for a member that does not hear the voters itself."""

    reports: Items[LogReport]


Telling = Tick | LogReport | Follow | LogReports
