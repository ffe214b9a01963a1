"""Replicated objects of a cluster: registers, counters, documents (docs/objects.md)."""

from whence.live.objects.container import Change, Objects, Stats
from whence.live.objects.document import Document, Json
from whence.live.objects.kernel import BadOperation, EventStamp, Full, Replica, StampedEvent, events_of, stamp
from whence.live.objects.registers import Counter, Elements, Registers

__all__ = [
    "BadOperation",
    "Change",
    "Counter",
    "Document",
    "Elements",
    "EventStamp",
    "Full",
    "Json",
    "Objects",
    "Registers",
    "Replica",
    "StampedEvent",
    "Stats",
    "events_of",
    "stamp",
]
