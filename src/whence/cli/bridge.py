"""`whence bridge`: a gateway between clusters."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from whence.cli.connect import Notices, entered, run_until_stopped, security
from whence.errors import CyclicTopology, UsageError
from whence.live.api import Cluster
from whence.live.bridge import Bridge
from whence.live.net.metrics import MetricsServer, Wishes


def bridge(args: argparse.Namespace) -> int:
    """Forward until a signal comes."""
    sides = args.sides or []
    if len(sides) < 2:
        raise UsageError("a bridge joins two clusters or more: --cluster NAME --join ... --to NAME --join ...")
    names = [side.cluster for side in sides]
    if len(set(names)) < len(names):
        raise CyclicTopology(f"{', '.join(names)}: each cluster has a name of its own, and is named once")
    for side in sides:
        if not side.join:
            raise UsageError(f"{side.cluster}: --join HOST:PORT of a member; a bridge founds no cluster")
    return run_until_stopped(_bridge(args))


def _options(side: argparse.Namespace) -> dict[str, Any]:
    if side.tls and side.udp:
        raise UsageError("--tls and --udp exclude each other: TLS protects streams only (--secret-file protects both)")
    return {
        "contacts": side.join,
        "listen": side.listen,
        "advertise": side.advertise,
        "timeout": side.timeout,
        "tickets": side.tickets,
        "order": side.order,
        "transport": "udp" if side.udp else "tcp",
        **security(side),
    }


class _Watched:
    """A cluster with the bridge's counters among its own, for /metrics."""

    def __init__(self, bridge: Bridge, cluster: Cluster) -> None:
        self._bridge = bridge
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def stats(self) -> dict[str, int]:
        return self._bridge.stats(self._cluster.name)


async def _bridge(args: argparse.Namespace) -> int:
    notice = Notices(args.json)
    made = Bridge(
        {side.cluster: _options(side) for side in args.sides},
        args.directory,
        unmarked="global" if args.all else "local",
        probe=args.probe,
        trace=args.trace,
        trusted={side.cluster: side.trust for side in args.sides if side.trust} or None,
    )
    if args.directory is None:
        notice("without --directory a crash of this bridge loses or doubles what it has in hand")
    async with made as live:
        checks = [check for c in live.clusters.values() for check in Wishes(c, True, True).checks]
        checks.append(lambda: None if live.open else "the bridge is looking for other ways, and forwards nothing yet")
        watch = None
        if args.metrics:
            watch = MetricsServer(args.metrics, [_Watched(live, c) for c in live.clusters.values()], checks)
            await watch.start()
        where = watch.address if watch else None
        for cluster in live.clusters.values():
            notice(
                f"{cluster.address} {entered(cluster)}" + (f", metrics at http://{where}/metrics" if where else ""),
                cluster=cluster.name,
                address=cluster.address,
                me=cluster.me,
                metrics=where,
            )
        telling = asyncio.create_task(_tell(args, live, notice))
        try:
            await live.run()
        finally:
            telling.cancel()
            if watch is not None:
                await watch.close()
            crossed = ", ".join(f"{stats.forwarded} from {c}" for c, stats in live.gateway.stats.items())
            notice(f"brought over: {crossed}", forwarded={c: s.forwarded for c, s in live.gateway.stats.items()})
    return 0


async def _tell(args: argparse.Namespace, bridge: Bridge, notice: Notices) -> None:
    """That it is open; and, if wanted, what has crossed so far."""
    while not bridge.open:
        await asyncio.sleep(0.02)
    notice(f"the bridge between {' and '.join(bridge.clusters)} is open", open=list(bridge.clusters))
    while args.every:
        await asyncio.sleep(args.every)
        now = {c: stats.asdict() for c, stats in bridge.gateway.stats.items()}
        if args.json:
            print(json.dumps(now), flush=True)
        else:
            told = [f"{c}: {n['bridge.forwarded']} over, {n['bridge.local']} local" for c, n in now.items()]
            print("   ".join(told), flush=True)
