"""Where the CPU time of a delivery goes: four members in one process, a lone event at a time and in bulk.

A signal every millisecond of CPU time looks at what runs; time in C counts for the Python function that called it, and
reading from sockets for `live/net/tcp.py`, which is called next. Other load on the machine does not disturb the shares.
For a lone event also how many functions are called, those of rounds that come meanwhile included, and what members
cost that do nothing but their rounds and the ring.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import whence

Row = dict[str, Any]

MEMBERS = 4
LONE, BULK, LARGE = 10_000, 8_000, 200
"""Lone events; publishes in bulk, and events in each."""
COUNTED, IDLE_S = 500, 5.0
"""Lone events whose calls are counted, and seconds without any."""
TICK_S = 0.001
SHOWN = 12
HOME = str(Path(whence.__file__).parent)


class Samples:
    """What ran, by file of this package; everything else is "other"."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.cpu_s = 0.0

    def _tick(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(HOME):
            frame = frame.f_back
        self.files["other" if frame is None else frame.f_code.co_filename[len(HOME) + 1 :]] += 1

    def __enter__(self) -> Samples:
        self._began = time.process_time()
        self._before = signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, self._before)
        self.cpu_s = time.process_time() - self._began


class Calls:
    """How many functions are called."""

    def __init__(self) -> None:
        self.python = self.c = 0

    def _count(self, _: FrameType, event: str, __: object) -> None:
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1

    def __enter__(self) -> Calls:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


async def _measure(publishes: int, batch: int, lone: bool) -> tuple[Samples, int, Row]:
    """Members publish in turn; a lone event is published when the one before has reached everybody."""
    async with AsyncExitStack() as stack:
        clusters: list[whence.Cluster] = []
        for _ in range(MEMBERS):
            host = await stack.enter_async_context(whence.Host(secret=b"\x09" * 32))
            options: dict[str, Any] = {"host": host, "tickets": 5, "timeout": 60.0}
            contacts = [c.address for c in clusters[:1]]
            entering = whence.join("bench", contacts, **options) if contacts else whence.create("bench", **options)
            clusters.append(await stack.enter_async_context(entering))
        got, sent, arrived = 0, 0, asyncio.Event()

        async def read(cluster: whence.Cluster) -> None:
            nonlocal got
            events = cluster.events()
            while batch := await events.batch():
                got += len(batch.payloads)
                if got == sent:
                    arrived.set()

        readers = [asyncio.create_task(read(c)) for c in clusters]
        publishers = [await stack.enter_async_context(c.publisher(timeout=60.0)) for c in clusters]
        for publisher in publishers:
            await publisher.ready()

        async def publish(count: int) -> None:
            nonlocal sent
            for number in range(count):
                if batch == 1:
                    await publishers[number % MEMBERS].publish(bytes(64))
                else:
                    await publishers[number % MEMBERS].publish_many([bytes(64)] * batch)
                sent += MEMBERS * batch
                while got < sent and (lone or number == count - 1):
                    arrived.clear()
                    await arrived.wait()

        await publish(publishes // 10)  # warm
        with Samples() as samples:
            await publish(publishes)
        more: Row = {}
        if lone:
            with Calls() as calls:
                await publish(COUNTED)
            deliveries = COUNTED * (MEMBERS - 1)
            more = {"python_calls": round(calls.python / deliveries), "c_calls": round(calls.c / deliveries)}
            began = time.process_time()
            await asyncio.sleep(IDLE_S)
            more["idle_ms_per_member_s"] = round((time.process_time() - began) / IDLE_S / MEMBERS * 1e3, 2)
        for reader in readers:
            reader.cancel()
        return samples, publishes * batch * (MEMBERS - 1), more


def main() -> list[Row]:
    rows: list[Row] = []
    for what, publishes, batch in (("a lone event", LONE, 1), (f"{LARGE} events a publish", BULK, LARGE)):
        samples, deliveries, more = whence.run(_measure(publishes, batch, batch == 1))
        each = samples.cpu_s / deliveries * 1e6
        row = {"what": f"{what}, {MEMBERS} members in one process", "cpu_us_per_delivery": round(each, 3)}
        rows.append(row | more)
        total = sum(samples.files.values())
        for name, count in samples.files.most_common(SHOWN):
            share = count / total
            rows.append({"what": f"{what}: {name}", "share": f"{share:.1%}", "us_per_delivery": round(share * each, 3)})
    return rows
