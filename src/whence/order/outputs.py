"""What the order layer tells its member: one class per step, each of which leaves one trace record."""

from __future__ import annotations

import msgspec

from whence.clock import Frame, MemberId, Range
from whence.order.messages import OrderMessage


class _Out(msgspec.Struct, frozen=True, gc=False):
    pass


class OrderSend(_Out, frozen=True, gc=False):
    """Send this; `reliable` when it may be larger than a datagram."""

    to: MemberId
    message: OrderMessage
    reliable: bool = False


class Published(_Out, frozen=True, gc=False):
    """The frame is stamped and on its way; a `Deliver` of it follows at once."""

    frame: Frame


class Arrived(_Out, frozen=True, gc=False):
    """The frame was seen for the first time, `age` rounds or hops after its creation."""

    frame: Frame
    sender: MemberId
    age: int
    recovered: bool = False


class Deliver(_Out, frozen=True, gc=False):
    """Hand the frame's events to the application. `over_gap`: something before it was given up."""

    frame: Frame
    over_gap: bool = False


class Dropped(_Out, frozen=True, gc=False):
    """The frame will not be delivered here, or a buffer gave it up. `reason` is one of `DROP_REASONS`."""

    frame: Frame
    reason: str


class Asked(_Out, frozen=True, gc=False):
    """Recovery of these ranges was asked of these peers."""

    ranges: tuple[Range, ...]
    peers: tuple[MemberId, ...]


class GaveUp(_Out, frozen=True, gc=False):
    """These events will not be waited for any longer."""

    ranges: tuple[Range, ...]
    reason: str


OrderOutput = OrderSend | Published | Arrived | Deliver | Dropped | Asked | GaveUp

DROP_REASONS = ("late", "overflow", "invalid", "two-owners")
