"""Where voters keep their memory: a locked file."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import fast, until
from whence.core.ring.context import Memory
from whence.core.ring.messages import Council, Voter
from whence.errors import CorruptJournal, JournalInUse, UsageError
from whence.live.net.votes import Votes, state_directory
from whence.testing import MemoryNetwork

SOME = Memory("a:1#2", Council(3, (Voter("a:1#2", True),), ()), None)
OTHER = Memory("a:1#2", Council(4, (Voter("a:1#2", True),), ()), None)


def test_a_file_is_one_processs_and_says_when_it_is_damaged(tmp_path: Path) -> None:
    votes = Votes(tmp_path / "v")
    assert votes.load() is None
    votes.save(SOME)
    votes.save(OTHER)
    with pytest.raises(JournalInUse, match="in use by another process"):
        Votes(tmp_path / "v")
    votes.close()
    again = Votes(tmp_path / "v")
    assert again.load() == OTHER
    for damage in (b"", b"something else", (tmp_path / "v" / "vote").read_bytes()[:-1]):
        (tmp_path / "v" / "vote").write_bytes(damage)
        with pytest.raises(CorruptJournal, match=r"damaged one\. Without it this process is a new voter"):
            again.load()


def test_the_state_directory_has_one_for_each_cluster_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert state_directory("a/../b", "h:1") == Path("/s/whence/a%2f..%2fb/h%3a1")
    assert (
        state_directory("..", "h:1").parts[:3] == ("/", "s", "whence")
        and ".." not in state_directory("..", "h:1").parts
    )


# -- live ----------------------------------------------------------------------------------------------------------

HOMES = ("127.0.0.1:7001", "127.0.0.1:7002")


async def test_two_with_a_memory_and_a_decision(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first voter is killed and started again with its memory: both publish. Killed for good: the other says why
    it cannot publish and what to do; a person decides, and it goes on."""
    network = MemoryNetwork()
    options: dict[str, Any] = {"transport": network, "settings": fast()}
    first = whence.create("two", HOMES[0], memory=tmp_path / "a", **options)
    a = await first.__aenter__()
    async with whence.join("two", HOMES[0], HOMES[1], memory=tmp_path / "b", **options) as b:
        async with b.publisher() as publisher:
            await publisher.publish(b"one")
            await until(lambda: b.council is not None and len(b.council.voters) == 2, "two voters")
            assert a.council is not None and b.council is not None
            assert a.council.says().startswith(f"council of 2 (this process, {HOMES[1]}): publishing survives the ")
            assert f"survives the loss of {HOMES[1]} alone: start a third member" in a.council.says()
            with pytest.raises(UsageError, match="do not create the ring again"):
                await b.recreate(force=True)
            a.abandon()
            await first._close()
            await until(lambda: not b.may_publish, "the loss")
            first = whence.create("two", HOMES[0], memory=tmp_path / "a", **options)
            a = await first.__aenter__()
            await publisher.publish(b"two")
            a.abandon()
            await first._close()
            await until(lambda: not b.may_publish and b.council and b.council.missing, "the second loss")
        with pytest.raises(whence.NoTicket, match=r"1 of 2 voters does not answer, 127\.0\.0\.1:7001 .*A lost ring"):
            async with b.publisher(timeout=1) as publisher:
                await publisher.publish(b"three")
        await b.recreate(force=True)
        async with b.publisher() as publisher:
            await publisher.publish(b"four")
        assert [v.member for v in b.council.voters] == [b.me] or len(b.council.voters) == 1


async def test_a_memory_is_kept_where_the_address_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, kept in (("127.0.0.1:0", False), (f"127.0.0.1:{port}", True)):
        async with whence.create("x", address, insecure=True, settings=fast()) as cluster:
            async with cluster.publisher() as publisher:
                await publisher.publish(b"x")
            assert (state_directory("x", cluster.address) / "vote").is_file() is kept
