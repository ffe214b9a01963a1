"""`python -m soak.kill`: processes on loopback, gossip lost on purpose, load on all the time, one process after the
other killed with SIGKILL and started again; at the end the causal oracle judges the traces of all lives."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import whence
from soak.fleet import Fleet, Seat, SoakFailed, secret, tell
from soak.member import Task

CORE = ("founding", "probation", "owner", "leaving")
EMPTY_S = 30.0
"""Seconds without a coordinator after which the operator of the soak tells the founder to found again: more than the
last coordinators need to do so by themselves, if all of them still live (docs/ring.md). Counted as `refounded`."""


async def soak(
    home: Path,
    *,
    members: int = 8,
    seconds: float = 120.0,
    every: float = 3.0,
    drop: float = 0.05,
    rate: float = 20.0,
    order: str = "reliable",
    transport: str = "tcp",
    seed: int = 1,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run it; what it has found."""
    rng = random.Random(seed)
    task = Task(
        secret=secret(),
        order=order,
        drop=drop,
        rate=rate,
        transport=transport,
        settings=settings or {},
    )
    fleet = Fleet(home)
    for _ in range(members):
        fleet.add(task)
    kills = restarts_failed = 0
    try:
        await fleet.start()
        began = empty_since = time.monotonic()
        while time.monotonic() - began < seconds:
            await asyncio.sleep(every * rng.uniform(0.5, 1.5))
            seat = rng.choice(fleet.seats)
            await seat.kill()
            kills += 1
            await asyncio.sleep(rng.choice((0.0, 0.3, 1.0)))
            restarts_failed += await _restart(fleet, seat)
            looks = await fleet.look()
            if any(look["core"] in CORE for look in looks):
                empty_since = time.monotonic()
            elif time.monotonic() - empty_since > EMPTY_S:
                empty_since = time.monotonic()
                fleet.refounded += 1
                await fleet.seats[0].ask("found")
        under_load = time.monotonic() - began
        await fleet.look("stop")
        still, looks = await fleet.quiet()
    finally:
        await fleet.end()
    for look in looks:
        if look["failure"]:
            raise SoakFailed(f"{look['me']} has stopped: {look['failure']}")
    verdict = fleet.verdict()
    lost = sum(look["stats"].get("net.lost_on_purpose", 0) for look in looks)
    recovered = sum(look["stats"].get("order.recovered", 0) for look in looks)
    clocks = {look["clock"] for look in looks}
    return {
        **verdict,
        "ok": verdict["ok"] and still and kills > 0 and verdict["published"] > 0 and not fleet.refounded,
        "seconds": round(under_load, 1),
        "processes": members,
        "kills": kills,
        "slow_restarts": restarts_failed,
        "refounded": fleet.refounded,
        "gossip_lost_on_purpose_by_survivors": lost,
        "recovered_by_survivors": recovered,
        "survivors_agree": len(clocks) == 1 and not verdict["disagreements"],
        "quiet_at_the_end": still,
    }


async def _restart(fleet: Fleet, seat: Seat) -> int:
    """Start it until it has joined; how often it had to be tried again. On a busy machine a member may need longer than
    its time-out to be let in: then it says so and ends, as a service manager would see it."""
    for attempt in range(5):
        try:
            await seat.start(fleet.others(seat), found=seat.number == 0)  # the designated founder in every life
            return attempt
        except SoakFailed:
            continue
    raise SoakFailed(f"process {seat.number} could not be started again")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kill", description=__doc__)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills, about")
    parser.add_argument("--drop", type=float, default=0.05, help="share of gossip lost on purpose")
    parser.add_argument("--rate", type=float, default=20.0, help="events a second of each process")
    parser.add_argument("--order", default="reliable")
    parser.add_argument("--udp", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", type=json.loads, help="JSON of settings (see whence.join)")
    parser.add_argument("--keep", type=Path, help="keep traces and journals in this directory")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = args.keep or Path(tempfile.mkdtemp(prefix="whence-soak-"))
    try:
        result = whence.run(
            soak(
                home,
                members=args.members,
                seconds=args.seconds,
                every=args.every,
                drop=args.drop,
                rate=args.rate,
                order=args.order,
                transport="udp" if args.udp else "tcp",
                seed=args.seed,
                settings=args.settings,
            )
        )
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    return tell(args.json, result)


if __name__ == "__main__":
    sys.exit(main())
