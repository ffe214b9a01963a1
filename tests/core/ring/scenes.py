"""Rings to begin a test with. Not a test."""

from __future__ import annotations

from typing import Any

from tests.core.ring.world import World, config
from whence.core.clock import MemberId
from whence.lab.sim.invariants import quiet_violations


def build(members: int, tickets: int = 12, k: int = 1, seed: int = 1, **world: Any) -> tuple[World, list[MemberId]]:
    """A settled ring, and its members in successor order."""
    w = World(world.pop("config", None) or config(tickets, k), seed=seed, **world)
    names = [w.add(f"p{i}") for i in range(members)]
    w.found(names[0])
    w.run(3)
    w.settle(names[1:])
    w.run(4)
    assert quiet_violations(w.rings) == []
    ring = [names[0]]
    while len(ring) < members:
        ring.append(w.ring(ring[-1]).ctx.edge.succ.member)
    return w, ring


def from_widest(w: World, ring: list[MemberId]) -> list[MemberId]:
    """The same circle, beginning with the one that has the most free tickets."""
    first = ring.index(max(ring, key=lambda m: len(w.ring(m).coordinated())))
    return ring[first:] + ring[:first]


def ask(w: World, newcomer: MemberId, parent: MemberId, ticket: int = -1) -> None:
    """Let the newcomer ask nobody but this coordinator."""
    w.ring(newcomer).applicant.choose = lambda: (parent, ticket)
    w.coordinate(newcomer)
