"""Messages to bytes and back. Decoding raises only RemoteErrors, whatever the bytes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from whence.core.ring.messages import RingNews
from whence.core.wire.limits import DEFAULT, Limits
from whence.core.wire.validate import Message, validate
from whence.errors import BadMessage, TooLarge

_encode = msgspec.msgpack.Encoder().encode
_message: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_news: msgspec.msgpack.Decoder[RingNews] = msgspec.msgpack.Decoder(RingNews)

M = TypeVar("M")


def encode(message: Message) -> bytes:
    """The message alone, without a header: the same bytes for every target."""
    return _encode(message)


def decode(data: bytes | memoryview, limits: Limits = DEFAULT) -> Message:
    """The message, checked as far as no state is needed."""
    return _decode(_message, data, limits, limits.max_message_bytes)


def encode_news(news: RingNews) -> bytes:
    """The body of a `News` that carries this."""
    return _encode(news)


def decode_news(body: bytes, limits: Limits = DEFAULT) -> RingNews:
    """What the body of a `News` says."""
    return _decode(_news, body, limits, limits.max_news_bytes)


def _decode(decoder: msgspec.msgpack.Decoder[M], data: bytes | memoryview, limits: Limits, cap: int) -> M:
    if len(data) > cap:
        raise TooLarge(f"message of {len(data)} bytes, allowed are {cap}")
    # msgspec makes room for at most 16 elements of an array ahead of reading them: a length in the data costs
    # nothing. Unknown fields at the end are skipped (a later version may append some); nested without end, they hit
    # the recursion limit. A str that is no UTF-8 is a UnicodeDecodeError.
    try:
        message = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"not a message: {error}") from None
    validate(message, limits)
    return message
