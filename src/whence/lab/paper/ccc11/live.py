"""CCC11 on real sockets: members on loopback, several per process, with the simulator's settings.

An experiment starts a fleet of child programs (`members`) and says what each has to do; Figures 4 and 5 publish for
some rounds and count (`over_runs`).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from whence.core.config import MS
from whence.core.order.recovery import buffer_size
from whence.lab.paper.ccc11.evaluation import FAILED, FANOUT, HISTORY, MAX_EVENTS, PAYLOAD, TERMINATION, VARIANTS
from whence.lab.paper.ccc11.members import LiveCounts, LiveTask
from whence.lab.paper.frame import Row, RunOptions, summary
from whence.lab.paper.plots import Names, curves
from whence.lab.stats import quantile
from whence.live.api import run
from whence.live.fleet.fleet import Fleet
from whence.live.fleet.process import ANSWER_S
from whence.live.fleet.task import MemberSpec

WHERE = ("live", "simulated")
DRAIN = 4 * TERMINATION
"""Rounds after the load in which events are still delivered: T of Theorem 5.1."""


def beside(axes: Sequence[Any], rows: Sequence[Row], x: str, columns: Sequence[str], by: str, names: Names) -> None:
    """Curves of both, in the same colours: live as lines, simulated dotted."""
    for where, line in zip(WHERE, ("-", ":"), strict=True):
        labels = names if where == "live" else dict.fromkeys(names, "_")  # matplotlib lists no label that begins with _
        curves(axes, [row for row in rows if row["where"] == where], x, columns, by, labels, line)


@asynccontextmanager
async def started(tasks: Sequence[LiveTask]) -> AsyncIterator[Fleet]:
    """A process for each task; all of them are ready."""
    with tempfile.TemporaryDirectory(prefix="whence-live-") as home:
        async with Fleet(Path(home)) as fleet:
            for task in tasks:
                fleet.member(task, LiveTask.__module__)
            await fleet.start()
            yield fleet


def ring(round_ms: float, **more: Any) -> dict[str, Any]:
    """Settings of the papers' ring with rounds of this length. Owners that are held up for more than a quarter of one
    lose their tickets, and wait for new ones before they publish."""
    round_ns = int(round_ms * MS)
    return {"ring": "neighbours", "ring_round_ns": round_ns, "delta_ns": round_ns // 4, **more}


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large the live cluster of a figure is."""

    members: int
    processes: int
    rounds: int
    coordinators: int = 0
    """How many publish; 0: all."""
    round_ms: float = 250.0
    """Much longer than the scheduling delays of the machine: see `overslept_rounds` in the results."""

    @property
    def publishing(self) -> int:
        return self.coordinators or self.members

    def tasks(self, variant: str, load: float, seed: int) -> list[LiveTask]:
        """One for each process; the first `publishing` members have tickets."""
        order, recovery = VARIANTS[variant]
        settings = ring(
            max(1000.0, 2 * self.round_ms),
            members=self.members,
            mode="rounds",
            round_ns=int(self.round_ms * MS),
            recovery=recovery,
            k=4,
            fanout=FANOUT,
            termination=TERMINATION,
            max_events=MAX_EVENTS,
            history=HISTORY,
            time_to_terminate=float(TERMINATION),
            time_to_recover=float(TERMINATION),
            buffer=buffer_size([load], 4 * TERMINATION),
            rate=load,
        )
        each, more = divmod(self.members, self.processes)
        left, found = self.publishing, []
        for i in range(self.processes):
            members = each + (i < more)
            found.append(
                LiveTask(
                    cluster="figure",
                    members=[MemberSpec(order=order) for _ in range(members)],
                    publishing=min(members, left),
                    tickets=self.publishing,
                    settings=settings,
                    round_ms=self.round_ms,
                    drop=FAILED,
                    payload=max(40, PAYLOAD),
                    seed=seed * 1000,
                    timeout=120.0,
                )
            )
            left -= found[-1].publishing
        return found


def over_runs(options: RunOptions, size: Size, loads: Sequence[float], variants: Sequence[str], runs: int) -> list[Row]:
    """One row per variant and load (events a round of all members), with the mean of every number and `runs`: each run
    is a new cluster with its own seed."""
    found = [run(_measure(options, options.seed * 1000 + i, size, loads, variants)) for i in range(runs)]
    return [summary(some[0], some, ("variant",)) for some in zip(*found, strict=True)]


async def _measure(
    options: RunOptions, seed: int, size: Size, loads: Sequence[float], variants: Sequence[str]
) -> list[Row]:
    rows: list[Row] = []
    steps = len(variants) * len(loads)
    for variant in variants:
        async with started(size.tasks(variant, max(loads), seed)) as fleet:
            for load in loads:
                options.say(len(rows) / steps, f"live: {size.members} members, {variant}, {load:g} events a round")
                rows.append(await _one(fleet, size, variant, load, len(rows)))
    return rows


async def _one(fleet: Fleet, size: Size, variant: str, load: float, number: int) -> Row:
    await fleet.ask("begin", number=number)
    length = size.rounds * size.round_ms / 1e3
    await fleet.ask("run", number=number, p=load / size.publishing, rounds=size.rounds, timeout=2 * length + ANSWER_S)
    await asyncio.sleep(DRAIN * size.round_ms / 1e3)
    counts = [msgspec.convert(found, LiveCounts) for found in await fleet.ask("count", number=number)]

    def total(name: str) -> int:
        return sum(getattr(c, name) for c in counts)

    published, delivered = total("published"), total("delivered")
    pairs = published * (size.members - 1)
    latencies = sorted(us for c in counts for us in c.latencies_us)
    lost, inversions = 1 - delivered / max(1, pairs), total("inversions") / max(1, delivered)
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
        "latency_p99_ms": quantile(latencies, 0.99) / 1e3,
        "latency_rounds": mean / size.round_ms,
        "asked": total("asked"),
        "answered": total("recovered"),
        "overslept_rounds": fmean(overslept) / 1e3 / size.round_ms,
        "bytes_a_round": total("sent_bytes") / size.members / size.rounds,
    }
