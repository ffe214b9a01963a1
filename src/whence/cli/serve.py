"""`whence serve`: rooms for browsers, and static files beside them, without an application of one's own."""

from __future__ import annotations

import argparse
import asyncio
import mimetypes
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from whence.cli.connect import Notices, joining, rekey_on_hangup, run_until_stopped, tell_council
from whence.errors import UsageError
from whence.live.net.transport import parse_address, show_address
from whence.live.web.app import Authorize, Receive, Rights, Rooms, Scope, Send, anyone, rooms


def serve(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    import uvicorn  # noqa: F401  # what is missing is said before a cluster is joined
    import websockets  # noqa: F401

    args.order = "reliable"
    return run_until_stopped(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    app = rooms(joining(args), authorize=by_token(args.tokens), origins=args.origin or None)
    async with app:
        with listening(args.http) as sock:
            scheme = "https" if args.https else "http"
            notice.entered(app.cluster, None, rooms=f"{scheme}://{show_address(*sock.getsockname()[:2])}/rooms")
            rekey_on_hangup(app.cluster, args, notice)
            telling = asyncio.create_task(tell_council(app.cluster, notice))
            try:
                await serving(Site(app, args.site), sock, args.https)
            finally:
                telling.cancel()
    return 0


def listening(address: str) -> socket.socket:
    """A socket that listens."""
    family, _, _, _, where = socket.getaddrinfo(*parse_address(address), type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(where)
    sock.listen()
    return sock


async def serving(app: Any, sock: socket.socket, https: list[str] | None = None) -> None:
    """Serve it there until this is cancelled."""
    import uvicorn

    keys = {} if https is None else {"ssl_certfile": https[0], "ssl_keyfile": https[1]}
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", **keys))  # type: ignore[arg-type]
    server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]  # they are ours
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(task)
    finally:
        server.should_exit = True
        await task


class Site:
    """Rooms under /rooms; elsewhere the files of a directory."""

    def __init__(self, app: Rooms, directory: Path | None) -> None:
        self._app = app
        self._directory = None if directory is None else directory.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"])
        if scope["type"] == "websocket" or path.startswith("/rooms/"):
            await self._app({**scope, "path": path.removeprefix("/rooms")}, receive, send)
            return
        found = self._find(path)
        kind = mimetypes.guess_type(found.name)[0] if found else None
        headers = [(b"content-type", (kind or "text/plain").encode()), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        body = await asyncio.to_thread(found.read_bytes) if found else b"there is no such page\n"
        await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})

    def _find(self, path: str) -> Path | None:
        if self._directory is None or "\0" in path:
            return None
        found = (self._directory / path.lstrip("/")).resolve()
        found = found / "index.html" if found.is_dir() else found
        return found if found.is_relative_to(self._directory) and found.is_file() else None


def by_token(path: Path | None) -> Authorize:
    """Rights by a file of lines `TOKEN USER`, or `TOKEN USER read` for those who may not publish."""
    if path is None:
        return anyone
    found: dict[str, Rights] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if words and not line.startswith("#"):
            if len(words) not in (2, 3) or words[2:] not in ([], ["read"]):
                raise UsageError(f"{path}, line {number}: want TOKEN USER, or TOKEN USER read")
            found[words[0]] = Rights(words[1], publish=len(words) == 2)
    return lambda visit: found.get(visit.token)
