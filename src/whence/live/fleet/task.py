"""What the processes of a fleet do: the task of a child with members, the load it publishes, and plans of what is done
to the fleet. Pure: the same seed gives the same plan.

A payload of the load begins with its publishing time, so that readers can measure latencies. Only programs that take
part in the load read it; for others it is an ordinary payload.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

LINE_BYTES: Final = 1 << 24
"""The longest line on a fleet's channel."""


class MemberSpec(msgspec.Struct, kw_only=True):
    """One member to join."""

    order: str = "causal"
    listen: str = "127.0.0.1:0"
    directory: str | None = None
    rate: float = 0.0
    """Events published per second; 0: only reads."""
    seen: str | None = None
    """A file for the ids of the events that the application sees; an empty line marks each start."""


class Task(msgspec.Struct, kw_only=True):
    """The task of a process."""

    cluster: str
    members: list[MemberSpec]
    secret: str = ""
    """Hexadecimal."""
    contacts: list[str] = []
    found: bool = False
    tickets: int = 8
    drop: float = 0.0
    """Share of gossip dropped on purpose."""
    seed: int = 0
    bursts: tuple[int, ...] = (1,)
    """Possible numbers of events published at a time."""
    answers: float = 0.0
    """How many answers each event gets on average. Without answers there is little causality to test."""
    trace: str | None = None
    settings: dict[str, Any] = {}
    timeout: float = 30.0


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


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One action on some processes of a fleet."""

    after: float
    """Seconds after the previous step."""
    do: Literal["kill", "start", "cut", "heal", "wait"]
    processes: tuple[int, ...] = ()
    """By number; for a cut, one side of the partition."""
    say: str = ""
    """A message for people, when it is done."""
