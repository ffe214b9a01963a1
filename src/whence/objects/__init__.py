"""Replicated objects of a cluster: registers, counters, documents (docs/objects.md)."""

from whence.objects.container import Change, Objects, Stats
from whence.objects.counter import Counter
from whence.objects.document import Document
from whence.objects.kernel import Full, Moved, Replica, Stamp, StampedEvent, events_of, stamp
from whence.objects.operations import BadOperation
from whence.objects.registers import Registers

__all__ = [
    "BadOperation",
    "Change",
    "Counter",
    "Document",
    "Full",
    "Moved",
    "Objects",
    "Registers",
    "Replica",
    "Stamp",
    "StampedEvent",
    "Stats",
    "events_of",
    "stamp",
]
