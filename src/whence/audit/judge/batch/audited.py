"""Runs of clusters, judged: from coded rows to findings and doubts. A finding comes with the number of its run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whence.audit.judge import findings, tickets
from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.coding import Coded, code, codes
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs
from whence.audit.judge.batch.rates import ABOVE, Rate, rate
from whence.audit.judge.findings import MISSING_STEPS, EventName, Finding, why
from whence.audit.judge.promises import SILENT, Verdict, promise
from whence.audit.judge.sequence import OneSequence
from whence.audit.judge.tickets import Holding, Pair, Tenures, owner_of, parse_id, went_beyond
from whence.audit.trace import Row

Found = tuple[int, Finding]
"""The run's number, and what is wrong in it."""
Doubts = Counter[tuple[int, str, str]]
"""Run, member and reason -> how much cannot be judged."""


class Audited(NamedTuple):
    """Runs, and what was found in them."""

    coded: Coded
    found: kernel.Outcome
    lacks: Ints
    """Rows of `kernel.LACKS`."""
    owners: list[Found]
    """Two owners of one ticket at one time, also where that is in doubt."""


def audited(coded: Coded, room: int = kernel.ROOM) -> Audited:
    """Judge whole runs. `room`: see `kernel.ROOM`."""
    found, lacks = kernel.judged(
        coded.steps, coded.joins, coded.known, coded.parts, coded.member_of, to_follow(coded), coded.there(),
        coded.alive, coded.superseded, agreement(coded.order), kernel.cell(coded.known.base), room,
    )  # fmt: skip
    return Audited(coded, found, lacks, _of_owners(coded, found.vague))


def agreement(orders: list[str]) -> Bytes:
    """1 for each of these members whose order promises agreement."""
    return np.array([promise(order).agreement for order in orders], np.uint8)


def to_follow(coded: Coded) -> Bytes:
    """The members whose steps others depend on: they publish, or give a state that is used."""
    out = np.zeros(len(coded.members), np.uint8)
    out[coded.member_of] = 1
    out[coded.members_of(np.flatnonzero((coded.steps.kind == kernel.SNAPSHOT) & (coded.steps.what >= 0)))] = 1
    return out


def warm() -> None:
    """Compile the kernel, or load it from numba's cache on disk. The first time takes many seconds; workers on this
    machine then find it in the cache."""
    names = ["member", "lseq", "t_ns", "kind", "event"]
    rows = pa.table([["a#1"] * 2, [0, 1], [0, 1], ["publish", "deliver"], ["a#1/1"] * 2], names=names)
    for name in ("ticket", "reason", "peer", "order", "token"):
        rows = rows.append_column(name, pa.nulls(2, pa.string()))
    audited(code(rows))


def broken(a: Audited, rows: Longs, member: Ints) -> NDArray[np.bool_]:
    """Which of these deliveries break what their member's order promises. A delivery of what nobody published breaks
    nothing where the publish may be missing in the trace (`doubts`)."""
    coded, verdict = a.coded, a.found.verdict[rows]
    order_of, orders = codes(pa.array(coded.order, pa.string()))
    forbids = np.zeros((len(orders), len(Verdict)), bool)
    for k, order in enumerate(orders.to_pylist()):
        forbids[k, list(promise(order).forbids)] = True
    out: NDArray[np.bool_] = forbids[order_of[member], verdict]
    unknown = np.flatnonzero(verdict == kernel.UNKNOWN)
    if len(unknown):
        trace = _Publishers(coded)
        out[unknown] &= [trace.doubt(int(event)) is None for event in coded.event[rows[unknown]]]
    return out


def id_on(coded: Coded, row: int) -> str | None:
    """The event id on this step."""
    code = int(coded.event[row])
    return None if code < 0 else str(coded.events[code])


# -- what cannot be judged


def doubts(a: Audited) -> Doubts:
    """What cannot be judged because the traces of some members are not all here."""
    coded, trace = a.coded, _Publishers(a.coded)
    count: Doubts = Counter()
    rows = np.flatnonzero(a.found.verdict == kernel.UNKNOWN)
    for event, n in zip(*np.unique(coded.event[rows], return_counts=True), strict=True):
        doubt = trace.doubt(int(event))
        if doubt is not None:
            count[doubt] += int(n)
    for m in np.flatnonzero(coded.missing).tolist():
        count[int(coded.run_of[m]), str(coded.members[m]), MISSING_STEPS] += int(coded.missing[m])
    for run, finding in a.owners:
        if finding.doubt is not None:
            count[run, finding.doubt, trace.why(run, finding.doubt)] += 1
    return count if coded.apart else count + loss_doubts(a)


class _Publishers:
    """Whether the publish of an event may be missing in the trace: of a trace that is not all here."""

    def __init__(self, coded: Coded) -> None:
        self._coded = coded
        self._origin = {m: o for o, m in enumerate(coded.member_of.tolist())}
        self._member = cache(coded.member)
        self._doubts: dict[int, tuple[int, str, str] | None] = {-1: None}

    def doubt(self, code: int) -> tuple[int, str, str] | None:
        """The run and the member in whose trace the publish of this id may be missing, and why; None: nobody has
        published it."""
        if code not in self._doubts:
            self._doubts[code] = self._judged(code)
        return self._doubts[code]

    def _judged(self, code: int) -> tuple[int, str, str] | None:
        coded, event = self._coded, str(self._coded.events[code])
        owner = owner_of(event) or findings.NOBODY
        run = int(np.searchsorted(coded.first_id, code, side="right")) - 1
        m = self._member(run, owner)
        over = coded.complete or (m >= 0 and (coded.closed[m] or self._went_beyond(event, m)))
        if over and (m < 0 or not coded.torn[m]):
            return None
        return run, owner, self.why(run, owner)

    def why(self, run: int, member: str) -> str:
        m, coded = self._member(run, member), self._coded
        return why(m >= 0, m >= 0 and bool(coded.torn[m]), coded.complete or (m >= 0 and bool(coded.closed[m])))

    def _went_beyond(self, event: str, owner: int) -> bool:
        """The owner has published later numbers: this one is not in a part of its trace that was cut off."""
        coded, o = self._coded, self._origin.get(owner)
        first, end = coded.known.base[o : o + 2].tolist() if o is not None else (0, 0)
        named, last = parse_id(event), None
        if named is not None:
            mine = (str(coded.events[int(coded.ids[e])]) for e in range(end - 1, first - 1, -1))
            last = next((other for other in mine if (parse_id(other) or ())[:2] == named[:2]), None)
        return went_beyond(event, end - first, last)


# -- findings


def found(a: Audited) -> list[Found]:
    """Every broken promise; in a piece of a run only those that do not depend on other members."""
    others = () if a.coded.apart else (*of_steps(a), *of_losses(a), *_of_sequences(a))
    owners = (one for one in a.owners if one[1].doubt is None)
    return [*_of_deliveries(a), *_of_drops(a), *others, *owners]


def _at(coded: Coded, rows: Longs) -> Iterator[tuple[int, int, int, str]]:
    """These steps: row, run, member and its name."""
    of = coded.members_of(rows)
    for row, m in zip(rows.tolist(), of.tolist(), strict=True):
        yield row, int(coded.run_of[m]), m, str(coded.members[m])


def _of_deliveries(a: Audited) -> Iterator[Found]:
    coded = a.coded
    rows = np.flatnonzero(a.found.verdict > kernel.IN_ORDER)
    for row, run, m, member in _at(coded, rows[broken(a, rows, coded.members_of(rows))]):
        step, verdict, cause = int(coded.lseq[row]), Verdict(int(a.found.verdict[row])), int(a.found.cause[row])
        if verdict == Verdict.UNKNOWN:
            yield run, findings.unknown(member, step, id_on(coded, row))
            continue
        rule = promise(coded.order[m]).forbids[verdict]
        event = _event(a, int(coded.steps.what[row]))
        yield run, findings.of_delivery(rule, member, step, verdict, event, _event(a, cause))


def _event(a: Audited, e: int) -> EventName:
    """Event number e."""
    o = int(a.coded.known.origin[e])
    name = str(a.coded.members[int(a.coded.member_of[o])])
    return EventName(str(a.coded.events[int(a.coded.ids[e])]), name, e - int(a.coded.known.base[o]) + 1)


def _of_drops(a: Audited) -> Iterator[Found]:
    """Deliveries of what the member has dropped."""
    for row, run, _, member in _at(a.coded, a.coded.dropped[a.found.verdict[a.coded.dropped] >= 0]):
        yield run, findings.after_drop(member, int(a.coded.lseq[row]), str(id_on(a.coded, row)))


def of_steps(a: Audited) -> Iterator[Found]:
    """Ids that are used once more, and steps that wait for what waits for them."""
    joins = np.flatnonzero(a.coded.steps.kind == kernel.JOIN)
    unmet = joins[a.found.unmet[a.coded.steps.what[joins]] == 1]
    told = (a.coded.reused, findings.reused), (np.flatnonzero(a.found.early), findings.impossible)
    for rows, say in (*told, (unmet, lambda member, step, event: findings.impossible(member, step, None))):
        for row, run, _, member in _at(a.coded, rows):
            yield run, say(member, int(a.coded.lseq[row]), str(id_on(a.coded, row)))


def _of_sequences(a: Audited) -> Iterator[Found]:
    """Where a member in total order differs from another one for the first time."""
    coded, of_run = a.coded, defaultdict[int, OneSequence](OneSequence)
    for m in np.flatnonzero([promise(order).sequence for order in coded.order]).tolist():
        begin, end = coded.steps.begin[m : m + 2].tolist()
        run, member = int(coded.run_of[m]), str(coded.members[m])
        for row in (begin + np.flatnonzero(coded.steps.kind[begin:end] == kernel.DELIVER)).tolist():
            split = of_run[run].delivered(m, int(coded.event[row]))
            if split is not None:
                event, beside, other = (
                    str(coded.events[c]) for c in (int(coded.event[row]), split.beside, split.other)
                )
                who, step = str(coded.members[split.who]), int(coded.lseq[row])
                yield run, findings.disorder(member, step, event, beside, other, who, split.after)


# -- what members lack


def of_losses(a: Audited) -> Iterator[Found]:
    """What a reliable member lacks, and another has; and members that have nothing of others."""
    coded = a.coded
    for m, first, last, there in a.lacks.tolist():
        if coded.complete and not a.found.vague[m]:
            told = findings.missed(str(coded.members[m]), _event(a, first), last - first, bool(there))
            yield int(coded.run_of[m]), told
    for m, events in _silent(a):
        if coded.complete and not a.found.vague[m]:
            yield int(coded.run_of[m]), findings.silent(str(coded.members[m]), events)


def loss_doubts(a: Audited) -> Doubts:
    """Events that a reliable member may have delivered in a part of its trace that is not here; and 1 for a member that
    has nothing of others."""
    count: Doubts = Counter()
    lacking = ((m, last - first + 1) for m, first, last, _ in a.lacks.tolist())
    for m, n in [*lacking, *((m, 1) for m, _ in _silent(a))]:
        if not a.coded.complete or a.found.vague[m]:
            count[_unsure(a, m)] += n
    return count


def _unsure(a: Audited, m: int) -> tuple[int, str, str]:
    """A member of whose trace not all is known, and what is the matter with it."""
    coded = a.coded
    return int(coded.run_of[m]), str(coded.members[m]), why(True, bool(coded.missing[m]), coded.complete)


def _silent(a: Audited) -> Iterator[tuple[int, int]]:
    """Live members without agreement that have nothing of others, and how many events the others have."""
    coded, most = a.coded, a.found.most
    deaf = np.flatnonzero((coded.alive == 1) & (a.found.heard == 0))
    total = np.bincount(coded.run_of[coded.member_of], most, minlength=len(coded.runs))
    own = np.zeros(len(coded.alive), np.int64)
    own[coded.member_of] = most
    for m in deaf.tolist():
        events = int(total[coded.run_of[m]]) - int(own[m])
        if events >= SILENT and not promise(coded.order[m]).agreement:
            yield m, events


# -- two owners of one ticket at one time (`judge.tickets`)


def _of_owners(coded: Coded, vague: Bytes) -> list[Found]:
    """All pairs of tenures that overlap in a run, by ticket and by the time they began. `vague`: see `kernel`."""
    every = overlaps(tenures(coded))
    unsure = {(int(coded.run_of[m]), str(coded.members[m])) for m in np.flatnonzero(vague).tolist()}
    return [*overlapped(every, set(known_end(coded, every)), unsure)]


def overlaps(all_: Iterable[tuple[int, Holding]]) -> list[tuple[int, Pair]]:
    """The tenures of each run that overlap by the clocks of their owners."""
    by_ticket: dict[tuple[int, int], list[Holding]] = {}
    for run, tenure in all_:
        by_ticket.setdefault((run, tenure.ticket), []).append(tenure)
    return [(key[0], pair) for key in sorted(by_ticket) for pair in tickets.overlapping(by_ticket[key])]


def known_end(coded: Coded, pairs: list[tuple[int, Pair]]) -> list[int]:
    """Which of these pairs do not overlap: the later owner, whose steps are here, began with the last event of the
    earlier one delivered. (An incarnation has one owner, whatever that one knew.)"""
    found = []
    for k, (run, (earlier, later)) in enumerate(pairs):
        m = coded.member(run, later.member)
        if m < 0 or earlier.last is None or earlier.incarnation == later.incarnation:
            continue
        mine = slice(int(coded.steps.begin[m]), int(coded.steps.begin[m + 1]))
        first, end = coded.first_id[run : run + 2].tolist()
        event = pc.index(coded.events.slice(first, end - first), earlier.last).as_py()
        got = (coded.steps.kind[mine] == kernel.DELIVER) & (coded.event[mine] == first + event) & (event >= 0)
        if (got & (coded.lseq[mine] < later.step)).any():
            found.append(k)
    return found


def overlapped(pairs: list[tuple[int, Pair]], known: set[int], vague: set[tuple[int, str]]) -> Iterator[Found]:
    """What these pairs tell. `known`: see `known_end`; `vague`: members whose traces are not all here."""
    unsure: dict[int, set[str]] = {}
    for run, member in vague:
        unsure.setdefault(run, set()).add(member)
    for k, (run, (earlier, later)) in enumerate(pairs):
        if k not in known:
            yield run, tickets.two_owners(earlier, later, unsure.get(run, set()).__contains__)


def tenures(coded: Coded) -> list[tuple[int, Holding]]:
    """The tenures of these members. Who knew of the end of which is found where they overlap (`known_end`)."""
    found = defaultdict[int, Tenures](Tenures)
    for m, row in coded.tickets:
        found[int(coded.run_of[m])].changed(row)
    steps = _first_and_last(coded)
    for step, m in zip(steps.tolist(), coded.members_of(steps).tolist(), strict=True):
        lseq, t = int(coded.lseq[step]), int(coded.t[coded.row[step]])
        row = Row("", "", str(coded.members[m]), lseq, t, "publish", id_on(coded, step))
        found[int(coded.run_of[m])].published(row)
    return [(run, tenure) for run, mine in found.items() for tenure in mine.tenures.values()]


def _first_and_last(coded: Coded) -> Longs:
    """The first and the last publish of each member under each incarnation of each ticket."""
    rows = np.flatnonzero((coded.steps.kind == kernel.PUBLISH) & (coded.event >= 0))
    parts = pc.extract_regex(coded.events.take(coded.event[rows]), tickets.ID)
    ticket, incarnation = (pc.struct_field(parts, name) for name in ("ticket", "incarnation"))
    under, _ = codes(pc.binary_join_element_wise(ticket, incarnation, ":"))
    rows, under = rows[under >= 0], under[under >= 0]
    key = under.astype(np.int64) * len(coded.members) + coded.members_of(rows)
    first, last = (np.unique(keys, return_index=True)[1] for keys in (key, key[::-1]))
    return np.union1d(rows[first], rows[::-1][last])


# -- error rates (`rates`)


class Sample(NamedTuple):
    """Deliveries at members that promise a rate."""

    members: int
    deliveries: int
    """Of events of others, the first time."""
    event: Ints
    """The events that are inverted somewhere, once each, ..."""
    inverted: Longs
    """... and at how many members."""


def samples(a: Audited) -> dict[int, Sample]:
    """Run -> its deliveries at members that promise a rate, where there are such."""
    coded, found = a.coded, a.found.verdict
    held = np.array([promise(order).rate for order in coded.order], bool) & (coded.there() == 1)
    if not held.any():
        return {}
    rows = np.flatnonzero((found >= 0) & (found != kernel.DUPLICATE) & (found != kernel.UNKNOWN))
    of = coded.members_of(rows)
    mine = held[of] & (coded.member_of[coded.known.origin[coded.steps.what[rows]]] != of)
    rows, run = rows[mine], coded.run_of[of[mine]]  # ascending, both
    wrong = np.isin(found[rows], (kernel.INVERTED, kernel.FIFO_INVERTED))
    out: dict[int, Sample] = {}
    for k in np.unique(coded.run_of[held]).tolist():
        of_run = slice(*np.searchsorted(run, (k, k + 1)))
        event, inverted = np.unique(coded.steps.what[rows[of_run][wrong[of_run]]], return_counts=True)
        members = held[coded.parts.member[k] : coded.parts.member[k + 1]]
        out[k] = Sample(int(members.sum()), len(run[of_run]), event, inverted)
    return out


def rated(all_: Iterable[Sample], run: int, a: Audited, count: Doubts, allowed: float) -> Rate:
    """The rate of all these together. Where anything about the run is in doubt, the rate is: adds that to `count`."""
    parts, coded = list(all_), a.coded
    first, end = coded.parts.member[run : run + 2].tolist()
    doubted = {key for key in count if key[0] == run}
    for m in range(first, end):
        cut_off = coded.alive[m] and not coded.complete and promise(coded.order[m]).rate
        if coded.missing[m] or a.found.vague[m] or cut_off:
            doubted.add(_unsure(a, m))
    count.update(dict.fromkeys(doubted, 1))
    _, which = np.unique(np.concatenate([s.event for s in parts]), return_inverse=True)
    inverted = np.bincount(which, np.concatenate([s.inverted for s in parts])).astype(np.int64)
    deliveries, members = sum(s.deliveries for s in parts), sum(s.members for s in parts)
    squares = int((inverted * inverted).sum())
    return rate(members, deliveries, int(inverted.sum()), squares, allowed, bool(doubted))


def rates(a: Audited, count: Doubts, allowed: float | None) -> list[tuple[int, Rate]]:
    """The rate of each run with members that promise one, if it is said what is allowed."""
    mine = {} if allowed is None else samples(a)
    return [(run, rated([one], run, a, count, allowed or 0.0)) for run, one in mine.items()]


def too_many(rates: Iterable[tuple[int, Rate]]) -> list[Found]:
    """Those of them that are above what is allowed."""
    return [(run, findings.too_many(str(rate))) for run, rate in rates if rate.outcome == ABOVE]
