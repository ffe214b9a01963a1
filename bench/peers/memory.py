"""How much memory a process with one member takes, and each further one: `python -m bench.peers.memory`."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

from bench.peers.worker import rss_mb

import whence

FURTHER = 40


async def main() -> None:
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(whence.Host(secret=b"\x09" * 32))
        await stack.enter_async_context(whence.create("0", host=host))
        await asyncio.sleep(0.5)
        one = rss_mb()
        for number in range(FURTHER):
            await stack.enter_async_context(whence.create(str(number + 1), host=host))
        await asyncio.sleep(0.5)
        print(json.dumps({"one": one, "each": (rss_mb() - one) / FURTHER}), flush=True)


if __name__ == "__main__":
    whence.run(main())
