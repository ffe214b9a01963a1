"""The state of one run that members' driver, checks and counters share: the clock, the processes, the network."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.core.recorder import Sink
from whence.lab.sim.actions import Schedule
from whence.lab.sim.chaos import expand
from whence.lab.sim.host import Instance, LocalClock, SimHost
from whence.lab.sim.network import SimNetwork
from whence.lab.sim.scenario import Loaded, ScenarioCluster, SimScenario


class Stage:
    """Virtual time, a heap of planned calls, and what they act on. `schedule` defaults to the expansion of scenario and
    seed."""

    def __init__(self, loaded: Loaded, seed: int, schedule: Schedule | None, sink: Sink | None) -> None:
        self.scenario: SimScenario = loaded.scenario
        self.seed = seed
        self.schedule = expand(loaded, seed) if schedule is None else schedule
        self.sink = sink
        self.now = 0
        self.end = self.scenario.duration + self.scenario.settle
        self.clusters: tuple[ScenarioCluster, ...] = self.scenario.cluster
        base = Path(loaded.path).parent if loaded.path else None
        self.network = SimNetwork(self.scenario.network, self.scenario.names, seed, base)
        self.hosts = {n: SimHost(n, self._clock(n)) for n in self.scenario.names}
        self.orders = [self.scenario.orders(c, seed) for c in self.clusters]
        self.free = [c.free for c in self.clusters]
        self.liars = [frozenset(self.scenario.liars_of(c)) for c in self.clusters]
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def plan(self, at: int, what: Callable[..., None], *args: Any) -> None:
        """Call a function at a true time."""
        self._planned += 1
        heapq.heappush(self._heap, (at, self._planned, what, args))

    def rng(self, purpose: str) -> random.Random:
        """A separate generator for a purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    def instances(self, cluster: int) -> list[Instance]:
        """The running members of a cluster."""
        return [host.instances[cluster] for host in self.hosts.values() if cluster in host.instances]

    def _clock(self, name: str) -> LocalClock:
        clocks = self.scenario.clocks
        rng = self.rng(f"clock/{name}")
        return LocalClock(rng.randint(0, clocks.offset), rng.randint(-clocks.drift, clocks.drift))
