"""The kernel of the replicated objects: events, their total order (stamps), and the interface of replicas.

Pure: no clock, no randomness, no I/O. A runtime passes in what its member delivers, in that order.

**Stamps.** To resolve concurrent operations, replicas need a total order that is the same everywhere and extends causal
order. The timestamp `t_e` of an event is a vector of `(incarnation, seq)`, and `e1` before `e2` means `t_e1 < t_e2`
entry by entry. A stamp sums the vector by columns (epochs, then the rest of the incarnations, then seqs): if no entry
falls and one rises, the first column that differs has risen, so the triple of sums rises lexicographically. That is
three small integers instead of a vector, and favours no ticket. Equal sums (concurrent events only) are decided by the
event id. A stamp is computed from the frame, whose vector the core has validated, never taken from the operation: no
peer can claim to be later than it is.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from whence.core.clock import Entry, EventId, Frame
from whence.errors import UsageError
from whence.live.objects.operations import Operation

_LOW = 48  # bits of a packed incarnation below the epoch
_MASK = (1 << _LOW) - 1


class Full(UsageError):
    """The objects of this cluster are as large as a snapshot may be: delete something first."""


class Stamp(NamedTuple):
    """The position of an event in a total order that extends causal order (see the module's docstring)."""

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


class StampedEvent(NamedTuple):
    """One delivered event. `over_gap`: something before it was given up (in `reliable` only if nobody has it)."""

    stamp: Stamp
    payload: bytes
    over_gap: bool = False


def events_of(frame: Frame, over_gap: bool = False) -> list[StampedEvent]:
    """The events of a delivered frame, in order."""
    first = stamp(EventId(frame.ticket, frame.inc, frame.first, frame.owner), frame.timestamp(frame.first))
    return [
        StampedEvent(first._replace(events=first.events + k, seq=first.seq + k), payload, over_gap)
        for k, payload in enumerate(frame.payloads())
    ]


class Replica(Protocol):
    """One copy of one object. Equal sets of operations give equal contents, in any order."""

    kind: ClassVar[str]
    name: str

    def apply(self, stamp: Stamp, operation: Operation) -> bool:
        """Apply a delivered operation; returns whether the contents changed. Unchanged if it raises `BadOperation`."""

    def state(self) -> bytes:
        """The complete state, for a joiner or the disk."""

    def restore(self, state: bytes) -> None:
        """Install a state; raises `BadOperation`."""

    @property
    def size(self) -> int:
        """An upper bound of the bytes of `state()`."""
