"""A map of registers: the last writer in causal order wins.

The write with the greatest stamp wins. Stamps extend causal order, so a write wins over those its writer had seen; of
concurrent writes one wins, the same everywhere. A deletion is a write of nothing. Taking the greatest is commutative,
associative and idempotent, so replicas with the same operations agree, in whatever order these arrived.

A counter is the sum of all additions: these commute, and a member delivers no event twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from whence.live.objects.kernel import (
    UNREADABLE,
    Add,
    BadOperation,
    Delete,
    EventStamp,
    Operation,
    Set,
    Value,
    decode_value,
    encode,
    encode_value,
)

MAX_TOMBSTONES = 4096
"""Tombstones: deletions that are remembered, to win over concurrent writes that arrive later. Beyond this number the
oldest are forgotten (counted in `forgotten`): an older write would then bring the name back, at this replica only. Each
tombstone takes some 50 bytes in every snapshot."""

_ROW = 48  # bytes of a row of the state beside key, value and owner

_Rows = list[tuple[str, EventStamp, bytes | None]]
_rows = msgspec.msgpack.Decoder(_Rows)
_encode = msgspec.msgpack.Encoder().encode


class Registers:
    """The replica, and the operations on it."""

    kind: ClassVar[str] = "registers"

    def __init__(self, name: str) -> None:
        self.name = name
        self.forgotten = 0
        self._live: dict[str, tuple[EventStamp, bytes]] = {}
        self._dead: dict[str, EventStamp] = {}
        self._bytes = 0

    # -- reading ------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Value:
        return decode_value(self._live[key][1])

    def get(self, key: str, default: Value = None) -> Value:
        """The value, or the default."""
        return self[key] if key in self._live else default

    def __contains__(self, key: str) -> bool:
        return key in self._live

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[str]:
        """The names, sorted: the same at every replica."""
        return iter(sorted(self._live))

    def items(self) -> list[tuple[str, Value]]:
        """Names and values, by name."""
        return [(key, self[key]) for key in self]

    def written(self, key: str) -> EventStamp | None:
        """The stamp of the last write or deletion."""
        live = self._live.get(key)
        return live[0] if live else self._dead.get(key)

    # -- operations, to be published ------------------------------------------------------------------------------

    def set(self, key: str, value: Value) -> bytes:
        """The operation that writes a register."""
        return encode(Set(self.name, key, msgspec.Raw(encode_value(value))))

    def delete(self, key: str) -> bytes:
        """The operation that deletes a register."""
        return encode(Delete(self.name, key))

    # -- Replica ------------------------------------------------------------------------------------------------

    def apply(self, stamp: EventStamp, operation: Operation) -> bool:
        match operation:
            case Set():
                value: bytes | None = bytes(operation.value)
                decode_value(bytes(operation.value))  # validate it now rather than at the first read
            case Delete():
                value = None
            case _:
                raise BadOperation(f"{type(operation).__name__} on registers")
        return self._write(operation.key, stamp, value)

    def _write(self, key: str, stamp: EventStamp, value: bytes | None) -> bool:
        live, dead = self._live.get(key), self._dead.get(key)
        before = live[0] if live else dead
        if before is not None and before >= stamp:
            return False
        if live is not None:
            del self._live[key]
            self._bytes -= len(live[1])
        elif dead is not None:
            del self._dead[key]
        else:
            self._bytes += _ROW + len(key.encode()) + len(stamp.owner)
        if value is None:
            self._dead[key] = stamp
            self._forget()
        else:
            self._live[key] = (stamp, value)
            self._bytes += len(value)
        return live is not None or value is not None

    def _forget(self) -> None:
        if len(self._dead) <= MAX_TOMBSTONES + MAX_TOMBSTONES // 4:  # in batches: sorting costs
            return
        for key in sorted(self._dead, key=lambda k: self._dead[k])[:-MAX_TOMBSTONES]:
            self._bytes -= _ROW + len(key.encode()) + len(self._dead.pop(key).owner)
            self.forgotten += 1

    def rows(self) -> _Rows:
        """Every name with its last write, None for a deletion, sorted."""
        rows: _Rows = [(key, *row) for key, row in self._live.items()]
        rows += [(key, at, None) for key, at in self._dead.items()]
        return sorted(rows, key=lambda row: row[0])

    def state(self) -> bytes:
        return _encode(self.rows())

    def restore(self, state: bytes) -> None:
        try:
            rows = _rows.decode(state)
        except UNREADABLE as error:
            raise BadOperation(f"not a state of registers: {error}") from None
        for _, _, value in rows:
            if value is not None:
                decode_value(value)
        self._live, self._dead, self._bytes = {}, {}, 0
        for key, at, value in rows:
            self._write(key, at, value)

    @property
    def size(self) -> int:
        return self._bytes


class Elements:
    """A set of texts: the names in a map of registers. Of an addition and a removal at the same time one wins, the same
    everywhere."""

    def __init__(self, registers: Registers) -> None:
        self.registers = registers

    def add(self, element: str) -> bytes:
        """The operation that adds it."""
        return self.registers.set(element, None)

    def discard(self, element: str) -> bytes:
        """The operation that removes it, if it is there."""
        return self.registers.delete(element)

    def __contains__(self, element: str) -> bool:
        return element in self.registers

    def __len__(self) -> int:
        return len(self.registers)

    def __iter__(self) -> Iterator[str]:
        return iter(self.registers)


_NUMBER = re.compile(rb"-?[0-9]{1,60}")


class Counter:
    """Additions commute, and a member delivers no event twice, so the sum is exact. Lost events (`over_gap`) are
    missing."""

    kind: ClassVar[str] = "counter"

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0

    def add(self, amount: int = 1) -> bytes:
        """The operation that adds `amount`, which may be negative."""
        return encode(Add(self.name, amount))

    # -- Replica ------------------------------------------------------------------------------------------------

    def apply(self, stamp: EventStamp, operation: Operation) -> bool:
        if not isinstance(operation, Add):
            raise BadOperation(f"{type(operation).__name__} on a counter")
        self.value += operation.amount
        return operation.amount != 0

    def state(self) -> bytes:
        return b"%d" % self.value

    def restore(self, state: bytes) -> None:
        if not _NUMBER.fullmatch(state):
            raise BadOperation(f"not a state of a counter: {state[:80]!r}")
        self.value = int(state)

    @property
    def size(self) -> int:
        return 64
