"""Runs a scenario with a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from whence.core.member import Member
from whence.core.recorder import Sink
from whence.lab.sim import faults
from whence.lab.sim.actions import Schedule
from whence.lab.sim.checks import Violation
from whence.lab.sim.operator import Operator
from whence.lab.sim.scenario import Loaded, load, parse
from whence.lab.sim.tally import RunReport
from whence.lab.sim.world import MakeMember, Watch, World

Progress = Callable[[int, int], None]
"""`(now, end)` in virtual ns."""


class Simulated(msgspec.Struct, frozen=True):
    """The result of a run, and its schedule."""

    report: RunReport
    violation: Violation | None
    schedule: Schedule
    inversion: Violation | None = None
    """The first delivery before its cause at a member whose order allows that."""


def run_id(loaded: Loaded, seed: int) -> str:
    """The run's id in its trace."""
    return f"{loaded.name}-{seed}"


def play(world: World, progress: Progress | None = None) -> Violation | None:
    """Start the members, carry out the schedule, and go on to the end or to the first violation."""
    world.bootstrap()
    for action in world.schedule:
        world.plan(action.at, faults.carry_out, world, action)
    Operator(world).begin()
    return world.run(progress)


def run(
    scenario: str | Path | Loaded,
    seed: int | None = None,
    *,
    schedule: Schedule | None = None,
    make: MakeMember = Member,
    watch: Watch | None = None,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> Simulated:
    """Run a scenario: a file, the name of one that comes with whence, or its text. The seed defaults to the scenario's,
    the schedule to the expansion of both."""
    if isinstance(scenario, Loaded):
        loaded = scenario
    else:
        loaded = parse(scenario) if isinstance(scenario, str) and "\n" in scenario else load(scenario)
    seed = loaded.scenario.seed if seed is None else seed
    world = World(loaded, seed, schedule=schedule, make=make, watch=watch, sink=sink)
    violation = play(world, progress)
    report = world.tally.report(loaded.name, str(violation) if violation else None)
    return Simulated(report, violation, world.schedule, world.checks.inversion)


COUNTS = ("published", "delivered", "lost", "late", "over_gap", "inversions", "given_up", "asked", "recovered")
"""Counters summed over members, by order and in total."""


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """One point of `whence sweep`: settings in, figures out. A setting's name is its place in the scenario file:
    `network.loss`, `cluster.order` (of every cluster), `duration`; `scenario` names the file, or one that comes with
    whence. Raises ConfigError for a bad setting."""
    given = dict(setting)
    seed, name = given.pop("seed", None), str(given.pop("scenario", "demo"))
    return figures(run(load(name, settings=given), None if seed is None else int(seed)))


def figures(outcome: Simulated) -> dict[str, Any]:
    """A flat result: sums over all, and per cluster and order if there are several."""
    report = outcome.report
    found: dict[str, Any] = {
        "violation": report.violation,
        "virtual_s": report.virtual_s,
        "steps": report.steps,
        **{count: sum(getattr(line, count) for line in report.lines) for count in COUNTS},
    }
    clusters = {line.cluster for line in report.lines}
    for line in report.lines:
        several = len(report.lines) > 1
        prefix = f"{line.cluster}." * (len(clusters) > 1) + f"{line.order}." * several
        found |= {f"{prefix}{count}": getattr(line, count) for count in COUNTS} if several else {}
        found |= {f"{prefix}latency_{quantile}_ms": ms for quantile, ms in line.latency_ms.items()}
    return found
