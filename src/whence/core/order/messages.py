"""What the order layer says to its peers: recovery and state transfer. Tags 64..95, only ever appended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from whence.core.clock import AnyFrame, Entry, FrameRange, FreeFrame, Key, MemberId, Packed, Range

AnySpan = tuple[int | MemberId, int, int, int]
"""`(ticket, incarnation, first, last)`: events; without tickets `(owner, 0, first, last)`: frames."""


class Recover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=64):
    """RECOVER (CCC11 Algorithm 5): send me what you hold of these ranges. `nonce` binds the answer to the question."""

    nonce: int
    ranges: tuple[Range, ...]
    runs: tuple[FrameRange, ...] = ()
    """Without tickets: of these owners' frames."""

    @classmethod
    def of(cls, nonce: int, spans: Iterable[AnySpan]) -> Recover:
        return cls(nonce, *_on_the_wire(spans))

    def spans(self) -> list[Any]:
        return _spans(self.ranges, self.runs)


HANDED_OVER = 0
"""The nonce of an ACKRECOVER that nobody asked for: a recovery buffer handed over, by a member that leaves or that has
just given a snapshot."""


class AckRecover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=65):
    """ACKRECOVER: the frames that the recovery buffer holds, and the ranges of which it holds nothing. The paper stays
    silent about those; saying so lets a blocking order tell "nobody has it" from "nobody answered"."""

    nonce: int
    frames: tuple[AnyFrame, ...]
    lacks: tuple[Range, ...] = ()
    lacks_runs: tuple[FrameRange, ...] = ()

    @classmethod
    def of(cls, nonce: int, frames: Iterable[AnyFrame], lacks: Iterable[AnySpan]) -> AckRecover:
        return cls(nonce, tuple(frames), *_on_the_wire(lacks))

    def lacked(self) -> list[Any]:
        return _spans(self.lacks, self.lacks_runs)


def _on_the_wire(spans: Iterable[AnySpan]) -> tuple[tuple[Range, ...], tuple[FrameRange, ...]]:
    """Spans of tickets, and spans of owners, which have no incarnation."""
    ranges: list[Range] = []
    runs: list[FrameRange] = []
    for of, inc, first, last in spans:
        if isinstance(of, int):
            ranges.append((of, inc, first, last))
        else:
            runs.append((of, first, last))
    return tuple(ranges), tuple(runs)


def _spans(ranges: Iterable[Range], runs: Iterable[FrameRange]) -> list[Any]:
    return [*ranges, *((owner, 0, first, last) for owner, first, last in runs)]


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=66):
    """A joiner asks for clock and state. Only an order at least as strong as its own (`RANK`) can give both exactly;
    as a `last_resort` it takes them from any, at the price of a loss, never of an inversion."""

    nonce: int
    rank: int
    last_resort: bool
    free: bool = False
    """It believes that the cluster has no tickets."""
    mechanism: str = ""
    """And that it is ordered by this mechanism."""

    @property
    def kind(self) -> str:
        """The kind of cluster that it wants to join, as `OrderConfig.kind`."""
        return self.mechanism or ("no tickets" if self.free else "tickets")


class SnapshotRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=67):
    """Not from me: `reason` is `joining`, `weaker` or `busy`; or `tickets`, `no tickets`, `mechanism`: this is
    another kind of cluster than the joiner believes."""

    nonce: int
    reason: str


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=68):
    """One point of the responder's delivery order: its clock there, and the application's state there."""

    nonce: int
    token: str
    clock: SavedState
    coordinators: tuple[tuple[int, MemberId], ...]
    members: tuple[MemberId, ...]
    state: bytes


class TicketState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a cluster with tickets: a `CctClock`, and who held the tickets."""

    kind: ClassVar[str] = "tickets"

    T: tuple[Entry, ...]
    floor: tuple[int, ...]
    tails: tuple[tuple[int, int, int], ...]
    orphans: tuple[tuple[int, int, int], ...]
    past: tuple[Entry, ...]
    owners: tuple[tuple[int, int, MemberId], ...]
    ahead: tuple[Key, ...] = ()
    """Unordered only: frames delivered although something before them is still missing."""


class GenerationState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One generation's clock as data; `owed` and `level` as in `order.generations.GenerationClock`."""

    generation: int
    K: int
    V: Packed
    owed: tuple[int, ...] = ()
    level: tuple[int, ...] = ()
    past: Packed | None = None
    """Of a weak order: the highest of all stamps delivered."""


class OwnerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far an owner's frames are taken, and what is needed to count one that is given up."""

    owner: MemberId
    taken: int
    generation: int
    opened: int
    keys: tuple[int, ...]


class FreeState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a cluster with (N, R, K) clocks: the clocks, the owners' cursors and what waits."""

    kind: ClassVar[str] = "no tickets"

    generations: tuple[GenerationState, ...]
    owners: tuple[OwnerState, ...]
    waiting: tuple[FreeFrame, ...] = ()
    """Taken, and not delivered yet."""
    ahead: tuple[FrameRange, ...] = ()
    """Unordered only: frames delivered although an earlier one of their owner is still missing."""
    forgotten: int = 0


class StampedState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of a mechanism, encoded; process `i` in it is the member `processes[i]`, of whose frames `taken[i]` are
    in it or given up."""

    mechanism: str
    processes: tuple[MemberId, ...]
    taken: tuple[int, ...]
    state: bytes

    @property
    def kind(self) -> str:
        return self.mechanism


OrderState = TicketState | FreeState | StampedState
"""What an order layer goes on from after a restart, or a joiner from a snapshot. `kind` is that of its cluster, as
`OrderConfig.kind` has it."""


class SavedState(TicketState, frozen=True, array_like=True, gc=False):
    """An `OrderState` in a snapshot or a checkpoint. The layout is older than the sum: the fields of a `TicketState`,
    empty in a cluster without tickets, then one field for each of the other two."""

    free: FreeState | None = None
    stamped: StampedState | None = None

    @classmethod
    def of(cls, state: OrderState) -> SavedState:
        if isinstance(state, TicketState):
            return cls(*_fields(state))
        free, stamped = (state, None) if isinstance(state, FreeState) else (None, state)
        return cls((), (), (), (), (), (), (), free, stamped)

    def state(self) -> OrderState:
        return self.stamped or self.free or TicketState(*_fields(self))


def _fields(state: TicketState) -> list[Any]:
    return [getattr(state, name) for name in TicketState.__struct_fields__]


OrderMessage = Recover | AckRecover | SnapshotRequest | SnapshotRefused | Snapshot
