"""Standard input and output for an event loop: a slow terminal or pipe does not block the loop.

Neither can be waited for by every kind of loop (a file, /dev/null and a terminal differ), so each has a thread, which
is a daemon: one that is stuck in a read or a write does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        self._batches: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        self._taken = threading.Semaphore(1)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def next(self) -> list[bytes] | None:
        """The next lines, without their ends; None at the end of input."""
        batch = await self._batches.get()
        if batch is None:
            self._batches.put_nowait(None)  # for the next call
        self._taken.release()
        return batch

    def _read(self) -> None:
        rest, skipping = b"", False
        while True:
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:  # the terminal is gone
                data = b""
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            if not data:
                lines, rest = ([rest] if rest else []), b""
            if lines and skipping:
                del lines[0]
                skipping = False
            if skipping:
                rest = b""
            elif len(rest) > self._max_line:
                rest, skipping = b"", True
                self.too_long += 1
            good = [line.removesuffix(b"\r") for line in lines if len(line) <= self._max_line]
            self.too_long += len(lines) - len(good)
            if good:
                self._hand_over(good)
            if not data:
                self._hand_over(None)
                return

    def _hand_over(self, batch: list[bytes] | None) -> None:
        self._taken.acquire()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)


class PipeWriter:
    """Bytes to a descriptor, in order. `write` waits for the reader at the other end, the loop does not."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    async def write(self, data: bytes) -> None:
        """Raises BrokenPipeError when the reader has closed the pipe, another OSError when the disk is full."""
        if not self._waiting and len(data) <= SMALL and select.select([], [self._fd], [], 0)[1]:
            with _named():
                os.write(self._fd, data)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="stdout", daemon=True)
            self._thread.start()
        done = self._loop.create_future()
        self._waiting += 1
        self._work.put((data, done))
        await done

    def _write(self) -> None:
        while True:
            data, done = self._work.get()
            error: OSError | None = None
            try:
                left = memoryview(data)
                with _named():
                    while left:
                        left = left[os.write(self._fd, left) :]
            except OSError as failed:
                error = failed
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, done, error)

    def _done(self, done: asyncio.Future[None], error: OSError | None) -> None:
        self._waiting -= 1
        if done.done():  # cancelled
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


@contextmanager
def _named() -> Iterator[None]:
    """An error of a write to a descriptor names no file."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def printable(payload: bytes) -> str:
    """Text that cannot move a terminal's cursor, change its colours or reverse its direction."""
    text = payload.decode("utf-8", "replace")
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
