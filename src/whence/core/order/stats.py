"""What the order layer counts: nothing is dropped without a number rising."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class OrderStats:
    """Counters; events unless the name says frames."""

    published: int = 0
    delivered: int = 0
    delivered_over_gap: int = 0
    duplicate_frames: int = 0
    late: int = 0
    skipped: int = 0
    recovered: int = 0
    asked: int = 0
    answers_given: int = 0
    overflow_frames: int = 0
    two_owners: int = 0
    held_peak: int = 0
    alerts_covered: int = 0
    """Frames delivered with an alert of PCO17 Algorithm 4 (those of Algorithm 5, the next, among them)."""
    alerts_witnessed: int = 0
    raised: int = 0
    """Frames delivered although the clock was short: counts were raised to what the frame claims."""
    moves: int = 0
    carried: int = 0
    """Events that came on the back of another frame (first generation)."""
    forgotten: int = 0
    """Owners forgotten because there were too many."""
