"""Requests over a cluster, with their replies."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

import whence
from tests.live.net.live import assert_causal, fast, several
from whence.audit.trace import MemoryTrace
from whence.live import Letter, Requests
from whence.testing import MemoryNetwork


class Side:
    """A member that reads, and answers what it is told to."""

    def __init__(self, cluster: whence.Cluster, publisher: whence.Publisher, answers: bool) -> None:
        self.cluster, self.answers = cluster, answers
        self.requests = Requests(publisher)
        self.heard: list[Letter] = []

    async def read(self) -> None:
        async for event in self.cluster.events():
            heard = self.requests.hear(event)
            self.heard.append(heard)
            if heard.wants_reply and self.answers and heard.payload != b"nobody knows":
                await self.requests.reply(heard, heard.payload * 2)


async def test_hundreds_at_a_time_each_gets_its_own_reply_under_loss() -> None:
    trace = MemoryTrace()
    common = {"transport": MemoryNetwork(0.1, seed=1), "settings": fast(), "order": "reliable", "trace": trace}
    async with several("lobby", 4, **common) as clusters, AsyncExitStack() as stack:
        sides = []
        for n, cluster in enumerate(clusters):
            publisher = await stack.enter_async_context(cluster.publisher())
            sides.append(Side(cluster, publisher, answers=n in (1, 3)))  # two answer: the second reply wakes nobody
        tasks = [asyncio.create_task(side.read()) for side in sides]
        asked = [asyncio.create_task(sides[n % 3].requests.ask(b"%d" % n, timeout=60)) for n in range(300)]
        assert await asyncio.gather(*asked) == [b"%d" % n * 2 for n in range(300)]
        began = time.monotonic()
        with pytest.raises(whence.TimedOut):
            await sides[0].requests.ask(b"nobody knows", timeout=1.5)
        assert 1.4 < time.monotonic() - began < 2
        await sides[2].cluster.wait_for(lambda: all(len(side.heard) == 901 for side in sides), 60)
        for side in sides:
            seen: set[tuple[str, int]] = set()
            for heard in side.heard:
                if heard.is_reply:
                    assert (heard.asker, heard.number) in seen, "a reply before its request"
                seen.add((heard.asker, heard.number))
        assert sum(side.requests.unmatched for side in sides) == 300
        for task in tasks:
            task.cancel()
    assert_causal(trace)


async def test_what_is_no_request_stays_as_it_is_and_misuse_is_told() -> None:
    common = {"transport": MemoryNetwork(), "settings": fast()}
    async with several("lobby", 3, **common) as (a, b, _), a.publisher() as publisher:
        requests = Requests(publisher)
        with pytest.raises(whence.UsageError, match="not str"):
            await requests.ask("text")  # type: ignore[arg-type]
        for payload in (b"", b"plain", b"\x05", b"\x05\xff", b"\x05\x93\x00\xa0\xc4\x00"):
            await publisher.publish(payload)
            event = await anext(b.events())
            heard = requests.hear(event)
            assert (heard.payload, heard.wants_reply, heard.is_reply) == (payload, False, False)
            with pytest.raises(whence.UsageError, match="takes a request"):
                await requests.reply(heard, b"x")
        async for _event in a.events():
            with pytest.raises(whence.UsageError, match="another task"):
                await requests.ask(b"?")
            break


async def test_an_id_is_there_before_anybody_can_answer() -> None:
    """The answerer is as near as can be: in this process, woken by the same signal."""
    async with several("lobby", 3, transport=MemoryNetwork(), settings=fast()) as (a, _, _), a.publisher() as publisher:
        ids: list[str] = []
        early: list[str] = []

        async def read() -> None:
            async for event in a.events():
                early.extend({event.id} - {*ids})

        reading = asyncio.create_task(read())
        for n in range(2000):
            ids.append(await publisher.publish(b"%d" % n))
            if n % 7 == 0:
                ids.extend(await publisher.publish_many([b"x"] * 5))
        await a.wait_for(lambda: a.stats()["net.backlog_events"] == 0)
        assert early == []
        reading.cancel()
