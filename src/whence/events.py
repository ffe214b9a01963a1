"""What an application reads: events, in the order of their cluster, each done with when the next one is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

import msgspec

from whence.clock import AnyFrame, Frame, Incarnation, MemberId
from whence.errors import ClusterClosed
from whence.net.node import Node
from whence.ports import Deliver

if TYPE_CHECKING:
    from whence.api import Cluster

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
    alert: int = 0
    """Probabilistic order: 5 (or 4, by a rougher rule) if something that depends on this event may have been delivered
    before it; 0: surely not."""
    suspects: tuple[str, ...] = ()
    """Alert 5: the ids of recent events that claim to depend on this one: where a repair begins."""

    @property
    def id(self) -> str:
        """Unique in the cluster, for good."""
        frame = self.frame
        if isinstance(frame, Frame):
            return f"{frame.ticket}:{Incarnation.unpack(frame.inc)}:{self.seq}@{frame.owner}"
        return f"{frame.owner}/{self.seq}"

    @property
    def origin(self) -> MemberId:
        """The member that published it."""
        return self.frame.owner

    @property
    def sender_ticket(self) -> int | None:
        """The ticket it was published under; None in a cluster without tickets."""
        return self.frame.ticket if isinstance(self.frame, Frame) else None


class Events(AsyncIterator[Event]):
    """The events of a cluster, in its order. Asking for the next one says that the last one is done with: a member with
    a directory does not see it again after a restart.

    One reader at a time: a new `events()` goes on where the last one stopped, which ends."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.node = cluster._node
        self._frame: list[Event] = []
        self._at = 0
        self._handed = 0

    def __aiter__(self) -> Self:
        return self

    @property
    def in_hand(self) -> bool:
        """Events were handed out, and the next was not asked for."""
        return self._handed > 0

    async def __anext__(self) -> Event:
        if _reader.get() is not self:
            _reader.set(self)
        if self._handed:
            self._done()
        if self._at >= len(self._frame) and not await self._next_frame():
            raise StopAsyncIteration
        event = self._frame[self._at]
        self._at += 1
        self._handed = 1
        return event

    async def batch(self, frames: int = 1) -> list[Event]:
        """The events of one frame, or of up to so many that are here, at least one event; empty when the cluster was
        left. Cheaper than one by one."""
        if _reader.get() is not self:
            _reader.set(self)
        if self._handed:
            self._done()
        if self._at >= len(self._frame) and not await self._next_frame():
            return []
        rest, self._at = self._frame[self._at :], len(self._frame)
        items = self.node.backlog.items
        while (frames := frames - 1) > 0 and items and isinstance(items[0], Deliver):
            rest += self._take()
        self._handed = len(rest)
        return rest

    def waiting(self) -> list[Event]:
        """The events that come next, as far as they are here: looked at, not taken. Those that an earlier life was
        done with may be among the first."""
        rest = self._frame[self._at :]
        for item in self.node.backlog.items:
            if isinstance(item, Deliver):
                rest += _events(item)
        return rest

    def done(self) -> None:
        """All events handed out so far are done with, though the next one is not asked for."""
        if self._handed:
            self._done()
        if self._at >= len(self._frame):
            self.node.backlog.busy = False
            self.node.save_state()

    def _done(self) -> None:
        handed, self._handed = self._handed, 0
        self.node.done(handed)

    async def _next_frame(self) -> bool:
        """All events so far are done with: on to the next frame."""
        node, backlog = self.node, self.node.backlog
        self._frame, self._at = [], 0
        if self._cluster._reader is not self:
            return False
        backlog.busy = False
        while True:
            while backlog.items:
                item = backlog.items[0]
                if isinstance(item, Deliver):
                    self._frame = self._take()
                    self._at, backlog.skip = backlog.skip, 0
                    backlog.busy = True
                    return True
                backlog.items.popleft()
                node.snapshot(item)
            if node.failure is not None:
                raise ClusterClosed(f"the node of {node.cluster} has stopped: {node.failure}") from node.failure
            if not node.open or self._cluster._reader is not self:
                return False
            await node.changed.wait()

    def _take(self) -> list[Event]:
        """The first item of the backlog, which is a frame."""
        backlog = self.node.backlog
        was_full = backlog.full
        item = backlog.take_frame()
        if was_full and not backlog.full:
            self.node.changed.tell()
        events = _events(item)
        if item.alert == 5 and self._cluster._on_alert is not None:
            for event in events:
                self._cluster._on_alert(event)
        return events


def _events(item: Deliver) -> list[Event]:
    frame, said = item.frame, (item.over_gap, item.alert, item.suspects)
    return [Event(p, s, frame, *said) for s, p in enumerate(frame.payloads(), frame.first)]
