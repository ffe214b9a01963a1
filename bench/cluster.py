"""A simulated cluster of 125 with 10,000 events, and what a delivery costs as members grow with the tickets fixed.

All checks of the simulator (oracle, ring invariants, bounds) are on, as they always are. The lower bound in the same
run is an empty event loop: as many heap pushes and pops as the run had steps.
"""

from __future__ import annotations

import heapq
import time
from typing import Any

from whence.lab.sim.run import play
from whence.lab.sim.scenario import parse
from whence.lab.sim.world import World

SCENARIO = """
members = {members}
round = "250ms"
duration = "{rounds}r"
settle = "40r"
[network]
latency = "normal"
mean = "5ms"
sd = "1ms"
[cluster]
tickets = {tickets}
coordinators = {tickets}
order = "causal"
recovery = "R1"
mode = "{mode}"
fanout = 4
termination = {termination}
history = 400
[cluster.workload]
rate = {rate}
batch = {batch}
total = {total}
"""


def _run(**settings: Any) -> tuple[World, float]:
    world = World(parse(SCENARIO.format(**settings)), 1)
    start = time.process_time()
    violation = play(world)
    seconds = time.process_time() - start
    if violation is not None:
        raise violation
    return world, seconds


def _empty_loop(steps: int) -> float:
    start = time.process_time()
    heap: list[tuple[int, int]] = []
    for i in range(steps):
        heapq.heappush(heap, (i * 7919 % 10_007 + i, i))
        if i > 1000:
            heapq.heappop(heap)
    return time.process_time() - start


def _row(what: str, world: World, seconds: float) -> dict[str, Any]:
    report = world.tally.report("bench", None)
    deliveries = sum(instance.app.count for host in world.hosts.values() for instance in host.instances.values())
    published = deliveries // len(world.hosts)
    return {
        "what": what,
        "events": published,
        "deliveries": deliveries,
        "cpu_seconds": round(seconds, 2),
        "us_per_delivery": round(seconds / max(deliveries, 1) * 1e6, 1),
        "times_an_empty_loop": round(seconds / _empty_loop(report.steps), 1),
    }


def main() -> list[dict[str, Any]]:
    rows = []
    for mode, termination in (("rounds", 6), ("eager", 6)):
        world, seconds = _run(
            members=125, tickets=25, rounds=560, mode=mode, termination=termination, rate=0.96, batch=4, total=10_000
        )
        rows.append(_row(f"125 members, 25 tickets, {mode}", world, seconds))
    for members in (25, 50, 100, 200):
        world, seconds = _run(
            members=members, tickets=5, rounds=200, mode="rounds", termination=6, rate=3.2, batch=4, total=2_000
        )
        rows.append(_row(f"{members} members, 5 tickets, rounds", world, seconds))
    return rows
