"""Rooms as an ASGI application: whoever serves it brings the WebSockets.

    rooms = whence.web.rooms(whence.join("chat", contacts, secret=..., order="reliable"), authorize=authorize)
    app = FastAPI(lifespan=rooms.lifespan)
    app.mount("/rooms", rooms)

`/rooms/<name>` is the WebSocket of a room, `/rooms/whence.js` the client, `/rooms/health` for balancers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from whence.errors import ClusterClosed, UsageError
from whence.live.metrics import health
from whence.live.web import words
from whence.live.web.hub import Guest, Hub
from whence.live.web.room import Room, checked_json
from whence.live.web.words import CloseCode, HangUp, Position, Spoken, text_of

if TYPE_CHECKING:
    from whence.live.api import Cluster, Join

log = logging.getLogger("whence.live.web")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HELLO_S: Final = 5.0
"""Seconds for a connection to say who it is, and for the application to let it in."""
PATIENCE_S: Final = 10.0
"""Seconds for this worker to learn what a cursor covers."""
SLOW_S: Final = 60.0
"""Seconds that a client may take nothing."""
WINDOW_EVENTS, WINDOW_BYTES = 512, 256 << 10
"""What is sent to a client ahead of what it says it took. The rest waits in the log, which all clients share."""
BATCH_BYTES: Final = 64 << 10
"""Of the events in one message."""
FILES: Final = {
    "whence.js": "text/javascript",
    "whence-yjs.js": "text/javascript",
    "package.json": "application/json",
}


@dataclass(frozen=True)
class Visit:
    """A client that wants into a room, as `authorize` is asked."""

    room: str
    token: str
    """What the client gave as its token."""
    headers: dict[str, str]
    """By lower-case names; cookies are in `cookie`."""
    query: dict[str, str]
    address: str


@dataclass(frozen=True)
class Rights:
    """Who a client is, and what it may do in the room."""

    user: str
    read: bool = True
    publish: bool = True


Authorize = Callable[[Visit], Rights | Awaitable[Rights | None] | None]
"""None: it may not come in."""


def anyone(request: Visit) -> Rights:
    """Lets everybody in, under the name that is given as the token. For demonstrations."""
    return Rights(request.token[:64] or "guest")


class Rooms:
    """The rooms of a cluster, as an ASGI application: `whence.web.rooms(whence.join(..., order="reliable"), ...)`. Its
    worker is a member of the cluster while it is entered."""

    def __init__(
        self,
        cluster: Join,
        *,
        authorize: Authorize,
        origins: Sequence[str] | None = None,
        copies: int = 2,
        max_clients: int = 10_000,
        max_strangers: int = 512,
    ) -> None:
        """`authorize`: from a `Visit` to `Rights`, or None; may be an `async def`. `origins`: pages of which origins
        may connect; "*": all; by default those of the host that they connect to. `copies`: members that hold an event
        before clients get it; 1: a crash may take back what they have seen. `max_clients`: connections at a time, and
        `max_strangers` that have not said who they are."""
        self.hub = Hub(cluster, copies)
        self.authorize = authorize
        self.origins = origins
        self.limits = (max_clients, max_strangers)
        self._ends: Counter[str] = Counter()
        self._clients = self._strangers = 0
        self._lock = asyncio.Lock()
        self._memo: tuple[object, str] = ((), "")

    async def __aenter__(self) -> Self:
        await self.hub.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.hub.__aexit__(*error)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For `FastAPI(lifespan=rooms.lifespan)`, and Starlette: joins when the worker starts, leaves when it stops."""
        async with self:
            yield

    @property
    def cluster(self) -> Cluster:
        """The member that this worker is."""
        return self.hub.cluster

    def stats(self) -> dict[str, int]:
        """Connections now, and how others have ended."""
        return {"clients": self._clients, "strangers": self._strangers, "rooms": len(self.hub.rooms), **self._ends}

    # -- ASGI ---------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        async with self._lock:
            if not hasattr(self.hub, "cluster"):  # a framework without a lifespan, such as Django
                await self.__aenter__()
        path = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
        if scope["type"] == "websocket":
            await self._websocket(scope, path, receive, send)
        elif scope["type"] == "http":
            await self._http(path, scope["method"], send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, path: str, method: str, send: Send) -> None:
        status, kind, body = 404, "text/plain", b"there are whence.js, whence-yjs.js, health, and rooms (WebSockets)\n"
        if method not in ("GET", "HEAD"):
            status, body = 405, b"GET it\n"
        elif path in FILES:
            status, kind = 200, FILES[path]
            body = files("whence.live.web").joinpath(path).read_bytes()
        elif path == "health":
            said = health([self.cluster]) | ({} if self.hub.open else {"ok": False, "reasons": [str(self.hub.failure)]})
            status, kind = 200 if said["ok"] else 503, "application/json"
            body = json.dumps(said | {"rooms": self.stats()}).encode() + b"\n"
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-cache"),
            (b"access-control-allow-origin", b"*"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if method != "HEAD" else b""})

    async def _websocket(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        session = Session(self, scope, path, receive, send)
        self._strangers += 1
        try:
            ended = await session.serve()
        finally:
            self._strangers -= session.stranger
            self._clients -= not session.stranger
        if ended is not None:
            self._ends[ended.code.name.lower()] += 1
            with contextlib.suppress(Exception):  # the server says in its own way that the client has gone
                reason = str(ended).encode()[:120].decode(errors="ignore")
                await send({"type": "websocket.close", "code": int(ended.code), "reason": reason})

    # -- who comes in -------------------------------------------------------------------------------------------

    def admit(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise `HangUp` for a foreign page, and when there are too many."""
        origin = headers.get("origin")
        if origin is not None and not self._known(origin, headers.get("host", "")):
            raise HangUp(CloseCode.ORIGIN, f"pages of {origin[:80]} may not connect here")
        if self._strangers > self.limits[1] or self._clients >= self.limits[0]:
            raise HangUp(CloseCode.TOO_MANY, "this worker has as many connections as it may have")
        if not self.hub.open:
            raise HangUp(CloseCode.LEAVING, "this worker has left its cluster")

    def _known(self, origin: str, host: str) -> bool:
        if self.origins is None:
            return urlsplit(origin).netloc == host
        return "*" in self.origins or origin in self.origins

    async def let_in(self, room: str, hello: words.Hello, scope: Scope, headers: dict[str, str]) -> Rights:
        """What the application says; raises `HangUp`."""
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        client = scope.get("client") or ("", 0)
        found = self.authorize(Visit(room, hello.token, headers, query, str(client[0])))
        rights = await found if isawaitable(found) else found
        if rights is None or not rights.read:
            raise HangUp(CloseCode.REFUSED, f"you may not come into {room!r}")
        return rights

    def welcomed(self) -> None:
        """A stranger is a client now."""
        self._strangers -= 1
        self._clients += 1

    def events_of(self, room: Room, start: int, end: int) -> str:
        """The word with these entries. Many clients get the same one after another: it is made once."""
        if self._memo[0] != (key := (id(room), start, end)):
            texts = [entry.shown(False) for entry in room.log[start - room.base : end - room.base]]
            self._memo = key, words.events_word(texts)
        return self._memo[1]


class Session(Guest):
    """One connection."""

    def __init__(self, rooms: Rooms, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        super().__init__()
        self.stranger = True
        self._rooms = rooms
        self._hub = rooms.hub
        self._scope = scope
        self._path = path
        self._receive = receive
        self._send = send
        self._room: Room
        self._rights = Rights("")
        self._at = 0
        self._has: frozenset[int] = frozenset()
        self._again: frozenset[int] = frozenset()
        self._published = 0
        self._sent = self._took = 0
        self._unread: list[int] = []  # bytes of each event that was sent and is not taken yet
        self._full_since = 0.0
        self._behind = self._present = False

    async def serve(self) -> HangUp | None:
        """From the hello to the end; returns why it is to be closed, None if the client has closed it."""
        try:
            await self._enter()
        except HangUp as error:
            return error
        except _Gone:
            return None
        except (UsageError, ClusterClosed) as error:
            return HangUp(CloseCode.NONSENSE if isinstance(error, UsageError) else CloseCode.LEAVING, str(error))
        forget = self._hub.welcome(self._room, self)
        work = [asyncio.create_task(self._listen()), asyncio.create_task(self._tell())]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forget()
            for task in work:
                task.cancel()
            ends = await asyncio.gather(*work, return_exceptions=True)
            await self._absent()
        return _why(ends)

    # -- the beginning ------------------------------------------------------------------------------------------

    async def _enter(self) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._scope["headers"]}
        self._rooms.admit(self._scope, headers)
        name = words.checked_room(self._path)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._hear()
                if not isinstance(hello, words.Hello) or hello.v != words.VERSION:
                    raise HangUp(CloseCode.NONSENSE, f"the first word is a hello of version {words.VERSION}")
                self._rights = await self._rooms.let_in(name, hello, self._scope, headers)
        except TimeoutError:
            raise HangUp(CloseCode.HALF_OPEN, f"no hello within {HELLO_S:g} s") from None
        self.name = words.name_of(self._rights.user, hello.key)
        if hello.me not in ("", self.name):
            raise HangUp(CloseCode.IMPOSTOR, f"this is not the key of {hello.me}")
        room = self._hub.room(name)
        if room is None:
            raise HangUp(CloseCode.TOO_MANY, "there are as many rooms as there may be")
        self._room = room
        self._rooms.welcomed()
        self.stranger = False
        await self._welcome(hello)

    async def _welcome(self, hello: words.Hello) -> None:
        """Go on from the cursor, or from the state of the room."""
        why = "new"
        if hello.cursor is not None:
            cursor, why = Position.parse(hello.cursor), "another cluster"
            if hello.run == self._hub.cluster._node.run:
                if not await self._hub.until(lambda: self._hub.position.covers(cursor), PATIENCE_S):
                    raise HangUp(
                        CloseCode.FUTURE, f"{PATIENCE_S:g} s long nothing was words.heard of events that you have"
                    )
                why = "expired"
                if (resumed := self._room.resume(cursor)) is not None:
                    self._at, self._has, self._again = resumed
                    await self._say(**self._about("resumed"))
                    self.wake.set()
                    return
        await self._start_over(why)

    async def _start_over(self, why: str) -> None:
        """The state of the room, and what comes after it."""
        room, hub = self._room, self._hub
        self._at, self._has, self._again = room.end, frozenset(), frozenset()
        word = self._about(why) | {
            "cursor": hub.position.text(),
            "state": room.contents(),
            "token": "" if room.fresh else f"{hub.cluster.me} {hub.read}",
        }
        read = hub.read
        await hub.until(lambda: hub.committed >= read)
        await self._say(**word)
        self.wake.set()

    def _about(self, why: str) -> dict[str, Any]:
        return {
            "t": "welcome",
            "why": why,
            "me": self.name,
            "user": self._rights.user,
            "publish": self._rights.publish,
            "run": self._hub.cluster._node.run,
            "worker": self._hub.cluster.me,
            "last": self._last(),
            "traced": self._hub.traced,
        }

    # -- what the client says -----------------------------------------------------------------------------------

    async def _hear(self) -> words.ClientWord:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise _Gone
        return words.heard(message.get("text") or message.get("bytes") or b"")

    async def _listen(self) -> None:
        while True:
            word = await self._hear()
            match word:
                case words.Took(k):
                    self._taken(k)
                case words.Pub(n, d):
                    await self._publish(n, checked_json(d))
                case words.Operate(n, o):
                    await self._publish(n, self._room.operation(o))
                case words.Here(d):
                    self._may_publish()
                    await self._here(b"" if d == b"null" else checked_json(d, words.MAX_PRESENCE))
                case words.Rows():
                    self._hub.wrote(self._room, self.name, word)
                    upto = max((row[0] for row in word.r), default=0)
                    self.note("rows", text_of(t="rows", upto=upto))
                case words.Hello():
                    raise HangUp(CloseCode.NONSENSE, "a second hello")

    def _may_publish(self) -> None:
        if not self._rights.publish:
            raise HangUp(CloseCode.FORBIDDEN, f"{self._rights.user!r} may not publish in {self._room.name!r}")

    def _last(self) -> int:
        """The last number of the client that is delivered here."""
        return self._room.last.get(self.name, 0)

    async def _publish(self, number: int, data: bytes) -> None:
        """Not again what was published already, and after the number before it."""
        self._may_publish()
        last = max(self._published, self._last())
        if number > last + 1 and not await self._hub.until(lambda: self._last() >= number - 1, PATIENCE_S):
            raise HangUp(CloseCode.FUTURE, f"number {number} after {last}: numbers follow one another")
        if number > max(last, self._last()):
            self._published = number
            await self._hub.publish(Spoken(self._room.name, self.name, self._rights.user, number, data))

    def _taken(self, k: int) -> None:
        if not self._took <= k <= self._sent:
            raise HangUp(CloseCode.NONSENSE, f"{k} events taken of {self._sent}")
        del self._unread[: k - self._took]
        self._took, self._full_since = k, 0.0
        self.wake.set()

    async def _here(self, data: bytes) -> None:
        self._present = bool(data)
        await self._hub.publish(Spoken(self._room.name, self.name, self._rights.user, 0, data))

    async def _absent(self) -> None:
        """Nobody hears of the client any more, unless it is here by another connection."""
        if self._present and self.name not in self._hub.guests.get(self._room.name, {}) and self._hub.open:
            with contextlib.suppress(ClusterClosed, UsageError, TimeoutError):
                async with asyncio.timeout(HELLO_S):
                    await self._here(b"")

    # -- what the client is told --------------------------------------------------------------------------------

    async def _say(self, **word: Any) -> None:
        await self._send({"type": "websocket.send", "text": text_of(**word)})

    async def _tell(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SLOW_S if self._full_since else None):
                    await self.wake.wait()
            except TimeoutError:
                raise HangUp(
                    CloseCode.SLOW, f"nothing of {self._sent - self._took} events taken in {SLOW_S:g} s"
                ) from None
            self.wake.clear()
            if self.ending is not None:
                raise self.ending
            notes, self.notes = self.notes, {}
            for word in notes.values():
                await self._send({"type": "websocket.send", "text": word})
            while self._at < self._room.shown and not self._full():
                if self._at < self._room.base:
                    await self._start_over("behind")
                    break
                await self._send({"type": "websocket.send", "text": self._batch()})

    def _full(self) -> bool:
        """The client has enough to do. It is told that it is behind when much more waits."""
        if len(self._unread) < WINDOW_EVENTS and sum(self._unread) < WINDOW_BYTES:
            self._behind = False
            return False
        self._full_since = self._full_since or time.monotonic()
        if not self._behind and self._room.shown - self._at > WINDOW_EVENTS:
            self._behind = True
            self.note("behind", text_of(t="behind", lag=self._room.shown - self._at))
        return True

    def _batch(self) -> str:
        """The next events; at least one, or none if the client has all of these."""
        room, start = self._room, self._at
        sizes: list[int] = []
        texts: list[str] = []
        size = 0
        for entry in room.log[start - room.base : min(room.shown, start + WINDOW_EVENTS) - room.base]:
            if size > BATCH_BYTES:
                break
            if self._at not in self._has:
                texts.append(entry.shown(self._at in self._again))
                sizes.append(len(entry.text))
                size += sizes[-1]
            self._at += 1
        self._unread += sizes
        self._sent += len(sizes)
        whole = len(sizes) == self._at - start and not self._again
        return self._rooms.events_of(room, start, self._at) if whole else words.events_word(texts)


class _Gone(Exception):
    """The client has closed the connection."""


def _why(ends: Sequence[object]) -> HangUp | None:
    """Why a session has ended: the first of its tasks that says so."""
    for end in ends:
        if isinstance(end, HangUp):
            return end
    for end in ends:
        if isinstance(end, ClusterClosed | UsageError):
            return HangUp(CloseCode.LEAVING, str(end))
        if isinstance(end, Exception) and not isinstance(end, _Gone | asyncio.CancelledError):
            log.debug("a connection has ended: %r", end)
    return None


rooms = Rooms
