"""A simulated operator, who founds the ring again when its core is empty.

The protocol never founds on a timeout: two founders would make two rings (docs/ring.md, "Bootstrap and empty core"). An
operator sees from outside that no coordinator is left or starting, and that (with a council) a quorum of its voters is
gone for good, so the ring cannot recover by itself. After a while (`operator` in the scenario) they tell the designated
founder, and only it, to found again; if it is down, they wait. The founder's own quarantine comes on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.core import ports
from whence.core.ring import NoRing, State
from whence.lab.sim.invariants import council_lives

if TYPE_CHECKING:
    from whence.lab.sim.world import World

LOOK_EVERY = 5  # rounds
PATIENCE = 30  # rounds
CORE = (State.FOUNDING, State.PROBATION, State.OWNER, State.LEAVING)


class Operator:
    """Checks each cluster periodically."""

    def __init__(self, world: World) -> None:
        self.world = world
        scenario = world.scenario
        self.every = LOOK_EVERY * scenario.round
        self.patience = PATIENCE * scenario.round if scenario.operator is None else scenario.operator
        self._empty_since: list[int | None] = [None] * len(world.clusters)

    def begin(self) -> None:
        self.world.plan(self.every, self._look)

    def _look(self) -> None:
        for i, free in enumerate(self.world.free):
            if not free:  # else there is no ring to found
                self._look_at(i)
        self.world.plan(self.world.now + self.every, self._look)

    def _look_at(self, cluster: int) -> None:
        world = self.world
        rings = {s.id: s.member.ring for s in world.instances(cluster) if not isinstance(s.member.ring, NoRing)}
        away = [host.name for host in world.hosts.values() if not host.up and host.boot]
        if any(ring.state in CORE for ring in rings.values()) or council_lives(rings, away):
            self._empty_since[cluster] = None
            return
        since = self._empty_since[cluster]
        if since is None:
            self._empty_since[cluster] = world.now
            return
        founder = world.hosts[world.scenario.founder_of(world.clusters[cluster])]
        instance = founder.instances.get(cluster)
        if world.now - since >= self.patience and instance is not None and instance.joined:
            self._empty_since[cluster] = None
            world.tally.refounded += 1
            world.step(instance, ports.FoundRing(force=True))
