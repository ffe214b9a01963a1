"""The child program of CCC11 on sockets: some members in one process, each with its own socket.

Started by `live` as part of a fleet. It is ready when all of its publishers have tickets. Requests: `begin` (reset the
counts), `run` (publish for some rounds), `count`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import msgspec

from whence.core.clock import Entry, Frame
from whence.live.api import Cluster
from whence.live.fleet import task as fleet
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.member import joined


class LiveTask(fleet.Task, kw_only=True):
    """The task of a process."""

    publishing: int
    """How many of its members have tickets, from the first on."""
    round_ms: float = 1000.0
    payload: int = 40
    """Bytes of an event."""


class LiveCounts(msgspec.Struct):
    """The counts of one measurement, over all members of a process."""

    published: int = 0
    delivered: int = 0
    """Deliveries of others' events."""
    inversions: int = 0
    latencies_us: list[int] = []
    recovered: int = 0
    asked: int = 0
    sent_bytes: int = 0
    """During the load, by all layers."""
    overslept_us: list[int] = []
    """By how much each sleep of a publisher was too long: a measure of the machine's load."""


class Subject:
    """A member that publishes p events a round on average, and counts what it delivers."""

    def __init__(self, cluster: Cluster, task: LiveTask, rng: random.Random, counts: dict[int, LiveCounts]) -> None:
        self.cluster, self.task, self.rng, self.counts = cluster, task, rng, counts
        self.todo: asyncio.Queue[int] = asyncio.Queue()
        self.ready = asyncio.Event()
        self._past: dict[int, Entry] = {}

    async def coordinate(self) -> None:
        async with self.cluster.publisher(timeout=self.task.timeout, keep=True) as publisher:
            await publisher.ready()
            self.ready.set()
            while True:
                number = await self.todo.get()
                # Time of the publish itself: waiting in the queue is not network latency.
                now = b"%d %d " % (number, time.monotonic_ns())
                await publisher.publish(now.ljust(self.task.payload, b"."))
                self.counts[number].published += 1

    async def publish(self, number: int, p: float, rounds: int) -> None:
        length = self.task.round_ms / 1e3
        for _ in range(rounds):
            wait = self.rng.random() * length
            wanted = time.monotonic_ns() + int(wait * 1e9)
            await asyncio.sleep(wait)
            self.counts[number].overslept_us.append(max(0, time.monotonic_ns() - wanted) // 1000)
            for _ in range(int(p) + (self.rng.random() < p % 1)):
                self.todo.put_nowait(number)
            await asyncio.sleep(length - wait)

    async def listen(self) -> None:
        async for event in self.cluster.events():
            now = time.monotonic_ns()
            number, sent = (int(x) for x in event.payload.split(b" ", 2)[:2])
            counts, frame = self.counts[number], event.frame
            assert isinstance(frame, Frame)
            if event.origin != self.cluster.me:
                counts.delivered += 1
                counts.latencies_us.append((now - sent) // 1000)
                counts.inversions += (frame.inc, event.seq) <= self._past.get(frame.ticket, (0, 0))
            for ticket, entry in enumerate(frame.deps):
                if entry > self._past.get(ticket, (0, 0)):
                    self._past[ticket] = entry


class Measurement:
    """The members of this process, and their counts by number of the measurement."""

    def __init__(self, clusters: list[Cluster], task: LiveTask, rng: random.Random) -> None:
        self.counts: dict[int, LiveCounts] = {}
        self.subjects = [Subject(c, task, random.Random(rng.random()), self.counts) for c in clusters]
        self.publishers = self.subjects[: task.publishing]
        self._round_s = task.round_ms / 1e3
        self._before: dict[int, tuple[int, int]] = {}

    def begin(self, number: int) -> None:
        """Called before anybody publishes, since others' events arrive at once."""
        self.counts[number] = LiveCounts()
        self._before[number] = (self._sum("order.recovered"), self._sum("order.asked"))

    async def run(self, number: int, p: float, rounds: int) -> None:
        """Publish; a process without publishers waits for as long."""
        sent = self._sum("net.sent_bytes")
        load = [subject.publish(number, p, rounds) for subject in self.publishers]
        await asyncio.gather(*load, asyncio.sleep(rounds * self._round_s))
        self.counts[number].sent_bytes = self._sum("net.sent_bytes") - sent

    def count(self, number: int) -> LiveCounts:
        counts, (recovered, asked) = self.counts[number], self._before[number]
        counts.recovered, counts.asked = self._sum("order.recovered") - recovered, self._sum("order.asked") - asked
        return counts

    def _sum(self, name: str) -> int:
        return sum(subject.cluster.stats()[name] for subject in self.subjects)


async def main(task: LiveTask, channel: Channel) -> None:
    """Join, then answer requests until the channel is closed."""
    rng = random.Random(task.seed)
    async with joined(task, rng) as members:
        run = Measurement(members.clusters, task, rng)

        async def ready() -> None:
            await asyncio.gather(*(subject.ready.wait() for subject in run.publishers))
            channel.ready(members.about())

        work = [subject.listen() for subject in run.subjects] + [subject.coordinate() for subject in run.publishers]
        commands: dict[str, Callable[..., object]]
        commands = {"begin": run.begin, "run": run.run, "count": run.count}
        await channel.serve(commands, ready(), *work)


if __name__ == "__main__":
    program(main, LiveTask)
