"""What a client and a door say to each other, and the line they say it on: a stream, protected like those of members.

A door has a secret or certificates of its own: its clients need not hold the cluster's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from whence.core.wire import DEFAULT
from whence.core.wire.codec import StreamDecoder, frame_stream
from whence.errors import BadMessage, ClusterClosed, UsageError
from whence.live.net.guard import Guard, Plain, SecretGuard, TlsGuard
from whence.live.net.keys import Keys
from whence.live.net.keys import load as load_keys
from whence.live.net.tls import contexts
from whence.live.net.transport import is_loopback, parse_address

MAX_CLIENT: Final = 64
"""Characters of a client's name."""


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Publish this for a client in this cluster. `ask` False: do not, only say when it is delivered here."""

    cluster: str
    client: str
    number: int
    payload: bytes
    everywhere: bool = False
    ask: bool = True


class Accepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """It is delivered at this member."""

    number: int


class Refused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """This member will not do it; another one may."""

    number: int
    reason: str


class Greeting(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The first word on a line, by the client: short, so that a stranger cannot make a door keep much."""

    number: int = 1
    """Nothing: every word has one."""


Word = Request | Accepted | Refused | Greeting

GREETING_BYTES: Final = 256
"""The largest first record on a line."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Word)
_LIMITS = msgspec.structs.replace(DEFAULT, max_message_bytes=DEFAULT.max_payload_bytes + 4096)


def decode(data: bytes) -> Word:
    """A word, or `BadMessage`."""
    try:
        word: Word = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"no word between client and member: {error}") from None
    if not 1 <= word.number < 1 << 62 or (isinstance(word, Request) and not 1 <= len(word.client) <= MAX_CLIENT):
        raise BadMessage("a word with a number or a name that cannot be")
    return word


@dataclass
class Safety:
    """Who may be at the other end, said as for a member: one of `secret`, `tls`, `insecure`."""

    guard: Guard
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None

    @classmethod
    def of(
        cls,
        secret: bytes | str | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
        *addresses: str,
    ) -> Safety:
        """`addresses`: where the lines lead; without protection they have to be on this machine."""
        if sum((secret is not None, tls is not None, insecure)) != 1:
            raise UsageError("who may publish here? Give one of secret, tls or insecure=True, the same as at the door")
        if secret is not None:
            return cls(SecretGuard(secret))
        if tls is not None:
            keys = tls if isinstance(tls, Keys) else load_keys(tls)
            return cls(TlsGuard(), *contexts(keys.ca, keys.certificate, keys.key))
        for address in addresses:
            if not is_loopback(parse_address(address)[0]):
                raise UsageError(f"insecure=True is for loopback only, not for {address}")
        return cls(Plain())


class Line:
    """One end of a stream of words."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guard: Guard) -> None:
        self.reader = reader
        self.writer = writer
        self._guard = guard
        limits = msgspec.structs.replace(_LIMITS, max_message_bytes=_LIMITS.max_message_bytes + guard.overhead)
        self._limits = limits
        self._decoder = StreamDecoder(limits)
        self._words: deque[Word] = deque()

    async def greeted(self) -> None:
        """Wait for the client's greeting. Nothing is kept of a record that is too long to be one."""
        try:
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            if length > GREETING_BYTES:
                raise BadMessage(f"a first record of {length} bytes is no greeting")
            first = await self.reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ClusterClosed("the line was closed at the other end") from None
        if not isinstance(decode(self._guard.open(first)), Greeting):
            raise BadMessage("the first record is no greeting")

    async def say(self, word: Word) -> None:
        self.writer.write(frame_stream(self._guard.seal(_encode(word)), self._limits))
        await self.writer.drain()

    async def hear(self) -> Word:
        """The next word. A `RemoteError` for what is none; `ClusterClosed` when the other end is closed."""
        while not self._words:
            data = await self.reader.read(1 << 16)
            if not data:
                raise ClusterClosed("the line was closed at the other end")
            self._words += (decode(self._guard.open(packet)) for packet in self._decoder.feed(data))
        return self._words.popleft()

    def close(self) -> None:
        self.writer.close()
