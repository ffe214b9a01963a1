"""What waits between an application and its node: published events that are not frames yet, delivered events that were
not read yet, and whoever waits for either."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, overload

import msgspec

from whence.core.clock import MAX_SEQ, MemberId
from whence.core.clock.event import FRAME_BYTES, FRAME_EVENTS
from whence.core.order import Numbering
from whence.core.ports import Copied, CountCopies, Deliver, SendTo, SentTo, TakeSnapshot
from whence.errors import ClusterClosed, UsageError

C = TypeVar("C")


class Signal:
    """Wakes every waiter, in the order they came. A cancelled waiter leaves nothing behind."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[None], None] = {}

    def tell(self) -> None:
        """Something changed: wake all that wait."""
        waiters, self.waiting = self.waiting, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next `tell`."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiting[waiter] = None
        try:
            await waiter
        finally:
            self.waiting.pop(waiter, None)

    async def until(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until the condition holds, or until `deadline` (of `time.monotonic`); returns whether it holds."""
        if condition():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                while not condition():
                    await self.wait()
                return True
        return condition()


class Changes(AsyncIterator[C]):
    """What has changed, from now on, until `over`. A reader that is more than `limit` changes behind misses the oldest,
    and sees in `missed` how many."""

    def __init__(self, limit: int, told: Signal, over: Callable[[], bool], close: Callable[[], None]) -> None:
        self.missed = 0
        self.close = close
        """Keep no more changes for this reader."""
        self._items: deque[C] = deque(maxlen=limit)
        self._told = told
        self._over = over

    def put(self, change: C) -> None:
        """One more; the caller tells the signal."""
        self.missed += len(self._items) == self._items.maxlen
        self._items.append(change)

    async def __anext__(self) -> C:
        while not self._items:
            if self._over():
                self.close()
                raise StopAsyncIteration
            await self._told.wait()
        return self._items.popleft()


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
    """Events that have their ids. No other input is handled between giving the ids and stamping: the ticket that they
    were accepted under is the one that they are published under."""

    def __init__(self, numbering: Numbering, now: int, room: int, waits: bool) -> None:
        """`room`: events that the backlog of the own application has room for."""
        self._before, first, self._after = numbering
        self._number = first - 1
        self.bytes = 5
        """Of a frame that holds all of it."""
        self._room = min(room, FRAME_EVENTS)
        self._over: Signal | None = None
        self.now = now
        """When it was begun, in the member's time: that is when its events are published."""
        self.waits = waits
        """A journal has to have its events before anybody else: `stored` waits for it."""
        self.payloads: list[bytes] = []
        self.full = False
        """It fills a frame, or the backlog: publishers let the loop turn. Full frames are cheap, remainders are not: if
        what was added last would not fit in a second time, this is enough."""
        self.settled = False
        """Its step is over: its events are on their way, or never will be."""
        self.error: Exception | None = None

    def add(self, payload: bytes) -> str:
        """Accept an event; returns its id."""
        number = self._number = self._number + 1
        if number > MAX_SEQ:
            raise UsageError("this tenure has used up its sequence numbers: leave and join again")
        self.payloads.append(payload)
        size = len(payload) + 5
        self.bytes += size
        self.full = len(self.payloads) >= self._room or self.bytes + size > FRAME_BYTES
        return f"{self._before}{number}{self._after}"

    def add_all(self, payloads: Sequence[bytes], size: int, ids: EventIds) -> None:
        """Accept events, of `size` bytes in all; `ids` gets theirs."""
        first, last = self._number + 1, self._number + len(payloads)
        if last > MAX_SEQ:
            raise UsageError("this tenure has used up its sequence numbers: leave and join again")
        self._number = last
        self.payloads += payloads
        size += 5 * len(payloads)
        self.bytes += size
        self.full = len(self.payloads) >= self._room or self.bytes + size > FRAME_BYTES
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


class Replayed(Deliver, frozen=True, gc=False):
    """Delivered to an earlier life, whose application may have processed it."""


DECODED = 16
"""Frames that wait with their payloads decoded. A reader that keeps up never has more; for one that does not, the
payloads would double the memory that waits for it."""


class Backlog:
    """What was delivered and the application has not asked for, bounded in events and bytes; between the frames, the
    points at which a joiner wants the application's state."""

    def __init__(self, max_events: int, max_bytes: int, changed: Signal) -> None:
        """`changed` is told when there is room again."""
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._changed = changed
        self.items: deque[Deliver | TakeSnapshot] = deque()
        self.events = 0
        self.bytes = 0
        self.read = False
        """The application has asked for events: from now on nothing is thrown away, and publishing waits for it."""
        self.busy = False
        """The application has an event in hand."""
        self.full = False
        self.unread = 0
        self.skip = 0
        """Events at the beginning of the first frame that an earlier life has processed."""

    def add(self, out: Deliver) -> None:
        if out.payloads is not None and len(self.items) >= DECODED:
            out = msgspec.structs.replace(out, payloads=None)
        self.items.append(out)
        self.events += out.frame.count
        self.bytes += len(out.frame.body)
        if self.events > self.max_events or self.bytes > self.max_bytes:
            self._overflow()

    def _overflow(self) -> None:
        """The application is behind, or reads nothing at all."""
        self.full = self.read
        while not self.read and self._over(1) and len(self.items) > 1:
            if isinstance(self.items[0], Deliver):
                self.unread += self.take_frame().frame.count - self.skip
                self.skip = 0
            else:
                self.items.popleft()  # the state at this point will never be

    def take_frame(self) -> Deliver:
        """The first item, which is a frame."""
        out = self.items.popleft()
        assert isinstance(out, Deliver)
        self.events -= out.frame.count
        self.bytes -= len(out.frame.body)
        if self.full and not self._over(2):
            self.full = False
            self._changed.tell()
        return out

    @property
    def room(self) -> int:
        """Events that fit in before publishing waits."""
        return max(1, self.max_events - self.events) if self.read else self.max_events

    def _over(self, part: int) -> bool:
        return self.events * part > self.max_events or self.bytes * part > self.max_bytes


class CopyCounts:
    """Callers that wait until enough members hold their events, or until one has its message."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tokens = 0

    def ask(self, events: Sequence[str], copies: int, patience: int) -> tuple[CountCopies, asyncio.Future[Copied]]:
        """What to feed to the member, and how it ends."""
        self._tokens += 1
        done = self._waiting[self._tokens] = asyncio.get_running_loop().create_future()
        return CountCopies(self._tokens, tuple(events), copies, patience), done

    def send(self, to: MemberId, payload: bytes, patience: int) -> tuple[SendTo, asyncio.Future[SentTo]]:
        """Likewise of a message to one member."""
        self._tokens += 1
        done = self._waiting[self._tokens] = asyncio.get_running_loop().create_future()
        return SendTo(self._tokens, to, payload, patience), done

    def tell(self, copied: Copied | SentTo) -> None:
        done = self._waiting.pop(copied.token, None)
        if done is not None and not done.done():  # else the caller was cancelled
            done.set_result(copied)

    def close(self, error: Exception) -> None:
        """The member counts no more."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            if not done.done():
                done.set_exception(error)
