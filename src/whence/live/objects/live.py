"""Connects objects to a live cluster.

    objects = Objects()
    async with whence.join("lobby", ..., state=objects.state, restore=objects.restore) as cluster:
        async with Live(objects, cluster) as live:
            scores = objects.registers("scores")
            async with cluster.publisher() as publisher:
                await live.publish(publisher, scores.set("ann", 3))
            async for change in live.changes(scores):
                print(scores[change.key])

`Live` reads the cluster's events; those that are not operations go to `other`, one after the other. What `other` raises
ends the block: it is raised there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Self

from whence.core.clock import EventId, Frame
from whence.core.clock.bounds import keep_last
from whence.errors import ClusterClosed, TimedOut, UsageError
from whence.live.events import reading
from whence.live.net.queues import Changes, Signal
from whence.live.objects.container import Change, Objects
from whence.live.objects.kernel import Replica, StampedEvent, stamp

if TYPE_CHECKING:
    from whence.live.api import Cluster
    from whence.live.events import Event
    from whence.live.publisher import Publisher

MAX_TENURES = 4096
"""Tenures of which it is remembered how far they are applied."""
LOOK_S = 0.1
"""Seconds between two looks whether an event was applied before this block began."""


def as_event(event: Event) -> StampedEvent:
    """Convert a delivered event for replicas."""
    frame, seq = event.frame, event.seq
    if not isinstance(frame, Frame):
        raise UsageError("objects need causal or reliable order: a cluster without tickets gives neither")
    at = stamp(EventId(frame.ticket, frame.inc, seq, frame.owner), frame.timestamp(seq))
    return StampedEvent(at, event.payload, event.over_gap)


class Live:
    """Applies the events of a cluster to objects, inside an `async with` block."""

    def __init__(
        self,
        objects: Objects,
        cluster: Cluster,
        other: Callable[[Event], Awaitable[None] | None] | None = None,
    ) -> None:
        """`other`: called with each event that is no operation, and awaited if it is an `async def`, before the next
        event is read."""
        self.objects = objects
        self.cluster = cluster
        self.other = other
        self.failure: BaseException | None = None
        self.over = False
        self._task: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[object] | None = None
        self._ends_block = False
        self._told = Signal()
        self._upto: dict[tuple[int, int], int] = {}  # by tenure: the last event applied

    async def __aenter__(self) -> Self:
        self.objects.me = self.cluster.me
        self._owner = asyncio.current_task()
        self._task = asyncio.create_task(self._follow(), name=f"objects of {self.cluster.name}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        owner, self._owner = self._owner, None
        assert self._task is not None and owner is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        others = owner.uncancel() if self._ends_block else 0
        if self.failure is not None and (kind is None or (kind is asyncio.CancelledError and not others)):
            raise self.failure

    async def _follow(self) -> None:
        try:
            events = self.cluster.events()
            while batch := await events.batch():
                for event in batch:
                    if (event.direct or not self.objects.apply(as_event(event))) and self.other is not None:
                        waits = self.other(event)
                        if isawaitable(waits):
                            await waits
                if not batch[-1].direct:
                    self._applied(batch[-1])
        except Exception as error:
            self.failure = error
            if self._owner is not None:
                self._ends_block = self._owner.cancel()
        finally:
            self.over = True
            self._told.tell()

    def _applied(self, event: Event) -> None:
        """This event, and all before it of its tenure."""
        assert isinstance(event.frame, Frame)
        tenure = (event.frame.ticket, event.frame.inc)
        self._upto.pop(tenure, None)
        self._upto[tenure] = event.seq
        keep_last(self._upto, MAX_TENURES)
        self._told.tell()

    async def publish(self, publisher: Publisher, *operations: bytes, copies: int = 1) -> Sequence[str]:
        """Publish operations in this order, in few frames; returns when they are applied here: later reads here see
        them. (Inside `other`, which the next event waits for, it returns when they are on their way.) Raises `Full` if
        there is no room. `copies` as for any event (`Publisher.publish`)."""
        self.objects.check_room(b"".join(operations))
        ids = await publisher.publish_many(operations, copies=copies)
        if ids and not reading(self.cluster._node):
            await self.applied(ids[-1])
        return ids

    async def applied(self, *ids: str, timeout: float | None = None) -> None:
        """Wait until these events, of any member, are applied here. So a reader sees at this member what was written at
        another one. Raises TimedOut after `timeout` seconds, ClusterClosed when the cluster is left."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        for name in ids:
            event = EventId.parse(name)
            while not await self._told.until(lambda e=event: self._has(e), min(deadline, time.monotonic() + LOOK_S)):  # type: ignore[misc]
                if self._was_there(name):
                    break
                if time.monotonic() >= deadline:
                    raise TimedOut(f"{name} is not applied here after {timeout:g} s")

    def _has(self, event: EventId) -> bool:
        if self._upto.get((event.ticket, event.inc), 0) >= event.seq:
            return True
        if self._ended():
            raise ClusterClosed(f"{self.cluster.name!r} was left before {event} was applied")
        return False

    def _was_there(self, name: str) -> bool:
        """It was delivered before this block began, or given up; and all that is delivered is applied."""
        node = self.cluster._node
        waits = node.backlog.items or node.backlog.busy or (node.scribe is not None and node.scribe.busy)
        return not waits and self.cluster.why_blocked(name).state in ("delivered", "obsolete")

    def changes(self, replica: Replica | None = None, limit: int = 4096) -> Changes[Change]:
        """The changes of one object, or of all, from now on. The contents are current even if a slow reader misses
        some. Ends with the cluster, and raises the error that stopped it."""

        def put(change: Change) -> None:
            if replica is None or (change.kind, change.name) == (replica.kind, replica.name):
                changes.put(change)
                self._told.tell()

        changes = Changes[Change](limit, self._told, self._ended, self.objects.listen(put))
        return changes

    def _ended(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.over
