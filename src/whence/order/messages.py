"""What the order layer says to its peers: recovery and state transfer. Tags 64..95, only ever appended."""

from __future__ import annotations

import msgspec

from whence.clock import AnyFrame, Entry, FreeFrame, Key, MemberId, Packed, Range, Run


class Recover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=64):
    """RECOVER (CCC11 Algorithm 5): send me what you hold of these ranges. `nonce` binds the answer to the question."""

    nonce: int
    ranges: tuple[Range, ...]
    runs: tuple[Run, ...] = ()
    """Without tickets: of these owners' frames."""


class AckRecover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=65):
    """ACKRECOVER: the frames that the recovery buffer holds, and the ranges of which it holds nothing. The paper stays
    silent about those; saying so lets a blocking order tell "nobody has it" from "nobody answered"."""

    nonce: int
    frames: tuple[AnyFrame, ...]
    lacks: tuple[Range, ...] = ()
    lacks_runs: tuple[Run, ...] = ()


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


class SnapshotRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=67):
    """Not from me: `reason` is `joining`, `weaker` or `busy`; or `tickets`, `no tickets`, `mechanism`: this is
    another kind of cluster than the joiner believes."""

    nonce: int
    reason: str


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=68):
    """One point of the responder's delivery order: its clock there, and the application's state there."""

    nonce: int
    token: str
    clock: ClockState
    coordinators: tuple[tuple[int, MemberId], ...]
    members: tuple[MemberId, ...]
    state: bytes


class ClockState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `CctClock` as data: for snapshots and checkpoints."""

    T: tuple[Entry, ...]
    floor: tuple[int, ...]
    tails: tuple[tuple[int, int, int], ...]
    orphans: tuple[tuple[int, int, int], ...]
    past: tuple[Entry, ...]
    owners: tuple[tuple[int, int, MemberId], ...]
    ahead: tuple[Key, ...] = ()
    """Unordered only: frames delivered although something before them is still missing."""
    free: FreeState | None = None
    """Of a cluster without tickets, where all of the above is empty."""
    stamped: StampedState | None = None
    """Of a cluster ordered by a mechanism of the SURVEY, where all of the above is empty."""

    @property
    def kind(self) -> str:
        """Of which kind of cluster it is: `tickets`, `no tickets`, or the name of a mechanism."""
        return self.stamped.mechanism if self.stamped is not None else "tickets" if self.free is None else "no tickets"


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
    """The clocks, the owners' cursors and what waits, of a member without tickets."""

    generations: tuple[GenerationState, ...]
    owners: tuple[OwnerState, ...]
    waiting: tuple[FreeFrame, ...] = ()
    """Taken, and not delivered yet."""
    ahead: tuple[Run, ...] = ()
    """Unordered only: frames delivered although an earlier one of their owner is still missing."""
    forgotten: int = 0


class StampedState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of a mechanism, encoded; process `i` in it is the member `processes[i]`, of whose frames `taken[i]` are
    in it or given up."""

    mechanism: str
    processes: tuple[MemberId, ...]
    taken: tuple[int, ...]
    state: bytes


OrderMessage = Recover | AckRecover | SnapshotRequest | SnapshotRefused | Snapshot

__all__ = [
    "AckRecover",
    "ClockState",
    "FreeState",
    "GenerationState",
    "OrderMessage",
    "OwnerState",
    "Recover",
    "Snapshot",
    "SnapshotRefused",
    "SnapshotRequest",
    "StampedState",
]
