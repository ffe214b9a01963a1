"""Tickets: who may publish (CCC11 section 4, docs/ring.md). Two protocols with one interface, `Ring`."""

import random

from whence.core.clock import MemberId
from whence.core.ring.base import NoRing as NoRing
from whence.core.ring.base import Ring as Ring
from whence.core.ring.config import DEFAULT_RING as DEFAULT_RING
from whence.core.ring.config import RingConfig as RingConfig
from whence.core.ring.config import RingName as RingName
from whence.core.ring.context import Memory
from whence.core.ring.context import State as State
from whence.core.ring.council import CouncilRing as CouncilRing


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
