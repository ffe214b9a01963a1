"""The lease: how long a process may take itself for an owner.

Rules 8, 9, 14 and 16. A vouch counts from when its poll was *sent*: a slow answer only buys less time.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.core.ring.config import need_alive
from whence.core.ring.messages import Holder


class Lease:
    """Which vouchers a process holds, and until when."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._sent: dict[int, int] = {}
        self._until: dict[Holder, int] = {}

    def polled(self, nonce: int, now: int) -> None:
        """A round of polls goes out."""
        self._sent = {n: at for n, at in self._sent.items() if at + self.length > now}
        self._until = {holder: until for holder, until in self._until.items() if until > now}
        self._sent[nonce] = now

    def vouched(self, holder: Holder, nonce: int) -> None:
        """ALIVE arrived, in answer to that poll."""
        sent = self._sent.get(nonce)
        if sent is not None:
            self._until[holder] = max(self._until.get(holder, 0), sent + self.length)

    def until(self, L: Sequence[Holder]) -> int | None:
        """When fewer than the quorum of L will vouch; None: never, since L is empty."""
        need = need_alive(len(L))
        if need == 0:
            return None
        return sorted([self._until.get(holder, 0) for holder in L], reverse=True)[need - 1]

    def valid(self, L: Sequence[Holder], now: int) -> bool:
        """The quorum of L vouches now."""
        until = self.until(L)
        return until is None or now < until
