"""Hostile sockets: whatever comes in from strangers, the cluster goes on, and what they hold of it is bounded."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import collect, fast, several, until
from whence.core.cast.messages import Subscribe
from whence.core.clock.bounds import MAX_MESSAGE_BYTES
from whence.core.wire import frame_stream, pack
from whence.errors import RemoteError, UsageError
from whence.live.net import keys
from whence.live.net.hello import Answer, Ask, Greeting, decode_hello, direct, encode_hello, read_direct
from whence.live.net.host import MAX_LANES
from whence.live.net.tcp import TcpSettings, TcpTransport
from whence.live.net.tls import contexts
from whence.live.net.transport import Connection, NetStats, is_loopback, is_wildcard, parse_address, show_address

SECRET = b"\x07" * 32
Attack = Callable[[str, int], Awaitable[None]]


async def _write(host: str, port: int, data: bytes, hold: bool = False) -> None:
    try:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        await writer.drain()
        if hold:
            await reader.read()  # until the other end has had enough
        writer.close()
    except OSError:
        pass  # cut off: that is the point


async def random_bytes(host: str, port: int) -> None:
    rng = random.Random(1)
    for _ in range(40):
        await _write(host, port, rng.randbytes(rng.randrange(1, 5000)))


async def oversized(host: str, port: int) -> None:
    for length in (0, 1 << 31, 0xFFFFFFFF, 2049):
        await _write(host, port, length.to_bytes(4, "big") + b"x" * 100, hold=True)


async def half_open(host: str, port: int) -> None:
    """Many connections that say nothing: the oldest have to go before the time is over."""
    streams = [await asyncio.open_connection(host, port) for _ in range(150)]
    await asyncio.wait_for(streams[0][0].read(), 10)
    for _, writer in streams:
        writer.close()


async def slow_loris(host: str, port: int) -> None:
    """A byte at a time, never a whole packet."""
    reader, writer = await asyncio.open_connection(host, port)
    ended = asyncio.create_task(reader.read())
    try:
        for byte in (200).to_bytes(4, "big") + b"x" * 150:
            if ended.done():
                return
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.01)
        await asyncio.wait_for(ended, 10)
    except OSError:
        pass
    finally:
        ended.cancel()
        writer.close()


async def wrong_key(host: str, port: int) -> None:
    from whence.live.net.guard import SecretGuard

    guard = SecretGuard(b"\x09" * 32)
    for _ in range(20):
        greeting = frame_stream(guard.seal(encode_hello(Greeting("127.0.0.1:1"))))
        await _write(host, port, greeting + frame_stream(guard.seal(b"x" * 100)))


ATTACKS: list[Attack] = [random_bytes, oversized, half_open, slow_loris, wrong_key]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.__name__)
async def test_the_rest_goes_on(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = TcpSettings(greeting_timeout=0.5, sweep=0.1, max_strangers=64)
    monkeypatch.setattr("whence.live.net.tcp.TcpSettings", lambda: quick)
    common: dict[str, Any] = {"secret": SECRET, "settings": fast()}
    async with several("live", 2, **common) as (a, b), a.publisher() as seat:
        attacked = asyncio.create_task(attack(*parse_address(a.address)))
        sent = 0
        while not attacked.done() or sent < 50:
            await seat.publish(b"%d" % sent)
            sent += 1
            [event] = await collect(b, 1)
            assert event.payload == b"%d" % (sent - 1)
            await asyncio.sleep(0.005)
        await attacked
        tcp = a._host._tcp
        await until(lambda: len(tcp.listener.strangers) == 0, "no stranger is left")
        stats = a.stats()
        seen = stats["net.unauthentic"] + stats["net.bad_stream"] + stats["net.stale"] + stats["net.refused"]
        assert seen > 0, "it was noticed"
        assert not stats["cut_off"] and len(a.members()) == 2 and len(a.coordinators()) == 1


async def test_replayed_connections_are_refused() -> None:
    """Somebody records what a member sends and sends it again."""
    common: dict[str, Any] = {"secret": SECRET, "settings": fast()}
    recorded = bytearray()
    async with whence.create("live", **common) as a:
        host, port = parse_address(a.address)

        async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Between b and a: passes on what b writes, and keeps it."""
            _, onward = await asyncio.open_connection(host, port)
            while data := await reader.read(65_536):
                recorded.extend(data)
                onward.write(data)
            onward.close()
            writer.close()

        proxy = await asyncio.start_server(tap, "127.0.0.1", 0)
        address = show_address(*proxy.sockets[0].getsockname())
        async with whence.join("live", [address], **common) as b, a.publisher() as seat:
            await until(lambda: len(recorded) > 100)
            before = a.stats()["net.unauthentic"]
            await _write(host, port, bytes(recorded), hold=True)
            assert a.stats()["net.unauthentic"] == before + 1, "its greeting is known already"
            await seat.publish(b"x")
            assert [e.payload for e in await collect(b, 1)] == [b"x"]
        proxy.close()


async def test_nobody_speaks_for_another_member() -> None:
    """A connection that greeted as one host and then speaks as a member of another; and one that breaks the codec."""
    common: dict[str, Any] = {"insecure": True, "settings": fast()}
    async with several("live", 2, **common) as (a, b), a.publisher() as seat:
        host, port = parse_address(a.address)
        greeting = frame_stream(encode_hello(Greeting("127.0.0.1:1")))
        forged = pack("live", b.me, Subscribe(1))
        await _write(host, port, greeting + frame_stream(forged))
        await until(lambda: a.stats()["net.other_sender"] == 1)
        noise = pack("live", "127.0.0.1:1#5", Subscribe(1))[:-1] + b"\xc1\xc1"
        await _write(host, port, greeting + frame_stream(noise))
        await until(lambda: a.stats()["cut_off"] == 1)
        await _write(host, port, greeting + frame_stream(direct("127.0.0.1:2#1", forged)))
        await _write(host, port, greeting + frame_stream(pack("elsewhere", "127.0.0.1:1#5", Subscribe(1))))
        await until(lambda: a.stats()["net.no_cluster"] == 1)
        former = direct("127.0.0.1:9#1", pack("live", "127.0.0.1:1#6", Subscribe(1)))
        await _write(host, port, greeting + frame_stream(former))
        await until(lambda: a.stats()["net.other_life"] == 1)
        await seat.publish(b"x")
        assert [e.payload for e in await collect(b, 1)] == [b"x"]
        assert len(a._node.member.cut_off) == 1


def test_what_a_connection_remembers_of_its_last_packet_proves_nothing_about_the_next() -> None:
    host, stream = whence.Host(insecure=True), Connection("127.0.0.1:1")

    def send(sender: str, target: str = "") -> tuple[int, int]:
        packet = pack("nobody's", sender, Subscribe(1))
        host._received([direct(target, packet) if target else packet], stream)
        return host.stats.no_cluster, host.stats.other_sender

    mine, other, longer = "127.0.0.1:1#5", "127.0.0.1:2#5", "127.0.0.1:1#55"
    assert [send(mine), send(mine), send(other), send(mine)] == [(1, 0), (2, 0), (2, 1), (3, 1)]
    assert stream.route is not None and stream.route.sender == mine
    assert [send(longer), send(other, mine), send(mine, other)] == [(4, 1), (4, 2), (5, 2)]
    assert (stream.route.sender, stream.route.target) == (mine, other)


async def test_a_replayed_greeting_opens_a_connection_that_soon_ends() -> None:
    """Recorded on its way to another member: here the greeting is new, but nothing forged follows for long."""
    from whence.live.net.guard import SecretGuard

    async with whence.create("live", secret=SECRET, settings=fast()) as a:
        greeting = frame_stream(SecretGuard(SECRET).seal(encode_hello(Greeting("127.0.0.1:1"))))
        reader, writer = await asyncio.open_connection(*parse_address(a.address))
        writer.write(greeting)
        await until(lambda: a._host._transport.accepted and not a._host._transport.listener.strangers)
        writer.write(b"".join(frame_stream(b"%d" % n * 30) for n in range(100, 2100)))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        assert a.stats()["net.unauthentic"] < 20 and not a._host._transport.accepted
        writer.close()


@pytest.mark.parametrize("kind", ["gossip", "directed"])
async def test_the_urgent_lane_is_no_way_around_back_pressure(kind: str) -> None:
    """A member that writes without end on it: what waits for the node stays bounded, and others get through."""
    common: dict[str, Any] = {"insecure": True, "settings": fast()}
    async with several("live", 2, **common) as (a, b), a.publisher() as seat:
        _, writer = await asyncio.open_connection(*parse_address(a.address))
        writer.write(frame_stream(encode_hello(Greeting("127.0.0.1:1", urgent=True))))
        packet = pack("live", "127.0.0.1:1#5", Subscribe(1))
        record = frame_stream(packet if kind == "gossip" else direct(a.me, packet))
        most = 0
        for n in range(4):
            writer.write(record * 20_000)
            for _ in range(20):
                await asyncio.sleep(0)
                most = max(most, len(a._node._inbox) + len(a._node._urgent))
            await seat.publish(b"%d" % n)
        assert most < 10_000, most
        assert [e.payload for e in await collect(b, 4)] == [b"%d" % n for n in range(4)]
        assert (a.stats()["net.not_urgent"] > 0) is (kind == "gossip")
        writer.transport.abort()


def test_hellos_are_refused_only_with_remote_errors() -> None:
    rng = random.Random(3)
    for hello in (Greeting("127.0.0.1:1"), Ask("c", "127.0.0.1:1", 7), Answer("c", 7, "127.0.0.1:1#5")):
        data = encode_hello(hello)
        assert decode_hello(data) == hello
        for _ in range(300):
            bad = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            try:
                decode_hello(bytes(bad[: rng.randrange(len(bad) + 1)]))
                read_direct(bytes(bad))
            except RemoteError:
                pass
    for bad_hello in (Greeting("no spaces"), Ask("c" * 300, "a:1", 1), Answer("c", 1, "no boot")):
        with pytest.raises(RemoteError):
            decode_hello(encode_hello(bad_hello))


def test_addresses() -> None:
    assert parse_address("[::1]:7") == ("::1", 7) and show_address("::1", 7) == "[::1]:7"
    assert parse_address("host.example:65535") == ("host.example", 65535)
    assert parse_address("a" * 63 + ".example.:1")[1] == parse_address("bücher.example:1")[1] == 1
    long = "a" * 64  # the resolver raises a UnicodeError, and a peer may have made it up
    bad_hosts = (f"{long}:1", f"[{long}]:1", f"ü{long}:1", "a..b:1")
    for bad in ("", ":1", "a", "a:", "a:x", "a:65536", "a:-1", "::1:7", *bad_hosts):
        with pytest.raises(UsageError):
            parse_address(bad)
    assert is_loopback("127.3.2.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("192.0.2.1") and not is_loopback("example.org")
    assert is_wildcard("0.0.0.0") and is_wildcard("::") and not is_wildcard("127.0.0.1")


# -- one transport against a peer that is nobody's member ------------------------------------------------------------


def _transport(settings: TcpSettings, stats: NetStats) -> TcpTransport:
    return TcpTransport("127.0.0.1:0", stats, lambda urgent: b"greeting", MAX_MESSAGE_BYTES, settings=settings)


def _ignore(packets: Sequence[bytes], connection: Connection) -> None:
    connection.peer = connection.peer or packets[0].decode()


async def test_a_peer_that_does_not_read_is_bounded_and_then_dropped() -> None:
    stats = NetStats()
    # The kernel has a timeout of `stall_timeout`, too, in real seconds: it must be far longer than the test takes.
    settings = TcpSettings(
        patience=1.0,
        datagram_bound=1 << 20,
        stream_bound=4 << 20,
        stall_timeout=120.0,
        sweep=5.0,
        high_water=1 << 16,
    )
    transport = _transport(settings, stats)
    await transport.start(_ignore)
    held: list[asyncio.StreamWriter] = []

    async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()
        held.append(writer)

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0)
    address = show_address(*server.sockets[0].getsockname())
    transport.send([address], b"x", False)
    transport.flush()
    await until(lambda: stats.connects == 1)
    for _ in range(100):
        transport.send([address], b"x" * 60_000, False)
        transport.flush()
    assert transport.congested() and stats.peer_full > 0
    assert not await transport.drained(0.01), "publishers wait for it"
    await until(lambda: not transport.congested(), "but not for long")
    await until(lambda: stats.peer_broken == 1, "and in the end it is gone", 240, every=5.0)
    transport.send([address], b"x", True)
    transport.flush()
    await until(lambda: stats.unsent > 0 or stats.connects == 2)
    for writer in held:
        writer.close()
    server.close()
    await transport.close()


@pytest.mark.parametrize("protected", [False, True])
async def test_too_much_for_a_stream_gives_the_connection_up_once(protected: bool, tmp_path: Path) -> None:
    """Over TLS, too, where a transport that was aborted keeps what was written on it."""
    stats = NetStats()
    transport = _transport(TcpSettings(stream_bound=1 << 20), stats)
    server_tls = None
    if protected:
        keys.init(tmp_path)
        keys.issue(tmp_path, "a")
        mine = keys.load(tmp_path / "a")
        server_tls, transport.client_tls = contexts(mine.ca, mine.certificate, mine.key)
    await transport.start(_ignore)
    stop = asyncio.Event()

    async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        await stop.wait()
        writer.transport.abort()

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0, ssl=server_tls)
    address = show_address(*server.sockets[0].getsockname())
    transport.send([address], b"x" * 100_000, True)
    transport.flush()
    await until(lambda: stats.connects == 1)
    for _ in range(10):
        transport.send([address], b"x" * 500_000, True)
        transport.flush()
    assert stats.peer_broken == 1 and stats.unsent >= 5
    await asyncio.sleep(0.2)
    transport.send([address], b"x", True)
    transport.flush()
    await until(lambda: stats.connects == 2, "the next packet dials again")
    stop.set()
    server.close()
    await transport.close()


async def test_an_unreachable_peer_is_tried_ever_more_rarely() -> None:
    stats = NetStats()
    transport = _transport(TcpSettings(), stats)
    await transport.start(_ignore)
    nobody = socket.socket()  # bound, so that nobody else takes the port, and not listening
    nobody.bind(("127.0.0.1", 0))
    address = show_address(*nobody.getsockname())
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.0
    while loop.time() < end:
        transport.send([address, "not an address", "127.0.0.1:99999"], b"x", False)
        transport.flush()
        await asyncio.sleep(0.005)
    assert 2 <= stats.connect_failures <= 6
    assert stats.peer_full > 50, "what was for it is dropped and counted"
    await transport.close()
    nobody.close()


async def test_a_restarted_peer_is_connected_to_again() -> None:
    stats = NetStats()
    sender = _transport(TcpSettings(), stats)
    await sender.start(_ignore)
    got: list[bytes] = []

    def keep(packets: Sequence[bytes], connection: Connection) -> None:
        if connection.peer is None:
            connection.peer = packets[0].decode()
        else:
            got.extend(packets)

    listen = "127.0.0.1:0"
    for life in range(3):
        receiver = TcpTransport(listen, NetStats(), lambda urgent: b"hi", MAX_MESSAGE_BYTES)
        await receiver.start(keep)
        listen = receiver.address

        def arrived(life: int = life, address: str = listen) -> bool:
            sender.send([address], b"%d" % life, True)
            sender.flush()
            return b"%d" % life in got

        await until(arrived)
        await receiver.close()
    assert stats.connects == 3
    await sender.close()


async def test_a_taken_port_is_a_usage_error() -> None:
    async with whence.Host(insecure=True) as one:
        with pytest.raises(UsageError, match="cannot listen"):
            async with whence.Host(one.address, insecure=True):
                pass


async def test_one_certificate_is_one_member(tmp_path: Path) -> None:
    """It greets under 40 addresses, one connection each, and says hello to the cluster under all of them."""
    keys.init(tmp_path)
    for name, role in (("a", "publisher"), ("b", "publisher"), ("mallory", "receiver")):
        keys.issue(tmp_path, name, role)
    held = keys.load(tmp_path / "mallory")
    client = contexts(held.ca, held.certificate, held.key)[1]
    async with (
        whence.create("live", tls=tmp_path / "a", settings=fast()) as a,
        whence.join("live", [a.address], tls=tmp_path / "b", settings=fast()) as b,
    ):
        writers, most = [], 0
        for k in range(40):
            host, port = parse_address(a.address)
            _, writer = await asyncio.open_connection(host, port, ssl=client, server_hostname=host)
            writers.append(writer)
            me = f"127.0.0.1:{2000 + k}#1"
            writer.write(frame_stream(encode_hello(Greeting(f"127.0.0.1:{2000 + k}"))))
            writer.write(frame_stream(pack("live", me, Subscribe(10))))
            await writer.drain()
            await until(lambda me=me: me in [str(m) for m in a.members()], "it is heard")
            most = max(most, len(a.members()))
        assert most == 3, "a, b and one of its names"
        async with a.publisher() as publisher:
            await publisher.publish(b"x", copies=2)
        assert (await collect(b, 1))[0].payload == b"x"
        for writer in writers:
            writer.close()


async def test_one_certificate_has_few_connections(tmp_path: Path) -> None:
    """Each holds most of a large packet, half of them on the urgent lane; the last ones still speak."""
    keys.init(tmp_path)
    for name, role in (("a", "publisher"), ("mallory", "receiver")):
        keys.issue(tmp_path, name, role)
    held = keys.load(tmp_path / "mallory")
    client = contexts(held.ca, held.certificate, held.key)[1]
    async with whence.create("live", tls=tmp_path / "a", settings=fast()) as a:
        tcp, writers = a._host._tcp, []
        host, port = parse_address(a.address)
        for n in range(20):
            _, writer = await asyncio.open_connection(host, port, ssl=client, server_hostname=host)
            writers.append(writer)
            writer.write(frame_stream(encode_hello(Greeting("127.0.0.1:1", urgent=n % 2 == 0))))
            writer.write((3 << 20).to_bytes(4, "big") + bytes(100_000))
            await until(lambda n=n: tcp.stats.accepted > n and not tcp.listener.strangers, "it has greeted")
            assert len(tcp.accepted) <= MAX_LANES
        assert len(tcp.accepted) == MAX_LANES and len(a.members()) == 1
        for writer in writers:
            writer.transport.abort()


async def test_questions_are_answered_to_whoever_asks_and_not_all_the_time() -> None:
    async with several("live", 2, insecure=True, settings=fast()) as (a, b), a.publisher() as seat:
        _, writer = await asyncio.open_connection(*parse_address(a.address))
        writer.write(frame_stream(encode_hello(Greeting("127.0.0.1:1"))))
        for n in range(200):
            writer.write(frame_stream(encode_hello(Ask("live", f"127.0.0.{2 + n}:1", n))))
        await until(lambda: a.stats()["net.unanswered"] == 200)
        assert not [lane for lane in a._host._tcp._peers if lane[0] not in (b.address, "127.0.0.1:1")]
        writer.write(frame_stream(encode_hello(Ask("live", "127.0.0.1:1", 1))) * 500)
        await until(lambda: a.stats()["net.unanswered"] > 200)
        await seat.publish(b"x")
        assert [e.payload for e in await collect(b, 1)] == [b"x"]
        writer.transport.abort()
