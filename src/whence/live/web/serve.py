"""Serving rooms, and files beside them, from this process."""

from __future__ import annotations

import asyncio
import mimetypes
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from whence.errors import UsageError
from whence.live.net.transport import parse_address
from whence.live.web.app import Receive, Rooms, Scope, Send


def listening(address: str) -> socket.socket:
    """A socket that listens."""
    family, _, _, _, where = socket.getaddrinfo(*parse_address(address), type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(where)
    except OSError as error:
        raise UsageError(f"cannot serve at {address}: {error.strerror}") from None
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

    def __init__(self, app: Rooms, directory: Path | None = None) -> None:
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
