"""The lease: how long a process may take itself for an owner.

Rules of ring.md implemented here:

8.  `ceil(|L| / 2)` of L must vouch, also in small rings.
9.  A lease instead of windows of equal length, which kill healthy rings by clock drift alone.
14. What comes late must not count as fresh: a lease starts when the poll was *sent*, so a slow answer only buys
    less time. Nothing here depends on how long a message takes.
16. Two joins within a round displace L's senders. Departs from the rule (go on sending ALIVE to displaced targets
    for 2k+3 rounds): ALIVE answers a poll, whoever is polled answers, so nobody is displaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.ring.config import need_alive
from whence.ring.messages import Seat


class Lease:
    """Which vouchers a process holds, and until when."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._sent: dict[int, int] = {}
        self._until: dict[Seat, int] = {}

    def polled(self, nonce: int, now: int) -> None:
        """A round of polls goes out."""
        self._sent = {n: at for n, at in self._sent.items() if at + self.length > now}
        self._until = {seat: until for seat, until in self._until.items() if until > now}
        self._sent[nonce] = now

    def vouched(self, seat: Seat, nonce: int) -> None:
        """ALIVE arrived, in answer to that poll."""
        sent = self._sent.get(nonce)
        if sent is not None:
            self._until[seat] = max(self._until.get(seat, 0), sent + self.length)

    def until(self, L: Sequence[Seat]) -> int | None:
        """When fewer than the quorum of L will vouch; None: never, since L is empty."""
        need = need_alive(len(L))
        if need == 0:
            return None
        return sorted((self._until.get(seat, 0) for seat in L), reverse=True)[need - 1]

    def valid(self, L: Sequence[Seat], now: int) -> bool:
        """The quorum of L vouches now."""
        until = self.until(L)
        return until is None or now < until
