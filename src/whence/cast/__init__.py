"""Dissemination without order (PrCast of CCC11; docs/protocols.md). This room knows only `clock`."""

from whence.cast.base import (
    DOWN_REASONS,
    NEVER_WAKE,
    CastOutput,
    CastSend,
    CastStats,
    Dissemination,
    First,
    Heard,
    MemberDown,
    MemberUp,
)
from whence.cast.config import CastConfig
from whence.cast.gossip import EttbGossip, make
from whence.cast.messages import CastMessage, Gossip, Item, News, Subscribe, Welcome, check

__all__ = [
    "DOWN_REASONS",
    "NEVER_WAKE",
    "CastConfig",
    "CastMessage",
    "CastOutput",
    "CastSend",
    "CastStats",
    "Dissemination",
    "EttbGossip",
    "First",
    "Gossip",
    "Heard",
    "Item",
    "MemberDown",
    "MemberUp",
    "News",
    "Subscribe",
    "Welcome",
    "check",
    "make",
]
