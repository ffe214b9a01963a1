"""Events made by hand."""

from __future__ import annotations

from whence.core.clock import EventId, Incarnation
from whence.live.objects import (
    StampedEvent,
    stamp,
)


def at(n: int, ticket: int = 0, owner: str = "a#1") -> StampedEvent:
    """An empty event of height n."""
    inc = Incarnation(1, 0, 1).packed
    vector = tuple((inc, n) if t == ticket else (0, 0) for t in range(3))
    return StampedEvent(stamp(EventId(ticket, inc, n, owner), vector), b"")


def event(payload: bytes, n: int, ticket: int = 0, owner: str = "a#1") -> StampedEvent:
    return at(n, ticket, owner)._replace(payload=payload)
