"""Two owners of one ticket at one time, from `ticket` rows and from what was published under the ticket.

A tenure is (ticket, incarnation) at a member: from its `owner` step to its `released` step. A member that lost the
ticket, or died, was the owner for as long as it acted as one: up to its last publish under it. (A stalled process
notices late that its lease has ended; that it does nothing in between is what the lease is for.)

The end of a tenure only moves on, so what overlaps once does so for good. It is reported once.

Where all processes read one clock and it is known when each was killed, `held` gives the stricter form: a member holds
the ticket until its trace says that it lost it, also if it publishes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from whence.audit.judge.causality import DeliveredState, UnitId
from whence.audit.judge.findings import Finding
from whence.audit.judge.promises import TWO_OWNERS
from whence.audit.trace import Row

ID: Final = r"^(?P<ticket>[0-9]+):(?P<incarnation>[^:@]*):(?P<seq>[0-9]+)@"
_ID: Final = re.compile(ID)


LASTS: Final = 1 << 62
"""The end of a tenure that has none in the trace."""


class ParsedId(NamedTuple):
    """An event id of a cluster with tickets, taken apart: `ticket:incarnation:seq@owner`."""

    ticket: int
    incarnation: str
    seq: int
    owner: str


def parse_id(event: str) -> ParsedId | None:
    """None: an id of another form."""
    found = _ID.match(event)
    return ParsedId(int(found[1]), found[2], int(found[3]), event[found.end() :]) if found else None


def owner_of(event: str | None) -> str | None:
    """Whose event this is, by its id: `ticket:incarnation:seq@owner`, or `owner/seq` without tickets."""
    if event is None:
        return None
    return event.partition("@")[2] or event.rpartition("/")[0] or None


def went_beyond(event: str, count: int, last: str | None) -> bool:
    """The owner of an id has published later numbers. `count`: events that it published; `last`: the last one under the
    same incarnation of the same ticket."""
    named = parse_id(event)
    if named is None:
        number = event.rpartition("/")[2]
        return count > 0 and number.isdecimal() and int(number) <= count
    other = parse_id(last) if last is not None else None
    return other is not None and other.seq > named.seq


class Holding(msgspec.Struct, array_like=True, gc=False):
    """A member's time with a ticket."""

    ticket: int
    incarnation: str
    member: str
    start: int
    """ns."""
    end: int
    step: int
    """The step by which it began."""
    owned: bool = True
    """The member said so; else it has only published."""
    first: str | None = None
    """The first event that was published in it."""
    last: str | None = None
    last_unit: UnitId | None = None
    knew: DeliveredState = msgspec.field(default_factory=DeliveredState)
    """What the member had delivered when the tenure began."""

    def __str__(self) -> str:
        return f"{self.member} as {self.incarnation} from {self.start} to {self.end} ns"


Pair = tuple[Holding, Holding]
"""The earlier and the later."""
Followed = Callable[[Holding, Holding], bool]
"""Whether the later owner began with the last event of the earlier one delivered: then the one did follow the other,
whatever their clocks say."""


def overlapping(tenures: Iterable[Holding], followed: Followed) -> Iterator[tuple[Holding, Holding]]:
    """Tenures of one ticket by two members at one time: the earlier and the later of each pair."""
    longest: Holding | None = None
    owned: dict[str, Holding] = {}
    for tenure in sorted(tenures, key=lambda t: (t.start, t.end, t.member)):
        same = owned.setdefault(tenure.incarnation, tenure)
        if same.member != tenure.member:  # one incarnation has one owner, at any time
            yield same, tenure
        elif longest is not None and _overlap(longest, tenure) and not followed(longest, tenure):
            yield longest, tenure
        if longest is None or tenure.end > longest.end:
            longest = tenure


def _overlap(earlier: Holding, later: Holding) -> bool:
    return earlier.member != later.member and later.start < earlier.end


def two_owners(earlier: Holding, later: Holding, vague: Callable[[str], bool] = lambda member: False) -> Finding:
    """In words. `vague`: steps of the member are missing, or the state that it began with is: what it did before, or
    whether it knew of the other, cannot be told. An incarnation with two owners is wrong whatever is missing."""
    both = () if earlier.incarnation == later.incarnation else (earlier, later)
    return Finding(
        rule=TWO_OWNERS,
        member=later.member,
        step=later.step,
        event=later.first,
        witnesses=tuple(event for event in (earlier.last, later.first) if event is not None),
        sentence=f"ticket {later.ticket} had two owners: {earlier}, and {later}",
        doubt=next((tenure.member for tenure in both if vague(tenure.member)), None),
    )


class Tenures(msgspec.Struct, array_like=True):
    """The tenures of one run of one cluster, as its rows come."""

    tenures: dict[tuple[int, str, str], Holding] = {}
    """Ticket, incarnation and member -> its tenure."""
    told: set[tuple[str, int]] = set()
    """(member, step) of the later tenures that were reported."""
    changed_tickets: set[int] = set()
    """Tickets whose tenures have changed since `overlaps` was asked."""

    def changed(self, row: Row, have: Callable[[str], DeliveredState]) -> None:
        """A `ticket` row. Its reason: `owner INCARNATION ...`, `released INCARNATION ...`, or something else. `have`:
        tells what a member has delivered by then."""
        change, _, rest = (row.reason or "").partition(" ")
        if row.ticket is None or change not in ("owner", "released"):
            return
        self.changed_tickets.add(row.ticket)
        key = (row.ticket, rest.partition(" ")[0], row.member)
        tenure = self.tenures.get(key)
        if change == "released":
            if tenure is not None:
                tenure.end = max(tenure.end, row.t_ns)
        elif tenure is None or not tenure.owned:
            new = self.tenures[key] = Holding(*key, row.t_ns, row.t_ns, row.lseq, knew=have(row.member))
            if tenure is not None:  # it has published before it said that it may
                new.end, new.first, new.last = max(row.t_ns, tenure.end), tenure.first, tenure.last
                new.last_unit = tenure.last_unit

    def published(self, row: Row, unit: UnitId | None, have: Callable[[str], DeliveredState]) -> None:
        """A `publish` row. Ids of another form are passed over."""
        event = row.event or ""
        named = parse_id(event)
        if named is None:
            return
        self.changed_tickets.add(named.ticket)
        key = (named.ticket, named.incarnation, row.member)
        tenure = self.tenures.get(key)
        if tenure is None:
            # without a word of owning the ticket, the tenure begins with its first publish
            tenure = Holding(*key, row.t_ns, row.t_ns, row.lseq, owned=False, knew=have(row.member))
            self.tenures[key] = tenure
        tenure.end, tenure.last, tenure.last_unit = max(tenure.end, row.t_ns), event, unit
        tenure.first = tenure.first or event

    def overlaps(self) -> list[Pair]:
        """The tenures that are now seen to overlap, each later one once."""
        found: list[Pair] = []
        for ticket in sorted(self.changed_tickets):
            for earlier, later in overlapping((t for t in self.tenures.values() if t.ticket == ticket), _followed):
                if (later.member, later.step) not in self.told:
                    self.told.add((later.member, later.step))
                    found.append((earlier, later))
        self.changed_tickets.clear()
        return found


def _followed(earlier: Holding, later: Holding) -> bool:
    return earlier.last_unit is not None and later.knew.has(earlier.last_unit)


def held(rows: Iterable[Row], killed: Mapping[str, int]) -> list[Holding]:
    """The tenures by one clock. Each begins with an `owner` row and ends with `lost` or `released`, or when its member
    left, crashed or was `killed` (member -> ns); otherwise it lasts."""
    tenures: list[Holding] = []
    open_: dict[tuple[str, int], Holding] = {}
    for row in sorted(rows, key=lambda row: (row.member, row.lseq)):
        change, _, rest = (row.reason or "").partition(" ")
        if row.kind == "ticket" and row.ticket is not None:
            key = (row.member, row.ticket)
            if change == "owner" and key not in open_:
                end = killed.get(row.member, LASTS)
                open_[key] = Holding(row.ticket, rest.partition(" ")[0], row.member, row.t_ns, end, row.lseq)
                tenures.append(open_[key])
            elif change in ("lost", "released") and key in open_:
                open_.pop(key).end = row.t_ns
        elif row.kind in ("leave", "crash"):
            for key in [key for key in open_ if key[0] == row.member]:
                open_.pop(key).end = row.t_ns
    return tenures


def held_twice(rows: Iterable[Row], killed: Mapping[str, int]) -> list[Finding]:
    """Two owners of one ticket at one instant of the one clock, whether or not they published."""
    of: dict[int, list[Holding]] = {}
    for tenure in held(rows, killed):
        of.setdefault(tenure.ticket, []).append(tenure)
    return [
        two_owners(earlier, later)
        for _, tenures in sorted(of.items())
        for earlier, later in overlapping(tenures, lambda earlier, later: False)
    ]
