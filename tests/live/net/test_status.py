"""Anybody can ask a member who is there: it asks all others, and knows who vanished."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import whence
from tests.live.net.live import FAST, run, until
from whence.live.metrics import MetricsServer, ask
from whence.live.net.status import ClusterStatus, MemberStatus
from whence.testing import MemoryNetwork


async def look(cluster: whence.Cluster) -> dict[str, MemberStatus]:
    return {one.member: one for one in (await cluster.status()).members}


def test_each_member_says_how_it_is_and_who_vanished_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        options = {"transport": network, "settings": {**FAST, "queue_events": 8}}
        async with (
            whence.create("x", **options) as a,
            whence.join("x", a.address, order="reliable", **options) as b,
            whence.join("x", a.address, **options) as c,
        ):
            await until(lambda: len(a.members()) == 3 and a.council is not None and len(a.council.voters) == 3)
            reader = b.events()
            async with a.publisher() as publisher:
                await publisher.publish(b"first")
                await anext(reader)  # b has begun to read, and stops
                await publisher.publish(b"second")
                await until(lambda: b.buffers()["backlog"][0] == 1)
                seen = await look(a)
                assert list(seen) == a.members() and all(one.answers and one.votes for one in seen.values())
                assert (seen[a.me].ticket, seen[b.me].ticket) == (publisher.ticket, None)
                assert (seen[b.me].order, seen[c.me].order) == ("reliable", "causal")
                assert (seen[b.me].unread, seen[a.me].version) == (1, whence.__version__)
                async with whence.join("x", a.address, **options) as leaver:
                    await until(lambda: leaver.me in a.members())
                await until(lambda: leaver.me not in a.members())
                c.abandon()
                await asyncio.sleep(0.5)
                dead = (await look(b))[c.me]
                assert not dead.answers and 0 < dead.seen_s < 5
                await until(lambda: c.me not in a.members())
                status = await a.status()
                assert [*status.gone] == [c.address] and "did not leave" in status.gone[c.address]
                assert status.may_lose == (a.council and a.council.may_lose) and status.tickets == 8
                assert [r for r in caplog.messages if f"{c.address} is gone" in r]
                assert not [r for r in caplog.messages if f"{leaver.address} is gone" in r]

    with caplog.at_level(logging.WARNING):
        run(main())


class Asked:
    """A cluster, and how often its members were asked."""

    def __init__(self, cluster: whence.Cluster) -> None:
        self.cluster, self.times = cluster, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.cluster, name)

    async def status(self) -> ClusterStatus:
        self.times += 1
        return await self.cluster.status()


async def test_whoever_asks_the_page_the_members_are_asked_once_a_second() -> None:
    async with whence.create("x", transport=MemoryNetwork()) as cluster:
        asked = Asked(cluster)
        async with MetricsServer("127.0.0.1:0", [asked]) as server:  # type: ignore[list-item]
            answers = await asyncio.gather(*(ask(server.address, "/status") for _ in range(8)))
            assert asked.times == 1 and len(set(answers)) == 1 and answers[0][0] == 200
            said = json.loads(answers[0][1])
            assert said["ok"] and [one["member"] for one in said["clusters"][0]["members"]] == [cluster.me]
            await until(lambda: server._status is None)
            await ask(server.address, "/status")
            assert asked.times == 2


async def test_a_cluster_without_tickets_has_none() -> None:
    async with whence.create("x", transport=MemoryNetwork(), order="probabilistic") as cluster:
        status = await cluster.status()
        assert (status.tickets, status.council, status.may_lose) == (0, "", None) and not status.members[0].votes
