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
from collections.abc import Callable, Coroutine, Iterable, Sequence
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
        self.fault: FleetError | None = None
        """Why its last life ended, unless we ended it."""
        self.on_fault: Callable[[], None] = lambda: None
        self._tail = b""
        self._readers: list[asyncio.Task[None]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._told = False
        """We have stopped or killed it."""
        self._ready = False
        self._swept = True
        """Nothing of its process group is left."""
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
        self._tail, self._told, self._ready, self._swept, self.fault = b"", False, False, False, None
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._cwd,
            limit=LINE_BYTES,
            start_new_session=True,  # Ctrl-C reaches only us; what the child starts is in its group and dies with it
        )
        errors = asyncio.create_task(self._keep_tail(self._process))
        self._readers = [errors, asyncio.create_task(self._read(self._process, errors))]
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
        if process is None or process.stdin is None:
            raise FleetError(f"{self.name} was never started")
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                with suppress(ConnectionError, RuntimeError):  # it has ended: the reader knows why
                    process.stdin.write(line + b"\n")
                    await process.stdin.drain()
                if self._readers[1].done():
                    raise self.fault or FleetError(self.last_words)
                return await answer
        except TimeoutError:
            raise FleetError(self._with_tail(f"{self.name} (pid {process.pid}) did not {what}")) from None
        finally:
            del self._waiting[number]

    async def _read(self, process: asyncio.subprocess.Process, errors: asyncio.Task[None]) -> None:
        """Its answers, and its end."""
        assert process.stdout is not None
        reason = ""
        while line := await process.stdout.readline():
            answer = json.loads(line)
            if answer["id"] is None:
                reason = answer["error"]
            elif (waiting := self._waiting.get(answer["id"])) is not None and not waiting.done():
                waiting.set_result(answer["ok"])  # else it came too late
        await process.wait()
        self.kill_now()  # what it has started and left behind
        self._swept = True
        await asyncio.wait([errors], timeout=1.0)
        errors.cancel()
        fault = FleetError(f"{self.name} cannot go on: {reason}" if reason else self.last_words)
        if not self._told:
            self.fault = fault
            self.on_fault()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(fault)

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

    async def kill(self) -> None:
        """SIGKILL to it and to all that it has started."""
        self._told = True
        self.kill_now()
        await self._end()

    async def _end(self) -> None:
        if self._readers:
            await asyncio.wait(self._readers)

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
        assert process.stdin is not None
        self._told = True
        try:
            if not self._ready:
                return False
            process.stdin.close()
            async with asyncio.timeout(timeout):
                await self._end()
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
        self._fault = asyncio.Event()

    def add(self, process: P) -> P:
        self.all.append(process)
        process.on_fault = self._fault.set
        return process

    async def ask(self, do: str, *, timeout: float = ANSWER_S, **fields: object) -> list[Any]:
        """The same request to all that are alive, at the same time; their answers."""
        return await self.together(p.ask(do, timeout=timeout, **fields) for p in self.all if p.alive)

    async def together(self, work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """All of it at the same time. The first error ends the rest. So does a process that has ended by itself: what
        the others would come to say, much later, is only that they cannot reach it."""
        tasks = [asyncio.ensure_future(one) for one in work]
        watch = asyncio.ensure_future(self._watch())
        try:
            left = set(tasks)
            while left:
                await asyncio.wait({*left, watch}, return_when=asyncio.FIRST_COMPLETED)
                for task in [watch, *left]:
                    if task.done():
                        task.result()
                        left.discard(task)
            return [task.result() for task in tasks]
        finally:
            for task in [watch, *tasks]:
                task.cancel()
            await asyncio.gather(watch, *tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while not (faults := [p.fault for p in self.all if p.fault is not None]):
            self._fault.clear()
            await self._fault.wait()
        raise faults[0]

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


def narrator() -> Callable[[str], None]:
    """Progress for people, on standard error: seconds since now, and what happens."""
    talk, began = Console(stderr=True), time.monotonic()

    def say(what: str) -> None:
        talk.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {what}")

    return say
