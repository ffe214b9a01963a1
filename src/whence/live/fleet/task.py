"""The task of a child process with members of a cluster."""

from __future__ import annotations

from typing import Any, Final

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
    transport: str = "tcp"
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
