"""`python -m soak.kill`: processes on loopback under load, with gossip dropped on purpose. Random processes are killed
(SIGKILL) and restarted. At the end the traces are judged."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import whence
from soak.verdict import tell, verdict
from whence.errors import FleetError
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.process import narrator
from whence.live.fleet.task import MemberSpec, PlanStep, Task

CORE = ("founding", "probation", "owner", "leaving")
BURSTS = (1, 1, 2, 4)
EMPTY_S = 30.0
"""Seconds without a coordinator after which the founder is restarted, to found again. Counted as `refounded`."""
DOWN_S = (0.0, 0.3, 1.0)
"""Possible seconds between a kill and the restart."""


def kills(rng: random.Random, processes: int, every: float) -> Iterator[PlanStep]:
    """Kill and restart random processes, one about every `every` seconds, endlessly."""
    while True:
        one = rng.randrange(processes)
        yield PlanStep(every * rng.uniform(0.5, 1.5), "kill", (one,), f"kill -9 of process {one}")
        yield PlanStep(rng.choice(DOWN_S), "start", (one,), f"process {one} is back")


async def soak(
    home: Path,
    *,
    members: int = 8,
    seconds: float = 120.0,
    every: float = 3.0,
    drop: float = 0.05,
    rate: float = 20.0,
    order: str = "reliable",
    seed: int = 1,
    settings: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Run the soak; returns the result."""
    async with Fleet(home, traced=home / "trace") as fleet:
        for n in range(members):
            spec = MemberSpec(order=order, directory=str(home / f"disk{n}"), seen=str(home / f"seen{n}"), rate=rate)
            task = Task(cluster="soak", members=[spec], drop=drop, bursts=BURSTS)
            task.seed, task.settings = 1_000_000 * seed, settings or {}
            fleet.member(task)
        await fleet.start()
        began = empty_since = time.monotonic()
        dead = refounded = 0
        for step in kills(random.Random(seed), members, every):
            await fleet.carry_out(step, say)
            if step.do == "kill":
                dead += 1
                continue
            if any(look["core"] in CORE for look in await fleet.looks()):
                empty_since = time.monotonic()
            elif time.monotonic() - empty_since > EMPTY_S:
                empty_since = time.monotonic()
                refounded += 1
                await fleet.all[0].kill()
                await fleet.restart(fleet.all[0], found=True)
            if time.monotonic() - began >= seconds:
                break
        under_load = time.monotonic() - began
        await fleet.ask("hush")
        say("the load has ended; waiting until nothing changes")
        still, looks = await fleet.quiet()
        await fleet.kill()  # a member that leaves is judged less strictly
    for look in looks:
        if look["failure"]:
            raise FleetError(f"{look['me']} has stopped: {look['failure']}")
    found = verdict(fleet)
    return {
        **found,
        "ok": found["ok"] and still and dead > 0 and found["published"] > 0 and not refounded,
        "seconds": round(under_load, 1),
        "processes": members,
        "kills": dead,
        "slow_restarts": fleet.retries,
        "refounded": refounded,
        "gossip_lost_on_purpose_by_survivors": sum(look["stats"].get("net.lost_on_purpose", 0) for look in looks),
        "recovered_by_survivors": sum(look["stats"].get("order.recovered", 0) for look in looks),
        "survivors_agree": len({look["clock"] for look in looks}) == 1 and not found["disagreements"],
        "quiet_at_the_end": still,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kill", description=__doc__)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills, about")
    parser.add_argument("--drop", type=float, default=0.05, help="share of gossip lost on purpose")
    parser.add_argument("--rate", type=float, default=20.0, help="events a second of each process")
    parser.add_argument("--order", default="reliable")
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
                seed=args.seed,
                settings=args.settings,
                say=narrator(),
            )
        )
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    return tell(args.json, result)


if __name__ == "__main__":
    sys.exit(main())
