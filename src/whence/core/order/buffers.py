"""`B`, the recovery buffer: frames that this member can give to others (CCC11 Algorithm 5)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Reversible
from typing import Generic, TypeVar

from whence.core.clock import AnyFrame, address_of

O = TypeVar("O", int, str)  # noqa: E741
"""What a count of events belongs to: a ticket, or (where there are none) an owner."""
F = TypeVar("F", bound=AnyFrame)

Count = tuple[O, int]
"""What is counted: `(ticket, incarnation)`, or without tickets `(owner, 0)`."""
FrameKey = tuple[O, int, int]
"""A frame by its count and where it begins there."""
Span = tuple[O, int, int, int]
"""A count, first and last: a range of its events, or of the owner's frames."""


OWN_FRAMES, OWN_BYTES = 256, 256 << 10
"""The last frames of a process, which may not have reached anybody else: it spreads them again after a restart."""
KEPT_FRAMES, KEPT_BYTES = 1024, 1 << 20
"""What of `B` is kept on disk."""
GIVEN_FRAMES, GIVEN_BYTES = 256, 256 << 10
"""What of `B` is handed over to a joiner, and to others when a member leaves: one message holds it."""


def newest(frames: Reversible[AnyFrame], most: int, size: int, home: str | None = None) -> tuple[AnyFrame, ...]:
    """The last of these frames, oldest first, within two bounds. `home`: only those of the process at this address, of
    its earlier lives, too: a second crash must not lose what the first one left unsent."""
    found: list[AnyFrame] = []
    for frame in reversed(frames):
        if home is not None and address_of(frame.owner) != home:
            continue
        size -= frame.size
        if len(found) >= most or size < 0:
            break
        found.append(frame)
    return tuple(found[::-1])


class RecoveryBuffer(Generic[O, F]):
    """First in, first out; bounded in frames and in bytes. Finds a frame by key, and all frames of a range."""

    def __init__(self, frames: int, size: int) -> None:
        self.bound = frames
        self.bound_bytes = size
        self.bytes = 0
        self.evicted = 0
        self._frames: dict[FrameKey[O], tuple[F, int]] = {}
        self._tenures: dict[Count[O], dict[int, F]] = {}
        self._order: deque[FrameKey[O]] = deque()  # to find the first of a dict takes as long as it had keys before it

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: FrameKey[O]) -> bool:
        return key in self._frames

    def __iter__(self) -> Iterator[F]:
        return (frame for frame, _ in self._frames.values())

    def __reversed__(self) -> Iterator[F]:
        return (frame for frame, _ in reversed(self._frames.values()))

    def add(self, key: FrameKey[O], frame: F, born: int = 0) -> bool:
        """Insert; when full, others are evicted. `born`: when the frame was published, about. Returns whether it is
        new here."""
        if key in self._frames:
            return False
        size = frame.size
        self._frames[key] = (frame, size)
        self._tenures.setdefault(key[:2], {})[key[2]] = frame
        self.bytes += size
        self._added(key, born)
        while len(self._frames) > self.bound or self.bytes > self.bound_bytes:
            self._remove(self._victim())
            self.evicted += 1
        return True

    def _added(self, key: FrameKey[O], born: int) -> None:
        """A frame was inserted."""
        self._order.append(key)

    def _victim(self) -> FrameKey[O]:
        """What leaves a full buffer, to be removed: the first that came."""
        return self._order.popleft()

    def _remove(self, key: FrameKey[O]) -> None:
        self.bytes -= self._frames.pop(key)[1]
        tenure = self._tenures[key[:2]]
        del tenure[key[2]]
        if not tenure:
            del self._tenures[key[:2]]

    def forget(self, stable: Callable[[F], bool]) -> None:
        """Frames that nobody will ask for any more are not needed. First in, first out keeps them until they are
        evicted."""

    def find(self, wanted: Span[O]) -> list[F]:
        """The frames that hold an event of the range, in order."""
        tenure = self._tenures.get(wanted[:2])
        if not tenure:
            return []
        first, last = wanted[2:]
        return [f for s, f in sorted(tenure.items()) if s <= last and f.upto >= first]


class AgingBuffer(RecoveryBuffer[O, F]):
    """As CCC11 section 5.2 proposes: the oldest by age (hops made, and rounds since) leaves a full buffer, and what is
    stable is forgotten (CCC11 section 5.1)."""

    def __init__(self, frames: int, size: int) -> None:
        super().__init__(frames, size)
        self._by_age: list[tuple[int, FrameKey[O]]] = []  # a heap, one entry for each frame

    def _added(self, key: FrameKey[O], born: int) -> None:
        heapq.heappush(self._by_age, (born, key))

    def _victim(self) -> FrameKey[O]:
        return heapq.heappop(self._by_age)[1]

    def forget(self, stable: Callable[[F], bool]) -> None:
        """From the oldest on, as far as they are stable."""
        while self._by_age and stable(self._frames[self._by_age[0][1]][0]):
            self._remove(self._victim())
