"""Who waits for copies of what was published."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from whence.core.ports import Copied, CountCopies


class CopyCounts:
    """Callers that wait until enough members hold their events."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Copied]] = {}
        self._tokens = 0

    def ask(self, events: Sequence[str], copies: int, patience: int) -> tuple[CountCopies, asyncio.Future[Copied]]:
        """What to feed to the member, and how it ends."""
        self._tokens += 1
        done = self._waiting[self._tokens] = asyncio.get_running_loop().create_future()
        return CountCopies(self._tokens, tuple(events), copies, patience), done

    def tell(self, copied: Copied) -> None:
        done = self._waiting.pop(copied.token, None)
        if done is not None and not done.done():  # else the caller was cancelled
            done.set_result(copied)

    def close(self, error: Exception) -> None:
        """The member counts no more."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            if not done.done():
                done.set_exception(error)
