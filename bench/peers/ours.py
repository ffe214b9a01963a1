"""Ours: causal order, recovery and authentication on."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.peers.worker import Job, Meter, measure, run

import whence
from whence.live.fleet.channel import Channel
from whence.live.net.transport import Faults

SECRET = b"\x09" * 32


class Ours:
    """A member that publishes."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter
        self._host = whence.Host(secret=SECRET, faults=Faults(job.drop, seed=job.number) if job.drop else None)

    async def listen(self) -> str:
        await self._host.start()
        return self._host.address

    async def connect(self, addresses: list[str]) -> None:
        job = self._job
        options: dict[str, Any] = {"host": self._host, "order": job.order, "tickets": job.tickets, "timeout": 30.0}
        self._join = whence.join("bench", addresses[:1], **options) if job.number else whence.create("bench", **options)
        self._cluster = await self._join.__aenter__()
        self._reading = asyncio.create_task(self._read())
        self._publisher = await self._cluster.publisher(timeout=30.0).__aenter__()
        await self._publisher.ready()

    async def _read(self) -> None:
        got, me, each = self._meter.got, self._cluster.me, self._job.events
        events = self._cluster.events()
        while batch := await events.batch():
            if batch.origins() != [me]:  # a frame's events are of one member
                got([event.payload for event in batch] if each else batch.payloads)

    async def publish(self, payloads: list[bytes]) -> None:
        if len(payloads) == 1:
            await self._publisher.publish(payloads[0])
        else:
            await self._publisher.publish_many(payloads)

    async def close(self) -> None:
        await self._join.__aexit__(None, None, None)

    def figures(self) -> dict[str, Any]:
        stats = self._cluster.stats()
        names = (
            "net.shed",
            "net.peer_full",
            "net.lost_on_purpose",
            "order.recovered",
            "order.delivered_over_gap",
            "net.unauthentic",
            "net.bad_stream",
            "net.refused",
        )
        return {"stats": {name: stats[name] for name in names if stats.get(name)}}


async def main(job: Job, channel: Channel, meter: Meter) -> None:
    ours = Ours(job, meter)
    await measure(job, channel, ours, meter, ours.figures)


if __name__ == "__main__":
    run(main)
