"""Some members of the live Figures 4 and 5 in one process, on sockets of their own on loopback.

A program of a fleet (`whence.fleet`), started by `live`. It is ready when all of its publishers have tickets. Requests:
`begin` (count anew), `run` (publish for some rounds), `count`.
"""

from __future__ import annotations

import asyncio
import random
import time

import msgspec

from whence.api import Cluster
from whence.clock import Entry, Frame
from whence.fleet import task as fleet
from whence.fleet.channel import Channel, program
from whence.fleet.member import joined


class Task(fleet.Task, kw_only=True):
    """What a process is told."""

    publishing: int
    """Its first so many members publish."""
    round_ms: float
    payload: int
    """Bytes of an event."""


class Counts(msgspec.Struct):
    """What a process saw of one run, all its members together."""

    published: int = 0
    delivered: int = 0
    """By others than the publisher."""
    inversions: int = 0
    latencies_us: list[int] = []
    recovered: int = 0
    asked: int = 0
    sent_bytes: int = 0
    """From the begin to the end of the load, by all layers."""
    overslept_us: list[int] = []
    """By how much each sleep of a publisher was too long: how busy the machine was."""


class Subject:
    """A member that publishes with probability p in each round (p > 1: so many events, on average), and counts what it
    delivers."""

    def __init__(self, cluster: Cluster, task: Task, rng: random.Random, counts: dict[int, Counts]) -> None:
        self.cluster, self.task, self.rng, self.counts = cluster, task, rng, counts
        self.todo: asyncio.Queue[int] = asyncio.Queue()
        self.ready = asyncio.Event()
        self._past: dict[int, Entry] = {}

    async def coordinate(self) -> None:
        async with self.cluster.publisher() as publisher:
            await publisher.ready()
            self.ready.set()
            while True:
                number = await self.todo.get()
                # The time of the publish itself, not of the wish: waiting here is not the network's.
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


class Run:
    """The members of this process and what they have counted, by number of the run."""

    def __init__(self, clusters: list[Cluster], task: Task, rng: random.Random) -> None:
        self.counts: dict[int, Counts] = {}
        self.subjects = [Subject(c, task, random.Random(rng.random()), self.counts) for c in clusters]
        self.publishers = self.subjects[: task.publishing]
        self._round_s = task.round_ms / 1e3
        self._before: dict[int, tuple[int, int]] = {}

    def begin(self, number: int) -> None:
        """Before anybody publishes: others' events come at once."""
        self.counts[number] = Counts()
        self._before[number] = (self._sum("order.recovered"), self._sum("order.asked"))

    async def run(self, number: int, p: float, rounds: int) -> None:
        """Publish; a process without publishers waits as long."""
        sent = self._sum("net.sent_bytes")
        load = [subject.publish(number, p, rounds) for subject in self.publishers]
        await asyncio.gather(*load, asyncio.sleep(rounds * self._round_s))
        self.counts[number].sent_bytes = self._sum("net.sent_bytes") - sent

    def count(self, number: int) -> Counts:
        counts, (recovered, asked) = self.counts[number], self._before[number]
        counts.recovered, counts.asked = self._sum("order.recovered") - recovered, self._sum("order.asked") - asked
        return counts

    def _sum(self, name: str) -> int:
        """Each member has a host of its own."""
        return sum(subject.cluster.stats()[name] for subject in self.subjects)


async def main(task: Task, channel: Channel) -> None:
    """The whole life of the process."""
    rng = random.Random(task.seed)
    async with joined(task, rng) as members:
        run = Run(members.clusters, task, rng)

        async def ready() -> None:
            await asyncio.gather(*(subject.ready.wait() for subject in run.publishers))
            channel.ready(members.about())

        work = [subject.listen() for subject in run.subjects] + [subject.coordinate() for subject in run.publishers]
        await channel.serve({"begin": run.begin, "run": run.run, "count": run.count}, ready(), *work)


if __name__ == "__main__":
    program(main, Task)
