"""What the protocols around a mechanism send each other as bytes, and back: `reliable`, `lossy`, the links of
`interconnect`; the servers of `daisy` speak `reliable`. The errors are those of `Codec`."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from whence.errors import BadFrame, BadMessage, TooLarge
from whence.order.survey import lossy, reliable
from whence.order.survey.base import Id, Message, State
from whence.order.survey.codec import Codec, check_numbers
from whence.order.survey.interconnect import Forward, Hello, LinkWire

T = TypeVar("T", bound=msgspec.Struct)


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


class Wires(Codec):
    """The bytes of a group that runs one mechanism under one of these protocols."""

    def encode(self, what: Message | State | reliable.Wire | lossy.Wire) -> bytes:
        return self._encode(what)

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


def decode_link(data: bytes, max_bytes: int = 1 << 20) -> LinkWire:
    """What a member of `interconnect.py` receives from another subgroup; the same errors."""
    if len(data) > max_bytes:
        raise TooLarge(f"a message of {len(data)} bytes; at most {max_bytes} are taken")
    try:
        wire: LinkWire = _link.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"no message between subgroups: {error}") from None
    check_numbers(_numbers(wire), "links")
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
