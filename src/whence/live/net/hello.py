"""What hosts say to each other before members do: who is at the other end, and which life of it is in a cluster.

    H  version  message             a word between hosts
    D  len(target) target  packet   for this member alone, in this very life: rings and streams
    packet                          for whoever is in the cluster: gossip

A packet (`wire.packet`) begins with its magic byte, which is neither letter.
"""

from __future__ import annotations

import msgspec

from whence.core.clock import MemberId, is_member_id
from whence.core.wire import is_name
from whence.errors import BadMessage, WrongVersion
from whence.live.net.run import is_run

HELLO = ord("H")
DIRECTED = ord("D")
VERSION = 1


class Greeting(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The first word on a connection: the address of whoever opened it, and whether it is for urgent packets only."""

    address: str
    urgent: bool = False


class Ask(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Who are you in this cluster? The answer goes to `address`."""

    cluster: str
    address: str
    nonce: int
    settings: dict[str, str] = {}
    """The asker's (`net.agreement`)."""


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """This is who I am in it; no `member`: I am not in it (yet)."""

    cluster: str
    nonce: int
    member: MemberId = ""
    settings: dict[str, str] = {}
    epoch: int = -1
    """The highest epoch that its disk remembers; -1: none."""
    holds: bool = False
    """It holds a ticket, or is about to found."""
    run: str = ""
    """The run id of the cluster (`net.run`), from a member."""


class Decide(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A person says: the council is lost for good, found the ring again. The answer goes to `address`."""

    cluster: str
    address: str
    nonce: int


class Decided(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """It is done, or refused for this reason."""

    nonce: int
    refused: str = ""


Hello = Greeting | Ask | Answer | Decide | Decided

_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    return bytes((HELLO, VERSION)) + msgspec.msgpack.encode(hello)


def decode_hello(data: bytes) -> Hello:
    """Raises only RemoteErrors, whatever the bytes."""
    if len(data) < 2 or data[1] != VERSION:
        raise WrongVersion(f"peer says hello in version {data[1] if len(data) > 1 else None}, this is {VERSION}")
    if len(data) > 1024:
        raise BadMessage(f"hello of {len(data)} bytes")
    try:
        hello = _decoder.decode(memoryview(data)[2:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"not a hello: {error}") from None
    for name in (getattr(hello, "address", "a:1"), getattr(hello, "cluster", "c")):
        if not is_name(name):
            raise BadMessage(f"not a name: {name!r}")
    if isinstance(hello, Answer) and hello.member and not is_member_id(hello.member):
        raise BadMessage(f"not a member id: {hello.member!r}")
    if isinstance(hello, Answer) and hello.run and not is_run(hello.run):
        raise BadMessage(f"not a run id: {hello.run!r}")
    return hello


def direct(target: MemberId, packet: bytes) -> bytes:
    """A packet for this member alone."""
    name = target.encode()
    return b"%c%c%b%b" % (DIRECTED, len(name), name, packet)


def read_direct(data: bytes) -> tuple[MemberId, bytes]:
    """The inverse of `direct`."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        raise BadMessage("directed packet ends within its header")
    end = 2 + data[1]
    return str(data[2:end], "latin-1"), data[end:]
