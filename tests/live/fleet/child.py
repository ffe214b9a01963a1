"""Children for the tests of the fleet: each does one thing wrong, or starts something that must not be left behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import msgspec

from whence.errors import DiskError
from whence.live.fleet.channel import Channel, program


class Task(msgspec.Struct):
    how: str


async def main(task: Task, channel: Channel) -> None:
    if task.how == "never ready":
        print("waiting for a server that is not there", flush=True)
        await asyncio.sleep(600)
    if task.how == "fails":
        raise DiskError("disk/journal: no space left on device")
    if task.how == "stuck":  # neither the end of its input nor a polite signal ends it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen(["sleep", "600"]) if task.how == "grandchild" else None
    channel.ready(grandchild.pid if grandchild else None)

    async def slow(seconds: float, value: str) -> str:
        await asyncio.sleep(seconds)
        return value

    async def broken() -> None:
        raise DiskError("disk/journal: no space left on device")

    def say(text: str) -> Any:
        print(text, file=sys.stderr, flush=True)

    await channel.serve({"slow": slow, "broken": broken, "say": say})
    if task.how == "stuck":
        await asyncio.sleep(600)


if __name__ == "__main__":
    program(main, Task)
