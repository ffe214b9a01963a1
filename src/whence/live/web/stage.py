"""The stage of `whence demo --live`: workers that lose messages, are cut off and killed when a page says so. Also the
program of these workers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final

from whence.errors import FleetError
from whence.live.api import Options, create, join
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.fleet import Fleet, Members
from whence.live.fleet.member import JoinedMembers
from whence.live.fleet.task import Task
from whence.live.net.transport import Faults, parse_address, show_address
from whence.live.web.app import Receive, Rooms, Scope, Send, anyone
from whence.live.web.serve import Site, listening, serving

DOWN_S: Final = 3.0
"""Seconds until a killed worker is back."""


class LiveDemo:
    """What the page shows, and what its buttons do."""

    def __init__(self, fleet: Fleet, verdict: Callable[[], dict[str, Any]]) -> None:
        self._fleet = fleet
        self._verdict = verdict
        self._busy: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        kind, body, status = "application/json", b"{}", 200
        if path in ("/", "/whence.js"):
            kind = "text/html; charset=utf-8" if path == "/" else "text/javascript"
            body = files("whence.live.web").joinpath("demo.html" if path == "/" else "whence.js").read_bytes()
        elif path == "/state":
            body = json.dumps(self._workers() | await asyncio.to_thread(self._verdict)).encode()
        elif method == "POST" and (b"x-whence", b"demo") in scope["headers"]:  # no other page can send this
            with suppress(FleetError):  # a worker that is down
                await self._do(path.strip("/"))
        else:
            status = 404
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _do(self, what: str) -> None:
        fleet = self._fleet
        match what.split("/"):
            case ["kill", number] if (one := fleet.all[int(number)]).alive:
                await one.kill()
                task = asyncio.create_task(self._back(one))
                self._busy.add(task)
                task.add_done_callback(self._busy.discard)
            case ["lose", percent]:
                await fleet.ask("lose", share=int(percent) / 100)
            case ["cut", number]:
                await fleet.cut([int(number)])
            case ["heal"]:
                await fleet.heal()

    async def _back(self, one: Members) -> None:
        await asyncio.sleep(DOWN_S)
        await self._fleet.restart(one)

    def _workers(self) -> dict[str, Any]:
        ports = [int(one.task.members[0].listen.rpartition(":")[2]) + 1 for one in self._fleet.all]
        return {"workers": [{"port": p, "alive": o.alive} for p, o in zip(ports, self._fleet.all, strict=True)]}


async def main(task: Task, channel: Channel) -> None:
    """A worker of a fleet: one member, its rooms at the port after the member's."""
    [spec], faults = task.members, Faults(task.drop, seed=random.Random(task.seed).getrandbits(32))
    options: Options = {"secret": bytes.fromhex(task.secret), "order": "reliable", "memory": None}
    options |= {"trace": task.trace, "faults": faults, "timeout": task.timeout}
    alone = task.found or not task.contacts
    if alone:
        joining = create(task.cluster, spec.listen, contacts=task.contacts, **options)
    else:
        joining = join(task.cluster, task.contacts, spec.listen, **options)
    host, port = parse_address(spec.listen)
    async with Rooms(joining, authorize=anyone, origins=["*"]) as rooms:
        members = JoinedMembers([rooms.hub.cluster], [faults])
        channel.ready(members.about())

        def spares() -> int:
            """How many voters may be lost."""
            council = rooms.hub.cluster.council
            return 0 if council is None else council.may_lose

        commands: dict[str, Callable[..., Any]] = {"lose": lambda share: setattr(faults, "drop", share), "look": spares}
        await channel.serve(
            commands | members.commands(), serving(Site(rooms), listening(show_address(host, port + 1)))
        )


if __name__ == "__main__":
    program(main, Task)
