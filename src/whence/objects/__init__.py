"""Replicated objects of a cluster: registers, counters, documents; and their snapshots. docs/objects.md explains."""

from whence.objects.container import Change, Objects, Stats
from whence.objects.counter import Counter
from whence.objects.document import Document
from whence.objects.kernel import Event, Full, Moved, Replica, Stamp, events_of, stamp
from whence.objects.operations import BadOperation
from whence.objects.registers import Registers

__all__ = [
    "BadOperation",
    "Change",
    "Counter",
    "Document",
    "Event",
    "Full",
    "Moved",
    "Objects",
    "Registers",
    "Replica",
    "Stamp",
    "Stats",
    "events_of",
    "stamp",
]
