"""`whence bridge`: a gateway between clusters."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

from whence.cli.connect import Notices, choose, run_until_stopped, security
from whence.errors import CyclicTopology, UsageError
from whence.live.api import Cluster
from whence.live.bridge import Bridge
from whence.live.metrics import MetricsServer, wishes


def bridge(args: argparse.Namespace) -> int:
    """Forward until a signal comes."""
    sides = [*args.sides, args]
    if len(sides) < 2:
        raise UsageError("a bridge joins two clusters or more: --cluster NAME --contact HOST:PORT for each")
    names = [side.cluster for side in sides]
    if len(set(names)) < len(names):
        raise CyclicTopology(f"{', '.join(names)}: each cluster has a name of its own, and is named once")
    for side in sides:
        if not side.contact:
            raise UsageError(f"{side.cluster}: --contact HOST:PORT of a member; a bridge creates no cluster")
    return run_until_stopped(_bridge(args, sides))


def _options(side: argparse.Namespace) -> dict[str, Any]:
    same = {name: getattr(side, name) for name in ("listen", "advertise", "timeout")}
    chosen, order = choose(side), {"order": side.order} if side.order else {}
    how = {"tickets": chosen.tickets, "settings": chosen.settings, **order}
    return {"contacts": side.contact, **same, **how, **security(side)}


@dataclass
class _Watched:
    """A cluster with the bridge's counters among its own, for /metrics."""

    bridge: Bridge
    cluster: Cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def stats(self) -> dict[str, int]:
        return self.bridge.stats(self.cluster.name)


async def _bridge(args: argparse.Namespace, sides: list[argparse.Namespace]) -> int:
    notice = Notices(args.json)
    made = Bridge(
        {side.cluster: _options(side) for side in sides},
        args.directory,
        unmarked="global" if args.all else "local",
        probe=args.probe,
        trace=args.trace,
        trusted={side.cluster: side.trust for side in sides if side.trust} or None,
        servers={side.cluster: side.server for side in sides if side.server} or None,
    )
    if args.directory is None:
        notice("without --directory a crash of this bridge loses or doubles what it has in hand")
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(made)
        clusters = live.clusters.values()
        checks = [check for c in clusters for check in wishes(c, True, True)]
        checks.append(lambda: None if live.open else "the bridge is looking for other ways, and forwards nothing yet")
        watched: list[Any] = [_Watched(live, c) for c in clusters]
        serving = MetricsServer(args.metrics, watched, checks) if args.metrics else nullcontext()
        server = await stack.enter_async_context(serving)
        for cluster in clusters:
            notice.entered(cluster, server)
        telling = asyncio.create_task(_tell_open(live, notice))
        stack.callback(telling.cancel)
        try:
            await live.run()
        finally:
            crossed = {c: stats.forwarded for c, stats in live.gateway.stats.items()}
            notice(f"brought over: {', '.join(f'{n} from {c}' for c, n in crossed.items())}", forwarded=crossed)
            if args.json:
                print(json.dumps({"forwarded": crossed}), flush=True)
    return 0


async def _tell_open(bridge: Bridge, notice: Notices) -> None:
    while not bridge.open:
        await asyncio.sleep(0.02)
    notice(f"the bridge between {' and '.join(bridge.clusters)} is open", open=list(bridge.clusters))
