"""Events that were published in this turn of the loop, and are not frames yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from whence.core.clock import MAX_SEQ
from whence.core.clock.event import FRAME_BYTES, FRAME_EVENTS
from whence.core.order import Numbering
from whence.errors import ClusterClosed, UsageError
from whence.live.net.signal import Signal


class EventIds(Sequence[str]):
    """The ids of published events, in their order. Each is made when it is asked for: most never are. Equal to a list
    or a tuple of the same ids."""

    __slots__ = ("_count", "_runs")

    def __init__(self) -> None:
        self._runs: list[tuple[str, range, str]] = []
        self._count = 0

    def add(self, before: str, numbers: range, after: str) -> None:
        """The ids of a run of events of one tenure."""
        self._runs.append((before, numbers, after))
        self._count += len(numbers)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for before, numbers, after in self._runs:
            for number in numbers:
                yield f"{before}{number}{after}"

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        places = range(self._count)[at]
        return [self._at(place) for place in places] if isinstance(places, range) else self._at(places)

    def _at(self, place: int) -> str:
        for before, numbers, after in self._runs:
            if place < len(numbers):
                return f"{before}{numbers[place]}{after}"
            place -= len(numbers)
        raise IndexError(place)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, EventIds | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return repr(list(self))


class Batch:
    """Events that have their ids. The member stamps them before it handles anything else, so nothing can come between:
    the ticket that they were accepted under is the one that they are published under."""

    __slots__ = (
        "_after",
        "_before",
        "_bytes",
        "_last",
        "_number",
        "_over",
        "_room",
        "error",
        "now",
        "payloads",
        "settled",
        "waits",
    )

    def __init__(self, numbering: Numbering, now: int, room: int, waits: bool) -> None:
        """`room`: events that the backlog of the own application has room for."""
        self._before, first, self._after = numbering
        self._number = first - 1
        self._bytes, self._last = 5, 0
        self._room = min(room, FRAME_EVENTS)
        self._over: Signal | None = None
        self.now = now
        """When it was begun, in the member's time: that is when its events are published."""
        self.waits = waits
        """A journal has to have its events before anybody else, so publishing waits for `stored`."""
        self.payloads: list[bytes] = []
        self.settled = False
        """Its step is over: its events are on their way, or never will be."""
        self.error: Exception | None = None

    @property
    def full(self) -> bool:
        """It fills a frame, or the backlog: publishers let the loop turn. Full frames are cheap, remainders are not: if
        what was added last would not fit in a second time, this is enough."""
        return len(self.payloads) >= self._room or self._bytes + self._last > FRAME_BYTES

    @property
    def one_frame(self) -> bool:
        """All of it fits into one frame."""
        return len(self.payloads) <= FRAME_EVENTS and self._bytes <= FRAME_BYTES

    def add(self, payload: bytes) -> str:
        """Accept an event; returns its id."""
        number = self._number = self._number + 1
        if number > MAX_SEQ:
            raise UsageError("this tenure has used up its sequence numbers: leave and join again")
        self.payloads.append(payload)
        self._last = len(payload) + 5
        self._bytes += self._last
        return f"{self._before}{number}{self._after}"

    def add_all(self, payloads: Sequence[bytes], size: int, ids: EventIds) -> None:
        """Accept events, of `size` bytes in all; `ids` gets theirs."""
        first, last = self._number + 1, self._number + len(payloads)
        if last > MAX_SEQ:
            raise UsageError("this tenure has used up its sequence numbers: leave and join again")
        self._number = last
        self.payloads += payloads
        self._last = size + 5 * len(payloads)
        self._bytes += self._last
        ids.add(self._before, range(first, last + 1), self._after)

    def settle(self, error: Exception | None = None) -> None:
        """Its step is over."""
        self.settled, self.error = True, error
        if self._over is not None:
            self._over.tell()

    async def stored(self) -> None:
        """Wait until its events are on disk and on their way. Raises ClusterClosed if the node has stopped before."""
        if self._over is None:
            self._over = Signal()
        while not self.settled:
            await self._over.wait()
        if self.error is not None:
            raise ClusterClosed(str(self.error)) from self.error
