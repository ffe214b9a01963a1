"""Messages and states of one mechanism as bytes, and back. Bytes of a peer are one of these, or a named error."""

from __future__ import annotations

import msgspec

from whence.core.order.survey.base import Mechanism, MechanismState, Message
from whence.errors import BadFrame, BadMessage, TooLarge

MAX_NUMBER = (1 << 62) - 1
"""No counter and no time (nanoseconds) is larger."""


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message whose control information is not decoded yet."""

    sender: int
    seq: int
    stamp: msgspec.Raw
    body: bytes


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

    def encode(self, what: Message | MechanismState) -> bytes:
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

    def decode_state(self, data: bytes) -> MechanismState:
        """A state to `install`; the same errors."""
        self._check_size(data)
        try:
            state: MechanismState = self._state.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadMessage(f"no state of the order {self.mechanism.name}: {error}") from None
        self._check_numbers(msgspec.to_builtins(state))
        return state

    def _check_size(self, data: bytes) -> None:
        if len(data) > self.max_bytes:
            raise TooLarge(f"a message of {len(data)} bytes; at most {self.max_bytes} are taken")

    def _check_numbers(self, value: object) -> None:
        check_numbers(value, self.mechanism.name)


def check_numbers(value: object, what: str) -> None:
    """Counters, times and process numbers are never negative, and no larger than can be."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list | tuple):
            todo += item
        elif isinstance(item, int) and not -1 <= item <= MAX_NUMBER:
            raise BadFrame(f"no counter of the order {what}: {item}")
