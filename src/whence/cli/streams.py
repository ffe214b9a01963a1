"""Standard input and output for an event loop: a slow terminal or pipe does not block the loop.

Neither can be waited for by every kind of loop (a file, /dev/null and a terminal differ), so threads do it. They are
daemons: one that is stuck in a read or a write does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from contextlib import suppress
from typing import Final

READ_BYTES: Final = 1 << 16
SMALL: Final = select.PIPE_BUF  # a descriptor that is ready takes so much without blocking (POSIX)


class Lines:
    """Lines from a descriptor, as many at a time as there are. One batch is in flight: then the reading waits."""

    def __init__(self, fd: int, max_line: int) -> None:
        self._fd = fd
        self._max_line = max_line
        self.too_long = 0
        """Lines thrown away because they are longer than `max_line` bytes."""
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[bytes] | None] = asyncio.Queue(1)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def next(self) -> list[bytes] | None:
        """The next lines, without their ends; None at the end of input."""
        batch = await self._batches.get()
        if batch is None:
            self._batches.put_nowait(None)  # for the next call
        return batch

    def _read(self) -> None:
        data, rest = b"\n", b""
        while data:
            data = b""
            with suppress(OSError):  # the terminal is gone
                data = os.read(self._fd, READ_BYTES)
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[: self._max_line + 1]  # enough to know that it is too long
            if not data and rest:
                lines.append(rest)
            good = [line.removesuffix(b"\r") for line in lines if len(line) <= self._max_line]
            self.too_long += len(lines) - len(good)
            if good:
                self._hand_over(good)
        self._hand_over(None)

    def _hand_over(self, batch: list[bytes] | None) -> None:
        putting = self._batches.put(batch)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except RuntimeError:  # the loop is closed
            putting.close()


class PipeWriter:
    """Bytes to a descriptor, in order. `write` waits for the reader at the other end, the loop does not."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._turn = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """Raises BrokenPipeError when the reader has closed the pipe, another OSError when the disk is full."""
        async with self._turn:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if len(data) <= SMALL and select.select([], [self._fd], [], 0)[1]:
                self._write(data, done)
            else:
                threading.Thread(target=self._write, args=(data, done), name="stdout", daemon=True).start()
            await done

    def _write(self, data: bytes, done: asyncio.Future[None]) -> None:
        failed: OSError | None = None
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            error.filename = "standard output"  # a descriptor has no name
            failed = error
        with suppress(RuntimeError):  # the loop is closed
            done.get_loop().call_soon_threadsafe(_settle, done, failed)


def _settle(done: asyncio.Future[None], failed: OSError | None) -> None:
    if not done.done():  # else it was cancelled
        done.set_exception(failed) if failed else done.set_result(None)


def printable(payload: bytes) -> str:
    """Text that cannot move a terminal's cursor, change its colours or reverse its direction."""
    text = payload.decode("utf-8", "replace")
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
