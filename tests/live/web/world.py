"""What the tests of rooms share: workers on a network in memory, and clients that speak ASGI to them, word by word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import whence
from tests.live.net.live import FAST, until
from whence.audit.trace import MemoryTrace
from whence.live.web.app import Rooms, anyone, rooms
from whence.testing import MemoryNetwork


class Workers:
    """Workers of one cluster, in this process."""

    def __init__(self, **options: Any) -> None:
        self.network = MemoryNetwork()
        self.trace = MemoryTrace()
        self.all: list[Rooms] = []
        self.options = {"authorize": anyone, **options}
        self._stack = AsyncExitStack()
        self._sockets: list[Socket] = []

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(self, *error: object) -> None:
        for socket in self._sockets:
            await socket.close()
        await self._stack.aclose()

    async def add(self, traced: bool = False, **options: Any) -> Rooms:
        given: dict[str, Any] = {"order": "reliable", "transport": self.network, "settings": FAST, **options}
        if traced:
            given["trace"] = self.trace
        joining = whence.join("x", self.all[0].cluster.address, **given) if self.all else whence.create("x", **given)
        worker = rooms(joining, **self.options)
        self.all.append(await self._stack.enter_async_context(worker))
        return worker

    async def socket(self, worker: Rooms, room: str = "lobby", **headers: str) -> Socket:
        """A connection, before its hello."""
        socket = Socket(worker, room, headers)
        self._sockets.append(socket)
        return socket

    async def client(self, worker: Rooms, key: str, room: str = "lobby", **hello: Any) -> Socket:
        """A client that was welcomed."""
        socket = await self.socket(worker, room)
        await socket.say(t="hello", v=1, key=key.ljust(16, "."), token=hello.pop("token", key), **hello)
        socket.welcome = await socket.hear("welcome")
        socket.cursor = dict(socket.welcome.get("cursor", hello.get("cursor")))
        return socket


class Socket:
    """One connection. It takes all that it is sent, unless `slow`."""

    def __init__(self, worker: Rooms, room: str, headers: dict[str, str]) -> None:
        self.worker = worker
        self.welcome: dict[str, Any] = {}
        self.cursor: dict[str, int] = {}
        self.events: list[dict[str, Any]] = []
        self.words: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.slow = False
        self._to: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._to.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": f"/rooms/{room}",
            "root_path": "/rooms",
            "query_string": b"",
            "client": ("127.0.0.1", 5),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self._task = asyncio.create_task(worker(scope, self._to.get, self._sent))

    async def _sent(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self.closed = (message["code"], message["reason"])
        elif message["type"] == "websocket.send":
            word = json.loads(message["text"])
            self.words.append(word)
            for event in word["e"] if word["t"] == "ev" else ():
                self.events.append(event)
                tenure, _, seq = event["i"].rpartition(":")
                self.cursor[tenure] = int(seq)
            if word["t"] == "ev" and not self.slow:
                self._to.put_nowait({"type": "websocket.receive", "text": json.dumps({"t": "took", "k": self.taken})})

    @property
    def taken(self) -> int:
        return len(self.events)

    async def say(self, text: str | None = None, **word: Any) -> None:
        self._to.put_nowait({"type": "websocket.receive", "text": json.dumps(word) if text is None else text})

    async def publish(self, n: int, d: Any) -> None:
        await self.say(t="pub", n=n, d=d)

    async def hear(self, kind: str) -> dict[str, Any]:
        """The last word of this kind."""
        await until(lambda: self.closed or any(word["t"] == kind for word in self.words), f"a word {kind!r}")
        assert self.closed is None, self.closed
        return next(word for word in reversed(self.words) if word["t"] == kind)

    async def got(self, count: int) -> list[Any]:
        """The data of its events, once there are so many."""
        await until(lambda: len(self.events) >= count, f"{count} events")
        return [event.get("d", event.get("o")) for event in self.events]

    async def end(self) -> tuple[int, str]:
        """How the worker closed it."""
        await until(lambda: self.closed, "the end")
        assert self.closed is not None
        return self.closed

    async def close(self) -> None:
        self._to.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self._task, 60)


@asynccontextmanager
async def workers(count: int, **options: Any) -> AsyncIterator[Workers]:
    """So many workers."""
    traced = options.pop("traced", False)
    async with Workers(**options) as all:
        for _ in range(count):
            await all.add(traced)
        if count > 2:
            council = all.all[0].cluster
            await until(lambda: council.council is not None and council.council.may_lose, "one may be lost")
        yield all
