"""What the tests of live clusters share: short times, and waiting for conditions instead of for time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import whence
from tests.live.net.virtual import runner
from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.live.api import Join
from whence.testing import MemoryNetwork

T = TypeVar("T")
MS = 1_000_000

FAST: dict[str, Any] = {"ring_round_ns": 400 * MS, "delta_ns": 190 * MS, "round_ns": 50 * MS, "time_to_recover": 20.0}
"""A ring that is founded within two seconds, and whose owners keep their tickets though the machine stops them for
half a second; recovery as patient as live. `run` takes no time for it: its time is virtual."""

LIMIT = 120.0
"""Seconds after which a condition counts as never to come true: far above what any of them takes."""


def run(main: Coroutine[Any, Any, T], limit: float = 20 * LIMIT) -> T:
    """`asyncio.run` in virtual time, with a limit in virtual seconds."""

    async def limited() -> T:
        return await asyncio.wait_for(main, limit)

    with runner() as loop:
        return loop.run(limited())


async def until(
    condition: Callable[[], object], what: str = "condition", limit: float = LIMIT, every: float = 0.005
) -> None:
    """Wait for it; look `every` so many seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        await asyncio.sleep(every)


async def collect(cluster: whence.Cluster, count: int, limit: float = LIMIT) -> list[whence.Event]:
    """The next so many events."""
    found: list[whence.Event] = []

    async def read() -> None:
        events = cluster.events()
        while len(found) < count:
            found.append(await anext(events))
        events.done()

    await asyncio.wait_for(read(), limit)
    return found


def enter(name: str, contacts: Sequence[str], listen: str = "127.0.0.1:0", **options: Any) -> Join:
    """Join through the contacts; the first member, which has none, founds."""
    return whence.join(name, contacts, listen, **options) if contacts else whence.create(name, listen, **options)


@asynccontextmanager
async def several(name: str, count: int, **options: Any) -> AsyncIterator[list[whence.Cluster]]:
    """So many members with these options; the first founds, the others join through those before them."""
    async with AsyncExitStack() as stack:
        found: list[whence.Cluster] = []
        for _ in range(count):
            joining = enter(name, [cluster.address for cluster in found[:2]], **options)
            found.append(await stack.enter_async_context(joining))
        yield found


async def say(cluster: whence.Cluster, *payloads: bytes) -> str:
    """Publish events, and return the id of the last."""
    async with cluster.publisher() as publisher:
        return (await publisher.publish_many(payloads))[-1]


def assert_causal(trace: MemoryTrace, settled: bool = True) -> None:
    """The causal oracle has nothing to say against what was recorded."""
    report = judge(trace.rows, complete=settled)
    assert report.ok, report


def fast(**more: Any) -> dict[str, Any]:
    return {**FAST, **more}


class Members:
    """Members a, b, c, ... on a network in memory; the first founds."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.network = MemoryNetwork()
        self.all: list[whence.Cluster] = []
        self.publishers: list[whence.Publisher] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Members:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def add(
        self, publishes: bool = True, settings: dict[str, Any] | None = None, **options: Any
    ) -> whence.Cluster:
        given: dict[str, Any] = {"settings": {**FAST, **(settings or {})}, **self.options, **options}
        given["transport"] = self.network
        joined = whence.join("x", self.all[0].address, **given) if self.all else whence.create("x", **given)
        self.all.append(await self._stack.enter_async_context(joined))
        if publishes:
            self.publishers.append(await self._stack.enter_async_context(self.all[-1].publisher()))
            await self.publishers[-1].ready()
        return self.all[-1]

    def cut(self, one: whence.Cluster) -> None:
        """It and all others hear nothing of each other."""
        self.network.cut([one.address], [c.address for c in self.all if c is not one])
