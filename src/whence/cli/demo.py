"""`whence demo`: a live cluster in trouble, audited, and a page to look at.

Real processes on loopback: 25 members in five processes, five of them publishing; messages are lost on purpose, a
process is killed and comes back, a part of the cluster is cut off and heals. Then the audit says whether order broke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console

from whence.api import OrderName
from whence.cli.connect import run_until_stopped
from whence.cli.demo_members import Task
from whence.cli.judged import write_page
from whence.cli.later import missing
from whence.cli.main import INTERRUPTED, parser
from whence.errors import UsageError
from whence.trace import read

PROCESSES = 5
ORDERS: tuple[OrderName, ...] = ("reliable", "causal", "causal", "causal", "unordered")
"""In each process: a publisher that must get everything, three readers, and one that shows what gossip alone gives."""
TICKETS = 8
ABOUT = "live: 25 members in five processes; one in ten gossip messages lost, a kill -9, a partition"
SETTLE_S = 4.0
"""After the load: the last events of each are recovered."""
MARKER = ".whence-demo"
"""A file that says whose directory this is: only such a one is emptied for the next demo."""


class Machine:
    """One process of the demo with its members."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.addresses: list[str] = []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, seeds: Sequence[str]) -> None:
        """Its members join; comes back when all have."""
        task = msgspec.structs.replace(self.task, seeds=list(seeds), addresses=self.addresses)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "whence.cli.demo_members",
            msgspec.json.encode(task).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is ours to handle: the members leave, they are not shot
        )
        self.addresses = await self._answer()

    async def tell(self, *command: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(RuntimeError, ConnectionError):  # whoever has ended left its reason as its last answer
            self._process.stdin.write(" ".join(command).encode() + b"\n")
        await self._answer()

    async def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """Its members leave; if they do not, it is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(15.0):
                await process.wait()
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            raise

    async def _answer(self) -> list[str]:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(60.0):
            line = await self._process.stdout.readline()
        if not line:
            raise UsageError(f"a process of the demo ended with exit code {await self._process.wait()}")
        found: list[str] | dict[str, str] = json.loads(line)
        if isinstance(found, dict):
            raise UsageError(f"a process of the demo cannot go on: {found['error']}")
        return found


def demo(args: argparse.Namespace) -> int:
    """Run it, audit it, write the page. 130 if it was interrupted: then there is no page."""
    _make_room(args.out)
    audited = not args.no_audit and _can_audit()
    if run_until_stopped(_live(args), interrupted=INTERRUPTED) == INTERRUPTED:
        raise KeyboardInterrupt
    if audited:
        try:
            return _audited(args)
        except UsageError as error:  # Spark did not start
            print(f"whence: {error}\nwhence: so the built-in oracle judges, instead of the audit", file=sys.stderr)
    return _judged(args)


def _make_room(out: Path) -> None:
    """An empty directory. What an earlier demo left goes; what anybody else left stays, and is complained about."""
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
        from whence.spark.session import check_java

        check_java()
    except (UsageError, ImportError) as error:
        why = (missing(error) if isinstance(error, ModuleNotFoundError) else None) or error
        print(f"whence: {why}\nwhence: so the built-in oracle will judge, instead of the audit", file=sys.stderr)
        return False
    return True


def _audited(args: argparse.Namespace) -> int:
    """As `whence audit` does it, and its page."""
    audit = parser().parse_args(["audit", str(args.out / "trace"), "--out", str(args.out / "audit")])
    code: int = audit.call(audit)
    _show(args.out / "audit" / "report.html")
    return code


def _show(page: Path) -> None:
    print(f"\nlook at it: {page.resolve().as_uri()}")


def _judged(args: argparse.Namespace) -> int:
    """The page, by the built-in oracle."""
    rows = list(read(args.out / "trace", on_bad="collect"))  # whoever was killed may have left half a line
    page = args.out / "report.html"
    found = write_page(rows, page, title="whence demo", about=ABOUT, command="whence demo --no-audit")
    _show(page)
    return 1 if found.violations else 0


async def _live(args: argparse.Namespace) -> int:
    talk = Console(stderr=True)
    secret = os.urandom(32).hex()
    machines = [
        Machine(
            Task(
                names=[f"{'abcde'[p]}{i}" for i in range(len(ORDERS))],
                orders=list(ORDERS),
                talkers=1,
                secret=secret,
                tickets=TICKETS,
                home=str(args.out),
                loss=args.loss,
                rate=args.rate,
                seed=p,
            )
        )
        for p in range(PROCESSES)
    ]
    began = time.monotonic()

    def say(what: str) -> None:
        talk.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {what}")

    try:
        say(f"starting {PROCESSES} processes with {len(ORDERS)} members each; {args.loss:.0%} of gossip will be lost")
        await machines[0].start([])
        await asyncio.gather(*(m.start(machines[0].addresses[:1]) for m in machines[1:]))
        say("all members have joined; publishers talk and answer each other")
        await _trouble(machines, args.seconds, say)
        await asyncio.gather(*(m.tell("hush") for m in machines))
        say("the load is over; what is still missing is pulled back")
        await asyncio.sleep(SETTLE_S)
    finally:
        await asyncio.gather(*(m.stop() for m in machines), return_exceptions=True)
    say("all members have left")
    return 0


async def _trouble(machines: list[Machine], seconds: float, say: Callable[[str], None]) -> None:
    """A crash and a partition, spread over the time."""
    part = seconds / 10
    await asyncio.sleep(2.5 * part)
    say("kill -9 of a process: five members are gone, one of them a publisher")
    await machines[4].kill()
    await asyncio.sleep(1.5 * part)
    await machines[4].start([m.addresses[0] for m in machines[:4]])
    say("it is back, with what its disk remembers")
    await asyncio.sleep(1.5 * part)
    near = [a for m in machines[:3] + machines[4:] for a in m.addresses]
    far = machines[3].addresses
    await asyncio.gather(*(m.tell("cut", *(near if m is machines[3] else far)) for m in machines))
    say("a cut: five members hear nothing from the other twenty")
    await asyncio.sleep(2 * part)
    await asyncio.gather(*(m.tell("heal") for m in machines))
    say("the cut is healed; they find each other by themselves")
    await asyncio.sleep(2.5 * part)
