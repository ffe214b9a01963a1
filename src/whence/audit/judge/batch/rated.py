"""The error rate of a run of a cluster (`judge.rates`), from its verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from whence.audit.judge.batch.audited import Audited, Everybody, members_of, why_unsure
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.verdicts import DUPLICATE, FIFO_INVERTED, INVERTED, UNKNOWN
from whence.audit.judge.findings import Doubt, Finding, too_many
from whence.audit.judge.promises import promise
from whence.audit.judge.rates import ABOVE, Rate, rate


class Sample(NamedTuple):
    """Deliveries at members that promise a rate."""

    members: int
    deliveries: int
    """Of events of others, the first time."""
    event: Ints
    """The events that are inverted somewhere, once each, ..."""
    inverted: Longs
    """... and at how many members."""


def sample(a: Audited) -> Sample:
    """The deliveries of these members."""
    coded, found = a.coded, a.found.verdict
    held = np.array([promise(order).rate for order in coded.order], bool)
    held &= np.diff(coded.steps.begin) > 0
    if not held.any():
        return Sample(0, 0, np.empty(0, np.int32), np.empty(0, np.int64))
    rows = np.flatnonzero((found >= 0) & (found != DUPLICATE) & (found != UNKNOWN))
    of = members_of(coded, rows)
    rows, of = rows[held[of]], of[held[of]]
    others = rows[coded.member_of[a.past.origin[coded.steps.what[rows]]] != of]
    wrong = others[np.isin(found[others], (INVERTED, FIFO_INVERTED))]
    event, inverted = np.unique(coded.steps.what[wrong], return_counts=True)
    return Sample(int(held.sum()), len(others), event, inverted)


def judged(
    samples: Iterable[Sample], a: Everybody, doubts: list[Doubt], allowed: float | None
) -> tuple[list[Rate], list[Doubt]]:
    """The rate of all these together, if it is said what is allowed and there are members that promise one; and the
    doubts about the run, with those about the rate. `doubts`: the others. Where anything about the run is in doubt, the
    rate is."""
    samples = [] if allowed is None else list(samples)
    members = sum(s.members for s in samples)
    if allowed is None or not members:
        return [], doubts
    count: Counter[tuple[str, str]] = Counter({(d.member, d.why): d.count for d in doubts})
    unsure = [
        m
        for m, order in enumerate(a.order)
        if a.missing[m] or a.ends.vague[m] or (a.alive[m] and not a.complete and promise(order).rate)
    ]
    count.update(dict.fromkeys({*count, *((str(a.members[m]), why_unsure(a, m)) for m in unsure)}, 1))
    event = np.concatenate([s.event for s in samples])
    _, which = np.unique(event, return_inverse=True)
    inverted = np.bincount(which, np.concatenate([s.inverted for s in samples])).astype(np.int64)
    squares = int((inverted * inverted).sum())
    found = rate(members, sum(s.deliveries for s in samples), int(inverted.sum()), squares, allowed, bool(count))
    return [found], [Doubt(member, why, n) for (member, why), n in sorted(count.items())]


def wrong(rates: Iterable[Rate]) -> list[Finding]:
    """Those of them that are above what is allowed."""
    return [too_many(str(rate)) for rate in rates if rate.outcome == ABOVE]
