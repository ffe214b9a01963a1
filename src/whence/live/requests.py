"""Request and reply over a cluster's events: many requests at a time, each matched with its reply.

    requests = Requests(publisher)
    async for event in cluster.events():           # one task reads
        heard = requests.hear(event)
        if heard.wants_reply:
            await requests.reply(heard, answer_to(heard.payload))

    reply = await requests.ask(b"...", timeout=5)  # any other task

Requests and replies are events: every member sees them, and a request always before its reply. A request is named by
its asker's member id and a number, chosen before it is published, so no reply can come too early. The first reply
counts; later ones, and those that come too late, wake nobody.

On the wire: the byte ENQ, with which no text and no JSON begins, and a msgpack list.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Annotated, Final

import msgspec

from whence.core.clock import MemberId
from whence.errors import TimedOut, UsageError
from whence.live.events import Event, reading
from whence.live.publisher import Publisher, checked

MARK: Final = b"\x05"
MAX_PENDING: Final = 4096
"""Requests of one member that wait for a reply. A further `ask` waits for its turn."""
REPLY_S: Final = 10.0


class _Wire(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
    asker: Annotated[str, msgspec.Meta(max_length=255)]
    """Of a reply; empty in a request, whose asker is its origin."""
    payload: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire).decode


class Letter(msgspec.Struct, frozen=True, gc=False):
    """An event as `Requests.hear` reads it."""

    event: Event
    payload: bytes
    """Without what `Requests` has put before it."""
    asker: MemberId = ""
    """Who asked, of a request and of a reply; empty: it is neither."""
    number: int = 0
    is_reply: bool = False

    @property
    def wants_reply(self) -> bool:
        """It is a request."""
        return self.asker != "" and not self.is_reply


class Requests:
    """The requests of one member, and its replies to those of others."""

    def __init__(self, publisher: Publisher) -> None:
        self.unmatched = 0
        """Replies to this member that nobody waited for: the second ones, and those after a time-out."""
        self._publisher = publisher
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._room = asyncio.Semaphore(MAX_PENDING)

    async def ask(self, payload: bytes, *, timeout: float = REPLY_S) -> bytes:
        """Publish a request, and return the payload of its reply. Raises TimedOut after `timeout` seconds: somebody may
        have acted on it all the same."""
        if reading(self._publisher.node):
            raise UsageError("the task that reads the events cannot wait for a reply: ask in another task")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        try:
            async with asyncio.timeout(timeout), self._room:
                self._pending[number] = future
                await self._publisher.publish(MARK + _encode(_Wire(number, "", checked(payload))))
                return await future
        except TimeoutError:
            hint = "does the task that reads pass every event to hear(), here and at whoever answers?"
            raise TimedOut(f"no reply to request {number} within {timeout:g} s: {hint}") from None
        finally:
            self._pending.pop(number, None)

    def hear(self, event: Event) -> Letter:
        """Read an event; a reply wakes the `ask` that waits for it. To be called with every event."""
        if event.payload[:1] != MARK:
            return Letter(event, event.payload)
        try:
            wire = _decode(memoryview(event.payload)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Letter(event, event.payload)  # somebody else's
        if not wire.asker:
            return Letter(event, wire.payload, event.origin, wire.number)
        if wire.asker == self._publisher.node.me:
            future = self._pending.pop(wire.number, None)
            if future is not None and not future.done():
                future.set_result(wire.payload)
            else:
                self.unmatched += 1
        return Letter(event, wire.payload, wire.asker, wire.number, True)

    async def reply(self, request: Letter, payload: bytes) -> str:
        """Publish the reply to a request; returns the id of the event."""
        if not request.wants_reply:
            raise UsageError("reply(heard, ...) takes a request: heard.wants_reply says whether it is one")
        return await self._publisher.publish(MARK + _encode(_Wire(request.number, request.asker, checked(payload))))
