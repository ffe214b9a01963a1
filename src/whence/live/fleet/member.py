"""The default program of a fleet's child process: members of one cluster, each with its own socket and load.

Requests: `look` (each member's state), `hush` (stop publishing), `cut` (into islands of addresses), `heal`. When the
input ends, the members leave. Programs with another application (a figure, an editing session) use `joined` to join
the members of a task, and answer their own requests.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from whence.core.order import Contract, SurveyConfig
from whence.core.order.config import OrderName
from whence.core.ports import Coordinate
from whence.core.recorder import show_clock
from whence.live.api import Cluster, Options, create, join
from whence.live.events import Event
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.task import MemberSpec, Pace, Task, payload, published_at
from whence.live.metrics import health, wishes
from whence.live.net.transport import Faults

HEARD: Final = 16
"""The most events that wait to be answered; more are not answered."""
STRUCTS: Final = {"contract": Contract, "survey": SurveyConfig}
"""Settings that are structs."""


class JoinedMembers(msgspec.Struct):
    """The members of a process."""

    clusters: list[Cluster]
    faults: list[Faults]

    def addresses(self) -> list[str]:
        return [cluster.address for cluster in self.clusters]

    def about(self) -> list[dict[str, str]]:
        """The reply to the fleet when they have joined."""
        return [{"address": cluster.address, "me": cluster.me} for cluster in self.clusters]

    def commands(self) -> dict[str, Callable[..., Any]]:
        """The requests that every program answers."""
        return {"cut": self._cut, "heal": self._heal}

    def _cut(self, islands: list[list[str]]) -> None:
        for faults in self.faults:
            faults.cut(*islands)

    def _heal(self) -> None:
        for faults in self.faults:
            faults.heal()


@asynccontextmanager
async def joined(task: Task, rng: random.Random, **more: Any) -> AsyncIterator[JoinedMembers]:
    """Join the members of a task, one after the other; they leave at the end of the block. `more`: as in
    `whence.join`."""
    members = JoinedMembers([], [])
    settings = {k: msgspec.convert(v, STRUCTS[k]) if k in STRUCTS else v for k, v in task.settings.items()}
    async with AsyncExitStack() as stack:
        for number, spec in enumerate(task.members):
            faults = Faults(task.drop, seed=rng.getrandbits(32))
            contacts = [*task.contacts, *members.addresses()]
            options: Options = {
                "secret": bytes.fromhex(task.secret),
                "order": cast(OrderName, spec.order),  # `Settings.config` checks it
                "tickets": task.tickets,
                "directory": None if spec.directory is None else Path(spec.directory),
                "memory": None,  # what it keeps is in its directory
                "trace": task.trace,
                "faults": faults,
                "settings": settings,
                "timeout": task.timeout,
            }
            options.update(more)  # type: ignore[typeddict-item]
            if not contacts or (task.found and not number):
                entry = create(task.cluster, spec.listen, contacts=contacts, **options)
            else:
                entry = join(task.cluster, contacts, spec.listen, **options)
            members.clusters.append(await stack.enter_async_context(entry))
            members.faults.append(faults)
        yield members


BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, float("inf"))
"""Upper bounds of a histogram of latencies, in seconds."""


class Latency:
    """How long events took, in buckets."""

    def __init__(self) -> None:
        self.counts = [0] * len(BUCKETS)

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1

    def quantile(self, q: float) -> float | None:
        """The upper bound of the bucket in which it lies; None without measurements, infinite beyond the buckets."""
        sums = list(accumulate(self.counts))
        return BUCKETS[bisect_left(sums, q * sums[-1])] if sums[-1] else None


class Application:
    """One member's application: publishes at a rate, answers events of others, and records what it has seen."""

    def __init__(self, cluster: Cluster, spec: MemberSpec, task: Task, rng: random.Random) -> None:
        self.cluster = cluster
        self.spec = spec
        self.task = task
        self.rng = rng
        self.latency = Latency()
        self.hushed = asyncio.Event()
        self.tap: Callable[[Event], object] = lambda event: None
        """Told of each event that is read."""
        self.checks = wishes(cluster, bool(task.contacts), spec.rate > 0)
        self._answers = 0
        self._heard = asyncio.Event()

    async def read(self) -> None:
        """Read events, writing each id to the `seen` file before the next event is read."""
        seen = None
        if self.spec.seen is not None:
            seen = os.open(self.spec.seen, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(seen, b"\n")
        async for event in self.cluster.events():
            if seen is not None:
                os.write(seen, event.id.encode() + b"\n")
            self.tap(event)
            if event.origin != self.cluster.me:
                self._hear(event)

    def _hear(self, event: Event) -> None:
        sent = published_at(event.payload)
        if sent is not None:
            self.latency.observe((time.time_ns() - sent) / 1e9)
        if self._answers < HEARD and self.rng.random() < self.task.answers / self.task.tickets:
            self._answers += 1
            self._heard.set()

    async def publish(self) -> None:
        """Publish at the rate until `hush`. Events due while there is no ticket are skipped."""
        async with self.cluster.publisher() as publisher:
            pace = Pace(self.spec.rate, self.rng, time.monotonic(), self.task.bursts)
            while due := await self._due(pace):
                await publisher.ready()  # time spent waiting for a ticket is not latency
                if not self.hushed.is_set():
                    await publisher.publish_many([payload(time.time_ns())] * due)

    async def _due(self, pace: Pace) -> int:
        """Wait until events are due, by the rate or as answers. 0: stop publishing."""
        while not self.hushed.is_set():
            if due := pace.due(time.monotonic()) + self._answers:
                self._answers = 0
                self._heard.clear()
                return due
            with suppress(TimeoutError):
                async with asyncio.timeout(pace.wait(time.monotonic())):
                    await self._heard.wait()
        return 0

    def want(self) -> None:
        """Ask for a ticket and keep it, without publishing."""
        self.cluster._node.feed(Coordinate())

    def hush(self) -> None:
        self.hushed.set()
        self._heard.set()

    def look(self, deep: bool) -> dict[str, Any]:
        """The state as in `/health`; `deep` adds what the soaks need."""
        name, node = self.cluster.name, self.cluster._node
        whole: dict[str, Any] = health([self.cluster], self.checks)
        late = {"p50_s": self.latency.quantile(0.5), "p99_s": self.latency.quantile(0.99)}
        found = {"ok": whole["ok"], "reasons": whole["reasons"], **whole["clusters"][name], **late}
        if deep:
            council = self.cluster.council
            found |= {
                "core": node.member.ring.state.value,
                "clock": show_clock(node.member.ordering.T),
                "voters": [] if council is None else [voter.member for voter in council.voters],
                "why_none": None if self.cluster.may_publish else self.cluster._tickets.why_none(),
                "failure": None if node.failure is None else str(node.failure),
                "stats": {k: n for k, n in self.cluster.stats().items() if n},
            }
        return found


async def main(task: Task, channel: Channel) -> None:
    """Join, then answer requests until the input ends."""
    rng = random.Random(task.seed)
    async with joined(task, rng) as members:
        pairs = zip(members.clusters, task.members, strict=True)
        applications = [Application(cluster, spec, task, rng) for cluster, spec in pairs]
        channel.ready(members.about())

        def look(deep: bool = False) -> list[dict[str, Any]]:
            return [application.look(deep) for application in applications]

        def hush() -> None:
            for application in applications:
                application.hush()

        def want() -> None:
            for application in applications:
                application.want()

        publishing = [application.publish() for application in applications if application.spec.rate]
        reading = [application.read() for application in applications]
        await channel.serve({**members.commands(), "look": look, "hush": hush, "want": want}, *reading, *publishing)


if __name__ == "__main__":
    program(main, Task)
