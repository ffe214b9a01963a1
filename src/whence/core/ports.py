"""What goes into a member and what comes out: two closed vocabularies.

A runtime (`net`, `sim`) feeds inputs to `Member.handle(input, now)` and carries out the outputs: deliveries and
snapshots **in order**; messages may leave after them. `now` is the member's own clock in integer nanoseconds. The
runtime hands in `Wake()` when it is `Member.wake_at`; a `Wake` too early or too late is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from whence.core.cast.messages import MemberDown as MemberDown
from whence.core.cast.messages import MemberUp as MemberUp
from whence.core.clock import Incarnation, MemberId
from whence.core.clock import Send as Send
from whence.core.order.messages import AnySpan as AnySpan
from whence.core.order.outputs import Arrived as Arrived
from whence.core.order.outputs import Asked as Asked
from whence.core.order.outputs import Behind as Behind
from whence.core.order.outputs import Contracted as Contracted
from whence.core.order.outputs import Copied as Copied
from whence.core.order.outputs import Deliver as Deliver
from whence.core.order.outputs import Dropped as Dropped
from whence.core.order.outputs import GaveUp as GaveUp
from whence.core.order.outputs import Moved as Moved
from whence.core.order.outputs import Notice
from whence.core.order.outputs import Published as Published
from whence.core.order.outputs import SentTo as SentTo
from whence.core.ring.context import Remember as Remember

if TYPE_CHECKING:
    from whence.core.wire import Message


class _In(msgspec.Struct, frozen=True, gc=False):
    pass


class Start(_In, frozen=True, gc=False):
    """Begin. `contacts` are members to start from. A `genesis` member is there when the cluster begins: it starts at
    clock zero with `contacts` as its first view. Any other asks a contact for a snapshot, or resumes from its
    checkpoint."""

    contacts: tuple[MemberId, ...] = ()
    genesis: bool = False


class Meet(_In, frozen=True, gc=False):
    """The runtime has found these members of the cluster: get to know them."""

    members: tuple[MemberId, ...]


class Received(_In, frozen=True, gc=False):
    """A message arrived from a peer."""

    sender: MemberId
    message: Message


class BadBytes(_In, frozen=True, gc=False):
    """A peer sent what the codec refused: it is cut off."""

    sender: MemberId
    error: str


class Unreachable(_In, frozen=True, gc=False):
    """The runtime lost its connection to this address, or could not make one: a hint that its member crashed. A
    runtime without connections has none to give; time-outs find out later."""

    address: str


class Vacated(_In, frozen=True, gc=False):
    """Nobody is at this address any more: who was there shows the same certificate at another one."""

    address: str


class Wake(_In, frozen=True, gc=False):
    """Time has passed."""


class Publish(_In, frozen=True, gc=False):
    """Publish these payloads as one frame. Refused (`Refused` output) without a ticket."""

    payloads: tuple[bytes, ...]


class CountCopies(_In, frozen=True, gc=False):
    """Find out whether so many members, this one among them, hold these own events; after `patience` nanoseconds, how
    many do. `Copied` with the same `token` is the answer."""

    token: int
    events: tuple[str, ...]
    copies: int
    patience: int


class SendTo(_In, frozen=True, gc=False):
    """Send this to one member, in causal order with all that is published; for at most `patience` nanoseconds. `SentTo`
    with the same `token` is the end."""

    token: int
    to: MemberId
    payload: bytes
    patience: int


class FoundRing(_In, frozen=True, gc=False):
    """Found the ring: only the designated process, by decision of an operator, never on a time-out (docs/ring.md).
    `force`: with a council, also when one is remembered; the operator says that it is lost for good. `fresh`: the
    process was never in this cluster, so there is no quarantine."""

    force: bool = False
    fresh: bool = False


class Coordinate(_In, frozen=True, gc=False):
    """Try to get a ticket, and keep trying until `Resign`."""


class Resign(_In, frozen=True, gc=False):
    """Give the ticket back."""


class Leave(_In, frozen=True, gc=False):
    """Give the ticket back and leave the cluster."""


class Move(_In, frozen=True, gc=False):
    """Publish under an (N, R, K) clock of so many entries and keys from now on (a cluster without tickets)."""

    entries: int
    keys: int


class SnapshotTaken(_In, frozen=True, gc=False):
    """The application's state at the point where `TakeSnapshot(token)` stood among the outputs."""

    token: str
    state: bytes


_Part = Start | Meet | FoundRing | Coordinate | Resign | Leave
Seldom = _Part | BadBytes | Unreachable | Vacated | Wake | CountCopies | SendTo | Move | SnapshotTaken
Input = Received | Publish | Seldom


class _MemberOut(msgspec.Struct, frozen=True, gc=False):
    pass


class Ticket(_MemberOut, frozen=True, gc=False):
    """The state of this member's ticket changed: `granted`, `owner`, `released` or `lost`."""

    change: str
    ticket: int
    inc: Incarnation
    reason: str = ""


class TakeSnapshot(_MemberOut, frozen=True, gc=False):
    """A joiner wants the application's state as it is after all outputs before this one."""

    token: str


class InstallSnapshot(_MemberOut, frozen=True, gc=False):
    """Replace the application's state by this one, taken by `peer`; deliveries go on exactly after it."""

    token: str
    peer: MemberId
    state: bytes


class Joined(_MemberOut, frozen=True, gc=False):
    """The member takes part now. `how`: `genesis`, `snapshot` or `checkpoint`."""

    how: str
    token: str = ""


class Left(_MemberOut, frozen=True, gc=False):
    """The member has left the cluster."""


class CutOff(_MemberOut, frozen=True, gc=False):
    """This peer broke the protocol: nothing more is taken from it or sent to it."""

    peer: MemberId
    error: str


class Refused(_MemberOut, frozen=True, gc=False):
    """What the application asked for (`what`) is not possible."""

    what: str
    reason: str


_View = MemberUp | MemberDown
_Asks = TakeSnapshot | InstallSnapshot | Remember
Output = Notice | Send | _View | _Asks | Ticket | Joined | Left | CutOff | Refused
