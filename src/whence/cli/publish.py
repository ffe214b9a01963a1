"""`whence publish`: events from outside a cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from whence.cli import INTERRUPTED
from whence.cli.connect import Notices, run_until_stopped, security
from whence.cli.streams import Lines
from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.errors import UsageError
from whence.live.bridge import Client


def publish(args: argparse.Namespace) -> int:
    """Publish all there is; returns when the last one is accepted."""
    if args.last < 0 or (args.last and not args.client):
        raise UsageError("--last N is the last number that --client NAME has used")
    return run_until_stopped(_publish(args), unfinished=bool(args.text))


async def _publish(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    how = {"client": args.client, "last": args.last, "copies": args.copies, "timeout": args.timeout}
    async with Client(args.cluster, args.contact, **how, **security(args)) as client:
        if client.copies == 1:
            notice("one copy: if that member dies before others have it, the event is lost", copies=1)
        lines = None if args.text else Lines(sys.stdin.fileno(), MAX_PAYLOAD_BYTES)
        batch: list[bytes] | None = [text.encode() for text in args.text]
        while batch is not None:
            for payload in batch:
                try:
                    number = await client.publish(payload, args.everywhere)
                except asyncio.CancelledError:
                    notice(f"interrupted: event {client.number + 1} is perhaps not published", last=client.number)
                    return INTERRUPTED
                if args.json:
                    said = {"cluster": args.cluster, "client": client.client, "number": number}
                    print(json.dumps(said), flush=True)
            batch = await lines.next() if lines else None
        if lines and lines.too_long:
            notice(f"{lines.too_long} lines were too long")
        if args.json:
            counted = {"published": client.number - args.last, "last": client.number}
            print(json.dumps({"cluster": args.cluster, "client": client.client, **counted}), flush=True)
        return 2 if lines and lines.too_long else 0
