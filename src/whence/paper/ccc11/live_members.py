"""Some members of the live Figures 4 and 5 in one process, on sockets of their own on loopback.

Started by `live` as `python -m whence.paper.ccc11.live_members JSON`. Says its addresses in a line when all of its
coordinators have tickets; then takes one command a line (`run NUMBER P ROUNDS`, `count NUMBER`) and answers each with a
line. When its standard input ends, its members leave.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from contextlib import AsyncExitStack, suppress
from typing import Any, cast

import msgspec

import whence
from whence.clock import Entry, Frame
from whence.errors import LostTicket, NoTicket
from whence.testing import Faults


class Task(msgspec.Struct, kw_only=True):
    """What a process is told."""

    members: int
    coordinators: int
    """Its first so many publish."""
    tickets: int
    order: str
    settings: dict[str, Any]
    """As in `whence.join`."""
    round_ms: float
    loss: float
    """Of gossip messages, on purpose: the paper's failed connections."""
    payload: int
    seeds: list[str] = []
    secret: str
    seed: int


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

    def __init__(self, cluster: whence.Cluster, task: Task, rng: random.Random, counts: dict[int, Counts]) -> None:
        self.cluster, self.task, self.rng, self.counts = cluster, task, rng, counts
        self.todo: asyncio.Queue[bytes] = asyncio.Queue()
        self.ready = asyncio.Event()
        self._past: dict[int, Entry] = {}

    async def coordinate(self) -> None:
        while True:
            with suppress(LostTicket, NoTicket, TimeoutError):
                async with self.cluster.coordinate(timeout=60.0) as seat:
                    self.ready.set()
                    while True:
                        payload = await self.todo.get()
                        number = int(payload.split(b" ", 1)[0])
                        # The time of the publish itself, not of the wish: waiting here is not the network's.
                        now = b"%d %d " % (number, time.monotonic_ns())
                        await seat.publish(now.ljust(self.task.payload, b"."))
                        self.counts[number].published += 1

    async def publish(self, number: int, p: float, rounds: int) -> None:
        length = self.task.round_ms / 1e3
        for _ in range(rounds):
            wait = self.rng.random() * length
            wanted = time.monotonic_ns() + int(wait * 1e9)
            await asyncio.sleep(wait)
            self.counts[number].overslept_us.append(max(0, time.monotonic_ns() - wanted) // 1000)
            for _ in range(int(p) + (self.rng.random() < p % 1)):
                self.todo.put_nowait(b"%d " % number)
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


async def main(task: Task) -> None:
    rng = random.Random(task.seed)
    counts: dict[int, Counts] = {}
    work: list[asyncio.Task[None]] = []
    async with AsyncExitStack() as stack:
        subjects: list[Subject] = []
        for i in range(task.members):
            known = [*task.seeds, *(s.cluster.address for s in subjects)]
            options: whence.Options = {
                "order": cast(whence.OrderName, task.order),
                "tickets": task.tickets,
                "secret": bytes.fromhex(task.secret),
                "settings": task.settings,
                "faults": Faults(task.loss, seed=rng.getrandbits(32)),
                "timeout": 60.0,
            }
            joining = whence.join("fig5", known, **options) if known else whence.found("fig5", **options)
            subject = Subject(await stack.enter_async_context(joining), task, random.Random(rng.random()), counts)
            subjects.append(subject)
            work.append(asyncio.create_task(subject.listen()))
            if i < task.coordinators:
                work.append(asyncio.create_task(subject.coordinate()))
        publishers = subjects[: task.coordinators]
        await asyncio.gather(*(s.ready.wait() for s in publishers))
        _say([s.cluster.address for s in subjects])
        await _obey(subjects, publishers, counts)
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _obey(subjects: list[Subject], publishers: list[Subject], counts: dict[int, Counts]) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    before: dict[int, tuple[int, int]] = {}
    length = subjects[0].task.round_ms / 1e3
    while line := await reader.readline():
        command, number, *rest = line.decode().split()
        this = int(number)
        if command == "begin":  # before anybody publishes: others' events come at once
            counts[this] = Counts()
            before[this] = _recovery(subjects)
            _say("begun")
        elif command == "run":
            sent, rounds = _sent_bytes(subjects), int(rest[1])
            load = [s.publish(this, float(rest[0]), rounds) for s in publishers]
            await asyncio.gather(*load, asyncio.sleep(rounds * length))  # a process without publishers waits as long
            counts[this].sent_bytes = _sent_bytes(subjects) - sent
            _say("done")
        else:
            recovered, asked = _recovery(subjects)
            counts[this].recovered, counts[this].asked = recovered - before[this][0], asked - before[this][1]
            _say(msgspec.to_builtins(counts[this]))


def _recovery(subjects: list[Subject]) -> tuple[int, int]:
    stats = [s.cluster.stats() for s in subjects]
    return sum(s["order.recovered"] for s in stats), sum(s["order.asked"] for s in stats)


def _sent_bytes(subjects: list[Subject]) -> int:
    """Each member has a host of its own."""
    return sum(s.cluster.stats()["net.sent_bytes"] for s in subjects)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    whence.run(main(msgspec.json.decode(sys.argv[1], type=Task)))
