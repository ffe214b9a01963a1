"""`whence node`: a member of a cluster, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from whence.cli.connect import Notices, entered, joining, run_until_stopped, tell_council
from whence.cli.streams import Lines, PipeWriter, printable
from whence.core.clock import address_of
from whence.core.wire.limits import DEFAULT
from whence.live.api import Cluster, Event
from whence.live.bridge import Reader, Said, local
from whence.live.fleet.load import Pace, payload, published_at
from whence.live.net.metrics import Latency, MetricsServer, Wishes


def node(args: argparse.Namespace) -> int:
    """Take part until the input ends or a signal comes."""
    return run_until_stopped(_node(args))


async def _node(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    async with joining(args) as cluster:
        latency = {args.cluster: Latency()}
        wishes = Wishes(cluster, bool(args.join or args.peers), args.coordinate)
        watch = None
        if args.metrics:
            watch = MetricsServer(args.metrics, [cluster], wishes.checks, latency)
            await watch.start()
        where = watch.address if watch else None
        notice(
            f"{cluster.address} {entered(cluster)}" + (f", metrics at http://{where}/metrics" if where else ""),
            cluster=args.cluster,
            address=cluster.address,
            founded=cluster.created,
            me=cluster.me,
            metrics=where,
        )
        telling = asyncio.create_task(tell_council(cluster, notice))
        try:
            await _both(_deliveries(args, cluster, latency[args.cluster]), _input(args, cluster, notice))
        finally:
            telling.cancel()
            if watch is not None:
                await watch.close()
    return 0


async def _both(deliveries: Coroutine[Any, Any, None], input: Coroutine[Any, Any, None]) -> None:
    """Until both end, which they do when the cluster is left; if one fails, the other is ended."""
    tasks = [asyncio.create_task(deliveries), asyncio.create_task(input)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


# -- deliveries ---------------------------------------------------------------------------------------------------


async def _deliveries(args: argparse.Namespace, cluster: Cluster, latency: Latency) -> None:
    output = PipeWriter(sys.stdout.fileno())
    show = _as_json if args.json else _as_text
    reader = Reader(cluster.name, trusted=args.trust)
    events = cluster.events()
    while batch := await events.batch():
        now = time.time_ns()
        lines: list[str] = []
        for event in batch:
            said = reader.read(event.id, event.payload)
            if said is None:  # bridges among themselves, or a client's event that was read already
                continue
            # Payloads are the application's. Only a node that is itself part of a load reads the time in the others'.
            if args.load and event.origin != cluster.me and (sent := published_at(said.payload)) is not None:
                latency.observe((now - sent) / 1e9)
            if not args.quiet:
                lines.append(show(event, said, now))
        if lines:
            await output.write("".join(lines).encode())


def _as_json(event: Event, said: Said, now: int) -> str:
    try:
        payload, key = said.payload.decode(), "payload"
    except UnicodeDecodeError:
        payload, key = said.payload.hex(), "payload_hex"
    line = {"id": event.id, "origin": event.origin, key: payload, "over_gap": event.over_gap, "t": now / 1e9}
    if said.path:
        line |= {"id": said.id, "origin": said.origin, "from": said.cluster}
    if said.client:
        line |= {"client": said.client, "number": said.number}
    if event.alert:
        line |= {"alert": event.alert, "suspects": event.suspects}
    return json.dumps(line, ensure_ascii=False) + "\n"


def _as_text(event: Event, said: Said, now: int) -> str:
    gap = "\t(something before it is missing)" if event.over_gap else ""
    if event.alert == "likely":
        gap += "\t(something that depends on it may have come before it)"
    who = said.client or address_of(said.origin if said.path else event.origin)
    home = f"{said.cluster}/" if said.path else ""
    return f"{printable((home + who).encode())}\t{printable(said.payload)}{gap}\n"


# -- publishes ----------------------------------------------------------------------------------------------------


class _Source(Protocol):
    async def next(self) -> list[bytes] | None:
        """What is to be published next; None: nothing more."""


class _Load:
    """So many events a second, with the time of their publishing in them, until `ends` does."""

    def __init__(self, rate: float, ends: _Source | None) -> None:
        self._pace = Pace(rate, random.Random(), time.monotonic())
        self._end = asyncio.ensure_future(_exhaust(ends)) if ends is not None else None

    async def next(self) -> list[bytes] | None:
        while self._end is None or not self._end.done():
            if due := self._pace.due(time.monotonic()):
                return [payload(time.time_ns())] * due
            await asyncio.sleep(self._pace.wait(time.monotonic()))
        return None


async def _exhaust(source: _Source) -> None:
    while await source.next() is not None:
        pass


async def _input(args: argparse.Namespace, cluster: Cluster, notice: Notices) -> None:
    """Publish what comes in; leave when the input ends, unless the node is to stay."""
    lines = None
    if args.coordinate or not args.stay:  # else it does not read its input: it may run in the background
        lines = Lines(sys.stdin.fileno(), DEFAULT.max_payload_bytes)
    source: _Source | None = lines
    if args.load:
        source = _Load(args.load, None if args.stay else lines)
    if args.coordinate:
        assert source is not None
        async with cluster.publisher() as publisher:  # it logs, and so tells, when a ticket is lost and when it returns
            await publisher.ready()
            under = "without a ticket" if publisher.ticket is None else f"under ticket {publisher.ticket}"
            notice(f"may publish, {under}", ticket=publisher.ticket)
            while (batch := await source.next()) is not None:
                await publisher.publish_many(list(map(local, batch)))
            if lines is not None and lines.too_long:
                notice(f"{lines.too_long} lines were too long: an event has at most {DEFAULT.max_payload_bytes} bytes")
            if args.stay:  # keep the ticket: a service has /dev/null as its input, and is to stay a coordinator
                await cluster.wait_for(lambda: False)
    elif lines is not None:
        while (ignored := await lines.next()) is not None:
            notice(f"{len(ignored)} lines not published: this node only receives, give --coordinate")
    if not args.stay:
        await cluster.leave()
