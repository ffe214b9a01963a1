"""What the order layer tells its member: a class for each kind of step.

Also here: what `why_blocked` answers (which events are missing, who was asked, until when), and what the order layer
counts: nothing is dropped without a number rising.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from whence.core.clock import AnyFrame, Incarnation, MemberId, Range, Send
from whence.core.order.messages import AnySpan


class _Out(msgspec.Struct, frozen=True, gc=False):
    pass


class Published(_Out, frozen=True, gc=False):
    """The frame is stamped and on its way; a `Deliver` of it follows at once."""

    frame: AnyFrame


class Arrived(_Out, frozen=True, gc=False):
    """The frame was seen for the first time, `age` rounds or hops after its creation."""

    frame: AnyFrame
    sender: MemberId
    age: int
    recovered: bool = False


class Deliver(_Out, frozen=True, gc=False):
    """Hand the frame's events to the application. `over_gap`: something before it was given up."""

    frame: AnyFrame
    over_gap: bool = False
    alert: int = 0
    """Probabilistic order: 4 if PCO17 Algorithm 4 warns that something which depends on this frame may have been
    delivered before it, 5 if Algorithm 5 does, too; 0: surely not."""
    suspects: tuple[str, ...] = ()
    """Alert 5: recent deliveries (the last event of each) that claim to depend on it: what an application's repair
    would look at."""
    payloads: list[bytes] | None = None
    """`frame.payloads()`, where checking the frame has just decoded them."""
    place: int = 0
    """Total order: the number of the frame's first event in the one sequence. 0: in no sequence."""


class Dropped(_Out, frozen=True, gc=False):
    """The frame will not be delivered here. `reason`: `late`, `overflow`, `invalid`, `two-owners`."""

    frame: AnyFrame
    reason: str


class Asked(_Out, frozen=True, gc=False):
    """Recovery of these ranges was asked of these peers."""

    ranges: tuple[AnySpan, ...]
    peers: tuple[MemberId, ...]


class Copied(_Out, frozen=True, gc=False):
    """The end of a count (`ports.CountCopies`): so many members hold the events, this one among them. Not `enough`: the
    time is over."""

    token: int
    copies: int
    enough: bool


class SentTo(_Out, frozen=True, gc=False):
    """The end of a `ports.SendTo`: the member has the message, or `refused` says why nobody knows."""

    token: int
    refused: str = ""


class GaveUp(_Out, frozen=True, gc=False):
    """These events will not be waited for any longer."""

    ranges: tuple[AnySpan, ...]
    reason: str


class Behind(_Out, frozen=True, gc=False):
    """Total order: this life cannot go on without a hole in its sequence. A new one begins with a snapshot. `how`:
    `jumped` (what it lacks nobody holds any more) or `forked` (the ring was founded anew without what it has)."""

    how: str
    reason: str


class Moved(_Out, frozen=True, gc=False):
    """The member publishes under another (N, R, K) clock from now on; `own`: it was its own decision."""

    generation: int
    entries: int
    keys: int
    own: bool


class Contracted(_Out, frozen=True, gc=False):
    """The contract is broken, or kept again: two upper bounds of the error rate, measured, against the promise."""

    broken: bool
    promise: float
    bound: float
    """PCO17's formula with the measured X and P_nc."""
    alerts: float
    """Alerts of Algorithm 5 per delivery."""
    in_flight: float
    """X, measured: frames delivered here that a frame's owner had not delivered when it sent it."""


Notice = Published | Arrived | Deliver | Dropped | Asked | Copied | SentTo | GaveUp | Behind | Moved | Contracted
"""What a member hands on as it is."""
OrderOutput = Send | Notice


@dataclass(frozen=True)
class MissingRange:
    """One run of missing events that a held event waits for."""

    ticket: int | None
    """None in a cluster without tickets: then the range counts frames of an owner, not events of a tenure."""
    incarnation: str
    """Of the ticket's tenure; without tickets, the owner."""
    first: int
    last: int
    asked: dict[MemberId, int] = field(default_factory=dict)
    """Who was asked, and when (ns)."""
    denied: tuple[MemberId, ...] = ()
    """Who answered that it has nothing of it."""

    @classmethod
    def of(cls, r: Range) -> MissingRange:
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
    missing: tuple[MissingRange, ...] = ()
    until_ns: int | None = None
    """When it is delivered over the gap; None: it waits for as long as it takes."""
    short: int = 0
    """Probabilistic order: about so many frames, of owners unknown, are missing by the clock."""
    waits: str = ""
    """Total order: received, and waiting for its place; for what."""

    def __str__(self) -> str:
        if self.state != "held":
            return f"{self.event}: {self.state}"
        if self.waits:
            return f"{self.event}: held for {self.waits}"
        until = "for as long as it takes" if self.until_ns is None else f"until {self.until_ns / 1e9:.3f} s"
        what = "; ".join(map(str, self.missing)) or f"about {self.short} frames of owners unknown"
        return f"{self.event}: held {until} for {what}"


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
    unanswered: int = 0  # requests of peers that ask for too much at a time
    overflow_frames: int = 0
    two_owners: int = 0
    absurd: int = 0  # events that others forwarded, with timestamps far beyond anything known here
    held_peak: int = 0
    alerts_covered: int = 0
    """Frames delivered with an alert of PCO17 Algorithm 4 (those of Algorithm 5, the next, among them)."""
    alerts_witnessed: int = 0
    repairs: int = 0  # anti-entropies that an alert has started
    raised: int = 0  # frames delivered although the clock was short: counts were raised to what the frame claims
    moves: int = 0
    carried: int = 0  # events that came on the back of another frame (first generation)
    forgotten: int = 0  # owners forgotten because there were too many
