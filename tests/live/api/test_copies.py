"""`publish(..., copies=k)`: returns when k members hold the event, or says how many do."""

from __future__ import annotations

import asyncio

import pytest

import whence
from tests.live.net.live import collect, fast, several, until
from whence.errors import ClusterClosed, TimedOut, TooFewCopies, UsageError
from whence.testing import MemoryNetwork


def holders(name: str, *clusters: whence.Cluster) -> int:
    """How many of them have the event in their recovery buffer."""
    return sum(any(name in frame.names() for frame in c._node.member.ordering.buffer) for c in clusters)


@pytest.mark.parametrize("loss", [0.0, 0.3])
async def test_it_returns_when_so_many_members_hold_the_event(loss: float) -> None:
    net = MemoryNetwork(loss, seed=3)
    common = {"transport": net, "settings": fast(), "order": "reliable"}
    async with several("safe", 3, **common) as (a, b, c), a.publisher() as publisher:
        await a.wait_for(lambda: len(a.members()) == 3, 30)
        for n in range(5):
            for copies in (1, 2, 3):
                name = await publisher.publish(b"%d" % n, copies=copies, timeout=120)
                await asyncio.sleep(0)  # with one copy it does not wait: the event leaves at the end of the turn
                assert holders(name, a, b, c) >= copies
        many = await publisher.publish_many([b"x" * 20_000] * 6, copies=3, timeout=120)
        assert all(holders(name, a, b, c) == 3 for name in many), "also when they need several frames"
        assert [e.id for e in await collect(c, 21)][15:] == many


async def test_too_few_copies_says_how_many_there_are_and_that_the_event_is_out() -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast(), "order": "reliable"}
    async with several("safe", 3, **common) as (a, b, c), a.publisher() as seat:
        await a.wait_for(lambda: len(a.members()) == 3, 30)
        net.cut([a.address, b.address], [c.address])
        with pytest.raises(TooFewCopies, match=r"2 of 3 copies after 0\.2 s: the event is published") as found:
            await seat.publish(b"x", copies=3, timeout=0.2)
        assert found.value.copies == 2
        net.heal()
        (event,) = await collect(c, 1)
        assert (event.id,) == found.value.published


async def test_more_copies_than_members_is_refused_before_anything_is_published() -> None:
    common = {"transport": MemoryNetwork(), "settings": fast()}
    async with several("safe", 2, **common) as (a, b), a.publisher() as publisher:
        await a.wait_for(lambda: len(a.members()) == 2, 30)
        with pytest.raises(TooFewCopies, match="3 copies wanted, but this member knows only 2 members") as found:
            await publisher.publish(b"x", copies=3)
        assert found.value.published == () and publisher.published == 0
        for wrong in (0, -1, "2", 1.5):
            with pytest.raises(UsageError, match="copies is a number of members"):
                await publisher.publish(b"x", copies=wrong)  # type: ignore[arg-type]
        assert publisher.published == 0 and b.me in a.members()


async def test_a_cluster_that_is_left_counts_no_more() -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast(), "order": "reliable"}
    async with several("safe", 3, **common) as (a, b, c), a.publisher() as publisher:
        await a.wait_for(lambda: len(a.members()) == 3, 30)
        net.cut([a.address], [b.address, c.address])
        waiting = asyncio.create_task(publisher.publish(b"x", copies=2, timeout=1000))
        await until(lambda: publisher.published == 1, "it is stamped")
        await a.leave()
        with pytest.raises(ClusterClosed):
            await waiting


async def test_a_message_to_one_member_comes_between_what_it_follows_and_what_follows_it() -> None:
    net = MemoryNetwork(0.1, seed=5)
    common = {"transport": net, "settings": fast(), "order": "reliable"}
    async with several("safe", 3, **common) as (a, b, c), a.publisher() as publisher:
        await a.wait_for(lambda: len(a.members()) == 3, 30)
        await publisher.publish(b"before")
        await a.send(b.me, b"to b alone")
        await publisher.publish(b"after")
        assert [e.payload for e in await collect(c, 2)] == [b"before", b"after"]
        found = await collect(b, 3)
        assert [e.payload for e in found] == [b"before", b"to b alone", b"after"]
        assert [e.direct for e in found] == [False, True, False] and found[1].origin == a.me
        await c.send(b.me, b"without a ticket")
        assert (await collect(b, 1))[0].payload == b"without a ticket" and not c.may_publish
        with pytest.raises(UsageError, match="not another member"):
            await a.send("nobody:1#1", b"x")
        net.cut([a.address], [b.address, c.address])
        with pytest.raises(TimedOut, match="no answer"):
            await a.send(b.me, b"x", timeout=0.5)
