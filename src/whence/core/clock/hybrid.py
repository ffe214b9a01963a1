"""Hybrid logical clocks (Kulkarni et al. 2014): physical time that never contradicts causality.

A timestamp is `(time, count)`: the largest physical time known, in nanoseconds, and a counter for events at the same
one. If a happened before b then `a < b`, however wrong the physical clocks are; if they are right within `e`, `time` is
within `e` of the truth.
"""

from __future__ import annotations

from typing import NamedTuple


class Hybrid(NamedTuple):
    """A timestamp; compared lexicographically."""

    time: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which nobody wants here


class HybridClock:
    """The clock of one process."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = Hybrid(0, 0)

    def tick(self, physical: int) -> Hybrid:
        """A local event, such as a send; `physical` is what the process's own clock says."""
        last = self.now
        self.now = Hybrid(physical, 0) if physical > last.time else Hybrid(last.time, last.count + 1)
        return self.now

    def witness(self, other: Hybrid, physical: int) -> Hybrid:
        """A message with this timestamp is delivered."""
        last = self.now
        time = max(last.time, other.time, physical)
        counts = [t.count for t in (last, other) if t.time == time]
        self.now = Hybrid(time, max(counts) + 1 if counts else 0)
        return self.now
