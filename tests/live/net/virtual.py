"""Virtual time for live clusters in one process: an event loop whose clock jumps to the next timer when nothing is left
to do. A busy machine cannot cost a member its lease, and nobody waits for a round to pass."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from whence.live.net.scribe import inline

STEP_NS = 10_000
"""What one turn of the loop takes: a loop that only yields gets on, too."""
ARRIVAL_S = 0.002
"""Real time that bytes on loopback may take; nothing jumps before."""


class Clock:
    """The time of everybody in this process."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()
        self.wall_ns = time.time_ns() - self.now_ns

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        with (
            patch("time.monotonic", lambda: self.now_ns / 1e9),
            patch("time.monotonic_ns", lambda: self.now_ns),
            patch("time.clock_gettime_ns", lambda clock: self.now_ns),
            patch("time.time", lambda: (self.wall_ns + self.now_ns) / 1e9),
            patch("time.time_ns", lambda: self.wall_ns + self.now_ns),
        ):
            yield


class Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Waits for sockets as usual, and for time not at all."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> Any:
        self.clock.now_ns += STEP_NS
        sockets = len(self.get_map()) > 1  # the first one is the loop's own
        if ready := super().select(ARRIVAL_S if sockets and timeout else 0):
            return ready
        if timeout is None:
            return super().select(None)
        self.clock.now_ns += max(0, round(timeout * 1e9))
        return []


@contextmanager
def runner() -> Iterator[asyncio.Runner]:
    """An `asyncio.Runner` in virtual time."""
    clock = Clock()
    with (
        clock.everywhere(),
        patch("whence.live.net.entry.in_thread", inline),  # while a thread works, this clock would jump
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector(clock))) as made,
    ):
        yield made
