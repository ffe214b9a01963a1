"""Strangers at the port: idle connections, wrong keys, and no descriptors left."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import logging
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import collect, fast, run, say, until
from tests.ports import free_ports
from whence.core.wire import frame_stream
from whence.errors import NotJoined
from whence.live.net import keys, tls
from whence.live.net.disk import Journal
from whence.live.net.hello import Greeting, encode_hello
from whence.live.net.listener import BATCH, BURST, EVERY_S, MAX_ADDRESSES, Listener, Refusals, descriptor_share
from whence.live.net.tcp import TcpSettings
from whence.live.net.transport import NetStats, parse_address

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """This process may open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 120, hard))
    yield used + 120
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    keys.init(tmp_path)
    for name in ("a", "b"):
        keys.issue(tmp_path, name, "publisher")
    return tmp_path


async def test_idle_connections_take_neither_the_handshake_nor_the_descriptors_of_a_tls_node(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 connections that say nothing, at a node that lets 32 of them wait: the others go at once."""
    quick = TcpSettings(max_strangers=32, max_per_address=16)
    monkeypatch.setattr("whence.live.net.tcp.TcpSettings", lambda: quick)
    common: dict[str, Any] = {"settings": fast()}
    async with whence.create("live", tls=root / "a", **common) as a:
        before = len(list(Path("/proc/self/fd").iterdir()))
        idle = []
        for _ in range(300):
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, parse_address(a.address))
            idle.append(sock)
            tcp = a._host._transport
            assert len(tcp.listener.strangers) <= 16
        await until(lambda: a.stats()["net.refused"] >= 284, "all but sixteen are closed")
        assert len(list(Path("/proc/self/fd").iterdir())) - before - len(idle) <= 20
        async with whence.join("live", [a.address], tls=root / "b", **common) as b:
            await say(a, b"still here")
            assert [e.payload for e in await collect(b, 1)] == [b"still here"]
        for sock in idle:
            sock.close()


class Nobody(asyncio.Protocol):
    """A connection that says nothing."""

    def close(self) -> None:
        pass


async def test_admission_costs_the_same_however_many_wait() -> None:
    """A stranger that asks for room is compared with none of those who wait."""
    compared = 0

    class Address(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    listener = Listener(Nobody, NetStats(), max_strangers=60, max_per_address=2)
    listener._loop = asyncio.get_running_loop()
    ends = []
    for n in range(200):
        mine, theirs = socket.socketpair()
        ends.append(theirs)
        mine.setblocking(False)
        listener._admit(mine, Address("10.0.0.7" if n == 20 else f"10.0.0.{n}"))
        assert len(listener.strangers) == min(60, n + 1)
        if n == 60:  # one address had two
            assert list(listener.strangers.values()).count("10.0.0.7") == 1
    assert compared < 5 * 200
    await asyncio.sleep(0)
    for task in listener.close():
        await asyncio.wait([task])
    for end in ends:
        end.close()


async def test_however_many_want_in_the_loop_turns() -> None:
    """Between a few connections and the next few, everything else gets its turn."""
    listener = Listener(Nobody, NetStats(), max_strangers=1000, max_per_address=1000)
    await listener.start("127.0.0.1", 0)
    turns: list[int] = []
    clients = []
    for _ in range(100):  # the line holds 128
        clients.append(sock := socket.socket())
        sock.setblocking(False)
        sock.connect_ex(listener.address)
    while len(listener.strangers) < 100:
        turns.append(len(listener.strangers))
        await asyncio.sleep(0)
    assert max(b - a for a, b in itertools.pairwise([*turns, 100])) <= BATCH <= 10
    for task in listener.close():
        await asyncio.wait([task])
    for sock in clients:
        sock.close()


def test_connections_never_take_all_descriptors(few_descriptors: int) -> None:
    assert descriptor_share(3, 4096) <= few_descriptors // 3
    assert descriptor_share(3, 10) == 10


async def test_accepting_pauses_when_descriptors_run_out_and_goes_on(few_descriptors: int) -> None:
    async with whence.create("live", secret=b"s" * 32, settings=fast()) as a:
        tcp = a._host._transport
        with socket.socket() as sock:
            sock.setblocking(False)
            taken = []
            try:
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            await asyncio.get_running_loop().sock_connect(sock, parse_address(a.address))
            await until(lambda: a.stats()["net.exhausted"] > 0, "nothing can be accepted")
            for fd in taken:
                os.close(fd)
            await until(lambda: len(tcp.listener.strangers) == 1, "later it is")
        assert (await say(a, b"x")) and a._node.failure is None


def test_a_journal_begins_a_new_file_though_connections_have_taken_all_descriptors(
    few_descriptors: int, tmp_path: Path
) -> None:
    with Journal(tmp_path / "j", "c", rotate_bytes=300) as journal:
        journal.load()
        journal.next_boot(1)
        journal.save(b"x" * 200, [], sync=True)
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            for _ in range(10):
                journal.save(b"x" * 200, [], sync=True)
        finally:
            for fd in taken:
                os.close(fd)


SECRET, OTHER = {"secret": b"s" * 32}, {"secret": b"t" * 32}
OPEN = {"insecure": True}


@pytest.mark.parametrize(
    ("cluster", "joiner", "told", "logged"),
    [
        (SECRET, OTHER, "its secret may be another", "another key"),
        (SECRET, OPEN, "its secret may be another", "without any protection"),
        (OPEN, SECRET, "closed the connection", "is refused"),
        ("tls", SECRET, "TLS", "does not speak TLS"),
        ("tls", OPEN, "TLS", "does not speak TLS"),
        (SECRET, "tls", "does not use TLS", "speaks TLS"),
        (OPEN, "tls", "does not use TLS", "speaks TLS"),
        ("tls", "foreign", "of another CA", "another CA"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_wrong_key_is_named_on_both_sides(
    root: Path, caplog: pytest.LogCaptureFixture, cluster: Any, joiner: Any, told: str, logged: str
) -> None:
    foreign = root / "foreign"
    keys.init(foreign)
    keys.issue(foreign, "b", "publisher")
    ways = {"tls": {"tls": root / "b"}, "foreign": {"tls": foreign / "b"}}

    async def main() -> None:
        mine = {"tls": root / "a"} if cluster == "tls" else cluster
        async with whence.create("live", **mine, settings=fast()) as a:
            with pytest.raises(NotJoined, match=told):
                async with whence.join(
                    "live", [a.address], **(ways.get(joiner) if isinstance(joiner, str) else joiner), timeout=2.0
                ):
                    pass
            stats = a.stats()
            assert stats["net.unauthentic"] + stats["net.bad_stream"] + stats["net.bad_packet"] > 0

    with caplog.at_level(logging.WARNING, "whence.live.net"):
        run(main())
    lines = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert len(lines) == 1 and "127.0.0.1" in lines[0] and logged in lines[0], lines


def test_a_sealed_packet_that_begins_as_a_greeting_does_is_none(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with whence.create("live", **SECRET, settings=fast()) as a:
            reader, writer = await asyncio.open_connection(*parse_address(a.address))
            writer.write(frame_stream(b"H" + bytes(range(1, 80))))
            assert await reader.read() == b""  # it is refused
            writer.close()

    with caplog.at_level(logging.WARNING, "whence.live.net"):
        run(main())
    (line,) = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert "without any protection" not in line


def test_refusals_are_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    with caplog.at_level(logging.WARNING, "whence.live.net"):
        for n in range(1000):
            refusals.note("10.0.0.1", "no", n / 1000)
            refusals.note(f"10.0.1.{n}", "no", n / 1000)
        assert len(caplog.records) == BURST and len(refusals.last) == MAX_ADDRESSES
        refusals.note("10.0.0.1", "no", 1 + EVERY_S)
        assert len(caplog.records) == BURST + 1


async def test_a_member_that_names_anothers_address_first_does_not_lock_it_out(root: Path) -> None:
    keys.issue(root, "mallory", "receiver")
    (port,) = free_ports(1)
    _, client = tls.contexts(*(root / "mallory" / f for f in ("ca.crt", "mallory.crt", "mallory.key")))
    async with whence.create("live", tls=root / "a", settings=fast()) as a:
        _, writer = await asyncio.open_connection(*parse_address(a.address), ssl=client)
        writer.write(frame_stream(encode_hello(Greeting(f"127.0.0.1:{port}"))))
        tcp = a._host._transport
        await until(lambda: any(c.peer == f"127.0.0.1:{port}" for c in tcp.accepted), "mallory was first")
        async with whence.join("live", [a.address], f"127.0.0.1:{port}", tls=root / "b", settings=fast()) as b:
            await say(a, b"hello, b")
            assert [e.payload for e in await collect(b, 1)] == [b"hello, b"]
            await say(b, b"hello, a")
            assert not any(c.name == "mallory" for c in tcp.accepted)
            assert not a.cut_off()
        writer.close()
