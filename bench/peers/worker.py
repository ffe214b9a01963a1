"""What every measured process does: join the others, publish as fast as it can or at a rate, count what arrives.

Each is a child of a fleet (`whence.live.fleet`). It says where it listens, is told where all do (`connect`), and
answers `go` with its figures. Deliveries of a process's own events are not counted, for any system.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import msgspec

from whence.live.fleet.channel import Channel, program

WARM_S = 1.0
STAMP = 8
"""The first bytes of a payload: when it was published, ns of the clock that all processes share; 0: not asked."""


class Job(msgspec.Struct, kw_only=True):
    """What a process is told when it starts."""

    number: int
    members: int = 4
    seconds: float = 3.0
    payload: int = 64
    batch: int = 1
    """Events that the application hands over at a time, under saturating load."""
    tasks: int = 1
    """Tasks of the application that do so at the same time."""
    rate: float = 0.0
    """Events a second of each process; 0: as many as it can."""
    tickets: int = 8
    drop: float = 0.0
    order: str = "causal"
    events: bool = False
    """Ours: the reader looks at every `Event`, not at the payloads of whole frames."""
    server: str = ""


class Bus(Protocol):
    """A system under test, as one process sees it. It calls `Meter.got` with each batch of payloads of others."""

    async def listen(self) -> str:
        """Start; where the others reach it."""
        ...

    async def connect(self, addresses: list[str]) -> None:
        """Connect to all; returns when it may publish."""
        ...

    async def publish(self, payloads: list[bytes]) -> None:
        """Hand over, waiting while there is no room."""
        ...

    async def close(self) -> None: ...


class Meter:
    """Counts and times deliveries."""

    def __init__(self, timed: bool) -> None:
        self.count = 0
        self.timed = timed
        self.late: list[int] = []

    def got(self, payloads: list[bytes]) -> None:
        """Payloads that somebody else has published."""
        self.count += len(payloads)
        if self.timed:
            now = time.monotonic_ns()
            self.late += [now - int.from_bytes(p[:STAMP], "big") for p in payloads]


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def idle_s() -> float:
    """Seconds that the processors of this machine have been idle."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def rss_mb() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _load(job: Job, bus: Bus) -> None:
    rest = os.urandom(job.payload - STAMP)
    if not job.rate:
        number = 0
        while True:
            chunk = [(number + i).to_bytes(STAMP, "big") + rest for i in range(job.batch)]
            number += job.batch
            await bus.publish(chunk)
    due = time.monotonic() + job.number / job.rate / job.members
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += 1 / job.rate
        await bus.publish([time.monotonic_ns().to_bytes(STAMP, "big") + rest])


async def measure(
    job: Job, channel: Channel, bus: Bus, meter: Meter, figures: Callable[[], dict[str, Any]] = dict
) -> None:
    """The whole life of a process."""
    channel.ready(await bus.listen())

    async def go() -> dict[str, Any]:
        load = asyncio.gather(*(_load(job, bus) for _ in range(job.tasks)))
        await asyncio.sleep(WARM_S)
        began, cpu, count, idle = time.monotonic(), cpu_s(), meter.count, idle_s()
        meter.late.clear()
        await asyncio.sleep(job.seconds)
        return {
            "delivered": meter.count - count,
            "cpu_s": cpu_s() - cpu,
            "seconds": time.monotonic() - began,
            "idle_s": idle_s() - idle,
            "rss_mb": rss_mb(),
            "late": sorted(meter.late),
            "failed": repr(load.exception()) if load.done() and not load.cancelled() else "",
            **figures(),
        }

    await channel.serve({"connect": bus.connect, "go": go})


def run(main: Callable[[Job, Channel, Meter], Coroutine[Any, Any, None]]) -> None:
    """The main function of each peer, all on uvloop where it is installed."""
    program(lambda job, channel: main(job, channel, Meter(job.rate > 0)), Job)
