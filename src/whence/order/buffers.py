"""`B`, the recovery buffer: frames that this member can give to others (CCC11 Algorithm 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from whence.clock import AnyFrame

O = TypeVar("O", int, str)  # noqa: E741
"""What a count of events belongs to: a ticket, or (where there are none) an owner."""
F = TypeVar("F", bound=AnyFrame)

Count = tuple[O, int]
"""What is counted: `(ticket, incarnation)`, or without tickets `(owner, 0)`."""
FrameKey = tuple[O, int, int]
"""A frame by its count and where it begins there."""
Span = tuple[O, int, int, int]
"""A count, first and last: a range of its events, or of the owner's frames."""


class RecoveryBuffer(Generic[O, F]):
    """FIFO, bounded in frames and in bytes. Finds a frame by key, and all frames of a range."""

    def __init__(self, frames: int, size: int) -> None:
        self.bound = frames
        self.bound_bytes = size
        self.bytes = 0
        self.evicted = 0
        self._frames: dict[FrameKey[O], tuple[F, int]] = {}
        self._tenures: dict[Count[O], dict[int, F]] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: FrameKey[O]) -> bool:
        return key in self._frames

    def __iter__(self) -> Iterator[F]:
        return (frame for frame, _ in self._frames.values())

    def __reversed__(self) -> Iterator[F]:
        return (frame for frame, _ in reversed(self._frames.values()))

    def add(self, key: FrameKey[O], frame: F) -> None:
        """Insert; when full, the oldest frames are evicted."""
        if key in self._frames:
            return
        size = frame.size
        self._frames[key] = (frame, size)
        self._tenures.setdefault(key[:2], {})[key[2]] = frame
        self.bytes += size
        while len(self._frames) > self.bound or self.bytes > self.bound_bytes:
            self._evict()

    def _evict(self) -> None:
        key = next(iter(self._frames))
        self.bytes -= self._frames.pop(key)[1]
        tenure = self._tenures[key[:2]]
        del tenure[key[2]]
        if not tenure:
            del self._tenures[key[:2]]
        self.evicted += 1

    def find(self, wanted: Span[O]) -> list[F]:
        """The frames that hold an event of the range, in order."""
        tenure = self._tenures.get(wanted[:2])
        if not tenure:
            return []
        first, last = wanted[2:]
        return [f for s, f in sorted(tenure.items()) if s <= last and f.upto >= first]
