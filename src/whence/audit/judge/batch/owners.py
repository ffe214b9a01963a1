"""Two owners of one ticket at one time (`judge.tickets`), from coded rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from whence.audit.judge import tickets
from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.coding import Coded
from whence.audit.judge.batch.verdicts import States
from whence.audit.judge.findings import Finding
from whence.audit.judge.tickets import Holding, Pair

_ID = r"^(?P<ticket>[0-9]+):(?P<incarnation>[^:@]*):(?P<seq>[0-9]+)@"


Key = tuple[int, str, str]
"""Ticket, incarnation, member."""


def two_owners(coded: Coded, ends: States) -> list[Finding]:
    """All pairs of tenures that overlap in a run, by ticket and by the time they began."""
    vague = zip(coded.members.to_pylist(), ends.vague.tolist(), strict=False)
    pairs = overlaps(tenures(coded))
    return wrong(pairs, set(known_end(coded, pairs)), {str(name) for name, unclear in vague if unclear})


def overlaps(all_: Iterable[Holding]) -> list[Pair]:
    """The tenures that overlap by the clocks of their owners."""
    by_ticket: dict[int, list[Holding]] = {}
    for tenure in all_:
        by_ticket.setdefault(tenure.ticket, []).append(tenure)
    return [
        pair
        for ticket in sorted(by_ticket)
        for pair in tickets.overlapping(by_ticket[ticket], lambda one, other: False)
    ]


def known_end(coded: Coded, pairs: list[Pair]) -> list[int]:
    """Which of these pairs do not overlap: the later owner, whose steps are here, began with the last event of the
    earlier one delivered. (An incarnation has one owner, whatever that one knew.)"""
    found = []
    for k, (earlier, later) in enumerate(pairs):
        m = pc.index(coded.members, later.member).as_py()
        if m < 0 or earlier.last is None or earlier.incarnation == later.incarnation:
            continue
        mine = slice(int(coded.steps.begin[m]), int(coded.steps.begin[m + 1]))
        event = pc.index(coded.events, earlier.last).as_py()
        got = (coded.steps.kind[mine] == kernel.DELIVER) & (coded.event[mine] == event) & (event >= 0)
        if (got & (coded.lseq[mine] < later.step)).any():
            found.append(k)
    return found


def wrong(pairs: list[Pair], known: set[int], vague: set[str]) -> list[Finding]:
    """What these pairs tell. `known`: see `known_end`; `vague`: members whose traces are not all here."""
    return [
        tickets.two_owners(earlier, later, tickets.doubtful(earlier, later, vague.__contains__))
        for k, (earlier, later) in enumerate(pairs)
        if k not in known
    ]


def tenures(coded: Coded) -> list[Holding]:
    """The tenures of these members."""
    published = published_under(coded)
    found: dict[Key, Holding] = {}
    for m, step, t, ticket, reason in zip(*coded.tickets, strict=True):
        change, _, rest = (reason or "").partition(" ")
        if ticket is None or change not in ("owner", "released"):
            continue
        key = (ticket, rest.partition(" ")[0], str(coded.members[m]))
        if change == "owner" and key not in found:
            found[key] = Holding(*key, t, t, step)
        elif change == "released" and key in found:
            found[key].end = max(t, found[key].end)
    for key, (first, last) in published.items():
        start, end = (int(coded.t[coded.row[step]]) for step in (first, last))
        # Without a word of owning the ticket, the tenure begins with its first publish.
        tenure = found.setdefault(key, Holding(*key, start, end, int(coded.lseq[first]), owned=False))
        tenure.end = max(tenure.end, end)
        tenure.first, tenure.last = (str(coded.events[int(coded.event[step])]) for step in (first, last))
    return list(found.values())


def published_under(coded: Coded) -> dict[Key, tuple[int, int]]:
    """(ticket, incarnation, member) -> the first and the last row that publish under it. Ids of another form are
    passed over."""
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
    out: dict[Key, tuple[int, int]] = {}
    for k, a, b in zip(keys.tolist(), rows[first].tolist(), rows[last].tolist(), strict=True):
        if k >= 0:
            ticket, _, incarnation = names[k // len(coded.members)].partition(":")
            out[int(ticket), incarnation, str(coded.members[k % len(coded.members)])] = (a, b)
    return out
