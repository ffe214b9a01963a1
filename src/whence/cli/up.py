"""`whence up`: a local cluster of processes, watched, and restarted when they die, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from whence.cli.connect import Chosen, choose, run_until_stopped
from whence.cli.show import console
from whence.errors import FleetError, UsageError
from whence.live.fleet.fleet import Fleet, Members
from whence.live.fleet.task import MemberSpec, Task

CLUSTER: Final = "up"
LOOK_S: Final = 1.0
NUMBERS: Final = ("published", "delivered", "delivered_over_gap", "held")


def up(args: argparse.Namespace) -> int:
    """Start, watch, stop."""
    chosen = choose(args)
    args.publishers = args.publishers or min(args.processes, chosen.tickets)
    if args.publishers > args.processes:
        raise UsageError(f"{args.publishers} publishers of {args.processes} processes: at most all of them")
    return run_until_stopped(_up(args, chosen))


async def _up(args: argparse.Namespace, chosen: Chosen) -> int:
    with tempfile.TemporaryDirectory(prefix="whence-up-") as home:
        async with Fleet(Path(home), traced=args.trace) as fleet:
            for number in range(args.processes):
                rate = args.rate if number < args.publishers else 0.0
                fleet.member(
                    Task(
                        cluster=CLUSTER,
                        members=[MemberSpec(order=chosen.order, directory=f"{home}/node{number}", rate=rate)],
                        tickets=chosen.tickets,
                        drop=args.loss,
                        settings=chosen.settings,
                    )
                )
            with Console(stderr=True).status(f"starting {args.processes} processes"):  # seen on a terminal only
                await fleet.start()
            await _watch(args, fleet)
    return 0


async def _watch(args: argparse.Namespace, fleet: Fleet) -> None:
    """Look once a second; a process that has died is started again."""
    began = time.monotonic()
    seen: list[dict[str, Any]] = [{} for _ in fleet.all]
    live = None if args.json else Live(_table(fleet, seen), console=console(), auto_refresh=False)
    with live or nullcontext():
        while args.seconds is None or time.monotonic() - began < args.seconds:
            left = LOOK_S if args.seconds is None else min(LOOK_S, began + args.seconds - time.monotonic())
            await asyncio.sleep(max(0.0, left))
            await asyncio.gather(*(_look(one, seen[one.number]) for one in fleet.all))
            dead = [one for one in fleet.all if not one.alive]
            if len(dead) == len(fleet.all):
                raise UsageError(f"all processes have ended; the last one: {dead[-1].last_words}")
            for one in dead:
                with suppress(FleetError):  # it is tried again at the next look
                    await one.join(fleet.others(one))
            if live is None:
                print(json.dumps({"t": time.time(), "nodes": _nodes(fleet, seen)}), flush=True)
            else:  # where that is no terminal, the last table is shown at the end
                live.update(_table(fleet, seen), refresh=True)


async def _look(one: Members, seen: dict[str, Any]) -> None:
    with suppress(FleetError):  # busy, or dead: then its last look stays
        seen.update((await one.ask("look", timeout=LOOK_S))[0])


def _nodes(fleet: Fleet, seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is known of each, for the table and for machines."""
    return [
        {"node": p.number, "pid": p.pid, "address": next(iter(p.addresses), None), "starts": p.starts, **seen[p.number]}
        for p in fleet.all
    ]


def _table(fleet: Fleet, seen: list[dict[str, Any]]) -> Table:
    counted = ("starts", "members", "ticket", "published", "delivered", "over gap", "held", "latency p99", "CPU s")
    columns = (Column(name, justify="right") for name in counted)
    table = Table("process", "address", *columns, title=f"{len(fleet.all)} processes; Ctrl-C stops them all")
    for node in _nodes(fleet, seen):
        known = {name: str(value) for name, value in node.items() if value is not None}
        late = node.get("p99_s")
        table.add_row(
            *(known.get(name, "-") for name in ("pid", "address", "starts", "members", "ticket")),
            *("-" if node.get(name) is None else f"{node[name]:,}" for name in NUMBERS),
            "-" if late is None else f"<= {late * 1000:g} ms",
            f"{node.get('cpu_s', 0):.1f}",
        )
    return table
