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
