"""`python -m soak.survival`: what survives what, with real processes. Each row is a situation in which nobody helps:
processes are killed (SIGKILL), some come back, networks are cut. Measured: how long nobody could publish, and when
everybody who wants a ticket had one again. In the rows of `IMPOSSIBLE` nobody may; then the survivors must say why, and
what a person can do. The simulated table is `python -m tests.core.ring.council.survival` (docs/results/survival.md)."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import whence
from whence.core.clock import address_of
from whence.errors import FleetError
from whence.live.fleet.fleet import Fleet, Look, Members
from whence.live.fleet.process import narrator
from whence.live.fleet.task import MemberSpec, Task

LIMIT_S = 60.0
"""Seconds after which a row counts as not survived: far more than any takes."""
IMPOSSIBLE_S = 12.0
"""Seconds for which nobody may publish in an impossible row: some leases."""
STILL_S = 2.0
"""Seconds for which everybody must keep its ticket."""
POLL_S = 0.1


class Outcome(NamedTuple):
    gap: float
    """Seconds in which nobody could publish."""
    back: float | None
    """Seconds after which everybody had a ticket, for good; None: not within the limit."""
    said: str = ""
    """Why a survivor could not publish, in its own words."""


class Scene:
    """A fleet whose council has formed, and its clock."""

    def __init__(self, fleet: Fleet, rng: random.Random, publishers: int) -> None:
        self.fleet, self.rng = fleet, rng
        self.wants = {one.number for one in fleet.all[:publishers]}
        self.began = 0.0
        self.gap = 0.0
        self._looked = 0.0

    def by_address(self, address: str) -> Members:
        return next(one for one in self.fleet.all if address in one.addresses)

    async def first(self) -> Members:
        """The process of the first voter."""
        look = (await self.fleet.looks())[0]
        return self.by_address(address_of(look["voters"][0]))

    async def publishers(self) -> list[Members]:
        """Those that publish, the first voter first if it is one of them."""
        first = await self.first()
        some = [one for one in self.fleet.all if one.number in self.wants]
        return sorted(some, key=lambda one: one is not first)

    async def kill(self, *some: Members, back: float | None = None) -> None:
        self.start_clock()
        await asyncio.gather(*(one.kill() for one in some))
        if back is None:
            self.wants -= {one.number for one in some}
            return
        await self.watch(back)
        await self.during(asyncio.gather(*(self.fleet.restart(one) for one in some)))

    def start_clock(self) -> None:
        if not self.began:
            self.began = self._looked = time.monotonic()

    async def during(self, work: Awaitable[object]) -> None:
        """Watch while this is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.look()
        await task

    async def watch(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            await self.look()

    async def look(self) -> list[Look]:
        """Count the time since the last look as a gap if nobody can publish now."""
        await asyncio.sleep(POLL_S)
        looks: list[Look] = []
        for one in self.fleet.all:
            if one.alive:
                try:
                    looks += [{**look, "number": one.number} for look in await one.ask("look", deep=True)]
                except FleetError:
                    continue  # it is just starting, or was killed meanwhile
        now = time.monotonic()
        if not any(look["core"] == "owner" for look in looks):
            self.gap += now - self._looked
        self._looked = now
        return looks

    async def outcome(self, limit: float = LIMIT_S) -> Outcome:
        """Wait until everybody has a ticket, and keeps it for a while."""
        self.start_clock()
        since: float | None = None
        said, deadline = "", time.monotonic() + limit
        while time.monotonic() < deadline:
            looks = await self.look()
            said = next((look["why_none"] for look in looks if look["why_none"]), said)
            own = {look["number"] for look in looks if look["core"] == "owner"}
            if not self.wants or not self.wants <= own:
                since = None
            elif since is None:
                since = time.monotonic()
            if since is not None and time.monotonic() - since >= STILL_S:
                return Outcome(self.gap, since - self.began, said)
        return Outcome(self.gap, None, said)


class Situation(NamedTuple):
    publishers: int
    readers: int
    disks: bool
    happens: Callable[[Scene], Awaitable[None]]


def one_of_two(which: str, back: float | None = None) -> Callable[[Scene], Awaitable[None]]:
    async def happens(scene: Scene) -> None:
        some = await scene.publishers()
        await scene.kill(some[0] if which == "first" else some[1], back=back)

    return happens


def two_of_three(how: str, back: float | None = None) -> Callable[[Scene], Awaitable[None]]:
    async def happens(scene: Scene) -> None:
        some = (await scene.publishers())[::-1]
        if how == "at once":
            await scene.kill(*some[:2], back=back)
        else:
            await scene.kill(some[0])
            await scene.watch(8)
            await scene.kill(some[1])

    return happens


async def all_publishers(scene: Scene) -> None:
    dead = [one for one in scene.fleet.all if one.number in scene.wants]
    await scene.kill(*dead)
    left = [one for one in scene.fleet.all if one.alive]
    scene.wants = {one.number for one in left}
    await asyncio.gather(*(one.ask("want") for one in left))


async def founder(scene: Scene) -> None:
    await scene.kill(scene.fleet.all[0])


async def rolling(scene: Scene) -> None:
    for one in list(scene.fleet.all):
        await scene.kill(one, back=scene.rng.choice([0.3, 1.0, 2.0]))
        await scene.watch(4)


async def all_at_once(scene: Scene) -> None:
    await scene.kill(*scene.fleet.all, back=0.5)


async def cut(scene: Scene) -> None:
    """Halves of the publishers, for 8 seconds; readers on a random side."""
    half = scene.rng.sample(sorted(scene.wants), len(scene.wants) // 2)
    apart = half + [o.number for o in scene.fleet.all if o.number not in scene.wants and scene.rng.random() < 0.5]
    scene.start_clock()
    await scene.fleet.cut(apart)
    await scene.watch(8)
    await scene.fleet.heal()
    scene.began = time.monotonic()


ROWS: dict[str, Situation] = {
    "2, the other one killed for good": Situation(2, 0, False, one_of_two("other")),
    **{
        f"2, the other one back after {b} s, no disk": Situation(2, 0, False, one_of_two("other", b))
        for b in (0.3, 1, 2, 6)
    },
    **{
        f"2, the first one back after {b} s with its disk": Situation(2, 0, True, one_of_two("first", b))
        for b in (0.3, 1, 2, 6)
    },
    "2 and 1 reader, the first one killed for good": Situation(2, 1, False, one_of_two("first")),
    "2 and 1 reader, the other one killed for good": Situation(2, 1, False, one_of_two("other")),
    "3, two killed 8 s apart, the first is left": Situation(3, 0, False, two_of_three("one by one")),
    "3 and 2 readers, two killed at once": Situation(3, 2, False, two_of_three("at once")),
    "3, two killed at once, back after 2 s with disks": Situation(3, 0, True, two_of_three("at once", 2)),
    "2 killed, 5 readers now want to publish": Situation(2, 5, False, all_publishers),
    "3 killed, 5 readers now want to publish": Situation(3, 5, False, all_publishers),
    "founder of 3 killed for good": Situation(3, 0, False, founder),
    "rolling restart of 3, no disk": Situation(3, 0, False, rolling),
    "rolling restart of 3, with disks": Situation(3, 0, True, rolling),
    "all 4 restarted at once, with disks": Situation(4, 0, True, all_at_once),
    "cut 2|2 for 8 s": Situation(4, 0, False, cut),
    "cut 3|3 for 8 s": Situation(6, 0, False, cut),
    "cut 2|2 for 8 s, with a witness": Situation(4, 1, False, cut),
    "cut 3|3 for 8 s, with a witness": Situation(6, 1, False, cut),
}

IMPOSSIBLE: dict[str, Situation] = {
    "2, the first one killed for good, no disk": Situation(2, 0, False, one_of_two("first")),
    "3, two killed at once for good, no disk": Situation(3, 0, False, two_of_three("at once")),
}


async def once(situation: Situation, impossible: bool, seed: int, home: Path) -> Outcome:
    """One run of a row."""
    n = situation.publishers + situation.readers
    async with Fleet(home) as fleet:
        for number in range(n):
            directory = str(home / f"disk{number}") if situation.disks else None
            spec = MemberSpec(directory=directory, rate=5.0 if number < situation.publishers else 0.0)
            fleet.member(Task(cluster="survival", members=[spec], seed=seed * 1000))
        await fleet.start()
        await fleet.until(
            "the council forms",
            lambda looks: (
                all(len(look["voters"]) == min(n, 7) for look in looks)
                and sum(look["core"] == "owner" for look in looks) == situation.publishers
            ),
            LIMIT_S,
        )
        scene = Scene(fleet, random.Random(seed), situation.publishers)
        await situation.happens(scene)
        outcome = await scene.outcome(IMPOSSIBLE_S if impossible else LIMIT_S)
        await fleet.kill()
    return outcome


def survived(name: str, outcome: Outcome) -> bool:
    """As the row says: somebody publishes again, or nobody does and says why."""
    if name in IMPOSSIBLE:
        return outcome.back is None and "--force" in outcome.said and "not answer" in outcome.said
    return outcome.back is not None


async def run(names: list[str], times: int, seed: int, say: Callable[[str], None]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for name in names:
        situation = {**ROWS, **IMPOSSIBLE}[name]
        for number in range(times):
            with tempfile.TemporaryDirectory(prefix="whence-survival-") as home:
                outcome = await once(situation, name in IMPOSSIBLE, seed + number, Path(home))
            found.setdefault(name, []).append(outcome)
            say(f"{name}: {outcome}")
    return found


def table(found: dict[str, list[Outcome]]) -> list[str]:
    lines = []
    for name, outcomes in found.items():
        good = sum(survived(name, outcome) for outcome in outcomes)
        gaps = sorted(outcome.gap for outcome in outcomes)
        backs = sorted(outcome.back for outcome in outcomes if outcome.back is not None)
        times = f"{gaps[len(gaps) // 2]:.1f} / {gaps[-1]:.1f} | " if backs else "- | "
        times += f"{backs[len(backs) // 2]:.1f} / {backs[-1]:.1f}" if backs else "nobody publishes, and says why"
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {good} of {len(outcomes)} | {times} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.survival", description=__doc__)
    parser.add_argument("--rows", nargs="*", metavar="PART", help="rows whose names contain one of these; default: all")
    parser.add_argument("--times", type=int, default=3, help="runs of each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = [n for n in {**ROWS, **IMPOSSIBLE} if not args.rows or any(part in n for part in args.rows)]
    if not names or args.times < 1:
        parser.error(
            f"no such row; there are: {'; '.join({**ROWS, **IMPOSSIBLE})}" if not names else "--times from 1 on"
        )
    found = whence.run(run(names, args.times, args.seed, narrator()))
    if args.json:
        print(json.dumps({name: [o._asdict() for o in outcomes] for name, outcomes in found.items()}))
    else:
        print("\n".join(table(found)))
    return 0 if all(survived(name, outcome) for name, outcomes in found.items() for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
