"""Open groups: non-members publish through a member (SURVEY 3.2).

    async with Client("lobby", ["10.0.0.5:7100", "10.0.0.6:7100"], secret=...) as client:
        await client.publish(b"hello")

1. The client names its events, `(client, number)`. A member publishes what it is asked to under that name, and says
   `ClientAccepted` when it is delivered here. It publishes number n only when it has delivered n - 1.
2. A client may ask several members. All members read the first event of a name and drop the rest (`Reader`).
3. One event of a client is under way at a time. It is asked of one member, and of the next under the same name when
   there is no answer in time. It counts as published when `copies` members have delivered it: then it survives the
   death of all of them but one.

Client and door talk over a stream that is protected like those of members, by a secret or certificates of its own:
clients need not hold the cluster's. A door sees what is delivered because the application reads its events through
`Door.read`. It publishes as any member does, with a ticket that it gives to whoever waits while no client has anything
to say.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import ssl
import time
from collections.abc import Sequence
from typing import Annotated, Final, Self

import msgspec

from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.core.wire import frame_stream
from whence.errors import BadMessage, ClusterClosed, NotAccepted, RemoteError, Unauthentic, UsageError
from whence.live.api import Cluster
from whence.live.bridge.envelope import FromClient, Reader, Said, wrap
from whence.live.events import Event
from whence.live.net.guard import Guard, Secret
from whence.live.net.keys import PUBLISHER, Keys
from whence.live.net.listener import Listener
from whence.live.net.queues import Signal
from whence.live.net.tls import Protection, peer, refusal
from whence.live.net.transport import NetStats, parse_address, show_address

MAX_CLIENT: Final = 64
"""Characters of a client's name."""
Number = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Publish this for a client in this cluster. `ask` False: do not, only say when it is delivered here."""

    cluster: str
    client: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CLIENT)]
    number: Number
    payload: bytes
    everywhere: bool = False
    ask: bool = True


class ClientAccepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """It is delivered at this member."""

    number: Number


class ClientRefused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """This member will not do it; another one may."""

    number: Number
    reason: str


class ClientGreeting(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The first word on a line, by the client: short, so that a stranger cannot make a door keep much."""

    number: Number = 1
    """Nothing: every word has one."""


Word = Request | ClientAccepted | ClientRefused | ClientGreeting

GREETING_BYTES: Final = 256
"""The largest first record on a line."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Word)
LARGEST = MAX_PAYLOAD_BYTES + 4096


def decode(data: bytes) -> Word:
    """A word, or `BadMessage`."""
    try:
        word: Word = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"no word between client and member: {error}") from None
    return word


class Line:
    """One end of a stream of words."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guard: Guard) -> None:
        self.reader = reader
        self.writer = writer
        self._guard = guard
        self._largest = LARGEST + guard.overhead

    async def greeted(self) -> None:
        """Wait for the client's greeting. Nothing is kept of a record that is too long to be one."""
        if not isinstance(await self.hear(GREETING_BYTES), ClientGreeting):
            raise BadMessage("the first record is no greeting")

    async def say(self, word: Word) -> None:
        self.writer.write(frame_stream(self._guard.seal(_encode(word)), self._largest))
        await self.writer.drain()

    async def hear(self, most: int = 0) -> Word:
        """The next word, in a record of at most so many bytes. A `RemoteError` for what is none; `ClusterClosed` when
        the other end is closed."""
        most = most or self._largest
        try:
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            if not 1 <= length <= most:
                raise BadMessage(f"a record of {length} bytes: allowed are {most}")
            return decode(self._guard.open(await self.reader.readexactly(length)))
        except asyncio.IncompleteReadError:
            raise ClusterClosed("the line was closed at the other end") from None

    def close(self) -> None:
        self.writer.close()


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
    """Lets clients that are not members publish: `async with Door(cluster, reader, "127.0.0.1:7100", secret=...)`."""

    def __init__(
        self,
        cluster: Cluster,
        reader: Reader,
        listen: str = "127.0.0.1:0",
        *,
        secret: Secret | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        self.cluster = cluster
        self.reader = reader
        self.listen = listen
        self._net = NetStats()
        self._counts = {"door.accepted": 0, "door.published": 0, "door.refused": 0}
        self._protection = Protection.of(secret, tls, insecure, listen)
        self._publisher = cluster.publisher()
        self._listener = Listener(
            lambda: _Client(self),
            self._net,
            tls=self._protection.server,
            handshake_timeout=GREETING_S,
            max_strangers=MAX_STRANGERS,
        )
        self._lines: set[asyncio.Task[None]] = set()
        self._under_way: dict[str, int] = {}
        self._read = Signal()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stats(self) -> dict[str, int]:
        """Counters; `door.unauthentic` are connections without the keys."""
        return {**self._counts, "door.unauthentic": self._net.unauthentic}

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

    async def __aexit__(self, *_: object) -> None:
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
        """`Reader.read`; wakes those that wait for this event."""
        said = self.reader.read(event.id, event.payload)
        if said is not None and said.client:
            self._read.tell()
        return said

    def _last(self, client: str) -> int:
        return self.reader.last.get((self.cluster.name, client), 0)

    async def _delivered(self, client: str, number: int) -> None:
        while self._last(client) < number:
            await self._read.wait()

    # -- clients ------------------------------------------------------------------------------------------------

    def gone(self, client: _Client) -> None:
        """Its connection is over."""
        self._listener.gone(client)

    async def serve(self, client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from its greeting to its end."""
        task = asyncio.current_task()
        assert task is not None
        line = Line(reader, writer, self._protection.guard)
        try:
            async with asyncio.timeout(GREETING_S):
                await line.greeted()
            self._listener.known(client)
            if len(self._lines) >= MAX_LINES:
                self._counts["door.refused"] += 1
                await line.say(ClientRefused(1, f"{MAX_LINES} clients are here already"))
                return
            self._lines.add(task)
            await self._talk(line)
        except (ClusterClosed, OSError, TimeoutError):
            pass
        except RemoteError as error:
            self._net.unauthentic += isinstance(error, Unauthentic)
            self._listener.refuse(writer.transport, str(error))
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
            reason = may
            if word.cluster != self.cluster.name:
                reason = f"this is a door of {self.cluster.name!r}"
            if reason:
                self._counts["door.refused"] += 1
                await line.say(ClientRefused(word.number, reason))
                continue
            async with asyncio.timeout(IDLE_S):
                await self._carry_out(word)
            self._counts["door.accepted"] += 1
            await line.say(ClientAccepted(word.number))

    def _may_publish(self, line: Line) -> str:
        """Why not; empty: it may. A certificate says; whoever holds a secret may."""
        certificate = line.writer.get_extra_info("ssl_object")
        if certificate is not None and peer(certificate).role != PUBLISHER:
            return "this certificate is a receiver's"
        return ""

    async def _carry_out(self, request: Request) -> None:
        """Returns when it is delivered here."""
        client, number = request.client, request.number
        if request.ask:
            await self._delivered(client, number - 1)
            if self._last(client) < number and self._under_way.get(client, 0) < number:
                self._under_way[client] = number
                task = asyncio.create_task(self._publish(request))  # to its end, though the client may go
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await self._delivered(client, number)

    async def _publish(self, request: Request) -> None:
        heading = FromClient(request.client, request.number, request.everywhere)
        try:
            await self._publisher.publish(wrap(heading, request.payload))
            self._counts["door.published"] += 1
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


RETRY_S = 0.2
HEADING_ROOM = 4096
"""Bytes of a payload that are left to headings: it may cross bridges."""


class Client:
    """A process outside the cluster that publishes in it."""

    def __init__(
        self,
        cluster: str,
        via: Sequence[str],
        *,
        secret: Secret | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
        client: str | None = None,
        last: int = 0,
        copies: int | None = None,
        patience: float = 5.0,
        timeout: float = 60.0,
    ) -> None:
        """`via`: doors of members. `client` and `last`, the last number it has used: to go on as the client it was;
        else it is a new one. `copies`: members that must have delivered an event (default two, or one where only one is
        named: then its death can lose what it alone has). More: survives more deaths at once, and waits for more
        answers. `patience`: seconds until the next member is asked. `timeout`: seconds until it is given up."""
        if not via:
            raise UsageError("a client needs a member to publish through")
        self.via = list(dict.fromkeys(via))
        for address in self.via:
            parse_address(address)
        self.copies = min(2, len(self.via)) if copies is None else copies
        if not 1 <= self.copies <= len(self.via):
            raise UsageError(f"copies must be 1 .. {len(self.via)}, as many as there are members to ask: {self.copies}")
        self.client = client or secrets.token_hex(8)
        if len(self.client) > MAX_CLIENT:
            raise UsageError(f"a client's name has at most {MAX_CLIENT} characters")
        self.cluster = cluster
        self.number = last
        self.patience = patience
        self.timeout = timeout
        self._protection = Protection.of(secret, tls, insecure, *self.via)
        self._lines: dict[str, Line] = {}
        self._answers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for address in list(self._lines):
            self._hang_up(address)

    async def publish(self, payload: bytes, everywhere: bool = False) -> int:
        """Publish after all that was published before; returns its number. Raises `NotAccepted`: then call it again,
        with the same payload."""
        cap = MAX_PAYLOAD_BYTES - HEADING_ROOM
        if len(payload) > cap:
            raise UsageError(f"an event from outside holds at most {cap} bytes, not {len(payload)}")
        request = Request(self.cluster, self.client, self.number + 1, payload, everywhere)
        over = time.monotonic() + self.timeout
        while not await self._try(request):
            if time.monotonic() > over:
                said = "; ".join(f"{address}: {answer}" for address, answer in self._answers.items())
                raise NotAccepted(f"not enough members took it within {self.timeout:g} s ({said})")
            await asyncio.sleep(RETRY_S)
        self.number += 1
        return self.number

    async def _try(self, request: Request) -> bool:
        """Ask one member after the other to publish it, and when one has, the next whether it has got it, too."""
        confirm = Request(request.cluster, request.client, request.number, b"", request.everywhere, ask=False)
        have: list[str] = []
        for address in self.via:
            if await self._ask(address, confirm if have else request):
                have.append(address)
            if len(have) == self.copies:
                break
        # The next event begins with a member that has this one: others may have to wait for it.
        self.via = [*have, *(address for address in self.via if address not in have)]
        return len(have) == self.copies

    async def _ask(self, address: str, request: Request) -> bool:
        """One member's answer, in time."""
        try:
            async with asyncio.timeout(self.patience):
                line = self._lines.get(address) or await self._connect(address)
                await line.say(request)
                word = await line.hear()
            if isinstance(word, ClientAccepted) and word.number == request.number:
                self._answers[address] = "has it"
                return True
            self._answers[address] = word.reason if isinstance(word, ClientRefused) else "makes no sense"
            return False
        except TimeoutError:
            self._answers[address] = f"no answer within {self.patience:g} s"
        except ssl.SSLError as error:
            self._answers[address] = str(refusal(error))
        except (OSError, ClusterClosed, RemoteError) as error:
            self._answers[address] = getattr(error, "strerror", None) or str(error) or type(error).__name__
        except asyncio.CancelledError:
            self._hang_up(address)  # its answer would be taken for that to the next question
            raise
        self._hang_up(address)
        return False

    async def _connect(self, address: str) -> Line:
        host, port = parse_address(address)
        reader, writer = await asyncio.open_connection(host, port, ssl=self._protection.client)
        line = self._lines[address] = Line(reader, writer, self._protection.guard)
        await line.say(ClientGreeting())
        return line

    def _hang_up(self, address: str) -> None:
        line = self._lines.pop(address, None)
        if line is not None:
            line.close()
