"""Simulate, size, reproduce. The simulator runs the members of the core. No application needs any of it.

=================================== =====================================================================
`run(scenario, seed=1)`             simulate one run: every step checked, every delivery judged (docs/simulator.md)
`soak(scenario, seeds=100)`         many seeds, on all cores
`load(name)`, `parse(text)`         a scenario: a file, one that comes with whence (`packaged()`), or TOML text
`shrink(...)`                       a failing run, reduced to a schedule that a person can read
`plan_cluster(PlanQuestion(...))`   settings and predictions for a workload (docs/planner.md)
`run_scale(ScaleSettings(...))`     the array engine: (N, R, K) clocks for 10^4 processes (docs/scale.md)
`run_gossip(GossipSettings(...))`   how events spread among a million members, and when they deliver
=================================== =====================================================================

    from whence import lab
    outcome = lab.run("hostile", seed=7)
    assert outcome.violation is None
"""

from typing import TYPE_CHECKING

from whence.exports import exports

if TYPE_CHECKING:
    from whence.lab.plan import ClusterPlan, PlanQuestion, plan_cluster
    from whence.lab.scale.dissemination import run_gossip
    from whence.lab.scale.gossip import GossipSettings
    from whence.lab.scale.network import ScaleSettings
    from whence.lab.scale.run import run_scale
    from whence.lab.sim.run import Simulated, run
    from whence.lab.sim.scenario import Loaded, load, packaged, parse
    from whence.lab.sim.shrink import shrink
    from whence.lab.sim.soak import SeedResult, soak

__getattr__, __dir__ = exports(
    __name__,
    {
        "plan": "ClusterPlan PlanQuestion plan_cluster",
        "scale.dissemination": "run_gossip",
        "scale.gossip": "GossipSettings",
        "scale.network": "ScaleSettings",
        "scale.run": "run_scale",
        "sim.run": "Simulated run",
        "sim.scenario": "Loaded load packaged parse",
        "sim.shrink": "shrink",
        "sim.soak": "SeedResult soak",
    },
)

__all__ = [
    "ClusterPlan",
    "GossipSettings",
    "Loaded",
    "PlanQuestion",
    "ScaleSettings",
    "SeedResult",
    "Simulated",
    "load",
    "packaged",
    "parse",
    "plan_cluster",
    "run",
    "run_gossip",
    "run_scale",
    "shrink",
    "soak",
]
