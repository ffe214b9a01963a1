"""Processes as numbers: how their messages are named and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

ProcessId = int
"""A process is a natural number ("vector clocks assume that those processes use natural numbers", SURVEY 3.2): it is a
position in vectors and one to five bytes on the wire. Whoever drives a mechanism maps its members to such numbers."""

Id = tuple[ProcessId, int]
"""`(sender, seq)`: names a message."""

Gap = tuple[ProcessId, int, int]
"""`(sender, first, last)`: consecutive messages of one sender, ends included."""

Counts = dict[ProcessId, int]
"""How many messages of each process were delivered; a process that is not in it: none."""

Renumber = Callable[[ProcessId], ProcessId]
"""Another number for each process: two members need not number the processes alike."""

Ids = tuple[Id, ...]


def gaps(delivered: Counts, needed: Iterable[Id]) -> tuple[Gap, ...]:
    """What is missing up to each of the needed messages."""
    found = ((p, delivered.get(p, 0) + 1, seq) for p, seq in needed)
    return tuple(gap for gap in found if gap[1] <= gap[2])


def renumbered(vector: tuple[int, ...], to: Renumber) -> tuple[int, ...]:
    """A vector by other process numbers."""
    return dense({to(p): n for p, n in enumerate(vector) if n})


def dense(counts: Counts) -> tuple[int, ...]:
    """A vector by process number, without the zeros at its end."""
    last = max((p for p, n in counts.items() if n), default=-1)
    return tuple(counts.get(p, 0) for p in range(last + 1))


def sparse(vector: tuple[int, ...]) -> Counts:
    """The inverse of `dense`."""
    return {p: n for p, n in enumerate(vector) if n}


def renumbered_ids(ids: Ids, to: Renumber) -> Ids:
    """Ids by other process numbers."""
    return tuple((to(p), n) for p, n in ids)
