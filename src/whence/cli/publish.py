"""`whence publish`: events from outside a cluster."""

from __future__ import annotations

import argparse
import json
import sys

from whence.cli.connect import Notices, run_until_stopped, security
from whence.cli.streams import Lines
from whence.core.wire import DEFAULT
from whence.errors import UsageError
from whence.live.bridge import Client


def publish(args: argparse.Namespace) -> int:
    """Publish all there is; returns when the last one is accepted."""
    if args.last < 0 or (args.last and not args.client):
        raise UsageError("--last N is the last number that --client NAME has used")
    return run_until_stopped(_publish(args))


async def _publish(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    via = [address for address in args.via.split(",") if address]
    client = Client(
        args.cluster,
        via,
        client=args.client,
        last=args.last,
        copies=args.copies,
        timeout=args.timeout,
        **security(args),
    )
    if client.copies == 1:
        notice("one copy: if that member dies before others have it, the event is lost", copies=1)
    async with client:
        for text in args.text:
            await _one(args, client, text.encode())
        if not args.text:
            lines = Lines(sys.stdin.fileno(), DEFAULT.max_payload_bytes)
            while (batch := await lines.next()) is not None:
                for line in batch:
                    await _one(args, client, line)
            if lines.too_long:
                notice(f"{lines.too_long} lines were too long")
    return 0


async def _one(args: argparse.Namespace, client: Client, payload: bytes) -> None:
    number = await client.publish(payload, args.everywhere)
    if args.json:
        print(json.dumps({"cluster": args.cluster, "client": client.client, "number": number}), flush=True)
