"""Clusters with tickets: absurd timestamps, and who owns which incarnation."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le

from whence.core.clock import CctClock, Entry, MemberId
from whence.errors import AbsurdClock

MAX_OWNERS = 16  # tenures remembered per ticket
MAX_EPOCHS = 1024  # refoundings of the ring that this member may have missed


def check_jump(vector: Sequence[Entry], clock: CctClock, max_jump: int) -> None:
    """A timestamp far beyond anything known raises `AbsurdClock`."""
    if not clock.exact and all(map(le, vector, clock.T)):
        return
    for ticket, (entry, now) in enumerate(zip(vector, clock.T, strict=True)):
        (inc, seq), (at, upto) = entry, now
        if entry <= now and (not clock.exact or inc == at or inc < clock.floor[ticket]):
            continue
        if inc != at:  # a tenure of which nothing, or only the recent past, is known
            upto = clock.tails.get((ticket, inc), 0)
        ahead = seq - upto
        if ahead > max_jump or (inc >> 48) - (at >> 48) > MAX_EPOCHS:
            raise AbsurdClock(f"ticket {ticket}: {(inc, seq)} is {ahead} events ahead of {(at, upto)}")


class Owners:
    """The owner of each recent tenure: whom to ask, whom to believe. The first name heard stays."""

    def __init__(self, tickets: int) -> None:
        self.tables: list[dict[int, MemberId]] = [{} for _ in range(tickets)]
        """By ticket, then by incarnation."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, ticket: int, inc: int, owner: MemberId) -> None:
        """Remember the owner; the oldest tenures are forgotten."""
        table = self.tables[ticket]
        if inc not in table:
            table[inc] = owner
            self._count += 1
            if len(table) > MAX_OWNERS:
                del table[min(table)]
                self._count -= 1

    def rows(self) -> tuple[tuple[int, int, MemberId], ...]:
        """All of it as data."""
        return tuple((t, inc, owner) for t, table in enumerate(self.tables) for inc, owner in table.items())
