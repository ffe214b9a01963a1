"""Vector timestamps (docs/protocols.md, "The model in words"), and the cct clock: one entry per ticket, each
`(incarnation, seq)` (CCC11 section 5.1, docs/ring.md).

Its size is the number of tickets, not of members. An incarnation is one owner's tenure of a ticket; seq restarts with
each, so an id is never used twice across owners or restarts.

Departs from the paper, whose entry is one counter per ticket: when an owner crashes, the next one cannot know the last
event of the tenure before. It **closes over** the last one it knows. Events of the old tenure beyond that are
**orphans**: concurrent to the new tenure, though their entry is smaller. A member in a causal order (`exact`) still
delivers them: it remembers how far it has come in recent tenures, and its frames name them as dependencies. Weaker
orders treat them as obsolete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta

from whence.core.clock.bounds import MAX_SEQ, Count, Seq, TicketIndex

E = TypeVar("E", int, tuple[int, int])
Vector = Sequence[E]


def leq(a: Vector[E], b: Vector[E]) -> bool:
    """Every entry of `a` is at most that of `b`."""
    return all(map(le, a, b))


def precedes(a: Vector[E], b: Vector[E]) -> bool:
    """`a < b`: every entry is at most, and one is less."""
    return leq(a, b) and tuple(a) != tuple(b)


def concurrent(a: Vector[E], b: Vector[E]) -> bool:
    """Neither precedes the other, and they differ."""
    return not leq(a, b) and not leq(b, a)


def merge(a: Vector[E], b: Vector[E]) -> tuple[E, ...]:
    """The least vector that both precede or equal."""
    return tuple(map(max, a, b))


Entry = tuple[Count, Seq]
"""`(packed incarnation, seq)`, compared lexicographically."""

NEVER: Entry = (0, 0)
"""The entry of a ticket on which nothing was ever published."""

Range = tuple[int, int, int, int]
"""`(ticket, incarnation, first, last)`: consecutive events, ends included."""

Orphan = tuple[TicketIndex, Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1, le=MAX_SEQ)]]
"""`(ticket, incarnation, last)`: a dependency that no closure covers."""

_FIELD = 24
_MASK = (1 << _FIELD) - 1


class Incarnation(NamedTuple):
    """`(epoch, term, count)`: epoch rises when the ring is founded anew, term with an exclusion, count with a grant."""

    epoch: int
    term: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def packed(self) -> int:
        """One int (under 2**64) that compares as the triple does."""
        if not (0 <= self.epoch < 1 << 16 and 0 <= self.term <= _MASK and 0 <= self.count <= _MASK):
            raise OverflowError(f"incarnation out of range: {self}")
        return self.epoch << 2 * _FIELD | self.term << _FIELD | self.count

    @classmethod
    def unpack(cls, packed: int) -> Incarnation:
        return cls(packed >> 2 * _FIELD, packed >> _FIELD & _MASK, packed & _MASK)

    @classmethod
    def parse(cls, text: str) -> Incarnation:
        """From `epoch.term.count`."""
        epoch, term, count = text.split(".")
        return cls(int(epoch), int(term), int(count))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.term}.{self.count}"


class CctClock:
    """A member's causal present `T`, and what it remembers of closed tenures when `exact`."""

    __slots__ = ("T", "exact", "floor", "orphans", "tails")

    T: list[Entry]
    """The newest event delivered (or given up) on each ticket."""
    tails: dict[tuple[int, int], int]
    """`(ticket, closed incarnation)` -> last seq delivered of it; only when exact, only from `floor` on, at most
    `MAX_TAILS` per ticket."""
    floor: list[int]
    """Per ticket: incarnations below this are settled; nothing of them is missing or will be delivered."""
    orphans: dict[tuple[int, int], int]
    """Delivered beyond a closure: what the next own frame has to name, and the digest to advertise."""

    MAX_TAILS = 16  # remembered tenures per ticket: 16 crashed owners within the memory of one ticket

    def __init__(self, tickets: int, exact: bool = False) -> None:
        self.T = [NEVER] * tickets
        self.exact = exact
        self.tails = {}
        self.floor = [0] * tickets
        self.orphans = {}

    def has(self, ticket: int, inc: int, seq: int) -> bool:
        """The event was delivered here, or it is settled that it never will be."""
        at, upto = self.T[ticket]
        if inc == at:
            return seq <= upto
        if inc > at:
            return seq == 0
        return not self.exact or inc < self.floor[ticket] or seq <= self.tails.get((ticket, inc), 0)

    def ready(self, deps: Sequence[Entry], orphans: Sequence[Orphan] = ()) -> bool:
        """Nothing of these dependencies is missing: the causal check, once per frame."""
        if not all(map(le, deps, self.T)):
            return False
        if self.exact:
            for ticket, (dep, now) in enumerate(zip(deps, self.T, strict=True)):
                if dep[0] != now[0] and not self.has(ticket, *dep):
                    return False
            return all(self.has(*orphan) for orphan in orphans)
        return True

    def missing_of(self, ticket: int, inc: int, seq: int) -> Range | None:
        """What is missing up to this event. A newer tenure is missing from its first event on; what its first frame
        closes over is known when that frame is here."""
        if self.has(ticket, inc, seq):
            return None
        at, upto = self.T[ticket]
        if inc == at:
            return (ticket, inc, upto + 1, seq)
        return (ticket, inc, (self.tails.get((ticket, inc), 0) if inc < at else 0) + 1, seq)

    def missing(self, deps: Iterable[Entry], orphans: Iterable[Orphan] = ()) -> list[Range]:
        """`{<i,s> : T[i] < s <= t_e[i]}` as ranges (docs/protocols.md, "The model in words")."""
        exact = self.exact
        wanted = [
            (ticket, *dep)
            for ticket, (dep, now) in enumerate(zip(deps, self.T, strict=True))
            if dep > now or (exact and dep[0] != now[0])
        ]
        if exact:
            wanted.extend(orphans)
        return [r for w in wanted if (r := self.missing_of(*w)) is not None]

    def advance(self, ticket: int, inc: int, last: int, closes: Entry) -> None:
        """The frame that ends at `(inc, last)` is delivered; `closes` is its `deps[ticket]`."""
        at, upto = self.T[ticket]
        if inc < at:  # an orphan, delivered after its successor tenure began
            self.tails[ticket, inc] = self.orphans[ticket, inc] = last
            self._prune(ticket)
            return
        self.T[ticket] = (inc, last)
        if inc == at:
            return
        if (at, upto) > closes:
            self.name(ticket, at, upto)
        elif closes[0] == at and self.orphans.get((ticket, at), MAX_SEQ) <= closes[1]:
            del self.orphans[ticket, at]  # named before this closure was known
        if self.exact and upto and at >= self.floor[ticket]:
            self.tails[ticket, at] = upto
        self._prune(ticket)

    def give_up(self, deps: Sequence[Entry], orphans: Sequence[Orphan] = ()) -> None:
        """Skip whatever of these dependencies is missing: `T[i] = max(T[i], t_e[i])` (deliver, CCC11 Algorithm 5). What
        is skipped is in the past of what is delivered next, so it has to be named to others; where a closure is not
        known, more is named than needed, which is safe."""
        for ticket, (inc, seq) in enumerate(deps):
            self.skip_to(ticket, inc, seq)
        for orphan in orphans if self.exact else ():
            self.skip_to(*orphan)

    def skip_to(self, ticket: int, inc: int, seq: int) -> None:
        """Skip what of this event and those before it is missing."""
        if self.has(ticket, inc, seq):
            return
        at, upto = self.T[ticket]
        if inc == at:
            self.T[ticket] = (inc, seq)
            return
        named = {key: last for key, last in self.orphans.items() if key[0] == ticket}
        self.settle(ticket, inc)  # all before it is skipped with it
        self.orphans.update(named)
        if inc > at:
            self.T[ticket] = (inc, seq)
            self.name(ticket, at, upto)
        else:
            self.tails[ticket, inc] = self.orphans[ticket, inc] = seq
        self._prune(ticket)

    def name(self, ticket: int, inc: int, last: int) -> None:
        """An event in the past of the next own frame that the frame's vector may not cover."""
        if last:
            self.orphans[ticket, inc] = max(last, self.orphans.get((ticket, inc), 0))
            self._prune(ticket)

    def _prune(self, ticket: int) -> None:
        """At most `MAX_TAILS` tenures of a ticket are remembered."""
        mine = sorted(inc for t, inc in self.tails if t == ticket)
        if len(mine) > self.MAX_TAILS:
            self.settle(ticket, mine[-self.MAX_TAILS])
        named = sorted(inc for t, inc in self.orphans if t == ticket)
        for inc in named[: -self.MAX_TAILS]:
            del self.orphans[ticket, inc]

    def settle(self, ticket: int, inc: int) -> None:
        """Forget tenures below `inc` (at most the present one), to bound memory: their late events are obsolete."""
        self.floor[ticket] = max(self.floor[ticket], inc)
        for table in (self.tails, self.orphans):
            for key in [k for k in table if k[0] == ticket and k[1] < inc]:
                del table[key]
