"""A connection that somebody opened to this process: bytes in, packets out. Where the path of a packet begins.

`data_received` -> `Host._received` (guard, whose packet it is) -> `Node.receive`. When the chunk is over: `Host.step` ->
`Node.step` (decode, `Member.handle`, the backlog) -> `Events`, which the application reads.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, cast

from whence.errors import RemoteError
from whence.net.listener import tune
from whence.net.refusals import foreign_greeting
from whence.net.roles import PUBLISHER
from whence.net.tls import peer as tls_peer
from whence.net.transport import Connection
from whence.wire import StreamDecoder

if TYPE_CHECKING:
    from whence.net.tcp import TcpTransport

log = logging.getLogger("whence.net")
_LENGTH = Struct(">I")


class Accepted(asyncio.Protocol, Connection):
    """A connection that somebody opened to us. Until it has greeted it is a stranger's."""

    __slots__ = ("_began", "_decoder", "_first", "_owner", "_transport")

    def __init__(self, owner: TcpTransport) -> None:
        Connection.__init__(self)
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._decoder = StreamDecoder(owner.limits)
        self._first: bytearray | None = bytearray()  # the beginning of the first record
        self._began: float | None = owner.loop.time()  # since when the record under way is

    @property
    def streams(self) -> bool:
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        owner = self._owner
        self._transport = cast("asyncio.Transport", transport)
        if owner.closing or self not in owner.listener.strangers or len(owner.accepted) >= owner.max_accepted:
            owner.stats.refused += 1
            self.close()
            return
        owner.stats.accepted += 1
        owner.accepted[self] = None
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            try:
                self.name, role = tls_peer(tls)
                self.may_publish = role == PUBLISHER
            except RemoteError as error:
                owner.stats.unauthentic += 1
                self.refuse(str(error))
                return
        tune(transport, owner.settings.kernel_buffer, owner.settings.stall_timeout)

    def data_received(self, data: bytes) -> None:
        owner = self._owner
        if self._transport is None or self._transport.is_closing():
            return
        owner.reading(True)
        try:
            if self._first is not None:
                data = self._greet(data)
            for packet in self._decoder.feed(data) if data else ():
                owner.received(packet, self)
                if self._transport.is_closing():
                    return
        except RemoteError as error:
            owner.stats.bad_stream += 1
            log.debug("connection of %s closed: %s", self.peer or "a stranger", error)
            if self._first is not None and not self._transport.is_closing():
                self.refuse(foreign_greeting(bytes(self._first[:2])) or str(error))
            self.close()
            return
        finally:
            owner.reading(False)
        if self._first is None:
            buffered = self._decoder.buffered
            self._began = (self._began or owner.loop.time()) if buffered else None

    def _greet(self, data: bytes) -> bytes:
        """The first record, which has to be short and in time; returns what follows it."""
        assert self._first is not None
        self._first += data
        if len(self._first) < _LENGTH.size:
            return b""
        (length,) = _LENGTH.unpack_from(self._first)
        end = _LENGTH.size + length
        if length > self._owner.settings.greeting_bytes:
            raise RemoteError(f"a first packet of {length} bytes is no greeting")
        if len(self._first) < end:
            return b""
        first, rest = bytes(self._first[_LENGTH.size : end]), bytes(self._first[end:])
        self._owner.received(first, self)
        if self.peer is None:
            raise RemoteError("the first packet is no greeting")
        self._first = None
        self._began = None
        if not self.urgent:
            self.hold(self._owner.held)
        self._owner.listener.known(self)
        return rest

    def hold(self, held: bool) -> None:
        """Read no more for a while, unless it is still a stranger's (whose time runs)."""
        if self._transport is None or self._first is not None or self._transport.is_closing():
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def sweep(self, now: float) -> None:
        settings = self._owner.settings
        if self._began is None or (self._owner.held and self._first is None):
            return
        if now - self._began > (settings.record_timeout if self._first is None else settings.greeting_timeout):
            self._owner.stats.stale += 1
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.accepted.pop(self, None)
        self._owner.listener.gone(self)
        self._owner.closed(self)

    def refuse(self, why: str) -> None:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        self._owner.refusals.note(str(address[0]) if address else "an unknown address", why)
        self.close()

    def close(self) -> None:
        self._owner.accepted.pop(self, None)
        self._owner.listener.gone(self)
        if self._transport is not None:
            self._transport.abort()
