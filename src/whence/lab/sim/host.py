"""One simulated process: its clock, its members (one per cluster), and the application on top of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from whence.core.clock import AnyFrame, Frame, MemberId, member_id

if TYPE_CHECKING:
    from whence.core.member import Member
    from whence.core.recorder import Recorder

TenureKey = tuple[int, int, MemberId]
"""`(ticket, incarnation, owner)`: within it, events are numbered from 1. Without tickets: `(-1, 0, owner)`."""


def tenure_of(frame: AnyFrame) -> TenureKey:
    """The tenure of a frame."""
    return (frame.ticket, frame.inc, frame.owner) if isinstance(frame, Frame) else (-1, 0, frame.owner)


_PPM = 1_000_000


class LocalClock:
    """A clock with an offset and a drift; it never goes backwards."""

    __slots__ = ("_local", "_rate", "_true")

    def __init__(self, offset: int = 0, drift: int = 0) -> None:
        self._true, self._local, self._rate = 0, offset, _PPM + drift

    def at(self, true: int) -> int:
        """What the clock shows at this true time."""
        return self._local + (true - self._true) * self._rate // _PPM

    def when(self, local: int) -> int:
        """The first true time at which the clock shows at least this."""
        return self._true - (self._local - local) * _PPM // self._rate

    def change(self, true: int, drift: int, jump: int) -> None:
        """Jump forward and change the drift."""
        self._true, self._local, self._rate = true, self.at(true) + jump, _PPM + drift


class App:
    """A minimal application: the set of events it has seen, one bit each.

    Its state travels through snapshots and disks, so an event that a joiner sees twice or never is detected."""

    __slots__ = ("count", "seen")

    def __init__(self) -> None:
        self.seen: dict[TenureKey, int] = {}
        self.count = 0

    def deliver(self, frame: AnyFrame) -> bool:
        """Add the events of a frame; False if one of them was seen before."""
        tenure = tenure_of(frame)
        had = self.seen.get(tenure, 0)
        new = ((1 << frame.count) - 1) << frame.first
        self.seen[tenure] = had | new
        self.count += frame.count
        return not had & new

    def has(self, tenure: TenureKey, seq: int) -> bool:
        """Whether the event was seen."""
        return bool(self.seen.get(tenure, 0) >> seq & 1)

    def encode(self) -> bytes:
        """The state as bytes; equal states are equal bytes."""
        rows = [(*t, bits.to_bytes((bits.bit_length() + 7) // 8, "little")) for t, bits in sorted(self.seen.items())]
        return msgspec.msgpack.encode(rows)

    @classmethod
    def decode(cls, state: bytes) -> App:
        app = cls()
        for ticket, inc, owner, bits in msgspec.msgpack.decode(state, type=list[tuple[int, int, str, bytes]]):
            app.seen[ticket, inc, owner] = int.from_bytes(bits, "little")
        app.count = sum(bits.bit_count() for bits in app.seen.values())
        return app


@dataclass(slots=True, eq=False)
class Instance:
    """A running member: of one cluster, from the start of its process to its end."""

    host: SimHost
    cluster: int
    order: str
    member: Member
    app: App
    recorder: Recorder | None
    id: MemberId = field(init=False)
    wake: int = -1
    """True time of the pending wake; -1: none."""
    spins: int = 0
    buffers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Fill and bound when they were looked at last."""
    joined: bool = False
    left: bool = False

    def __post_init__(self) -> None:
        self.id = self.host.id


@dataclass(slots=True, eq=False)
class SimHost:
    """A process. Its name, clock, disk and wishes survive a crash."""

    name: str
    clock: LocalClock
    boot: int = 0
    up: bool = False
    instances: dict[int, Instance] = field(default_factory=dict)
    disk: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Cluster -> (the member's checkpoint, the application's state)."""
    saved: dict[int, MemberId] = field(default_factory=dict)
    """Cluster -> the member id that wrote the disk."""
    wants: dict[int, bool] = field(default_factory=dict)

    @property
    def id(self) -> MemberId:
        """The current member id."""
        return member_id(self.name, self.boot)
