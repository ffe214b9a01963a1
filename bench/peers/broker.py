"""NATS with nats-py: a broker between all, order per publisher, no authentication. `Job.server` says where it is."""

from __future__ import annotations

import asyncio

import nats
from bench.peers.worker import Job, Meter, measure, run
from nats.aio.msg import Msg

from whence.live.fleet.channel import Channel

SUBJECT = "bench"


class Broker:
    """A client."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter

    async def listen(self) -> str:
        self._client = await nats.connect(self._job.server, no_echo=True, pending_size=4 << 20)
        return self._job.server

    async def connect(self, addresses: list[str]) -> None:
        async def got(message: Msg) -> None:
            self._meter.got([message.data])

        await self._client.subscribe(SUBJECT, cb=got, pending_msgs_limit=1 << 20, pending_bytes_limit=1 << 30)
        await self._client.flush()

    async def publish(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            await self._client.publish(SUBJECT, payload)
        if not self._job.rate:
            await self._client.flush()  # else the broker drops a client that floods it
        await asyncio.sleep(0)

    async def close(self) -> None:
        await self._client.close()


async def main(job: Job, channel: Channel, meter: Meter) -> None:
    await measure(job, channel, Broker(job, meter), meter)


if __name__ == "__main__":
    run(main)
