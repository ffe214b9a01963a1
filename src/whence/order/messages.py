"""What the order layer says to its peers: recovery and state transfer. Tags 64..95, only ever appended."""

from __future__ import annotations

import msgspec

from whence.clock import Entry, Frame, Key, MemberId, Range


class Recover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=64):
    """RECOVER (CCC11 Algorithm 5): send me what you hold of these ranges. `nonce` binds the answer to the question."""

    nonce: int
    ranges: tuple[Range, ...]


class AckRecover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=65):
    """ACKRECOVER: the frames that the recovery buffer holds, and the ranges of which it holds nothing. The paper stays
    silent about those; saying so lets a blocking order tell "nobody has it" from "nobody answered"."""

    nonce: int
    frames: tuple[Frame, ...]
    lacks: tuple[Range, ...] = ()


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=66):
    """A joiner asks for clock and state. Only an order at least as strong as its own (`RANK`) can give both exactly;
    as a `last_resort` it takes them from any, at the price of a loss, never of an inversion."""

    nonce: int
    rank: int
    last_resort: bool


class SnapshotRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=67):
    """Not from me: `reason` is `joining`, `weaker` or `busy`."""

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


OrderMessage = Recover | AckRecover | SnapshotRequest | SnapshotRefused | Snapshot

__all__ = [
    "AckRecover",
    "ClockState",
    "OrderMessage",
    "Recover",
    "Snapshot",
    "SnapshotRefused",
    "SnapshotRequest",
]
