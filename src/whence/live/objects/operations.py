"""The wire format of operations on replicated objects: tagged, versioned, bounded.

A payload is `C1 <version> <msgpack>`. No msgpack value and no UTF-8 text begins with the byte C1, so an application's
own events can share the cluster with objects. Tags are only ever appended.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

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


class Update(_Op, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True, tag=4):
    """A Yjs update: number `number` (from 1) of the editor `client`."""

    client: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    update: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_UPDATE)]


UNREADABLE = (msgspec.DecodeError, RecursionError, ValueError, TypeError)
"""What msgspec raises on malformed bytes (text that is not UTF-8 is a ValueError)."""

Operation = Set | Delete | Add | Update

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
