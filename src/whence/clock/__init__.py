"""Timestamps and how they compare. This room knows no other room."""

from whence.clock.cct import MAX_SEQ, NEVER, CctClock, Entry, Incarnation, Orphan, Range
from whence.clock.event import (
    Digest,
    EventId,
    Frame,
    Key,
    MemberId,
    address_of,
    body_size,
    boot_of,
    is_member_id,
    member_id,
)
from whence.clock.free import GENESIS, AnyFrame, FreeFrame, FreeId, OwnFrame, Packed, Run, StampedFrame, are_keys
from whence.clock.vector import Vector, concurrent, leq, merge, precedes

__all__ = [
    "GENESIS",
    "MAX_SEQ",
    "NEVER",
    "AnyFrame",
    "CctClock",
    "Digest",
    "Entry",
    "EventId",
    "Frame",
    "FreeFrame",
    "FreeId",
    "Incarnation",
    "Key",
    "MemberId",
    "Orphan",
    "OwnFrame",
    "Packed",
    "Range",
    "Run",
    "StampedFrame",
    "Vector",
    "address_of",
    "are_keys",
    "body_size",
    "boot_of",
    "concurrent",
    "is_member_id",
    "leq",
    "member_id",
    "merge",
    "precedes",
]
