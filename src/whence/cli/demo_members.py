"""Some members of the demo in one process: they talk, they answer each other, they lose messages on purpose.

Started by `whence demo` as `python -m whence.cli.demo_members JSON`. Says its addresses in a line, then takes one
command a line: `cut ADDRESS...`, `heal`, `hush` (publish no more), and answers each with a line. When its standard
input ends, its members leave. When it cannot go on (no room on the disk) its last line is {"error": why}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

import whence
from whence.errors import ClusterClosed, LostTicket, NoTicket, WhenceError
from whence.net.transport import Faults

ANSWERS = 0.4
"""How often a talker answers what it hears: without answers there would be little causality to break."""


class Task(msgspec.Struct, kw_only=True):
    """What a process is told."""

    names: list[str]
    orders: list[whence.OrderName]
    talkers: int
    """How many of the members, from the first on, take a ticket and talk."""
    seeds: list[str] = []
    addresses: list[str] = []
    """Of a former life of this process: it comes back to them."""
    secret: str
    tickets: int
    home: str
    loss: float
    rate: float
    """Events a second of each talker."""
    seed: int


class Talker:
    """A member that publishes now and then, and answers others."""

    def __init__(self, cluster: whence.Cluster, task: Task, rng: random.Random) -> None:
        self.cluster = cluster
        self.task = task
        self.rng = rng
        self.hushed = asyncio.Event()
        self._heard: asyncio.Queue[str] = asyncio.Queue(16)

    async def talk(self) -> None:
        while not self.hushed.is_set():
            with suppress(LostTicket, NoTicket):
                async with self.cluster.coordinate(timeout=5.0) as seat:
                    while not self.hushed.is_set():
                        await seat.publish(await self._next())

    async def _next(self) -> bytes:
        """An answer to what was just heard, or, if it has been quiet for a while, something of its own."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rng.expovariate(self.task.rate)):
                return f"re: {await self._heard.get()}".encode()[:60]
        return b"what do you think of %d?" % self.rng.randrange(1000)

    def hear(self, event: whence.Event) -> None:
        mine = event.origin == self.cluster.me
        if not mine and not self._heard.full() and self.rng.random() < ANSWERS / self.task.tickets:
            self._heard.put_nowait(event.id)


async def _listen(cluster: whence.Cluster, talker: Talker | None) -> None:
    async for event in cluster.events():
        if talker is not None:
            talker.hear(event)


async def main(task: Task) -> None:
    rng = random.Random(task.seed)
    faults = [Faults(task.loss, seed=rng.getrandbits(32)) for _ in task.names]
    talkers: list[Talker] = []
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as work:
        clusters: list[whence.Cluster] = []
        tasks: list[asyncio.Task[None]] = []
        for i, (name, order) in enumerate(zip(task.names, task.orders, strict=True)):
            known = [*task.seeds, *(c.address for c in clusters)]
            listen = task.addresses[i] if task.addresses else "127.0.0.1:0"
            options: whence.Options = {
                "order": order,
                "tickets": task.tickets,
                "secret": bytes.fromhex(task.secret),
                "directory": Path(task.home) / name,
                "trace": Path(task.home) / "trace",
                "faults": faults[i],
                "timeout": 30.0,
            }
            joining = (
                whence.join("demo", known, listen, **options) if known else whence.found("demo", listen, **options)
            )
            cluster = await stack.enter_async_context(joining)
            clusters.append(cluster)
            talker = Talker(cluster, task, rng) if i < task.talkers else None
            tasks.append(work.create_task(_listen(cluster, talker)))
            if talker is not None:
                talkers.append(talker)
                tasks.append(work.create_task(talker.talk()))
        _say([cluster.address for cluster in clusters])
        await _obey(faults, talkers)
        for one in tasks:
            one.cancel()


async def _obey(faults: list[Faults], talkers: list[Talker]) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command, *rest = line.decode().split()
        for fault in faults:
            if command == "cut":
                fault.cut(rest)
            elif command == "heal":
                fault.heal()
        if command == "hush":
            for talker in talkers:
                talker.hushed.set()
        _say(command)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.getLogger("whence").addHandler(logging.NullHandler())  # what matters is told by the error
    try:
        whence.run(main(msgspec.json.decode(sys.argv[1], type=Task)))
    except* WhenceError as failed:
        first = failed.exceptions[0]
        _say({"error": str(first.__cause__ or first if isinstance(first, ClusterClosed) else first)})
        sys.exit(2)
