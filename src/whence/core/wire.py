"""What members say to each other, as bytes and back. Decoding raises only RemoteErrors, whatever the bytes.

Each package has its messages in `messages.py`; here they are one union. Numbers: 1..15 `cast`, 32..63 and 96..127
`ring`, 64..95 `order`; only ever appended, never used again. A new field goes last, with a default.

The types of the messages say what each field may be (`clock.bounds`), and msgspec checks it while it decodes. What
types cannot say, `decode` checks: that parts of a message agree with each other.

What goes on the network: one message with its version, cluster and sender before it.

    magic  version  len(cluster) cluster  len(sender) sender  message
      1       1          1          ..         1        ..      ..

The version comes first, so that a later version can tell an old peer from noise. The header is plain bytes: several
clusters share a port, and a packet for another cluster is passed on or dropped without decoding its message. It does
not name the target: the same bytes go to every peer.

Messages on a byte stream: four bytes of length, big-endian, then so many bytes of packet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import msgspec

from whence.core.cast.messages import CastMessage, Gossip, Graft, IHave, Key, News, Welcome
from whence.core.clock import Digest, MemberId, check_vector, is_member_id
from whence.core.clock.bounds import MAX_MESSAGE_BYTES, MAX_NEWS_BYTES, MAX_SEQ
from whence.core.order.messages import AckRecover, AnySpan, DirectMessage, OrderMessage, Recover
from whence.core.ring.messages import RingMessage, RingNews
from whence.errors import BadMessage, RemoteError, TooLarge, UsageError, WrongVersion

Message = CastMessage | RingMessage | OrderMessage
"""Everything one member can say to another."""

_NAME = re.compile(r"[!-~]{1,255}")


def is_name(text: str) -> bool:
    """1 to 255 visible ASCII characters: safe in a log line, one byte each."""
    return _NAME.fullmatch(text) is not None


encode = msgspec.msgpack.Encoder().encode
"""A message alone, without a header: the same bytes for every target. (Or news: the body of a `News`.)"""
_message: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_news: msgspec.msgpack.Decoder[RingNews] = msgspec.msgpack.Decoder(RingNews)

_NOT_ONE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode(data: bytes | memoryview) -> Message:
    """The message, checked as far as no state is needed."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"message of {len(data)} bytes, allowed are {MAX_MESSAGE_BYTES}")
    # msgspec makes room for at most 16 elements of an array ahead of reading them: a length in the data costs
    # nothing. Unknown fields at the end are skipped (a later version may append some); nested without end, they hit
    # the recursion limit. A str that is no UTF-8 is a UnicodeDecodeError.
    try:
        message = _message.decode(data)
    except _NOT_ONE as error:
        raise BadMessage(f"not a message: {error}") from None
    if type(message) is not Gossip:
        _check(message)
        return message
    if len(message.items) != len(message.ages):
        raise BadMessage(f"gossip with {len(message.items)} items and {len(message.ages)} ages")
    for item in message.items:
        if not isinstance(item, News):
            item.check()
    if message.digest is not None:
        check_vector(message.digest.T, message.digest.orphans)
    return message


def _check(message: Message) -> None:
    """Raise a RemoteError unless the parts of a message agree. What it says of the past is checked where that is known
    (`order`)."""
    match message:
        case IHave(keys, ages):
            _check_keys(keys)
            if len(keys) != len(ages):
                raise BadMessage(f"an announcement of {len(keys)} items and {len(ages)} ages")
        case Graft(keys):
            _check_keys(keys)
        case Welcome(digest=Digest(T, orphans)):
            check_vector(T, orphans)
        case Recover(ranges=spans):
            _check_spans(spans)
        case DirectMessage(frame=told):
            told.check()
            if not told.direct or told.count != 1:
                raise BadMessage("a message to one member that is none")
        case AckRecover(frames=frames, lacks=spans):
            _check_spans(spans)
            for frame in frames:
                frame.check()
        case _:
            pass


def _check_keys(keys: Iterable[Key]) -> None:
    """Of a frame (three parts, the first a ticket or an owner) or of news (its origin and a number)."""
    for key in keys:
        if not 2 <= len(key) <= 3 or any(isinstance(part, str) for part in key[1:]):
            raise BadMessage(f"no key of an item: {key[:4]}")
        if len(key) == 2 and not isinstance(key[0], str):
            raise BadMessage("a key of news without an origin")


def _check_spans(spans: Iterable[AnySpan]) -> None:
    """Events of a ticket's incarnation, or (incarnation 0) frames of an owner."""
    for of, inc, first, last in spans:
        known = inc == 0 if isinstance(of, str) else inc >= 1 and last <= MAX_SEQ
        if not (known and 1 <= first <= last):
            raise BadMessage(f"no range of events or frames: {(of, inc, first, last)}")


def decode_news(body: bytes) -> RingNews:
    """What the body of a `News` says."""
    if len(body) > MAX_NEWS_BYTES:
        raise TooLarge(f"news of {len(body)} bytes, allowed are {MAX_NEWS_BYTES}")
    try:
        return _news.decode(body)
    except _NOT_ONE as error:
        raise BadMessage(f"not news: {error}") from None


MAGIC = 0xC1
"""The one byte that msgpack never uses: a bare message is not mistaken for a packet."""

VERSION = 1
"""Raised when a message changes its meaning; a new message or a new last field does not raise it."""


class Packet(NamedTuple):
    """A message, the cluster it is for and who says to have sent it."""

    cluster: str
    sender: MemberId
    message: Message


class Header(NamedTuple):
    """The header of a packet, and the bytes of its message, not decoded."""

    cluster: str
    sender: MemberId
    body: memoryview


@lru_cache(maxsize=1024)
def header(cluster: str, sender: MemberId) -> bytes:
    """What stands before every message of this member in this cluster."""
    if not is_name(cluster):
        raise UsageError(f"not a cluster name: {cluster!r} (want 1 .. 255 visible ASCII characters)")
    if not is_member_id(sender):
        raise UsageError(f"not a member id: {sender!r} (want address#boot, at most 255 visible ASCII characters)")
    return b"%c%c%c%b%c%b" % (MAGIC, VERSION, len(cluster), cluster.encode(), len(sender), sender.encode())


def pack(cluster: str, sender: MemberId, message: Message) -> bytes:
    """The packet of a message: the same bytes for every target."""
    return header(cluster, sender) + encode(message)


def read_header(data: bytes) -> Header:
    """Reads the header only: enough to find the cluster."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"packet of {len(data)} bytes, allowed are {MAX_MESSAGE_BYTES}")
    if len(data) < 2 or data[0] != MAGIC:
        raise BadMessage("not a packet: it does not begin with the magic byte")
    if data[1] != VERSION:
        raise WrongVersion(f"peer speaks version {data[1]} of the protocol, this is version {VERSION}")
    at = _name_end(data, _name_end(data, 2))
    cluster, sender = _names(data[2:at])
    return Header(cluster, sender, memoryview(data)[at:])


@lru_cache(maxsize=1024)  # the same few at the head of every packet
def _names(data: bytes) -> tuple[str, MemberId]:
    """The cluster and the sender in the header, each behind its length."""
    split = 1 + data[0]
    cluster, sender = str(data[1:split], "latin-1"), str(data[split + 1 :], "latin-1")
    if not is_name(cluster):
        raise BadMessage(f"not a cluster name: {cluster!r}")
    if not is_member_id(sender):
        raise BadMessage(f"not a member id: {sender!r}")
    return cluster, sender


def unpack(data: bytes) -> Packet:
    """The inverse of `pack`. Raises only RemoteErrors, whatever the bytes."""
    cluster, sender, body = read_header(data)
    return Packet(cluster, sender, decode(body))


def _name_end(data: bytes, at: int) -> int:
    """Where the name ends whose length byte is at `at`."""
    if at >= len(data) or (end := at + 1 + data[at]) > len(data):
        raise BadMessage("packet ends within its header")
    return end


_LENGTH = Struct(">I")
PREFIX = _LENGTH.size


def frame_stream(data: bytes, most: int = MAX_MESSAGE_BYTES) -> bytes:
    """The packet as it goes on a stream."""
    if not 1 <= len(data) <= most:
        raise UsageError(f"a packet of {len(data)} bytes cannot be sent: 1 .. {most} are allowed")
    return _LENGTH.pack(len(data)) + data


class StreamDecoder:
    """Cuts a stream back into packets, whatever the chunks. Between two calls it holds less than one packet. A bad
    length is refused as soon as its four bytes are there, before any allocation. After that the decoder is broken: cut
    off the peer."""

    __slots__ = ("_broken", "_cap", "_wanted", "begun")

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        """`most`: bytes of a packet."""
        self._cap = most
        self.begun = bytearray()  # the beginning of a packet that is not complete yet
        self._wanted = PREFIX  # bytes until a packet, or at least its length, is complete
        self._broken: RemoteError | None = None

    def feed(self, data: bytes) -> list[memoryview]:
        """The packets that this chunk completes, not copied. Raises TooLarge or BadMessage on a length that cannot
        be."""
        if self._broken is not None:
            raise self._broken
        if self._wanted > len(data):  # no need to look at it yet
            self.begun += data
            self._wanted -= len(data)
            return []
        whole = memoryview(data)
        if self.begun:
            self.begun += data
            whole, self.begun = memoryview(self.begun), bytearray()
        packets: list[memoryview] = []
        start, end, wanted = 0, len(whole), PREFIX
        while start + PREFIX <= end:
            (length,) = _LENGTH.unpack_from(whole, start)
            if not 1 <= length <= self._cap:
                self._break(length)
            wanted = PREFIX + length
            if start + wanted > end:
                break
            packets.append(whole[start + PREFIX : start + wanted])
            start, wanted = start + wanted, PREFIX
        self._wanted = wanted - (end - start)
        if start < end:
            self.begun += whole[start:]
        return packets

    def _break(self, length: int) -> None:
        self.begun = bytearray()
        self._broken = (
            TooLarge(f"stream announces a packet of {length} bytes, allowed are {self._cap}")
            if length
            else BadMessage("stream announces an empty packet")
        )
        raise self._broken
