"""A worker of `bench/rooms.py`: ours, or with Redis pub/sub between the workers, on the same ASGI server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from bench.peers.worker import cpu_s, rss_mb

import whence
from whence.live.fleet.channel import Channel, program
from whence.live.web import Rooms, anyone
from whence.live.web.serve import Site, listening, serving
from whence.live.web.words import events_word


class Worker(msgspec.Struct):
    """What a worker is told."""

    backplane: str = ""
    """The address of Redis; empty: ours."""
    secret: str = ""
    contact: str = ""


class Relay:
    """Each message of a client goes to Redis, and what comes from there to all clients."""

    def __init__(self, address: str) -> None:
        from redis.asyncio import Redis

        self._redis = Redis.from_url(address)
        self._clients: set[asyncio.Queue[str]] = set()

    async def follow(self) -> None:
        pubsub = self._redis.pubsub()
        await pubsub.subscribe("lobby")
        async for message in pubsub.listen():
            if message["type"] == "message":
                text = events_word(['{"d":' + message["data"].decode() + "}"])
                for queue in self._clients:
                    queue.put_nowait(text)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._clients.add(queue)

        async def tell() -> None:
            while True:
                await send({"type": "websocket.send", "text": await queue.get()})

        task = asyncio.create_task(tell())
        try:
            while (message := await receive())["type"] == "websocket.receive":
                word = json.loads(message["text"])
                if word["t"] == "pub":
                    await self._redis.publish("lobby", json.dumps(word["d"]))
        finally:
            self._clients.discard(queue)
            task.cancel()


async def main(job: Worker, channel: Channel) -> None:
    sock = listening("127.0.0.1:0")
    about = {"url": f"ws://127.0.0.1:{sock.getsockname()[1]}/rooms/lobby", "member": ""}
    commands = {"cpu": cpu_s, "rss": rss_mb}
    if job.backplane:
        relay = Relay(job.backplane)
        channel.ready(about)
        await channel.serve(commands, relay.follow(), serving(relay, sock))
        return
    options: dict[str, Any] = {"secret": job.secret, "order": "reliable", "memory": None}
    if job.contact:
        joining = whence.join("bench", job.contact, timeout=60, **options)
    else:
        joining = whence.create("bench", **options)
    async with Rooms(joining, authorize=anyone) as rooms:
        channel.ready(about | {"member": rooms.hub.cluster.address})
        await channel.serve(commands, serving(Site(rooms), sock))


if __name__ == "__main__":
    program(main, Worker)
