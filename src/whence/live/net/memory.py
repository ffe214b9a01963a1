"""Packets between hosts of one process, without a socket: for users' own tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress

from whence.errors import UsageError
from whence.live.net.transport import Connection, NetStats, Received, parse_address, show_address


class MemoryNetwork:
    """A bus in this process, handed to `join(..., transport=network)`. `loss` hits datagram-class packets; `delay` is
    in seconds, one way. `cut` and `heal` make and end partitions."""

    def __init__(self, *, loss: float = 0.0, delay: float = 0.0, seed: int = 0) -> None:
        if not 0 <= loss < 1 or delay < 0:
            raise UsageError(f"want 0 <= loss < 1 and delay >= 0, not {loss} and {delay}")
        self.loss = loss
        self.delay = delay
        self.rng = random.Random(seed)
        self.hosts: dict[str, MemoryTransport] = {}
        self.waiters: list[asyncio.Future[None]] = []
        self._port = 0
        self._island: dict[str, int] = {}

    def cut(self, *islands: Iterable[str]) -> None:
        """Addresses in different islands do not reach each other; addresses in none reach everybody."""
        self._island = {address: i for i, island in enumerate(islands) for address in island}

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._island = {}

    def transport(self, listen: str, stats: NetStats) -> MemoryTransport:
        """The transport of one host of this network."""
        host, port = parse_address(listen)
        while not port:
            self._port += 1
            if show_address(host, self._port) not in self.hosts:
                port = self._port
        return MemoryTransport(self, show_address(host, port), stats)

    def reaches(self, source: str, target: str, reliable: bool) -> bool:
        a, b = self._island.get(source), self._island.get(target)
        if a is not None and b is not None and a != b:
            return False
        return reliable or not self.loss or self.rng.random() >= self.loss


class MemoryTransport:
    """One host's end of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, address: str, stats: NetStats) -> None:
        self.network = network
        self.address = address
        self.stats = stats
        self.held = False
        self._received: Received | None = None
        self._out: dict[str, list[bytes]] = {}
        self._connection = Connection(address)

    async def start(self, received: Received) -> None:
        if self.address in self.network.hosts:
            raise UsageError(f"cannot listen on {self.address}: somebody else does")
        self._received = received
        self.network.hosts[self.address] = self

    def send(self, to: Iterable[str], data: bytes, reliable: bool) -> None:
        for address in to:
            if self.network.reaches(self.address, address, reliable):
                self._out.setdefault(address, []).append(data)
            else:
                self.stats.lost_on_purpose += 1

    def flush(self) -> None:
        if not self._out:
            return
        out, self._out = self._out, {}
        loop = asyncio.get_running_loop()
        for address, packets in out.items():
            if self.network.delay:
                loop.call_later(self.network.delay, self._arrive, address, packets)
            else:
                loop.call_soon(self._arrive, address, packets)

    def _arrive(self, address: str, packets: list[bytes]) -> None:
        host = self.network.hosts.get(address)
        if host is None or host._received is None:
            self.stats.unsent += len(packets)
            return
        for packet in packets:
            host._received(packet, self._connection)

    def hold(self, held: bool) -> None:
        self.held = held
        if not held:
            waiters, self.network.waiters = self.network.waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def why_unreached(self, address: str) -> str:
        return ""

    def congested(self) -> bool:
        return any(host.held for host in self.network.hosts.values())

    async def drained(self, timeout: float) -> bool:
        self.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.congested():
                    waiter = asyncio.get_running_loop().create_future()
                    self.network.waiters.append(waiter)
                    await waiter
        return not self.congested()

    async def close(self) -> None:
        self._received = None
        if self.network.hosts.get(self.address) is self:
            del self.network.hosts[self.address]
