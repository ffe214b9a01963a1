"""Shrinks a failing run to a schedule that a person can read.

Delta debugging (Zeller's ddmin): remove parts of the schedule and run again; keep the removal if the run still fails in
the same way. Then the same with processes, durations of faults and network noise. Runs are deterministic, and removing
an action does not change the fate of other messages (`network.py`), so most irrelevant parts can be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from whence.core.member import Member
from whence.lab.sim.actions import Action, Partition, PublishAction, Schedule, names_in, show
from whence.lab.sim.checks import INVERSION, Violation
from whence.lab.sim.run import run
from whence.lab.sim.scenario import Clocks, Loaded, NetworkSettings, ScenarioCluster, SimScenario, dump
from whence.lab.sim.world import MakeMember

replace = msgspec.structs.replace
T = TypeVar("T")
Progress = Callable[[int, int], None]
"""`(runs so far, actions left)`."""


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest failing run found."""

    loaded: Loaded
    violation: Violation
    runs: int

    @property
    def schedule(self) -> Schedule:
        return self.loaded.faults

    def text(self) -> str:
        """The actions and the violation, for people."""
        names = self.loaded.scenario.names
        wrong = "" if self.violation.kind == INVERSION else "VIOLATION "
        return (
            f"{len(names)} processes: {' '.join(names)}\n{show(self.schedule)}\n"
            f"{self.violation.at / 1e9:10.4f}s  {wrong}{self.violation}"
        )

    def toml(self) -> str:
        """A scenario file that reproduces the violation."""
        head = "".join(f"# {line}\n" for line in self.text().splitlines())
        return head + dump(self.loaded)


def shrink(
    loaded: Loaded,
    seed: int,
    violation: Violation,
    schedule: Schedule,
    *,
    make: MakeMember = Member,
    budget: int = 300,
    progress: Progress | None = None,
) -> Shrunk:
    """Shrink a failing run, or one with an inversion that no promise forbids, in at most `budget` runs."""
    scenario = _explicit(loaded.scenario, seed)
    return _Shrinker(scenario, loaded.path, violation, list(schedule), make, budget, progress).shrink()


@dataclass
class _Shrinker:
    scenario: SimScenario
    path: str
    violation: Violation
    actions: list[Action]
    make: MakeMember
    budget: int
    progress: Progress | None
    runs: int = 0

    def shrink(self) -> Shrunk:
        self._try(self.scenario, [a for a in self.actions if a.at <= self.violation.at])
        before: tuple[object, ...] = ()
        while before != (before := (self.scenario, tuple(self.actions))) and self.runs < self.budget:
            self._fewer_actions()
            self._fewer_processes()
            self._fewer_coordinators()
            self._shorter()
            self._less_noise()
        return Shrunk(self._loaded(self.scenario, self.actions), self.violation, self.runs)

    def _loaded(self, scenario: SimScenario, actions: Sequence[Action]) -> Loaded:
        return Loaded(scenario=scenario, faults=tuple(actions), path=self.path)

    def _try(self, scenario: SimScenario, actions: Sequence[Action]) -> bool:
        """Run it; if it still fails in the same way, keep it."""
        if self.runs >= self.budget:
            return False
        self.runs += 1
        outcome = run(self._loaded(scenario, actions), scenario.seed, make=self.make)
        if self.progress is not None:
            self.progress(self.runs, len(self.actions))
        found = outcome.inversion if self.violation.kind == INVERSION else outcome.violation
        if found is None or found.kind != self.violation.kind:
            return False
        self.scenario, self.actions, self.violation = scenario, list(actions), found
        return True

    def _fewer_actions(self) -> None:
        """Remove faults first: a run without faults is easiest to understand."""

        def without(piece: Sequence[Action]) -> bool:
            gone = {id(a) for a in piece}
            return self._try(self.scenario, [a for a in self.actions if id(a) not in gone])

        _remove([a for a in self.actions if not isinstance(a, PublishAction)], without)
        _remove([a for a in self.actions if isinstance(a, PublishAction)], without)

    def _fewer_processes(self) -> None:
        named = {n for a in self.actions for n in names_in(a)}
        named |= {self.scenario.founder_of(c) for c in self.scenario.cluster}

        def without(piece: Sequence[str]) -> bool:
            smaller = _without(self.scenario, piece)
            return smaller is not None and self._try(smaller, _rid(self.actions, piece))

        _remove([n for n in self.scenario.names if n not in named], without)

    def _fewer_coordinators(self) -> None:
        """Members that never publish need no ticket."""
        for i, cluster in enumerate(self.scenario.cluster):
            for name in self.scenario.coordinators_of(cluster):
                now = self.scenario.cluster[i]
                left = tuple(n for n in self.scenario.coordinators_of(now) if n != name)
                clusters = tuple(
                    replace(c, coordinators=left) if c.name == now.name else c for c in self.scenario.cluster
                )
                if left:
                    self._try(replace(self.scenario, cluster=clusters), self.actions)

    def _shorter(self) -> None:
        for i in range(len(self.actions)):
            action = self.actions[i]
            if isinstance(action, PublishAction) and action.events > 1:
                self._try(self.scenario, [*self.actions[:i], replace(action, events=1), *self.actions[i + 1 :]])
            while (lasts := getattr(action, "lasts", None)) is not None and lasts > self.scenario.round:
                action = replace(action, lasts=lasts // 2)
                if not self._try(self.scenario, [*self.actions[:i], action, *self.actions[i + 1 :]]):
                    break

    def _less_noise(self) -> None:
        """A network without noise and exact clocks, one setting at a time."""
        quiet = NetworkSettings()
        for field in ("dup", "reorder", "loss", "sd"):
            if getattr(self.scenario.network, field) != getattr(quiet, field):
                network = replace(self.scenario.network, **{field: getattr(quiet, field)})
                self._try(replace(self.scenario, network=network), self.actions)
        if self.scenario.clocks != Clocks():
            self._try(replace(self.scenario, clocks=Clocks()), self.actions)


def _remove(items: list[T], without: Callable[[Sequence[T]], bool]) -> None:
    """Remove as many as possible, large pieces first. `without` tries the run without a piece."""
    size = len(items)
    while size >= 1:
        at = 0
        while at < len(items):
            if without(items[at : at + size]):
                del items[at : at + size]
            else:
                at += size
        size //= 2


def _explicit(scenario: SimScenario, seed: int) -> SimScenario:
    """The same scenario without random choices: names, orders, coordinators and founders are explicit. `total = 0`
    keeps the workload's rate, which determines buffer sizes, without its publishes."""
    clusters = tuple(
        replace(
            c,
            processes=scenario.members_of(c),
            founder=scenario.founder_of(c),
            coordinators=scenario.coordinators_of(c),
            order_of={} if isinstance(c.order, str) and not c.order_of else scenario.orders(c, seed),
            order=c.order if isinstance(c.order, str) else next(iter(c.order)),
            workload=replace(c.workload, total=0),
        )
        for c in scenario.cluster
    )
    return replace(scenario, seed=seed, chaos=None, members=scenario.names, cluster=clusters)


def _without(scenario: SimScenario, gone: Sequence[str]) -> SimScenario | None:
    """The scenario without these processes; None if a cluster would be left empty."""

    def keep(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(n for n in names if n not in gone)

    def smaller(c: ScenarioCluster) -> ScenarioCluster:
        orders = {n: o for n, o in c.order_of.items() if n not in gone}
        members, coordinators = keep(scenario.members_of(c)), keep(scenario.coordinators_of(c))
        return replace(c, processes=members, coordinators=coordinators, order_of=orders)

    clusters = tuple(map(smaller, scenario.cluster))
    if not all(c.processes for c in clusters):
        return None
    return replace(scenario, members=keep(scenario.names), absent=keep(scenario.absent), cluster=clusters)


def _rid(actions: Sequence[Action], gone: Sequence[str]) -> list[Action]:
    """The actions without these processes on the sides of partitions."""
    return [
        replace(a, who=tuple(n for n in a.who if n not in gone)) if isinstance(a, Partition) else a for a in actions
    ]
