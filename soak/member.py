"""One process of a soak: a member that publishes at a rate and keeps what its application has seen.

Started as `python -m soak.member JSON`. Takes commands on standard input, one a line, and answers each with a JSON
line: `stop` (publish no more), `look` (how it is), `cut ADDRESS...` and `heal`, `found` (found the ring again).
Ends with its standard input, without a word to the others: whoever wants it to leave says `leave`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from contextlib import suppress
from typing import Any

import msgspec

import whence
from whence.errors import LostTicket, NoTicket
from whence.net.transport import Faults
from whence.ports import Found
from whence.recorder import show_clock


class Task(msgspec.Struct, kw_only=True):
    """What a process is told."""

    cluster: str = "soak"
    listen: str = "127.0.0.1:0"
    seeds: list[str] = []
    found: bool = False
    secret: str
    order: str = "reliable"
    tickets: int = 8
    transport: str = "tcp"
    drop: float = 0.0
    rate: float = 0.0
    """Events a second; 0: only reads."""
    directory: str | None = None
    trace: str | None = None
    seen: str | None = None
    """A file for what the application sees: a line per event, and an empty one where a life begins."""
    settings: dict[str, Any] = {}
    timeout: float = 30.0


class Process:
    """A member and its application."""

    def __init__(self, task: Task, cluster: whence.Cluster, faults: Faults) -> None:
        self.task = task
        self.cluster = cluster
        self.faults = faults
        self.stopped = asyncio.Event()
        self.published = 0
        self.delivered = 0

    async def read(self) -> None:
        """The application: what it has seen is in the kernel's hands before it asks for the next event."""
        seen = None
        if self.task.seen is not None:
            seen = os.open(self.task.seen, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(seen, b"\n")
        async for event in self.cluster.events():
            self.delivered += 1
            if seen is not None:
                os.write(seen, event.id.encode() + b"\n")

    async def publish(self) -> None:
        """Publishes at the rate while it may; a lost ticket is asked for again."""
        while not self.stopped.is_set():
            with suppress(LostTicket, NoTicket):
                async with self.cluster.coordinate(timeout=5.0) as seat:
                    while not self.stopped.is_set():
                        some = random.choice((1, 1, 2, 4))
                        await seat.publish_many([os.urandom(16)] * some)
                        self.published += some
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self.stopped.wait(), some / self.task.rate)

    async def obey(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command, *rest = line.decode().split()
            match command:
                case "stop":
                    self.stopped.set()
                case "cut":
                    self.faults.cut(rest)
                case "heal":
                    self.faults.heal()
                case "found":
                    self.cluster._node.feed(Found())
                case "leave":
                    await self.cluster.leave()
            tell(self.look())

    def look(self) -> dict[str, Any]:
        member = self.cluster._node.member
        return {
            "me": self.cluster.me,
            "address": self.cluster.address,
            "how": self.cluster._node.how,
            "members": len(self.cluster.members()),
            "ticket": member.ring.ticket if member.may_publish else None,
            "core": member.ring.state.value,
            "clock": show_clock(member.ordering.clock.T),
            "held": member.blocked(),
            "backlog": self.cluster._node.backlog.events,
            "published": self.published,
            "delivered": self.delivered,
            "failure": None if self.cluster._node.failure is None else str(self.cluster._node.failure),
            "stats": {k: n for k, n in self.cluster.stats().items() if n},
        }


def tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def main(task: Task) -> None:
    faults = Faults(task.drop, seed=random.getrandbits(32))
    options: dict[str, Any] = {
        "secret": bytes.fromhex(task.secret),
        "order": task.order,
        "tickets": task.tickets,
        "transport": task.transport,
        "directory": task.directory,
        "trace": task.trace,
        "faults": faults,
        "settings": task.settings,
        "timeout": task.timeout,
    }
    if task.found or not task.seeds:
        joining = whence.found(task.cluster, task.listen, seeds=task.seeds, **options)
    else:
        joining = whence.join(task.cluster, task.seeds, task.listen, **options)
    process = Process(task, await joining.__aenter__(), faults)
    tell(process.look())
    work = [asyncio.create_task(process.read()), asyncio.create_task(process.obey())]
    if task.rate:
        work.append(asyncio.create_task(process.publish()))
    await asyncio.wait(work[:2], return_when=asyncio.FIRST_COMPLETED)
    for done in work:
        if done.done() and done.exception() is not None:
            done.result()
    os._exit(0)


if __name__ == "__main__":
    whence.run(main(msgspec.json.decode(sys.argv[1], type=Task)))
