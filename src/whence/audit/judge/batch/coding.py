"""From the rows of one run of one cluster to the integers of the kernel.

Text is the cost of an audit, so it is looked at once per distinct value: columns come as dictionaries (Parquet stores
them so), and from here on a member or an event is a number.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch import kernel
from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.promises import DEFAULT, UNTOLD, declared

TEXTS: Final = ("member", "kind", "event", "reason", "peer", "order", "token")
READ: Final = ("run", "cluster", "lseq", "t_ns", "ticket", *TEXTS)
"""The columns an audit reads; the others are not even taken from disk."""

END: Final = 2**62
"""The `lseq` of a step we add after all of a life."""

KINDS: Final = {
    "publish": kernel.PUBLISH,
    "deliver": kernel.DELIVER,
    "join": kernel.JOIN,
    "snapshot": kernel.SNAPSHOT,
    "leave": kernel.GONE,
    "crash": kernel.GONE,
    "ticket": kernel.TICKET,
    "drop": kernel.DROP,
}
_HOW: Final = {"genesis": kernel.GENESIS, "snapshot": kernel.INSTALLED, "checkpoint": kernel.CHECKPOINT}


class Tickets(NamedTuple):
    """The `ticket` rows, by member and step."""

    member: list[int]
    lseq: list[int]
    t: list[int]
    ticket: list[int | None]
    reason: list[str | None]


class Needed(NamedTuple):
    """The states that members of a run begin with, wherever their rows are."""

    tokens: list[str]
    """Token's number -> its name. Lives that others go on from have a token, too (`end_of`)."""
    ended: list[str]
    """These lives."""


class Known(NamedTuple):
    """What is known of a run of which only some members are here."""

    ids: pa.Array[Any]
    """Event's number -> its id."""
    base: Longs
    members: list[str]
    """All of them."""
    origins: list[str]
    """Those of them that publish."""
    tokens: list[str]
    torn: list[str]
    """Members with missing steps."""
    closed: list[str]
    """Members that left or crashed: their traces have an end."""


class Said(NamedTuple):
    """What a `join` row says of the state that the member begins with."""

    reason: str | None
    peer: str | None
    token: str | None


class Coded(NamedTuple):
    """One run of one cluster, for the kernel."""

    members: pa.Array[Any]
    events: pa.Array[Any]
    """Event ids. The kernel has numbers of its own for those that somebody published."""
    steps: kernel.Steps
    row: Longs
    """Which row of the input each step is; those after the last one were added (`END`)."""
    lseq: Longs
    t: Longs
    """By row of the input."""
    event: Ints
    """The id on each step; -1: none."""
    base: Longs
    ids: Ints
    """Event's number -> its id."""
    member_of: Ints
    """Origin -> member."""
    joins: kernel.Joins
    said: list[Said]
    """The same in words."""
    tokens: list[str]
    order: list[str]
    """Of each member."""
    alive: Bytes
    superseded: Bytes
    elsewhere: list[str]
    """Superseded members that are not among these."""
    missing: Longs
    """Steps of each member that are not there."""
    torn: list[str]
    """Members with missing steps, here or elsewhere."""
    closed: list[str]
    """Members that left or crashed, here or elsewhere."""
    complete: bool
    """The rows of all members are here, to the end, but for missing steps."""
    reused: Longs
    """Steps that publish an id (whoever its owner is) once more."""
    dropped: Longs
    """Steps that deliver what the member has dropped."""
    tickets: Tickets
    apart: bool
    """The rest of the run is elsewhere (`Known`). What concerns several members (what they lack, ids that are used
    twice, owners of one ticket) is not looked for here."""
    repeated: int
    """Rows that were there twice, and alike."""
    conflicts: Longs
    """Rows of the input that claim the same step of the same member, differently: none of them is taken."""


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


def _indices(chunk: Any) -> Ints:
    found = chunk.indices
    if found.null_count:
        found = found.fill_null(-1)
    out: Ints = found.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return out


def picked(table: pa.Table, rows: Longs) -> list[dict[str, Any]]:
    """Some rows. `table.take` would put the chunks of whole columns together first."""
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    found: list[dict[str, Any]] = []
    first = 0
    for batch in table.to_batches() if len(rows) else ():
        low, high = np.searchsorted(ascending, [first, first + batch.num_rows]).tolist()
        if high > low:
            mine: Any = ascending[low:high] - first
            found += batch.take(pa.array(mine)).to_pylist()
        first += batch.num_rows
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return [found[k] for k in back.tolist()]


@compiled
def _translated(name: Ints, rank: Ints, code: Ints, kind_of: Small, event: Ints) -> tuple[Ints, Small, Ints]:
    """Member and kind of each row by our numbers, and the id of what it publishes or delivers."""
    n = len(name)
    member, kind, what = np.empty(n, np.int32), np.empty(n, np.int8), np.empty(n, np.int32)
    for r in range(n):
        member[r], kind[r] = rank[name[r]], kind_of[code[r]]
        named = kind[r] == kernel.PUBLISH or kind[r] == kernel.DELIVER or kind[r] == kernel.DROP
        what[r] = event[r] if named else -1
    return member, kind, what


class _Sorted(NamedTuple):
    """Rows by member, as they come; columns as in `Coded`."""

    begin: Longs
    row: Longs
    lseq: Longs
    kind: Small
    what: Ints


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
    if twice.any():
        order, repeated, conflicts = _once(rows, order)
        begin = np.searchsorted(rows.member[order], np.arange(len(rows.members) + 1)).astype(np.int64)
    return _Sorted(begin, order, rows.lseq[order], rows.kind[order], rows.what[order]), repeated, conflicts


@compiled
def _numbered(kind: Small, what: Ints, number_of: Ints, row_of: Longs) -> tuple[Ints, Ints]:
    """`what` with the numbers of events, and the ids alone. A publish has its number if it is the first of its id."""
    numbers, event = np.empty(len(kind), np.int32), np.full(len(kind), -1, np.int32)
    for r in range(len(kind)):
        numbers[r] = what[r]
        if kind[r] == kernel.PUBLISH or kind[r] == kernel.DELIVER:
            event[r] = what[r]
            if kind[r] == kernel.PUBLISH or what[r] < 0:
                numbers[r] = -1
            else:
                numbers[r] = number_of[what[r]]
        elif kind[r] == kernel.DROP:
            event[r], numbers[r] = what[r], -1
    for k in range(len(row_of)):
        numbers[row_of[k]] = k
    return numbers, event


@compiled
def missing_steps(begin: Longs, lseq: Longs, end: int) -> tuple[Bytes, Longs]:
    """Where steps are missing right before a row, and how many of each member."""
    torn, missing = np.zeros(len(lseq), np.uint8), np.zeros(len(begin) - 1, np.int64)
    for m in range(len(begin) - 1):
        before = -1
        for r in range(begin[m], begin[m + 1]):
            if lseq[r] != before + 1 and lseq[r] != end:
                torn[r] = 1
                missing[m] += lseq[r] - before - 1
            before = lseq[r]
    return torn, missing


class _Rows(NamedTuple):
    """The input, columns as numbers."""

    table: pa.Table
    members: pa.Array[Any]
    events: pa.Array[Any]
    member: Ints
    lseq: Longs
    t: Longs
    kind: Small
    what: Ints
    """The id of the event, the number of the join, or the token."""
    joins: kernel.Joins
    said: list[Said]
    tokens: list[str]
    orders: dict[int, str]
    superseded: Bytes
    elsewhere: list[str]
    closed: list[str]


def code(table: pa.Table, needed: Needed | None = None, known: Known | None = None, *, complete: bool = False) -> Coded:
    """The rows (in any order, columns `READ`) as the kernel wants them. Either they are a whole run; or those of some
    members, with what others need of them; or those of some members, with what is known of all. `complete`: what no row
    tells of did not happen."""
    rows = _rows(table, needed, known, complete)
    (begin, row, lseq, kind, event), repeated, conflicts = _by_step(rows)
    if known is None:
        number_of, row_of, member_of, base = kernel.number(begin, kind, event, row, rows.t, len(rows.events))
    else:
        number_of, row_of, member_of, base = _known_numbers(rows, known)
    what, event = _numbered(kind, event, number_of, row_of)
    torn, missing = missing_steps(begin, lseq, END)
    events, ids = rows.events, event[row_of]
    if known is not None:
        events, event = _known_ids(rows.events, event, number_of, known.ids)
        ids = np.arange(len(known.ids), dtype=np.int32)
    return Coded(
        members=rows.members,
        events=events,
        steps=kernel.Steps(begin, kind, what, torn),
        row=row,
        lseq=lseq,
        t=rows.t,
        event=event,
        base=base,
        ids=ids,
        member_of=member_of,
        joins=rows.joins,
        said=rows.said,
        tokens=rows.tokens,
        order=_orders(rows.orders, begin, torn),
        alive=_alive(kind, begin, rows.superseded),
        superseded=rows.superseded,
        elsewhere=rows.elsewhere,
        missing=missing,
        torn=[str(rows.members[m]) for m in np.flatnonzero(missing).tolist()] + (known.torn if known else []),
        closed=rows.closed,
        complete=complete,
        reused=np.empty(0, np.int64) if known else reused(kind, event, events, row, rows.t),
        dropped=_after_drops(begin, kind, event, torn, len(events)),
        tickets=_tickets(rows, row[kind == kernel.TICKET]),
        apart=known is not None,
        repeated=repeated,
        conflicts=conflicts,
    )


def _orders(said: dict[int, str], begin: Longs, torn: Bytes) -> list[str]:
    """The order of each member. Where the first steps are missing, the first `join` may be among them."""
    late = [bool(torn[a]) if a < b else False for a, b in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True)]
    return [UNTOLD if late[m] else said.get(m, DEFAULT) for m in range(len(late))]


def _known_numbers(rows: _Rows, known: Known) -> tuple[Ints, Longs, Ints, Longs]:
    """As `kernel.number`, of events that others published."""
    found: Any = pc.index_in(rows.events, value_set=known.ids)
    number_of: Ints = found.fill_null(-1).to_numpy().astype(np.int32)
    place: Any = pc.index_in(pa.array(known.origins, pa.string()), value_set=rows.members)
    return number_of, np.empty(0, np.int64), place.to_numpy().astype(np.int32), known.base


def _known_ids(here: pa.Array[Any], event: Ints, number_of: Ints, known: pa.Array[Any]) -> tuple[pa.Array[Any], Ints]:
    """The ids that are known and those that are only here; and the ids on steps by them."""
    place = np.append(number_of, np.int32(-1))  # the last is for -1: no event
    unknown = np.flatnonzero(number_of < 0)
    place[unknown] = np.arange(len(known), len(known) + len(unknown))
    return pa.concat_arrays([known, here.take(unknown)]), place[event]


def _rows(table: pa.Table, needed: Needed | None, known: Known | None, complete: bool) -> _Rows:
    found, names = codes(table["member"])
    there = np.flatnonzero(np.bincount(found, minlength=len(names)))  # a dictionary may have more than the rows
    ranked = there[pc.sort_indices(names.take(there)).to_numpy()]
    rank = np.empty(len(names), np.int32)
    rank[ranked] = np.arange(len(ranked), dtype=np.int32)
    kind_code, kinds = codes(table["kind"])
    kind_of = np.array([KINDS.get(str(k), kernel.OTHER) for k in kinds.to_pylist()] or [0], np.int8)
    event, events = codes(table["event"])
    member, kind, what = _translated(found, rank, kind_code, kind_of, event)
    members = names.take(ranked)
    lseq, t = _numbers(table["lseq"]), _numbers(table["t_ns"])
    joins = _Joins(table, member, kind, members, needed, known, complete)
    if known is not None:  # others have no rows here, but names
        here = set(members.to_pylist())
        new = pa.array([name for name in known.members if name not in here], pa.string())
        members = pa.concat_arrays([members, new])
    what[joins.rows] = np.arange(len(joins.rows), dtype=np.int32)
    what[joins.snapshots] = joins.taken
    if len(joins.ended):  # a step for the end of each life that another goes on from
        n = len(joins.ended)
        member = np.append(member, joins.ended)
        lseq, t = np.append(lseq, np.full(n, END)), np.append(t, np.zeros(n, np.int64))
        kind = np.append(kind, np.full(n, kernel.SNAPSHOT, np.int8))
        what = np.append(what, joins.end_tokens)
    superseded = np.append(joins.superseded, np.zeros(len(members) - len(joins.superseded), np.uint8))
    said = joins.joins, joins.said, joins.tokens, joins.orders, superseded, joins.elsewhere, joins.closed
    return _Rows(table, members, events, member, lseq, t, kind, what, *said)


def _numbers(column: pa.ChunkedArray[Any]) -> Longs:
    out: Longs = column.to_numpy().astype(np.int64, copy=False)
    return out


class _Joins:
    """What the `join` and `snapshot` rows say; there are few."""

    def __init__(
        self,
        table: pa.Table,
        member: Ints,
        kind: Small,
        members: pa.Array[Any],
        needed: Needed | None,
        known: Known | None,
        complete: bool,
    ) -> None:
        self.rows = np.flatnonzero(kind == kernel.JOIN)
        self.snapshots = np.flatnonzero(kind == kernel.SNAPSHOT)
        of = [str(members[m]) for m in member[self.rows].tolist()]
        rows = picked(table.select(["reason", "peer", "order", "token"]), self.rows)
        self.said = [Said(row["reason"], row["peer"], row["token"]) for row in rows]
        self.orders = {
            m: declared(row["order"], name) for m, name, row in zip(member[self.rows].tolist(), of, rows, strict=True)
        }
        gone = _gone(member, _numbers(table["lseq"]), kind)
        self.closed = [*members.take(gone).to_pylist(), *(known.closed if known else ())]
        over = set(self.closed)
        place = {name: m for m, name in enumerate(members.to_pylist())}
        taken = [row["token"] for row in picked(table.select(["token"]), self.snapshots)]
        if known is not None:  # the states are known, too: nobody has to give one
            self.tokens, ended, taken = known.tokens, list[str](), [None] * len(taken)
        elif needed is not None:
            self.tokens, ended = needed.tokens, [peer for peer in needed.ended if peer in place]
        else:
            used = {said.token for said in self.said if said.reason != "genesis"}
            lives = (continued(said, name, over, complete) for said, name in zip(self.said, of, strict=True))
            ended = list(dict.fromkeys(peer for peer in lives if peer is not None and peer in place))
            self.tokens = [*sorted(str(t) for t in used & set(taken) if t is not None), *map(end_of, ended)]
        number: dict[str | None, int] = {token: k for k, token in enumerate(self.tokens)}
        self.taken = np.array([number.get(token, -1) for token in taken], np.int32)
        self.ended = np.array([place[peer] for peer in ended], np.int32)
        self.end_tokens = np.array([number[end_of(peer)] for peer in ended], np.int32)
        self.joins = joins_of(self.said, of, number, over, complete)
        gone_on = {str(s.peer) for s, name in zip(self.said, of, strict=True) if goes_on(s, name)}
        self.superseded = np.zeros(len(members), np.uint8)
        self.superseded[[place[peer] for peer in gone_on if peer in place]] = 1
        self.elsewhere = sorted(gone_on - set(place))


def goes_on(said: Said, member: str) -> bool:
    """The member is another one that was restarted."""
    return said.reason == "checkpoint" and said.peer not in (None, member)


def continued(said: Said, member: str, closed: set[str], complete: bool) -> str | None:
    """The life that the member goes on from as it ended. Where its end may be missing it is not known how."""
    whole = goes_on(said, member) and said.token is None and (complete or said.peer in closed)
    return said.peer if whole else None


def joins_of(
    all_said: list[Said], members: list[str], number: dict[str | None, int], closed: set[str], complete: bool
) -> kernel.Joins:
    """These joins of these members. `number`: of tokens."""
    how, token = [], []
    for said, member in zip(all_said, members, strict=True):
        peer = continued(said, member, closed, complete)
        unclear = goes_on(said, member) and said.token is None and peer is None
        how.append(kernel.UNCLEAR if unclear else _HOW.get(said.reason or "", kernel.UNCLEAR))
        state = said.token if peer is None else end_of(peer)
        token.append(-1 if state is None or how[-1] == kernel.GENESIS else number.get(state, -1))
    return kernel.Joins(np.array(how, np.int8), np.array(token, np.int32))


def _gone(member: Ints, lseq: Longs, kind: Small) -> Ints:
    """Members that left or crashed, and did nothing after it."""
    acts = np.flatnonzero(np.isin(kind, (kernel.PUBLISH, kernel.DELIVER, kernel.JOIN, kernel.SNAPSHOT)))
    rows = np.flatnonzero(kind == kernel.GONE)
    if not len(rows):
        return np.empty(0, np.int32)
    last = np.full(int(member.max()) + 1, -1, np.int64)
    np.maximum.at(last, member[acts], lseq[acts])
    return np.unique(member[rows[lseq[rows] > last[member[rows]]]])


def end_of(member: str) -> str:
    """A token for the state that a life ended with. No token of a trace begins so."""
    return f"\0the end of {member}"


def _once(rows: _Rows, order: Longs) -> tuple[Longs, int, Longs]:
    """Each step once. Rows that say the same are one; of those that contradict one another none is taken."""
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
    group = np.cumsum(~same_step[of_some]) - 1
    conflicting = np.zeros(int(group[-1]) + 1, bool)
    conflicting[group[differs & same_step[of_some]]] = True
    keep = ~of_some
    keep[of_some] = ~same_step[of_some] & ~conflicting[group]
    conflicts = some[conflicting[group]]
    return order[keep], len(order) - int(keep.sum()) - len(conflicts), conflicts


def reused(kind: Small, event: Ints, events: pa.Array[Any], row: Longs, t: Longs) -> Longs:
    """Steps that publish an id that was published before. An id is its text up to the owner: it has to be unique,
    whoever uses it."""
    steps = np.flatnonzero((kind == kernel.PUBLISH) & (event >= 0))
    parts = pc.split_pattern(events.take(event[steps]), "@", max_splits=1)
    bare, names = codes(pc.list_element(parts, 0))
    if len(names) == len(steps):
        return np.empty(0, np.int64)
    by_time = np.lexsort((steps, t[row[steps]], bare))
    again = np.append(False, bare[by_time][1:] == bare[by_time][:-1])
    return np.sort(steps[by_time[again]])


@compiled
def _after_drops(begin: Longs, kind: Small, event: Ints, torn: Bytes, ids: int) -> Longs:
    """Steps that deliver what the member has dropped since it joined or steps are missing."""
    found, n = np.empty(len(kind), np.int64), 0
    if not (kind == kernel.DROP).any():
        return found[:0].copy()
    dropped, now = np.zeros(ids, np.int64), 0
    for m in range(len(begin) - 1):
        now += 1
        for r in range(begin[m], begin[m + 1]):
            if torn[r] or kind[r] == kernel.JOIN:
                now += 1
            if kind[r] == kernel.DROP and event[r] >= 0:
                dropped[event[r]] = now
            elif kind[r] == kernel.DELIVER and event[r] >= 0 and dropped[event[r]] == now:
                found[n] = r
                n += 1
    return found[:n].copy()


def _alive(kind: Small, begin: Longs, superseded: Bytes) -> Bytes:
    """Who is there at the end: took part, came last, not went, and lives on in nobody else."""
    alive = np.zeros(len(begin) - 1, np.uint8)
    rows = np.flatnonzero((kind == kernel.JOIN) | (kind == kernel.GONE))
    of = np.searchsorted(begin, rows, side="right") - 1
    alive[of] = kind[rows] == kernel.JOIN  # of several the last one stays
    for m in np.setdiff1d(np.arange(len(alive)), of).tolist():  # its join is not here: then what it did counts
        mine = kind[begin[m] : begin[m + 1]]
        alive[m] = np.isin(mine, (kernel.PUBLISH, kernel.DELIVER, kernel.SNAPSHOT)).any()
    alive[superseded == 1] = 0
    return alive


def _tickets(rows: _Rows, mine: Longs) -> Tickets:
    said = picked(rows.table.select(["ticket", "reason"]), mine)
    return Tickets(
        rows.member[mine].tolist(),
        rows.lseq[mine].tolist(),
        rows.t[mine].tolist(),
        [row["ticket"] for row in said],
        [row["reason"] for row in said],
    )
