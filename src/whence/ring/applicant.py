"""How a process without a ticket finds a coordinator to ask, and how long it waits between two attempts.

CCC11 section 4.1: "the selection by p could take the coordinator of a ticket chosen uniformly at random from the set of
available tickets". Who that is comes from the news, from a snapshot, from REJECTs, which name the coordinators that
the rejecter
knows, and else from any members of the view, which reject with such a list.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from whence.clock import MemberId


class Applicant:
    """Hints where to ask; all of them may be wrong."""

    MAX_CONTACTS = 16

    def __init__(self, me: MemberId, tickets: int, rng: random.Random) -> None:
        self.me = me
        self.tickets = tickets
        self.rng = rng
        self.hints: dict[int, MemberId] = {}
        self.members: list[MemberId] = []
        self.tried: list[MemberId] = []

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        for ticket, member in coordinators.items():
            if 0 <= ticket < self.tickets:
                self.hints[ticket] = member

    def redirected(self, known: Iterable[tuple[int, MemberId]], by_owner: bool) -> None:
        """A REJECT names coordinators; one who is a coordinator itself knows better than our hints."""
        if by_owner:
            self.hints = {}
        self.learn(dict(known))

    def silent(self, member: MemberId) -> None:
        """It did not answer."""
        self.hints = {ticket: m for ticket, m in self.hints.items() if m != member}

    def busy(self, member: MemberId) -> None:
        """It will serve soon: ask it again like one who was not asked yet."""
        self.tried = [m for m in self.tried if m != member]

    def contacts(self, members: Sequence[MemberId]) -> None:
        self.members = [m for m in members if m != self.me][: self.MAX_CONTACTS]

    def everybody(self, cview: Mapping[int, MemberId]) -> list[MemberId]:
        """All who might know, coordinators first."""
        known = {**self.hints, **cview}
        return [m for m in dict.fromkeys([*(known[t] for t in sorted(known)), *self.members]) if m != self.me]

    def choose(self, cview: Mapping[int, MemberId]) -> tuple[MemberId, int] | None:
        """Whom to ask next, and for which ticket (-1: any); None when nobody is known. Nobody is asked twice before
        everybody was asked once."""
        everybody = self.everybody(cview)
        if not any(m not in self.tried for m in everybody):
            self.tried = []
        known = {**self.hints, **cview}
        free = [
            (m, t)
            for t in range(self.tickets)
            if t not in known and (m := self._coordinator(t, known)) not in self.tried
        ]
        free = [(m, t) for m, t in free if m and m != self.me]
        rest = [m for m in everybody if m not in self.tried]
        if free:
            member, wish = self.rng.choice(free)
        elif rest:
            member, wish = self.rng.choice(rest), -1
        else:
            return None
        self.tried.append(member)
        return member, wish

    def _coordinator(self, ticket: int, known: Mapping[int, MemberId]) -> MemberId:
        """Whose S has the ticket: the nearest owner before it."""
        for step in range(1, self.tickets):
            member = known.get((ticket + step) % self.tickets)
            if member:
                return member
        return ""

    def pause(self, round_ns: int, swept: bool) -> int:
        """How long to wait before asking the next one: longer when everybody was asked in vain."""
        return int(round_ns * (self.rng.uniform(1, 2) if swept else self.rng.uniform(0.1, 0.6)))
