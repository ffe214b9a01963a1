"""`whence door`: a member that publishes for clients that are not members, and prints deliveries."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from whence.cli.connect import Notices, entered, joining, run_until_stopped, security
from whence.cli.streams import PipeWriter, printable
from whence.core.clock import address_of
from whence.live.bridge import Door, Reader, Said
from whence.live.net.keys import read_secret
from whence.live.net.metrics import MetricsServer, Wishes


def door(args: argparse.Namespace) -> int:
    """Take part until a signal comes."""
    return run_until_stopped(_door(args))


def _clients(args: argparse.Namespace) -> dict[str, Any]:
    """Who may publish at the door: holders of its own secret, or of the cluster's keys."""
    return {"secret": read_secret(args.door_secret_file)} if args.door_secret_file else security(args)


def _reader(args: argparse.Namespace, me: str) -> Reader:
    return Reader(args.cluster, trusted=args.trust and [*args.trust, me])


async def _door(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    async with (
        joining(args) as cluster,
        Door(cluster, _reader(args, cluster.address), args.open, **_clients(args)) as opened,
    ):
        watch = None
        if args.metrics:
            watch = MetricsServer(args.metrics, [cluster], Wishes(cluster, bool(args.join or args.peers), False).checks)
            await watch.start()
        where = watch.address if watch else None
        notice(
            f"{cluster.address} {entered(cluster)}, its door is {opened.address}"
            + (f", metrics at http://{where}/metrics" if where else ""),
            cluster=args.cluster,
            address=cluster.address,
            me=cluster.me,
            door=opened.address,
            metrics=where,
        )
        ready = asyncio.create_task(_tell_ready(opened, notice))
        output = PipeWriter(sys.stdout.fileno())
        show = _as_json if args.json else _as_text
        events = cluster.events()
        try:
            while batch := await events.batch():
                read = [said for event in batch if (said := opened.read(event)) is not None]
                if read and not args.quiet:
                    await output.write("".join(map(show, read)).encode())
        finally:
            ready.cancel()
            if watch is not None:
                await watch.close()
    return 0


async def _tell_ready(door: Door, notice: Notices) -> None:
    await door.ready()
    notice("may publish", ready=True)


def _as_text(said: Said) -> str:
    by = said.client or address_of(said.origin)
    return f"{printable(said.cluster.encode())}/{printable(by.encode())}\t{printable(said.payload)}\n"


def _as_json(said: Said) -> str:
    try:
        payload, key = said.payload.decode(), "payload"
    except UnicodeDecodeError:
        payload, key = said.payload.hex(), "payload_hex"
    row: dict[str, object] = {"id": said.id, "cluster": said.cluster, "origin": said.origin, "scope": said.scope}
    if said.path:
        row["path"] = said.path
    if said.client:
        row |= {"client": said.client, "number": said.number}
    return json.dumps({**row, key: payload}, ensure_ascii=False) + "\n"
