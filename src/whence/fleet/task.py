"""What a child process with members of a cluster is told."""

from __future__ import annotations

from typing import Any, Final

import msgspec

LINE_BYTES: Final = 1 << 24
"""The longest line on a fleet's channel."""


class Seat(msgspec.Struct, kw_only=True):
    """One member of the process."""

    order: str = "causal"
    listen: str = "127.0.0.1:0"
    directory: str | None = None
    rate: float = 0.0
    """Events a second; 0: it only reads."""
    seen: str | None = None
    """A file for what the application sees: a line per event, and an empty one where a life begins."""


class Task(msgspec.Struct, kw_only=True):
    """What a process is told."""

    cluster: str
    seats: list[Seat]
    secret: str = ""
    """Hexadecimal."""
    seeds: list[str] = []
    found: bool = False
    tickets: int = 8
    transport: str = "tcp"
    drop: float = 0.0
    """Share of gossip lost on purpose."""
    seed: int = 0
    bursts: tuple[int, ...] = (1,)
    """Of the load: events published at a time, one of these."""
    answers: float = 0.0
    """How often an event of another member is answered at once: without answers there is little causality to break."""
    trace: str | None = None
    settings: dict[str, Any] = {}
    timeout: float = 30.0
