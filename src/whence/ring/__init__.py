"""Tickets: who may publish (CCC11 section 4, docs/ring.md). Two protocols with one interface, `Ring`."""

from whence.ring.base import Ring
from whence.ring.basic import BasicRing
from whence.ring.config import RingConfig, recovery_rounds
from whence.ring.interface import State
from whence.ring.none import NoRing
from whence.ring.tolerant import TolerantRing

__all__ = ["BasicRing", "NoRing", "Ring", "RingConfig", "State", "TolerantRing", "recovery_rounds"]
