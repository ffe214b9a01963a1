"""Tickets: who may publish (CCC11 section 4, docs/ring.md). Two protocols with one interface, `Ring`."""

from whence.ring.basic import BasicRing
from whence.ring.config import RingConfig, recovery_rounds
from whence.ring.interface import (
    Announce,
    BecameOwner,
    Excluded,
    Frozen,
    Granted,
    Lost,
    Rejected,
    Released,
    Ring,
    RingOutput,
    RingSend,
    State,
    Thawed,
)
from whence.ring.messages import GoneNews, JoinedNews, ReleasedNews, RingMessage, RingNews
from whence.ring.tolerant import TolerantRing

__all__ = [
    "Announce",
    "BasicRing",
    "BecameOwner",
    "Excluded",
    "Frozen",
    "GoneNews",
    "Granted",
    "JoinedNews",
    "Lost",
    "Rejected",
    "Released",
    "ReleasedNews",
    "Ring",
    "RingConfig",
    "RingMessage",
    "RingNews",
    "RingOutput",
    "RingSend",
    "State",
    "Thawed",
    "TolerantRing",
    "recovery_rounds",
]
