"""A council instead of a ring, in a live cluster of two: either may be killed, and nobody helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import whence
from tests.live.net.live import assert_causal, enter, fast, run, until
from whence.audit.trace import MemoryTrace
from whence.testing import MemoryNetwork

HOMES = ("127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003")


def test_two_survive_the_kill_of_either(tmp_path: Path) -> None:
    """The second is killed: the first goes on alone. The first is killed: it is back with its disk, and both publish
    again."""
    trace = MemoryTrace()
    network = MemoryNetwork(seed=1)

    async def begin(n: int, *contacts: str) -> tuple[Any, whence.Cluster]:
        options = {"transport": network, "directory": tmp_path / str(n), "order": "reliable", "trace": trace}
        entry = enter("two", contacts, HOMES[n], settings=fast(ring="council"), **options)
        return entry, await entry.__aenter__()

    async def kill(entry: Any, cluster: whence.Cluster) -> None:
        cluster.abandon()
        await entry.__aexit__(None, None, None)

    async def all_read(clusters: list[whence.Cluster], text: bytes) -> None:
        for cluster in clusters:
            async with cluster.publisher() as publisher:
                await publisher.publish(text)
        for cluster in clusters:
            seen = 0
            async for event in cluster.events():
                seen += event.payload == text
                if seen == len(clusters):
                    break

    async def main() -> None:
        first = await begin(0)
        second = await begin(1, HOMES[0])
        await until(lambda: len(first[1].members()) == len(second[1].members()) == 2, "both here")
        await all_read([first[1], second[1]], b"both")
        await asyncio.sleep(4)  # the council has let the second one in
        await kill(*second)
        await all_read([first[1]], b"alone")
        second = await begin(1, HOMES[0])
        await all_read([first[1], second[1]], b"both again")
        await asyncio.sleep(4)
        await kill(*first)
        first = await begin(0, HOMES[1])
        await all_read([first[1], second[1]], b"and again")
        for entry, _ in (first, second):
            await entry.__aexit__(None, None, None)

    run(main())
    assert_causal(trace)


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
