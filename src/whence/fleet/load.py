"""The load that a fleet or `whence node --load` publishes: how many events are due, and what is in them. Pure.

A payload begins with the time of its publishing, so whoever takes part in the load can measure latencies. Only programs
that were told to take part read it: to everybody else it is an application's payload like any other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

MARK: Final = b"whence load "
DIGITS: Final = 19
"""Of nanoseconds since 1970, until the year 2286."""
PAYLOAD_BYTES: Final = 64
TICK_S: Final = 0.02
"""What is due within a tick is published together."""


def payload(now: int) -> bytes:
    """An event of the load; `now`: nanoseconds since 1970."""
    return (MARK + b"%0*d" % (DIGITS, now)).ljust(PAYLOAD_BYTES, b".")


def published_at(payload: bytes) -> int | None:
    """When an event of the load was published; None for any other payload."""
    stamp, rest = payload[len(MARK) : len(MARK) + DIGITS], payload[len(MARK) + DIGITS :]
    whole = len(payload) == PAYLOAD_BYTES and payload.startswith(MARK) and not rest.strip(b".")
    return int(stamp) if whole and stamp.isdigit() else None


class Pace:
    """Independent arrivals at a mean rate (events a second), in bursts of random size. Seconds are handed in."""

    def __init__(self, rate: float, rng: random.Random, now: float, bursts: Sequence[int] = (1,)) -> None:
        self._arrivals = rate * len(bursts) / sum(bursts)
        self._rate = rate
        self._rng = rng
        self._bursts = bursts
        self._next = now + rng.expovariate(self._arrivals)

    def due(self, now: float) -> int:
        """How many events to publish now. After more than a second of being held up only the last second counts:
        what was not published then never is."""
        events = 0
        self._next = max(self._next, now - 1.0)
        while self._next <= now:
            events += self._rng.choice(self._bursts)
            self._next += self._rng.expovariate(self._arrivals)
        return events

    def wait(self, now: float) -> float:
        """Seconds until something is due."""
        return max(TICK_S, self._next - now)
