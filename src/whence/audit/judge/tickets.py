"""Two owners of one ticket at one time, from `ticket` rows and from what was published under the ticket.

A tenure is (ticket, incarnation) at a member: from its `owner` step to its `released` step. A member that lost the
ticket, or died, was the owner for as long as it acted as one: up to its last publish under it. (A stalled process
notices late that its lease has ended; that it does nothing in between is what the lease is for.)

The end of a tenure only moves on, so what overlaps once does so for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from whence.audit.judge.findings import Finding
from whence.audit.judge.promises import TWO_OWNERS
from whence.audit.trace import Row

ID: Final = r"^(?P<ticket>[0-9]+):(?P<incarnation>[^:@]*):(?P<seq>[0-9]+)@"
_ID: Final = re.compile(ID)


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


class Holding(msgspec.Struct, gc=False):
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

    def __str__(self) -> str:
        return f"{self.member} as {self.incarnation} from {self.start} to {self.end} ns"


Pair = tuple[Holding, Holding]
"""The earlier and the later."""


def overlapping(tenures: Iterable[Holding]) -> Iterator[Pair]:
    """Tenures of one ticket by two members at one time. Where the later owner began with the last event of the earlier
    one delivered, the one did follow the other, whatever their clocks say: the caller has to see to that."""
    longest: Holding | None = None
    owned: dict[str, Holding] = {}
    for tenure in sorted(tenures, key=lambda t: (t.start, t.end, t.member)):
        same = owned.setdefault(tenure.incarnation, tenure)
        if same.member != tenure.member:  # one incarnation has one owner, at any time
            yield same, tenure
        elif longest is not None and _overlap(longest, tenure):
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


class Tenures(msgspec.Struct):
    """The tenures of one run of one cluster, as its rows come."""

    tenures: dict[tuple[int, str, str], Holding] = {}
    """Ticket, incarnation and member -> its tenure."""

    def changed(self, row: Row) -> None:
        """A `ticket` row. Its reason: `owner INCARNATION ...`, `released INCARNATION ...`, or something else."""
        change, _, rest = (row.reason or "").partition(" ")
        if row.ticket is None or change not in ("owner", "released"):
            return
        key = (row.ticket, rest.partition(" ")[0], row.member)
        tenure = self.tenures.get(key)
        if change == "released":
            if tenure is not None:
                tenure.end = max(tenure.end, row.t_ns)
        elif tenure is None or not tenure.owned:
            new = self.tenures[key] = Holding(*key, row.t_ns, row.t_ns, row.lseq)
            if tenure is not None:  # it has published before it said that it may
                new.end, new.first, new.last = max(row.t_ns, tenure.end), tenure.first, tenure.last

    def published(self, row: Row) -> None:
        """A `publish` row. Ids of another form are passed over."""
        event = row.event or ""
        named = parse_id(event)
        if named is None:
            return
        key = (named.ticket, named.incarnation, row.member)
        tenure = self.tenures.get(key)
        if tenure is None:  # without a word of owning the ticket, the tenure begins with its first publish
            tenure = self.tenures[key] = Holding(*key, row.t_ns, row.t_ns, row.lseq, owned=False)
        tenure.end, tenure.last = max(tenure.end, row.t_ns), event
        tenure.first = tenure.first or event
