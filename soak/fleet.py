"""Processes of a soak from outside: start, kill, ask, wait until nothing moves; and the verdict on what they left."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from soak.member import Task
from whence.errors import WhenceError
from whence.judge import judge
from whence.judge.promises import REUSED_ID, TWO_OWNERS
from whence.trace import Row, read

ROOT = Path(__file__).parent.parent
MS = 1_000_000
ANSWER_S = 20.0


class SoakFailed(WhenceError):
    """A process did not do what it has to, so that there is nothing to judge."""


class Seat:
    """A place in the cluster: one address, one directory, one process after another."""

    def __init__(self, number: int, task: Task, prefix: Sequence[str] = ()) -> None:
        self.number = number
        self.task = task
        self.prefix = list(prefix)
        """Before the command: in which network namespace it runs."""
        self.address = ""
        self.me = ""
        self.lives = 0
        self.refused = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self, seeds: Sequence[str], **more: Any) -> dict[str, Any]:
        """A new life; returns when it has joined."""
        task = msgspec.structs.replace(self.task, seeds=list(seeds), **more)
        if self.address:
            task.listen = self.address
        self.lives += 1
        self._process = await asyncio.create_subprocess_exec(
            *self.prefix,
            sys.executable,
            "-m",
            "soak.member",
            msgspec.json.encode(task).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            limit=1 << 22,
        )
        look = await self._answer()
        self.address, self.me = look["address"], look["me"]
        return look

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        if self.alive:
            self._process.kill()
        await self._process.wait()

    async def ask(self, command: str) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(self.task.timeout + ANSWER_S):
            line = await self._process.stdout.readline()
        if not line:
            raise SoakFailed(f"process {self.number} ended with {await self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@dataclass
class Fleet:
    """All seats of a soak."""

    home: Path
    seats: list[Seat] = field(default_factory=list)
    refounded: int = 0

    def add(self, task: Task, *, prefix: Sequence[str] = (), durable: bool = True) -> Seat:
        number = len(self.seats)
        task = msgspec.structs.replace(
            task,
            directory=str(self.home / f"disk{number}") if durable else None,
            trace=str(self.home / "trace"),
            seen=str(self.home / f"seen{number}"),
        )
        seat = Seat(number, task, prefix)
        self.seats.append(seat)
        return seat

    async def start(self) -> None:
        """The first founds, the others join it."""
        await self.seats[0].start([], found=True)
        await asyncio.gather(*(seat.start([self.seats[0].address]) for seat in self.seats[1:]))

    def others(self, seat: Seat) -> list[str]:
        return [s.address for s in self.seats if s is not seat and s.address]

    async def look(self, command: str = "look") -> list[dict[str, Any]]:
        """Ask everybody who is alive."""
        return list(await asyncio.gather(*(seat.ask(command) for seat in self.seats if seat.alive)))

    async def until(self, what: str, condition: Any, limit: float) -> list[dict[str, Any]]:
        """Ask until the answers are as wanted."""
        deadline = time.monotonic() + limit
        while True:
            looks = await self.look()
            if condition(looks):
                return looks
            if time.monotonic() > deadline:
                said = [{k: v for k, v in look.items() if k != "stats"} for look in looks]
                raise SoakFailed(f"{what}: not within {limit:g} s: {json.dumps(said, indent=1)}")
            await asyncio.sleep(0.1)

    async def quiet(self, limit: float = 60.0, still: float = 1.5) -> tuple[bool, list[dict[str, Any]]]:
        """Wait until all have delivered the same and nothing has moved for a while; whether that came to be."""
        deadline = time.monotonic() + limit
        since, last = time.monotonic(), ""
        while time.monotonic() < deadline:
            looks = await self.look()
            clocks = {look["clock"] for look in looks}
            state = json.dumps([[look["clock"], look["held"], look["backlog"]] for look in looks])
            if state != last or len(clocks) > 1 or any(look["held"] or look["backlog"] for look in looks):
                since, last = time.monotonic(), state
            elif time.monotonic() - since >= still:
                return True, looks
            await asyncio.sleep(0.1)
        return False, looks

    async def end(self) -> None:
        for seat in self.seats:
            if seat.alive:
                await seat.kill()

    # -- the verdict ----------------------------------------------------------------------------------------------

    def rows(self) -> tuple[list[Row], int]:
        """All traces, and how many ended in half a line: what a killed process was still writing, and had not acted
        upon."""
        reader = read(self.home / "trace", on_bad="collect")
        rows = list(reader)
        for error in reader.bad:
            if "truncated" not in str(error):
                raise error
        return rows, reader.bad_count

    def verdict(self) -> dict[str, Any]:
        """What the judge found, and what the applications say."""
        rows, half = self.rows()
        report = judge(rows)
        twice, skipped = self._applications(rows)
        return {
            "ok": report.ok and not twice and not skipped,
            "rows": len(rows),
            "half_lines": half,
            "published": report.published,
            "deliveries": report.total.deliveries,
            "inversions": report.total.inverted,
            "repeated_ids": report.broken.get(REUSED_ID, 0),
            "delivered_twice": report.total.duplicates,
            "over_gap": report.total.over_gap,
            "disagreements": report.total.disagreements,
            "lost_of_live": report.total.lost_of_live,
            "lives": len(report.members),
            "survivors": len(report.live),
            "tenures": report.tenures,
            "owned_twice": [str(f) for f in report.findings if f.rule == TWO_OWNERS],
            "seen_twice_by_application": twice,
            "skipped_by_application": skipped,
            "broken": report.broken,
            "findings": [str(finding) for finding in report.findings],
        }

    def _applications(self, rows: list[Row]) -> tuple[list[str], list[str]]:
        """What an application saw twice (but for the one event it had in hand when its process was killed), and what
        its member says it delivered and the application never saw."""
        twice: list[str] = []
        skipped: list[str] = []
        delivered = _handed_on(rows)
        for seat in self.seats:
            path = Path(seat.task.seen or "")
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
            known: dict[str, None] = {}
            last, fresh = "", False
            for line in lines:
                event = line.decode()
                if not event:
                    fresh = True
                    continue
                if event in known and not (fresh and event == last):
                    twice.append(f"{seat.address}: {event}")
                known[event] = None
                last, fresh = event, False
            mine = delivered.get(seat.address, {})
            skipped += [f"{seat.address}: {event}" for event in mine if event not in known]
        return twice[:20], skipped[:20]


def _handed_on(rows: list[Row]) -> dict[str, dict[str, None]]:
    """Address -> the events that its applications were given: what a life delivered after the checkpoint that the next
    one goes on from was never handed on."""
    resumed = {row.token for row in rows if row.kind == "join" and row.reason == "checkpoint"}
    since: dict[str, list[str]] = {}
    handed: dict[str, dict[str, None]] = {}
    last = {row.member.rpartition("#")[0]: row.member for row in sorted(rows, key=lambda r: r.t_ns)}
    for row in sorted(rows, key=lambda r: (r.member, r.lseq)):
        if row.kind == "deliver" and row.event is not None:
            since.setdefault(row.member, []).append(row.event)
        elif row.kind == "snapshot" and row.token in resumed:
            handed.setdefault(row.member.rpartition("#")[0], {}).update(dict.fromkeys(since.pop(row.member, [])))
    for address, member in last.items():
        handed.setdefault(address, {}).update(dict.fromkeys(since.get(member, [])))
    return handed


def secret() -> str:
    return os.urandom(32).hex()


def tell(args_json: bool, result: dict[str, Any]) -> int:
    """The result for people or for machines; the exit code."""
    if args_json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            if isinstance(value, dict | list):
                value = json.dumps(value, indent=2) if value else "none"
            print(f"{name.replace('_', ' '):28} {value}")
    return 0 if result["ok"] else 1
