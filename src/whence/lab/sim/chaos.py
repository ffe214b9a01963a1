"""Expands a scenario and a seed into a schedule: explicit actions, random faults (`[chaos]`) and the `workload`.

All randomness is drawn before the run, each purpose from its own generator. The result is a plain list, which the world
carries out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from whence.lab.sim import actions as act
from whence.lab.sim.actions import Action, CoordinateAction, PublishAction, ResignAction, Schedule
from whence.lab.sim.scenario import Chaos, Loaded, ScenarioCluster, SimScenario


def expand(loaded: Loaded, seed: int) -> Schedule:
    """All actions of a run, by time."""
    scenario = loaded.scenario
    actions: list[Action] = list(loaded.faults)
    if scenario.chaos is not None:
        actions += _Chaos(scenario, scenario.chaos, seed).draw()
    for cluster in scenario.cluster:
        actions += workload(scenario, cluster, actions, seed)
    return tuple(sorted(actions, key=lambda a: a.at))  # stable: equal times keep the order above


class _Chaos:
    """Random faults. Each kind has its own generator, so enabling one does not change the others."""

    def __init__(self, scenario: SimScenario, chaos: Chaos, seed: int) -> None:
        self.scenario, self.chaos, self.seed = scenario, chaos, seed
        self.start = chaos.start
        self.stop = min(scenario.duration, chaos.stop if chaos.stop is not None else scenario.duration)
        self.names = scenario.names
        self.mortal = [n for n in self.names if n not in chaos.spare]
        self.founders = {
            scenario.founder_of(c) for c in scenario.cluster
        }  # they keep their disk, which holds the epoch

    def draw(self) -> list[Action]:
        c = self.chaos
        links = (("partition", c.partition, self._partition), ("cut", c.cut, self._cut), ("slow", c.slow, self._slow))
        kinds = (
            ("crash", c.crash, self._crash),
            ("leave", c.leave, self._leave),
            *(links if len(self.names) > 1 else ()),
            ("clock", c.clock, self._clock),
            ("hostile", c.hostile, lambda at, rng: act.Hostile(at=at, who=rng.choice(self.names))),
        )
        found = [made for kind, every, make in kinds for at, rng in self._times(kind, every) if (made := make(at, rng))]
        for cluster in self.scenario.cluster:
            for who in self.scenario.liars_of(cluster):
                times = self._times(f"lie/{cluster.name}/{who}", c.lie)
                found += [act.Lie(at=at, who=who, cluster=cluster.name) for at, _ in times]
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

    def _crash(self, at: int, rng: random.Random) -> Action | None:
        if not self.mortal:
            return None
        who, lasts = rng.choice(self.mortal), self._lasts(rng, self.chaos.down, at)
        return act.Crash(at=at, who=who, lasts=lasts, disk=rng.random() < self.chaos.disk or who in self.founders)

    def _leave(self, at: int, rng: random.Random) -> Action | None:
        who = rng.choice(self.names)
        if who not in self.mortal or who in self.founders:
            return None
        return act.LeaveAction(at=at, who=who, lasts=self._lasts(rng, self.chaos.away, at))

    def _partition(self, at: int, rng: random.Random) -> Action:
        side = tuple(sorted(rng.sample(self.names, rng.randint(1, len(self.names) // 2))))
        lasts = self._lasts(rng, self.chaos.split, at)
        return act.Partition(at=at, who=side, lasts=lasts, oneway=rng.random() < self.chaos.oneway)

    def _cut(self, at: int, rng: random.Random) -> Action:
        (src, dst), lasts = rng.sample(self.names, 2), self._lasts(rng, self.chaos.cut_for, at)
        return act.Cut(at=at, src=src, dst=dst, lasts=lasts, oneway=rng.random() < self.chaos.oneway)

    def _slow(self, at: int, rng: random.Random) -> Action:
        (src, dst), by = rng.sample(self.names, 2), int(self.chaos.slow_by * (0.5 + rng.random()))
        return act.Slow(at=at, src=src, dst=dst, by=by, lasts=self._lasts(rng, self.chaos.slow_for, at))

    def _clock(self, at: int, rng: random.Random) -> Action | None:
        drift = self.chaos.clock_drift
        return act.ClockAction(at=at, who=rng.choice(self.names), drift=rng.randint(-drift, drift))

    def _churn(self, cluster: ScenarioCluster) -> Iterator[Action]:
        members = self.scenario.members_of(cluster)
        wanting = list(self.scenario.coordinators_of(cluster))
        usual = len(wanting)
        liars = self.scenario.liars_of(cluster)
        for at, rng in self._times(f"churn/{cluster.name}", self.chaos.churn):
            others = [m for m in members if m not in wanting and m not in liars]
            if wanting and (not others or rng.random() < len(wanting) / (2 * max(1, usual))):
                who = rng.choice(wanting)
                wanting.remove(who)
                yield ResignAction(at=at, who=who, cluster=cluster.name)
            elif others:
                who = rng.choice(others)
                wanting.append(who)
                yield CoordinateAction(at=at, who=who, cluster=cluster.name)


def workload(scenario: SimScenario, cluster: ScenarioCluster, faults: list[Action], seed: int) -> list[PublishAction]:
    """The publishes of one cluster: each coordinator publishes `rate` events a round, at random times."""
    w = cluster.workload
    coordinators = scenario.coordinators_of(cluster)
    rate = w.rate or w.per_second * scenario.round / 1e9 / max(1, len(coordinators))
    if not rate:
        return []
    start = w.start if w.start is not None else scenario.ring_time(cluster)
    stop = min(w.stop if w.stop is not None else scenario.duration, scenario.duration)
    found: list[PublishAction] = []
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
                    PublishAction(at=at, who=who, cluster=name, events=w.batch, payload=w.payload, copies=w.copies)
                    for at in moments
                ]
    found.sort(key=lambda p: p.at)
    return found if w.total is None else found[: -(-w.total // w.batch)]


def _wants(faults: list[Action], cluster: ScenarioCluster, who: str) -> list[tuple[int, bool]]:
    """When the member starts and stops wanting a ticket."""
    return sorted(
        (a.at, isinstance(a, CoordinateAction))
        for a in faults
        if isinstance(a, CoordinateAction | ResignAction) and a.who == who and a.cluster in ("", cluster.name)
    )
