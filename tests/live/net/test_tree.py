"""Live clusters with trees: one push for each delivery, and a lost connection that replaces a neighbour."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import whence
from tests.live.net.live import assert_causal, collect, enter, fast, until
from whence.audit.trace import MemoryTrace
from whence.core.cast.tree import TreeCast
from whence.errors import ConfigError
from whence.live.net.memory import MemoryNetwork


def tree(cluster: whence.Cluster) -> TreeCast:
    cast = cluster._node.member.cast
    assert isinstance(cast, TreeCast)
    return cast


async def gather(stack: AsyncExitStack, n: int, **common: Any) -> list[whence.Cluster]:
    clusters: list[whence.Cluster] = []
    for _ in range(n):
        joining = enter("live", [c.address for c in clusters[:2]], **common)
        clusters.append(await stack.enter_async_context(joining))
    await until(lambda: all(len(c.members()) == n for c in clusters), "all know all")
    return clusters


async def test_each_member_gets_one_copy_in_causal_order() -> None:
    trace = MemoryTrace()
    network = MemoryNetwork()
    settings = fast(mode="tree", members=8)
    async with AsyncExitStack() as stack:
        clusters: list[whence.Cluster] = []
        for i in range(8):
            contacts = [c.address for c in clusters[:2]]
            joining = enter("live", contacts, f"m{i}:1", transport=network, settings=settings, trace=trace)
            clusters.append(await stack.enter_async_context(joining))
        publishers = [await stack.enter_async_context(c.publisher()) for c in clusters[:3]]
        for publisher in publishers:
            await publisher.publish(b"first")  # over all links
        await asyncio.sleep(2)
        before = sum(c.stats()["cast.events_sent"] for c in clusters)
        for i in range(20):
            for publisher in publishers:
                await publisher.publish(b"%d" % i)
            await asyncio.sleep(0.01)
        for c in clusters:
            assert len(await collect(c, 63)) == 63
        copies = sum(c.stats()["cast.events_sent"] for c in clusters) - before
        assert copies < 1.5 * 60 * 7  # eager gossip: 7 copies for each delivery
    assert_causal(trace)


async def test_a_process_that_dies_is_replaced_as_a_neighbour_when_its_connection_breaks() -> None:
    settings = fast(mode="tree", round_ns=5_000_000_000)  # nobody would miss it for 15 s
    async with AsyncExitStack() as stack:
        clusters = await gather(stack, 4, insecure=True, settings=settings)
        dead = clusters[3]
        await until(lambda: all(dead.me in tree(c).overlay.links for c in clusters[:3]), "links", limit=60)
        await dead._host.close()
        await until(lambda: not any(dead.me in tree(c).overlay.links for c in clusters[:3]), "no links", limit=4)
        async with clusters[0].publisher() as publisher:
            await publisher.publish(b"after")
            assert [e.payload for e in await collect(clusters[1], 1)] == [b"after"]


def test_a_mode_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="mode must be one of rounds, eager, tree, not 'trees'"):
        whence.Settings(mode="trees")  # type: ignore[arg-type]
