"""CCC11 section 4.4 on real sockets: coordinators are killed, and others ask for their tickets.

Every member is a process of its own, so that a crash is a SIGKILL. First coordinators are killed one at a time, each
chosen at random, the founder too; a member that waits asks for a ticket at once. Then more than half of the
coordinators are killed at the same moment. Nobody is left with a quorum, so leases run out, and a ring without an owner
cannot grant: joins fail, as they do simulated (`availability`).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from whence.core.config import MS
from whence.lab.paper.ccc11.availability_member import Task
from whence.lab.paper.ccc11.availability_run import PATIENCE
from whence.lab.paper.ccc11.seeds import COLOURS, by_run, total
from whence.lab.paper.frame import Context, Outcome, Row, around, panels
from whence.lab.stats import Estimate, mean, share
from whence.live.api import run
from whence.live.fleet.fleet import Fleet, Members
from whence.live.fleet.process import ANSWER_S
from whence.live.fleet.task import MemberSpec

PLACES, TICKETS, K = 6, 12, 2
"""alpha = 1/2; each neighbourhood is all others."""
STORM = 4
"""Coordinators killed at once: two of five neighbours are left, three are needed."""
NOTE = (
    f"{PLACES} coordinators of {TICKETS} tickets, k = {K}, each member a process. One coordinator is killed every "
    f"{PATIENCE} ring rounds: p_f = 1 / {PATIENCE * PLACES} on average, a twelfth of the limit."
)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run is."""

    crashes: int
    after: int
    """Joins after the storm."""
    round_ms: float


def measure(context: Context) -> list[Row]:
    """One row, with all runs."""
    size = Size(crashes=2, after=1, round_ms=600) if context.quick else Size(crashes=6, after=4, round_ms=2000)
    count = 2 if context.quick else 5
    runs = []
    for i in range(count):
        context.say(i / count, f"live: run {i + 1} of {count}")
        runs.append(one(size, context.seed * 1000 + i))
    return [{"places": PLACES, "tickets": TICKETS, "k": K, "round_ms": size.round_ms, "seeds": count, "runs": runs}]


def one(size: Size, seed: int) -> Row:
    """One run: joins, and those that succeeded, before and after the storm."""
    return run(_one(size, random.Random(seed)))


async def _one(size: Size, rng: random.Random) -> Row:
    patience = PATIENCE * size.round_ms / 1e3
    with tempfile.TemporaryDirectory(prefix="whence-live-") as home:
        async with Fleet(Path(home)) as fleet:
            for i in range(PLACES + size.crashes + size.after):
                fleet.member(_task(size, i < PLACES, rng), "whence.lab.paper.ccc11.availability_member")
            await fleet.start()
            owners, waiting = fleet.all[:PLACES], fleet.all[PLACES:]
            took: list[float | None] = []
            for _ in range(size.crashes):
                await owners.pop(rng.randrange(len(owners))).kill()
                owners.append(waiting.pop())
                took.append(await _ask(owners[-1], patience))
            await asyncio.gather(*(owner.kill() for owner in rng.sample(owners, STORM)))
            await asyncio.sleep(patience)
            after = [await _ask(asking, patience) for asking in waiting]
    joined = [t for t in took if t is not None]
    return {
        "joins": float(len(took)),
        "joined": float(len(joined)),
        "rounds": sum(joined) / max(1, len(joined)) / (size.round_ms / 1e3),
        "after": float(len(after)),
        "after_joined": float(sum(t is not None for t in after)),
    }


async def _ask(asking: Members, patience: float) -> float | None:
    """Ask for a ticket; crashes are `patience` apart, however soon it comes."""
    found, _ = await asyncio.gather(
        asking.ask("ask", patience=patience, timeout=patience + ANSWER_S), asyncio.sleep(patience)
    )
    return None if found is None else float(found)


def _task(size: Size, coordinates: bool, rng: random.Random) -> Task:
    round_ns = int(size.round_ms * MS)
    return Task(
        cluster="availability",
        members=[MemberSpec()],
        tickets=TICKETS,
        coordinates=coordinates,
        seed=rng.getrandbits(30),
        timeout=120.0,
        settings={
            "members": PLACES + size.crashes + size.after,
            "ring": "neighbours",
            "ring_k": K,
            "ring_round_ns": round_ns,
            "delta_ns": round_ns // 4,
        },
    )


def outcome(rows: list[Row]) -> Outcome:
    """How many joins succeed, while quorums live and after."""
    return Outcome(rows, statistics(rows), draw(rows), NOTE)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Counts over all runs; joins of one run are not quite independent."""
    [row] = rows
    counts = {key: total(row, key) for key in ("joins", "joined", "after", "after_joined")}
    return {
        "live-served": [share(f"{counts['joins']:.0f} joins, {row['seeds']} runs", counts["joined"], counts["joins"])],
        "live-storm": [
            share(f"{counts['after']:.0f} joins, {row['seeds']} runs", counts["after_joined"], counts["after"])
        ],
        "live-soon": [mean(f"{row['seeds']} runs", by_run(row, "rounds"))],
    }


def draw(rows: list[Row]) -> Any:
    """Two bars with intervals."""
    found = statistics(rows)
    figure, [axes] = panels(
        f"CCC11 section 4.4 live: {PLACES} of {TICKETS} tickets, k = {K}, SIGKILL", ("", "joins that succeed (%)")
    )
    points = [found["live-served"][0], found["live-storm"][0]]
    names = ("one coordinator killed\nat a time", f"after {STORM} of {PLACES} were killed\nat the same moment")
    labels = [f"{name}\n({p.at})" for name, p in zip(names, points, strict=True)]
    axes.bar(labels, [100 * p.value for p in points], color=COLOURS[0], width=0.5)
    axes.errorbar(
        labels, [100 * p.value for p in points], yerr=around(points, 100), fmt="none", color="black", capsize=4
    )
    axes.set_ylim(0, 105)
    return figure
