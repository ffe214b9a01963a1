"""A program with a fleet, for the tests that interrupt one: says the process ids of its children, then waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.live.fleet.child import Task
from whence.live.fleet.process import Child, Children

ROOT = Path(__file__).parents[3]


async def main(hows: list[str]) -> None:
    async with Children[Child](stop_s=2.0) as group:
        for how in hows:
            child = group.add(Child(how, "tests.live.fleet.child", cwd=ROOT))
            grandchild = await child.start(Task(how))
            print(child.pid, *([grandchild] if grandchild else []), flush=True)
        print("ready", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
