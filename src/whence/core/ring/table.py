"""Cview and the table of incarnations: what a member knows of each ticket.

Rules 6, 12 and 15: the table travels with ACKCJOIN and CLEAVE and is merged; an incarnation below a ticket's floor, or
below a newer one, is over.

Everything in the table only ever grows, so news may come late, twice or in any order. The one exception is a promise
given to an excluder: it acts as a floor, but is taken back when the exclusion is known to have failed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from whence.core.clock import NEVER, Entry, MemberId
from whence.core.ring.config import distance
from whence.core.ring.messages import ERA_SHIFT, MAX_EPOCH, Holder, Row, term_of

MAX_EPOCH_JUMP = 1024
"""By how much the epochs that one message names may be above all known ones. Higher: a process that was away for more
foundings still understands the ring. Lower: fewer lies are needed to use up all epochs. There are 2^16."""
MAX_TERM_JUMP = 1 << 20
"""Likewise for terms, which rise with each exclusion. There are 2^24."""
LAST_ERA = (MAX_EPOCH << ERA_SHIFT) - MAX_TERM_JUMP
"""No era above is believed: what this process adds to one that it believes never passes 64 bits."""


class Promise(msgspec.Struct, frozen=True):
    """Given by ACKCOORD: to vouch for nobody on these tickets below `floor`."""

    excluder: Holder
    nonce: int
    tickets: frozenset[int]
    floor: int


def floor_of(era: int) -> int:
    """The first incarnation of an era."""
    return era << ERA_SHIFT | 1


class Table:
    """One per process, kept for its whole life, whether it is a coordinator or not."""

    MAX_PROMISES = 64  # excluders whose attempts may be open at a time; older promises become floors

    def __init__(self, tickets: int) -> None:
        self.tickets = tickets
        self.owner: list[MemberId] = [""] * tickets
        self.top = [0] * tickets
        self.floor = [0] * tickets
        self.last: list[Entry] = [NEVER] * tickets
        self.era = 0
        self.anchor = 0
        """An era known from a snapshot or a disk: jumps are measured from there, too."""
        self.promises: dict[MemberId, Promise] = {}
        self._silent: dict[int, tuple[int, int]] = {}

    # --- what is over ---

    def over(self, holder: Holder) -> bool:
        """The tenure has ended, or this process has promised to take it as ended."""
        if self.ended(holder):
            return True
        return any(holder.ticket in p.tickets and holder.inc < p.floor for p in self.promises.values())

    def ended(self, holder: Holder) -> bool:
        """The tenure has ended, for good: it was excluded or released, or there is a newer one."""
        return holder.inc < self.floor[holder.ticket] or holder.inc < self.top[holder.ticket]

    def end(self, ticket: int, floor: int) -> None:
        """Everything below `floor` on the ticket is over."""
        if floor > self.floor[ticket]:
            self.floor[ticket] = floor
            self.saw(floor >> ERA_SHIFT)
            if self.top[ticket] < floor:
                self.owner[ticket] = ""

    def out(self, ticket: int, floor: int, out_at: int) -> None:
        """Everything below `floor` on the ticket was excluded or released, and vouches for nobody after `out_at`."""
        self.end(ticket, floor)
        known, at = self._silent.get(ticket, (0, 0))
        if floor > known or (floor == known and out_at < at):
            self._silent[ticket] = (floor, out_at)

    def silent(self, holder: Holder, now: int) -> bool:
        """The tenure is certainly out: it vouches for nobody any more."""
        floor, out_at = self._silent.get(holder.ticket, (0, 0))
        return holder.inc < floor and now >= out_at

    def promise(self, excluder: Holder, nonce: int, tickets: Iterable[int], era: int) -> None:
        """Agree to an exclusion. A new attempt of the same excluder voids its earlier one (rule 18)."""
        self.promises.pop(excluder.member, None)
        while len(self.promises) >= self.MAX_PROMISES:
            self._keep_for_good(next(iter(self.promises)))
        self.promises[excluder.member] = Promise(excluder, nonce, frozenset(tickets), floor_of(era))
        self.saw(era)

    def promised(self, excluder: Holder) -> int:
        """The nonce of what was promised to it (0: nothing). What was promised to an earlier tenure of it is void."""
        kept = self.promises.get(excluder.member)
        if kept is not None and kept.excluder != excluder:
            del self.promises[excluder.member]
            return 0
        return kept.nonce if kept is not None else 0

    def void_promises(self, now: int) -> None:
        """Who is certainly out makes no use of a promise any more."""
        for kept in list(self.promises.values()):
            if self.silent(kept.excluder, now):
                del self.promises[kept.excluder.member]

    def cancel(self, excluder: MemberId, nonce: int) -> None:
        """The attempt failed: its acks are never used."""
        kept = self.promises.get(excluder)
        if kept is not None and kept.nonce == nonce:
            del self.promises[excluder]

    def committed(self, excluder: MemberId, floor: int) -> None:
        """The excluder announced its exclusion: what was promised to it holds for good."""
        kept = self.promises.get(excluder)
        if kept is not None and kept.floor <= floor:
            self._keep_for_good(excluder)

    def _keep_for_good(self, excluder: MemberId) -> None:
        kept = self.promises.pop(excluder)
        for ticket in sorted(kept.tickets):
            self.end(ticket, kept.floor)

    # --- what is known ---

    @property
    def epoch(self) -> int:
        """The highest epoch known to have been founded."""
        return self.era >> ERA_SHIFT

    def plausible(self, era: int) -> bool:
        """Whether an era that somebody else names can be true: it is no further than one jump away."""
        known = max(self.era, self.anchor)
        epoch, known_epoch = era >> ERA_SHIFT, known >> ERA_SHIFT
        term = term_of(known) if epoch == known_epoch else 0
        return (
            era <= LAST_ERA
            and epoch <= known_epoch + MAX_EPOCH_JUMP
            and era <= epoch << ERA_SHIFT | term + MAX_TERM_JUMP
        )

    def saw(self, era: int) -> None:
        self.era = max(self.era, era)

    def note(self, holder: Holder, seq: int = 0) -> None:
        """The tenure exists; whether it is an owner (and not a newcomer on probation) is not known."""
        if holder.inc > self.top[holder.ticket]:
            self.top[holder.ticket] = holder.inc
            self.owner[holder.ticket] = ""
            self.saw(holder.inc >> ERA_SHIFT)
        if seq:
            self.last[holder.ticket] = max(self.last[holder.ticket], (holder.inc, seq))

    def owns(self, holder: Holder) -> None:
        """The tenure is an owner, unless it is known to be over."""
        if not self.over(holder):
            self.note(holder)
            self.owner[holder.ticket] = holder.member

    def forget(self, holder: Holder) -> None:
        """The tenure is no owner any more (its incarnation stays used up)."""
        if self.owner[holder.ticket] == holder.member and self.top[holder.ticket] <= holder.inc:
            self.owner[holder.ticket] = ""

    def grant(self, ticket: int, least: int = 0) -> int:
        """A new incarnation for the ticket, above all known ones: count + 1."""
        inc = max(self.top[ticket] + 1, self.floor[ticket], least)
        self.top[ticket] = inc
        self.owner[ticket] = ""
        return inc

    def rows(self, tickets: Iterable[int] | None = None) -> tuple[Row, ...]:
        """For ACKCJOIN, CLEAVE and ACKCOORD: what is known of these tickets (all)."""
        wanted = range(self.tickets) if tickets is None else tickets
        return tuple(
            Row(t, self.owner[t], self.top[t], self.floor[t], self.last[t])
            for t in wanted
            if self.top[t] or self.floor[t] or self.last[t] != NEVER
        )

    def merge(self, rows: Iterable[Row]) -> None:
        """Take over what another one knows."""
        for row in rows:
            self.end(row.ticket, row.floor)
            if row.top > self.top[row.ticket]:
                self.note(Holder(row.owner, row.ticket, row.top))
                if row.owner:
                    self.owns(Holder(row.owner, row.ticket, row.top))
            elif row.owner and row.top == self.top[row.ticket] >= self.floor[row.ticket]:
                self.owner[row.ticket] = self.owner[row.ticket] or row.owner
            self.last[row.ticket] = max(self.last[row.ticket], row.last)

    # --- Cview ---

    def coordinators(self) -> dict[int, MemberId]:
        """Cview: ticket -> owner."""
        return {ticket: owner for ticket, owner in enumerate(self.owner) if owner}

    def next_owner(self, start: int, after: int) -> Holder | None:
        """The next known coordinator beyond ticket `after`, walking down from ticket `start` (Algorithm 4)."""
        beyond = distance(start, after, self.tickets)
        found = [(distance(start, t, self.tickets), t) for t, owner in enumerate(self.owner) if owner and t != start]
        for far, ticket in sorted(found):
            if far > beyond:
                return Holder(self.owner[ticket], ticket, self.top[ticket])
        return None
