"""What the order layer says to its peers: recovery and state transfer. Tags 64..95, only ever appended."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from whence.core.clock import AnyFrame, Entry, FreeFrame, Key, MemberId, Orphan, Packed, StampedFrame
from whence.core.clock.bounds import (
    MAX_STATE_BYTES,
    MAX_WHOLE_STATE,
    Count,
    Items,
    PerOwner,
    PerTenure,
    PerTicket,
    Text,
    TicketIndex,
)
from whence.core.clock.event import MAX_OLDER, Moment, StampBytes
from whence.core.clock.logs import Logs, Telling

AnySpan = tuple[TicketIndex | MemberId, Count, Count, Count]
"""`(ticket, incarnation, first, last)`: events; without tickets `(owner, 0, first, last)`: frames."""


class Recover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=64):
    """RECOVER (CCC11 Algorithm 5): send me what you hold of these ranges. `nonce` binds the answer to the question."""

    nonce: Count
    ranges: Items[AnySpan]


HANDED_OVER = 0
"""The nonce of an ACKRECOVER that nobody asked for: a recovery buffer handed over, by a member that leaves or that has
just given a snapshot."""


class AckRecover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=65):
    """ACKRECOVER: the frames that the recovery buffer holds, and the ranges of which it holds nothing. The paper stays
    silent about those; saying so lets a blocking order tell "nobody has it" from "nobody answered"."""

    nonce: Count
    frames: Items[AnyFrame]
    lacks: Items[AnySpan] = ()


class DirectMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=75):
    """A message to one member (`order.unicast`): `frame` names it alone, and is the sender's number `frame.number` to
    it; what it waits for are all events up to `after`."""

    frame: StampedFrame
    after: PerTicket[Entry]


class DirectAck(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=76):
    """The message of this number is here."""

    number: Count


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=66):
    """A joiner asks for clock and state. Only an order at least as strong as its own (`RANK`) can give both exactly;
    as a `last_resort` it takes them from any, at the price of a loss, never of an inversion."""

    nonce: Count
    rank: Count
    last_resort: bool
    kind: Text = "tickets"
    """The kind of cluster that it wants to join, as `OrderConfig.kind`."""


class SnapshotRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=67):
    """Not from me: `reason` is `joining`, `weaker` or `busy`; or the kind of this cluster, if the joiner wants another
    one."""

    nonce: Count
    reason: Text


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=68):
    """One point of the responder's delivery order: its clock there, and the application's state there."""

    nonce: Count
    token: Text
    clock: OrderState
    coordinators: PerTicket[tuple[TicketIndex, MemberId]]
    state: Annotated[bytes, msgspec.Meta(max_length=MAX_STATE_BYTES)]
    more: Annotated[Count, msgspec.Meta(le=MAX_WHOLE_STATE)] = 0
    """Bytes that the state has beyond these: the joiner asks for one part after the other."""


class StateRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=73):
    """More of the state of the snapshot `token`, from byte `at` on."""

    token: Text
    at: Count


class StatePart(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=74):
    """A part of a state, from byte `at` on."""

    token: Text
    at: Count
    state: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_STATE_BYTES)]


class TicketState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Of a cluster with tickets: a `CctClock`, and who held the tickets."""

    kind: ClassVar[str] = "tickets"

    T: PerTicket[Entry]
    floor: PerTicket[Count]
    tails: PerTenure[Orphan]
    orphans: PerTenure[Orphan]
    past: PerTicket[Entry]
    owners: PerTenure[tuple[TicketIndex, Count, MemberId]]
    ahead: PerTenure[Key] = ()
    """Unordered only: frames delivered although something before them is still missing."""


class LogVote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a voter has promised of logs, for its disk (docs/total.md, rule T11)."""

    council: Count
    now: Logs
    begun: Logs


class TotalState(TicketState, frozen=True, array_like=True, gc=False, tag=4):
    """Of a member in total order, at one position of the one sequence (docs/total.md, rule T12). Its clock is what is
    settled there."""

    position: Moment = 0
    count: Count = 0
    generation: Count = 0
    over: PerTicket[Count] = ()
    closed: PerTenure[tuple[TicketIndex, Count, Count]] = ()
    floors: PerTicket[tuple[TicketIndex, Count]] = ()
    lamport: Moment = 0
    vote: LogVote | None = None


class GenerationState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One generation's clock as data; `owed` and `level` as in `order.probabilistic.GenerationClock`."""

    generation: Count
    K: Count
    V: Packed
    owed: tuple[Count, ...] = ()
    level: tuple[Count, ...] = ()
    past: Packed | None = None
    """Of a weak order: the highest of all stamps delivered."""


class OwnerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far an owner's frames are taken, and what is needed to count one that is given up."""

    owner: MemberId
    taken: Count
    generation: Count
    opened: Count
    keys: tuple[int, ...]


class FreeState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Of a cluster with (N, R, K) clocks: the clocks, the owners' cursors and what waits."""

    kind: ClassVar[str] = "no tickets"

    generations: Annotated[tuple[GenerationState, ...], msgspec.Meta(min_length=1, max_length=MAX_OLDER)]
    owners: PerOwner[OwnerState]
    waiting: Items[FreeFrame] = ()
    """Taken, and not delivered yet."""
    ahead: Items[AnySpan] = ()
    """Unordered only: frames delivered although an earlier one of their owner is still missing."""
    forgotten: Count = 0


class StampedState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """The state of a mechanism, encoded; process `i` in it is the member `processes[i]`, of whose frames `taken[i]` are
    in it or given up."""

    mechanism: Text
    processes: PerOwner[MemberId]
    taken: PerOwner[Count]
    state: StampBytes

    @property
    def kind(self) -> str:
        return self.mechanism


OrderState = TicketState | TotalState | FreeState | StampedState
"""What an order layer goes on from after a restart, or a joiner from a snapshot. `kind` is that of its cluster, as
`OrderConfig.kind` has it."""


_Given = SnapshotRequest | SnapshotRefused | Snapshot | StateRequest | StatePart
OrderMessage = Recover | AckRecover | DirectMessage | DirectAck | _Given | Telling
