"""What total order costs beside causal order: the same four members in one process, over loopback TCP.

Latency: from publish to delivery at another member, one event at a time. Bulk: events a second that all members
deliver, of three publishers at full speed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import whence

SINGLE, BULK = 200, 20_000


async def _measure(order: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "insecure": True,
        "order": order,
        "total": order == "total",
        "tickets": 4,
        "memory": None,
    }
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(whence.create("bench", **options))
        rest = [await stack.enter_async_context(whence.join("bench", first.address, **options)) for _ in range(3)]
        members = [first, *rest]
        publishers = [await stack.enter_async_context(cluster.publisher()) for cluster in members[:3]]
        for publisher in publishers:
            await publisher.ready()
        await asyncio.sleep(3)  # the council has grown
        readers = [cluster.events() for cluster in members]
        late: list[float] = []
        for _ in range(SINGLE):
            begun = time.perf_counter()
            await publishers[0].publish(b"x" * 64)
            await anext(readers[3])
            late.append(time.perf_counter() - begun)

        async def drain(reader: Any, count: int) -> None:
            while count > 0:
                count -= len(await reader.batch(64))

        await asyncio.gather(*(drain(reader, SINGLE) for reader in readers[:3]))
        begun, share = time.perf_counter(), BULK // 3
        bulk = (publisher.publish_many([b"x" * 64] * share) for publisher in publishers)
        await asyncio.gather(*bulk, *(drain(reader, 3 * share) for reader in readers))
        seconds = time.perf_counter() - begun
    late.sort()
    p50, p99 = late[SINGLE // 2] * 1e3, late[SINGLE * 99 // 100] * 1e3
    return {"what": f"order {order}", "p50 ms": p50, "p99 ms": p99, "events/s": 3 * share / seconds}


def main() -> list[dict[str, Any]]:
    return [whence.run(_measure(order)) for order in ("causal", "reliable", "total")]
