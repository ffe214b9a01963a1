"""What the tests of live bridges share: members that note what they said and read, and an independent judge of order
across clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import whence
from tests.live.net.live import LIMIT
from whence.live.bridge import Reader, Said, everywhere

Step = tuple[str, str]
"""`say` or `read`, and the event's name."""


class Member:
    """A member whose application reads all events and notes every step. `answers`: what it says to a payload."""

    def __init__(self, cluster: whence.Cluster, answers: Callable[[Said], bytes | None] = lambda said: None) -> None:
        self.cluster = cluster
        self.answers = answers
        self.steps: list[Step] = []
        self.payloads: list[bytes] = []
        self.reader = Reader(cluster.name)
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(self) -> None:
        """Read, for as long as the cluster is there."""
        async for event in self.cluster.events():
            said = self.reader.read(event.id, event.payload)
            if said is None:
                continue
            self.steps.append(("read", said.id))
            self.payloads.append(said.payload)
            answer = self.answers(said)
            if answer is not None:
                self.say(everywhere(answer))

    def say(self, payload: bytes) -> None:
        """Publish it as soon as it can be."""
        self._queue.put_nowait(payload)

    async def speak(self) -> None:
        """Publish what is to be said. An own event counts as said when it is read: it is delivered here at once, and
        what was read between asking and publishing is in its past for sure only if it was read before."""
        async with self.cluster.publisher(timeout=LIMIT) as publisher:
            while True:
                payload, before = await self._queue.get(), len(self.steps)
                self.steps.insert(before, ("say", await publisher.publish(payload)))


async def members(
    stack: AsyncExitStack, joins: Sequence[Any], answers: Sequence[Callable[[Said], bytes | None]] = ()
) -> list[Member]:
    """Members that listen and speak until the stack is closed."""
    made: list[Member] = []
    for n, entry in enumerate(joins):
        cluster = await stack.enter_async_context(entry)
        member = Member(cluster, *answers[n : n + 1])
        made.append(member)
        for work in (member.listen(), member.speak()):
            stack.push_async_callback(_end, asyncio.create_task(_loud(work)))
    return made


async def _loud(work: Coroutine[Any, Any, None]) -> None:
    with suppress(whence.live.api.ClusterClosed):
        await work


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def inversions(logs: Sequence[Sequence[Step]]) -> list[str]:
    """Deliveries after something that follows them, judged by nothing but who said and read what before what. Events
    that stay in one cluster count as causes, and are due nowhere else."""
    past: dict[str, frozenset[str]] = {}
    todo = [list(log) for log in logs]
    known: list[set[str]] = [set() for _ in logs]
    moved = True
    while moved:  # an event's past is known when its publisher's steps before it are
        moved = False
        for log, before in zip(todo, known, strict=True):
            while log and (log[0][0] == "say" or log[0][1] in past):
                what, name = log.pop(0)
                if what == "say":
                    past[name] = frozenset(before)
                before |= {name, *past[name]}
                moved = True
    assert not any(todo), f"read, but said by nobody: {[log[0] for log in todo if log]}"
    wrong: list[str] = []
    for n, log in enumerate(logs):
        read = {name: at for at, (what, name) in reversed(list(enumerate(log))) if what == "read"}
        for name, at in read.items():
            wrong += [f"member {n} read {cause} after {name}" for cause in past[name] if read.get(cause, -1) > at]
    return wrong
