"""A cluster spread over processes: start, kill, restart, partition, wait, collect traces."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from whence.audit.trace import Row, read
from whence.errors import FleetError
from whence.live.fleet.process import START_S, Child, Children
from whence.live.fleet.task import PlanStep, Task

LOOK_S: Final = 0.1
"""Polling interval in seconds."""
ATTEMPTS: Final = 5
"""How often to start a killed process: on a busy machine a start may time out."""

Look = dict[str, Any]


class Members(Child):
    """A process with members of the cluster. After a restart they have the same addresses."""

    def __init__(self, number: int, task: Task, module: str, **how: Any) -> None:
        super().__init__(f"process {number}", module, **how)
        self.number = number
        self.task = task
        self.addresses: list[str] = []
        self.me: list[str] = []
        self.killed: dict[str, int] = {}
        """Member -> when it was killed, ns since 1970."""

    async def join(self, contacts: Iterable[str], *, found: bool = False) -> None:
        """Start the process; returns when its members have joined."""
        seed = self.task.seed + 1000 * self.starts  # other random losses after a restart
        task = msgspec.structs.replace(self.task, contacts=list(contacts), found=found, seed=seed)
        about = await self.start(task, self.task.timeout * len(task.members) + START_S)
        self.addresses = [one["address"] for one in about]
        self.me = [one["me"] for one in about]
        for spec, address in zip(self.task.members, self.addresses, strict=True):
            spec.listen = address

    async def kill(self) -> None:
        was_alive = self.alive
        await super().kill()
        if was_alive:
            self.killed |= dict.fromkeys(self.me, time.time_ns())


class Fleet(Children[Members]):
    """The processes of one cluster; the first one founds it. Their files are under `home`."""

    def __init__(self, home: Path, *, traced: Path | None = None) -> None:
        super().__init__()
        self.home = home
        self.traced = traced
        """Directory of the traces; None: no traces."""
        self.secret = secrets.token_hex(32)
        self.retries = 0
        """How often the start of a killed process was retried."""

    def member(self, task: Task, module: str = "whence.live.fleet.member", cwd: Path | None = None) -> Members:
        """Add a process. The fleet completes its task (secret, trace, seed, addresses)."""
        number = len(self.all)
        trace = None if self.traced is None else str(self.traced)
        task = msgspec.structs.replace(task, secret=self.secret, trace=trace, seed=task.seed + number)
        return self.add(Members(number, task, module, label=str(self.home), cwd=cwd))

    async def start(self) -> None:
        """The first process founds; then all others join at the same time."""
        await self.all[0].join([], found=True)
        await self.together(one.join(self.all[0].addresses[:1]) for one in self.all[1:])

    def others(self, one: Members) -> list[str]:
        """One address of each other live process, as contacts."""
        return [other.addresses[0] for other in self.all if other is not one and other.alive and other.addresses]

    async def restart(self, one: Members, *, found: bool = False) -> None:
        """Start an ended process, with retries, until it has joined."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await one.join(self.others(one), found=found)
                return
            except FleetError:
                await one.kill()
                if attempt == ATTEMPTS:
                    raise
                self.retries += 1

    async def run(self, plan: Iterable[PlanStep], tell: Callable[[str], None] = lambda what: None) -> None:
        """Carry out a plan."""
        for step in plan:
            await self.carry_out(step, tell)

    async def carry_out(self, step: PlanStep, tell: Callable[[str], None] = lambda what: None) -> None:
        await self.together([asyncio.sleep(step.after)])
        some = [self.all[number] for number in step.processes]
        match step.do:
            case "kill":
                await asyncio.gather(*(one.kill() for one in some))
            case "start":
                await asyncio.gather(*(self.restart(one, found=one.number == 0) for one in some))
            case "cut":
                await self.cut(step.processes)
            case "heal":
                await self.heal()
        if step.say:
            tell(step.say)

    async def cut(self, apart: Sequence[int]) -> None:
        """Partition these processes from the others, in the members' transports."""
        islands: dict[bool, list[str]] = {True: [], False: []}
        for one in self.all:
            islands[one.number in apart] += one.addresses
        await self.ask("cut", islands=list(islands.values()))

    async def heal(self) -> None:
        """End the partition."""
        await self.ask("heal")

    # -- waiting --------------------------------------------------------------------------------------------------

    async def looks(self) -> list[Look]:
        """The state of every live member."""
        return [look for of_one in await self.ask("look", deep=True) for look in of_one]

    async def until(self, what: str, condition: Callable[[list[Look]], bool], limit: float) -> list[Look]:
        """Poll until the condition holds; raises FleetError with the last state after `limit` seconds."""
        deadline = time.monotonic() + limit
        while True:
            looks = await self.looks()
            if condition(looks):
                return looks
            if time.monotonic() > deadline:
                said = [{k: v for k, v in look.items() if k != "stats"} for look in looks]
                raise FleetError(f"{what}: not within {limit:g} s: {json.dumps(said, indent=1)}")
            await asyncio.sleep(LOOK_S)

    async def quiet(self, limit: float = 60.0, still: float = 1.5) -> tuple[bool, list[Look]]:
        """Wait until all members have delivered the same and nothing changes for a while; whether that happened."""
        deadline = time.monotonic() + limit
        since, last = time.monotonic(), ""
        while True:
            looks = await self.looks()
            state = json.dumps([[look["clock"], look["held"], look["backlog"]] for look in looks])
            busy = any(look["held"] or look["backlog"] for look in looks)
            if state != last or busy or len({look["clock"] for look in looks}) > 1:
                since, last = time.monotonic(), state
            elif time.monotonic() - since >= still:
                return True, looks
            if time.monotonic() > deadline:
                return False, looks
            await asyncio.sleep(LOOK_S)

    # -- collecting -----------------------------------------------------------------------------------------------

    def killed(self) -> dict[str, int]:
        """Member -> when it was killed, ns since 1970."""
        return {member: when for one in self.all for member, when in one.killed.items()}

    def rows(self) -> tuple[list[Row], int]:
        """All rows, and the number of truncated last lines, which killed processes were still writing."""
        if self.traced is None:
            raise FleetError("this fleet has no traces: give it a directory for them")
        reader = read(self.traced, on_bad="collect")
        rows = list(reader)
        for error in reader.bad:
            if "truncated" not in str(error):
                raise error
        return rows, reader.bad_count
