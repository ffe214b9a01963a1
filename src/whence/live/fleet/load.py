"""The load that a fleet publishes: how many events are due, and their payloads. Pure.

A payload begins with its publishing time, so that readers can measure latencies. Only programs that take part in the
load read it; for others it is an ordinary payload.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

MARK: Final = b"whence load "
DIGITS: Final = 19
"""Digits of nanoseconds since 1970, until the year 2286."""
PAYLOAD_BYTES: Final = 64
TICK_S: Final = 0.02
"""Events due within a tick are published together."""


def payload(now: int) -> bytes:
    """The payload of an event; `now` in nanoseconds since 1970."""
    return (MARK + b"%0*d" % (DIGITS, now)).ljust(PAYLOAD_BYTES, b".")


def published_at(payload: bytes) -> int | None:
    """When an event of the load was published; None for any other payload."""
    stamp, rest = payload[len(MARK) : len(MARK) + DIGITS], payload[len(MARK) + DIGITS :]
    whole = len(payload) == PAYLOAD_BYTES and payload.startswith(MARK) and not rest.strip(b".")
    return int(stamp) if whole and stamp.isdigit() else None


class Pace:
    """Poisson arrivals at a mean rate (events a second), in bursts of random size. The caller passes the time in
    seconds."""

    def __init__(self, rate: float, rng: random.Random, now: float, bursts: Sequence[int] = (1,)) -> None:
        self._arrivals = rate * len(bursts) / sum(bursts)
        self._rate = rate
        self._rng = rng
        self._bursts = bursts
        self._next = now + rng.expovariate(self._arrivals)

    def due(self, now: float) -> int:
        """How many events to publish now. After a delay of more than a second only the last second counts; the rest is
        never published."""
        events = 0
        self._next = max(self._next, now - 1.0)
        while self._next <= now:
            events += self._rng.choice(self._bursts)
            self._next += self._rng.expovariate(self._arrivals)
        return events

    def wait(self, now: float) -> float:
        """Seconds until something is due."""
        return max(TICK_S, self._next - now)
