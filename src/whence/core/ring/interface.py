"""What comes out of a ring, whichever its protocol, and where a process stands in it."""

from __future__ import annotations

from enum import Enum

import msgspec

from whence.core.clock import Entry, Incarnation, MemberId, Send
from whence.core.ring.messages import Ballot, Council, Ledger, RingNews, Voter


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

    council: Council
    ballot: Ballot
    accepted: tuple[Ballot, tuple[Voter, ...]] | None
    """The next council that it has accepted, and in which ballot."""
    table: Ledger
    """Without seats: for a lease after a restart a voter says nothing (rule C9)."""


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What a process remembers of the council across its lives, if it has a disk. Some KB at most."""

    voter: MemberId
    known: Council
    vote: Vote | None


class _Output(msgspec.Struct, frozen=True, gc=False):
    pass


class Announce(_Output, frozen=True):
    """PrCast it."""

    news: RingNews


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
    """For the record: a request for a ticket, or a founding, was refused. `coordinate` goes on trying; a founding
    does not."""

    reason: str


class Frozen(_Output, frozen=True):
    """For the record: the successor neither answers nor can be excluded; no newcomer is admitted meanwhile (rule
    17)."""

    reason: str


class Thawed(_Output, frozen=True):
    """For the record: the end of `Frozen`."""


_Records = Excluded | Rejected | Frozen | Thawed
RingOutput = Send | Announce | Granted | BecameOwner | Lost | Released | Remember | _Records
