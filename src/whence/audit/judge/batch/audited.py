"""One run of one cluster, judged: from coded rows to verdicts and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.audit.judge import findings
from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.coding import Coded, code
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs
from whence.audit.judge.batch.doubts import Publishers
from whence.audit.judge.batch.owners import two_owners
from whence.audit.judge.batch.verdicts import IN_ORDER, UNKNOWN, Losses, States, Verdicts, judge, losses, states
from whence.audit.judge.findings import MISSING_STEPS, OPEN_END, UNKNOWN_START, Doubt, Event, Finding
from whence.audit.judge.promises import SILENT, Verdict, promise


class Audited(NamedTuple):
    """A run of a cluster, and what was found in it."""

    coded: Coded
    past: kernel.Past
    found: Verdicts
    losses: Losses
    circles: int
    """How often members waited for each other in a circle: no execution leaves such a trace."""


def audited(coded: Coded, room: int = kernel.DENSE) -> Audited:
    """Judge a whole run. `room`: see `kernel.rebuild`."""
    a = _followed(coded, room)
    live_origin, agreement = coded.alive[coded.member_of], promise_agreement(coded.order)
    return a._replace(losses=losses(a.past, a.found.ends, coded.alive, coded.superseded, live_origin, agreement))


def promise_agreement(orders: list[str]) -> Bytes:
    """1 for each of these members whose order promises agreement."""
    return np.array([promise(order).agreement for order in orders], np.uint8)


def _followed(coded: Coded, room: int) -> Audited:
    """Rebuild the past and judge all members, but for what they lack at the end."""
    tokens = len(coded.tokens)
    past, early, circles = kernel.rebuild(coded.steps, coded.joins, tokens, coded.base, _to_follow(coded), room)
    found = judge(coded.steps, coded.joins, past, early, there(coded), states(tokens))
    return Audited(coded, past, found, _no_losses(coded), circles)


def apart(coded: Coded, past: kernel.Past, early: Bytes, taken: States) -> Audited:
    """Judge some members, given the past of all events and the states taken under tokens. What they lack at the end is
    not computed. `early`: see `kernel.rebuild`."""
    return Audited(coded, past, judge(coded.steps, coded.joins, past, early, there(coded), taken), _no_losses(coded), 0)


def there(coded: Coded) -> Bytes:
    """1 for each member with rows of its own."""
    return (np.diff(coded.steps.begin) > 0).astype(np.uint8)


def _to_follow(coded: Coded) -> Bytes:
    """The members whose steps others depend on: they publish, or give a state that is used."""
    out = np.zeros(len(coded.members), np.uint8)
    out[coded.member_of] = 1
    given = np.flatnonzero((coded.steps.kind == kernel.SNAPSHOT) & (coded.steps.what >= 0))
    out[members_of(coded, given)] = 1
    return out


def _no_losses(coded: Coded) -> Losses:
    zeros, none = np.zeros(len(coded.members), np.int64), np.empty(0, np.int32)
    return Losses(zeros, zeros, zeros, zeros, none, none, none)


def warm() -> None:
    """Compile the kernel, or load it from numba's cache on disk. The first time takes many seconds; workers on this
    machine then find it in the cache."""
    rows = [("join", None), ("publish", "0:1.0.1:1@a#1"), ("deliver", "0:1.0.1:1@a#1")]
    texts: dict[str, Any] = dict.fromkeys(("reason", "peer", "order", "token"), pa.nulls(3, pa.string()))
    table = pa.table(
        {
            "member": ["a#1"] * 3,
            "lseq": [0, 1, 2],
            "t_ns": [0, 1, 2],
            "kind": [kind for kind, _ in rows],
            "event": [event for _, event in rows],
            "ticket": pa.nulls(3, pa.int32()),
            **texts,
        }
    )
    audited(code(table))


def members_of(coded: Coded, rows: Longs) -> Ints:
    """The members of these rows."""
    return (np.searchsorted(coded.steps.begin, rows, side="right") - 1).astype(np.int32)


def broken(a: Audited, rows: Longs, member: Ints) -> NDArray[np.bool_]:
    """Which of these deliveries break what their member's order promises. A delivery of what nobody published breaks
    nothing where the publish may be missing in the trace (`doubts`)."""
    coded, verdict = a.coded, a.found.verdict[rows]
    forbids = np.zeros((len(coded.members), len(Verdict)), bool)
    for m, order in enumerate(coded.order):
        forbids[m, list(promise(order).forbids)] = True
    out: NDArray[np.bool_] = forbids[member, verdict]
    unknown = np.flatnonzero(verdict == UNKNOWN)
    if len(unknown):
        trace = Publishers(coded)
        out[unknown] &= [trace.doubt(int(event)) is None for event in coded.event[rows[unknown]]]
    return out


def doubts(a: Audited) -> list[Doubt]:
    """What cannot be judged because the traces of some members are not all here."""
    coded, trace = a.coded, Publishers(a.coded)
    rows = np.flatnonzero(a.found.verdict == UNKNOWN)
    count: Counter[tuple[str, str]] = Counter()
    for event, n in zip(*np.unique(coded.event[rows], return_counts=True), strict=True):
        doubt = trace.doubt(int(event))
        if doubt is not None:
            count[doubt] += int(n)
    for m in np.flatnonzero(coded.missing).tolist():
        count[str(coded.members[m]), MISSING_STEPS] += int(coded.missing[m])
    for finding in _of_owners(a):
        if finding.doubt is not None:
            count[finding.doubt, trace.why(finding.doubt)] += 1
    if not coded.apart:
        count.update(loss_doubts(everybody(a)))
    return [Doubt(member, why, n) for (member, why), n in sorted(count.items())]


def id_on(coded: Coded, row: int) -> str | None:
    """The event id on this step."""
    code = int(coded.event[row])
    return None if code < 0 else str(coded.events[code])


# -- findings


def found(a: Audited) -> list[Finding]:
    """Every broken promise; of some members of a run those that are theirs alone."""
    owners = (finding for finding in _of_owners(a) if finding.doubt is None)
    lost = () if a.coded.apart else of_losses(everybody(a))
    return [*_of_deliveries(a), *_of_drops(a), *lost, *_of_ids(a), *owners]


def _of_deliveries(a: Audited) -> Iterator[Finding]:
    coded = a.coded
    rows = np.flatnonzero(a.found.verdict > IN_ORDER)
    of = members_of(coded, rows)
    wrong = broken(a, rows, of)
    for row, m in zip(rows[wrong].tolist(), of[wrong].tolist(), strict=True):
        member, step = str(coded.members[m]), int(coded.lseq[row])
        verdict, cause = Verdict(int(a.found.verdict[row])), int(a.found.cause[row])
        if verdict == Verdict.UNKNOWN:
            yield findings.unknown(member, step, id_on(coded, row))
            continue
        event = _event(a, int(coded.steps.what[row]))
        if verdict == Verdict.DUPLICATE:
            yield findings.duplicate(member, step, event)
        elif verdict == Verdict.OVER_GAP:
            yield findings.skipped(member, step, event, _event(a, cause))
        else:
            rule = promise(coded.order[m]).forbids[verdict]
            yield findings.inverted(rule, member, step, event, _event(a, cause))


def _event(a: Audited, e: int) -> Event:
    """Event number e."""
    o = int(a.past.origin[e])
    name = str(a.coded.members[int(a.coded.member_of[o])])
    return Event(str(a.coded.events[int(a.coded.ids[e])]), name, e - int(a.past.base[o]) + 1)


def _of_drops(a: Audited) -> Iterator[Finding]:
    coded = a.coded
    for row, m in zip(coded.dropped.tolist(), members_of(coded, coded.dropped).tolist(), strict=True):
        yield findings.after_drop(str(coded.members[m]), int(coded.lseq[row]), str(id_on(coded, row)))


def _of_ids(a: Audited) -> Iterator[Finding]:
    coded = a.coded
    for row, m in zip(coded.reused.tolist(), members_of(coded, coded.reused).tolist(), strict=True):
        event = str(id_on(coded, row))
        used = f"the id {event.partition('@')[0]}"
        yield findings.reused(str(coded.members[m]), int(coded.lseq[row]), event, used)


def _of_owners(a: Audited) -> list[Finding]:
    return [] if a.coded.apart else two_owners(a.coded, a.found.ends)


class Everybody(NamedTuple):
    """All members of a run at its end."""

    members: pa.Array[Any]
    order: list[str]
    alive: Bytes
    missing: Longs
    """Steps of each member that are not here."""
    member_of: Ints
    ids: pa.Array[Any]
    past: kernel.Past
    ends: States
    losses: Losses
    complete: bool


def everybody(a: Audited) -> Everybody:
    """The members of a run that was judged as a whole."""
    c, ids = a.coded, a.coded.events.take(a.coded.ids)
    return Everybody(
        c.members, c.order, c.alive, c.missing, c.member_of, ids, a.past, a.found.ends, a.losses, c.complete
    )


def of_losses(a: Everybody) -> Iterator[Finding]:
    """What a reliable member lacks, and another has; and members that have nothing of others."""
    holders: _Holders | None = None
    for m, first, last in _lacking(a):
        if a.complete and not a.ends.vague[m]:
            holders = holders or _Holders(a)
            o = int(a.past.origin[first])
            origin = str(a.members[int(a.member_of[o])])
            event = Event(str(a.ids[first]), origin, first - int(a.past.base[o]) + 1)
            yield findings.missed(str(a.members[m]), event, last - first, holders.first(first))
    for m, events in _silent(a):
        if a.complete and not a.ends.vague[m]:
            yield findings.silent(str(a.members[m]), events)


def loss_doubts(a: Everybody) -> Counter[tuple[str, str]]:
    """Member and reason -> events that a reliable member may have delivered in a part of its trace that is not here;
    and 1 for a member that has nothing of others."""
    count: Counter[tuple[str, str]] = Counter()
    for m, n in [*((m, last - first + 1) for m, first, last in _lacking(a)), *((m, 1) for m, _ in _silent(a))]:
        if not a.complete or a.ends.vague[m]:
            count[str(a.members[m]), why_unsure(a, m)] += n
    return count


def why_unsure(a: Everybody, m: int) -> str:
    """What is the matter with the trace of a member of which not all is known."""
    return MISSING_STEPS if a.missing[m] else UNKNOWN_START if a.complete else OPEN_END


def _silent(a: Everybody) -> Iterator[tuple[int, int]]:
    """Live members without agreement that have nothing of others, and how many events the others have."""
    live = np.flatnonzero(a.alive)
    if not len(live) or not len(a.member_of):
        return
    most = np.zeros(len(a.member_of), np.int64)
    for m in live.tolist():
        origin, upto = _entries(a.ends, m)
        most[origin] = np.maximum(most[origin], upto)
    for m in live[a.ends.entries[live] <= 1].tolist():  # it has at most its own
        origin, _ = _entries(a.ends, m)
        events = int(most[a.member_of != m].sum())
        if events >= SILENT and not promise(a.order[m]).agreement and (a.member_of[origin] == m).all():
            yield m, events


def _entries(s: States, m: int) -> tuple[Ints, Ints]:
    """What member m has: of which origins, and up to which seq."""
    mine = slice(int(s.first[m]), int(s.first[m] + s.entries[m]))
    return s.origin[mine], s.upto[mine]


def _lacking(a: Everybody) -> Iterator[tuple[int, int, int]]:
    """Members whose order promises agreement, and the events (first, last) that they lack."""
    return zip(a.losses.member.tolist(), a.losses.first.tolist(), a.losses.last.tolist(), strict=True)


class _Holders:
    """Which live members have an event."""

    def __init__(self, a: Everybody) -> None:
        self._a, s = a, a.ends
        live = np.flatnonzero(a.alive)
        of = np.repeat(live, s.entries[live])
        entry = np.concatenate([np.empty(0, np.int64), *(np.arange(f, f + n) for f, n in _spans(s, live))])
        by = np.argsort(s.origin[entry], kind="stable")
        self._member, self._upto = of[by], s.upto[entry[by]]
        self._begin = np.searchsorted(s.origin[entry[by]], np.arange(len(a.member_of) + 1))

    def first(self, e: int) -> str | None:
        """One of them; None: nobody has it."""
        a, o = self._a, int(self._a.past.origin[e])
        mine = slice(int(self._begin[o]), int(self._begin[o + 1]))
        for m in self._member[mine][self._upto[mine] > e - a.past.base[o]].tolist():
            at = int(a.ends.at[m])
            if e not in a.ends.event[at : at + int(a.ends.size[m])]:
                return str(a.members[m])
        return None


def _spans(s: States, members: Longs) -> Iterator[tuple[int, int]]:
    return zip(s.first[members].tolist(), s.entries[members].tolist(), strict=True)
