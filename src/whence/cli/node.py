"""`whence node`: a member of a cluster, from the shell; with --open it publishes for clients that are not members."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, nullcontext
from typing import Any, Final

from whence.cli.connect import Notices, joining, rekey_on_hangup, run_until_stopped, security, tell_council
from whence.cli.streams import Lines, PipeWriter, printable
from whence.core.clock import address_of
from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.errors import UsageError
from whence.live.api import Cluster
from whence.live.bridge import Door, Reader, Said, local
from whence.live.events import Event
from whence.live.metrics import MetricsServer, wishes
from whence.live.net.council import PATIENCE
from whence.live.net.host import Host
from whence.live.net.keys import read_secret
from whence.live.net.transport import parse_address

ANSWER_S: Final = 3.0
"""Seconds for a member to answer."""


def node(args: argparse.Namespace) -> int:
    """Take part until the input ends or a signal comes."""
    if args.client_secret_file and not args.open:
        raise UsageError("--client-secret-file is for the clients of --open HOST:PORT")
    for trusted in args.trust:
        parse_address(trusted)
    if args.open and args.publish:
        raise UsageError("--open publishes what clients send, --publish what comes in here: choose one")
    return run_until_stopped(_force(args) if args.force else _node(args))


async def _force(args: argparse.Namespace) -> int:
    """Operator override: the member at --contact creates the ring again, under a new council."""
    if len(args.contact) != 1:
        raise UsageError("--force: --contact HOST:PORT names the one member that creates the ring again")
    [contact] = args.contact
    async with Host(args.listen, **security(args)) as host:
        if await host.ask(contact, args.cluster, ANSWER_S) is None:
            raise UsageError(f"no answer from {contact}: {host.why_unreached(contact) or 'is it a member?'}")
        try:
            refused = await host.decide(contact, args.cluster, PATIENCE + ANSWER_S)
        except TimeoutError:
            refused = f"{contact} has not answered for {PATIENCE + ANSWER_S:g} s"
    if refused:
        raise UsageError(refused)
    said = {"cluster": args.cluster, "contact": contact, "forced": True}
    print(json.dumps(said) if args.json else f"{contact} has created the ring of {args.cluster!r} again")
    return 0


async def _node(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(joining(args))
        trusted = [*args.trust, cluster.address] if args.trust and args.open else args.trust or None
        reader, door = Reader(args.cluster, trusted=trusted), None
        if args.open:
            secret = args.client_secret_file and read_secret(args.client_secret_file)
            keys = {"secret": secret} if secret else security(args)
            door = await stack.enter_async_context(Door(cluster, reader, args.open, **keys))
        checks = wishes(cluster, bool(args.contact), args.publish)
        server = MetricsServer(args.metrics, [cluster], checks) if args.metrics else nullcontext()
        notice.entered(cluster, await stack.enter_async_context(server), **({"open": door.address} if door else {}))
        rekey_on_hangup(cluster, args, notice)
        telling = asyncio.create_task(tell_council(cluster, notice))
        stack.callback(telling.cancel)
        read = door.read if door else lambda event: reader.read(event.id, event.payload)
        await _both(_deliveries(args, cluster, read), _input(args, cluster, door, notice))
    return 0


async def _both(deliveries: Coroutine[Any, Any, None], input: Coroutine[Any, Any, None]) -> None:
    """Until both end, which they do when the cluster is left; if one fails, the other is ended."""
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(deliveries)
            both.create_task(input)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


# -- deliveries ---------------------------------------------------------------------------------------------------


async def _deliveries(args: argparse.Namespace, cluster: Cluster, read: Callable[[Event], Said | None]) -> None:
    output = PipeWriter(sys.stdout.fileno())
    show = _as_json if args.json else _as_text
    events = cluster.events()
    while batch := await events.batch():
        # None: bridges among themselves, or a client's event that was read already
        lines = [show(event, said) for event in batch if (said := read(event)) is not None]
        if lines:
            await output.write("".join(lines).encode())


def _as_json(event: Event, said: Said) -> str:
    line: dict[str, object] = {"id": event.id, "origin": event.origin, "over_gap": event.over_gap, "t": time.time()}
    try:
        line["payload"] = said.payload.decode()
    except UnicodeDecodeError:
        line["payload_hex"] = said.payload.hex()
    if said.path:
        line |= {"id": said.id, "origin": said.origin, "from": said.cluster}
    if said.client:
        line |= {"client": said.client, "number": said.number, "scope": said.scope}
    if event.alert:
        line |= {"alert": event.alert, "suspects": event.suspects}
    return json.dumps(line, ensure_ascii=False) + "\n"


def _as_text(event: Event, said: Said) -> str:
    gap = "\t(something before it is missing)" if event.over_gap else ""
    if event.alert == "likely":
        gap += "\t(something that depends on it may have come before it)"
    who = said.client or address_of(said.origin if said.path else event.origin)
    home = f"{said.cluster}/" if said.path else ""
    return f"{printable((home + who).encode())}\t{printable(said.payload)}{gap}\n"


# -- publishes ----------------------------------------------------------------------------------------------------


async def _input(args: argparse.Namespace, cluster: Cluster, door: Door | None, notice: Notices) -> None:
    """Publish what comes in; leave when the input ends, unless the node is to stay."""
    if door is not None:
        await door.ready()
        notice("may publish, for clients", ready=True)
        return
    if args.stay and not args.publish:  # it does not read its input: it may run in the background
        return
    lines = Lines(sys.stdin.fileno(), MAX_PAYLOAD_BYTES)
    if args.publish:
        async with cluster.publisher() as publisher:  # it logs, and so tells, when a ticket is lost and when it returns
            await publisher.ready()
            under = "without a ticket" if publisher.ticket is None else f"under ticket {publisher.ticket}"
            notice(f"may publish, {under}", ticket=publisher.ticket)
            while (batch := await lines.next()) is not None:
                await publisher.publish_many(list(map(local, batch)))
            if lines.too_long:
                notice(f"{lines.too_long} lines were too long: an event has at most {MAX_PAYLOAD_BYTES} bytes")
            if args.stay:  # keep the ticket: a service has /dev/null as its input, and is to go on publishing
                await cluster.wait_for(lambda: False)
    while (ignored := await lines.next()) is not None:
        notice(f"{len(ignored)} lines not published: this node only receives, give --publish")
    await cluster.leave()
