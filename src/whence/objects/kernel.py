"""The kernel of the replicated objects: what happened, when in causal order, and what a replica is.

Pure: a replica is a value that events change. It has no clock, no randomness and no I/O, and knows nothing of members:
a runtime hands it what its member delivers, in that order.

**Stamps.** Replicas that resolve concurrent operations need one order that is the same everywhere and never
contradicts causal order. The timestamp `t_e` of an event is a vector of `(incarnation, seq)`, and `e1` before `e2`
means `t_e1 < t_e2` entry by entry. Sum the vector by columns (epochs, then the rest of the incarnations, then seqs): if
no entry falls and one rises, the first column that differs at all has risen, so the triple of sums, compared from the
left, rises too. Three small integers instead of a vector, favouring no ticket; equal sums (concurrent events only) are
decided by the event id. A stamp is computed from the frame, whose vector the core has vetted, and never taken from the
operation: no peer can claim to be later than it is.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from whence.clock import Entry, EventId, Frame
from whence.errors import UsageError
from whence.objects.operations import Operation

_LOW = 48  # bits of a packed incarnation below the epoch
_MASK = (1 << _LOW) - 1


class Full(UsageError):
    """The objects of this cluster are as large as a snapshot may be: delete something first."""


class Moved(UsageError):
    """The object does not live in this cluster any more; the message names where it went."""


class Stamp(NamedTuple):
    """When an event happened: a total order that contains causal order. See the module's text."""

    epochs: int
    tenures: int
    events: int
    ticket: int
    inc: int
    seq: int
    owner: str

    @property
    def event(self) -> EventId:
        """The id of the event."""
        return EventId(self.ticket, self.inc, self.seq, self.owner)


def stamp(event: EventId, timestamp: tuple[Entry, ...]) -> Stamp:
    """The stamp of the event with this vector timestamp."""
    epochs = tenures = events = 0
    for inc, seq in timestamp:
        epochs += inc >> _LOW
        tenures += inc & _MASK
        events += seq
    return Stamp(epochs, tenures, events, *event)


class Event(NamedTuple):
    """One delivered event. `over_gap`: something before it was given up (never in `reliable` unless nobody has it)."""

    stamp: Stamp
    payload: bytes
    over_gap: bool = False


def events_of(frame: Frame, over_gap: bool = False) -> list[Event]:
    """The events of a delivered frame, in order."""
    first = stamp(EventId(frame.ticket, frame.inc, frame.first, frame.owner), frame.timestamp(frame.first))
    return [
        Event(first._replace(events=first.events + k, seq=first.seq + k), payload, over_gap)
        for k, payload in enumerate(frame.payloads())
    ]


class Replica(Protocol):
    """One copy of one object. Equal sets of operations make equal contents, in whatever order they come."""

    kind: ClassVar[str]
    name: str
    life: int
    """Which opening of the name this is: 0 from the beginning, else a hash of the event that opened it. Operations on
    another life are stale."""
    home: str | None
    """None while the object lives in this cluster, else where it went."""

    def apply(self, stamp: Stamp, operation: Operation) -> bool:
        """Take a delivered operation; whether the contents changed. Raises `BadOperation` and stays as it was."""

    def state(self) -> bytes:
        """All there is to know, for a joiner or a disk."""

    def restore(self, state: bytes) -> None:
        """Become what `state` says; raises `BadOperation`."""

    def contents(self) -> bytes:
        """The contents without their history in this cluster: what travels when the object moves to another."""

    def adopt(self, contents: bytes, stamp: Stamp) -> None:
        """Begin with these contents, all of them as old as `stamp`; raises `BadOperation`."""

    @property
    def size(self) -> int:
        """Bytes of `state()`, or somewhat more."""
