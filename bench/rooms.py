"""Rooms for browsers, beside Redis pub/sub as the backplane, in one run: the same ASGI server and the same clients.

8 workers and 1,000 clients (ROOMS_WORKERS, ROOMS_CLIENTS: others). One client of each worker publishes; all clients of
all workers get it. Latency is from the publish of a client to the delivery at another. Redis keeps no order among
publishers, loses what a worker misses, and holds nothing back until a second one has it; ours does all three.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.peers.room import Worker

from whence.live.fleet.process import Child, Children

WORKERS, CLIENTS = int(os.environ.get("ROOMS_WORKERS", "8")), int(os.environ.get("ROOMS_CLIENTS", "1000"))
RATE = float(os.environ.get("ROOMS_RATE", "1"))
"""Events a second of each client that publishes."""
SECONDS = 8.0
ROOT = Path(__file__).parent.parent
Row = dict[str, Any]


class Clients:
    """All clients, over several workers; what they hear, and how late."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.heard: list[list[tuple[int, int]]] = []

    async def client(self, stack: AsyncExitStack, url: str, speaks: bool, number: int) -> Any:
        from websockets.asyncio.client import connect

        socket = await stack.enter_async_context(
            connect(url, open_timeout=60, close_timeout=0.1, max_size=None, compression=None)
        )
        hello = {"t": "hello", "v": 1, "key": secrets.token_hex(16), "token": str(number)}
        await socket.send(json.dumps(hello))
        heard: list[tuple[int, int]] = []
        self.heard.append(heard)

        async def read() -> None:
            taken = 0
            async for text in socket:
                word = json.loads(text)
                now = time.monotonic()
                for event in word["e"] if word["t"] == "ev" else ():
                    who, n, sent = event["d"]
                    heard.append((who, n))
                    taken += 1
                    if who != number:
                        self.late.append(now - sent)
                    if taken % 64 == 0:
                        await socket.send(json.dumps({"t": "took", "k": taken}))

        task = asyncio.create_task(read())
        stack.callback(task.cancel)
        return socket if speaks else None

    async def talk(self, socket: Any, number: int, until: float) -> int:
        n = 0
        while time.monotonic() < until:
            n += 1
            await socket.send(json.dumps({"t": "pub", "n": n, "d": [number, n, time.monotonic()]}))
            await asyncio.sleep(1 / RATE)
        return n


async def measure(what: str, backplane: str) -> Row:
    """One row."""
    async with Children[Child]() as group, AsyncExitStack() as stack:
        peers = [group.add(Child(f"worker {n}", "bench.peers.room", cwd=ROOT)) for n in range(WORKERS)]
        job = Worker(backplane=backplane, secret=secrets.token_hex(16))
        first = await peers[0].start(job)
        job.contact = first["member"]
        urls = [first["url"], *(one["url"] for one in await group.together(p.start(job) for p in peers[1:]))]
        clients = Clients()
        speakers: list[Any] = []
        for start in range(0, CLIENTS, 50):
            made = [
                clients.client(stack, urls[n % WORKERS], n < WORKERS, n) for n in range(start, min(start + 50, CLIENTS))
            ]
            speakers += [each for each in await asyncio.gather(*made) if each is not None]
        await asyncio.sleep(2.0)
        before = sum(await group.ask("cpu"))
        sent = await asyncio.gather(*(clients.talk(s, n, time.monotonic() + SECONDS) for n, s in enumerate(speakers)))
        await asyncio.sleep(3.0)
        cpu = sum(await group.ask("cpu")) - before
        found = await group.ask("rss")
        await group.kill()
    late = sorted(clients.late)
    due = sum(sent) * CLIENTS
    got = sum(map(len, clients.heard))
    lists = [[e for e in heard if e[0] == who] for heard in clients.heard for who in range(WORKERS)]
    return {
        "what": f"{what}, {WORKERS} workers, {CLIENTS} clients, {sum(sent) / SECONDS:.0f} events/s",
        "p50_ms": round(late[len(late) // 2] * 1e3, 1),
        "p99_ms": round(late[int(len(late) * 0.99)] * 1e3, 1),
        "lost": due - got,
        "out of order": sum(one != sorted(one) for one in lists),
        "cpu_us_per_delivery": round(cpu / max(1, got) * 1e6, 1),
        "rss_mb": round(max(found), 1),
    }


def main() -> list[Row]:
    rows = [asyncio.run(measure("ours", ""))]
    server = shutil.which("redis-server")
    if server is None or subprocess.run([sys.executable, "-c", "import redis"], capture_output=True).returncode:
        return [*rows, {"what": "Redis pub/sub", "skipped": "needs redis-server and the package redis"}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([server, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL) as redis:
        try:
            time.sleep(1.0)
            rows.append(asyncio.run(measure("Redis pub/sub", f"redis://127.0.0.1:{port}")))
        finally:
            redis.terminate()
    ratio = rows[0]["p99_ms"] / rows[1]["p99_ms"]
    return [*rows, {"what": "p99, ours over Redis", "ratio": round(ratio, 2), "holds": "yes" if ratio <= 1 else "NO"}]
