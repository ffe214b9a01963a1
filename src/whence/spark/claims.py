"""Two owners of one ticket at one time, while a run goes on: the rule of `owners`, from a state that can be kept.

A tenure is (ticket, incarnation) at a member, from its `owner` step to its `released` step, or to its last publish. The
end of a tenure only moves on, so what overlaps once does so for good; it is told once.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

_ID: Final = re.compile(r"([0-9]+):([^:@]*):[0-9]+@")


class Claim(NamedTuple):
    """A violation that no delivery shows: a row of `violations` without run and cluster."""

    rule: str
    member: str
    lseq: int
    event: str | None
    detail: str
    witness: list[str]


class Tenure(msgspec.Struct, array_like=True):
    """A member's time with a ticket."""

    ticket: int
    incarnation: str
    member: str
    start: int
    end: int
    lseq: int
    """Of the step by which it began."""
    owned: bool
    """It said so; else it has only published."""
    knew: list[int]
    """What the member had delivered when it began: per origin all up to a seq ..."""
    lacked: list[tuple[int, int]]
    """... except these."""
    first: str | None = None
    """The first event that was published under it."""
    last: str | None = None
    last_unit: tuple[int, int] | None = None


class Known(NamedTuple):
    """Whose step it is, and what the member had delivered by then."""

    member: str
    lseq: int
    t: int
    X: list[int]
    lacked: list[tuple[int, int]]


class Owners:
    """The tenures of one run of one cluster."""

    def __init__(self) -> None:
        self.tenures: dict[tuple[int, str, str], Tenure] = {}
        self.told: dict[tuple[str, int], None] = {}
        self._newest: dict[int, tuple[int, str]] = {}  # ticket -> when its last tenure began, and whose it is

    def load(self, tenures: list[Tenure], told: list[tuple[str, int]]) -> None:
        """Take over what was written down."""
        self.tenures, self._newest, self.told = {}, {}, dict.fromkeys(told)
        for tenure in tenures:
            self._put(tenure)

    def _put(self, tenure: Tenure) -> None:
        self.tenures[tenure.ticket, tenure.incarnation, tenure.member] = tenure
        start, _ = self._newest.get(tenure.ticket, (tenure.start - 1, ""))
        if tenure.start >= start:
            self._newest[tenure.ticket] = tenure.start, tenure.member if tenure.start > start else ""

    def changed(self, ticket: int | None, reason: str | None, at: Known) -> list[Claim]:
        """A `ticket` row."""
        change, _, rest = (reason or "").partition(" ")
        if ticket is None or change not in ("owner", "released"):
            return []
        key = (ticket, rest.partition(" ")[0], at.member)
        tenure = self.tenures.get(key)
        if tenure is not None and (change == "released" or tenure.owned):
            tenure.end = max(tenure.end, at.t) if change == "released" else tenure.end
        elif change == "owner":
            new = Tenure(*key, at.t, at.t, at.lseq, True, at.X.copy(), at.lacked)
            if tenure is not None:  # it has published before it said that it may
                new.end, new.first, new.last = max(at.t, tenure.end), tenure.first, tenure.last
                new.last_unit = tenure.last_unit
            self._put(new)
        return self._check(ticket)

    def published(self, event: str, unit: tuple[int, int], at: Known) -> list[Claim]:
        """A `publish` row. Ids of another form are passed over."""
        named = _ID.match(event)
        if named is None:
            return []
        key = (int(named[1]), named[2], at.member)
        tenure, new = self.tenures.get(key), key not in self.tenures
        if tenure is None:
            tenure = Tenure(*key, at.t, at.t, at.lseq, False, at.X.copy(), at.lacked)
            self._put(tenure)
        tenure.end, tenure.last, tenure.last_unit = max(tenure.end, at.t), event, unit
        tenure.first = tenure.first or event
        # Whoever alone began last overlaps with nobody later, however long it goes on.
        return self._check(key[0]) if new or self._newest[key[0]] != (tenure.start, at.member) else []

    def _check(self, ticket: int) -> list[Claim]:
        mine = sorted(
            (t for t in self.tenures.values() if t.ticket == ticket), key=lambda t: (t.start, t.end, t.member)
        )
        found: list[Claim] = []
        longest: Tenure | None = None
        owned: dict[str, Tenure] = {}
        for tenure in mine:
            same = owned.setdefault(tenure.incarnation, tenure)
            if same.member != tenure.member:  # one incarnation is one owner's, whenever
                found += self._tell(same, tenure)
            elif longest is not None and _overlap(longest, tenure):
                found += self._tell(longest, tenure)
            if longest is None or tenure.end > longest.end:
                longest = tenure
        return found

    def _tell(self, earlier: Tenure, later: Tenure) -> list[Claim]:
        if (later.member, later.lseq) in self.told:
            return []
        self.told[later.member, later.lseq] = None
        detail = (
            f"{earlier.member} owned ticket {earlier.ticket} as {earlier.incarnation} from {earlier.start} to "
            f"{earlier.end} ns, and {later.member} as {later.incarnation} from {later.start} to {later.end} ns"
        )
        witness = [event for event in (earlier.last, later.first) if event is not None]
        return [Claim("two owners", later.member, later.lseq, later.first, detail, witness)]


def _overlap(earlier: Tenure, later: Tenure) -> bool:
    """Clocks that differ can make tenures look so; not when the later owner began with the last event of the earlier
    one delivered."""
    if earlier.member == later.member or later.start >= earlier.end:
        return False
    if earlier.last_unit is None:
        return True
    origin, seq = earlier.last_unit
    return not (origin < len(later.knew) and seq <= later.knew[origin] and (origin, seq) not in later.lacked)
