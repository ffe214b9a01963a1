"""pyzmq PUB/SUB: order per link, loses when a subscriber is slow, no authentication."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio
from bench.peers.worker import Job, Meter, measure, run

from whence.live.fleet.channel import Channel


class PubSub:
    """A publisher and a subscriber to all others. A batch is a multipart message."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._sub = self._context.socket(zmq.SUB)

    async def listen(self) -> str:
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        return f"tcp://127.0.0.1:{port}"

    async def connect(self, addresses: list[str]) -> None:
        for number, address in enumerate(addresses):
            if number != self._job.number:
                self._sub.connect(address)
        self._sub.setsockopt(zmq.SUBSCRIBE, b"")
        self._reading = asyncio.create_task(self._read())
        await asyncio.sleep(0.3)  # subscriptions have no answer

    async def _read(self) -> None:
        got, shadow = self._meter.got, zmq.Socket.shadow(self._sub.underlying)
        while True:
            got(await self._sub.recv_multipart())
            for _ in range(1000):  # what is there, without a future each
                try:
                    got(shadow.recv_multipart(zmq.NOBLOCK))
                except zmq.Again:
                    break
            await asyncio.sleep(0)

    async def publish(self, payloads: list[bytes]) -> None:
        await self._pub.send_multipart(payloads)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self._context.destroy()


async def main(job: Job, channel: Channel, meter: Meter) -> None:
    await measure(job, channel, PubSub(job, meter), meter)


if __name__ == "__main__":
    run(main)
