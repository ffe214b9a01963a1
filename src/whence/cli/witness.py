"""`whence witness`: a voter and nothing else. `whence found`: a person's decision that the council is lost."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from whence.cli.connect import Notices, entered, joining, run_until_stopped, security, tell_council
from whence.errors import UsageError
from whence.live.net.council import PATIENCE
from whence.live.net.host import Host

ANSWER_S: Final = 3.0
"""Seconds for a member to answer."""


def witness(args: argparse.Namespace) -> int:
    """Vote until a signal comes."""
    if args.found or not (args.join or args.peers):
        raise UsageError("a witness founds nothing: --join HOST:PORT names a member of the cluster")
    return run_until_stopped(_witness(args))


async def _witness(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    async with joining(args) as cluster:
        notice(f"{cluster.address} {entered(cluster)} as a witness", cluster=cluster.name, address=cluster.address)
        if cluster.council is None:
            raise UsageError(f"{cluster.name!r} has no council, so a witness is of no use")
        await tell_council(cluster, notice)
    return 0


def found(args: argparse.Namespace) -> int:
    """Have a member found the ring again."""
    if not args.force:
        raise UsageError(
            f"while enough voters of {args.cluster!r} answer, the council decides by itself. --force says that the "
            "others are gone for good: if they live after all, both sides publish under the same tickets"
        )
    return run_until_stopped(_found(args))


async def _found(args: argparse.Namespace) -> int:
    async with Host(args.listen, **security(args)) as host:
        answer = await host.ask(args.join, args.cluster, ANSWER_S)
        if answer is None:
            raise UsageError(f"no answer from {args.join}: {host.why_unreached(args.join) or 'is it a member?'}")
        try:
            refused = await host.decide(args.join, args.cluster, PATIENCE + ANSWER_S)
        except TimeoutError:
            refused = f"{args.join} has not answered for {PATIENCE + ANSWER_S:g} s"
    if refused:
        raise UsageError(refused)
    print(f"whence: {args.join} has founded the ring of {args.cluster!r} again", file=sys.stderr)
    return 0
