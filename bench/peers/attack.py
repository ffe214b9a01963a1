"""Strangers at the sockets of a cluster, until they are stopped. A child of a fleet; its task is the addresses.

All at once, at every address: random bytes, connections that say nothing, a byte at a time, lengths beyond every cap,
the wrong key. About 50 new connections a second for each address.
"""

from __future__ import annotations

import asyncio
import random

from whence.core.wire import frame_stream
from whence.live.fleet.channel import Channel, program
from whence.live.net.guard import SecretGuard
from whence.live.net.hello import Greeting, encode_hello
from whence.live.net.transport import parse_address

WRONG = SecretGuard(b"\x0a" * 32)
PAUSE_S = 0.1
rng = random.Random(1)


async def _say(host: str, port: int, data: bytes, linger: float = 0.0) -> None:
    try:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        await asyncio.sleep(linger)
        writer.close()
    except OSError:
        pass  # cut off: that is the point


async def noise(host: str, port: int) -> None:
    await _say(host, port, rng.randbytes(rng.randrange(1, 50_000)))


async def silence(host: str, port: int) -> None:
    await _say(host, port, b"", linger=5.0)


async def oversized(host: str, port: int) -> None:
    await _say(host, port, rng.choice((0, 1 << 31, 0xFFFFFFFF)).to_bytes(4, "big") + b"x" * 100)


async def wrong_key(host: str, port: int) -> None:
    greeting = frame_stream(WRONG.seal(encode_hello(Greeting("127.0.0.1:1"))))
    await _say(host, port, greeting + frame_stream(WRONG.seal(b"x" * 1000)), linger=0.5)


async def slow_loris(host: str, port: int) -> None:
    try:
        _, writer = await asyncio.open_connection(host, port)
        for byte in (200).to_bytes(4, "big") + b"x" * 150:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.05)
        writer.close()
    except OSError:
        pass


ATTACKS = (noise, silence, oversized, wrong_key, slow_loris)


async def attack_all(addresses: list[str]) -> None:
    running: set[asyncio.Task[None]] = set()
    while True:
        for address in addresses:
            for attack in ATTACKS:
                task = asyncio.create_task(attack(*parse_address(address)))
                running.add(task)
                task.add_done_callback(running.discard)
        await asyncio.sleep(PAUSE_S)


async def main(addresses: list[str], channel: Channel) -> None:
    channel.ready(None)
    await channel.serve({}, attack_all(addresses))


if __name__ == "__main__":
    program(main, list[str])
