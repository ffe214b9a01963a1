"""Systems with a network of their own that are wrong on purpose: `python broken_tcp.py MISTAKE` is a node.

All are the example (examples/conform_tcp.py) with one thing undone.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from conform_tcp import Node


class AtOnce(Node):
    """Delivers on receipt."""

    def ready(self, event: dict[str, Any]) -> bool:
        return True


class NoAddress(Node):
    """Does not say where it listens."""

    def say(self, **body: Any) -> None:
        body.pop("address", None)
        super().say(**body)


class Past(Node):
    """Keeps clear of the proxies: no node reaches another."""

    async def dial(self, address: str, events: asyncio.Queue[Any]) -> None:
        while True:
            await events.get()


MISTAKES = {"at-once": AtOnce, "no-address": NoAddress, "past": Past}

if __name__ == "__main__":
    asyncio.run(MISTAKES[sys.argv[1]]().main())
