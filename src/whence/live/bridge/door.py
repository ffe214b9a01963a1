"""Open groups, the member's side: non-members publish through a member (SURVEY 3.2).

1. The client names its events, `(client, number)`. A member publishes what it is asked to under that name, and says
   `Accepted` when it is delivered here. It publishes number n only when it has delivered n - 1.
2. A client may ask several members. All members read the first event of a name and drop the rest (`Reader`).

A door needs to see what is delivered: the application reads its events through `Door.read`. It holds a ticket for as
long as it is open: a ring of few coordinators does not survive the crash of one (docs/ring.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from whence.errors import ClusterClosed, RemoteError, Unauthentic, UsageError
from whence.live.api import Cluster
from whence.live.bridge.envelope import Asked, Reader, Said, wrap
from whence.live.bridge.line import Accepted, Line, Refused, Request, Safety
from whence.live.events import Event
from whence.live.net.keys import PUBLISHER, Keys
from whence.live.net.listener import Listener, Refusals, failed_handshake
from whence.live.net.tls import peer
from whence.live.net.transport import NetStats, parse_address, show_address

log = logging.getLogger("whence.live.bridge")

MAX_LINES = 256
"""Clients at a time; more are refused, and may ask another member. Each has at most one event under way, so they make
the door keep at most so many megabytes."""
MAX_STRANGERS = 64
"""Connections that have not greeted yet; the oldest of the address with the most of them makes room."""
GREETING_S = 5.0
"""Seconds that a stranger has for its greeting, a TLS handshake included."""
IDLE_S = 300.0
"""Seconds without a word after which a line is closed."""


class Door:
    """`async with Door(cluster, reader, "127.0.0.1:7100", secret=...) as door: ...`: open from entering to leaving."""

    def __init__(
        self,
        cluster: Cluster,
        reader: Reader,
        listen: str = "127.0.0.1:0",
        *,
        secret: bytes | str | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        self.cluster = cluster
        self.reader = reader
        self.listen = listen
        self.stats = {"door.accepted": 0, "door.published": 0, "door.refused": 0, "door.unauthentic": 0}
        self.refusals = Refusals()
        self._safety = Safety.of(secret, tls, insecure, listen)
        self._publisher = cluster.publisher()
        self._listener = Listener(
            lambda: _Client(self),
            NetStats(),
            tls=self._safety.server,
            handshake_timeout=GREETING_S,
            max_strangers=MAX_STRANGERS,
            refused=self._failed_handshake,
        )
        self._lines: set[asyncio.Task[None]] = set()
        self._under_way: dict[str, int] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where clients find it."""
        if not self._listener.address[1]:
            raise UsageError("the door is not open")
        return show_address(*self._listener.address)

    async def __aenter__(self) -> Self:
        await self._listener.start(*parse_address(self.listen))
        await self._publisher.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for task in (over := [*self._listener.close(), *self._lines, *self._tasks]):
            task.cancel()
        if over:
            await asyncio.wait(over)
        await self._publisher.__aexit__(None, None, None)

    async def ready(self) -> None:
        """Wait until it has its ticket."""
        await self._publisher.ready()

    # -- deliveries ---------------------------------------------------------------------------------------------

    def read(self, event: Event) -> Said | None:
        """`Reader.read`; whoever waits for this event is told."""
        said = self.reader.read(event.id, event.payload)
        if said is not None and said.client:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        return said

    def _last(self, client: str) -> int:
        return self.reader.last.get((self.cluster.name, client), 0)

    async def _delivered(self, client: str, number: int) -> None:
        while self._last(client) < number:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    # -- clients ------------------------------------------------------------------------------------------------

    def gone(self, client: _Client) -> None:
        """Its connection is over."""
        self._listener.gone(client)

    def _failed_handshake(self, address: str, error: Exception) -> None:
        self.stats["door.unauthentic"] += 1
        self.refusals.note(address, failed_handshake(error))

    async def serve(self, client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from its greeting to its end."""
        task = asyncio.current_task()
        assert task is not None
        line = Line(reader, writer, self._safety.guard)
        try:
            async with asyncio.timeout(GREETING_S):
                await line.greeted()
            self._listener.known(client)
            if len(self._lines) >= MAX_LINES:
                self.stats["door.refused"] += 1
                await line.say(Refused(1, f"{MAX_LINES} clients are here already"))
                return
            self._lines.add(task)
            await self._talk(line)
        except (ClusterClosed, OSError, TimeoutError):
            pass
        except RemoteError as error:
            self.stats["door.unauthentic"] += isinstance(error, Unauthentic)
            peername = writer.get_extra_info("peername")
            self.refusals.note(str(peername[0]) if peername else "an unknown address", str(error))
        except asyncio.CancelledError:
            pass  # the door closes: nobody waits for this task
        finally:
            self._lines.discard(task)
            line.close()

    async def _talk(self, line: Line) -> None:
        may = self._may_publish(line)
        while True:
            async with asyncio.timeout(IDLE_S):
                word = await line.hear()
            if not isinstance(word, Request):
                return
            reason = may or self._refusal(word)
            if reason:
                self.stats["door.refused"] += 1
                await line.say(Refused(word.number, reason))
                continue
            answer = asyncio.ensure_future(self._carry_out(word))
            gone = asyncio.ensure_future(line.reader.read(1))  # nothing more is said before the answer
            try:
                await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done() or not answer.done():
                    return
                answer.result()
            finally:
                answer.cancel()
                gone.cancel()
                await asyncio.wait([answer, gone])  # which, unlike awaiting them, does not swallow our own end
                if not gone.cancelled():
                    gone.exception()  # a broken line is a closed one
            self.stats["door.accepted"] += 1
            await line.say(Accepted(word.number))

    def _may_publish(self, line: Line) -> str:
        """Why not; empty: it may. A certificate says; whoever holds a secret may."""
        certificate = line.writer.get_extra_info("ssl_object")
        if certificate is not None and peer(certificate).role != PUBLISHER:
            return "this certificate is a receiver's"
        return ""

    def _refusal(self, request: Request) -> str:
        if request.cluster != self.cluster.name:
            return f"this is a door of {self.cluster.name!r}"
        return ""

    async def _carry_out(self, request: Request) -> None:
        """Returns when it is delivered here."""
        client, number = request.client, request.number
        if request.ask:
            await self._delivered(client, number - 1)
            if self._last(client) < number and self._under_way.get(client, 0) < number:
                self._under_way[client] = number
                self._in_background(self._publish(request))  # to its end, though the client may go
        await self._delivered(client, number)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, request: Request) -> None:
        heading = Asked(request.client, request.number, request.everywhere)
        try:
            await self._publisher.publish(wrap(heading, request.payload))
            self.stats["door.published"] += 1
            await self._delivered(request.client, request.number)
        except (ClusterClosed, UsageError) as error:
            log.warning("an event of a client was not published: %s", error)
        finally:
            if self._under_way.get(request.client) == request.number:
                del self._under_way[request.client]


class _Client(asyncio.StreamReaderProtocol):
    """A connection at the door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._line: asyncio.StreamWriter | None = None
        super().__init__(asyncio.StreamReader(limit=1 << 16), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._line = writer
        await self._door.serve(self, reader, writer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.gone(self)
        super().connection_lost(exc)

    def close(self) -> None:
        if self._line is not None:
            self._line.transport.abort()
