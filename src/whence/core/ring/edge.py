"""The edge to the successor: who it is, and what it may hold as its L.

Rule 1: until the successor has answered, the edge is pending. Rule 13: every R sent since the last one known to be
adopted is kept. Rule 15: a takeover is declared until the successor has answered.
"""

from __future__ import annotations

from collections.abc import Iterable

from whence.core.ring.messages import Holder, Tenure

Holders = tuple[Holder, ...]

MAX_HELD = 8  # lists an exclusion may need a quorum of; beyond it the last one is repeated until it is adopted


class Edge:
    """From this process to `succ` (itself when alone)."""

    def __init__(self, succ: Holder, held: Iterable[Holders], takeover: tuple[Tenure, ...] = ()) -> None:
        self.succ = succ
        self.takeover = takeover
        self.start: int | None = None
        """Nonce of the first UPDATE on this edge."""
        self.acked = False
        """The successor has accepted this process as its predecessor."""
        self.waiting: int | None = None
        """Nonce of the last UPDATE, while unanswered."""
        self.refused = 0
        """CLEAVEs of the successor up to this nonce were refused: a copy of one must not be served later."""
        self._held: list[tuple[int, Holders]] = [(0, R) for R in dict.fromkeys(held)]

    @classmethod
    def alone(cls, me: Holder) -> Edge:
        """The ring of one: nobody vouches, nobody can exclude (rule 8)."""
        edge = cls(me, [()])
        edge.acked = True
        return edge

    @property
    def held(self) -> tuple[Holders, ...]:
        """Every list that the successor may hold as its L."""
        return tuple(dict.fromkeys(R for _, R in self._held))

    @property
    def last(self) -> Holders | None:
        """The R that was sent last on this edge; None: none yet."""
        sent, R = self._held[-1] if self._held else (0, ())
        return R if sent else None

    def offer(self, nonce: int, R: Holders) -> Holders:
        """An UPDATE goes out; returns the R it must carry: the one before, while that is unanswered, since every
        further list is one more in which an exclusion needs a quorum."""
        if self.start is None:
            self.start = nonce
        sent, last = self._held[-1] if self._held else (0, ())
        repeat = self.waiting is not None or len(self._held) >= MAX_HELD
        self.waiting = nonce
        if sent and repeat:
            return last
        if not sent or last != R:
            self._held.append((nonce, R))
        return R

    def answered(self, nonce: int, adopted: int) -> bool:
        """ACKUPDATE arrived; returns whether the UPDATE that was waited for is answered."""
        for at in range(len(self._held) - 1, -1, -1):
            first = self._held[at][0]
            if 0 < first <= adopted:
                del self._held[:at]
                break
        if self.start is not None and nonce >= self.start:
            self.takeover = ()
        if self.waiting is not None and nonce >= self.waiting:
            self.waiting = None
            return True
        return False
