"""From the rows of runs of clusters to the integers of the kernel: many runs at once, or some members of a large one.

Text is the cost of an audit, so it is looked at once per distinct value: columns come as dictionaries (Parquet stores
them so), and from here on a member or an event is a number, by run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.promises import DEFAULT, UNTOLD, declared
from whence.audit.trace import Row
from whence.audit.trace.schema import LOST

TEXTS: Final = ("member", "kind", "event", "reason", "peer", "order", "token")
READ: Final = ("run", "cluster", "lseq", "t_ns", "ticket", *TEXTS)
"""The columns an audit reads; the others are not even taken from disk."""

END: Final = 2**62
"""The `lseq` of a step we add after all of a life."""
LAST: Final = END - 1
"""The `lseq` of a lost row of which nobody knows where it stood: behind all that is known. (-1: before all of it.)"""

KINDS: Final = {
    "publish": kernel.PUBLISH,
    "deliver": kernel.DELIVER,
    "join": kernel.JOIN,
    "snapshot": kernel.SNAPSHOT,
    "leave": kernel.GONE,
    "crash": kernel.GONE,
    "ticket": kernel.TICKET,
    "drop": kernel.DROP,
    LOST: kernel.LOST,
}
_NAMED: Final = np.isin(np.arange(max(KINDS.values()) + 1), (kernel.PUBLISH, kernel.DELIVER, kernel.DROP))
"""Kind -> whether its rows name an event."""
ACTS: Final = (kernel.PUBLISH, kernel.DELIVER, kernel.JOIN, kernel.SNAPSHOT)
"""Steps of a member that is there."""
_HOW: Final = {"genesis": kernel.GENESIS, "snapshot": kernel.INSTALLED, "checkpoint": kernel.CHECKPOINT}

Run = tuple[str, str]
"""A run and its cluster."""
_Token = tuple[int, str | None]
"""The run's number, and the token in it; None: none."""


class KnownRun(NamedTuple):
    """What is known of a run of which only some members are here (`pieces`)."""

    ids: pa.Array[Any]
    """Event's number -> its id."""
    base: Longs
    members: list[str]
    """All of them, by name."""
    origins: list[str]
    """Those of them that publish, by name."""
    tokens: list[str]
    """Of the states that members begin with."""
    torn: list[str]
    """Members with missing steps."""
    closed: list[str]
    """Members that left or crashed: their traces have an end."""
    superseded: list[str]
    """Members that another one continues."""


class Kept(NamedTuple):
    """What is known of a run of which more rows will come (`saved`)."""

    rows: int
    """The first rows of the input, which were judged before. Of what is missing between them nothing is missing."""
    tokens: Collection[str]
    """Of the states that were taken."""


class JoinSaid(NamedTuple):
    """What a `join` row says of the state that the member begins with."""

    reason: str | None
    peer: str | None
    token: str | None

    def goes_on(self, member: str) -> bool:
        """The member is another one that was restarted."""
        return self.reason == "checkpoint" and self.peer not in (None, member)


class Coded(NamedTuple):
    """Runs of clusters, for the kernel. Members are ordered by run and name, events by run, origin and seq."""

    runs: list[Run]
    parts: kernel.Runs
    run_of: Ints
    """Member -> run."""
    members: pa.Array[Any]
    events: pa.Array[Any]
    """Event ids, by run. The kernel has numbers of its own for those that somebody published."""
    first_id: Longs
    """Run -> its first id; one more entry for all."""
    steps: kernel.Steps
    row: Longs
    """Which row of the input each step is; those after the last one were added (`END`)."""
    lseq: Longs
    t: Longs
    """By row of the input."""
    event: Ints
    """The id on each step; -1: none."""
    known: kernel.EventTable
    ids: Ints
    """Event's number -> its id."""
    member_of: Ints
    """Origin -> member."""
    joins: kernel.Joins
    tokens: list[str]
    order: list[str]
    """Of each member."""
    alive: Bytes
    superseded: Bytes
    missing: Longs
    """Steps of each member that are not there."""
    torn: Bytes
    """Members with missing steps, here or elsewhere."""
    closed: Bytes
    """Members that left or crashed, here or elsewhere."""
    complete: bool
    """The rows of all members are here, to the end, but for missing steps."""
    reused: Longs
    """Steps that publish an id (whoever its owner is) once more."""
    dropped: Longs
    """Steps that deliver what the member has dropped."""
    tickets: list[tuple[int, Row]]
    """The `ticket` rows with their members, by member and step."""
    apart: bool
    """The rest of the run is elsewhere (`KnownRun`). What concerns several members (what they lack, ids that are used
    twice, owners of one ticket) is not looked for here."""
    repeated: int
    """Rows that were there twice, and alike."""
    conflicts: Longs
    """Rows of the input that claim the same step of the same member, differently: none of them is taken."""

    def member(self, run: int, name: str) -> int:
        """The member of this name; -1: there is none."""
        first, end = int(self.parts.member[run]), int(self.parts.member[run + 1])
        at: int = pc.index(self.members.slice(first, end - first), pa.scalar(name)).as_py()
        return at + first if at >= 0 else -1

    def step(self, run: int, member: str, lseq: int) -> int:
        """The step of this member with this number; -1: it is not here."""
        first, end = self.steps.begin[self.member(run, member) :][:2].tolist()
        at = first + int(np.searchsorted(self.lseq[first:end], lseq))
        return at if at < end and self.lseq[at] == lseq else -1

    def members_of(self, steps: Longs) -> Ints:
        """The members of these steps."""
        return (np.searchsorted(self.steps.begin, steps, side="right") - 1).astype(np.int32)

    def there(self) -> Bytes:
        """1 for each member with rows of its own."""
        return (np.diff(self.steps.begin) > 0).astype(np.uint8)


# -- columns


def codes(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> tuple[Ints, pa.Array[Any]]:
    """A column of text as numbers into its distinct values; -1 for null."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    if column.num_chunks == 0:
        return np.empty(0, np.int32), pa.array([], pa.string())
    values: Any = cast(Any, column.chunk(0)).dictionary
    parts = [_indices(chunk) for chunk in column.chunks]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), values.cast(pa.string())


def typed(column: Any, kind: Any) -> Any:
    """A column of this type, which may be a dictionary of text."""
    if column.type == kind:
        return column
    return column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)


def _indices(chunk: Any) -> Ints:
    found = chunk.indices
    if found.null_count:
        found = found.fill_null(-1)
    out: Ints = found.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return out


def picked(table: pa.Table, rows: Longs) -> list[dict[str, Any]]:
    """Some rows. `table.take` would put the chunks of whole columns together first."""
    found: dict[int, dict[str, Any]] = {}
    first = 0
    for batch in table.to_batches() if len(rows) else ():
        mine = np.unique(rows[(rows >= first) & (rows < first + batch.num_rows)])
        places: Any = pa.array(mine - first)
        found.update(zip(mine.tolist(), batch.take(places).to_pylist(), strict=True))
        first += batch.num_rows
    return [found[row] for row in rows.tolist()]


def _numbers(column: pa.ChunkedArray[Any]) -> Longs:
    out: Longs = column.to_numpy().astype(np.int64, copy=False)
    return out


def _pairs(run: Ints, code: Ints, runs: int, n: int) -> tuple[Ints, Longs]:
    """(run, code) of each row as a number, by run and code; and the pairs, as `run * n + code`. -1 stays -1."""
    key = code if runs == 1 else np.where(code >= 0, run.astype(np.int64) * n + code, -1)
    if runs * n > 4 * len(key) + 1024:
        pairs, number = np.unique(key, return_inverse=True)
        gaps = int(len(pairs) > 0 and pairs[0] < 0)
        return (number - gaps).astype(np.int32), pairs[gaps:]
    used = np.zeros(runs * n + 1, bool)  # the last is for -1
    used[key] = True
    used[-1] = False
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    place[-1] = -1
    return place[key], np.flatnonzero(used)


class _Sorted(NamedTuple):
    """Rows by member, as they come; columns as in `Coded`."""

    begin: Longs
    row: Longs
    lseq: Longs
    kind: Small
    what: Ints
    """-1 on a lost step."""


@compiled
def _by_member(member: Ints, lseq: Longs, kind: Small, what: Ints, members: int) -> tuple[_Sorted, bool]:
    """The rows by member; and whether that is by `lseq`, too."""
    begin = np.zeros(members + 1, np.int64)
    for m in member:
        begin[m + 1] += 1
    for m in range(members):
        begin[m + 1] += begin[m]
    n = len(member)
    at, last, ascending = begin[:-1].copy(), np.full(members, -1, np.int64), True
    out = _Sorted(begin, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int8), np.empty(n, np.int32))
    for r in range(n):
        m = member[r]
        k = at[m]
        at[m] += 1
        out.row[k], out.lseq[k], out.kind[k], out.what[k] = r, lseq[r], kind[r], what[r]
        ascending = ascending and lseq[r] > last[m]
        last[m] = lseq[r]
    return out, ascending


def _by_step(rows: _Rows) -> tuple[_Sorted, int, Longs]:
    """The rows by member and `lseq`, each step once; how many were there twice, and those that contradict others. Files
    are written in the order of steps, so that mostly nothing has to be sorted."""
    found, ascending = _by_member(rows.member, rows.lseq, rows.kind, rows.what, len(rows.members))
    none = np.empty(0, np.int64)
    if ascending:
        return found, 0, none
    order, begin = np.lexsort((rows.lseq, rows.member)), found.begin
    twice = (rows.lseq[order[1:]] == rows.lseq[order[:-1]]) & (rows.member[order[1:]] == rows.member[order[:-1]])
    repeated, conflicts = 0, none
    kind, what = rows.kind, rows.what
    if twice.any():
        order, repeated, conflicts = _once(rows, order)
        begin = np.searchsorted(rows.member[order], np.arange(len(rows.members) + 1)).astype(np.int64)
        kind, what = kind.copy(), what.copy()
        kind[conflicts], what[conflicts] = kernel.LOST, -1
    return _Sorted(begin, order, rows.lseq[order], kind[order], what[order]), repeated, conflicts


def _once(rows: _Rows, order: Longs) -> tuple[Longs, int, Longs]:
    """Each step once. Rows that say the same are one; where they contradict one another the step is lost. A row of the
    quarantine contradicts nothing: another row tells of its step."""
    member, lseq = rows.member[order], rows.lseq[order]
    same_step = np.append(False, (member[1:] == member[:-1]) & (lseq[1:] == lseq[:-1]))
    of_some = same_step | np.append(same_step[1:], False)
    some = order[of_some]
    part = rows.table.take(some)
    differs = np.zeros(len(some), bool)
    for name in part.column_names:
        if name not in ("run", "cluster", "file", "position"):
            column = codes(part[name].cast(pa.string()))[0]
            differs |= np.append(False, column[1:] != column[:-1])
    differs &= rows.kind[some] != kernel.LOST  # they come last
    group = np.cumsum(~same_step[of_some]) - 1
    conflicting = np.zeros(int(group[-1]) + 1, bool)
    conflicting[group[differs & same_step[of_some]]] = True
    keep = ~of_some
    keep[of_some] = ~same_step[of_some]
    conflicts = some[conflicting[group] & (rows.kind[some] != kernel.LOST)]
    again = same_step[of_some] & ~conflicting[group] & (rows.kind[some] != kernel.LOST)
    return order[keep], int(again.sum()), conflicts


def _numbered(kind: Small, ids: Ints, number_of: Ints, row_of: Longs) -> tuple[Ints, Ints]:
    """What the kernel wants of each step (`Steps.what`), and the id on it. A publish has the number of its event if it
    is the first of its id."""
    named, got = _NAMED[kind], np.flatnonzero((kind == kernel.DELIVER) & (ids >= 0))
    what = np.where(named, np.int32(-1), ids)
    what[got] = number_of[ids[got]]
    what[row_of] = np.arange(len(row_of), dtype=np.int32)
    return what, np.where(named, ids, np.int32(-1))


def _missing_steps(begin: Longs, lseq: Longs, kind: Small) -> tuple[NDArray[np.bool_], Longs]:
    """Where steps are missing right before a row or on it, and how many of each member."""
    before = np.append(np.int64(-1), lseq)[:-1]
    before[begin[:-1][np.diff(begin) > 0]] = -1
    gap = np.where((lseq >= LAST) | (lseq < 0), 0, lseq - before - 1) + (kind == kernel.LOST)
    upto = np.append(0, np.cumsum(gap))
    return gap != 0, upto[begin[1:]] - upto[begin[:-1]]


class _Rows(NamedTuple):
    """The input, columns as numbers."""

    table: pa.Table
    runs: list[Run]
    run_of: Ints
    members: pa.Array[Any]
    events: pa.Array[Any]
    first_id: Longs
    member: Ints
    lseq: Longs
    t: Longs
    kind: Small
    what: Ints
    """The id of the event, the number of the join, or the token."""
    closed: Bytes
    joins: _Joins


def code(
    table: pa.Table, known: KnownRun | None = None, *, complete: bool = False, kept: Kept | None = None
) -> Coded:  # fmt: skip
    """The rows (in any order, columns `READ`; without run and cluster they are one run) as the kernel wants them. They
    are whole runs, or those of some members of one, with what is `known` of all, or those of one that grows, with what
    is `kept` of it. `complete`: what no row tells of did not happen."""
    rows = _rows(table, known, complete, kept)
    (begin, row, lseq, kind, ids), repeated, conflicts = _by_step(rows)
    if known is None:
        t = np.where(np.arange(len(rows.t)) < kept.rows, -(2**63), rows.t) if kept else rows.t  # what is kept was first
        number_of, row_of, member_of, base = kernel.number(begin, kind, ids, row, t, len(rows.events))
    else:
        found: Any = pc.index_in(rows.events, value_set=known.ids)
        number_of, row_of = found.fill_null(-1).to_numpy().astype(np.int32), np.empty(0, np.int64)
        place: Any = pc.index_in(pa.array(known.origins, pa.string()), value_set=rows.members)
        member_of, base = place.to_numpy().astype(np.int32), known.base
    what, event = _numbered(kind, ids, number_of, row_of)
    torn, missing = _missing_steps(begin, lseq, kind) if kept is None else (kind == kernel.LOST, np.diff(begin) * 0)
    events, published = rows.events, event[row_of]
    if known is not None:
        events, event = _known_ids(rows.events, event, number_of, known.ids)
        published, rows.first_id[1] = np.arange(len(known.ids), dtype=np.int32), len(events)
    late = np.append(torn, False)[begin[:-1]] & (np.diff(begin) > 0)
    first_member = np.searchsorted(rows.run_of, np.arange(len(rows.runs) + 1))
    return Coded(
        runs=rows.runs,
        parts=kernel.Runs(first_member, np.searchsorted(member_of, first_member), rows.joins.first_token),
        run_of=rows.run_of,
        members=rows.members,
        events=events,
        first_id=rows.first_id,
        steps=kernel.Steps(begin, kind, what, torn.astype(np.uint8)),
        row=row,
        lseq=lseq,
        t=rows.t,
        event=event,
        known=kernel.event_table(base),
        ids=published,
        member_of=member_of,
        joins=rows.joins.joins,
        tokens=rows.joins.tokens,
        order=[UNTOLD if late[m] else rows.joins.orders.get(m, DEFAULT) for m in range(len(late))],
        alive=_alive(kind, begin, rows.joins.superseded),
        superseded=rows.joins.superseded,
        missing=missing,
        torn=((missing > 0) | _among(rows.members, known.torn if known else [])).astype(np.uint8),
        closed=rows.closed,
        complete=complete,
        reused=np.empty(0, np.int64) if known else _reused(rows, kind, event, row, begin),
        dropped=_after_drops(begin, kind, event, torn, len(events)),
        tickets=_tickets(rows, row[kind == kernel.TICKET]),
        apart=known is not None,
        repeated=repeated,
        conflicts=conflicts,
    )


def _among(names: pa.Array[Any], some: list[str]) -> NDArray[np.bool_]:
    found: Any = pc.is_in(names, value_set=pa.array(some, pa.string()))
    out: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return out


def _known_ids(here: pa.Array[Any], event: Ints, number_of: Ints, known: pa.Array[Any]) -> tuple[pa.Array[Any], Ints]:
    """The ids that are known and those that are only here; and the ids on steps by them."""
    place = np.append(number_of, np.int32(-1))  # the last is for -1: no event
    unknown = np.flatnonzero(number_of < 0)
    place[unknown] = np.arange(len(known), len(known) + len(unknown))
    return pa.concat_arrays([known, here.take(unknown)]), place[event]


def _runs(table: pa.Table) -> tuple[Ints, list[Run]]:
    """The run of each row, and the runs, by name."""
    if "run" not in table.column_names:
        return np.zeros(table.num_rows, np.int32), [("", "")]
    (run, runs), (cluster, clusters) = codes(table["run"]), codes(table["cluster"])
    number, pairs = _pairs(run, cluster, len(runs), len(clusters))
    names = [(str(runs[k // len(clusters)]), str(clusters[k % len(clusters)])) for k in pairs.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    return rank[number] if len(names) else number, [names[k] for k in order]


def _rows(table: pa.Table, known: KnownRun | None, complete: bool, kept: Kept | None) -> _Rows:
    run, runs = _runs(table)
    found, names = codes(table["member"])
    if known is None:
        by_name = pc.sort_indices(names).to_numpy()
        rank = np.empty(len(names), np.int32)
        rank[by_name] = np.arange(len(names), dtype=np.int32)
        member, pairs = _pairs(run, rank[found], len(runs), len(names))
        members = names.take(by_name[pairs % max(1, len(names))])
        run_of = (pairs // max(1, len(names))).astype(np.int32)
    else:  # others have no rows here, but names
        members, run_of = pa.array(known.members, pa.string()), np.zeros(len(known.members), np.int32)
        place: Any = pc.index_in(names, value_set=members)
        member = place.fill_null(-1).to_numpy().astype(np.int32)[found]
    kind_code, kinds = codes(table["kind"])
    kind = np.array([*(KINDS.get(str(k), kernel.OTHER) for k in kinds.to_pylist()), kernel.OTHER], np.int8)[kind_code]
    event, texts = codes(table["event"])
    what, pairs = _pairs(run, np.where(_NAMED[kind], event, np.int32(-1)), len(runs), len(texts))
    events = texts.take(pairs % max(1, len(texts)))
    first_id = np.searchsorted(pairs, np.arange(len(runs) + 1) * len(texts))
    lseq, t = _numbers(table["lseq"]), _numbers(table["t_ns"])
    closed = _gone(member, lseq, kind, len(members)) | _among(members, known.closed if known else [])
    joins = _joins(table, run, member, kind, members, run_of, len(runs), closed, known, complete, kept)
    what[joins.rows] = np.arange(len(joins.rows), dtype=np.int32)
    what[joins.snapshots] = joins.taken
    if len(joins.ended):  # a step for the end of each life that another goes on from
        n = len(joins.ended)
        member, what = np.append(member, joins.ended), np.append(what, joins.end_tokens)
        lseq, t = np.append(lseq, np.full(n, END)), np.append(t, np.zeros(n, np.int64))
        kind = np.append(kind, np.full(n, kernel.SNAPSHOT, np.int8))
    closed_bytes = closed.astype(np.uint8)
    return _Rows(table, runs, run_of, members, events, first_id, member, lseq, t, kind, what, closed_bytes, joins)


class _Joins(NamedTuple):
    """What the `join` and `snapshot` rows say; there are few."""

    rows: Longs
    """The `join` rows, and for each ..."""
    joins: kernel.Joins
    """... what the kernel needs of it."""
    orders: dict[int, str]
    """Member -> the order that it declares."""
    superseded: Bytes
    tokens: list[str]
    first_token: Longs
    """Run -> its first token; one more entry for all."""
    snapshots: Longs
    """The `snapshot` rows, and for each ..."""
    taken: Ints
    """... its token; -1: used by nobody."""
    ended: Ints
    """Members whose state at their end somebody begins with, and for each ..."""
    end_tokens: Ints
    """... its token."""


def _joins(
    table: pa.Table, run: Ints, member: Ints, kind: Small, members: pa.Array[Any], run_of: Ints, runs: int,
    closed: NDArray[np.bool_], known: KnownRun | None, complete: bool, kept: Kept | None,
) -> _Joins:  # fmt: skip
    rows, snapshots = np.flatnonzero(kind == kernel.JOIN), np.flatnonzero(kind == kernel.SNAPSHOT)
    said = picked(table.select(["order", "reason", "peer", "token"]), rows)
    place: dict[tuple[int, str], int] = {}
    if any(one["reason"] == "checkpoint" for one in said):
        named = zip(run_of.tolist(), map(str, members.to_pylist()), strict=True)
        place = {who: m for m, who in enumerate(named)}
    superseded = _among(members, known.superseded if known else []).astype(np.uint8)
    orders: dict[int, str] = {}
    how: list[int] = []
    begins: list[_Token] = []
    ended: dict[int, _Token] = {}
    for m, k, one in zip(member[rows].tolist(), run[rows].tolist(), said, strict=True):
        name, join = str(members[m]), JoinSaid(one["reason"], one["peer"], one["token"])
        orders[m] = declared(one["order"], name)
        way, state = _HOW.get(join.reason or "", kernel.UNCLEAR), join.token
        if join.goes_on(name):
            before = place.get((k, str(join.peer)), -1)
            if before >= 0:
                superseded[before] = 1
            if state is None and before >= 0 and (complete or closed[before]):  # else its end may be cut off
                state = f"\0the end of {join.peer}"  # no token of a trace begins so
                ended[before] = k, state
            elif state is None:
                way = kernel.UNCLEAR
        how.append(way)
        begins.append((k, None if way == kernel.GENESIS else state))
    taken = [row["token"] for row in picked(table.select(["token"]), snapshots)]
    given: list[_Token] = list(zip(run[snapshots].tolist(), taken, strict=True))
    if known is None:
        asked = set(begins).intersection(given) if kept is None else {*given, *((0, token) for token in kept.tokens)}
        used = {token for token in asked if token[1] is not None}
        tokens = sorted(used.union(ended.values()), key=lambda token: (token[0], str(token[1])))
    else:  # the states are known, too: nobody has to give one
        tokens, given, ended = [(0, token) for token in known.tokens], [(0, None)] * len(given), {}
    number = {token: k for k, token in enumerate(tokens)}
    return _Joins(
        rows,
        kernel.Joins(np.array(how, np.int8), np.array([number.get(token, -1) for token in begins], np.int32)),
        orders,
        superseded,
        [str(token) for _, token in tokens],
        np.searchsorted(np.array([k for k, _ in tokens], np.int64), np.arange(runs + 1)),
        snapshots,
        np.array([number.get(token, -1) for token in given], np.int32),
        np.array(list(ended), np.int32),
        np.array([number[token] for token in ended.values()], np.int32),
    )


def _gone(member: Ints, lseq: Longs, kind: Small, members: int) -> NDArray[np.bool_]:
    """Members that left or crashed, and did nothing after it."""
    out, rows = np.zeros(members, bool), np.flatnonzero(kind == kernel.GONE)
    if len(rows):
        acts = np.flatnonzero(np.isin(kind, ACTS))
        last = np.full(members, -1, np.int64)
        np.maximum.at(last, member[acts], lseq[acts])
        out[member[rows[lseq[rows] > last[member[rows]]]]] = True
    return out


def _reused(rows: _Rows, kind: Small, event: Ints, row: Longs, begin: Longs) -> Longs:
    """Steps that publish an id that was published before in the run. An id is its text up to the owner: it has to be
    unique, whoever uses it."""
    steps = np.flatnonzero((kind == kernel.PUBLISH) & (event >= 0))
    parts = pc.split_pattern(rows.events.take(event[steps]), "@", max_splits=1)
    bare, names = codes(pc.list_element(parts, 0))
    run = rows.run_of[np.searchsorted(begin, steps, side="right") - 1]
    number, pairs = _pairs(run, bare, len(rows.runs), len(names))
    if len(pairs) == len(steps):
        return np.empty(0, np.int64)
    by_time = np.lexsort((steps, rows.t[row[steps]], number))
    again = np.append(False, number[by_time][1:] == number[by_time][:-1])
    return np.sort(steps[by_time[again]])


def _after_drops(begin: Longs, kind: Small, event: Ints, torn: NDArray[np.bool_], ids: int) -> Longs:
    """Steps that deliver what the member has dropped since it joined or steps are missing."""
    drops = np.flatnonzero((kind == kernel.DROP) & (event >= 0))
    if not len(drops):
        return drops
    since = torn | (kind == kernel.JOIN)
    since[begin[:-1][np.diff(begin) > 0]] = True
    what = np.cumsum(since) * ids + event  # the same for the same event of one member between two joins
    dropped, first = np.unique(what[drops], return_index=True)
    found = np.flatnonzero((kind == kernel.DELIVER) & (event >= 0))
    at = np.minimum(np.searchsorted(dropped, what[found]), len(dropped) - 1)
    late: Longs = found[(dropped[at] == what[found]) & (drops[first[at]] < found)]
    return late


def _alive(kind: Small, begin: Longs, superseded: Bytes) -> Bytes:
    """Members that are there at the end: they took part, did not leave after that, and no other life continues them."""
    alive = np.zeros(len(begin) - 1, np.uint8)
    rows = np.flatnonzero((kind == kernel.JOIN) | (kind == kernel.GONE))
    of = np.searchsorted(begin, rows, side="right") - 1
    alive[of] = kind[rows] == kernel.JOIN  # of several the last one stays
    for m in np.setdiff1d(np.arange(len(alive)), of).tolist():  # its join is not here: then what it did counts
        alive[m] = np.isin(kind[begin[m] : begin[m + 1]], ACTS).any()
    alive[superseded == 1] = 0
    return alive


def _tickets(rows: _Rows, mine: Longs) -> list[tuple[int, Row]]:
    whose, lseq, t = (column[mine].tolist() for column in (rows.member, rows.lseq, rows.t))
    said = picked(rows.table.select(["ticket", "reason"]), mine)
    return [
        (m, Row("", "", str(rows.members[m]), step, at, "ticket", **one))
        for m, step, at, one in zip(whose, lseq, t, said, strict=True)
    ]
