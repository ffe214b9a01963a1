"""The child program of `availability_live`: one member, which asks for a ticket when it is told to, and keeps it."""

from __future__ import annotations

import random
import time
from contextlib import AsyncExitStack

from whence.errors import NoTicket
from whence.live.api import Cluster
from whence.live.fleet import task as fleet
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.member import joined


class Task(fleet.Task, kw_only=True):
    """The task of a process."""

    coordinates: bool
    """It owns a ticket before it is ready."""


class Asking:
    """A member that wants a ticket, from the first `ask` on."""

    def __init__(self, cluster: Cluster, stack: AsyncExitStack) -> None:
        self._cluster, self._stack = cluster, stack

    async def ask(self, patience: float) -> float | None:
        """Ask for a ticket. Returns after how many seconds it had one; None: not within `patience`."""
        begun = time.monotonic()
        publisher = await self._stack.enter_async_context(self._cluster.publisher(timeout=patience))
        try:
            await publisher.ready()
        except NoTicket:
            return None
        return time.monotonic() - begun


async def main(task: Task, channel: Channel) -> None:
    """Join, then answer requests until the channel is closed."""
    async with joined(task, random.Random(task.seed)) as members, AsyncExitStack() as stack:
        one = Asking(members.clusters[0], stack)
        if task.coordinates and await one.ask(task.timeout) is None:
            raise NoTicket("the cluster did not form")
        channel.ready(members.about())
        await channel.serve({"ask": one.ask})


if __name__ == "__main__":
    program(main, Task)
