"""A client of rooms (docs/web.md) for Python, with the surface of the one for browsers. Run it, or copy it:

    async with connect(["ws://10.0.0.5:8000/rooms/lobby", "ws://10.0.0.6:8000/rooms/lobby"]) as room:
        await room.publish({"text": "hello"})
        async for event in room.events():
            print(event["u"], event.get("d"))

It connects again by itself, to the next address, and goes on where it was.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Self

from whence.errors import WhenceError
from whence.live.web.words import VERSION, CloseCode, Position

_FINAL = "NONSENSE REFUSED FORBIDDEN REPLACED TOO_LARGE IMPOSTOR ORIGIN FULL"
FINAL: Final = frozenset(CloseCode[name] for name in _FINAL.split())
"""After these a client would only hear the same again; after all others, those of the network too, it comes back."""
BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
MAX_EVENTS: Final = 1024
"""Events that wait for a slow reader of `events()`; then the worker sends no more, and keeps them."""


class RoomClosed(WhenceError):
    """A client's room is closed for good; `code` is a `CloseCode`, and the message says why."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{CloseCode(code).name}: {why}")
        self.code = code


class RoomClient:
    """A room: `async with connect(...) as room`. An event is a dict: `i` its id, `c` and `n` its client and number, `u`
    the user, `d` the data or `o` the operation."""

    def __init__(self, urls: Sequence[str], token: str, key: str, **options: Any) -> None:
        self.me = self.worker = ""
        """This client's name, and the member that it is connected to."""
        self.why = "connecting"
        """What it waits for; empty: nothing."""
        self.present: list[dict[str, Any]] = []
        """Who is there."""
        self.resets: list[str] = []
        """Why it had to start over from the state of the room, each time: it missed events then."""
        self.counters: dict[str, int] = {}
        self.documents: dict[str, list[bytes]] = {}
        """Yjs updates by document: the state, and what came since."""
        self._urls, self._options = urls, options
        self._hello = {"t": "hello", "v": VERSION, "key": key or secrets.token_hex(16), "token": token}
        self._registers: dict[str, dict[str, list[Any]]] = {}
        self._position: Position | None = None
        self._run = ""
        self._number = self._attempt = 0
        self._unsent: dict[int, tuple[str, asyncio.Future[None]]] = {}
        self._here: Any = None
        self._socket: Any = None
        self._events: asyncio.Queue[dict[str, Any]] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow(), name=f"client of {self._urls[0]}")
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def unsent(self) -> int:
        """Publishes that have not come back yet."""
        return len(self._unsent)

    def registers(self, name: str) -> dict[str, Any]:
        """The registers of this name, as they are now."""
        return {key: row[1] for key, row in sorted(self._registers.get(name, {}).items()) if len(row) > 1}

    async def publish(self, data: Any) -> None:
        """Publish a JSON value; returns when it has come back in the room's order, and two workers have it."""
        await self._publish(t="pub", d=data)

    async def operate(self, *words: Any) -> None:
        """Change an object: `"set", map, key, value`, `"del", map, key`, `"add", counter, n`, `"edit", document,
        update`."""
        await self._publish(t="op", o=[base64.b64encode(w).decode() if isinstance(w, bytes) else w for w in words])

    async def here(self, data: Any) -> None:
        """Say this of oneself to all who are there, and again after each new connection; None: no more."""
        self._here = data
        if self._socket is not None:
            await self._socket.send(json.dumps({"t": "here", "d": data}))

    async def _publish(self, **word: Any) -> None:
        if self._task.done():
            self._task.result()
        self._number += 1
        text = json.dumps(word | {"n": self._number})
        receipt = asyncio.get_running_loop().create_future()
        self._unsent[self._number] = (text, receipt)
        if self._socket is not None:
            await self._socket.send(text)
        await asyncio.wait([receipt, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not receipt.done():
            self._task.result()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events from now on, those of this client as well. Raises RoomClosed when the room is closed for good."""
        queue = self._events = self._events or asyncio.Queue(MAX_EVENTS)
        while True:
            getting = asyncio.ensure_future(queue.get())
            try:
                await asyncio.wait([getting, self._task], return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    self._task.result()
                yield getting.result()
            finally:
                getting.cancel()

    # -- the connection -----------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        from websockets.asyncio.client import connect as dial
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        while True:
            url = self._urls[self._attempt % len(self._urls)]
            try:
                async with dial(url, max_size=None, **self._options) as socket:
                    await self._talk(socket)
            except ConnectionClosed as closed:
                code, reason = (1006, "") if closed.rcvd is None else (closed.rcvd.code, closed.rcvd.reason)
                self.why = f"connecting again: {reason or code}"
                if code in FINAL:
                    raise RoomClosed(code, reason) from None
                if code == CloseCode.FUTURE:
                    self._position = Position()  # nobody has what it covers: start over, and say so
            except (OSError, TimeoutError, InvalidHandshake) as error:
                self.why = f"{url} cannot be reached: {error}"
            self._socket = None
            await asyncio.sleep(BACKOFF_S[min(self._attempt, len(BACKOFF_S) - 1)] * random.uniform(0.5, 1.5))
            self._attempt += 1

    async def _talk(self, socket: Any) -> None:
        cursor = {} if self._position is None else {"run": self._run, "cursor": self._position.text()}
        await socket.send(json.dumps({**self._hello, "me": self.me, **cursor}))
        taken = 0
        async for text in socket:
            word = json.loads(text)
            match word["t"]:
                case "welcome":
                    await self._welcome(socket, word)
                case "ev":
                    for event in word["e"]:
                        await self._take(event)
                    taken += len(word["e"])
                    await socket.send(json.dumps({"t": "took", "k": taken}))
                case "here":
                    self.present = word["e"]
                case "why" | "behind":
                    self.why = word.get("why", "behind")

    async def _welcome(self, socket: Any, word: dict[str, Any]) -> None:
        known, self.me, self.worker, self._run = self.me, word["me"], word["worker"], word["run"]
        self.why, self._attempt = "", 0
        if (state := word.get("state")) is not None:
            self.resets += [word["why"]] if known else []
            self._position, self._registers = Position.parse(word["cursor"]), state["registers"]
            self.counters = state["counters"]
            self.documents = {name: [base64.b64decode(update)] for name, update in state["documents"].items()}
            for number in [n for n in self._unsent if n <= word["last"]]:
                self._receipt(number)  # it is in the state
        if self._socket is not socket:
            self._socket = socket
            if self._here is not None:
                await self.here(self._here)
            for unsent, _ in list(self._unsent.values()):
                await socket.send(unsent)

    async def _take(self, event: dict[str, Any]) -> None:
        tenure, _, seq = event["i"].rpartition(":")
        [(found, _)] = Position.parse({tenure: 0}).upto.items()
        assert self._position is not None
        self._position.add(*found, int(seq))
        match event.get("o"):
            case ["set" | "del", name, key, *row]:
                of = self._registers.setdefault(name, {})
                if key not in of or of[key][0] < row[-1]:  # the greatest stamp wins, as at the workers
                    of[key] = row[::-1]
            case ["add", name, amount]:
                self.counters[name] = self.counters.get(name, 0) + amount
            case ["edit", name, update]:
                self.documents.setdefault(name, []).append(base64.b64decode(update))
        if event.get("again"):
            return
        if event["c"] == self.me:
            self._receipt(event["n"])
        if self._events is not None:
            await self._events.put(event)

    def _receipt(self, number: int) -> None:
        waiting = self._unsent.pop(number, None)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(None)


def connect(urls: str | Sequence[str], *, token: str = "", key: str = "", **options: Any) -> RoomClient:
    """A client of a room. With the addresses of several workers it goes on at the next when one is gone. `token`: for
    the application's `authorize`. `key`: its secret, to be the same client again. Other options are those of
    `websockets.connect`."""
    return RoomClient([urls] if isinstance(urls, str) else urls, token, key, **options)


async def main(urls: list[str]) -> None:
    """Say hello, and print what is said."""
    async with connect(urls, token="python") as room:
        saying = asyncio.create_task(room.publish("hello"))
        async for event in room.events():
            print(event["u"], event.get("d", event.get("o")))
        await saying


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["ws://127.0.0.1:8000/rooms/lobby"]))
