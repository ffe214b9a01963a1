"""No false alarm, and no advice that is dangerous: after a restart, a standstill, a loss, at a receiver, at a stop."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import FAST, Members, run, say, until
from whence.live.net.council import FORCE_AFTER_S, council_of
from whence.live.net.node import STALL_NS
from whence.testing import MemoryNetwork

SECRET: dict[str, Any] = {"secret": bytes(range(32))}


def test_a_restarted_voter_hears_nothing_of_itself(tmp_path: Path) -> None:
    """It was killed: the council still has its earlier life, at the same address."""

    async def main() -> None:
        async with Members(**SECRET) as x:
            a, b = await x.add(), await x.add()
            again = {**SECRET, "settings": FAST, "transport": x.network}
            async with whence.join("x", a.address, "127.0.0.1:9", memory=tmp_path / "c", **again) as c:
                await until(lambda: a.council is not None and c.me in {v.member for v in a.council.voters})
                c.abandon()
            async with (
                whence.join("x", a.address, "127.0.0.1:9", memory=tmp_path / "d", **again) as d,
                d.publisher() as publisher,
            ):
                await publisher.publish(b"x")
                await until(lambda: d.me in b.members())
                await asyncio.sleep(5)
                assert d.stats()["guard.reflected"] == d.stats()["net.unauthentic"] == 0

    run(main())


def test_whoever_stood_still_does_not_think_that_all_others_are_dead(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Members() as x:
            a, b, _ = [await x.add() for _ in range(3)]
            await until(lambda: a.council is not None and len(a.council.voters) == 3)
            node = a._node
            later = node._now + 20 * STALL_NS
            node.step(later, 0)  # as after SIGCONT: all timers are late
            for moment in (later, later + FAST["ring_round_ns"]):
                council = council_of(node, moment)
                assert (
                    council is not None and council.has_quorum and not council.missing and "force" not in council.says()
                )
            assert "this process stood still for 39." in caplog.text or "stood still for 40." in caplog.text
            assert f"{b.address} is gone" not in caplog.text and not node.gone.last

    with caplog.at_level(logging.WARNING):
        run(main())


def test_override_is_mentioned_when_the_voters_have_been_missing_for_long(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Members() as x:
            a, b, c = [await x.add() for _ in range(3)]
            await until(lambda: a.council is not None and len(a.council.voters) == 3)
            b.abandon()
            c.abandon()
            await until(lambda: a.council is not None and not a.council.has_quorum)
            assert a.council is not None and "--force" not in a.council.says()
            await asyncio.sleep(FORCE_AFTER_S + 10)
            assert f"whence node --cluster x --force --contact {a.address} --insecure" in a.council.says()

    run(main())


def test_an_experiment_is_told_what_it_remembers_of_the_last_one(tmp_path: Path) -> None:
    """Its name and its address are used again; the others of that time are not there."""

    async def main() -> None:
        network, home = MemoryNetwork(), tmp_path / "a"
        options: dict[str, Any] = {"transport": network, "settings": FAST}
        async with (
            whence.create("x", "127.0.0.1:9", memory=home, **options) as a,
            whence.join("x", a.address, **options) as b,
            whence.join("x", a.address, **options) as c,
        ):
            await until(lambda: a.council is not None and len(a.council.voters) == 3)
            for one in (a, b, c):
                one.abandon()
        async with whence.create("x", "127.0.0.1:9", memory=home, **options) as again:
            with pytest.raises(whence.NoTicket, match=rf"remembers them from {home}: if that experiment is over"):
                async with again.publisher(timeout=30) as publisher:
                    await publisher.publish(b"x")

    run(main())


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_total_restart_nobody_is_missed_and_the_wait_is_explained(
    clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others start at the same time. After a kill, leases of before have to run out, and each publisher says so."""

    async def life(network: MemoryNetwork, leaves: bool) -> None:
        async with AsyncExitStack() as stack:
            peers = [f"127.0.0.1:{port}" for port in (7, 8, 9)]
            joins = [
                whence.bootstrap("x", peers, peer, memory=tmp_path / peer, transport=network, secret=b"s" * 32)
                for peer in peers
            ]
            clusters = await asyncio.gather(*map(stack.enter_async_context, joins))
            said = [cluster.council for cluster in clusters]
            assert not any(council is not None and council.missing for council in said)
            await asyncio.gather(*(say(cluster, b"x") for cluster in clusters))
            await until(lambda: all(c.council is not None and len(c.council.voters) == 3 for c in clusters))
            if not leaves:
                for cluster in clusters:
                    cluster.abandon()

    async def main() -> None:
        network = MemoryNetwork()
        await life(network, clean)
        caplog.clear()
        await life(network, clean)
        assert caplog.text.count("publishing waits up to") == (0 if clean else 3)

    with caplog.at_level(logging.WARNING):
        run(main())


async def test_a_receiver_names_a_member_that_may_decide(tmp_path: Path) -> None:
    if importlib.util.find_spec("cryptography") is None:
        pytest.skip("needs the cryptography package")
    from whence.live.net import keys

    keys.init(tmp_path)
    for name, role in (("a", "publisher"), ("b", "publisher"), ("r", "receiver")):
        keys.issue(tmp_path, name, role)
    async with (
        whence.create("x", tls=tmp_path / "a") as a,
        whence.join("x", a.address, tls=tmp_path / "r") as r,
    ):
        await until(lambda: r.council is not None and r.council.voters)
        assert a.council is not None and r.council is not None
        assert (a.council.decides, r.council.decides) == (a.address, a.address)
        assert r.council.keys == f"--tls {tmp_path / 'r'} r"


@pytest.mark.parametrize("profile", ["", "ccc11"])
def test_a_stop_without_a_quorum_does_not_say_that_publishing_waits(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease runs out while the ticket is given back in vain."""

    async def main() -> None:
        async with Members(profile=profile) as x:
            clusters = [await x.add() for _ in range(4)]
            await asyncio.sleep(5)
            x.cut(clusters[2])
            caplog.clear()
            await x.publishers[2].__aexit__(None, None, None)
            await clusters[2].leave()
            assert not [text for text in caplog.messages if "ticket" in text and "lost" in text]

    with caplog.at_level(logging.WARNING):
        run(main())
