"""What somebody wants published, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from whence.errors import LostTicket


class Ask:
    """Payloads that somebody wants published, and what became of it."""

    __slots__ = ("done", "error", "ids", "payloads")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.payloads = payloads
        self.done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.ids: list[str] = []
        """Of the events that were stamped."""
        self.error: Exception | None = None

    def tell(self) -> None:
        """Resolve the future."""
        if self.done.done():  # the caller was cancelled
            return
        if self.error is None:
            self.done.set_result(self.ids)
            return
        if isinstance(self.error, LostTicket):
            self.error.published = tuple(self.ids)
        self.done.set_exception(self.error)
