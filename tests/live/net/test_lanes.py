"""A lane is a compartment: whatever a transport raises, at any moment, ends that lane, is counted, and nobody else
notices."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from tests.live.net.live import collect, fast, run, several, until
from whence.core.clock.bounds import MAX_MESSAGE_BYTES
from whence.live.net import keys, tcp
from whence.live.net.tcp import TcpSettings, TcpTransport
from whence.live.net.tls import contexts
from whence.live.net.transport import Connection, NetStats, show_address

OPENER = ("abort", "close", "get_extra_info", "get_write_buffer_size", "is_closing", "set_write_buffer_limits", "write")
ACCEPTED = ("abort", "get_extra_info", "pause_reading", "resume_reading")
CALLS = [("Peer", name) for name in OPENER] + [("_Accepted", name) for name in ACCEPTED]
"""All that is called on a transport, by the end that calls it."""
SETTINGS = TcpSettings(
    high_water=1 << 16,
    datagram_bound=1 << 19,
    stream_bound=1 << 20,
    kernel_buffer=1 << 14,
    idle_timeout=3.0,
    sweep=0.25,
)


class Fuse:
    """Raises at the nth call of this name on a transport of this end; `ever`: and at all later calls on the same
    transport, as one that is dead."""

    def __init__(self, end: str, name: str, nth: int, ever: bool) -> None:
        self.end, self.name, self.nth, self.ever = end, name, nth, ever
        self.calls: Counter[tuple[str, str]] = Counter()
        self.blown: object = None

    def burn(self, end: str, name: str, transport: Brittle) -> None:
        self.calls[end, name] += 1
        at_last = (end, name) == (self.end, self.name) and self.calls[end, name] == self.nth
        if at_last and self.ever:
            transport.transport.abort()  # the other end hears of it
        if at_last or (self.ever and transport is self.blown):
            self.blown = transport
            raise RuntimeError(f"{name} on a dead transport")


class Brittle:
    """A transport that a fuse belongs to."""

    def __init__(self, transport: Any, end: str, fuse: Fuse) -> None:
        self.transport, self.end, self.fuse = transport, end, fuse

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.fuse.burn(self.end, name, self)
            return getattr(self.transport, name)(*args, **more)

        return call


def put_in(fuse: Fuse, patch: pytest.MonkeyPatch, b: TcpTransport) -> None:
    """The transports of all connections to b get this fuse, at both ends."""

    def connection_made(self: Any, transport: Any, original: Any) -> None:
        at_b = self.address == b.address if isinstance(self, tcp.Peer) else self._owner is b
        original(self, Brittle(transport, type(self).__name__, fuse) if at_b else transport)

    for cls in (tcp.Peer, tcp._Accepted):
        patch.setattr(cls, "connection_made", partialmethod(connection_made, original=cls.connection_made))


class End:
    """A transport, and what has come to it."""

    def __init__(self) -> None:
        self.stats = NetStats()
        self.tcp = TcpTransport("127.0.0.1:0", self.stats, lambda urgent: b"hi", MAX_MESSAGE_BYTES, settings=SETTINGS)
        self.got: list[bytes] = []

    def received(self, packets: Sequence[bytes | memoryview], connection: Connection) -> None:
        if connection.peer is None:
            connection.peer, packets = "a", packets[1:]
        self.got += map(bytes, packets)


async def life(a: End, b: End, c: End) -> None:
    """What a lane goes through: greeting, gossip, back pressure, holding, giving up, idleness, closing."""
    for each in (a, b, c):
        await each.tcp.start(each.received)
    to_b, to_c = b.tcp.address, c.tcp.address
    heard: list[bytes] = []

    def say(data: bytes, reliable: bool = False, size: int = 0) -> None:
        """To b; and to c, which has to hear everything."""
        a.tcp.send([to_b], data + bytes(size), reliable)
        heard.append(data)
        a.tcp.send([to_c], data, reliable)
        a.tcp.flush()

    async def heard_by_c() -> None:
        await until(lambda: sorted(c.got) == sorted(heard), "c hears everything", 5.0)

    say(b"hello")
    say(b"hurry", reliable=True)
    await heard_by_c()
    for reliable in (False, True):  # b does not keep up, first a little, then not at all
        b.tcp.hold(True)
        for n in range(15):
            say(b"%d-%d" % (reliable, n), reliable, size=140_000)
            if n % 5 == 0:
                await a.tcp.drained(0.3)
        await heard_by_c()
        b.tcp.hold(False)
        await until(lambda: not a.tcp.congested(), "nobody waits for b for ever", 5.0)
    for accepted in list(b.tcp.accepted):
        accepted.hold(True)
        accepted.hold(False)
    b.tcp.drop("a", None)  # type: ignore[arg-type]  # no certificate
    say(b"again")
    await heard_by_c()
    await asyncio.sleep(SETTINGS.idle_timeout + 1)
    assert not a.tcp._peers, "idle lanes are closed: the sweep goes on"

    def reached() -> bool:
        say(b"there?")
        return b"there?" in b.got

    await until(reached, "b is reached again", 10.0, every=0.1)
    await heard_by_c()


def broken(end: str, name: str, nth: int, ever: bool) -> Fuse:
    """A life in which one call raises."""
    fuse, a, b, c = Fuse(end, name, nth, ever), End(), End(), End()
    escaped: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: escaped.append(context))
        with pytest.MonkeyPatch.context() as patch:
            put_in(fuse, patch, b.tcp)
            try:
                await life(a, b, c)
            finally:
                for each in (a, b, c):
                    await each.tcp.close()

    run(main())
    what = f"{end}.{name}, call {nth}, {'for ever' if ever else 'once'}"
    assert not escaped, (what, escaped)
    if fuse.blown is not None and name != "abort":  # what is being closed does not have to be
        assert a.stats.peer_broken + b.stats.peer_broken, what
    return fuse


@pytest.mark.parametrize("ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize(("end", "name"), CALLS, ids=lambda value: value.strip("_"))
def test_whatever_a_transport_raises_ends_its_lane_and_nothing_else(end: str, name: str, ever: bool) -> None:
    nth = 1
    while broken(end, name, nth, ever).blown is not None:
        nth += 1
    assert nth > 1, f"{name} is never called: the life is too quiet"


@pytest.mark.parametrize("name", ["get_extra_info", "is_closing", "write"])
async def test_a_node_outlives_a_lane(name: str) -> None:
    """What the transport raises comes up in the middle of a step."""
    async with several("live", 3, insecure=True, settings=fast()) as (a, b, c), a.publisher() as seat:
        with pytest.MonkeyPatch.context() as patch:
            fuse = Fuse("Peer", name, 1 if name == "get_extra_info" else 5, ever=True)
            put_in(fuse, patch, b._host._tcp)
            for peer in list(a._host._tcp._peers.values()):
                a._host._tcp._drop(peer)
            for n in range(20):
                await seat.publish(b"%d" % n)
                await asyncio.sleep(0.05)
            for each in (b, c):
                assert [e.payload for e in await collect(each, 20)] == [b"%d" % n for n in range(20)]
        assert fuse.blown is not None and a.stats()["net.peer_broken"] > 0
        assert not [m for m in (a, b, c) if m._node.failure is not None]


async def test_a_peer_that_ends_its_half_of_a_tls_connection_and_reads_nothing_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys.init(tmp_path)
    keys.issue(tmp_path, "a")
    mine = keys.load(tmp_path / "a")
    server_tls, client_tls = contexts(mine.ca, mine.certificate, mine.key)
    a = End()
    a.tcp.client_tls = client_tls
    await a.tcp.start(a.received)
    ended: list[asyncio.StreamWriter] = []

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        ended.append(writer)

    server = await asyncio.start_server(half, "127.0.0.1", 0, ssl=server_tls)
    address = show_address(*server.sockets[0].getsockname())

    with caplog.at_level(logging.INFO):
        for size in (1, 400_000, *[100] * 100):
            a.tcp.send([address], b"x" * size, False)
            a.tcp.flush()
            await until(lambda: ended and a.stats.connects)
            if size == 400_000:  # waits to be flushed
                ended[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
            await asyncio.sleep(0.01)
    assert not [r for r in caplog.records if r.name == "asyncio"]
    for writer in ended:
        writer.transport.abort()
    server.close()
    await a.tcp.close()


@pytest.mark.parametrize("pause", [0.3, 1.5])
async def test_a_peer_that_reads_in_bursts_holds_publishers_for_a_second_and_then_for_a_twentieth_each(
    pause: float,
) -> None:
    """Patience does not begin again with each pause."""
    a = End()
    await a.tcp.start(a.received)
    bursts = 0

    class Bursts(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.rest()

        def rest(self) -> None:
            self.transport.pause_reading()
            loop.call_later(pause, self.read)

        def read(self) -> None:
            nonlocal bursts
            bursts += 1
            self.transport.resume_reading()
            loop.call_later(0.05, self.rest)

    loop = asyncio.get_running_loop()
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    small.bind(("127.0.0.1", 0))
    server = await loop.create_server(Bursts, sock=small)
    address = show_address(*server.sockets[0].getsockname())
    began, held = loop.time(), 0.0
    while loop.time() < began + 10:
        if a.tcp.congested():
            since = loop.time()
            await a.tcp.drained(1.0)
            held += loop.time() - since
        a.tcp.send([address], bytes(20_000), False)
        a.tcp.flush()
        await asyncio.sleep(0.01)
    server.close()
    await a.tcp.close()
    assert bursts > 4 and held > 0.5, "it was waited for"
    assert held < 1.1 + (bursts + 1) * 0.07
