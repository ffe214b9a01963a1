"""What an application reads: events in the order of their member, each processed when the next one is asked for."""

from __future__ import annotations

import asyncio
import time
from abc import ABCMeta
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Literal, Self, overload

import msgspec

from whence.core.clock import AnyFrame, Frame, Incarnation, MemberId, StampedFrame
from whence.core.ports import Deliver
from whence.errors import ClusterClosed, UsageError
from whence.live.net.node import Node
from whence.live.net.queues import Replayed

Alert = Literal["possible", "likely"]
ALERTS: dict[int, Alert | None] = {0: None, 4: "possible", 5: "likely"}
"""By the algorithm of PCO17 that raised it."""

TURN_S = 0.01
"""Seconds that a reader may find events without suspending; then the loop turns once, between two frames."""

_reader: ContextVar[Events | None] = ContextVar("whence_reader", default=None)
"""The reader that this task, or the one that started it, has its events from."""


def reading(node: Node) -> bool:
    """Whether the calling task is busy with an event of this node: then nothing may wait for its reader."""
    reader = _reader.get()
    return reader is not None and reader.node is node and reader.in_hand


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event, as the application sees it."""

    payload: bytes
    seq: int
    frame: AnyFrame
    over_gap: bool = False
    """Something before it was given up (never in `reliable` order)."""
    alert: Alert | None = None
    """Probabilistic order: whether something that depends on this event was delivered before it. None: surely not;
    `possible`: Algorithm 4 cannot exclude it; `likely`: by Algorithm 5 `suspects` claim to depend on it."""
    suspects: tuple[str, ...] = ()
    """The ids of recent events that claim to depend on this one: where a repair begins."""
    replayed: bool = False
    """It was delivered to an earlier life of this process, which may have processed it: with `state`, after the state
    that was restored."""

    place: int | None = None
    """In total order: its number in the one sequence, the same at all members in this order. None: another order, or
    `replayed`."""

    @property
    def id(self) -> str:
        """Unique in the cluster, for good."""
        frame = self.frame
        if isinstance(frame, Frame):
            return f"{frame.ticket}:{Incarnation.unpack(frame.inc)}:{self.seq}@{frame.owner}"
        return f"{frame.owner}/{self.seq}"

    @property
    def direct(self) -> bool:
        """It was sent to this member alone (`Cluster.send`)."""
        return isinstance(self.frame, StampedFrame) and self.frame.direct

    @property
    def origin(self) -> MemberId:
        """The member that published it."""
        return self.frame.owner


class _Meta(type(msgspec.Struct), ABCMeta):  # type: ignore[misc]  # a Struct that is a Sequence
    pass


class EventBatch(msgspec.Struct, Sequence[Event], metaclass=_Meta, eq=False):
    """Events that were read together, of one frame or several. `payloads` are there at once; an `Event` is made when it
    is asked for."""

    payloads: list[bytes]
    _frames: list[tuple[Deliver, int]]
    """Each with the number of its payloads, the last of its events, that are part of the batch."""
    _events: list[Event] | None = None

    def rest(self, at: int) -> EventBatch:
        """The events of a frame from position `at` on."""
        return EventBatch(self.payloads[at:], [(item, n - at) for item, n in self._frames])

    def __add__(self, other: EventBatch) -> EventBatch:
        return EventBatch(self.payloads + other.payloads, self._frames + other._frames)

    def all(self) -> list[Event]:
        """The events as a list."""
        if self._events is None:
            made: list[Event] = []
            for item, count in self._frames:
                again = isinstance(item, Replayed)
                frame, said = item.frame, (item.over_gap, ALERTS[item.alert], item.suspects, again)
                payloads = self.payloads[len(made) : len(made) + count]
                first = frame.last + 1 - count
                if item.place:
                    ahead = item.place - frame.first
                    made += [Event(p, s, frame, *said, place=ahead + s) for s, p in enumerate(payloads, first)]
                else:
                    made += [Event(p, s, frame, *said) for s, p in enumerate(payloads, first)]
            self._events = made
        return self._events

    def origins(self) -> list[MemberId]:
        """The members that published them, each once, in the order of their first events."""
        if len(self._frames) == 1:
            return [self._frames[0][0].frame.owner]
        return list(dict.fromkeys(item.frame.owner for item, _ in self._frames))

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.all())

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        return self.all()[at]


class Events(AsyncIterator[Event]):
    """The events of a cluster, in the order its member joined with. Reading does not suspend while events are here.
    Asking for the next one says that the last one is processed: a member with a directory does not see it again after a
    restart.

    One reader at a time. A new `events()` goes on where the last one stopped, and the last one raises when it is used
    again."""

    def __init__(self, node: Node, on_alert: Callable[[Event], None] | None, after: Events | None = None) -> None:
        self.node = node
        self._on_alert = on_alert
        self._frame = _NOTHING
        self._at = self._end = 0  # the next event of the frame to be handed out, and how many the frame has
        self._handed = 0
        self._replaced = False
        self._asking = False
        self._turned = time.monotonic()
        if after is not None:
            self._frame, self._at = after.hand_over()
            self._end = len(self._frame)
        node.backlog.read = True

    def hand_over(self) -> tuple[EventBatch, int]:
        """End this reader; what it has not handed out yet is the next one's."""
        if self._asking:
            raise UsageError("the events of this cluster are being read already: one reader at a time")
        self._replaced = True
        rest, self._frame, self._end = self._frame, _NOTHING, 0
        return rest, self._at

    def __aiter__(self) -> Self:
        return self

    @property
    def in_hand(self) -> bool:
        """Events were handed out, and the next was not asked for."""
        return self._handed > 0

    async def __anext__(self) -> Event:
        if not self._next_at_hand():
            batch = await self.batch()
            if not batch.payloads:
                raise StopAsyncIteration
            self._at -= len(batch.payloads)
        event = self._frame.all()[self._at]
        self._at += 1
        self._handed = 1
        return event

    async def batch(self, frames: int = 1) -> EventBatch:
        """The events of one frame, or of up to so many that are here, at least one event; empty when the cluster was
        left. Cheaper than one by one."""
        if self._replaced:
            raise UsageError("this reader has ended, because events() was called again: one reader at a time")
        if self._asking:
            raise UsageError("another task waits for the next event of this reader: one task at a time")
        if _reader.get() is not self:
            _reader.set(self)
        node, backlog, items = self.node, self.node.backlog, self.node.backlog.items
        self._asking = True
        try:
            if node.scribe is not None:  # the last event is not shown again once the next one is handed out
                self.processed()
                await node.scribe.settled()
            self._handed = 0
            if self._at >= self._end:
                self._frame, self._at, self._end = _NOTHING, 0, 0
                backlog.busy = False
                now = time.monotonic()
                if now - self._turned > TURN_S:  # a reader that always finds events must not stop everybody else
                    self._turned = now
                    await asyncio.sleep(0)
                while not (items and isinstance(items[0], Deliver)):
                    if items:
                        node.snapshot(items.popleft())  # type: ignore[arg-type]  # a joiner wants the state here
                    elif node.failure is not None:
                        raise ClusterClosed(f"the node of {node.cluster} has stopped: {node.failure}") from node.failure
                    elif node.left or node.closed:
                        return _NOTHING
                    else:
                        waiter = asyncio.get_running_loop().create_future()
                        node.changed.waiting[waiter] = None  # as `Signal.wait` does, in one call less
                        try:
                            await waiter
                        finally:
                            node.changed.waiting.pop(waiter, None)
                        self._turned = time.monotonic()
        finally:
            self._asking = False
        found = self._frame.rest(self._at) if self._at < self._end else None
        frames -= found is not None
        while frames > 0 and items and isinstance(item := items[0], Deliver):
            alerts = item.alert == 5 and self._on_alert is not None
            if alerts and found is not None:
                break  # the application's `on_alert` may raise, and then nothing that it did not get may be lost
            backlog.take_frame()
            payloads = item.frame.payloads() if item.payloads is None else item.payloads
            batch = self._frame = EventBatch(payloads, [(item, len(payloads))])
            self._at, self._end, backlog.busy, backlog.skip = backlog.skip, len(payloads), True, 0
            for event in batch if alerts else ():
                self._on_alert(event)  # type: ignore[misc]  # it is there
            batch = batch.rest(self._at) if self._at else batch
            found, frames = batch if found is None else found + batch, frames - 1
        assert found is not None
        self._at, self._handed = self._end, len(found.payloads)
        return found

    def waiting(self) -> list[Event]:
        """The events that come next, as far as they are here: looked at, not taken. Those that an earlier life has
        processed may be among the first."""
        rest = self._frame.all()[self._at :]
        for item in self.node.backlog.items:
            if isinstance(item, Deliver):
                payloads = item.frame.payloads() if item.payloads is None else item.payloads
                rest += EventBatch(payloads, [(item, len(payloads))])
        return rest

    def done(self) -> None:
        """All events handed out so far are processed, though the next one is not asked for."""
        self.processed()
        if self._at >= self._end:
            self.node.backlog.busy = False
            self.node.save_state()

    def _next_at_hand(self) -> bool:
        """The next event is one of the same frame, and nothing else has changed; then the last one is processed."""
        if self._at >= self._end or self._asking or self._replaced or _reader.get() is not self:
            return False
        self.processed()
        return self.node.scribe is None or not self.node.scribe.busy

    def processed(self) -> None:
        """All events handed out so far are."""
        handed, self._handed = self._handed, 0
        if handed and self.node.scribe is not None:
            self.node.done(handed)


_NOTHING = EventBatch([], [])
