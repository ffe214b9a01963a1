"""The floor: asyncio and uvloop, a connection between any two, frames of events, nothing else. Order per link, no
recovery, no authentication."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct

import msgspec
from bench.peers.worker import Job, Meter, measure, run

from whence.live.fleet.channel import Channel

_LENGTH = Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
HIGH_WATER = 512 << 10


class _In(asyncio.Protocol):
    """Reads frames."""

    def __init__(self, got: Callable[[list[bytes]], None]) -> None:
        self._got = got
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            if end - at - 4 < length:
                break
            self._got(_decode(memoryview(data)[at + 4 : at + 4 + length]))
            at += 4 + length
        self._rest = data[at:]


class _Out(asyncio.Protocol):
    """Writes frames; tells when the peer is behind."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(HIGH_WATER)

    def pause_writing(self) -> None:
        self.free.clear()

    def resume_writing(self) -> None:
        self.free.set()


class Mesh:
    """A full mesh."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter
        self._out: list[_Out] = []

    async def listen(self) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _In(self._meter.got), "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def connect(self, addresses: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for number, address in enumerate(addresses):
            if number != self._job.number:
                host, _, port = address.rpartition(":")
                _, out = await loop.create_connection(_Out, host, int(port))
                self._out.append(out)

    async def publish(self, payloads: list[bytes]) -> None:
        body = _encode(payloads)
        frame = _LENGTH.pack(len(body)) + body
        for out in self._out:
            out.transport.write(frame)
        for out in self._out:
            if not out.free.is_set():
                await out.free.wait()
        await asyncio.sleep(0)

    async def close(self) -> None:
        self._server.close()


async def main(job: Job, channel: Channel, meter: Meter) -> None:
    await measure(job, channel, Mesh(job, meter), meter)


if __name__ == "__main__":
    run(main)
