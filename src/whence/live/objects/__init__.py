"""Replicated objects of a cluster: registers, counters, documents (docs/objects.md)."""

from whence.live.objects.container import Change, Objects, Stats
from whence.live.objects.counter import Counter
from whence.live.objects.document import Document
from whence.live.objects.kernel import Full, Replica, Stamp, StampedEvent, events_of, stamp
from whence.live.objects.operations import BadOperation
from whence.live.objects.registers import Registers

__all__ = [
    "BadOperation",
    "Change",
    "Counter",
    "Document",
    "Full",
    "Objects",
    "Registers",
    "Replica",
    "Stamp",
    "StampedEvent",
    "Stats",
    "events_of",
    "stamp",
]
