"""The child's end of a fleet's channel: its task and requests on standard input, replies on standard output.

What a program prints goes to standard error, so the channel carries only replies.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from whence.errors import ClusterClosed, WhenceError
from whence.live.api import run
from whence.live.fleet.task import LINE_BYTES

T = TypeVar("T")
CANNOT_GO_ON = 2
"""The exit code of a child that reports an error."""


class Channel:
    """A child program's connection to its fleet."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._requests = asyncio.StreamReader(limit=LINE_BYTES)

    async def open(self) -> bytes:
        """Start to listen. Returns the task."""
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._requests), sys.stdin)
        return await self._requests.readline()

    def ready(self, about: object) -> None:
        """Reply to the task."""
        self._say({"id": 0, "ok": about})

    def failed(self, why: str) -> None:
        """Report why the child ends."""
        with suppress(OSError):
            self._say({"id": None, "error": why})

    async def serve(self, commands: Mapping[str, Callable[..., Any]], *work: Coroutine[Any, Any, None]) -> None:
        """Answer requests until the input ends, and run `work` meanwhile. An error in either is raised."""
        tasks = [asyncio.ensure_future(one) for one in (self._serve(commands), *work)]
        try:
            while not tasks[0].done():
                done, _ = await asyncio.wait(
                    [task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, commands: Mapping[str, Callable[..., Any]]) -> None:
        while line := await self._requests.readline():
            request: dict[str, Any] = json.loads(line)
            number, do = request.pop("id"), request.pop("do")
            found = commands[do](**request)
            self._say({"id": number, "ok": await found if inspect.isawaitable(found) else found})

    def _say(self, what: object) -> None:
        left = memoryview(msgspec.json.encode(what) + b"\n")
        while left:
            left = left[os.write(self._answers, left) :]


def program(main: Callable[[T, Channel], Coroutine[Any, Any, None]], task: type[T]) -> None:
    """Run a child program. A WhenceError or OSError is reported to the fleet in one line; others leave a traceback."""
    logging.getLogger("whence").addHandler(logging.NullHandler())  # errors are reported on the channel
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    async def whole() -> int:
        channel = Channel(answers)
        line = await channel.open()
        try:
            if line:
                await main(msgspec.json.decode(line, type=task), channel)
        except (WhenceError, OSError) as error:
            channel.failed(str(error.__cause__ or error if isinstance(error, ClusterClosed) else error))
            return CANNOT_GO_ON
        return 0

    sys.exit(run(whole()))
