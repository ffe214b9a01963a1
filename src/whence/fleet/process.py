"""The parent's end: a supervised child process, and a group of them that never outlives its block.

The channel is the child's standard input and output, one JSON object a line. The first line to the child is its task,
each further one a request `{"id", "do", ...}`; each is answered by `{"id", "ok"}` or `{"id", "error"}`. The end of its
input tells the child to stop, so a child also ends when this process is killed. Its standard error is kept for error
messages (the end of it).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
from rich.console import Console

from whence.errors import FleetError
from whence.fleet.task import LINE_BYTES

START_S: Final = 60.0
"""Seconds for a process to become ready."""
ANSWER_S: Final = 50.0
"""Seconds for an answer, unless said otherwise."""
STOP_S: Final = 15.0
"""Seconds for a process to stop after its input ended; then it is killed."""
TAIL_BYTES: Final = 2000
"""How much of the end of a child's standard error an error message shows."""


class Process:
    """One child process. It may be started again after its end, under the same name."""

    def __init__(
        self,
        name: str,
        module: str,
        *,
        label: str = "",
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        """How error messages and people call it."""
        self.command = [*prefix, sys.executable, "-m", module, label or name]
        """`label` is for people who look at a list of processes; no secret is on the command line."""
        self.starts = 0
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._tail = b""
        self._errors: asyncio.Task[None] | None = None
        self._ready = False
        self._swept = True
        """Nothing of its process group is left."""
        self._asking = asyncio.Lock()
        self._requests = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def ending(self) -> str:
        """How its last life ended, in words."""
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "is running" if self.alive else "was never started"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    async def start(self, task: object, timeout: float = START_S) -> Any:
        """Start it, hand over its task, and wait until it is ready. Returns what it says then."""
        if self.alive:
            raise FleetError(f"{self.name} is running already: stop or kill it first")
        self.starts += 1
        self._tail, self._ready, self._swept = b"", False, False
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._cwd,
            limit=LINE_BYTES,
            start_new_session=True,  # Ctrl-C reaches only us; what the child starts is in its group and dies with it
        )
        self._errors = asyncio.create_task(self._keep_tail(self._process))
        about = await self._exchange(msgspec.json.encode(task), 0, f"become ready within {timeout:g} s", timeout)
        self._ready = True
        return about

    async def ask(self, do: str, *, timeout: float = ANSWER_S, **fields: object) -> Any:
        """One request, and its answer. Raises FleetError if there is none in time."""
        self._requests += 1
        number = self._requests
        request = json.dumps({"id": number, "do": do, **fields}).encode()
        return await self._exchange(request, number, f"answer {do!r} within {timeout:g} s", timeout)

    async def _exchange(self, line: bytes, number: int, what: str, timeout: float) -> Any:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise FleetError(f"{self.name} was never started")
        try:
            async with asyncio.timeout(timeout), self._asking:
                with suppress(ConnectionError, RuntimeError):  # it has ended: its last answer says why
                    process.stdin.write(line + b"\n")
                    await process.stdin.drain()
                while True:
                    text = await process.stdout.readline()
                    if not text:
                        await self._gone(process)
                        raise FleetError(self.last_words)
                    answer = json.loads(text)
                    if answer["id"] is None or answer["id"] == number:  # else: too late for one that gave up waiting
                        break
        except TimeoutError:
            raise FleetError(self._with_tail(f"{self.name} (pid {process.pid}) did not {what}")) from None
        if "error" in answer:
            raise FleetError(f"{self.name} cannot go on: {answer['error']}")
        return answer["ok"]

    @property
    def last_words(self) -> str:
        """How it ended, and the end of its output."""
        return self._with_tail(f"{self.name} {self.ending}")

    def _with_tail(self, what: str) -> str:
        text = self._tail.decode("utf-8", "replace").strip()
        return f"{what}; its output ends with:\n{text}" if text else f"{what}; it wrote nothing to standard error"

    async def _keep_tail(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(TAIL_BYTES):
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    async def _gone(self, process: asyncio.subprocess.Process) -> None:
        """Wait for its end, and end what it has started and left behind."""
        await process.wait()
        self.kill_now()
        self._swept = True
        if self._errors is not None:
            await asyncio.wait([self._errors], timeout=1.0)
            self._errors.cancel()

    async def kill(self) -> None:
        """SIGKILL to it and to all that it has started."""
        self.kill_now()
        if self._process is not None:
            await self._gone(self._process)

    def kill_now(self) -> None:
        """The same without waiting."""
        if self._process is not None and not self._swept:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self, timeout: float = STOP_S) -> bool:
        """End its input and wait; whether it ended by itself. One that is stuck, or not ready yet, is killed."""
        process = self._process
        if process is None or self._swept:
            return True
        assert process.stdin is not None and process.stdout is not None
        try:
            if not self._ready:
                return False
            process.stdin.close()
            async with asyncio.timeout(timeout):
                while await process.stdout.read(TAIL_BYTES):  # answers that nobody waits for any more
                    pass
                await process.wait()
            return True
        except TimeoutError:
            return False
        finally:
            await self.kill()


P = TypeVar("P", bound=Process)


class Processes(Generic[P]):
    """A group of processes: `async with Processes() as group`. However the block is left (an exception, Ctrl-C, a
    second Ctrl-C), none of them is left behind."""

    def __init__(self, stop_s: float = STOP_S) -> None:
        self.all: list[P] = []
        self._stop_s = stop_s

    def add(self, process: P) -> P:
        self.all.append(process)
        return process

    async def ask(self, do: str, *, timeout: float = ANSWER_S, **fields: object) -> list[Any]:
        """The same request to all that are alive, at the same time; their answers."""
        return await together(p.ask(do, timeout=timeout, **fields) for p in self.all if p.alive)

    async def stop(self) -> list[str]:
        """Stop all; the names of those that had to be killed."""
        clean = await asyncio.gather(*(p.stop(self._stop_s) for p in self.all))
        return [p.name for p, by_itself in zip(self.all, clean, strict=True) if not by_itself]

    async def kill(self) -> None:
        """SIGKILL to all."""
        await asyncio.gather(*(p.kill() for p in self.all))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:  # also when this is cancelled
            for process in self.all:
                process.kill_now()


async def together(work: Iterable[Any]) -> list[Any]:
    """All of it at the same time. The first error ends the rest, and is raised as it is, not in a group."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def narrator() -> Callable[[str], None]:
    """Progress for people, on standard error: seconds since now, and what happens."""
    talk, began = Console(stderr=True), time.monotonic()

    def say(what: str) -> None:
        talk.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {what}")

    return say
