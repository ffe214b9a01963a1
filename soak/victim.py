"""The child program of `soak.hostile`: an honest member of a TLS cluster with roles, perhaps with a door.

It publishes at a rate and, beside that, waits for copies of one event after the other. `look` tells what that took,
what the process needs, and what went wrong in any log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from whence.errors import NoTicket, TooFewCopies
from whence.live.bridge.door import Door
from whence.live.bridge.envelope import Reader
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.member import Application, joined
from whence.live.fleet.task import Task

DOOR_KEY = "the door's own"
PAUSE_S = 0.1
"""Between two events of which copies are waited for."""


class VictimTask(Task, kw_only=True):
    """The task of an honest process."""

    keys: str = ""
    """Its directory of keys."""
    door: bool = False


class Meter(logging.Handler):
    """What is measured in the process."""

    def __init__(self) -> None:
        super().__init__()
        self.copied = 0
        self.slowest = self.lag = 0.0
        self.too_few: list[str] = []
        self.tracebacks: list[str] = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or "Traceback" in record.getMessage():
            self.tracebacks = [*self.tracebacks, self.format(record)][-3:]

    async def ticks(self) -> None:
        """How late the loop is."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.lag = max(self.lag, time.monotonic() - before - 0.05)

    async def copies(self, application: Application) -> None:
        """Wait for two copies of one event after the other."""
        async with application.cluster.publisher() as publisher:
            number = 0
            while not application.hushed.is_set():
                number, began = number + 1, time.monotonic()
                try:
                    await publisher.publish(b"copied %d" % number, copies=2, timeout=30)
                    self.copied += 1
                except (TooFewCopies, NoTicket) as error:
                    self.too_few = [*self.too_few, str(error)][-3:]
                self.slowest = max(self.slowest, time.monotonic() - began)
                await asyncio.sleep(PAUSE_S)

    def told(self) -> dict[str, Any]:
        files = Path("/proc/self/fd")
        memory = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
        return {
            "copied": self.copied,
            "too_few": self.too_few,
            "slowest_s": round(self.slowest, 2),
            "lag_s": round(self.lag, 2),
            "mb": int(memory.split()[1]) >> 10,
            "descriptors": len(list(files.iterdir())),
            "tasks": len(asyncio.all_tasks()),
            "tracebacks": self.tracebacks,
        }


async def main(task: VictimTask, channel: Channel) -> None:
    rng, meter = random.Random(task.seed), Meter()
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(joined(task, rng, secret=None, tls=Path(task.keys)))
        (cluster,) = members.clusters
        application = Application(cluster, task.members[0], task, rng)
        door = Door(cluster, Reader(task.cluster), secret=DOOR_KEY)
        if task.door:
            await stack.enter_async_context(door)
            application.tap = door.read

        def look(deep: bool = False) -> list[dict[str, Any]]:
            return [application.look(deep) | meter.told() | {"cut": list(cluster.cut_off()), "me": cluster.me}]

        work = [application.read(), meter.ticks()]
        if task.members[0].rate:
            work += [application.publish(), meter.copies(application)]
        channel.ready(members.about())
        await channel.serve(
            {**members.commands(), "look": look, "hush": application.hush, "door": lambda: door.address}, *work
        )


if __name__ == "__main__":
    program(main, VictimTask)
