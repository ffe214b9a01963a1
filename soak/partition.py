"""`python -m soak.partition`: processes that are partitioned and healed under load.

The processes must find each other again by themselves. At the end the traces are judged; no ticket may have had two
owners at a time. The transports drop the packets between the two sides.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import whence
from soak.kill import BURSTS
from soak.verdict import tell, verdict
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.process import narrator
from whence.live.fleet.task import MemberSpec, Task

MS = 1_000_000
SETTINGS: dict[str, Any] = {"ring_k": 2, "ring_round_ns": 400 * MS, "delta_ns": 100 * MS, "round_ns": 50 * MS}
SETTINGS |= {"time_to_recover": 20.0, "time_to_terminate": 2.0}
"""Short rounds, so that everybody notices a partition of some seconds; recovery timeouts as in production."""


async def soak(
    home: Path,
    *,
    members: int = 6,
    cuts: Sequence[Sequence[int]] = (),
    seconds: float = 10.0,
    rate: float = 20.0,
    order: str = "reliable",
    settings: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Run the soak. Each of `cuts` are members that are partitioned for `seconds`; by default the last two, the first
    two, and half of them, which leaves no quorum and so no tickets."""
    cuts = cuts or ((members - 2, members - 1), (0, 1), tuple(range(members // 2, members)))
    noticed, merged, again = [], [], []
    async with Fleet(home, traced=home / "trace") as fleet:
        for n in range(members):
            spec = MemberSpec(order=order, directory=str(home / f"disk{n}"), seen=str(home / f"seen{n}"), rate=rate)
            fleet.member(Task(cluster="soak", members=[spec], bursts=BURSTS, settings={**SETTINGS, **(settings or {})}))
        await fleet.start()
        await fleet.until("one cluster", lambda looks: all(k["members"] == members for k in looks), 30.0)
        await fleet.until("tickets", lambda looks: sum(k["ticket"] is not None for k in looks) >= members - 1, 60.0)
        for apart in cuts:
            await fleet.cut(apart)
            say(f"cut off: {', '.join(fleet.all[n].name for n in apart)}")
            began = time.monotonic()
            all_noticed = False
            while time.monotonic() - began < seconds:
                await asyncio.sleep(0.2)
                all_noticed = all_noticed or all(look["members"] < members for look in await fleet.looks())
            noticed.append(all_noticed)
            await fleet.heal()
            began = time.monotonic()
            await fleet.until("merged unaided", lambda looks: all(k["members"] == members for k in looks), 60.0)
            merged.append(round(time.monotonic() - began, 1))
            say(f"healed, and one cluster again after {merged[-1]:g} s")
            began = time.monotonic()  # also after a partition in which all lost their tickets (docs/ring.md)
            await fleet.until("tickets again", lambda looks: all(k["ticket"] is not None for k in looks), 90.0)
            again.append(round(time.monotonic() - began, 1))
        await fleet.ask("hush")
        say("the load has ended; waiting until nothing changes")
        still, looks = await fleet.quiet()
        await fleet.kill()  # a member that leaves is judged less strictly
    found = verdict(fleet)
    return {
        **found,
        "ok": found["ok"] and still and found["published"] > 0,
        "cuts": [list(apart) for apart in cuts],
        "seconds_each": seconds,
        "noticed_by_all": noticed,
        "merged_after_s": merged,
        "all_publish_again_after_s": again,
        "survivors_agree": len({look["clock"] for look in looks}) == 1 and not found["disagreements"],
        "quiet_at_the_end": still,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.partition", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each cut")
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second of each process")
    parser.add_argument("--keep", type=Path, help="keep traces and journals in this directory")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = args.keep or Path(tempfile.mkdtemp(prefix="whence-soak-"))
    try:
        work = soak(home, members=args.members, seconds=args.seconds, rate=args.rate, say=narrator())
        result = whence.run(work)
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    return tell(args.json, result)


if __name__ == "__main__":
    sys.exit(main())
