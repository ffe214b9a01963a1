"""Packets over TCP: the sender opens a connection and only writes on it; the end that accepts it only reads.

So each connection has one sender. To each peer there are two lanes, each a connection of its own: the small
reliable packets (the ring's, above all) do not wait behind gossip and snapshots, else a busy cluster would lose its
tickets. The first packet on a connection is its opener's greeting; until that has passed the guard, a connection may
send little, for a short time. Records are as in `wire.frame_stream`: four bytes of length, then the packet.

What is bounded: what waits for a peer (datagram-class packets are dropped first, then the connection is given up), the
connections that have not said who they are, all accepted connections, and the time any of them may stall. A host that
cannot keep up stops reading what is not urgent, so its peers' publishers wait.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from struct import Struct
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from whence.core.clock.bounds import keep_last
from whence.core.wire import StreamDecoder, frame_stream
from whence.errors import RemoteError, UsageError
from whence.live.net.keys import PUBLISHER, Keys
from whence.live.net.listener import Listener, descriptor_share, failed_handshake, foreign_greeting, tune
from whence.live.net.queues import Signal
from whence.live.net.tls import Protection
from whence.live.net.tls import peer as tls_peer
from whence.live.net.transport import Connection, NetStats, Received, parse_address, show_address


@dataclass(frozen=True, kw_only=True)
class TcpSettings:
    """Bounds and times of TCP; seconds and bytes."""

    connect_timeout: float = 3.0
    """For a connection, TLS included."""
    backoff: float = 0.05
    """Before the second attempt to reach a peer; doubled with each failure. Meanwhile what is for it is dropped."""
    max_backoff: float = 2.0
    high_water: int = 128 << 10
    """Bytes waiting for a peer above which publishers wait for it. Higher: more throughput over long lines, more
    latency behind a slow peer."""
    patience: float = 1.0
    """How long publishers wait for a peer that does not read; after that it misses what does not fit. For each pause
    in its reading a twentieth of this at least; what it has used beyond that comes back while it reads, in four times
    the time."""
    datagram_bound: int = 4 << 20
    """Bytes waiting for a peer above which datagram-class packets for it are dropped."""
    stream_bound: int = 32 << 20
    """Bytes waiting for a peer above which its connection is given up: several snapshots fit."""
    dial_bound: int = 1 << 20
    """Bytes kept for a peer that is being dialled."""
    urgent_bytes: int = 64 << 10
    """Reliable packets up to this size take the urgent lane. All messages of a ring are far smaller."""
    kernel_buffer: int = 128 << 10
    """Bytes that the kernel may hold for each direction of a connection. Higher: more throughput over long lines.
    Lower: publishers notice a slow peer sooner, and what they publish is younger when it arrives. 0: the kernel
    decides."""
    greeting_timeout: float = 5.0
    """For the first packet of an accepted connection."""
    record_timeout: float = 20.0
    """For the rest of a packet that has begun."""
    stall_timeout: float = 20.0
    """For a peer that does not read at all, or does not acknowledge: then it is gone."""
    idle_timeout: float = 300.0
    """For a connection that nothing was sent on."""
    greeting_bytes: int = 2048
    """The largest first packet."""
    max_strangers: int = 128
    """Accepted connections that have not said who they are, a TLS handshake under way included."""
    max_per_address: int = 64
    """Of those, from one IP address; its oldest makes room."""
    max_accepted: int = 4096
    """Accepted connections; never more than a third of the file descriptors that this process may have."""
    max_peers: int = 4096
    """Lanes to peers, likewise."""
    sweep: float = 1.0
    """Between two looks at what has timed out."""


log = logging.getLogger("whence.live.net")
_LENGTH = Struct(">I")

C = TypeVar("C", bound="Peer | _Accepted")
P = ParamSpec("P")

MAX_FAILURES = 256
"""Peers of which it is remembered why they could not be reached."""

Lane = tuple[str, bool]
"""A peer's address, and whether it is the urgent lane to it."""


class TcpTransport:
    """One listener and a connection to each peer that is sent to. `send` and `flush` never block and never raise for a
    peer's sake."""

    def __init__(
        self,
        listen: str,
        stats: NetStats,
        greeting: Callable[[bool], bytes],
        largest: int,
        *,
        closed: Callable[[Connection], None] = lambda connection: None,
        proved: Callable[[str, str], None] = lambda address, name: None,
        unreachable: Callable[[str], None] = lambda address: None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        keys: Keys | None = None,
        settings: TcpSettings | None = None,
    ) -> None:
        self.settings = settings or TcpSettings()
        self.stats = stats
        self.largest = largest
        self.greeting = greeting
        self.client_tls = client_tls
        self.keys = keys
        self.closed = closed
        self.proved = proved
        self.unreachable = unreachable
        """Told of each address whose connection broke or could not be made."""
        self.loop: asyncio.AbstractEventLoop
        self.received: Received
        self.accepted: dict[_Accepted, None] = {}
        self.failures: dict[str, str] = {}
        """Why peers could not be reached, by address, as far as that can be said."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        self.held = False
        self.max_accepted = descriptor_share(3, self.settings.max_accepted)
        self._max_peers = descriptor_share(3, self.settings.max_peers)
        self._listen = parse_address(listen)
        self.listener = Listener(
            lambda: _Accepted(self),
            stats,
            tls=server_tls,
            handshake_timeout=self.settings.greeting_timeout,
            max_strangers=self.settings.max_strangers,
            max_per_address=self.settings.max_per_address,
            buffer=self.settings.kernel_buffer,
        )
        self._peers: dict[Lane, Peer] = {}
        self._written: dict[Lane, Peer] = {}
        self.paused: dict[Peer, None] = {}
        """Lanes whose peers do not read as fast as this process writes."""
        self._eased = Signal()
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it listens; known after `start`."""
        return show_address(*self._listen)

    async def start(self, received: Received) -> None:
        """Begin to listen. Raises UsageError if the address cannot be had."""
        self.loop = asyncio.get_running_loop()
        self.received = received
        await self.listener.start(*self._listen)
        self._listen = self.listener.address
        self._sweeper = self.loop.call_later(self.settings.sweep, self._sweep)

    def send(self, to: Iterable[str], data: bytes, reliable: bool) -> None:
        """The same packet to each of these addresses, with the next `flush`."""
        if len(data) > self.largest:
            raise UsageError(f"a packet of {len(data)} bytes cannot be sent: at most {self.largest} are allowed")
        record = _LENGTH.pack(len(data)) + data
        urgent = reliable and len(data) <= self.settings.urgent_bytes
        for address in to:
            lane = (address, urgent)
            peer = self._peers.get(lane) or self._new_peer(lane)
            if peer is None:
                continue
            self._written[lane] = peer
            if peer.transport is not None and not peer.paused and peer.size < self.settings.high_water:
                peer.pending.append(record)  # far below every bound
                peer.size += len(record)
                continue
            try:
                peer.put(record, reliable)
            except Exception as error:
                peer.broken(error)
                peer.lost(reliable)

    def failed(self, address: str, why: str) -> None:
        """A peer could not be reached, or does not want us."""
        self.failures[address] = why
        keep_last(self.failures, MAX_FAILURES)

    def _new_peer(self, lane: Lane) -> Peer | None:
        try:
            target = parse_address(lane[0])
        except UsageError:  # an address that a peer has made up
            self.stats.unsent += 1
            return None
        if len(self._peers) >= self._max_peers:
            victim = min(self._peers.values(), key=lambda p: p.last_sent)
            self._drop(victim)
        peer = self._peers[lane] = Peer(self, lane, target)
        return peer

    def renew(self, peer: Peer) -> None:
        """This lane has ended: later callbacks of its connection are ignored. A new lane waits before it dials."""
        if self._peers.get(peer.lane) is peer and not self.closing:
            self._drop(peer)
            self._peers[peer.lane] = Peer(self, peer.lane, peer.target, peer)

    def _drop(self, peer: Peer) -> None:
        self._peers.pop(peer.lane, None)
        self._written.pop(peer.lane, None)
        self.paused.pop(peer, None)
        peer.close()

    def flush(self) -> None:
        """All that waits for a peer goes out in one write."""
        written, self._written = self._written, {}
        now = self.loop.time()
        for peer in written.values():
            pending = peer.pending
            if not pending:
                continue
            peer.last_sent = now
            if peer.transport is None:
                peer.dial()
                continue
            try:
                if peer.transport.is_closing():
                    peer.discard()
                    continue
                peer.transport.write(pending[0] if len(pending) == 1 else b"".join(pending))
                peer.pending, peer.size = [], 0
            except Exception as error:
                peer.broken(error)

    def rekey(self, protection: Protection) -> None:
        """From now on these certificates and CAs. Lanes to peers are closed when they are written out and dialled
        again; connections that would not be accepted any more end."""
        self.client_tls, self.listener.tls, self.keys = protection.client, protection.server, protection.keys
        for peer in list(self._peers.values()):
            self._drop(peer)
        for accepted in list(self.accepted):
            accepted.identify()

    # -- back pressure ------------------------------------------------------------------------------------------

    def congested(self) -> bool:
        """A peer that reads at all is behind: publishing should wait for it."""
        return bool(self.paused) and self._patience() > 0

    def _patience(self) -> float:
        """Seconds that publishers wait at most, if no peer reads before that."""
        return max((peer.patience() for peer in self.paused), default=0.0)

    def eased(self) -> None:
        """A peer reads again, or is gone."""
        if not self.congested():
            self._eased.tell()

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing is queued and nobody congested; False if it takes longer."""
        self.flush()
        deadline = time.monotonic() + timeout
        while (left := min(self._patience(), deadline - time.monotonic())) > 0:
            await self._eased.until(lambda: not self.congested(), time.monotonic() + left)
        return not self.congested()

    def hold(self, held: bool) -> None:
        """Take no more than the urgent packets for a while: the nodes are behind. Or go on."""
        self.held = held
        for accepted in list(self.accepted):
            if not accepted.urgent:
                accepted.hold(held)

    def drop(self, address: str, name: str) -> None:
        """Close the connections that speak for this address under this certificate."""
        for accepted in [a for a in self.accepted if a.peer == address and a.name == name]:
            accepted.close()

    def drop_oldest(self, address: str, name: str) -> None:
        """It has too many connections."""
        next(a for a in list(self.accepted) if a.peer == address and a.name == name).close()

    # -- time-outs ----------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self.loop.time()
        for accepted in list(self.accepted):
            accepted.sweep(now)
        for peer in list(self._peers.values()):
            if now - peer.last_sent > self.settings.idle_timeout:
                self._drop(peer)
            else:
                peer.sweep(now)
        self.eased()
        self._sweeper = self.loop.call_later(self.settings.sweep, self._sweep)

    async def close(self) -> None:
        """What was sent goes out first, within a second."""
        self.closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        opening = self.listener.close()
        self.flush()
        peers = list(self._peers.values())
        for peer in peers:
            peer.close()
        pending = [peer.over for peer in peers if peer.over is not None]
        if pending:
            await asyncio.wait(pending, timeout=1.0)
        for peer in peers:
            peer.abort()
        for accepted in list(self.accepted):
            accepted.close()
        tasks = [*opening, *self.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        await asyncio.sleep(0)  # the transports' own last callbacks
        self.eased()


def contained(method: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """A lane is a compartment: whatever a transport raises ends the connection, and disturbs nobody else."""

    @wraps(method)
    def careful(self: C, /, *args: P.args, **more: P.kwargs) -> None:
        try:
            method(self, *args, **more)
        except Exception as error:
            self.broken(error)

    return careful


class Peer(asyncio.Protocol):
    """One lane to a peer: dialled when there is something for it, again and again but ever more rarely."""

    def __init__(self, owner: TcpTransport, lane: Lane, target: tuple[str, int], before: Peer | None = None) -> None:
        """`before`: the lane that it follows, and which was given up."""
        self.owner = owner
        self.lane = lane
        self.address = lane[0]
        self.target = target
        self.last_sent = owner.loop.time()
        self.pending: list[bytes] = []
        self.size = 0
        self.transport: asyncio.WriteTransport | None = None
        self._dialling = False
        self._retry_at: float = 0.0 if before is None else before._retry_at
        self._failures = 0
        self._made_at = 0.0
        self._short: int = (
            0 if before is None else before._short
        )  # connections in a row that ended soon after they began
        self._paused_at: float | None = None
        self._reads_since = owner.loop.time()
        self._used = 0.0  # of its patience
        self.paused = False
        """The peer reads more slowly than this process writes."""
        self._left_when_paused = 0
        self.over: asyncio.Future[None] | None = None
        """Of its connection."""
        self._closed = False  # by ourselves

    def patience(self) -> float:
        """Seconds that publishers wait for the peer to read; 0 or less: it reads, or they wait no more."""
        if self._paused_at is None:
            return 0.0
        patience = self.owner.settings.patience
        return self._paused_at + max(patience - self._used, patience / 20) - self.owner.loop.time()

    def put(self, record: bytes, reliable: bool) -> None:
        """Keep it for the next flush, or drop and count it. Raises what ends the lane."""
        settings, stats = self.owner.settings, self.owner.stats
        if self.transport is None:
            if not self._dialling and self.owner.loop.time() < self._retry_at:
                self.lost(reliable)
                return
            if self.size + len(record) > settings.dial_bound + (settings.stream_bound if reliable else 0):
                self.lost(reliable)
                return
        else:
            waiting = self.size + len(record) + self.transport.get_write_buffer_size()
            if not reliable and waiting > settings.datagram_bound:
                stats.peer_full += 1
                return
            if waiting > settings.stream_bound:
                raise BufferError("it does not read")
        self.pending.append(record)
        self.size += len(record)

    def lost(self, reliable: bool) -> None:
        """A record never left."""
        if reliable:
            self.owner.stats.unsent += 1
        else:
            self.owner.stats.peer_full += 1

    # -- the connection -----------------------------------------------------------------------------------------

    def dial(self) -> None:
        if self._dialling or self.owner.closing:
            return
        self._dialling = True
        task = self.owner.loop.create_task(self._connect())
        self.owner.tasks.add(task)
        task.add_done_callback(self.owner.tasks.discard)

    async def _connect(self) -> None:
        owner = self.owner
        tls: dict[str, Any] = {}
        if owner.client_tls is not None:
            tls = {"ssl": owner.client_tls, "server_hostname": self.target[0]}
        try:
            async with asyncio.timeout(owner.settings.connect_timeout):
                await owner.loop.create_connection(lambda: self, *self.target, **tls)
        except Exception as error:
            self._failures += 1
            owner.stats.connect_failures += 1
            wait = self._pause(self._failures)
            self._retry_at = owner.loop.time() + wait
            log.debug("%s cannot be reached (%s), not before %.2f s", self.address, error, wait)
            owner.failed(self.address, self._why(error))
            self.discard()
            owner.unreachable(self.address)
        finally:
            self._dialling = False

    def _pause(self, failures: int) -> float:
        """Seconds until the next attempt after so many failures in a row."""
        settings = self.owner.settings
        return min(settings.max_backoff, settings.backoff * float(1 << min(failures - 1, 16)))

    def _why(self, error: Exception) -> str:
        if self.owner.client_tls is not None and isinstance(error, ssl.SSLError | ConnectionResetError):
            return failed_handshake(error)
        if isinstance(error, ConnectionRefusedError):
            return "Connection refused: nobody listens there"
        return getattr(error, "strerror", None) or str(error) or "no answer"

    @contained
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        owner = self.owner
        mine = cast("asyncio.WriteTransport", transport)
        self.transport = mine
        if owner.closing or self._closed:
            self.abort()
            return
        owner.stats.connects += 1
        self._failures = 0
        self._made_at = owner.loop.time()
        owner.failures.pop(self.address, None)
        self.over = owner.loop.create_future()
        mine.set_write_buffer_limits(high=owner.settings.high_water, low=owner.settings.high_water // 4)
        tune(transport, owner.settings.kernel_buffer, owner.settings.stall_timeout)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            owner.proved(self.address, tls_peer(tls, owner.keys).name)
        pending, self.pending, self.size = self.pending, [], 0
        mine.write(b"".join((frame_stream(owner.greeting(self.lane[1]), owner.largest), *pending)))

    def data_received(self, data: bytes) -> None:
        """The accepting end sends nothing on this connection, except a refusal."""
        self.owner.stats.bad_stream += 1
        self.broken(foreign_greeting(data) or "it answers as no member does")

    def eof_received(self) -> None:
        """The peer has shut down its end: abort, or TLS would flush to a peer that never reads, and log each write."""
        self.abort()

    def broken(self, why: object) -> None:
        """Give the connection up: it has failed, or the peer does not read. What waits is lost; the next packet dials
        again, after a pause."""
        self.owner.stats.peer_broken += 1
        level = logging.DEBUG if self._short else logging.WARNING
        log.log(level, "the connection to %s is given up: %s", self.address, why)
        self.owner.failed(self.address, str(why))
        self.abort()
        self.connection_lost(None)
        self.owner.renew(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self.transport is None:  # it was given up before
            return
        settings, now = self.owner.settings, self.owner.loop.time()
        if now - self._made_at < settings.greeting_timeout:  # it does not want us: do not knock all the time
            self.owner.failures.setdefault(self.address, self._why_closed(error))
            self._short += 1
        else:
            self._short = 0
        self.transport = None
        self.resume_writing()
        self._retry_at = now + self._pause(max(1, self._short))
        self.discard()
        if self.over is not None and not self.over.done():
            self.over.set_result(None)
        if not self._closed:
            self.owner.unreachable(self.address)

    def _why_closed(self, error: Exception | None) -> str:
        """It closed the connection soon after our greeting. Over TLS 1.3 that may be its verdict on our certificate."""
        if isinstance(error, ssl.SSLError):
            return failed_handshake(error)
        return "it closed the connection on our greeting: its secret may be another, or it may use TLS"

    def discard(self) -> None:
        self.owner.stats.unsent += len(self.pending)
        self.pending, self.size = [], 0

    @contained
    def pause_writing(self) -> None:
        self._paused_at, self.paused = self.owner.loop.time(), True
        self._used = max(0.0, self._used - (self._paused_at - self._reads_since) / 4)
        self.owner.paused[self] = None
        if self.transport is not None:
            self._left_when_paused = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        if self._paused_at is not None:
            self._reads_since, patience = self.owner.loop.time(), self.owner.settings.patience
            paused = self._reads_since - self._paused_at
            self._used = min(patience, self._used + max(0.0, paused - patience / 20))
        self._paused_at, self.paused = None, False
        self.owner.paused.pop(self, None)
        self.owner.eased()

    @contained
    def sweep(self, now: float) -> None:
        """A peer that has read nothing for a long time is treated as gone."""
        if self._paused_at is None or self.transport is None:
            return
        left = self.transport.get_write_buffer_size()
        if left < self._left_when_paused:
            self._left_when_paused = left
            self._paused_at = max(self._paused_at, now - self.owner.settings.patience)
        elif now - self._paused_at > self.owner.settings.stall_timeout:
            raise TimeoutError("it reads nothing")

    @contained
    def close(self) -> None:
        """Flush what is written, then close."""
        self._closed = True
        if self.transport is None:
            self.discard()
        else:
            self.transport.close()

    def abort(self) -> None:
        """The connection ends now. What is written on it and has not left is lost."""
        if self.transport is not None:
            with suppress(Exception):
                self.transport.abort()


class _Accepted(asyncio.Protocol, Connection):
    """A connection that somebody opened to us. Until it has greeted it is a stranger's."""

    __slots__ = ("_began", "_decoder", "_first", "_owner", "_transport", "_whole")

    def __init__(self, owner: TcpTransport) -> None:
        Connection.__init__(self)
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._decoder = StreamDecoder(owner.largest)
        self._whole = 4 + owner.largest
        self._first: bytes | None = b""  # the beginning of the first record
        self._began: float | None = owner.loop.time()  # since when the record under way is

    @contained
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        owner = self._owner
        self._transport = cast("asyncio.Transport", transport)
        if owner.closing or self not in owner.listener.strangers or len(owner.accepted) >= owner.max_accepted:
            owner.stats.refused += 1
            self.close()
            return
        owner.stats.accepted += 1
        owner.accepted[self] = None
        if self.identify():
            tune(transport, owner.settings.kernel_buffer, owner.settings.stall_timeout)

    def identify(self) -> bool:
        """Who it is by its certificate, where there is one; False: it is closed, since no keys of ours let it in."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if tls is not None:
            try:
                self.name, role = tls_peer(tls, self._owner.keys)
                self.is_publisher = role == PUBLISHER
            except RemoteError as error:
                self._owner.stats.unauthentic += 1
                self.refuse(str(error))
                return False
        return True

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            if self._first is not None:
                data = self._greet(data)
            elif 4 < len(data) == 4 + int.from_bytes(data[:4], "big") <= self._whole and not self._decoder.begun:
                self._owner.received((data[4:],), self)  # one whole packet, as almost always
                return
            packets = self._decoder.feed(data) if data else ()
        except RemoteError as error:
            self._owner.stats.bad_stream += 1
            log.debug("connection of %s closed: %s", self.peer or "a stranger", error)
            if self._first is not None and not self.closed:
                self.refuse(foreign_greeting(self._first) or str(error))
            self.close()
            return
        if packets:
            self._owner.received(packets, self)
        if self._first is None:
            self._began = (self._began or self._owner.loop.time()) if self._decoder.begun else None

    def _greet(self, data: bytes) -> bytes:
        """The first record, which has to be short and in time; returns what follows it."""
        assert self._first is not None
        first = self._first = self._first + data
        length = int.from_bytes(first[:4], "big") if len(first) >= 4 else len(data)
        if length > self._owner.settings.greeting_bytes:
            raise RemoteError(f"a first packet of {length} bytes is no greeting")
        if len(first) < 4 + length:
            return b""
        self._owner.received((first[4 : 4 + length],), self)
        if self.peer is None:
            raise RemoteError("the first packet is no greeting")
        self._first = None
        self._began = None
        if not self.urgent:
            self.hold(self._owner.held)
        self._owner.listener.known(self)
        return first[4 + length :]

    @contained
    def hold(self, held: bool) -> None:
        """Read no more for a while, unless it is still a stranger's (whose time runs)."""
        if self._transport is None or self._first is not None or self.closed:
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def sweep(self, now: float) -> None:
        settings = self._owner.settings
        if self._began is None or (self._owner.held and self._first is None):
            return
        if now - self._began > (settings.record_timeout if self._first is None else settings.greeting_timeout):
            self._owner.stats.stale += 1
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def broken(self, why: object) -> None:
        """Its transport has failed."""
        self._owner.stats.peer_broken += 1
        log.debug("connection of %s closed: %s", self.peer or "a stranger", why)
        self.close()

    @contained
    def refuse(self, why: str) -> None:
        self._owner.listener.refuse(self._transport, why)
        self.close()

    def close(self) -> None:
        if self in self._owner.accepted:
            del self._owner.accepted[self]
            self._owner.closed(self)
        self.closed = True
        self._owner.listener.gone(self)
        if self._transport is not None:
            with suppress(Exception):
                self._transport.abort()
