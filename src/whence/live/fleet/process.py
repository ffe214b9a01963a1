"""A supervised child process, and a group of them that ends with its `async with` block.

The channel is the child's standard input and output, one JSON object a line. The first line to the child is its task;
each further one is a request `{"id", "do", ...}`, answered by `{"id", "ok"}` or `{"id", "error"}`. A child stops when
its input ends, so it also stops when this process is killed. The end of its standard error is kept for error messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
from rich.console import Console

from whence.errors import FleetError
from whence.live.fleet.task import LINE_BYTES
from whence.live.net.hello import new_run

RUN: Final = new_run()
"""The `run` in the traces of all processes that this one starts, unless WHENCE_RUN says another."""
START_S: Final = 60.0
"""Seconds for a process to become ready."""
ANSWER_S: Final = 50.0
"""Default seconds for a reply."""
STOP_S: Final = 15.0
"""Seconds for a process to stop after its input ended; then it is killed."""
TAIL_BYTES: Final = 2000
"""How much of the end of a child's standard error an error message shows."""


class Child:
    """One child process. It can be started again after it has ended."""

    def __init__(self, name: str, module: str, *, label: str = "", cwd: Path | None = None) -> None:
        self.name = name
        """Its name in messages."""
        self.command = [sys.executable, "-m", module, label or name]
        """`label` is shown in process lists; the command line contains no secret."""
        self.starts = 0
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self.fault: FleetError | None = None
        """Why it ended, unless we stopped or killed it."""
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
        """None while it is not running."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "is running" if self.alive else "was never started"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    async def start(self, task: object, timeout: float = START_S) -> Any:
        """Start it, send its task, and wait until it is ready. Returns its reply."""
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
            env={**os.environ, "WHENCE_RUN": os.environ.get("WHENCE_RUN") or RUN},
            limit=LINE_BYTES,
            start_new_session=True,  # Ctrl-C reaches only us; its own children are in its process group
        )
        errors = asyncio.create_task(self._keep_tail(self._process))
        self._readers = [errors, asyncio.create_task(self._read(self._process, errors))]
        about = await self._exchange(msgspec.json.encode(task), 0, f"become ready within {timeout:g} s", timeout)
        self._ready = True
        return about

    async def ask(self, do: str, *, timeout: float = ANSWER_S, **fields: object) -> Any:
        """Send a request and return the reply. Raises FleetError on a timeout."""
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
        """Read its replies until it ends."""
        assert process.stdout is not None
        reason = ""
        while line := await process.stdout.readline():
            answer = json.loads(line)
            if answer["id"] is None:
                reason = answer["error"]
            elif (waiting := self._waiting.get(answer["id"])) is not None and not waiting.done():
                waiting.set_result(answer["ok"])  # otherwise it is too late
        await process.wait()
        self.kill_now()  # its remaining children
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
        """How it ended, and the end of its standard error."""
        return self._with_tail(f"{self.name} {self.ending}")

    def _with_tail(self, what: str) -> str:
        text = self._tail.decode("utf-8", "replace").strip()
        return f"{what}; its output ends with:\n{text}" if text else f"{what}; it wrote nothing to standard error"

    async def _keep_tail(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(TAIL_BYTES):
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    async def kill(self) -> None:
        """Send SIGKILL to its process group, and wait."""
        self._told = True
        self.kill_now()
        await self._end()

    async def _end(self) -> None:
        if self._readers:
            await asyncio.wait(self._readers)

    def kill_now(self) -> None:
        """Send SIGKILL to its process group without waiting."""
        if self._process is not None and not self._swept:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self, timeout: float = STOP_S) -> bool:
        """Close its input and wait. Kills it on a timeout, or if it is not ready yet. Returns whether it ended by
        itself."""
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


P = TypeVar("P", bound=Child)


class Children(Generic[P]):
    """A group of processes: `async with Children() as group`. However the block ends (an exception, Ctrl-C, a second
    Ctrl-C), no process is left running."""

    def __init__(self, stop_s: float = STOP_S) -> None:
        self.all: list[P] = []
        self._stop_s = stop_s
        self._fault = asyncio.Event()

    def add(self, process: P) -> P:
        self.all.append(process)
        process.on_fault = self._fault.set
        return process

    async def ask(self, do: str, *, timeout: float = ANSWER_S, **fields: object) -> list[Any]:
        """Send the same request to all live processes; returns their replies."""
        return await self.together(p.ask(do, timeout=timeout, **fields) for p in self.all if p.alive)

    async def together(self, work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines concurrently. The first error cancels the rest. So does a process that ended by itself:
        otherwise the others would only time out much later."""
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
        """Stop all. Returns the names of those that had to be killed."""
        clean = await asyncio.gather(*(p.stop(self._stop_s) for p in self.all))
        return [p.name for p, by_itself in zip(self.all, clean, strict=True) if not by_itself]

    async def kill(self) -> None:
        """Kill all."""
        await asyncio.gather(*(p.kill() for p in self.all))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:  # also when this is cancelled
            for process in self.all:
                process.kill_now()


def narrator() -> Callable[[str], None]:
    """A function that prints progress to standard error, with the seconds since now."""
    talk, began = Console(stderr=True), time.monotonic()

    def say(what: str) -> None:
        talk.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {what}")

    return say
