"""What hosts say to each other before members do: who is at the other end, and which life of it is in a cluster.

    H  version  message             a word between hosts
    D  len(target) target  packet   for this member alone, in this very life: rings and streams
    packet                          for whoever is in the cluster: gossip

A packet (`wire.pack`) begins with its magic byte, which is neither letter.

What all members have to have in common is compared before a member joins:

1. A question to a contact carries the asker's settings, its answer those of the contact. Both sides compare.
2. A difference in `DECISIVE` means that the two cannot work together: the joiner gets a UsageError, the other logs it.
   Any other difference is logged by both: the cluster works, but not as it was planned.

The run id of a live cluster is the `run` column of its traces (docs/trace.md). All members of a cluster share one, and
no two foundings do. In this order: `WHENCE_RUN` in the environment of the process; the run of the cluster that is
joined, which every member tells whoever asks before joining (`Answer`); the run in the directory of a member that
resumes from its checkpoint and finds nobody; a new one, when this member creates the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from whence.core.clock import MemberId, is_member_id
from whence.core.clock.bounds import Count, MaybeMember
from whence.core.config import Config
from whence.core.wire import is_name
from whence.errors import BadMessage, UsageError, WrongVersion
from whence.files import write_whole

log = logging.getLogger("whence.live.net")

MAX_RUN: Final = 64
"""Characters of a run id. It travels in a datagram with other names."""


def is_run(text: str) -> bool:
    """At most `MAX_RUN` visible ASCII characters."""
    return len(text) <= MAX_RUN and is_name(text)


def new_run() -> str:
    """A run id that no other cluster has: the time, for people, and random digits."""
    return f"live-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(4).hex()}"


def run_of(told: Iterable[str], directory: Path | None, resumes: bool) -> str:
    """The run of this member's cluster. `told`: what its members answered, empty where they said nothing. `resumes`:
    it goes on from a checkpoint in `directory`, where the run is kept for the next life."""
    given = os.environ.get("WHENCE_RUN", "")
    if given and not is_run(given):
        raise UsageError(f"WHENCE_RUN must be 1 to {MAX_RUN} visible ASCII characters without spaces, not {given!r}")
    first = given or next(filter(None, told), "")
    run = first or (kept_run(directory) if resumes else "") or new_run()
    if directory is not None:
        _keep(directory, run)
    return run


def kept_run(directory: Path | None) -> str:
    """What the last life kept; empty: nothing that can be read."""
    if directory is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            kept = (directory / "run").read_text(encoding="ascii").strip()
            return kept if is_run(kept) else ""
    return ""


def _keep(directory: Path, run: str) -> None:
    """Without it only the name of the next trace changes, so a failure is no reason to stay away."""
    try:
        if kept_run(directory) != run:
            write_whole(directory / "run", f"{run}\n")
    except OSError as error:
        log.warning("%s: the run id %s is not kept for a restart: %s", directory, run, error.strerror or error)


ShortName = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{0,32}\Z")]
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
    """The asker's (`net.hello`)."""


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """This is who I am in it; no `member`: I am not in it (yet)."""

    cluster: str
    nonce: int
    member: MaybeMember = ""
    settings: dict[str, str] = {}
    epoch: int = -1
    """The highest epoch that its disk remembers; -1: none."""
    holds: bool = False
    """It holds a ticket, or is about to found."""
    run: str = ""
    """The run id of the cluster (`net.hello`), from a member."""
    order: ShortName = ""
    """The order of its deliveries, its version of whence, its ticket (-1: none) and its lag: for `net.status`."""
    version: ShortName = ""
    ticket: int = -1
    held: Count = 0
    unread: Count = 0


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


DECISIVE = ("tickets", "mechanism", "view", "mode", "ring")
"""Settings without which two members cannot work together."""


def settings_of(config: Config) -> dict[str, str]:
    """The settings that have to be the same at all members, by the names under which they are given."""
    ring, cast = config.ring, config.cast
    found: dict[str, object] = {
        "tickets": config.tickets,
        "mechanism": config.ordering.joins,
        "view": cast.view,
        "mode": cast.mode,
        "round_ns": cast.round,
        "fanout": cast.fanout,
        "ring": ring.protocol,
        "ring_k": ring.k,
        "ring_round_ns": ring.round_ns,
        "delta_ns": ring.delta_ns,
    }
    return {name: str(value) for name, value in found.items()}


def differences(mine: Mapping[str, str], theirs: Mapping[str, str], there: str) -> tuple[str, bool]:
    """Each setting that differs, with both values, and whether one of them is decisive; an empty text: none."""
    names = [name for name in mine if theirs and theirs.get(name, mine[name]) != mine[name]]
    said = "; ".join(f"{name} is {mine[name]} here and {theirs[name]} at {there}" for name in names)
    return said, any(name in DECISIVE for name in names)
