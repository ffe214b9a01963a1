"""The objects of one cluster: events are routed to replicas by kind and name, and all of them make one snapshot.

An object needs no declaration: it is there, empty, from the first operation on it. It belongs to exactly one cluster.
To **move** it, whoever holds it closes it here and opens it, with its contents, in the next cluster. Each opening is a
**life** of its own; operations on another life are stale, and dropped everywhere alike.

What counts when openings compete: the one with the greatest stamp, as with registers. A close ends the life it names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from whence.clock import EventId, Frame
from whence.errors import UsageError
from whence.objects.counter import Counter
from whence.objects.document import Document
from whence.objects.kernel import Event, Full, Moved, Replica, Stamp, events_of
from whence.objects.operations import (
    MAX_CONTENTS,
    MAX_NAME,
    UNREADABLE,
    Add,
    BadOperation,
    Close,
    Delete,
    Open,
    Operation,
    Set,
    Update,
    decode,
    encode,
    is_operation,
)
from whence.objects.registers import Registers

MAX_OBJECTS = 4096
"""Objects that live in one cluster. Operations on one more are refused and counted."""
MAX_CLOSED = 1024
"""Closed objects remembered, so that what was published before the close and comes later is known to be stale. Beyond
this number the first closed is forgotten (counted): a straggler on an object that was never opened by `open` would
bring it back, at this replica only."""
STATE_VERSION = 1

_SLOT = 96  # bytes of an object's row in the state, beside its name

KINDS = {Set: "registers", Delete: "registers", Add: "counter", Update: "document"}


class Change(NamedTuple):
    """The contents of an object changed."""

    kind: str
    name: str
    key: str
    """The register; empty for other kinds, and when the object changed as a whole (opened, closed, restored)."""
    event: EventId | None
    """The event that did it; None for a restored snapshot."""


@dataclass
class Stats:
    """Counters, in events."""

    applied: int = 0
    """Operations that a replica took (winning or not)."""
    foreign: int = 0
    """Payloads that are no operations: the application's own."""
    malformed: int = 0
    """Operations that raised `BadOperation`."""
    stale: int = 0
    """Operations on a life of an object that is over, or not begun yet."""
    refused: int = 0
    """Operations that would have passed a hard bound. Only a publisher that ignores `Full` causes them."""
    over_gap: int = 0
    """Events delivered although something before them was given up: this replica may lack an operation."""
    forgotten: int = 0
    """Closed objects beyond `MAX_CLOSED`."""
    restored: int = 0
    """Snapshots installed."""


@dataclass
class _Slot:
    replica: Replica
    opened: Stamp | None = None
    size: int = 0


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    name: str
    life: int
    home: str | None
    opened: Stamp | None
    state: bytes


class _State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=STATE_VERSION):
    objects: list[_Saved]


class Objects:
    """All replicated objects of one member in one cluster."""

    def __init__(self, me: str = "", limit: int = 2 << 20) -> None:
        """`me` is the member id, needed to edit documents. `limit` is in bytes of `state()`: `check_room` raises `Full`
        beyond it, and twice as much is a hard bound. The wire takes 3 MiB (`Limits.max_state_bytes`)."""
        self._me = me
        self.limit = limit
        self.stats = Stats()
        self.last_error: str = ""
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._closed: dict[tuple[str, str], None] = {}  # oldest first
        self._taken: dict[tuple[str, str, int], bytes] = {}
        self._size = 0
        self._listeners: list[Callable[[Change], None]] = []

    # -- handles --------------------------------------------------------------------------------------------------

    def registers(self, name: str) -> Registers:
        """The register map of this name. The handle stays good whatever happens to the object."""
        replica = self._declared("registers", name)
        assert isinstance(replica, Registers)
        return replica

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        replica = self._declared("counter", name)
        assert isinstance(replica, Counter)
        return replica

    def document(self, name: str) -> Document:
        """The shared text of this name (needs the extra `document`)."""
        replica = self._declared("document", name)
        assert isinstance(replica, Document)
        return replica

    def names(self, kind: str) -> list[str]:
        """The objects of a kind that live here, sorted."""
        return sorted(n for (k, n), slot in self._slots.items() if k == kind and slot.replica.home is None)

    @property
    def me(self) -> str:
        return self._me

    @me.setter
    def me(self, member: str) -> None:
        self._me = member
        for slot in self._slots.values():
            if isinstance(slot.replica, Document):
                slot.replica.me = member

    def _declared(self, kind: str, name: str) -> Replica:
        if not 1 <= len(name) <= MAX_NAME:
            raise UsageError(f"an object's name has 1 to {MAX_NAME} characters, not {len(name)}")
        slot = self._slot(kind, name)
        if slot is None:
            raise Full(f"{MAX_OBJECTS} objects are too many for one cluster")
        return slot.replica

    def _slot(self, kind: str, name: str) -> _Slot | None:
        slot = self._slots.get((kind, name))
        if slot is None and len(self._slots) - len(self._closed) < MAX_OBJECTS:
            slot = self._slots[kind, name] = _Slot(self._make(kind, name))
            self._weigh(slot)
        return slot

    def _weigh(self, slot: _Slot) -> None:
        size = slot.replica.size + _SLOT + len(slot.replica.name)
        self._size += size - slot.size
        slot.size = size

    def _make(self, kind: str, name: str) -> Replica:
        match kind:
            case "registers":
                return Registers(name)
            case "counter":
                return Counter(name)
            case "document":
                return Document(name, self._me)
        raise BadOperation(f"no kind of object: {kind!r}")

    # -- events ---------------------------------------------------------------------------------------------------

    def apply_frame(self, frame: Frame, over_gap: bool = False) -> None:
        """Take the events of a delivered frame."""
        for event in events_of(frame, over_gap):
            self.apply(event)

    def apply(self, event: Event) -> bool:
        """Take a delivered event; False if it is none of ours. What a peer did wrong is counted, never raised."""
        self.stats.over_gap += event.over_gap
        if not is_operation(event.payload):
            self.stats.foreign += 1
            return False
        try:
            self._route(event.stamp, decode(event.payload))
        except BadOperation as error:
            self.stats.malformed += 1
            self.last_error = f"{event.stamp.event}: {error}"
        return True

    def _route(self, stamp: Stamp, operation: Operation) -> None:
        kind = operation.kind if isinstance(operation, Open | Close) else KINDS[type(operation)]
        if (kind, operation.name) not in self._slots and operation.life and not isinstance(operation, Open):
            self.stats.stale += 1  # closed so long ago that it is forgotten
            return
        slot = self._slot(kind, operation.name)
        if slot is None:
            self.stats.refused += 1
            return
        replica = slot.replica
        if isinstance(operation, Open):
            self._open(slot, stamp, operation)
        elif operation.life != replica.life or replica.home is not None:
            self.stats.stale += 1
        elif isinstance(operation, Close):
            self._close(slot, stamp, operation)
        elif self._size > 2 * self.limit and not isinstance(operation, Delete):
            self.stats.refused += 1
        else:
            changed = replica.apply(stamp, operation)
            self._weigh(slot)
            self.stats.applied += 1
            if changed:
                self._tell(replica, getattr(operation, "key", ""), stamp)

    def _open(self, slot: _Slot, stamp: Stamp, operation: Open) -> None:
        if slot.opened is not None and slot.opened >= stamp:
            self.stats.stale += 1
            return
        slot.replica.adopt(operation.contents, stamp)
        slot.opened = stamp
        slot.replica.life = _life(stamp)
        slot.replica.home = None
        self._weigh(slot)
        self._closed.pop((operation.kind, operation.name), None)
        self.stats.applied += 1
        self._tell(slot.replica, "", stamp)

    def _close(self, slot: _Slot, stamp: Stamp, operation: Close) -> None:
        replica, key = slot.replica, (operation.kind, operation.name)
        if stamp.owner == self._me:
            self._taken[(*key, replica.life)] = replica.contents()
            while len(self._taken) > MAX_CLOSED:
                del self._taken[next(iter(self._taken))]
        replica.adopt(b"", stamp)
        replica.home = operation.target
        self._weigh(slot)
        self._closed[key] = None
        while len(self._closed) > MAX_CLOSED:
            oldest = next(iter(self._closed))
            self._size -= self._slots[oldest].size
            del self._closed[oldest], self._slots[oldest]
            self.stats.forgotten += 1
        self.stats.applied += 1
        self._tell(replica, "", stamp)

    # -- moving, to be published ------------------------------------------------------------------------------------

    def close(self, replica: Replica, target: str = "") -> bytes:
        """The operation that ends the object here; `target` names the cluster in which it goes on."""
        if replica.home is not None:
            raise Moved(f"{replica.kind} {replica.name!r} has moved to {replica.home or 'nowhere'!r}")
        return encode(Close(replica.name, replica.life, replica.kind, target))

    def take(self, replica: Replica) -> bytes | None:
        """The contents as they were when the close was delivered here, once and only to the member that closed the
        object; None before that. To be opened in the next cluster."""
        return self._taken.pop((replica.kind, replica.name, replica.life), None)

    def open(self, kind: str, name: str, contents: bytes = b"") -> bytes:
        """The operation that begins a new life of an object here, with the contents of one closed elsewhere (or of this
        very one: that is how a replica that lost something is repaired)."""
        if len(contents) > MAX_CONTENTS:
            raise UsageError(f"contents of {len(contents)} bytes; an object that moves has at most {MAX_CONTENTS}")
        return encode(Open(name, self._declared(kind, name).life, kind, contents))

    # -- snapshots ------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """All objects: for a joiner (`whence.join(..., state=objects.state)`) or a disk."""
        rows = [
            _Saved(kind, name, s.replica.life, s.replica.home, s.opened, s.replica.state())
            for (kind, name), s in sorted(self._slots.items())
        ]
        return msgspec.msgpack.encode(_State(rows))

    def restore(self, state: bytes) -> None:
        """Become what a peer's or a disk's `state()` says; empty bytes are the state of a peer without objects. Raises
        `BadOperation` for anything else."""
        try:
            rows = msgspec.msgpack.decode(state, type=_State).objects if state else []
        except UNREADABLE as error:
            raise BadOperation(f"no state of objects: {error}") from None
        if len(rows) > MAX_OBJECTS:
            raise BadOperation(f"a state of {len(rows)} objects; at most {MAX_OBJECTS}")
        for row in rows:
            self._make(row.kind, row.name).restore(row.state)  # all or nothing
        handles, self._slots = self._slots, {}
        for row in rows:
            fresh = handles.pop((row.kind, row.name), None) or _Slot(self._make(row.kind, row.name))
            fresh.replica.restore(row.state)
            fresh.replica.life, fresh.replica.home, fresh.opened = row.life, row.home, row.opened
            self._slots[row.kind, row.name] = fresh
        for key, slot in handles.items():  # the peer has never heard of it: it is empty there
            slot.replica.restore(self._make(*key).state())
            slot.replica.life, slot.replica.home, slot.opened = 0, None, None
            self._slots[key] = slot
        self._size = 0
        for slot in self._slots.values():
            slot.size = 0
            self._weigh(slot)
        self._closed = {key: None for key, slot in self._slots.items() if slot.replica.home is not None}
        self.stats.restored += 1
        for slot in self._slots.values():
            self._tell(slot.replica, "", None)

    # -- room ------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of `state()`, or somewhat more."""
        return self._size

    def check_room(self, payload: bytes) -> bytes:
        """The payload, if there is room for it; `Full` else. For publishers, who must not grow the state beyond what a
        snapshot can carry; a replica takes what is delivered, or it would differ from the others."""
        if self._size + len(payload) > self.limit and len(self.state()) + len(payload) > self.limit:
            raise Full(f"the objects of this cluster fill {self.limit} bytes: delete something first")
        return payload

    # -- changes ---------------------------------------------------------------------------------------------------

    def listen(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call this on every change; returns what ends it. The callback must not raise."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    def _tell(self, replica: Replica, key: str, stamp: Stamp | None) -> None:
        if self._listeners:
            change = Change(replica.kind, replica.name, key, stamp.event if stamp else None)
            for callback in list(self._listeners):
                callback(change)


def _life(stamp: Stamp) -> int:
    """63 bits that name an opening: a hash of the event's id."""
    digest = hashlib.blake2b(str(stamp.event).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
