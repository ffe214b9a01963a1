"""What both transports share, `TcpTransport` and `MemoryTransport`.

A transport knows addresses (`host:port`) and packets, nothing of what is in them. It promises little: a packet arrives
whole or not at all; `reliable` ones in order, and not more than once, while the connection lasts. Every queue in it is
bounded and every drop counted.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import NamedTuple

from whence.core.clock import MemberId
from whence.errors import UsageError


class Route(NamedTuple):
    """How the packets of one member begin, and what that says."""

    prefix: bytes
    cluster: str
    sender: MemberId
    target: MemberId | None
    """The only member that they are for; None: any member of the cluster here."""


@dataclass(slots=True, eq=False)
class Connection:
    """Where a packet came from."""

    peer: str | None = None
    """The address of the other end: from its greeting; None before that."""
    name: str | None = None
    """Who it is by its certificate, where there is one."""
    is_publisher: bool = True
    """Its certificate does not say that it only receives."""
    closed: bool = False
    """Nothing more is taken from it."""
    urgent: bool = False
    """It is the lane for the small and reliable packets."""
    forged: int = 0
    """Packets on it that the guard refused."""
    waiting: int = 0
    """Bytes of its urgent packets that wait for a node."""
    asked: tuple[int, int] = (0, 0)
    """The last second in which it asked who is there, and how often."""
    route: Route | None = None
    """Of the last packet that came from it: the next one most likely begins in the same way."""

    def hold(self, held: bool) -> None:
        """Read no more from it for a while, or go on."""

    def refuse(self, why: str) -> None:
        """Close it, and tell the operator why."""
        self.close()

    def close(self) -> None:
        """Take no more from it."""


Received = Callable[[Sequence[bytes | memoryview], Connection], None]
"""Called with the packets that arrive together."""


@dataclass(slots=True)
class NetStats:
    """Counters of one host. Nothing is dropped without one of them rising."""

    sent: int = 0
    """Packets handed to the transport, one per target."""
    sent_bytes: int = 0
    received: int = 0
    """Packets that arrived, before any check."""
    received_bytes: int = 0
    lost_on_purpose: int = 0
    """By fault injection."""
    peer_full: int = 0
    """Datagram-class packets dropped because the peer reads too slowly, or cannot be reached."""
    peer_broken: int = 0
    """Connections given up: their transport failed, or the peer did not read."""
    unsent: int = 0
    """Stream-class packets lost with their connection, or that never had one."""
    connects: int = 0
    connect_failures: int = 0
    accepted: int = 0
    refused: int = 0
    """Connections closed at once: too many of them."""
    exhausted: int = 0
    """Times that no connection could be accepted for a while: out of file descriptors or memory."""
    stale: int = 0
    """Connections closed because their peer did not say who it is in time, or stalled in the middle of a packet."""
    held: int = 0
    """Times that reading was stopped because the nodes were behind."""
    not_urgent: int = 0
    """Connections that sent gossip on the urgent lane, and are held like all others since."""
    bad_stream: int = 0
    """Connections closed because of a length that cannot be."""
    unauthentic: int = 0
    """Packets that the guard refused: wrong key, forged, replayed, too old."""
    bad_packet: int = 0
    """Authentic packets without a header that can be read."""
    other_sender: int = 0
    """Packets whose header names another sender than the connection does."""
    other_life: int = 0
    """Packets directed to an earlier life of this member, or to another member."""
    unanswered: int = 0
    """Questions of who is there: too many, or in the name of another address."""
    no_cluster: int = 0
    """Packets for a cluster that this host has no member of."""

    def asdict(self) -> dict[str, int]:
        return {f"net.{f.name}": getattr(self, f.name) for f in fields(self)}


class Faults:
    """Faults made on purpose, for tests and soaks: loss of datagram-class packets, and cut links."""

    def __init__(self, drop: float = 0.0, seed: int = 0) -> None:
        if not 0 <= drop < 1:
            raise UsageError(f"drop must be at least 0 and below 1, not {drop}")
        self.drop = drop
        self.listeners: list[Callable[[str], None]] = []
        """Called with a description of each fault: hosts write it into the traces of their members."""
        self._rng = random.Random(seed)
        self._island: dict[str, int] = {}

    def cut(self, *islands: Iterable[str]) -> None:
        """A partition: addresses in different islands do not reach each other. Those in none reach everybody."""
        self._island = {address: i for i, island in enumerate(islands) for address in island}
        self._tell(f"cut into {len(islands)} islands")

    def heal(self) -> None:
        """All links are back."""
        self._island = {}
        self._tell("all links are back")

    def _tell(self, what: str) -> None:
        for listener in self.listeners:
            listener(what)

    def lose(self, source: str, target: str, reliable: bool) -> bool:
        """Whether the next packet from one address to the other is lost."""
        if self._island:
            a, b = self._island.get(source), self._island.get(target)
            if a is not None and b is not None and a != b:
                return True
        return not reliable and self.drop > 0 and self._rng.random() < self.drop


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, or `[v6]:port`, in its parts."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(f"not an address: {text!r} (write an IPv6 host in brackets: [::1]:7001)")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(f"not an address: {text!r} (want host:port)")
    if not _is_name(host):
        raise UsageError(f"not an address: {text!r} ({host!r} is no host name: want parts of 1 to 63 letters)")
    return host, int(port)


def _is_name(host: str) -> bool:
    """The resolver raises no OSError for what fails here, but a UnicodeError; and a peer may invent any name."""
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return False
    return all(0 < len(part) < 64 for part in name.removesuffix(".").split("."))


def show_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Nobody outside this machine can reach it."""
    return host == "localhost" or ((ip := _ip(host)) is not None and ip.is_loopback)


def is_wildcard(host: str) -> bool:
    """It means every address of this machine, so it is none that others could use."""
    return (ip := _ip(host)) is not None and ip.is_unspecified


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None
