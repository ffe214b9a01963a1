"""`whence status`: who is in a cluster, as one of its members sees it."""

from __future__ import annotations

import argparse
import asyncio
import os

import msgspec
from rich.markup import escape
from rich.table import Table

from whence.cli.show import console, facts
from whence.core.clock import address_of
from whence.errors import UsageError
from whence.live.metrics import ProcessStatus, ask
from whence.live.net.status import ClusterStatus


def status(args: argparse.Namespace) -> int:
    """Ask, and print what it says."""
    try:
        _, text = asyncio.run(ask(args.address, "/status"))
        said = msgspec.json.decode(text, type=ProcessStatus)
    except (OSError, TimeoutError, msgspec.MsgspecError) as error:
        why = os.strerror(number) if (number := getattr(error, "errno", None)) else str(error) or "no answer in time"
        raise UsageError(f"{args.address}: {why}. Give the port where a member serves /status (--metrics)") from None
    if args.json:
        print(text, end="")
    else:
        for cluster in said.clusters:
            _show(cluster)
        for reason in said.reasons:
            console().print(f"not well: {reason}", markup=False, style="bold red")
    return 0 if said.ok else 1


def _show(cluster: ClusterStatus) -> None:
    taken = sum(one.ticket is not None for one in cluster.members)
    tickets = f"{taken} of {cluster.tickets} tickets" if cluster.tickets else "no tickets"
    title = f"{cluster.cluster}: {len(cluster.members)} members, {tickets}, as {address_of(cluster.me)} sees it"
    table = Table("member", "heard", "ticket", "votes", "order", "version", "held", "unread", title=escape(title))
    for one in cluster.members:
        heard = "now" if one.answers else f"{one.seen_s:g} s ago {one.why and f'({one.why})'}"
        says = (one.order, one.version, f"{one.held:,}", f"{one.unread:,}") if one.answers else "????"
        ticket, votes = "-" if one.ticket is None else str(one.ticket), "yes" if one.votes else "no"
        table.add_row(*map(escape, (one.member, heard, ticket, votes, *says)))
    console().print(table)
    told = {"votes": cluster.council, "total order waits for": cluster.waits}
    for kind, found in (("cut off", cluster.cut_off), ("gone", cluster.gone), ("refused", cluster.refused)):
        told |= {f"{kind}: {who}": why for who, why in found.items()}
    console().print(facts("", {escape(name): escape(why) for name, why in told.items() if why}))
