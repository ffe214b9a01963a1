"""Tickets: who may publish (CCC11 section 4, docs/ring.md). Three protocols with one interface, `Ring`."""

from whence.ring.base import Ring
from whence.ring.basic import BasicRing
from whence.ring.config import RingConfig, recovery_rounds
from whence.ring.council import CouncilRing
from whence.ring.interface import State
from whence.ring.none import NoRing
from whence.ring.tolerant import TolerantRing

__all__ = ["BasicRing", "CouncilRing", "NoRing", "Ring", "RingConfig", "State", "TolerantRing", "recovery_rounds"]
