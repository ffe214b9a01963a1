"""Messages on a byte stream: four bytes of length, big-endian, then so many bytes of packet."""

from __future__ import annotations

from struct import Struct

from whence.core.wire.limits import DEFAULT, Limits
from whence.errors import BadMessage, RemoteError, TooLarge, UsageError

_LENGTH = Struct(">I")
PREFIX = _LENGTH.size


def frame_stream(data: bytes, limits: Limits = DEFAULT) -> bytes:
    """The packet as it goes on a stream."""
    if not 1 <= len(data) <= limits.max_message_bytes:
        raise UsageError(f"a packet of {len(data)} bytes cannot be sent: 1 .. {limits.max_message_bytes} are allowed")
    return _LENGTH.pack(len(data)) + data


class StreamDecoder:
    """Cuts a stream back into packets, whatever the chunks. Between two calls it holds less than one packet. A bad
    length is refused as soon as its four bytes are there, before any allocation. After that the decoder is broken: cut
    off the peer."""

    __slots__ = ("_broken", "_cap", "_wanted", "begun")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._cap = limits.max_message_bytes
        self.begun = bytearray()
        """The beginning of a packet that is not complete yet."""
        self._wanted = PREFIX
        """Bytes until a packet, or at least its length, is complete."""
        self._broken: RemoteError | None = None

    @property
    def buffered(self) -> int:
        """Bytes held between two calls."""
        return len(self.begun)

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that this chunk completes. Raises TooLarge or BadMessage on a length that cannot be."""
        if self._broken is not None:
            raise self._broken
        if self._wanted > len(data):  # no need to look at it yet
            self.begun += data
            self._wanted -= len(data)
            return []
        if self.begun:
            data = b"".join((self.begun, data))
            self.begun = bytearray()
        packets: list[bytes] = []
        start, end, wanted = 0, len(data), PREFIX
        while start + PREFIX <= end:
            (length,) = _LENGTH.unpack_from(data, start)
            if not 1 <= length <= self._cap:
                self._break(length)
            wanted = PREFIX + length
            if start + wanted > end:
                break
            packets.append(data[start + PREFIX : start + wanted])
            start, wanted = start + wanted, PREFIX
        self._wanted = wanted - (end - start)
        if start < end:
            self.begun += data[start:]
        return packets

    def _break(self, length: int) -> None:
        self.begun = bytearray()
        self._broken = (
            TooLarge(f"stream announces a packet of {length} bytes, allowed are {self._cap}")
            if length
            else BadMessage("stream announces an empty packet")
        )
        raise self._broken
