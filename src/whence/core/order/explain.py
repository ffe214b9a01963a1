"""`why_blocked`: which events are missing, who was asked, until when."""

from __future__ import annotations

from dataclasses import dataclass, field

from whence.core.clock import Incarnation, MemberId, Range


@dataclass(frozen=True)
class Missing:
    """One run of missing events that a held event waits for."""

    ticket: int | None
    """None in a cluster without tickets: then it is frames of an owner, not events of a tenure."""
    incarnation: str
    """The tenure; without tickets, the owner."""
    first: int
    last: int
    asked: dict[MemberId, int] = field(default_factory=dict)
    """Who was asked, and when (ns)."""
    denied: tuple[MemberId, ...] = ()
    """Who answered that it has nothing of it."""
    next_attempt_ns: int | None = None

    @classmethod
    def of(cls, r: Range) -> Missing:
        return cls(r[0], str(Incarnation.unpack(r[1])), r[2], r[3])

    def __str__(self) -> str:
        run = f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"
        who = f", asked {', '.join(self.asked)}" if self.asked else ", nobody asked yet"
        no = f", denied by {', '.join(self.denied)}" if self.denied else ""
        if self.ticket is None:
            return f"frames {run} of {self.incarnation}{who}{no}"
        return f"ticket {self.ticket} tenure {self.incarnation} events {run}{who}{no}"


@dataclass(frozen=True)
class Blocked:
    """Why an event is not delivered here (yet)."""

    event: str
    state: str
    """`held`: waiting for `missing`. `delivered`, `obsolete` (given up before it came), `unknown` (never received)."""
    missing: tuple[Missing, ...] = ()
    until_ns: int | None = None
    """When it is delivered over the gap; None: it waits for as long as it takes."""
    short: int = 0
    """Probabilistic order: about so many frames, of owners unknown, are missing by the clock."""

    def __str__(self) -> str:
        if self.state != "held":
            return f"{self.event}: {self.state}"
        until = "for as long as it takes" if self.until_ns is None else f"until {self.until_ns / 1e9:.3f} s"
        what = "; ".join(map(str, self.missing)) or f"about {self.short} frames of owners unknown"
        return f"{self.event}: held {until} for {what}"
