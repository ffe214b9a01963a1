"""The objects of one cluster: routes events to replicas by kind and name, and takes one snapshot of all.

Objects are not declared: an object exists, empty, from the first operation on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from whence.core.clock import EventId
from whence.errors import UsageError
from whence.live.objects.document import Document, Json, YjsReplica
from whence.live.objects.kernel import (
    MAX_NAME,
    UNREADABLE,
    Add,
    Alter,
    BadOperation,
    Delete,
    Edit,
    EventStamp,
    Full,
    Operation,
    Replica,
    Set,
    StampedEvent,
    decode,
    is_operation,
)
from whence.live.objects.registers import Counter, Elements, Registers

MAX_OBJECTS = 4096
"""The most objects in one cluster. Operations on further ones are refused and counted."""
STATE_VERSION = 1

_SLOT = 96  # bytes of an object's row in the state, beside its name

R = TypeVar("R", Registers, Counter, Document, Json)
KINDS = {Set: "registers", Delete: "registers", Add: "counter", Edit: "document", Alter: "json"}


class Change(NamedTuple):
    """A change of an object's contents."""

    kind: str
    name: str
    key: str
    """The register; empty for other kinds, and when a snapshot was restored."""
    event: EventId | None
    """The event that did it; None for a restored snapshot."""


@dataclass
class Stats:
    """Counters, in events."""

    applied: int = 0
    """Operations that a replica applied (winning or not)."""
    foreign: int = 0
    """Payloads that are not operations."""
    malformed: int = 0
    """Operations that raised `BadOperation`."""
    refused: int = 0
    """Operations beyond a hard bound. Only a publisher that ignores `Full` causes them."""
    over_gap: int = 0
    """Events delivered over a gap: this replica may lack an operation."""
    restored: int = 0
    """Snapshots installed."""


@dataclass
class _Slot:
    replica: Replica
    size: int = 0


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    name: str
    state: bytes


class _ObjectsState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=STATE_VERSION):
    objects: list[_Saved]


class Objects:
    """All replicated objects of one member in one cluster."""

    def __init__(self, me: str = "", limit: int = 16 << 20) -> None:
        """`me` is the member id, needed to edit documents. `limit` bounds `state()` in bytes: beyond it `check_room`
        raises `Full`, and twice as much is a hard bound: let it be the same at all members."""
        self._me = me
        self.limit = limit
        self.stats = Stats()
        self.last_error: str = ""
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._size = 0
        self._listeners: list[Callable[[Change], None]] = []

    # -- handles --------------------------------------------------------------------------------------------------

    def registers(self, name: str) -> Registers:
        """The register map of this name. The handle stays valid whatever happens to the object."""
        return self._declared(Registers, name)

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        return self._declared(Counter, name)

    def document(self, name: str) -> Document:
        """The shared text of this name (needs the extra `document`)."""
        return self._declared(Document, name)

    def json(self, name: str) -> Json:
        """The nested maps and lists of this name (needs the extra `document`)."""
        return self._declared(Json, name)

    def set(self, name: str) -> Elements:
        """The set whose elements are the names in `registers(name)`."""
        return Elements(self.registers(name))

    def names(self, kind: str) -> list[str]:
        """The names of a kind's objects in this cluster, sorted."""
        return sorted(n for k, n in self._slots if k == kind)

    @property
    def me(self) -> str:
        return self._me

    @me.setter
    def me(self, member: str) -> None:
        self._me = member
        for slot in self._slots.values():
            if isinstance(slot.replica, YjsReplica):
                slot.replica.me = member

    def _declared(self, kind: type[R], name: str) -> R:
        replica = self._replica(kind.kind, name)
        assert isinstance(replica, kind)
        return replica

    def _replica(self, kind: str, name: str) -> Replica:
        if not 1 <= len(name) <= MAX_NAME:
            raise UsageError(f"an object's name has 1 to {MAX_NAME} characters, not {len(name)}")
        slot = self._slot(kind, name)
        if slot is None:
            raise Full(f"{MAX_OBJECTS} objects are too many for one cluster")
        return slot.replica

    def _slot(self, kind: str, name: str) -> _Slot | None:
        slot = self._slots.get((kind, name))
        if slot is None and len(self._slots) < MAX_OBJECTS:
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
            case "json":
                return Json(name, self._me)
        raise BadOperation(f"unknown kind of object: {kind!r}")

    # -- events ---------------------------------------------------------------------------------------------------

    def apply(self, event: StampedEvent) -> bool:
        """Apply a delivered event; False if it is not an operation. Errors of a peer are counted, never raised."""
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

    def _route(self, stamp: EventStamp, operation: Operation) -> None:
        slot = self._slot(KINDS[type(operation)], operation.name)
        if slot is None or (self._size > 2 * self.limit and not isinstance(operation, Delete)):
            self.stats.refused += 1
            return
        changed = slot.replica.apply(stamp, operation)
        self._weigh(slot)
        self.stats.applied += 1
        if changed:
            self._tell(slot.replica, getattr(operation, "key", ""), stamp)

    # -- snapshots ------------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """The state of all objects, for a joiner (`whence.join(..., state=objects.state)`) or the disk."""
        rows = [_Saved(kind, name, slot.replica.state()) for (kind, name), slot in sorted(self._slots.items())]
        return msgspec.msgpack.encode(_ObjectsState(rows))

    def restore(self, state: bytes) -> None:
        """Install a `state()` of a peer or from disk; empty bytes are the state of a peer without objects. Raises
        `BadOperation` for anything else."""
        try:
            rows = msgspec.msgpack.decode(state, type=_ObjectsState).objects if state else []
        except UNREADABLE as error:
            raise BadOperation(f"not a state of objects: {error}") from None
        if len(rows) > MAX_OBJECTS:
            raise BadOperation(f"a state of {len(rows)} objects; at most {MAX_OBJECTS}")
        for row in rows:
            self._make(row.kind, row.name).restore(row.state)  # all or nothing
        handles, self._slots = self._slots, {}
        for row in rows:
            fresh = handles.pop((row.kind, row.name), None) or _Slot(self._make(row.kind, row.name))
            fresh.replica.restore(row.state)
            self._slots[row.kind, row.name] = fresh
        for key, slot in handles.items():  # unknown to the peer, so empty
            slot.replica.restore(self._make(*key).state())
            self._slots[key] = slot
        self._size = 0
        for slot in self._slots.values():
            slot.size = 0
            self._weigh(slot)
        self.stats.restored += 1
        for slot in self._slots.values():
            self._tell(slot.replica, "", None)

    # -- room ------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """An upper bound of the bytes of `state()`."""
        return self._size

    def check_room(self, payload: bytes) -> bytes:
        """Return the payload, or raise `Full` if there is no room. For publishers: the state must fit into a snapshot.
        A replica applies whatever is delivered, so that it equals the others."""
        if self._size + len(payload) > self.limit and len(self.state()) + len(payload) > self.limit:
            raise Full(f"the objects of this cluster fill {self.limit} bytes: delete something first")
        return payload

    # -- changes ---------------------------------------------------------------------------------------------------

    def listen(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback`, which must not raise, on every change. Returns a function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    def _tell(self, replica: Replica, key: str, stamp: EventStamp | None) -> None:
        if self._listeners:
            change = Change(replica.kind, replica.name, key, stamp.event if stamp else None)
            for callback in list(self._listeners):
                callback(change)
