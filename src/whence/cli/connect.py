"""What the live commands share: from arguments to `whence.join`, signal handling, notices on standard error."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from whence.core.clock import address_of
from whence.errors import UsageError
from whence.live.api import Cluster, Join, Options, OrderName, bootstrap, create, join, run
from whence.live.net.keys import read_secret
from whence.live.net.transport import Faults

TICKETS: Final = 8
"""Unless said otherwise."""
CALM_S: Final = 1.0
"""Seconds between two looks at the council."""


def joining(args: argparse.Namespace) -> Join:
    """`whence.bootstrap` with `--peers`; `whence.create` without `--join`, or with `--found`; else `whence.join`."""
    if args.tls and args.udp:
        raise UsageError("--tls and --udp exclude each other: TLS protects streams only (--secret-file protects both)")
    chosen = choose(args)
    options: Options = {
        "order": cast(OrderName, chosen.order),  # `Settings.config` checks it
        "tickets": chosen.tickets,
        "settings": chosen.settings,
        "contract": args.contract,
        "directory": args.directory,
        "memory": None if args.memory == "none" else args.memory,
        "trace": args.trace,
        "transport": "udp" if args.udp else "tcp",
        "advertise": args.advertise,
        "faults": Faults(args.drop, seed=time.time_ns()) if args.drop else None,
    }
    options.update(security(args))  # type: ignore[typeddict-item]
    if args.timeout is not None:
        options["timeout"] = args.timeout
    if args.peers:
        if args.join or args.found:
            raise UsageError("--peers decides who founds and who joins: leave --join and --found out")
        return bootstrap(args.cluster, [peer for peer in args.peers.split(",") if peer], args.listen, **options)
    if args.found or not args.join:
        return create(args.cluster, args.listen, contacts=args.join, **options)
    return join(args.cluster, args.join, args.listen, **options)


def entered(cluster: Cluster) -> str:
    """Whether this process founded or joined. One that remembers a council founds nothing (docs/ring.md, rule C0)."""
    if cluster.created and cluster.council is not None and cluster.council.number:
        return f"has joined {cluster.name!r} again"
    return f"has {'founded' if cluster.created else 'joined'} {cluster.name!r}"


async def tell_council(cluster: Cluster, notice: Callable[..., object]) -> None:
    """Say what survives, at the start and whenever it changes, until the cluster is left."""
    said: tuple[object, ...] | None = None
    while True:
        council = cluster.council
        if council is None:
            return
        missing = [address_of(voter.member) for voter in council.missing]
        key = (council.has_quorum, council.may_lose, missing, [voter.member for voter in council.voters])
        if council.voters and key != said:
            if said is not None and key[0]:
                await asyncio.sleep(CALM_S)  # a council grows by steps: say what it comes to
                if cluster.council != council:
                    continue
            said = key
            voters = [address_of(voter.member) for voter in council.voters]
            notice(council.says(), voters=voters, missing=missing, may_lose=council.may_lose)
        await asyncio.sleep(CALM_S)


class Chosen(NamedTuple):
    """The cluster's settings, from options or from a file."""

    order: str
    tickets: int
    settings: dict[str, Any]


def choose(args: argparse.Namespace) -> Chosen:
    """`--settings`: the cluster in a scenario file, live as simulated. The ring's times stay those of live clusters,
    where a busy machine holds processes up. The order is still each member's own."""
    path: Path | None = args.settings
    if path is None:
        return Chosen(args.order or "causal", args.tickets or TICKETS, {})
    if args.tickets is not None or args.contract is not None:
        raise UsageError(f"--tickets and --contract are said in {path}, which --settings names: leave them out")
    from whence.lab.sim.scenario import load, settings_of  # not for every node

    scenario = load(path).scenario
    if len(scenario.cluster) > 1:
        raise UsageError(f"--settings {path}: it has {len(scenario.cluster)} clusters, and a node is in one")
    cluster = scenario.cluster[0]
    if cluster.abandon is not None:
        raise UsageError(f"--settings {path}: abandon is for simulations alone")
    order = args.order or (cluster.order if isinstance(cluster.order, str) else "causal")
    by_formula = {"time_to_terminate": None, "time_to_recover": None, "buffer": None, "history": 0}
    settings = settings_of(scenario, cluster, scenario.network.mean)
    return Chosen(order, cluster.tickets, {**by_formula, **settings})


def security(args: argparse.Namespace) -> dict[str, Any]:
    """The security options."""
    if args.insecure:
        return {"insecure": True}
    if args.tls:
        directory, name = args.tls
        copied = (Path(directory) / f"{name}.crt").is_file()  # DIR is itself what was issued to NAME
        return {"tls": Path(directory) if copied else Path(directory) / name}
    if args.secret_file:
        return {"secret": read_secret(args.secret_file)}
    raise UsageError(
        "who may take part? --secret-file FILE or --tls DIR NAME (`whence keys init` makes them); --insecure is for "
        "experiments on this machine alone"
    )


class Notices(logging.Handler):
    """Notices on standard error: a line for people, or a JSON object. Log records of the package are printed the same
    way."""

    def __init__(self, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._json = as_json
        logger = logging.getLogger("whence")
        logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, Notices)] + [self]

    def emit(self, record: logging.LogRecord) -> None:
        self(record.getMessage(), level=record.levelname.lower(), **getattr(record, "fields", {}))

    def __call__(self, text: str, **fields: object) -> None:
        line = json.dumps({"notice": text, **fields}) if self._json else f"whence: {text}"
        print(line, file=sys.stderr, flush=True)


def run_until_stopped(work: Coroutine[Any, Any, int], interrupted: int = 0) -> int:
    """Run it; SIGINT and SIGTERM end it cleanly (`interrupted`): the ticket is given back, the others are told, the
    trace is closed. A second signal ends it at once (130)."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        signals = 0

        def stop() -> None:
            nonlocal signals
            signals += 1
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            return interrupted if signals == 1 else 130
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)  # uvloop leaves them, and a later Ctrl-C would be lost

    return run(main())
