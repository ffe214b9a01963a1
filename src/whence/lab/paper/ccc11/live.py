"""CCC11 Figures 4 and 5 on real sockets: members on loopback, several per process, with the simulator's settings."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from whence.core.config import MS
from whence.core.order.sizing import buffer_size
from whence.lab.paper.ccc11.evaluation import FAILED, FANOUT, HISTORY, MAX_EVENTS, PAYLOAD, TERMINATION, VARIANTS
from whence.lab.paper.ccc11.live_members import Counts, Task
from whence.lab.paper.frame import Context, Row
from whence.live.api import run
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.process import ANSWER_S
from whence.live.fleet.task import MemberSpec

DRAIN = 4 * TERMINATION
"""Rounds after the load in which events are still delivered: T of Theorem 5.1."""


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """How large the live cluster is."""

    members: int
    processes: int
    rounds: int
    coordinators: int = 0
    """How many publish; 0: all."""
    round_ms: float = 250.0
    """Much longer than the scheduling delays of the machine: see `overslept_rounds` in the results."""
    ring_ms: float = 1000.0
    """The ring's round. Owners that are held up for more than a quarter of it lose their tickets, and wait for new ones
    before they publish."""

    @property
    def publishing(self) -> int:
        return self.coordinators or self.members


def measure(context: Context, size: Live, loads: Sequence[float], variants: Sequence[str]) -> list[Row]:
    """One row per variant and load; `load` is in events a round of all members."""
    return run(_measure(context, size, loads, variants))


def over_runs(context: Context, size: Live, loads: Sequence[float], variants: Sequence[str], runs: int) -> list[Row]:
    """As `measure`, several times: each run is a new cluster with its own seed. A row has the mean of every number, and
    `runs`."""
    found = []
    for i in range(runs):
        again = msgspec.structs.replace(context, seed=context.seed * 1000 + i)
        found.append(measure(again, size, loads, variants))
    rows = []
    for some in zip(*found, strict=True):
        numbers = [{k: float(v) for k, v in row.items() if not isinstance(v, str)} for row in some]
        row: Row = {"variant": some[0]["variant"], "seeds": runs}
        rows.append(row | {k: fmean(n[k] for n in numbers) for k in numbers[0]} | {"runs": numbers})
    return rows


async def _measure(context: Context, size: Live, loads: Sequence[float], variants: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    steps = len(variants) * len(loads)
    for variant in variants:
        with tempfile.TemporaryDirectory(prefix="whence-live-") as home:
            async with Fleet(Path(home)) as fleet:
                _add(fleet, size, variant, max(loads), context.seed)
                await fleet.start()
                for load in loads:
                    context.say(len(rows) / steps, f"live: {size.members} members, {variant}, {load:g} events a round")
                    rows.append(await _one(fleet, size, variant, load, len(rows)))
    return rows


async def _one(fleet: Fleet, size: Live, variant: str, load: float, number: int) -> Row:
    await fleet.ask("begin", number=number)
    length = size.rounds * size.round_ms / 1e3
    await fleet.ask("run", number=number, p=load / size.publishing, rounds=size.rounds, timeout=2 * length + ANSWER_S)
    await asyncio.sleep(DRAIN * size.round_ms / 1e3)
    counts = [msgspec.convert(found, Counts) for found in await fleet.ask("count", number=number)]
    published = sum(c.published for c in counts)
    pairs = published * (size.members - 1)
    delivered = sum(c.delivered for c in counts)
    latencies = sorted(us for c in counts for us in c.latencies_us)
    lost, inversions = 1 - delivered / max(1, pairs), sum(c.inversions for c in counts) / max(1, delivered)
    mean = fmean(latencies) / 1e3 if latencies else 0.0
    overslept = [us for c in counts for us in c.overslept_us] or [0]
    return {
        "variant": variant,
        "load": load,
        "round_ms": size.round_ms,
        "members": size.members,
        "coordinators": size.publishing,
        "processes": size.processes,
        "events": published,
        "pairs": pairs,
        "lost": lost,
        "inversions": inversions,
        "lost_ordered": lost + inversions,
        "latency_ms": mean,
        "latency_p99_ms": latencies[len(latencies) * 99 // 100] / 1e3 if latencies else 0.0,
        "latency_rounds": mean / size.round_ms,
        "asked": sum(c.asked for c in counts),
        "answered": sum(c.recovered for c in counts),
        "overslept_rounds": fmean(overslept) / 1e3 / size.round_ms,
        "bytes_a_round": sum(c.sent_bytes for c in counts) / size.members / size.rounds,
    }


def _add(fleet: Fleet, size: Live, variant: str, load: float, seed: int) -> None:
    """Add the processes; the first `publishing` members have tickets."""
    order, recovery = VARIANTS[variant]
    settings: dict[str, Any] = {
        "members": size.members,
        "ring": "neighbours",
        "mode": "rounds",
        "round_ns": int(size.round_ms * MS),
        "ring_round_ns": int(size.ring_ms * MS),
        "delta_ns": int(size.ring_ms * MS) // 4,
        "recovery": recovery,
        "k": 4,
        "fanout": FANOUT,
        "termination": TERMINATION,
        "max_events": MAX_EVENTS,
        "history": HISTORY,
        "time_to_terminate": float(TERMINATION),
        "time_to_recover": float(TERMINATION),
        "buffer": buffer_size([load], 4 * TERMINATION),
        "rate": load,
    }
    each, more = divmod(size.members, size.processes)
    left = size.publishing
    for i in range(size.processes):
        members = each + (i < more)
        publishing = min(members, left)
        left -= publishing
        task = Task(
            cluster="fig5",
            members=[MemberSpec(order=order) for _ in range(members)],
            publishing=publishing,
            tickets=size.publishing,
            settings=settings,
            round_ms=size.round_ms,
            drop=FAILED,
            payload=max(40, PAYLOAD),
            seed=seed * 1000,
            timeout=120.0,
        )
        fleet.member(task, "whence.lab.paper.ccc11.live_members")
