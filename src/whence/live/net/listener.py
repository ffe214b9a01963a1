"""Accepts connections, and bounds those whose openers have not said who they are, before any handshake.

asyncio's own server accepts whatever comes and begins a TLS handshake for each: a thousand idle connections take every
file descriptor of the process. Here a stranger above the bound of its address makes that address's oldest stranger go,
so honest peers behind the same address (NAT, loopback), which greet at once, still get in. Above the bound for all, the
address with the most strangers loses one. Running out of descriptors is taken as passing: accepting pauses.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from whence.core.clock.bounds import keep_last
from whence.errors import UsageError
from whence.live.net.tls import refusal
from whence.live.net.transport import NetStats, show_address

log = logging.getLogger("whence.live.net")

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors that say: not now."""
PAUSE_S = 0.5
"""Seconds without accepting after the system has run out of something."""
BATCH = 8
"""The most connections accepted in one turn of the loop, so that other work gets its turn."""


def descriptor_share(parts: int, most: int) -> int:
    """At most `most`, and one part of the file descriptors that this process may have. The others are left to the disk,
    the application and the rest of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(8, min(most, soft // parts))


class Stranger(Protocol):
    """The `asyncio.Protocol` of a connection that the listener may have to close."""

    def close(self) -> None: ...


class Listener:
    """One listening port. `make` builds the protocol of an accepted connection, which calls `known` when its opener has
    said who it is and `gone` when it ends."""

    def __init__(
        self,
        make: Callable[[], Stranger],
        stats: NetStats,
        *,
        tls: ssl.SSLContext | None = None,
        handshake_timeout: float = 5.0,
        max_strangers: int = 128,
        max_per_address: int = 64,
        buffer: int = 0,
    ) -> None:
        self.make = make
        self.stats = stats
        self.strangers: dict[Stranger, str] = {}
        """With the IP address of each."""
        self._by_address: dict[str, dict[Stranger, None]] = {}  # oldest first
        self.refusals = Refusals()
        """Whom this process has refused."""
        self.address = ("", 0)
        self.tls = tls
        self._handshake_timeout = handshake_timeout
        self._max_strangers = descriptor_share(8, max_strangers)
        self._max_per_address = max_per_address
        self._buffer = buffer
        self._sockets: list[socket.socket] = []
        self._opening: dict[Stranger, asyncio.Task[None]] = {}
        self._unopened: dict[Stranger, socket.socket] = {}
        self._loop: asyncio.AbstractEventLoop
        self._pause: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises UsageError if the address cannot be had."""
        self._loop = asyncio.get_running_loop()
        try:
            for family, kind, proto, _, address in dict.fromkeys(await self._resolve(host, port)):
                self._sockets.append(sock := socket.socket(family, kind, proto))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if self._buffer:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)  # accepted ones inherit it
                sock.setblocking(False)
                sock.bind(address)
                sock.listen(128)
        except OSError as error:
            for sock in self._sockets:
                sock.close()
            raise UsageError(f"cannot listen on {show_address(host, port)}: {error.strerror or error}") from None
        self.address = (host, self._sockets[0].getsockname()[1])
        self._resume()

    async def _resolve(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Only a name needs the resolver, which takes a thread, and the tables of international names."""
        stream, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
        try:
            return [*socket.getaddrinfo(host.encode(), port, type=stream, flags=passive | socket.AI_NUMERICHOST)]
        except socket.gaierror:
            return [*await self._loop.getaddrinfo(host, port, type=stream, flags=passive)]

    def _resume(self) -> None:
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                connection, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self.stats.exhausted += 1
                log.warning("no connections are accepted for %.1f s: %s", PAUSE_S, error.strerror)
                self._suspend()
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            self._admit(connection, str(address[0]))

    def _admit(self, connection: socket.socket, address: str) -> None:
        """A stranger more. Somebody makes room for it where there are too many."""
        stranger = self.make()
        self.strangers[stranger] = address
        self._unopened[stranger] = connection
        self._opening[stranger] = task = self._loop.create_task(self._open(stranger, address))
        task.add_done_callback(lambda _: self._opened(stranger))
        mine = self._by_address.setdefault(address, {})
        mine[stranger] = None
        if len(mine) > self._max_per_address:
            self._evict(next(iter(mine)))
        elif len(self.strangers) > self._max_strangers:
            worst = max(self._by_address.values(), key=len)
            self._evict(next(iter(worst)))

    async def _open(self, stranger: Stranger, address: str) -> None:
        connection = self._unopened.pop(stranger)
        protocol = cast("asyncio.BaseProtocol", stranger)
        timeout = None if self.tls is None else self._handshake_timeout
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self.tls, ssl_handshake_timeout=timeout
            )
        except Exception as error:
            self.gone(stranger)
            self.stats.unauthentic += 1
            self.refusals.note(address, failed_handshake(error))

    def _opened(self, stranger: Stranger) -> None:
        self._opening.pop(stranger, None)
        connection = self._unopened.pop(stranger, None)
        if connection is not None:  # the task ended before it began
            connection.close()

    def _evict(self, stranger: Stranger) -> None:
        self.stats.refused += 1
        self.gone(stranger)
        task = self._opening.get(stranger)
        if task is not None:
            task.cancel()
        stranger.close()

    def known(self, stranger: Stranger) -> None:
        """It has said who it is."""
        address = self.strangers.pop(stranger, None)
        if address is not None:
            del self._by_address[address][stranger]
            if not self._by_address[address]:
                del self._by_address[address]

    gone = known

    def refuse(self, connection: asyncio.BaseTransport | None, why: str) -> None:
        """Remember and log why this connection is closed."""
        address = None if connection is None else connection.get_extra_info("peername")
        self.refusals.note(str(address[0]) if address else "an unknown address", why)

    def _suspend(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())

    def close(self) -> list[asyncio.Task[None]]:
        """Stop listening. Returns the handshakes that were cut short, to be waited for."""
        if self._pause is not None:
            self._pause.cancel()
        self._suspend()
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        return tasks


def tune(transport: asyncio.BaseTransport, buffer: int, stall_timeout: float) -> None:
    """Send at once, and find out when the other end has vanished. `buffer`: bytes that the kernel may hold; 0: as it
    likes."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_timeout * 1000))


EVERY_S = 60.0
"""Seconds between two log lines about one address."""
MAX_ADDRESSES = 256
"""Addresses remembered; the one refused longest ago is forgotten first."""
BURST = 16
"""Log lines within `EVERY_S`, about all addresses together."""


class Refusals:
    """The last reason for each address, of what is logged as `text`."""

    def __init__(self, text: str = "a connection from %s is refused: %s") -> None:
        self.last: dict[str, tuple[float, str]] = {}
        self._text = text
        self._logged: dict[str, float] = {}

    def note(self, address: str, why: str, now: float | None = None) -> None:
        """Remember it, and log it unless this address was logged a short time ago, or too many others were."""
        now = time.monotonic() if now is None else now
        self.last.pop(address, None)
        self.last[address] = now, why
        keep_last(self.last, MAX_ADDRESSES)
        self._logged = {a: at for a, at in self._logged.items() if now - at < EVERY_S}
        if address not in self._logged and len(self._logged) < BURST:
            self._logged[address] = now
            log.warning(self._text, address, why)

    def told(self) -> dict[str, str]:
        """All of them, and how long ago that was."""
        return {address: f"{why} ({time.monotonic() - at:.0f} s ago)" for address, (at, why) in self.last.items()}


def failed_handshake(error: Exception) -> str:
    """Why a TLS handshake failed, in words."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(refusal(error))
    if isinstance(error, TimeoutError):
        return "it did not finish the TLS handshake in time"
    return "it ended the TLS handshake: our certificate may be of another CA than its, or one of us does not use TLS"


def foreign_greeting(first: bytes) -> str:
    """What a first record that is no greeting looks like, if that can be said."""
    if first[:2] == b"\x16\x03":
        return "it speaks TLS, which this cluster does not use"
    if first[:2] == b"\x15\x03":
        return "it answers in TLS: give this process a certificate (tls=)"
    return ""
