"""Packets over UDP, on the same port number as TCP: gossip goes as datagrams. What is large, reliable or for a
host by name goes over TCP.

A datagram holds records as a stream does, so that small packets for one peer share one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import cast

from whence.core.wire import StreamDecoder, frame_stream
from whence.errors import RemoteError, UsageError
from whence.live.net.tcp import TcpTransport
from whence.live.net.transport import Connection, Received, is_loopback, parse_address

DATAGRAM = 60_000
"""Bytes of a datagram at most; what is larger goes over TCP."""
TOGETHER = 1_400
"""Small packets share a datagram up to this size: one frame of an Ethernet. On loopback, up to `DATAGRAM`."""
SOCKET_BUFFER = 4 << 20
MAX_TARGETS = 4096


class UdpTransport(TcpTransport, asyncio.DatagramProtocol):
    """Datagrams beside the streams of a `TcpTransport`."""

    _transport: asyncio.DatagramTransport | None = None
    _paused = False

    async def start(self, received: Received) -> None:
        self._out: dict[str, list[bytes]] = {}
        self._targets: dict[str, tuple[str, int] | None] = {}
        self._connection = Connection()
        await super().start(received)
        try:
            await self.loop.create_datagram_endpoint(lambda: self, parse_address(self.address))
        except OSError as error:
            await super().close()
            raise UsageError(f"cannot listen on {self.address} (UDP): {error.strerror or error}") from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)

    # -- out ----------------------------------------------------------------------------------------------------

    def send(self, to: Iterable[str], data: bytes, reliable: bool) -> None:
        streams = list(to)
        if not reliable and len(data) + 4 <= DATAGRAM:
            record = frame_stream(data, self.largest)
            for address in streams:
                if self._target(address) is not None:
                    self._out.setdefault(address, []).append(record)
            streams = [address for address in streams if self._target(address) is None]
        super().send(streams, data, reliable)

    def _target(self, address: str) -> tuple[str, int] | None:
        """Where datagrams for it go; None: to a name, or to an address that a peer has made up."""
        if address not in self._targets:
            while len(self._targets) >= MAX_TARGETS:
                del self._targets[next(iter(self._targets))]
            self._targets[address] = None
            with suppress(UsageError, ValueError):
                host, port = parse_address(address)
                self._targets[address] = (str(ip_address(host)), port)
        return self._targets[address]

    def flush(self) -> None:
        out, self._out = self._out, {}
        for address, records in out.items():
            target = self._target(address)
            if target is None or self._transport is None:
                self.stats.peer_full += len(records)
                continue
            for datagram, count in _together(records, DATAGRAM if is_loopback(target[0]) else TOGETHER):
                if self._paused:  # the network card is behind; asyncio would queue without end
                    self.stats.peer_full += count
                else:
                    self._transport.sendto(datagram, target)
        super().flush()

    # -- in -----------------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: object) -> None:
        if self.held:
            self.stats.host_full += 1
            return
        decoder = StreamDecoder(self.largest)
        try:
            packets = decoder.feed(data)
        except RemoteError:
            self.stats.bad_stream += 1
            return
        self.stats.bad_stream += bool(decoder.buffered)
        if packets:
            self.received(packets, self._connection)

    def error_received(self, error: Exception) -> None:
        """Nobody listens there (ICMP): the core finds out by itself."""

    # -- back pressure and end ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False

    def congested(self) -> bool:
        return self._paused or super().congested()

    async def drained(self, timeout: float) -> bool:
        self.flush()
        deadline = self.loop.time() + timeout
        while self._paused and self.loop.time() < deadline:
            await asyncio.sleep(0.001)
        return await super().drained(max(0.0, deadline - self.loop.time()))

    async def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()
        await super().close()


def _together(records: list[bytes], cap: int) -> list[tuple[bytes, int]]:
    """The records in as few datagrams as `cap` allows, each with the number of its records."""
    datagrams: list[tuple[bytes, int]] = []
    group: list[bytes] = []
    size = 0
    for record in records:
        if group and size + len(record) > cap:
            datagrams.append((b"".join(group), len(group)))
            group, size = [], 0
        group.append(record)
        size += len(record)
    datagrams.append((b"".join(group), len(group)))
    return datagrams
