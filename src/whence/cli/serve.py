"""`whence serve`: rooms for browsers, and static files beside them, without an application of one's own."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from whence.cli.connect import Notices, joining, rekey_on_hangup, run_until_stopped, tell_council
from whence.errors import UsageError
from whence.live.net.transport import show_address
from whence.live.web.app import Authorize, Rights, Rooms, anyone
from whence.live.web.serve import Site, listening, serving


def serve(args: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    import uvicorn  # noqa: F401  # what is missing is said before a cluster is joined
    import websockets  # noqa: F401

    args.order = "reliable"
    return run_until_stopped(_serve(args))


async def _serve(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    app = Rooms(joining(args), authorize=by_token(args.tokens), origins=args.origin or None)
    with listening(args.http) as sock:
        async with app:
            cluster, scheme = app.hub.cluster, "https" if args.https else "http"
            notice.entered(cluster, None, rooms=f"{scheme}://{show_address(*sock.getsockname()[:2])}/rooms")
            rekey_on_hangup(cluster, args, notice)
            telling = asyncio.create_task(tell_council(cluster, notice))
            try:
                await serving(Site(app, args.site), sock, args.https)
            finally:
                telling.cancel()
    return 0


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
