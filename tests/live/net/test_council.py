"""A council instead of a ring, in a live cluster of two: either may be killed, and nobody helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import whence
from tests.live.net.live import enter, fast, until
from whence.testing import MemoryNetwork

HOMES = ("127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003")


async def some(events: AsyncIterator[whence.Event], n: int) -> AsyncIterator[whence.Event]:
    for _ in range(n):
        yield await anext(events)


async def test_a_voter_that_is_back_alone_does_not_wait_for_events_that_nobody_has(tmp_path: Path) -> None:
    """Its memory as a voter knows how far its ticket had come; the events died with both processes."""
    network = MemoryNetwork(seed=1)

    async def begin(n: int, *contacts: str) -> tuple[Any, whence.Cluster]:
        options = {"transport": network, "memory": tmp_path / str(n), "order": "reliable"}
        entry = enter("two", contacts, HOMES[n], settings=fast(), **options)
        return entry, await entry.__aenter__()

    first = await begin(0)
    second = await begin(1, HOMES[0])
    async with first[1].publisher() as publisher:
        await publisher.publish(b"before")
        await asyncio.sleep(4)  # both vote, and the memory of both has the event's number
        assert len(first[1].council.voters) == 2
        for entry, cluster in (second, first):
            cluster.abandon()
            await entry.__aexit__(None, None, None)
    first = await begin(0)
    second = await begin(2, HOMES[0])  # remembers nothing, and is there before the first one has a ticket
    for _, cluster in (first, second):
        async with cluster.publisher(timeout=60) as publisher:
            await publisher.publish(b"after")
    for entry, cluster in (first, second):
        assert [event.payload async for event in some(cluster.events(), 2)] == 2 * [b"after"]
        await entry.__aexit__(None, None, None)


async def test_a_member_that_is_no_witness_publishes_and_is_not_asked_to_vote() -> None:
    network = MemoryNetwork(seed=1)
    async with (
        enter("tea", (), HOMES[0], settings=fast(), transport=network) as first,
        enter("tea", (HOMES[0],), HOMES[1], settings=fast(), transport=network, votes=False) as guest,
        enter("tea", (HOMES[0],), HOMES[2], settings=fast(), transport=network) as third,
        guest.publisher() as publisher,
    ):
        await publisher.publish(b"hello")
        await until(lambda: first.council is not None and len(first.council.voters) == 2, "the third one votes")
        await asyncio.sleep(10)
        assert first.council is not None
        assert [voter.member for voter in first.council.voters] == [first.me, third.me]
