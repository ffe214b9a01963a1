"""What goes into a ring and what comes out: the interface that the fault-free and the fault-tolerant protocol share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from whence.clock import Entry, Incarnation, MemberId
from whence.ring.messages import RingMessage, RingNews


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


class _Output(msgspec.Struct, frozen=True, gc=False):
    pass


class RingSend(_Output, frozen=True):
    """Send it on a reliable FIFO stream. If that breaks, the message is lost in silence."""

    to: MemberId
    message: RingMessage


class Announce(_Output, frozen=True):
    """PrCast it."""

    news: RingNews


class Granted(_Output, frozen=True):
    """A ticket is assigned, but not yet owned. `closes`: the last event known to have been published on it before."""

    ticket: int
    inc: Incarnation
    closes: Entry


class BecameOwner(_Output, frozen=True):
    """From now on this process may publish under that incarnation."""

    ticket: int
    inc: Incarnation


class Lost(_Output, frozen=True):
    """The ticket is gone without a leave; nothing may be published under that incarnation any more."""

    ticket: int
    inc: Incarnation
    reason: str


class Released(_Output, frozen=True):
    """The graceful leave is complete."""

    ticket: int
    inc: Incarnation


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


RingOutput = RingSend | Announce | Granted | BecameOwner | Lost | Released | Excluded | Rejected | Frozen | Thawed


class Ring(Protocol):
    """A process's part in the ring of one cluster. Pure: time comes in as `now`, chance as a generator at construction.

    Every call first lets time pass until `now`: a lease that has run out shows as `Lost` in the outputs of that very
    call.
    """

    @property
    def wake_at(self) -> int | None:
        """When `wake` wants to be called next; None: never. Too early is harmless; too late may cost the ticket."""
        ...

    @property
    def state(self) -> State: ...

    @property
    def ticket(self) -> int | None: ...

    @property
    def inc(self) -> Incarnation | None: ...

    @property
    def told(self) -> int:
        """The last `now` it was told."""
        ...

    @property
    def may_publish(self) -> bool:
        """An owner that is not resigning, its lease valid at the last `now` it was told."""
        ...

    @property
    def admits(self) -> bool:
        """An owner that would serve a CJOIN now: not frozen, not excluding, no TempRounds, nothing pending."""
        ...

    def owns_at(self, now: int) -> bool:
        """An owner, also a resigning one, whose lease is valid at `now`: for those who watch from outside."""
        ...

    def steady_at(self, now: int) -> bool:
        """An owner at `now` that is neither frozen nor excluding, and whose TempRounds are over."""
        ...

    @property
    def epoch(self) -> int:
        """The highest epoch seen or used for a founding: what a founder has to remember across restarts."""
        ...

    def coordinated(self) -> list[int]:
        """S_p: the own ticket and those down to the successor's; empty without a ticket."""
        ...

    def found(self, now: int, epoch: int) -> list[RingOutput]:
        """Found the ring after a quarantine. `epoch` must be above all earlier ones."""
        ...

    def coordinate(self, now: int) -> list[RingOutput]:
        """Try to get a ticket and keep trying, also after a loss, until `resign`."""
        ...

    def resign(self, now: int) -> list[RingOutput]:
        """Stop publishing at once, and leave as soon as the predecessor takes over."""
        ...

    def receive(self, sender: MemberId, message: RingMessage, now: int) -> list[RingOutput]:
        """A message arrived. Raises BadMessage for one that names tickets that do not exist."""
        ...

    def hear(self, news: RingNews, now: int) -> list[RingOutput]:
        """News of another member arrived by PrCast: late, more than once or never."""
        ...

    def wake(self, now: int) -> list[RingOutput]:
        """Time has passed."""
        ...

    def published(self, seq: int) -> None:
        """The last event published under the present incarnation."""
        ...

    def coordinators(self) -> dict[int, MemberId]:
        """Cview: ticket -> owner, as far as known."""
        ...

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        """Coordinators from a snapshot: hints where to ask."""
        ...

    def contacts(self, members: Sequence[MemberId]) -> None:
        """Some members of the view, to ask when no coordinator is known."""
        ...
