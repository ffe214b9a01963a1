"""Events made by hand."""

from __future__ import annotations

from whence.clock import EventId, Incarnation
from whence.objects import (
    Event,
    stamp,
)


def at(n: int, ticket: int = 0, owner: str = "a#1") -> Event:
    """An empty event of height n."""
    inc = Incarnation(1, 0, 1).packed
    vector = tuple((inc, n) if t == ticket else (0, 0) for t in range(3))
    return Event(stamp(EventId(ticket, inc, n, owner), vector), b"")


def event(payload: bytes, n: int, ticket: int = 0, owner: str = "a#1") -> Event:
    return at(n, ticket, owner)._replace(payload=payload)
