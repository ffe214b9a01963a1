"""The stacks in the hostile world: what ships, with trees, the papers', with total order (soaked by `make soak`)."""

from __future__ import annotations

import pytest

from tests.lab.sim.runs import Run
from tests.long import few
from whence import lab
from whence.core.cast.tree import TreeCast
from whence.core.config import Settings


@pytest.mark.parametrize("seed", few(range(1, 11), 1))
@pytest.mark.parametrize("scenario", ["hostile", "hostile-trees", "hostile-ccc11", "hostile-total"])
def test_a_stack_keeps_its_promises_in_the_hostile_world(scenario: str, seed: int) -> None:
    run = Run(lab.load(scenario), seed).clean()
    lines = {line.order: line for line in run.world.tally.report(scenario, None).lines}
    assert lines["causal"].inversions == lines["reliable"].inversions == 0
    assert sum(line.delivered for line in lines.values()) > 1000
    if scenario == "hostile-trees":  # losses and crashes break the trees, and they are repaired
        casts = [instance.member.cast for host in run.world.hosts.values() for instance in host.instances.values()]
        assert all(isinstance(cast, TreeCast) for cast in casts)
        assert sum(cast.stats.pruned for cast in casts) > 0 and sum(cast.stats.grafted for cast in casts) > 0


def test_hostile_runs_what_a_live_cluster_runs() -> None:
    cluster, usual = lab.load("hostile").scenario.cluster[0], Settings()
    turned = {name for name in Settings.__struct_fields__ if getattr(cluster, name) != getattr(usual, name)}
    assert turned == {"abandon_ns"}  # a run is shorter than the default
