"""Packets between hosts of one process, without a socket: for users' own tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from whence.errors import UsageError
from whence.live.net.queues import Signal
from whence.live.net.transport import Connection, Faults, NetStats, Received, parse_address, show_address


class MemoryNetwork(Faults):
    """A bus in this process, handed to `join(..., transport=network)`, with the faults of `Faults`. `delay` is in
    seconds, one way."""

    def __init__(self, drop: float = 0.0, seed: int = 0, *, delay: float = 0.0) -> None:
        super().__init__(drop, seed)
        if delay < 0:
            raise UsageError(f"want delay >= 0, not {delay}")
        self.delay = delay
        self.hosts: dict[str, MemoryTransport] = {}
        self.eased = Signal()
        self._port = 0

    def transport(self, listen: str, stats: NetStats) -> MemoryTransport:
        """The transport of one host of this network."""
        host, port = parse_address(listen)
        while not port:
            self._port += 1
            if show_address(host, self._port) not in self.hosts:
                port = self._port
        return MemoryTransport(self, show_address(host, port), stats)


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
            if self.network.lose(self.address, address, reliable):
                self.stats.lost_on_purpose += 1
            else:
                self._out.setdefault(address, []).append(data)

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
        host._received(packets, self._connection)

    def hold(self, held: bool) -> None:
        self.held = held
        if not held:
            self.network.eased.tell()

    def congested(self) -> bool:
        return any(host.held for host in self.network.hosts.values())

    async def drained(self, timeout: float) -> bool:
        self.flush()
        return await self.network.eased.until(lambda: not self.congested(), time.monotonic() + timeout)

    async def close(self) -> None:
        self._received = None
        if self.network.hosts.get(self.address) is self:
            del self.network.hosts[self.address]
