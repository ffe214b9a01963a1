"""What the order layer tells its member: one class per step, each of which leaves one trace record."""

from __future__ import annotations

import msgspec

from whence.core.clock import AnyFrame, MemberId
from whence.core.order.messages import AnySpan, OrderMessage


class _Out(msgspec.Struct, frozen=True, gc=False):
    pass


class OrderSend(_Out, frozen=True, gc=False):
    """Send this; `reliable` when it may be larger than a datagram."""

    to: MemberId
    message: OrderMessage
    reliable: bool = False


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


class GaveUp(_Out, frozen=True, gc=False):
    """These events will not be waited for any longer."""

    ranges: tuple[AnySpan, ...]
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


Notice = Published | Arrived | Deliver | Dropped | Asked | Copied | GaveUp | Moved | Contracted
"""What a member hands on as it is."""
OrderOutput = OrderSend | Notice
