"""What the live commands share: from arguments to `whence.join`, signal handling, notices on standard error."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from whence.core.clock import address_of
from whence.core.config import Settings
from whence.core.order.config import OrderName
from whence.errors import UsageError, WhenceError
from whence.live.api import Cluster, Join, Options, bootstrap, create, join, run
from whence.live.metrics import MetricsServer
from whence.live.net.keys import read_secret

TICKETS: Final = 8
"""Unless said otherwise."""
CALM_S: Final = 1.0
"""Seconds between two looks at the council."""


def joining(args: argparse.Namespace) -> Join:
    """`whence.bootstrap` with `--bootstrap`; `whence.create` without `--contact`, or with `--create`; else
    `whence.join`."""
    said = vars(args).get  # chat has few of these options
    chosen = choose(args)
    options: Options = {
        "order": cast(OrderName, chosen.order),  # `Settings.config` checks it
        "tickets": chosen.tickets,
        "settings": chosen.settings,
        "directory": said("directory"),
        "trace": said("trace"),
        "advertise": said("advertise"),
        **security(args),  # type: ignore[typeddict-item]
    }
    if said("timeout") is not None:
        options["timeout"] = args.timeout
    if said("bootstrap") and said("create"):
        raise UsageError("--bootstrap decides who creates and who joins: leave --create out")
    if said("bootstrap"):
        return bootstrap(args.cluster, args.contact, args.listen, **options)
    if said("create") or not args.contact:
        return create(args.cluster, args.listen, contacts=args.contact, **options)
    return join(args.cluster, args.contact, args.listen, **options)


def entered(cluster: Cluster) -> str:
    """Whether this process created the cluster or joined. One that remembers a council creates nothing (docs/ring.md,
    rule C0)."""
    if cluster.created and cluster.council is not None and cluster.council.number:
        return f"has joined {cluster.name!r} again"
    return f"has {'created' if cluster.created else 'joined'} {cluster.name!r}"


async def tell_council(cluster: Cluster, notice: Callable[..., object]) -> None:
    """Say what survives, at the start and whenever it changes, until the cluster is left."""
    said: tuple[object, ...] | None = None
    while (council := cluster.council) is not None:
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
    """`--settings`: the cluster in a scenario file, live as simulated. The order is still each member's own."""
    said = vars(args).get
    path: Path | None = said("settings")
    if path is None:
        settings = turned(Settings.of(None, said("profile") or ""))
        if said("order") == "probabilistic" and said("tickets"):
            raise UsageError("--tickets: a cluster with --order probabilistic has none; everybody may publish")
        return Chosen(said("order") or "causal", said("tickets") or TICKETS, settings)
    if said("tickets") is not None or said("profile"):
        raise UsageError(f"--tickets and --profile are given in {path} (--settings): leave them out")
    from whence.lab.sim.scenario import load, settings_of  # not for every node

    scenario = load(path).scenario
    if len(scenario.cluster) > 1:
        raise UsageError(f"--settings {path}: it has {len(scenario.cluster)} clusters, and a node is in one")
    cluster = scenario.cluster[0]
    order = args.order or (cluster.order if isinstance(cluster.order, str) else "causal")
    return Chosen(order, cluster.tickets, turned(settings_of(scenario, cluster, scenario.network.mean)))


def turned(settings: Settings) -> dict[str, Any]:
    """The settings that are not the defaults."""
    usual = msgspec.structs.asdict(Settings())
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if value != usual[name]}


def security(args: argparse.Namespace) -> dict[str, Any]:
    """The security options."""
    if bool(args.insecure) + bool(args.tls) + bool(args.secret_file) > 1:
        raise UsageError(f"{args.cluster}: one of --secret-file, --tls and --insecure")
    if args.insecure:
        return {"insecure": True}
    if args.tls:
        directory, name = args.tls
        copied = (Path(directory) / f"{name}.crt").is_file()  # DIR is itself what was issued to NAME
        return {"tls": Path(directory) if copied else Path(directory) / name}
    if args.secret_file:
        return {"secret": read_secret(args.secret_file)}
    raise UsageError(
        "who may take part? --secret-file FILE or --tls DIR NAME (`whence keys` makes them), or --insecure"
    )


def rekey_on_hangup(cluster: Cluster, args: argparse.Namespace, notice: Callable[..., object]) -> None:
    """SIGHUP: the key files are read again, without a restart."""

    def again() -> None:
        try:
            cluster.rekey(**security(args))
            notice("the key files were read again")
        except WhenceError as error:
            notice(f"the keys stay as they were: {error}")

    if not args.insecure:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again)


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

    def entered(self, cluster: Cluster, server: MetricsServer | None, **more: str) -> None:
        """That this process is in the cluster, and what it serves."""
        metrics = server.address if server else None
        served = [f"{name} at {where}" for name, where in more.items()]
        served += [f"metrics at http://{metrics}/metrics"] if metrics else []
        more |= {"cluster": cluster.name, "address": cluster.address, "me": cluster.me}
        text = ", ".join([f"{cluster.address} {entered(cluster)}", *served])
        self(text, created=cluster.created, metrics=metrics, **more)


def run_until_stopped(work: Coroutine[Any, Any, int], unfinished: bool = False) -> int:
    """Run it; SIGINT and SIGTERM end it cleanly: the ticket is given back, the others are told, the trace is closed.
    For a node that is the normal end. `unfinished` work, or a second signal, raises KeyboardInterrupt."""
    signals = 0

    async def main() -> int:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def stop() -> None:
            nonlocal signals
            signals += 1
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            return 0
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)  # uvloop leaves them, and a later Ctrl-C would be lost

    code = run(main())
    if signals > 1 or (signals and unfinished):
        raise KeyboardInterrupt
    return code
