"""Connects objects to a live cluster.

    objects = Objects()
    async with whence.join("lobby", ..., state=objects.state, restore=objects.restore) as cluster:
        async with Live(objects, cluster) as live:
            scores = objects.registers("scores")
            async with cluster.publisher() as publisher:
                await live.publish(publisher, scores.set("ann", 3))
            async for change in live.changes(scores):
                print(scores[change.key])

`Live` reads the cluster's events; those that are not operations go to `other`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from whence.core.clock import EventId, Frame
from whence.errors import UsageError
from whence.live.net.queues import Changes, Signal
from whence.live.objects.container import Change, Objects
from whence.live.objects.kernel import Replica, StampedEvent, stamp

if TYPE_CHECKING:
    from whence.live.api import Cluster
    from whence.live.events import Event
    from whence.live.publisher import Publisher


def as_event(event: Event) -> StampedEvent:
    """Convert a delivered event for replicas."""
    frame, seq = event.frame, event.seq
    if not isinstance(frame, Frame):
        raise UsageError("objects need causal or reliable order: a cluster without tickets gives neither")
    at = stamp(EventId(frame.ticket, frame.inc, seq, frame.owner), frame.timestamp(seq))
    return StampedEvent(at, event.payload, event.over_gap)


class Live:
    """Applies the events of a cluster to objects, inside an `async with` block."""

    def __init__(self, objects: Objects, cluster: Cluster, other: Callable[[Event], None] | None = None) -> None:
        self.objects = objects
        self.cluster = cluster
        self.other = other
        self.failure: BaseException | None = None
        self.over = False
        self._task: asyncio.Task[None] | None = None
        self._told = Signal()

    async def __aenter__(self) -> Self:
        self.objects.me = self.cluster.me
        self._task = asyncio.create_task(self._follow(), name=f"objects of {self.cluster.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        try:
            events = self.cluster.events()
            while batch := await events.batch():
                for event in batch:
                    if not self.objects.apply(as_event(event)) and self.other is not None:
                        self.other(event)
        except Exception as error:
            self.failure = error
        finally:
            self.over = True
            self._told.tell()

    async def publish(self, publisher: Publisher, *operations: bytes, copies: int = 1) -> Sequence[str]:
        """Publish operations in this order, in few frames. Raises `Full` if there is no room. They take effect here
        when they are delivered: await `changes`. `copies` as for any event (`Publisher.publish`)."""
        self.objects.check_room(b"".join(operations))
        return await publisher.publish_many(operations, copies=copies)

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
