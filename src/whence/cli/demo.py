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

from whence.audit.trace import read
from whence.cli import DOUBT, INTERRUPTED, call, missing
from whence.cli.connect import run_until_stopped
from whence.cli.judged import write_page
from whence.cli.parser import parser
from whence.errors import UsageError
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.plan import Step
from whence.live.fleet.process import narrator
from whence.live.fleet.task import MemberSpec, Task

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
ABOUT = "live: 25 members in five processes; one in ten gossip messages lost, a kill -9, a partition"
SETTLE_S = 4.0
"""After the load: the last events of each are recovered."""
MARKER = ".whence-demo"
"""A file that says whose directory this is: only such a one is emptied for the next demo."""


def demo(args: argparse.Namespace) -> int:
    """Run it, audit it, write the page. 130 if it was interrupted: then there is no page."""
    args.out = Path(args.out)
    _make_room(args.out)
    audited = args.engine == "spark" and _can_audit()
    if run_until_stopped(_live(args), interrupted=INTERRUPTED) == INTERRUPTED:
        raise KeyboardInterrupt
    if audited:
        try:
            return _audited(args)
        except UsageError as error:  # Spark did not start
            print(f"whence: {error}\nwhence: so the built-in oracle judges, instead of the audit", file=sys.stderr)
    return _judged(args)


def _make_room(out: Path) -> None:
    """Empty the directory if an earlier demo made it; refuse any other that is not empty."""
    try:
        if (out / MARKER).exists():
            shutil.rmtree(out)
        elif out.is_dir() and any(out.iterdir()):
            raise UsageError(f"{out} is not empty, and not of an earlier demo: give another --out, or remove it")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARKER).write_text("made by `whence demo`, which empties this directory each time\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be used ({error.strerror or error}): give another --out") from None


def _can_audit() -> bool:
    """Asked before the members start: half a minute later is late to say what is missing."""
    if os.environ.get("SPARK_REMOTE"):
        return True  # Java is needed there, not here
    try:
        from whence.audit.spark.session import check_java

        check_java()
    except (UsageError, ImportError) as error:
        why = missing(error, "spark") if isinstance(error, ModuleNotFoundError) else error
        print(f"whence: {why}\nwhence: so the built-in oracle will judge, instead of the audit", file=sys.stderr)
        return False
    return True


def _audited(args: argparse.Namespace) -> int:
    """As `whence audit`, with its page. Members were killed, so something may be in doubt; that is no failure."""
    audit = parser().parse_args(["audit", str(args.out / "trace"), "--out", str(args.out / "audit")])
    code = call(audit)
    _show(args.out / "audit" / "report.html")
    return 0 if code == DOUBT else code


def _show(page: Path) -> None:
    print(f"\nlook at it: {page.resolve().as_uri()}")


def _judged(args: argparse.Namespace) -> int:
    """The page, by the built-in oracle."""
    rows = list(read(args.out / "trace", on_bad="collect"))  # a killed process may have left half a line
    page = args.out / "report.html"
    found = write_page(rows, page, title="whence demo", about=ABOUT, command="whence demo --engine local")
    _show(page)
    return 1 if found.violations else 0


async def _live(args: argparse.Namespace) -> int:
    say = narrator()
    async with Fleet(args.out, traced=args.out / "trace") as fleet:
        for process in "abcde"[:PROCESSES]:
            members = [
                MemberSpec(order=order, directory=str(args.out / f"{process}{i}")) for i, order in enumerate(ORDERS)
            ]
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


def _trouble(seconds: float) -> list[Step]:
    """A crash and a partition, spread over the time."""
    part = seconds / 10
    return [
        Step(2.5 * part, "kill", (4,), "kill -9 of a process: five members are gone, one of them a publisher"),
        Step(1.5 * part, "start", (4,), "it is back, with what its disk remembers"),
        Step(1.5 * part, "cut", (3,), "a cut: five members hear nothing from the other twenty"),
        Step(2.0 * part, "heal", say="the cut is healed; they find each other by themselves"),
        Step(2.5 * part, "wait"),
    ]
