"""Waiting for a condition instead of polling it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress


class Signal:
    """Wakes every waiter, in the order they came. A cancelled waiter leaves nothing behind."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def tell(self) -> None:
        """Something changed: wake all that wait."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next `tell`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def until(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until the condition holds, or until `deadline` (of `time.monotonic`); returns whether it holds."""
        if condition():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                while not condition():
                    await self.wait()
                return True
        return condition()
