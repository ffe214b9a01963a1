"""Two owners of one ticket at one time (`judge.tickets`), from coded rows."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from whence.judge import tickets
from whence.judge.batch import kernel
from whence.judge.batch.coding import Coded
from whence.judge.batch.verdicts import States
from whence.judge.findings import Finding
from whence.judge.tickets import Holding

_ID = r"^(?P<ticket>[0-9]+):(?P<incarnation>[^:@]*):(?P<seq>[0-9]+)@"


Key = tuple[int, str, str]
"""Ticket, incarnation, member."""


def two_owners(coded: Coded, ends: States) -> list[Finding]:
    """All pairs of tenures that overlap, by ticket and by the time they began."""
    names = coded.members.to_pylist()
    vague = {str(name) for name, unclear in zip(names, ends.vague.tolist(), strict=False) if unclear}
    by_ticket: dict[int, list[Holding]] = {}
    for tenure in _tenures(coded):
        by_ticket.setdefault(tenure.ticket, []).append(tenure)

    def followed(earlier: Holding, later: Holding) -> bool:
        """The later owner began with the last event of the earlier one delivered."""
        if earlier.last is None:
            return False
        m, event = pc.index(coded.members, later.member).as_py(), pc.index(coded.events, earlier.last).as_py()
        mine = slice(int(coded.steps.begin[m]), int(coded.steps.begin[m + 1]))
        got = (coded.steps.kind[mine] == kernel.DELIVER) & (coded.event[mine] == event)
        return bool((got & (coded.lseq[mine] < later.step)).any())

    return [
        tickets.two_owners(earlier, later, tickets.doubtful(earlier, later, vague.__contains__))
        for ticket in sorted(by_ticket)
        for earlier, later in tickets.overlapping(by_ticket[ticket], followed)
    ]


def _tenures(coded: Coded) -> list[Holding]:
    published = published_under(coded)
    tenures: dict[Key, Holding] = {}
    for m, step, t, ticket, reason in zip(*coded.tickets, strict=True):
        change, _, rest = (reason or "").partition(" ")
        if ticket is None or change not in ("owner", "released"):
            continue
        key = (ticket, rest.partition(" ")[0], str(coded.members[m]))
        if change == "owner" and key not in tenures:
            tenures[key] = Holding(*key, t, t, step)
        elif change == "released" and key in tenures:
            tenures[key].end = max(t, tenures[key].end)
    for key, (first, last) in published.items():
        start, end = (int(coded.t[coded.row[step]]) for step in (first, last))
        # Without a word of owning the ticket, the tenure begins with its first publish.
        tenure = tenures.setdefault(key, Holding(*key, start, end, int(coded.lseq[first]), owned=False))
        tenure.end = max(tenure.end, end)
        tenure.first, tenure.last = (str(coded.events[int(coded.event[step])]) for step in (first, last))
    return list(tenures.values())


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
