"""What goes into a member and what comes out: two closed vocabularies.

A runtime (`net`, `sim`) feeds inputs to `Member.handle(input, now)` and carries out the outputs **in order**. `now` is
the member's own clock in integer nanoseconds. Between inputs the runtime looks at `Member.wake_at` and hands in `Wake()`
when that time has come; a `Wake` too early or too late is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from whence.clock import Frame, Incarnation, MemberId, Range

if TYPE_CHECKING:
    from whence.wire import Message


class _In(msgspec.Struct, frozen=True, gc=False):
    pass


class Start(_In):
    """Begin. `contacts` are members to start from. A `genesis` member is there when the cluster begins: it starts at
    clock zero and knows `contacts` as its first view. Any other asks a contact for a snapshot, or goes on from the
    checkpoint it was built with."""

    contacts: tuple[MemberId, ...] = ()
    genesis: bool = False


class Received(_In):
    """A message arrived from a peer."""

    sender: MemberId
    message: Message


class BadBytes(_In):
    """A peer sent what the codec refused: it is cut off."""

    sender: MemberId
    error: str


class Wake(_In):
    """Time has passed."""


class Publish(_In):
    """Publish these payloads as one frame. Refused (`Refused` output) without a ticket."""

    payloads: tuple[bytes, ...]


class Found(_In):
    """Found the ring: only the designated process, by decision of an operator, never on a time-out (ring.md)."""


class Coordinate(_In):
    """Try to get a ticket, and keep trying until `Resign`."""


class Resign(_In):
    """Give the ticket back."""


class Leave(_In):
    """Give the ticket back and leave the cluster."""


class SnapshotTaken(_In):
    """The application's state at the point where `TakeSnapshot(token)` stood among the outputs."""

    token: str
    state: bytes


Input = (
    Start | Received | BadBytes | Wake | Publish | Found | Coordinate | Resign | Leave | SnapshotTaken
)


class _Out(msgspec.Struct, frozen=True, gc=False):
    pass


class Send(_Out):
    """Send a message. `reliable`: over a stream (FIFO per pair, no duplicates, may break); else as a datagram."""

    to: MemberId
    message: Message
    reliable: bool = False


class Published(_Out):
    """The frame is stamped and on its way; a `Deliver` of it follows at once."""

    frame: Frame


class Arrived(_Out):
    """The frame was seen for the first time, `age` hops or rounds after its creation."""

    frame: Frame
    sender: MemberId
    age: int
    recovered: bool = False


class Deliver(_Out):
    """Hand the frame's events to the application. `over_gap`: something before it was given up."""

    frame: Frame
    over_gap: bool = False


class Dropped(_Out):
    """The frame will not be delivered here, or a buffer gave it up. `reason` is one of `DROP_REASONS`."""

    frame: Frame
    reason: str


class Asked(_Out):
    """Recovery of these ranges was asked of these peers."""

    ranges: tuple[Range, ...]
    peers: tuple[MemberId, ...]


class GaveUp(_Out):
    """These events will never be delivered here."""

    ranges: tuple[Range, ...]
    reason: str


class Ticket(_Out):
    """The state of this member's ticket changed: `granted`, `owner`, `leaving`, `released`, `lost`, `rejected`."""

    change: str
    ticket: int
    inc: Incarnation
    reason: str = ""


class TakeSnapshot(_Out):
    """A joiner wants the application's state as it is after all outputs before this one."""

    token: str


class InstallSnapshot(_Out):
    """Replace the application's state by this one, taken by `peer`; deliveries go on exactly after it."""

    token: str
    peer: MemberId
    state: bytes


class Joined(_Out):
    """The member takes part now. `how`: `genesis`, `snapshot` or `checkpoint`."""

    how: str
    token: str = ""


class Left(_Out):
    """The member has left the cluster."""


class CutOff(_Out):
    """This peer broke the protocol: nothing more is taken from it or sent to it."""

    peer: MemberId
    error: str


class Refused(_Out):
    """The application asked for what cannot be done now; `reason` names it."""

    what: str
    reason: str


Output = (
    Send
    | Published
    | Arrived
    | Deliver
    | Dropped
    | Asked
    | GaveUp
    | Ticket
    | TakeSnapshot
    | InstallSnapshot
    | Joined
    | Left
    | CutOff
    | Refused
)

DROP_REASONS = ("late", "overflow", "invalid", "two-owners", "unrecoverable")
