"""Trees under every fault at once."""

from __future__ import annotations

from tests.lab.sim.runs import Run
from whence.core.cast.tree import TreeCast
from whence.lab.sim.scenario import load


def test_the_hostile_scenario_with_trees() -> None:
    """Loss, partitions, crashes and churn break the trees, and what they do not deliver is asked for."""
    loaded = load("hostile", settings={"cluster.mode": "tree", "duration": "60r", "settle": "40r"})
    run = Run(loaded, seed=1).clean()
    casts = [instance.member.cast for host in run.world.hosts.values() for instance in host.instances.values()]
    assert all(isinstance(cast, TreeCast) for cast in casts)
    assert sum(cast.stats.pruned for cast in casts) > 0 and sum(cast.stats.grafted for cast in casts) > 0
    assert len(run.published()) > 20 and sum(len(run.delivered(name)) for name in run.world.hosts) > 300
