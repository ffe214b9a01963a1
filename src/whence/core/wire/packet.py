"""What goes on the network: one message with its version, cluster and sender before it.

    magic  version  len(cluster) cluster  len(sender) sender  message
      1       1          1          ..         1        ..      ..

The version comes first, so that a later version can tell an old peer from noise. The header is plain bytes: several
clusters share a port, and a packet for another cluster is passed on or dropped without decoding its message. It does
not name the target: the same bytes go to every peer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from whence.core.clock import MemberId, is_member_id
from whence.core.wire.codec import decode, encode
from whence.core.wire.limits import DEFAULT, Limits
from whence.core.wire.validate import Message, is_name
from whence.errors import BadMessage, TooLarge, UsageError, WrongVersion

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


def read_header(data: bytes, limits: Limits = DEFAULT) -> Header:
    """Reads the header only: enough to find the cluster."""
    if len(data) > limits.max_message_bytes:
        raise TooLarge(f"packet of {len(data)} bytes, allowed are {limits.max_message_bytes}")
    if len(data) < 2 or data[0] != MAGIC:
        raise BadMessage("not a packet: it does not begin with the magic byte")
    if data[1] != VERSION:
        raise WrongVersion(f"peer speaks version {data[1]} of the protocol, this is version {VERSION}")
    at = _name_end(data, _name_end(data, 2, limits), limits)
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


def unpack(data: bytes, limits: Limits = DEFAULT) -> Packet:
    """The inverse of `pack`. Raises only RemoteErrors, whatever the bytes."""
    cluster, sender, body = read_header(data, limits)
    return Packet(cluster, sender, decode(body, limits))


def _name_end(data: bytes, at: int, limits: Limits) -> int:
    """Where the name ends whose length byte is at `at`."""
    if at >= len(data):
        raise BadMessage("packet ends within its header")
    end = at + 1 + data[at]
    if end > len(data):
        raise BadMessage("packet ends within its header")
    if data[at] > limits.max_name_bytes:
        raise TooLarge(f"name of {data[at]} bytes, allowed are {limits.max_name_bytes}")
    return end
