"""`whence demo`: a live cluster in trouble, audited, and a page to look at.

Real processes on loopback: 25 members in five processes, five of them publishing; messages are lost on purpose, a
process is killed and comes back, a part of the cluster is cut off and heals. Then the audit says whether order broke.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from pathlib import Path

from whence.cli import DOUBT, call, missing
from whence.cli.connect import run_until_stopped
from whence.cli.parser import parser
from whence.errors import UsageError
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.process import narrator
from whence.live.fleet.task import MemberSpec, PlanStep, Task

PROCESSES = 5
ORDERS = ("reliable", "causal", "causal", "causal", "unordered")
"""In each process: a publisher that must get everything, three readers, and one that shows what gossip alone gives."""
TICKETS = 8
RATE = 4.0
"""Events a second of each of the five publishers."""
LOSS = 0.1
"""Share of gossip messages that are lost on purpose."""
ANSWERS = 0.4
"""How often a publisher answers what it hears: without answers there would be little causality to break."""
INSTEAD = "so the audit runs in this process, without Spark"
SETTLE_S = 4.0
"""After the load: the last events of each are recovered."""
MARKER = ".whence-demo"
"""A file that says whose directory this is: only such a one is emptied for the next demo."""


def demo(args: argparse.Namespace) -> int:
    """Run it, audit it, write the page. 130 if it was interrupted: then there is no page."""
    args.out = Path(args.out)
    _make_room(args.out)
    if args.live:
        from whence.cli.show_live import show

        return show(args.http, args.out)
    engine = _engine(args.engine)
    run_until_stopped(_live(args), unfinished=True)
    try:
        return _audited(args.out, engine)
    except UsageError as error:
        if engine == "local":
            raise
        print(f"whence: {error}\nwhence: {INSTEAD}", file=sys.stderr)  # Spark did not start
        return _audited(args.out, "local")


def _make_room(out: Path) -> None:
    """Empty the directory if an earlier demo made it; refuse any other that is not empty."""
    if (out / MARKER).exists():
        shutil.rmtree(out)
    elif out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out} is not an empty directory, and not of an earlier demo: give another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("made by `whence demo`, which empties this directory each time\n", encoding="utf-8")


def _engine(wanted: str) -> str:
    """The engine that can run here. Checked before the members start, not half a minute later."""
    try:
        import numba  # noqa: F401

        if wanted == "spark" and not os.environ.get("SPARK_REMOTE"):  # then Java is needed there, not here
            from whence.audit.spark.session import find_java

            find_java()
    except ModuleNotFoundError as error:
        raise missing(error, "spark" if wanted == "spark" else "scale,trace") from None
    except UsageError as error:
        print(f"whence: {error}\nwhence: {INSTEAD}", file=sys.stderr)
        return "local"
    return wanted


def _audited(out: Path, engine: str) -> int:
    """As `whence audit`, with its page. Members were killed, so something may be in doubt; that is no failure."""
    code = call(parser().parse_args(["audit", str(out / "trace"), "--out", str(out / "audit"), "--engine", engine]))
    print(f"\nlook at it: {(out / 'audit' / 'report.html').resolve().as_uri()}")
    return 0 if code == DOUBT else code


async def _live(args: argparse.Namespace) -> int:
    say = narrator()
    async with Fleet(args.out, traced=args.out / "trace") as fleet:
        for process in range(PROCESSES):
            homes = [str(args.out / f"{'abcde'[process]}{i}") for i in range(len(ORDERS))]
            members = [MemberSpec(order=order, directory=home) for order, home in zip(ORDERS, homes, strict=True)]
            members[0].rate = RATE
            fleet.member(Task(cluster="demo", members=members, tickets=TICKETS, drop=LOSS, answers=ANSWERS))
        say(f"starting {PROCESSES} processes with {len(ORDERS)} members each; {LOSS:.0%} of gossip will be lost")
        await fleet.start()
        say("all members have joined; publishers talk and answer each other")
        await fleet.run(_trouble(args.seconds), say)
        await fleet.ask("hush")
        say("the load is over; what is still missing is pulled back")
        await asyncio.sleep(SETTLE_S)
    say("all members have left")
    return 0


def _trouble(seconds: float) -> list[PlanStep]:
    """A crash and a partition, spread over the time."""
    part = seconds / 10
    return [
        PlanStep(2.5 * part, "kill", (4,), "kill -9 of a process: five members are gone, one of them a publisher"),
        PlanStep(1.5 * part, "start", (4,), "it is back, with what its disk remembers"),
        PlanStep(1.5 * part, "cut", (3,), "a cut: five members hear nothing from the other twenty"),
        PlanStep(2.0 * part, "heal", say="the cut is healed; they find each other by themselves"),
        PlanStep(2.5 * part, "wait"),
    ]
