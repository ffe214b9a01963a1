"""Live clusters over real sockets on loopback: a shared secret, TLS; with loss, cut links and restarts."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

import whence
from tests.live.net.live import assert_causal, collect, enter, fast, several, until
from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.testing import Faults

SECRET = b"\x07" * 32


async def converse(clusters: list[whence.Cluster], speakers: int, events: int, seed: int = 1) -> None:
    """The first ones publish now and then, everybody reads, until all have all events."""
    seen: dict[str, list[str]] = {c.me: [] for c in clusters}

    async def listen(cluster: whence.Cluster) -> None:
        async for event in cluster.events():
            seen[cluster.me].append(event.id)

    rng = random.Random(seed)
    left = [[[b"%d/%d" % (i, n)] * rng.choice((1, 1, 3)) for n in range(events)] for i in range(speakers)]

    async def speak(cluster: whence.Cluster, words: list[list[bytes]]) -> None:
        async with cluster.publisher(timeout=20.0) as publisher:
            while words:
                await publisher.publish_many(words[0])
                del words[0]
                await asyncio.sleep(rng.choice((0, 0, 0.002)))
            await done.wait()

    done = asyncio.Event()
    listeners = [asyncio.create_task(listen(c)) for c in clusters]
    talkers = [asyncio.create_task(speak(c, words)) for c, words in zip(clusters, left, strict=False)]

    def published() -> int:
        return sum(c.stats()["order.published"] for c in clusters[:speakers])

    await until(lambda: not any(left) and all(len(s) == published() for s in seen.values()), "all have all")
    done.set()
    await asyncio.gather(*talkers)
    for task in listeners:
        task.cancel()
    assert len({frozenset(s) for s in seen.values()}) == 1, "the same events"
    assert all(len(s) == len(set(s)) for s in seen.values()), "each once"


@pytest.mark.parametrize(("order", "drop"), [("causal", 0.0), ("reliable", 0.05)])
async def test_a_real_cluster_passes_the_oracle(order: str, drop: float) -> None:
    trace = MemoryTrace()
    common: dict[str, Any] = {"secret": SECRET, "order": order, "trace": trace}
    async with AsyncExitStack() as stack:
        clusters: list[whence.Cluster] = []
        for i in range(4):
            contacts = [c.address for c in clusters[:2]]
            faults = Faults(drop=drop, seed=i)
            joining = enter("live", contacts, faults=faults, settings=fast(), **common)
            clusters.append(await stack.enter_async_context(joining))
        await converse(clusters, 3, 120)
        stats = [c.stats() for c in clusters]
        assert not any(s["cut_off"] or s["net.unauthentic"] or s["net.bad_packet"] for s in stats), stats
        if drop:
            assert any(s["net.lost_on_purpose"] for s in stats) and any(s["order.recovered"] for s in stats)
    assert_causal(trace)
    assert judge(trace.rows).published >= 360


def test_uvloop_where_it_is_installed() -> None:
    """Its transports are none of asyncio's classes; `whence.run` uses it when it can be had. Its time is real: a ticket
    may be lost to a busy machine."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        async with several("live", 2, secret=SECRET, order="reliable") as (a, b), a.publisher() as publisher:
            await publisher.publish_many([b"x" * 1000] * 1000)
            assert len(await collect(b, 1000)) == 1000

    whence.run(main())
