"""Live runs validated against the specification, as `soak.refine` does it for simulated ones.

    python -m soak.refine_live --seconds 60 [--members 5] [--seed 1]

Traces have no messages of the ring, so the check sits beside the members: real ones, on asyncio, over TCP, with their
memory in files, all in this process, which puts their steps in one order by one clock. Members are killed at any moment
and come back with their memory or without, leave, and are cut off from each other, while all of them publish.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import whence
import whence.live.net.entry as entry
from soak.refine import NotABehaviour, Observed, Spec
from whence.core import ports
from whence.errors import WhenceError
from whence.live.api import Options
from whence.live.net.transport import Faults

NAME = "refine"
UP = 3
"""Members that are never killed at once: a quorum of all of them."""


class Run:
    """One cluster, its faults, and the specification beside it."""

    def __init__(self, members: int, seed: int, home: Path) -> None:
        self.members, self.home = members, home
        self.rng = random.Random(seed)
        self.at = 0
        self.spec = Spec(lambda: self.at)
        self.wrong: NotABehaviour | None = None
        self.up: dict[str, Life] = {}
        self.done: dict[str, int] = {}

    def observed(self) -> type[Observed]:
        """Members that tell the specification what they do."""
        run = self

        class Live(Observed):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                self.observe(run.spec, lambda local: local)

            def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
                newest = max(run.at, now)
                # A batch is published as of when it was opened, in the turn of the loop before (`Node.begin`).
                run.at = now if isinstance(input, ports.Publish) else newest
                try:
                    return super().handle(input, now)
                except NotABehaviour as error:
                    run.wrong = run.wrong or error
                    raise
                finally:
                    run.at = newest

        return Live

    async def begin(self, listen: str, memory: Path) -> None:
        life = Life(listen, memory)
        contacts = list(self.up)
        options: Options = {"insecure": True, "memory": memory, "faults": life.faults}
        life.entry = (
            whence.join(NAME, contacts, listen, **options) if contacts else whence.create(NAME, listen, **options)
        )
        life.cluster = await life.entry.__aenter__()
        life.address = life.cluster.address
        life.talk = asyncio.create_task(life.publish())
        self.up[life.address] = life

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    async def trouble(self) -> None:
        """One fault."""
        life = self.rng.choice(list(self.up.values()))
        kind = self.rng.choice(["kill", "kill", "restart", "leave", "cut"])
        council = life.cluster.council
        whole = council is not None and len(council.voters) >= UP and not council.missing
        if kind != "cut" and (len(self.up) <= UP or not (whole or kind == "kill")):
            return  # else a council whose voters forget one after the other would be lost for good
        self.count(kind)
        if kind == "cut":
            others = [one for one in self.up.values() if one is not life]
            apart = self.rng.sample(others, self.rng.randint(1, len(others)))
            for one in self.up.values():
                one.faults.cut([life.address], [other.address for other in apart])
            await asyncio.sleep(self.rng.uniform(1, 6))
            for one in self.up.values():
                one.faults.heal()
            return
        del self.up[life.address]
        await life.end(leave=kind == "leave")
        await asyncio.sleep(self.rng.choice([0.0, 0.3, 2.0, 6.0]))
        memory = life.memory if kind == "kill" else self.home / str(time.monotonic_ns())
        with suppress(WhenceError):  # cut off, it does not get in
            await self.begin(life.address, memory)

    async def go(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        for number in range(self.members):
            await self.begin("127.0.0.1:0", self.home / str(number))
        await asyncio.sleep(6)
        while time.monotonic() < over and self.wrong is None:
            await self.trouble()
            await asyncio.sleep(self.rng.uniform(0.5, 5))
            while len(self.up) < self.members:
                await self.begin("127.0.0.1:0", self.home / str(time.monotonic_ns()))
        for life in list(self.up.values()):
            await life.end(leave=False)


class Life:
    """One member, from its start to its end."""

    entry: Any
    cluster: whence.Cluster
    talk: asyncio.Task[None]

    def __init__(self, address: str, memory: Path) -> None:
        self.address, self.memory, self.faults = address, memory, Faults()

    async def publish(self) -> None:
        """All the time, as far as there is a ticket."""
        while True:
            with suppress(WhenceError):
                async with self.cluster.publisher(timeout=5) as publisher:
                    for _ in range(20):
                        await publisher.publish(b"x")
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)

    async def end(self, leave: bool) -> None:
        self.talk.cancel()
        with suppress(asyncio.CancelledError):
            await self.talk
        with suppress(WhenceError):
            if leave:
                await self.cluster.leave()
            else:
                self.cluster.abandon()
            await self.entry.__aexit__(None, None, None)


def validate(seconds: float, members: int, seed: int, say: Callable[[str], object] = print) -> bool:
    """One live run; whether every step was one of the specification."""
    with tempfile.TemporaryDirectory(prefix="whence-refine-") as home:
        run = Run(members, seed, Path(home))
        usual, entry.Member = entry.Member, run.observed()  # type: ignore[misc]
        try:
            whence.run(run.go(seconds))
        finally:
            entry.Member = usual  # type: ignore[misc]
    faults = ", ".join(f"{n} {what}" for what, n in sorted(run.done.items()))
    councils = len(run.spec.councils)
    say(f"seed {seed}: {run.spec.steps} guards checked, {councils} councils, {faults}: {run.wrong or 'all allowed'}")
    return run.wrong is None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.refine_live", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.members <= UP:
        parser.error(f"--members from {UP + 1} on")
    return 0 if validate(args.seconds, args.members, args.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
