"""Runs a scenario with a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from whence.core.member import Member
from whence.core.recorder import Sink
from whence.lab.sim import faults
from whence.lab.sim.actions import Schedule
from whence.lab.sim.checks import Violation
from whence.lab.sim.operator import Operator
from whence.lab.sim.scenario import Loaded, load, parse
from whence.lab.sim.tally import RunReport
from whence.lab.sim.world import MakeMember, World

Progress = Callable[[int, int], None]
"""`(now, end)` in virtual ns."""


class Simulated(msgspec.Struct, frozen=True):
    """The result of a run, and its schedule."""

    report: RunReport
    violation: Violation | None
    schedule: Schedule


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
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> Simulated:
    """Run a scenario: a file, the name of one that comes with whence, or its text. The seed defaults to the scenario's,
    the schedule to the expansion of both."""
    if isinstance(scenario, Loaded):
        loaded = scenario
    else:
        loaded = parse(scenario) if isinstance(scenario, str) and "\n" in scenario else load(scenario)
    world = World(loaded, loaded.scenario.seed if seed is None else seed, schedule=schedule, make=make, sink=sink)
    violation = play(world, progress)
    return Simulated(world.tally.report(loaded.name, str(violation) if violation else None), violation, world.schedule)
