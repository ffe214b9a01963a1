"""The kernel of the replicated objects: events, their total order (stamps), and the interface of replicas.

Pure: no clock, no randomness, no I/O. A runtime passes in what its member delivers, in that order.

**Stamps.** To resolve concurrent operations, replicas need a total order that is the same everywhere and extends causal
order. The timestamp `t_e` of an event is a vector of `(incarnation, seq)`, and `e1` before `e2` means `t_e1 < t_e2`
entry by entry. A stamp sums the vector by columns (epochs, then the rest of the incarnations, then seqs): if no entry
falls and one rises, the first column that differs has risen, so the triple of sums rises lexicographically. That is
three small integers instead of a vector, and favours no ticket. Equal sums (concurrent events only) are decided by the
event id. A stamp is computed from the frame, whose vector the core has validated, never taken from the operation: no
peer can claim to be later than it is.

**Operations** are tagged, versioned and bounded. A payload is `C1 <version> <msgpack>`. No msgpack value and no UTF-8
text begins with the byte C1, so an application's own events can share the cluster with objects. Tags are only ever
appended.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import msgspec

from whence.core.clock import Entry, EventId, Frame
from whence.errors import RemoteError, UsageError


class BadOperation(RemoteError):
    """A malformed operation: truncated, unknown, too large or wrongly typed. It is skipped and counted; the replica is
    unchanged."""


MARK = 0xC1
VERSION = 1
PREFIX = bytes((MARK, VERSION))

MAX_NAME = 255
"""Characters of an object's or a register's name."""
MAX_VALUE = 64 << 10
"""Bytes of one register's value, encoded."""
MAX_UPDATE = 256 << 10
"""Bytes of one update of a document."""
MAX_AMOUNT = (1 << 63) - 1
"""The largest step of a counter, up or down."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]

Value = None | bool | int | float | str | bytes | list | dict  # type: ignore[type-arg]  # for isinstance
"""The value of a register: JSON or bytes."""


class _Op(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    name: Name


class Set(_Op, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=1):
    """Write a register. `value` stays encoded until it is read."""

    key: Name
    value: msgspec.Raw


class Delete(_Op, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=2):
    """Delete a register."""

    key: Name


class Add(_Op, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=3):
    """Add to a counter."""

    amount: Annotated[int, msgspec.Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]


class Edit(_Op, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=4):
    """A Yjs update: number `number` (from 1) of the editor `client`."""

    client: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    update: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_UPDATE)]


class Alter(Edit, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=5):
    """The same of a JSON object."""


UNREADABLE = (msgspec.DecodeError, RecursionError, ValueError, TypeError)
"""What msgspec raises on malformed bytes (text that is not UTF-8 is a ValueError)."""

Operation = Set | Delete | Add | Edit | Alter

_operations: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)


def _no_extension(code: int, data: memoryview) -> Any:
    raise ValueError(f"extension {code}")


_values = msgspec.msgpack.Decoder(ext_hook=_no_extension)
_encode = msgspec.msgpack.Encoder().encode


def is_operation(payload: bytes) -> bool:
    """Whether the payload is an operation, of any version."""
    return payload[:1] == PREFIX[:1]


def encode(operation: Operation) -> bytes:
    """The payload to publish. Raises `UsageError` for what peers would refuse."""
    try:
        payload = PREFIX + _encode(operation)
        decode(payload)
    except (BadOperation, ValueError, TypeError, OverflowError) as error:
        raise UsageError(str(error)) from None
    return payload


def decode(payload: bytes) -> Operation:
    """Decode an operation; raises `BadOperation`."""
    if payload[:2] != PREFIX:
        raise BadOperation(f"operation begins with {payload[:2].hex()}, not {PREFIX.hex()}: another version?")
    try:
        operation = _operations.decode(memoryview(payload)[2:])
    except UNREADABLE as error:
        raise BadOperation(f"not an operation: {error}") from None
    if isinstance(operation, Set) and len(operation.value) > MAX_VALUE:
        raise BadOperation(f"a value of {len(operation.value)} bytes; at most {MAX_VALUE}")
    return operation


def encode_value(value: Value) -> bytes:
    """A register's value as bytes."""
    try:
        return _encode(value)
    except (TypeError, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(f"a register holds JSON values or bytes: {error}") from None


def decode_value(data: bytes) -> Value:
    """The inverse of `encode_value`; raises `BadOperation`."""
    try:
        value = _values.decode(data)
    except UNREADABLE as error:
        raise BadOperation(f"not a value: {error}") from None
    if not isinstance(value, Value):
        raise BadOperation(f"not a value: a {type(value).__name__}")
    return value


_LOW = 48  # bits of a packed incarnation below the epoch
_MASK = (1 << _LOW) - 1


class Full(UsageError):
    """The objects of this cluster are as large as a snapshot may be: delete something first."""


class EventStamp(NamedTuple):
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


def stamp(event: EventId, timestamp: tuple[Entry, ...]) -> EventStamp:
    """The stamp of the event with this vector timestamp."""
    epochs = tenures = events = 0
    for inc, seq in timestamp:
        epochs += inc >> _LOW
        tenures += inc & _MASK
        events += seq
    return EventStamp(epochs, tenures, events, *event)


class StampedEvent(NamedTuple):
    """One delivered event. `over_gap`: something before it was given up (in `reliable` only if nobody has it)."""

    stamp: EventStamp
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
    """One copy of one object. Equal sets of operations give equal contents, in any order (documents: in any causal
    order)."""

    kind: ClassVar[str]
    name: str

    def apply(self, stamp: EventStamp, operation: Operation) -> bool:
        """Apply a delivered operation; returns whether the contents changed. Unchanged if it raises `BadOperation`."""

    def state(self) -> bytes:
        """The complete state, for a joiner or the disk."""

    def restore(self, state: bytes) -> None:
        """Install a state; raises `BadOperation`."""

    @property
    def size(self) -> int:
        """An upper bound of the bytes of `state()`."""
