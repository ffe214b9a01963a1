"""Clusters that share members, as one causal order (`core/order/overlap.py` has the rules).

    async with Groups(orders, chat) as groups, orders.publisher() as publisher:
        await groups.publish(publisher, b"sold")
        async for said in groups.events():
            print(said.cluster, said.id, said.payload)

Every member of any of these clusters that is to keep the order reads and publishes so. A member of one of them that
does not reads the payloads with a `Reader`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Self

import msgspec

from whence.audit.trace import Row, TraceWriter
from whence.core.clock import EventId, Frame
from whence.core.order.overlap import Overlap, Past, Waiting
from whence.errors import BadMessage, UsageError
from whence.live.api import Cluster
from whence.live.bridge.envelope import Amid, Reader, Said, unwrap, wrap
from whence.live.events import Event, Events
from whence.live.net.queues import Signal
from whence.live.publisher import Publisher

MAX_WAITING = 65_536
"""Events that are held or not read yet; beyond that the clusters are read no further."""


class Groups:
    """This process in several clusters."""

    def __init__(self, *clusters: Cluster, patience: float = 10.0, trace: TraceWriter | None = None) -> None:
        """`patience`: seconds after which an event is delivered though something that it needs has not come: the order
        of its cluster may have skipped that. `trace`: takes the order of all of them as one, for the audit: ids begin
        with their cluster, and the process is named by its address in the first."""
        for cluster in clusters:
            if cluster._node.member.config.free:
                raise UsageError(f"{cluster.name} has no tickets, and groups that share members count by tickets")
        self.clusters = {cluster.name: cluster for cluster in clusters}
        if len(self.clusters) < 2:
            raise UsageError("groups that share members: two clusters or more, each given once")
        self.overlap = Overlap({}, int(patience * 1e9))
        self._tasks: list[asyncio.Task[None]] = []
        self._out: deque[Waiting] = deque()
        self._changed = Signal()
        self._trace, self._steps = trace, 0
        self.me = clusters[0].me
        self._own: dict[str, None] = {}  # published here, and not read yet
        self._read: deque[str] = deque()  # read, and not recorded yet
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._record("join", None)
        for name, cluster in self.clusters.items():
            reader = cluster.events()
            self.overlap.here[name] = _before(cluster, reader)
            self._tasks.append(asyncio.create_task(self._follow(name, reader), name=f"group {name}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def publish(self, publisher: Publisher, payload: bytes) -> str:
        """Publish in the publisher's cluster, after all that was read here and published through this; one event after
        the other."""
        group = publisher.node.cluster
        async with self._turn:
            needs = tuple(self.overlap.needs(group).items())
            event = await publisher.publish(wrap(Amid(needs), payload))
            ticket, inc, seq, _ = EventId.parse(event)
            self.overlap.published(group, ticket, (inc, seq))
            if self._trace is not None:
                name = f"{group}/{event}"
                self._own[name] = None
                self._record("publish", name)
                self._record("deliver", name)
        while self._read and not self._turn.locked():  # what was read meanwhile does not precede it
            self._record("deliver", self._read.popleft())
        return event

    def _record(self, kind: str, event: str | None) -> None:
        if self._trace is None:
            return
        order = "causal" if kind == "join" else None
        row = Row("groups", "all", self.me, self._steps, time.time_ns(), kind, event, order=order, reason="genesis")
        self._trace.append(row if order else msgspec.structs.replace(row, reason=None))
        self._steps += 1

    async def events(self) -> AsyncIterator[Said]:
        """The events of all clusters, causes first. Ends when one of the clusters is left."""
        while True:
            while self._out:
                event: Said = self._out.popleft().what
                self._changed.tell()
                name = f"{event.cluster}/{event.id}"
                if self._own.pop(name, event) is event:  # an own event was delivered when it was published
                    self._read.append(name)
                while self._read and not self._turn.locked():
                    self._record("deliver", self._read.popleft())
                yield event
            if any(task.done() for task in self._tasks):
                for task in self._tasks:
                    if task.done():
                        task.result()
                return
            at = self.overlap.wake_at
            due = None if at is None else time.monotonic() + max(0.0, (at - time.monotonic_ns()) / 1e9)
            if not await self._changed.until(lambda: bool(self._out) or any(t.done() for t in self._tasks), due):
                self._out += self.overlap.wake(time.monotonic_ns())

    async def _follow(self, name: str, events: Events) -> None:
        reader = Reader(name)
        try:
            async for event in events:
                await self._changed.until(lambda: len(self._out) + len(self.overlap) < MAX_WAITING)
                said = reader.read(event.id, event.payload)
                if said is not None and event.direct:
                    self._out.append(Waiting(name, 0, (), {}, said))
                    self._changed.tell()
                elif said is not None:
                    self._out += self.overlap.receive(_waiting(name, event, said), time.monotonic_ns())
                    self._changed.tell()
        finally:
            self._changed.tell()


def _waiting(name: str, event: Event, said: Said) -> Waiting:
    frame = event.frame
    assert isinstance(frame, Frame)
    try:
        heading, _ = unwrap(event.payload)
    except BadMessage:  # the reader has counted it
        heading = None
    needs = dict(heading.needs) if isinstance(heading, Amid) else {}
    return Waiting(name, frame.ticket, frame.timestamp(event.seq), needs, said, event.over_gap)


def _before(cluster: Cluster, reader: Events) -> Past:
    """How far this member had come before the first event that waits to be read."""
    past = list(cluster._node.member.ordering.T)
    for event in reversed(reader.waiting()):
        if isinstance(event.frame, Frame):
            past[event.frame.ticket] = (event.frame.inc, event.seq - 1)
    return tuple(past)
