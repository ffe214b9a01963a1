"""Starting processes from a task that may be cancelled at any time."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress
from typing import Any


async def spawn(*command: str, **how: Any) -> Process:
    """`asyncio.create_subprocess_exec`; cancelled, it leaves no process behind.

    That one must not be cancelled itself: before the pipes are connected, asyncio closes its end of them and then waits
    for ever for them to be (seen with Python 3.11: a Ctrl-C at the wrong moment was without effect).
    """
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*command, **how))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):  # it cannot be started: then there is nothing to end
            process = await starting
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        raise
