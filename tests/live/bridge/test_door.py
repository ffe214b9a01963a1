"""Open groups live: who is no member publishes through members that die, each event once, in order."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.commands import Command, until
from tests.live.net.live import LIMIT, enter, fast
from tests.live.net.live import until as soon
from whence.cli import main
from whence.errors import BadMessage, NotAccepted, UsageError
from whence.live.bridge import Client, Door, Reader, Said
from whence.live.bridge.door import (
    GREETING_BYTES,
    MAX_STRANGERS,
    ClientAccepted,
    ClientGreeting,
    ClientRefused,
    Request,
    decode,
)
from whence.live.net import keys
from whence.live.net.memory import MemoryNetwork
from whence.live.net.transport import parse_address


class Host:
    """A member with a door, and what its application has read."""

    def __init__(self, net: MemoryNetwork, n: int, directory: Path | None = None, **safety: Any) -> None:
        self.read: list[Said] = []
        self.reader = Reader("lobby")
        self._join = enter(
            "lobby",
            ["m0:1"] if n else [],
            f"m{n}:1",
            transport=net,
            settings=fast(),
            order="reliable",
            directory=directory,
            state=self.reader.state if directory else None,
            restore=self.reader.restore if directory else None,
        )
        self._safety = safety or {"insecure": True}
        self._stack = AsyncExitStack()

    async def start(self) -> Host:
        self.cluster = await self._stack.enter_async_context(self._join)
        self.door = await self._stack.enter_async_context(Door(self.cluster, self.reader, **self._safety))
        self._task = asyncio.create_task(self._listen())
        return self

    async def _listen(self) -> None:
        async for event in self.cluster.events():
            said = self.door.read(event)
            if said is not None:
                self.read.append(said)

    async def end(self, crash: bool = False) -> None:
        if crash:
            self.cluster.abandon()
        else:
            await self.cluster.leave()
        await self._task
        await self._stack.aclose()

    @property
    def payloads(self) -> list[bytes]:
        return [said.payload for said in self.read]


async def hosts(count: int, **safety: Any) -> tuple[MemoryNetwork, list[Host]]:
    net = MemoryNetwork()
    made = [await Host(net, n, **safety).start() for n in range(count)]
    await may_publish(made)
    return net, made


async def may_publish(some: list[Host]) -> None:
    """All have their tickets: a ring of fewer than three would not survive a crash."""
    await soon(lambda: all(host.cluster.may_publish for host in some), "all have tickets")


def client(some: list[Host], **more: Any) -> Client:
    return Client("lobby", [host.door.address for host in some], **{"insecure": True, **more})


async def test_each_event_once_in_order_though_members_die() -> None:
    _, some = await hosts(5)  # of three coordinators one may crash, of two none
    alive, said = list(some), list[bytes]()

    async def publish(payload: bytes) -> None:
        said.append(payload)
        assert await ann.publish(payload) == len(said)

    async with client(some[1:], client="ann") as ann:
        for n in range(24):
            await publish(b"%d" % n)
            if n in (7, 15):  # the one that is asked first
                dead = next(host for host in alive if host.door.address == ann.via[0])
                alive.remove(dead)
                await dead.end(crash=True)
                ann.copies = min(ann.copies, len(alive) - 1)
                mourned = dead.cluster.me
                await publish(b"after %d" % n)
                await soon(lambda: all(mourned not in h.cluster.coordinators().values() for h in alive), "healed")  # noqa: B023
    for host in alive:
        await soon(lambda: len(host.read) >= len(said), "all is read")  # noqa: B023
        assert host.payloads == said
        assert [(one.client, one.number) for one in host.read] == [("ann", n + 1) for n in range(len(said))]
    for host in alive:
        await host.end()


async def test_a_client_that_asks_again_is_told_that_it_is_done() -> None:
    _, some = await hosts(3)
    for _ in range(2):
        async with client(some, client="ann", last=0) as ann:
            assert await ann.publish(b"once") == 1
    assert some[0].door.stats["door.published"] == 1
    async with client(some[1:], client="ann", last=1) as ann:  # of members that have not published for it
        assert await ann.publish(b"twice") == 2
    for host in some:
        await soon(lambda: host.payloads == [b"once", b"twice"], "each once")  # noqa: B023
        await host.end()


async def test_too_few_members_is_said_with_what_each_answered() -> None:
    _, some = await hosts(2)
    gone = some[1].door.address
    await some[1].end()
    async with client([some[0]], copies=1) as ann:
        assert await ann.publish(b"there") == 1
    with pytest.raises(NotAccepted, match="has it"):
        async with Client("lobby", [some[0].door.address, gone], insecure=True, timeout=0.01) as ann:
            await ann.publish(b"alone")
    with pytest.raises(NotAccepted, match="a door of 'lobby'"):
        async with Client("hall", [some[0].door.address], insecure=True, timeout=0.01) as ann:
            await ann.publish(b"elsewhere")
    await some[0].end()


def test_what_makes_no_sense_is_refused_before_anything_is_sent() -> None:
    for wrong in (
        {"via": []},
        {"via": ["a:1"], "copies": 2},
        {"via": ["a:1"]},
        {"via": ["127.0.0.1:1"], "secret": b""},
    ):
        given_ = {"insecure": True, **wrong}
        with pytest.raises(UsageError):
            Client("lobby", **given_)
    with pytest.raises(UsageError, match="at most"):
        asyncio.run(Client("lobby", ["127.0.0.1:1"], insecure=True).publish(b"x" * (1 << 20)))


async def test_doors_are_protected_as_members_are(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys")
    keys.issue(tmp_path / "keys", "door")
    keys.issue(tmp_path / "keys", "ann")
    keys.issue(tmp_path / "keys", "wall", role="receiver")
    keys.init(tmp_path / "other")
    keys.issue(tmp_path / "other", "eve")
    _, secret = await hosts(1, secret="a passphrase of the members")
    async with client(secret, insecure=False, secret="a passphrase of the members") as ann:
        assert await ann.publish(b"with the secret") == 1
    for wrong in ({"insecure": False, "secret": "another passphrase"}, {}):
        with pytest.raises(NotAccepted):
            async with client(secret, timeout=0.01, **wrong) as eve:
                await eve.publish(b"without")
    assert secret[0].door.stats["door.unauthentic"] >= 2
    assert secret[0].payloads == [b"with the secret"]
    await secret[0].end()

    _, tls = await hosts(1, tls=tmp_path / "keys" / "door")
    async with client(tls, insecure=False, tls=tmp_path / "keys" / "ann") as ann:
        assert await ann.publish(b"with a certificate") == 1
    for directory, why in ((tmp_path / "keys" / "wall", "receiver"), (tmp_path / "other" / "eve", "CA")):
        with pytest.raises(NotAccepted, match=why):
            async with client(tls, insecure=False, tls=directory, timeout=0.01) as eve:
                await eve.publish(b"without")
    assert tls[0].payloads == [b"with a certificate"]
    await tls[0].end()


@pytest.mark.parametrize("nonsense", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x03abc"])
async def test_a_door_closes_the_line_of_who_talks_nonsense_and_serves_the_others(nonsense: bytes) -> None:
    _, some = await hosts(1)
    reader, writer = await asyncio.open_connection(*parse_address(some[0].door.address))
    writer.write(nonsense)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), LIMIT) == b"", "closed, without an answer"
    writer.close()
    async with client(some) as ann:
        assert await ann.publish(b"hello") == 1
    await some[0].end()


async def test_strangers_at_the_door_make_it_keep_next_to_nothing() -> None:
    """Each sends the beginning of a record of a megabyte, or nothing at all."""
    _, some = await hosts(1)
    where = parse_address(some[0].door.address)
    listener = some[0].door._listener
    idle = []
    for _ in range(3 * MAX_STRANGERS):
        reader, writer = await asyncio.open_connection(*where)
        idle.append(writer)
        assert len(listener.strangers) <= MAX_STRANGERS
    await soon(lambda: listener.stats.refused >= MAX_STRANGERS, "the oldest made room")
    for size in (GREETING_BYTES + 1, 1 << 20):
        reader, writer = await asyncio.open_connection(*where)
        writer.write(size.to_bytes(4, "big") + bytes(200))
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), LIMIT) == b"", "closed before the record is whole"
        writer.close()
    async with client(some) as ann:
        assert await ann.publish(b"hello") == 1
    await soon(lambda: not listener.strangers, "a greeting has to come in time")
    for writer in idle:
        writer.close()
    await some[0].end()


@given(st.binary(max_size=100))
def test_any_bytes_are_a_word_or_a_named_error(data: bytes) -> None:
    with suppress(BadMessage):
        assert isinstance(decode(data), Request | ClientAccepted | ClientRefused | ClientGreeting)


# -- processes --------------------------------------------------------------------------------------------------------


def test_publish_from_the_shell_while_a_door_is_killed(tmp_path: Path, start: Callable[..., Command]) -> None:
    keys.init(tmp_path)
    who = ("--cluster", "lobby", "--secret-file", tmp_path / "secret.key")
    door = ("node", *who, "--open", "127.0.0.1:0", "--json", "--order", "reliable")
    doors = [start(*door)]
    seed = json.loads(doors[0].notice(r".*has (created|joined) .*")[0])["address"]
    doors += [start(*door, "--contact", seed) for _ in range(3)]
    for node in doors:
        node.notice("may publish")  # of three coordinators one may crash, of two none
    told = [json.loads(node.notice(r".*has (created|joined) .*")[0]) for node in doors]
    via = [word for n in (1, 2, 0) for word in ("--contact", told[n]["open"])]
    publisher = start("publish", *who, *via, "--json", "--client", "log", "--everywhere")
    publisher.say(*(f"line {n}" for n in range(10)))
    until(lambda: len(publisher.out) >= 5, "some are accepted")
    doors[1].process.send_signal(signal.SIGKILL)
    publisher.say(*(f"line {n}" for n in range(10, 20)))
    assert publisher.end() == 0, publisher.err
    *numbers, summary = [json.loads(line) for line in publisher.out]
    assert [said["number"] for said in numbers] == list(range(1, 21)) and summary["published"] == 20
    for node in (doors[0], *doors[2:]):
        until(lambda: len(node.out) >= 20, "all is delivered")  # noqa: B023
        rows = [json.loads(line) for line in node.out]
        assert [row["payload"] for row in rows] == [f"line {n}" for n in range(20)]
        assert {(row["client"], row["scope"]) for row in rows} == {("log", "global")}
        assert node.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    "args, why",
    [
        ("--cluster a --contact 127.0.0.1:1 x", "who may take part"),
        ("--cluster a --contact 127.0.0.1:1 --insecure --last 3 x", "--client"),
        ("--cluster a --contact 127.0.0.1:1 --insecure --copies 2 x", "copies"),
        ("--cluster a --contact 127.0.0.1:1 --insecure --timeout 0.01 x", "not enough members"),
        ("--cluster a --contact nowhere --insecure x", "not an address"),
    ],
)
def test_what_cannot_be_published_is_said(args: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", *args.split()]) == 2
    assert why in capsys.readouterr().err
