"""Tickets: who may publish (CCC11 section 4, docs/ring.md). Two protocols with one interface, `Ring`."""

import random

from whence.core.clock import MemberId
from whence.core.ring.base import NoRing, Ring
from whence.core.ring.config import DEFAULT_RING, RingConfig, RingName, recovery_rounds
from whence.core.ring.context import Memory, State
from whence.core.ring.council import CouncilRing


def make(
    me: MemberId,
    config: RingConfig,
    rng: random.Random,
    memory: Memory | None = None,
    disk: bool = False,
    votes: bool = True,
) -> Ring:
    """The ring of the protocol that the settings name. `memory`: what the last life of the process left on its disk;
    `disk`: there is one for this life; `votes`: it may be a voter of the council (rule C10)."""
    match config.protocol:
        case "council":
            return CouncilRing(me, config, rng, memory, disk, votes)
        case "neighbours":
            from whence.core.ring.neighbours import TolerantRing  # members of a council do not need it

            return TolerantRing(me, config, rng)


__all__ = [
    "DEFAULT_RING",
    "CouncilRing",
    "NoRing",
    "Ring",
    "RingConfig",
    "RingName",
    "State",
    "make",
    "recovery_rounds",
]
