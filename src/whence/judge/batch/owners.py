"""Two owners of one ticket at one time, from `ticket` rows and from what was published under it.

A tenure is (ticket, incarnation) at a member: from its `owner` step to its `released` step. Who lost it, or died, was
the owner for as long as it acted as one: up to its last publish under it. (A stalled process notices the end of its
lease late; that it does nothing in between is what the lease is for.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from whence.judge.batch import kernel
from whence.judge.batch.coding import Coded
from whence.judge.findings import Finding
from whence.judge.promises import TWO_OWNERS


class Tenure(NamedTuple):
    """A member's time with a ticket."""

    ticket: int
    incarnation: str
    member: int
    start: int
    end: int
    lseq: int
    """Of the step by which it began."""
    first: int
    """The first row that publishes under it; -1: none."""
    last: int
    """The last one."""


_ID = r"^(?P<ticket>[0-9]+):(?P<incarnation>[^:@]*):(?P<seq>[0-9]+)@"


def two_owners(coded: Coded) -> list[Finding]:
    """All pairs of neighbouring tenures of a ticket that overlap, by the time they began."""
    by_ticket: dict[int, list[Tenure]] = {}
    for tenure in _tenures(coded):
        by_ticket.setdefault(tenure.ticket, []).append(tenure)
    found: list[Finding] = []
    for ticket in sorted(by_ticket):
        longest: Tenure | None = None
        owned: dict[str, Tenure] = {}
        for tenure in sorted(by_ticket[ticket], key=lambda x: (x.start, x.end, x.member)):
            same = owned.setdefault(tenure.incarnation, tenure)
            if same.member != tenure.member:  # one incarnation is one owner's, whenever
                found.append(_told(coded, same, tenure))
            elif longest is not None and _overlap(coded, longest, tenure):
                found.append(_told(coded, longest, tenure))
            if longest is None or tenure.end > longest.end:
                longest = tenure
    return found


def _told(coded: Coded, earlier: Tenure, later: Tenure) -> Finding:
    name, other = str(coded.members[later.member]), str(coded.members[earlier.member])
    last, first = (str(coded.events[int(coded.event[r])]) if r >= 0 else None for r in (earlier.last, later.first))
    said = (
        f"{other} owned ticket {earlier.ticket} as {earlier.incarnation} from {earlier.start} to {earlier.end} ns, "
        f"and {name} as {later.incarnation} from {later.start} to {later.end} ns"
    )
    seen = tuple(event for event in (last, first) if event is not None)
    return Finding(rule=TWO_OWNERS, member=name, step=later.lseq, event=first, witnesses=seen, sentence=said)


def _tenures(coded: Coded) -> list[Tenure]:
    published = _published(coded)
    tenures: dict[tuple[int, str, int], Tenure] = {}
    for m, lseq, t, ticket, reason in zip(*coded.tickets, strict=True):
        change, _, rest = (reason or "").partition(" ")
        incarnation = rest.partition(" ")[0]
        if ticket is None or change not in ("owner", "released"):
            continue
        key = (ticket, incarnation, m)
        first, last = published.get(key, (-1, -1))
        if change == "owner" and key not in tenures:
            end = max(t, _time(coded, last) if last >= 0 else t)
            tenures[key] = Tenure(ticket, incarnation, m, t, end, lseq, first, last)
        elif change == "released" and key in tenures:
            tenures[key] = tenures[key]._replace(end=max(t, tenures[key].end))
    for key, (first, last) in published.items():
        if key not in tenures:  # published under a ticket without a word of owning it
            start, end = _time(coded, first), _time(coded, last)
            tenures[key] = Tenure(*key, start, end, int(coded.lseq[first]), first, last)
    return list(tenures.values())


def _time(coded: Coded, step: int) -> int:
    return int(coded.t[coded.row[step]])


def _published(coded: Coded) -> dict[tuple[int, str, int], tuple[int, int]]:
    """(ticket, incarnation, member) -> the first and the last row that publish under it. Ids of another form are passed
    over."""
    rows = np.flatnonzero((coded.steps.kind == kernel.PUBLISH) & (coded.event >= 0))
    if not len(rows):
        return {}
    parts = pc.extract_regex(coded.events.take(coded.event[rows]), _ID)
    prefix = pc.binary_join_element_wise(
        pc.struct_field(parts, "ticket"), pc.struct_field(parts, "incarnation"), ":"
    ).dictionary_encode()
    tenure = prefix.indices.fill_null(-1).to_numpy().astype(np.int64)
    member = np.searchsorted(coded.steps.begin, rows, side="right") - 1
    key = np.where(tenure >= 0, tenure * len(coded.members) + member, -1)
    keys, first = np.unique(key, return_index=True)
    last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
    names = prefix.dictionary.to_pylist()
    out: dict[tuple[int, str, int], tuple[int, int]] = {}
    for k, a, b in zip(keys.tolist(), rows[first].tolist(), rows[last].tolist(), strict=True):
        if k >= 0:
            ticket, _, incarnation = names[k // len(coded.members)].partition(":")
            out[int(ticket), incarnation, k % len(coded.members)] = (a, b)
    return out


def _overlap(coded: Coded, earlier: Tenure, later: Tenure) -> bool:
    if earlier.member == later.member or later.start >= earlier.end:
        return False
    return not _knew_the_end(coded, earlier, later)


def _knew_the_end(coded: Coded, earlier: Tenure, later: Tenure) -> bool:
    """The later owner had delivered the last event of the earlier one when it began: clocks that differ can make the
    tenures look as if they overlapped, but the one did follow the other."""
    if earlier.last < 0:
        return False
    begin = coded.steps.begin
    mine = slice(int(begin[later.member]), int(begin[later.member + 1]))
    before = coded.lseq[mine] < later.lseq
    got = (coded.steps.kind[mine] == kernel.DELIVER) & (coded.event[mine] == coded.event[earlier.last])
    return bool((before & got).any())
