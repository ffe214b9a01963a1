"""What is known of a run before anybody is judged, from short notes on the steps of its members.

A run that is judged in pieces is first outlined, piece by piece. An outline has a `Head`, about the members as a whole,
and the `Notes`: 6 bytes for each step that others may depend on. From the outlines of all pieces the events are
numbered and the past of each is rebuilt, without a look at the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whence.audit.judge import findings
from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.coding import Coded, Known, Needed, Said, codes, end_of, joins_of, reused
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small
from whence.audit.judge.batch.owners import overlaps, tenures
from whence.audit.judge.batch.verdicts import States, judge, states
from whence.audit.judge.findings import Finding
from whence.audit.judge.tickets import Holding, Pair


class Head(NamedTuple):
    """The members of a piece."""

    members: list[str]
    torn: list[str]
    """Members with missing steps."""
    closed: list[str]
    """Members that left or crashed."""
    followed: list[str]
    """Members with notes, by name."""
    notes: Longs
    """How many notes each of them has ..."""
    publishes: Longs
    """... and how many of these are publishes, of an event with an id."""
    published: pa.Array[Any]
    """The ids of these publishes, by member and step; ..."""
    t: Longs
    lseq: Longs
    said: list[Said]
    """What the joins in the notes say, in the order of the notes."""
    others: list[tuple[str, Said]]
    """All joins of the other members, by member and step."""
    tenures: list[Holding]


class Notes(NamedTuple):
    """The steps of the followed members of a piece, as of `kernel.Steps`."""

    kind: Small
    what: Ints
    """PUBLISH, DELIVER: an index of `ids`; SNAPSHOT: the token's number."""
    torn: Bytes
    ids: pa.Array[Any]


def outlined(coded: Coded, followed: set[str]) -> tuple[Head, Notes]:
    """The outline of these rows. `followed`: the members of the run whose steps others depend on."""
    names = [str(name) for name in coded.members.to_pylist()]
    mine = np.array([name in followed for name in names], bool)
    begin, where = coded.steps.begin, np.flatnonzero(mine)
    marked = noted(coded.steps)
    for m in np.flatnonzero(~mine).tolist():
        marked[begin[m] : begin[m + 1]] = False
    kind, event = coded.steps.kind[marked], coded.event[marked]
    named = (kind == kernel.PUBLISH) | (kind == kernel.DELIVER)
    used = np.zeros(len(coded.events) + 1, bool)  # only ids that the notes name; the last is for -1: none
    used[event[named]] = True
    used[-1] = False
    short = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    ids = coded.events.take(np.flatnonzero(used))
    what = np.where(named, short[event], coded.steps.what[marked])
    published = np.flatnonzero(marked & (coded.steps.kind == kernel.PUBLISH) & (coded.event >= 0))
    joins = np.flatnonzero(coded.steps.kind == kernel.JOIN)
    head = Head(
        members=names,
        torn=coded.torn,
        closed=coded.closed,
        followed=[names[m] for m in where.tolist()],
        notes=np.array([np.count_nonzero(marked[begin[m] : begin[m + 1]]) for m in where.tolist()], np.int64),
        publishes=np.bincount(_member(coded, published), minlength=len(names))[where],
        published=coded.events.take(coded.event[published]),
        t=coded.t[coded.row[published]],
        lseq=coded.lseq[published],
        said=[coded.said[j] for j in coded.steps.what[joins[marked[joins]]].tolist()],
        others=[
            (names[m], coded.said[j])
            for m, j in zip(_member(coded, joins).tolist(), coded.steps.what[joins].tolist(), strict=True)
            if not mine[m]
        ],
        tenures=tenures(coded),
    )
    return head, Notes(kind, what, coded.steps.torn[marked], ids)


def noted(steps: kernel.Steps) -> NDArray[np.bool_]:
    """Which steps are in the notes, if their member is followed."""
    kinds = (kernel.PUBLISH, kernel.DELIVER, kernel.JOIN, kernel.SNAPSHOT)
    out: NDArray[np.bool_] = np.isin(steps.kind, kinds) | (steps.torn == 1)
    return out


def _member(coded: Coded, rows: Longs) -> Any:
    return np.searchsorted(coded.steps.begin, rows, side="right") - 1


class Shared(NamedTuple):
    """What every piece needs to know to be judged."""

    known: Known
    past: kernel.Past
    taken: States
    """The state under each token."""
    early: dict[str, list[int]]
    """Member -> its notes that deliver an event before its publish."""
    unmet: dict[str, list[int]]
    """Member -> its joins that waited in a circle for the state they begin with (`unmet`)."""
    pairs: list[Pair]
    """Tenures of one ticket that overlap, unless the later owner knew of the earlier one's end."""


class Rebuilt(NamedTuple):
    """What the outlines of all pieces together tell."""

    shared: Shared
    found: list[Finding]
    """Ids that were used twice."""
    circles: int
    """See `Audited`."""


class _Published(NamedTuple):
    """All publishes, by member and step."""

    begin: Longs
    """Of each followed member."""
    event: Ints
    names: pa.Array[Any]
    t: Longs
    lseq: Longs
    back: Longs
    """Where the publishes of the heads, one after the other, are here."""


class Rebuilding:
    """All heads are needed first; then the notes come one piece after the other, and are not kept."""

    def __init__(self, heads: list[Head], needed: Needed, complete: bool) -> None:
        self._heads, self._ended, self._complete = heads, needed.ended, complete
        self._names = sorted(name for head in heads for name in head.followed)
        place = {name: m for m, name in enumerate(self._names)}
        self._places = [[place[name] for name in head.followed] for head in heads]
        self._published = p = _together(heads, self._places)
        kind, row = np.full(len(p.event), kernel.PUBLISH, np.int8), np.arange(len(p.event))
        _, row_of, self._member_of, base = kernel.number(p.begin, kind, p.event, row, p.t, len(p.names))
        self._numbers = np.full(len(p.event), -1, np.int32)
        self._numbers[row_of] = np.arange(len(row_of), dtype=np.int32)
        self.known = Known(
            ids=p.names.take(p.event[row_of]),
            base=base,
            members=sorted(name for head in heads for name in head.members),
            origins=[self._names[m] for m in self._member_of.tolist()],
            tokens=needed.tokens,
            torn=[name for head in heads for name in head.torn],
            closed=[name for head in heads for name in head.closed],
        )
        notes = np.zeros(len(self._names) + 1, np.int64)
        for head, places in zip(heads, self._places, strict=True):
            notes[np.array(places, np.int64) + 1] = head.notes
        begin = np.cumsum(notes)
        n = int(begin[-1])
        self._steps = kernel.Steps(begin, np.empty(n, np.int8), np.empty(n, np.int32), np.empty(n, np.uint8))
        self._said: list[tuple[int, int, Said]] = []

    def add(self, piece: int, notes: Notes) -> None:
        """The notes of this piece, counted by its head."""
        head, begin, first = self._heads[piece], self._steps.begin, 0
        found: Any = pc.index_in(notes.ids, value_set=self.known.ids)
        number = np.append(found.fill_null(-1).to_numpy().astype(np.int32), np.int32(-1))  # the last is for -1: no id
        publishes = sum(len(other.t) for other in self._heads[:piece])
        all_said = iter(head.said)
        for to, size in zip(self._places[piece], head.notes.tolist(), strict=True):
            there, here = slice(int(begin[to]), int(begin[to + 1])), slice(first, first + size)
            kind, what = notes.kind[here], self._steps.what[there]
            self._steps.kind[there], self._steps.torn[there] = kind, notes.torn[here]
            what[:] = notes.what[here]
            mine = np.flatnonzero((kind == kernel.PUBLISH) & (what >= 0))
            delivers = kind == kernel.DELIVER
            what[delivers] = number[what[delivers]]
            what[mine] = self._numbers[self._published.back[publishes : publishes + len(mine)]]
            joins = np.flatnonzero(kind == kernel.JOIN)
            self._said += [(there.start + row, to, next(all_said)) for row in joins.tolist()]
            first, publishes = first + size, publishes + len(mine)

    def rebuilt(self) -> Rebuilt:
        """The past of every event, when all notes are there."""
        steps, known = self._steps, self.known
        number: dict[str | None, int] = {token: k for k, token in enumerate(known.tokens)}
        of = [self._names[m] for _, m, _ in self._said]
        closed = set(known.closed)
        joins = joins_of([said for *_, said in self._said], of, number, closed, self._complete)
        steps.what[[row for row, *_ in self._said]] = np.arange(len(of), dtype=np.int32)
        unused = [number[end_of(life)] for life in self._ended if not self._complete and life not in closed]
        gives = np.flatnonzero((steps.kind == kernel.SNAPSHOT) & (steps.what >= 0))
        steps.what[gives[np.isin(steps.what[gives], unused)]] = -1
        gives = gives[steps.what[gives] >= 0]
        givers = np.unique(np.searchsorted(steps.begin, gives, side="right") - 1)
        todo = np.zeros(max(1, len(self._names)), np.uint8)
        todo[self._member_of] = todo[givers] = 1
        past, early, circles = kernel.rebuild(steps, joins, len(known.tokens), known.base, todo, kernel.DENSE)
        lacking = self._unmet(joins, gives, number)
        for name, which in lacking.items():
            mine = [k for k, member in enumerate(of) if member == name]
            joins.token[[mine[k] for k in which if mine]] = -1
        taken = _taken(steps, joins, past, early, givers, len(known.tokens))
        at = np.flatnonzero(early)
        where = np.searchsorted(steps.begin, at, side="right") - 1
        before: dict[str, list[int]] = {}
        for m, k in zip(where.tolist(), (at - steps.begin[where]).tolist(), strict=True):
            before.setdefault(self._names[m], []).append(k)
        pairs = overlaps(tenure for head in self._heads for tenure in head.tenures)
        return Rebuilt(Shared(known, cut(past), taken, before, lacking, pairs), list(self._reused()), circles)

    def _unmet(self, joins: kernel.Joins, gives: Longs, number: dict[str | None, int]) -> dict[str, list[int]]:
        if not len(gives):
            return {}
        acts: dict[str, list[tuple[int, Act]]] = {}
        for (row, m, _), token in zip(self._said, joins.token.tolist(), strict=True):
            acts.setdefault(self._names[m], []).append((row, Act(False, token)))
        for row in gives.tolist():
            giver = self._names[int(np.searchsorted(self._steps.begin, row, side="right")) - 1]
            acts.setdefault(giver, []).append((row, Act(True, int(self._steps.what[row]))))
        others = [other for head in self._heads for other in head.others]
        names, said = [name for name, _ in others], [said for _, said in others]
        tokens = joins_of(said, names, number, set(self.known.closed), self._complete).token
        for name, token in zip(names, tokens.tolist(), strict=True):
            acts.setdefault(name, []).append((len(acts.get(name, ())), Act(False, token)))
        return unmet({name: [act for _, act in sorted(acts[name])] for name in sorted(acts)})

    def _reused(self) -> Iterable[Finding]:
        p = self._published
        kind, row = np.full(len(p.event), kernel.PUBLISH, np.int8), np.arange(len(p.event))
        for k in reused(kind, p.event, p.names, row, p.t).tolist():
            m = int(np.searchsorted(p.begin, k, side="right")) - 1
            event = str(p.names[int(p.event[k])])
            yield findings.reused(self._names[m], int(p.lseq[k]), event, f"the id {event.partition('@')[0]}")


class Act(NamedTuple):
    """A join or a snapshot."""

    gives: bool
    token: int
    """-1: none."""


def unmet(acts: dict[str, list[Act]]) -> dict[str, list[int]]:
    """Member -> its joins, counted from 0, that begin without the state under their token, because giver and taker wait
    in a circle: no execution leaves such a trace. As `verdicts.judge` does it. `acts`: of each member, by name."""
    names, waiting, blocked = list(acts), dict[int, list[int]](), dict[int, int]()
    pending = {act.token for mine in acts.values() for act in mine if act.gives}
    given: set[int] = set()
    at, stack = [0] * len(names), list(range(len(names) - 1, -1, -1))
    found: dict[str, list[int]] = {}

    def happened(token: int) -> None:
        pending.discard(token)
        for m in reversed(waiting.pop(token, [])):
            del blocked[m]
            stack.append(m)

    while stack or blocked:
        if not stack:
            happened(blocked[min(blocked)])
        m = stack.pop()
        mine = acts[names[m]]
        while at[m] < len(mine):
            act = mine[at[m]]
            if act.gives:
                given.add(act.token)
                happened(act.token)
            elif act.token in pending:
                waiting.setdefault(act.token, []).append(m)
                blocked[m] = act.token
                break
            elif act.token >= 0 and act.token not in given:
                found.setdefault(names[m], []).append(sum(not act.gives for act in mine[: at[m]]))
            at[m] += 1
    return found


def _together(heads: list[Head], places: list[list[int]]) -> _Published:
    count = [0] * (1 + sum(len(mine) for mine in places))
    whose = [np.empty(0, np.int64)]
    for head, mine in zip(heads, places, strict=True):
        whose.append(np.repeat(np.array(mine, np.int64), head.publishes))
        for m, n in zip(mine, head.publishes.tolist(), strict=True):
            count[m + 1] = n
    order = np.argsort(np.concatenate(whose), kind="stable")
    event, names = codes(pa.chunked_array([head.published for head in heads], pa.string()))
    none = np.empty(0, np.int64)
    t, lseq = (
        np.concatenate([none, *(head.t for head in heads)]),
        np.concatenate([none, *(head.lseq for head in heads)]),
    )
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return _Published(np.cumsum(count), event[order], names, t[order], lseq[order], back)


def _taken(
    steps: kernel.Steps, joins: kernel.Joins, past: kernel.Past, early: Bytes, givers: Longs, tokens: int
) -> States:
    """The states under the tokens: those who give them are judged, here for that alone."""
    if not len(givers):
        return states(tokens)
    parts = [slice(int(steps.begin[m]), int(steps.begin[m + 1])) for m in givers.tolist()]
    kind, what, torn, soon = (
        np.concatenate([column[part] for part in parts]) for column in (steps.kind, steps.what, steps.torn, early)
    )
    begin = np.cumsum([0, *(part.stop - part.start for part in parts)])
    mine = kernel.Steps(begin, kind, what, torn)
    return judge(mine, joins, past, soon, np.ones(len(parts), np.uint8), states(tokens)).taken


def cut(past: kernel.Past) -> kernel.Past:
    """Without whole vectors (`with_vectors`), and without the room for more news."""
    used = int((past.at + past.size).max()) if len(past.at) else 0
    return past._replace(entry=past.entry[:used], value=past.value[:used], whole=past.whole[:0])


def with_vectors(past: kernel.Past) -> kernel.Past:
    """With whole vectors of all events, where `kernel.rebuild` makes them."""
    origins, events = len(past.base) - 1, len(past.origin)
    if events * origins > kernel.DENSE:
        return past
    whole = np.zeros((events, origins), np.int32)
    order = np.argsort(past.at, kind="stable")  # news are in the order of publishing
    for first in range(0, events, 1024):  # some at a time: each takes 8 bytes for a while
        some = order[first : first + 1024]
        start = int(past.at[some[0]])
        mine = slice(start, start + int(past.size[some].sum()))
        whole[np.repeat(some, past.size[some]), past.entry[mine]] = past.value[mine]
    for o in range(origins):
        vectors = whole[past.base[o] : past.base[o + 1]]
        np.maximum.accumulate(vectors, axis=0, out=vectors)
        vectors[:, o] = np.arange(1, len(vectors) + 1)
    return past._replace(whole=whole)
