"""What processes send each other as bytes, and back: messages and states of one mechanism, and the protocols around
them (`reliable`, `lossy`, the links of `interconnect`; the servers of `daisy` speak `reliable`). What a peer sends is
one of these, or a named error.

Inside another message a message or a state is looked at last: which type it has only the mechanism knows.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from whence.errors import BadFrame, BadMessage, TooLarge
from whence.order.survey import lossy, reliable
from whence.order.survey.base import Id, Mechanism, Message, State
from whence.order.survey.interconnect import Forward, Hello, LinkWire

T = TypeVar("T", bound=msgspec.Struct)

MAX_NUMBER = (1 << 62) - 1
"""No counter and no time (nanoseconds) is larger."""


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message whose control information is not looked at yet."""

    sender: int
    seq: int
    stamp: msgspec.Raw
    body: bytes


class _Data(msgspec.Struct, frozen=True, array_like=True, tag=1):
    view: int
    message: msgspec.Raw


class _Flush(msgspec.Struct, frozen=True, array_like=True, tag=3):
    view: int
    stateful: bool
    unstable: tuple[_Data, ...]


class _Welcome(msgspec.Struct, frozen=True, array_like=True, tag=5):
    view: reliable.View
    state: msgspec.Raw
    received: tuple[Id, ...]
    application: bytes


class _LossyData(msgspec.Struct, frozen=True, array_like=True, tag=1):
    message: msgspec.Raw


class _Snapshot(msgspec.Struct, frozen=True, array_like=True, tag=5):
    state: msgspec.Raw
    received: tuple[Id, ...]
    application: bytes


_reliable = msgspec.msgpack.Decoder(_Data | reliable.Ack | _Flush | reliable.Ready | _Welcome)
_lossy = msgspec.msgpack.Decoder(_LossyData | lossy.Digest | lossy.Ask | lossy.AskState | _Snapshot)
_link = msgspec.msgpack.Decoder(LinkWire)
_encode = msgspec.msgpack.Encoder().encode


class Codec:
    """The bytes of a group that runs one mechanism."""

    def __init__(self, mechanism: Mechanism, max_bytes: int = 1 << 20) -> None:
        """`max_bytes`: longer messages are refused before they are decoded."""
        self.mechanism = mechanism
        self.max_bytes = max_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._envelope = msgspec.msgpack.Decoder(_Envelope, strict=True)
        self._stamp = msgspec.msgpack.Decoder(mechanism.stamp_type)
        self._state = msgspec.msgpack.Decoder(mechanism.state_type)

    def encode(self, what: Message | State | reliable.Wire | lossy.Wire) -> bytes:
        """Bytes for the `decode...` of the same type."""
        return self._encode(what)

    def decode(self, data: bytes) -> Message:
        """A message; `BadMessage`, `TooLarge` or `BadFrame` for anything else."""
        self._check_size(data)
        try:
            envelope = self._envelope.decode(data)
            stamp = self._stamp.decode(envelope.stamp)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadMessage(f"no message of the order {self.mechanism.name}: {error}") from None
        self._check_numbers((envelope.sender, envelope.seq, msgspec.to_builtins(stamp)))
        if envelope.seq < 1:
            raise BadFrame(f"messages are counted from 1: {envelope.seq}")
        self.mechanism.check(stamp)
        return Message(envelope.sender, envelope.seq, stamp, envelope.body)

    def decode_state(self, data: bytes) -> State:
        """A state to `install`; the same errors."""
        self._check_size(data)
        try:
            state: State = self._state.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadMessage(f"no state of the order {self.mechanism.name}: {error}") from None
        self._check_numbers(msgspec.to_builtins(state))
        return state

    def decode_reliable(self, data: bytes) -> reliable.Wire:
        """What a process of `reliable.py` receives; the same errors."""
        wire: _Data | reliable.Ack | _Flush | reliable.Ready | _Welcome = self._decode(_reliable, data)
        match wire:
            case _Data():
                return self._data(wire)
            case _Flush(view, stateful, unstable):
                return reliable.Flush(view, stateful, tuple(map(self._data, unstable)))
            case _Welcome(view, state, received, application):
                if not view.members or list(view.members) != sorted(set(view.members)):
                    raise BadFrame(f"no view: members {view.members}")
                return reliable.Welcome(view, self.decode_state(bytes(state)), received, application)
        return wire

    def _data(self, data: _Data) -> reliable.Data:
        return reliable.Data(data.view, self.decode(bytes(data.message)))

    def decode_lossy(self, data: bytes) -> lossy.Wire:
        """What a process of `lossy.py` receives; the same errors."""
        wire: _LossyData | lossy.Digest | lossy.Ask | lossy.AskState | _Snapshot = self._decode(_lossy, data)
        match wire:
            case _LossyData(message):
                return lossy.Data(self.decode(bytes(message)))
            case _Snapshot(state, received, application):
                return lossy.Snapshot(self.decode_state(bytes(state)), received, application)
        return wire

    def _decode(self, decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
        self._check_size(data)
        try:
            wire = decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadMessage(f"no message among processes: {error}") from None
        self._check_numbers(_numbers(wire))
        return wire

    def _check_size(self, data: bytes) -> None:
        if len(data) > self.max_bytes:
            raise TooLarge(f"a message of {len(data)} bytes; at most {self.max_bytes} are taken")

    def _check_numbers(self, value: object) -> None:
        _check_numbers(value, self.mechanism.name)


def decode_link(data: bytes, max_bytes: int = 1 << 20) -> LinkWire:
    """What a member of `interconnect.py` receives from another subgroup; the same errors."""
    if len(data) > max_bytes:
        raise TooLarge(f"a message of {len(data)} bytes; at most {max_bytes} are taken")
    try:
        wire: LinkWire = _link.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"no message between subgroups: {error}") from None
    _check_numbers(_numbers(wire), "links")
    match wire:
        case Hello() if not wire.servers or wire.session < 1:
            raise BadFrame("a session without a server, or before the first")
        case Forward() if wire.at < 1 or wire.message.number < 0:
            raise BadFrame("messages of a link are counted from 1")
    return wire


def encode_link(wire: LinkWire) -> bytes:
    """Bytes for `decode_link`."""
    return _encode(wire)


def _numbers(wire: msgspec.Struct) -> object:
    """Its fields, without what is not looked at yet."""
    fields = [getattr(wire, name) for name in wire.__struct_fields__]
    return [
        [_numbers(part) for part in field]
        if isinstance(field, tuple) and field and isinstance(field[0], msgspec.Struct)
        else _numbers(field)
        if isinstance(field, msgspec.Struct)
        else field
        for field in fields
        if not isinstance(field, msgspec.Raw)
    ]


def _check_numbers(value: object, what: str) -> None:
    """Counters, times and process numbers are never negative, and no larger than can be."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list | tuple):
            todo += item
        elif isinstance(item, int) and not -1 <= item <= MAX_NUMBER:
            raise BadFrame(f"no counter of the order {what}: {item}")
