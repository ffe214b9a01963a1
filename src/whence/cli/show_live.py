"""`whence demo --live`: a page on which three people write through three workers, and buttons that make trouble."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from whence.audit.judge import judge
from whence.audit.trace import read
from whence.cli.connect import run_until_stopped
from whence.errors import WhenceError
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.task import MemberSpec, Task
from whence.live.web.serve import listening, serving
from whence.live.web.stage import LiveDemo

WORKERS: Final = 3


def show(http: str, out: Path) -> int:
    """Until Ctrl-C."""
    return run_until_stopped(_show(http, out))


def _verdict(traces: Path) -> dict[str, Any]:
    """What the judge says of the steps of the page's clients so far."""
    try:
        rows = [row for row in read(traces, on_bad="collect") if row.cluster == "demo/page"]
        ok = not rows or judge(rows, complete=False).ok
    except (WhenceError, OSError):  # nothing is there yet
        return {"delivered": 0, "ok": True}
    return {"delivered": sum(row.kind == "deliver" for row in rows), "ok": ok}


async def _show(http: str, out: Path) -> int:
    async with Fleet(out, traced=out / "trace") as fleet:
        for _ in range(WORKERS):
            spec = MemberSpec(order="reliable", listen=f"127.0.0.1:{_two_ports()}")
            fleet.member(Task(cluster="demo", members=[spec]), "whence.live.web.stage")
        with listening(http) as sock:
            await fleet.start()
            while not any(await fleet.ask("look")):  # until then the first worker cannot be spared
                await asyncio.sleep(0.2)
            print("look at it: http://{}:{}/ (Ctrl-C ends it)".format(*sock.getsockname()[:2]), flush=True)
            await serving(LiveDemo(fleet, lambda: _verdict(out / "trace")), sock)
    return 0


def _two_ports() -> int:
    """A free port, the next one free as well: for a member, and for its rooms."""
    while True:
        with socket.socket() as first, socket.socket() as second, suppress(OSError, OverflowError):
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            second.bind(("127.0.0.1", port + 1))
            return port
