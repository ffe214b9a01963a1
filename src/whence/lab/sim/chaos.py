"""Expands a scenario and a seed into a schedule: explicit actions, random faults (`[chaos]`) and the `workload`.

All randomness is drawn before the run, each purpose from its own generator. The result is a plain list, which the world
carries out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from whence.lab.sim.actions import (
    Action,
    Clock,
    Coordinate,
    Crash,
    Cut,
    Hostile,
    Leave,
    Lie,
    Partition,
    Publish,
    Resign,
    Schedule,
    Slow,
)
from whence.lab.sim.scenario import Chaos, Cluster, Loaded, Scenario


def expand(loaded: Loaded, seed: int) -> Schedule:
    """All actions of a run, by time."""
    scenario = loaded.scenario
    actions: list[Action] = list(loaded.faults)
    if scenario.chaos is not None:
        actions += _Chaos(scenario, scenario.chaos, seed).draw()
    actions += loaded.publishes
    for cluster in scenario.cluster:
        actions += workload(scenario, cluster, actions, seed)
    return tuple(sorted(actions, key=lambda a: a.at))  # stable: equal times keep the order above


class _Chaos:
    """Random faults. Each kind has its own generator, so enabling one does not change the others."""

    def __init__(self, scenario: Scenario, chaos: Chaos, seed: int) -> None:
        self.scenario, self.chaos, self.seed = scenario, chaos, seed
        self.start = chaos.start
        self.stop = min(scenario.duration, chaos.stop if chaos.stop is not None else scenario.duration)
        self.names = scenario.names
        self.mortal = [n for n in self.names if n not in chaos.spare]
        self.founders = {
            scenario.founder_of(c) for c in scenario.cluster
        }  # they keep their disk, which holds the epoch

    def draw(self) -> list[Action]:
        found: list[Action] = []
        for kind in (
            self._crashes,
            self._leaves,
            self._partitions,
            self._cuts,
            self._slow,
            self._clocks,
            self._hostile,
            self._lies,
        ):
            found += kind()
        for cluster in self.scenario.cluster:
            found += self._churn(cluster)
        return found

    def _times(self, kind: str, every: int | None) -> Iterator[tuple[int, random.Random]]:
        if every is None or every <= 0:
            return
        rng = random.Random(f"{self.seed}/chaos/{kind}")
        at = self.start + int(rng.expovariate(1 / every))
        while at < self.stop:
            yield at, rng
            at += max(1, int(rng.expovariate(1 / every)))

    def _lasts(self, rng: random.Random, mean: int, at: int) -> int:
        return min(int(mean * (0.5 + rng.random())), self.stop - at)

    def _crashes(self) -> Iterator[Action]:
        c = self.chaos
        for at, rng in self._times("crash", c.crash):
            if self.mortal:
                who, lasts = rng.choice(self.mortal), self._lasts(rng, c.down, at)
                yield Crash(at=at, who=who, lasts=lasts, disk=rng.random() < c.disk or who in self.founders)

    def _leaves(self) -> Iterator[Action]:
        for at, rng in self._times("leave", self.chaos.leave):
            who = rng.choice(self.names)
            if who in self.mortal and who not in self.founders:
                yield Leave(at=at, who=who, lasts=self._lasts(rng, self.chaos.away, at))

    def _partitions(self) -> Iterator[Action]:
        c = self.chaos
        for at, rng in self._times("partition", c.partition):
            if len(self.names) > 1:
                side = sorted(rng.sample(self.names, rng.randint(1, len(self.names) // 2)))
                lasts = self._lasts(rng, c.split, at)
                yield Partition(at=at, who=tuple(side), lasts=lasts, oneway=rng.random() < c.oneway)

    def _cuts(self) -> Iterator[Action]:
        c = self.chaos
        for at, rng in self._times("cut", c.cut):
            if len(self.names) > 1:
                src, dst = rng.sample(self.names, 2)
                lasts = self._lasts(rng, c.cut_for, at)
                yield Cut(at=at, src=src, dst=dst, lasts=lasts, oneway=rng.random() < c.oneway)

    def _slow(self) -> Iterator[Action]:
        c = self.chaos
        for at, rng in self._times("slow", c.slow):
            if len(self.names) > 1:
                src, dst = rng.sample(self.names, 2)
                by = int(c.slow_by * (0.5 + rng.random()))
                yield Slow(at=at, src=src, dst=dst, by=by, lasts=self._lasts(rng, c.slow_for, at))

    def _clocks(self) -> Iterator[Action]:
        c = self.chaos
        for at, rng in self._times("clock", c.clock):
            yield Clock(at=at, who=rng.choice(self.names), drift=rng.randint(-c.clock_drift, c.clock_drift))

    def _hostile(self) -> Iterator[Action]:
        for at, rng in self._times("hostile", self.chaos.hostile):
            yield Hostile(at=at, who=rng.choice(self.names))

    def _lies(self) -> Iterator[Action]:
        for cluster in self.scenario.cluster:
            for who in self.scenario.liars_of(cluster):
                for at, _ in self._times(f"lie/{cluster.name}/{who}", self.chaos.lie):
                    yield Lie(at=at, who=who, cluster=cluster.name)

    def _churn(self, cluster: Cluster) -> Iterator[Action]:
        members = self.scenario.members_of(cluster)
        wanting = list(self.scenario.coordinators_of(cluster))
        usual = len(wanting)
        liars = self.scenario.liars_of(cluster)
        for at, rng in self._times(f"churn/{cluster.name}", self.chaos.churn):
            others = [m for m in members if m not in wanting and m not in liars]
            if wanting and (not others or rng.random() < len(wanting) / (2 * max(1, usual))):
                who = rng.choice(wanting)
                wanting.remove(who)
                yield Resign(at=at, who=who, cluster=cluster.name)
            elif others:
                who = rng.choice(others)
                wanting.append(who)
                yield Coordinate(at=at, who=who, cluster=cluster.name)


def workload(scenario: Scenario, cluster: Cluster, faults: list[Action], seed: int) -> list[Publish]:
    """The publishes of one cluster: each coordinator publishes `rate` events a round, at random times."""
    w = cluster.workload
    coordinators = scenario.coordinators_of(cluster)
    rate = w.rate or w.per_second * scenario.round / 1e9 / max(1, len(coordinators))
    if not rate:
        return []
    start = w.start if w.start is not None else scenario.ring_time(cluster)
    stop = min(w.stop if w.stop is not None else scenario.duration, scenario.duration)
    found: list[Publish] = []
    for who in scenario.members_of(cluster):
        rng = random.Random(f"{seed}/publish/{cluster.name}/{who}")
        toggles = _wants(faults, cluster, who)
        wants = who in coordinators
        for begin in range(start, stop, scenario.round):
            while toggles and toggles[0][0] <= begin:
                wants = toggles.pop(0)[1]
            frames, part = divmod(rate / w.batch, 1)
            frames += rng.random() < part
            moments = sorted(begin + rng.randrange(scenario.round) for _ in range(int(frames)))
            if wants:
                name = "" if len(scenario.cluster) == 1 else cluster.name
                found += [
                    Publish(at=at, who=who, cluster=name, events=w.batch, payload=w.payload, copies=w.copies)
                    for at in moments
                ]
    found.sort(key=lambda p: p.at)
    return found if w.total is None else found[: -(-w.total // w.batch)]


def _wants(faults: list[Action], cluster: Cluster, who: str) -> list[tuple[int, bool]]:
    """When the member starts and stops wanting a ticket."""
    return sorted(
        (a.at, isinstance(a, Coordinate))
        for a in faults
        if isinstance(a, Coordinate | Resign) and a.who == who and a.cluster in ("", cluster.name)
    )
