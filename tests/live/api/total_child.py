"""One process of `test_total`: `ADDRESS FILE [CONTACT]`. It publishes, and writes down what it delivers and where."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import whence


async def main(address: str, file: Path, contacts: list[str]) -> None:
    options: dict[str, Any] = {"insecure": True, "order": "total", "tickets": 4, "memory": None, "timeout": 60}
    joining = whence.join("one", contacts, address, **options) if contacts else whence.create("one", address, **options)
    async with joining as cluster, cluster.publisher() as publisher:

        async def publish() -> None:
            while True:
                with suppress(whence.LeftOut, whence.TimedOut):
                    await publisher.publish(b"x", settled=True)
                await asyncio.sleep(0.02)

        task = asyncio.create_task(publish())
        with file.open("a") as told:
            async for event in cluster.events():
                told.write(f"{event.place} {event.id}\n")
                told.flush()
        await task


if __name__ == "__main__":
    whence.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
