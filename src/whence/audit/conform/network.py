"""The network between the nodes. The kit is it, or it is the system's own, with a proxy of the kit on each link."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from whence.errors import AdapterError

MAX_KEPT: Final = 50_000
"""The most messages held at a time, and the most remembered for a replay (the oldest are dropped)."""
NOT_OF_STREAMS: Final = ("datagrams", "loss")
"""Claims that proxies cannot test: a byte of a TCP stream is neither lost, repeated nor overtaken."""
CHUNK: Final = 1 << 16

Link = tuple[str, str]
"""(source, destination)."""

Hand = Callable[[], bool]
"""Passes a message on; False if its node is not running."""


class Network:
    """Links in one direction each, `pass`, `hold`, `lose` or `twice`. Nothing here takes time: a message is passed on
    when it is sent, held until the scenario releases it, or lost."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        """`note(dest, text)` records changes of a link."""
        self.handed: Counter[Link] = Counter()
        self.lost: Counter[Link] = Counter()
        """On links that lose."""
        self._note = note
        self._modes: dict[Link, str] = {}
        self._held: list[tuple[Link, Hand]] = []
        self._past: deque[tuple[Link, Hand]] = deque(maxlen=MAX_KEPT)

    def route(self, link: Link, hand: Hand) -> None:
        """A node sends a message to another."""
        match self._modes.get(link, "pass"):
            case "hold":
                self._held.append((link, hand))
                if len(self._held) > MAX_KEPT:
                    raise AdapterError(f"more than {MAX_KEPT} messages were sent while links were held")
            case "lose":
                self.lost[link] += 1
            case mode:
                self._hand(link, hand)
                if mode == "twice":
                    self._hand(link, hand)

    def set(self, mode: str, links: list[Link]) -> None:
        """Set the mode of links; held messages stay held."""
        for link in links:
            self._modes[link] = mode
            self._note(link[1], f"{mode} {link[0]} -> {link[1]}")

    def release(self, links: list[Link], newest_first: bool = False) -> None:
        """Pass on what is held on these links, and let them pass from now on."""
        self.set("pass", links)
        free = [each for each in self._held if each[0] in links]
        self._held = [each for each in self._held if each[0] not in links]
        for link, hand in reversed(free) if newest_first else free:
            self._hand(link, hand)

    def replay(self, dest: str) -> None:
        """Repeat all messages to this node, the newest first."""
        again = [hand for link, hand in self._past if link[1] == dest]
        self._note(dest, f"replay {len(again)} messages")
        for hand in reversed(again):
            hand()

    def _hand(self, link: Link, hand: Hand) -> None:
        if hand():
            self.handed[link] += 1
            self._past.append((link, hand))


class Proxies:
    """A TCP proxy for each pair of nodes: what one reaches the other by. Both directions of a connection are links of
    their own. Bytes keep their order; a connection to a node that has not started yet waits for it."""

    def __init__(self, names: Sequence[str], network: Network, fail: Callable[[AdapterError], None]) -> None:
        """`fail` is told of what a node must not do."""
        self._names = names
        self._network = network
        self._fail = fail
        self._servers: dict[Link, asyncio.Server] = {}
        self._listening: dict[str, tuple[str, int]] = {}
        self._started = {name: asyncio.Event() for name in names}
        self._open: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen, once."""
        for link in [(a, b) for a in self._names for b in self._names if a != b and (a, b) not in self._servers]:
            self._servers[link] = await asyncio.start_server(partial(self._accept, link), "127.0.0.1", 0)

    def peers(self, name: str) -> dict[str, str]:
        """By which addresses a node reaches the others."""
        return {
            b: "{}:{}".format(*server.sockets[0].getsockname()) for (a, b), server in self._servers.items() if a == name
        }

    def listens(self, name: str, address: object) -> None:
        """A node tells its own address, in its `init_ok`."""
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not host or not port.isdecimal():
            raise AdapterError(f"{name} listens at {address!r}: with a network of its own, `init_ok` has an `address`")
        self._listening[name] = host, int(port)
        self._started[name].set()

    async def _accept(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A node reaches for another."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            await self._started[link[1]].wait()
            there, far = await asyncio.open_connection(*self._listening[link[1]])
            await asyncio.gather(self._pump(link, reader, far), self._pump(link[::-1], there, writer))
        except (OSError, asyncio.CancelledError):  # it is gone
            pass
        except AdapterError as error:
            self._fail(error)
        finally:
            for each in (writer, far):
                if each is not None:
                    each.close()
            self._open.discard(task)

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection, as the link's mode wants it, until it ends."""
        while data := await reader.read(CHUNK):
            self._network.route(link, partial(_write, writer, data))
            await writer.drain()
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._network.route(link, partial(_end, over))
        await over
        with suppress(OSError):
            writer.write_eof()

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers.values():
            server.close()
        for task in (open := list(self._open)):
            task.cancel()
        await asyncio.gather(*open, return_exceptions=True)


def _write(writer: asyncio.StreamWriter, data: bytes) -> bool:
    if writer.is_closing():
        return False
    writer.write(data)
    return True


def _end(over: asyncio.Future[bool]) -> bool:
    """The end of a stream, after all that was held; it is no message."""
    if not over.done():
        over.set_result(True)
    return False
