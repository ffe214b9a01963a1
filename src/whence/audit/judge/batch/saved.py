"""A run whose rows come in pieces: each is judged as soon as the steps that it depends on are here, by the same kernel,
which goes on from what is saved.

A member waits for a step of its own that is not here yet, for the publish of what it delivers, for the state that it
begins with. A verdict depends only on the member's own steps and on the past of events, so it is the same whenever it
is given. Where rows never come, what follows waits for ever: that is for the audit of the whole trace.

What is saved grows with the events that were published, with members times publishers, with the states that were taken
and with the rows that wait; not with deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge import findings, tickets
from whence.audit.judge.batch import audited, kernel
from whence.audit.judge.batch.audited import Audited, Found
from whence.audit.judge.batch.coding import ACTS, END, READ, Coded, JoinSaid, Kept, code, codes, picked, typed
from whence.audit.judge.batch.compiled import Bytes, Longs
from whence.audit.judge.promises import UNTOLD
from whence.audit.judge.tickets import Holding, Pair
from whence.audit.trace.schema import LOST

CHECKPOINTS: Final = 16
"""States of a member's own checkpoints that are kept: a live member takes one after every batch, and its next life goes
on from the last or the one before. Those taken for others are all kept."""
ROOT: Final = "checkpoint "  # how the tokens of a member's own checkpoints begin (recorder)

_NUMBERS: Final = {"lseq": pa.int64(), "t_ns": pa.int64(), "ticket": pa.int32()}
_PLAIN: Final = pa.schema([(name, _NUMBERS.get(name, pa.string())) for name in READ[2:]])
ROWS: Final = pa.schema([(name, _NUMBERS.get(name, pa.dictionary(pa.int32(), pa.string()))) for name in READ[2:]])

_CELLS: Final = np.zeros((0, 0), np.uint8)
_BYTES: Bytes = _CELLS.ravel()
_LONGS, _INTS = _BYTES.astype(np.int64), _BYTES.astype(np.int32)
_NONE: Final = kernel.States(_CELLS, _CELLS, _BYTES, _BYTES, _LONGS, _LONGS, _INTS, _BYTES, _INTS, _LONGS)


class SavedRun(NamedTuple):
    """What a run needs to go on with its next rows."""

    rows: pa.Table = ROWS.empty_table()
    """Steps that were judged and still matter, then those that wait."""
    kept: int = 0
    """How many of them were judged."""
    upto: Mapping[str, int] = {}
    """Member -> its step that comes next."""
    events: Mapping[str, int] = {}
    """Member that publishes -> how many."""
    past: kernel.Cells = _CELLS
    """Of these events, by member and number."""
    K: kernel.Cells = _CELLS
    """Of each member (as in `upto`) the past of its next publish ..."""
    ends: kernel.States = _NONE
    """... and its state."""
    tokens: Mapping[str, str] = {}
    """Token -> who took the state."""
    taken: kernel.States = _NONE
    """Of these tokens."""
    told: frozenset[tuple[str, str, int]] = frozenset()
    """Rule, member and step of what was found and would be found again."""
    followed: frozenset[tuple[str, int, str]] = frozenset()
    """Member and step at which a tenure began, and the last event of another tenure, which it had delivered by then."""


class JudgedRows(NamedTuple):
    """What was found in a piece of a run."""

    saved: SavedRun
    audited: Audited
    """The steps that could be judged now."""
    found: list[Found]


def judged(saved: SavedRun, table: pa.Table) -> JudgedRows:
    """Judge more rows (columns `READ` without run and cluster, in any order; what was judged before is passed over)."""
    table = _joined(saved, table)
    coded = code(table, kept=Kept(saved.kept, saved.tokens))
    names = [str(name) for name in coded.members.to_pylist()]
    fresh = _in_turn(saved, coded, table, names)
    past, lives, ends, given = _placed(saved, coded, names)
    now, events, block = _only(coded, fresh), coded.known, kernel.whole(coded.parts, coded.known, 0)
    there = np.ones(len(names), np.uint8)
    at = kernel.rebuild(now.steps, now.joins, events, block, there, past, lives, given, _blank(now))
    fresh = fresh[np.arange(len(fresh)) < at[coded.members_of(fresh)]]
    told = coded.row < saved.kept
    told[fresh] = True
    now, seen = _only(coded, fresh), _only(coded, np.flatnonzero(told))
    tenures = [tenure for _, tenure in audited.tenures(seen)]
    followed = saved.followed | _followed(saved, seen, now, ends, tenures)
    found = _blank(now)
    ends, taken = kernel.judge(now.steps, now.joins, events, block, past, there, ends, given, found)
    lacks = np.empty((0, len(kernel.LACKS)), np.int32)
    a, reused = Audited(now, found, lacks, []), audited.of_steps(Audited(seen, _blank(seen), lacks, []))
    vague = {name for name, unsure in zip(names, ends.vague.tolist(), strict=True) if unsure}
    every = (*(one for _, one in reused), *_owners(tenures, followed, vague))
    again = [one for one in every if _key(one) not in saved.told]
    after = _after(saved, table, coded.row, seen, names, _Placed(past, lives, ends, taken))
    after = after._replace(told=saved.told.union(map(_key, again)), followed=followed)
    return JudgedRows(after, a, [*audited.found(a), *((0, one) for one in again)])


def _joined(saved: SavedRun, table: pa.Table) -> pa.Table:
    """The rows that are saved, and those of the others that were not judged yet."""
    there, n = set(table.column_names), table.num_rows
    columns = [typed(table[f.name], f.type) if f.name in there else pa.nulls(n, f.type) for f in ROWS]
    member, names = codes(table["member"])
    upto = np.array([saved.upto.get(str(name), 0) for name in names.to_pylist()], np.int64)[member]
    new: Any = pa.array(table["lseq"].to_numpy() >= upto)
    return pa.concat_tables([saved.rows, pa.Table.from_arrays(columns, schema=ROWS).filter(new)])


def _in_turn(saved: SavedRun, coded: Coded, table: pa.Table, names: list[str]) -> Longs:
    """The steps that were not judged yet, of each member up to the first that is not here, or waits for what is not."""
    steps, fresh = coded.steps, coded.row >= saved.kept
    upto, of = np.array([saved.upto.get(name, 0) for name in names], np.int64), _of(coded)
    first = steps.begin[:-1] + np.bincount(of[~fresh], minlength=len(names))
    stop = (coded.lseq != upto[of] + np.arange(len(of)) - first[of]) & (coded.lseq != END)
    stop |= (steps.kind == kernel.DELIVER) & (steps.what < 0) & (coded.event >= 0)
    stop[_unmet(coded, table, names, np.flatnonzero(fresh & (steps.kind == kernel.JOIN)))] = True
    limit, stops = np.full(len(names), len(of)), np.flatnonzero(stop & fresh)
    np.minimum.at(limit, of[stops], stops)
    return np.flatnonzero(fresh & (np.arange(len(of)) < limit[of]))


def _unmet(coded: Coded, table: pa.Table, names: list[str], joins: Longs) -> Longs:
    """Those of these joins that begin with a state that is not here."""
    number = coded.steps.what[joins]
    joins = joins[(coded.joins.how[number] != kernel.GENESIS) & (coded.joins.token[number] < 0)]
    said = picked(table.select(["reason", "peer", "token"]), coded.row[joins])
    mine = zip(said, coded.members_of(joins).tolist(), strict=True)
    waits = [one["token"] is not None or JoinSaid(**one).goes_on(names[m]) for one, m in mine]
    out: Longs = joins[np.array(waits, bool)]
    return out


def _only(coded: Coded, keep: Longs) -> Coded:
    """These steps alone. The others, of the same members or of others, are elsewhere."""
    place, kind = np.full(len(coded.row) + 1, -1), coded.steps.kind[keep]
    place[keep] = np.arange(len(keep))
    reused, dropped = (of[of >= 0] for of in (place[coded.reused], place[coded.dropped]))
    begin, torn = np.searchsorted(keep, coded.steps.begin), (kind == kernel.LOST).astype(np.uint8)
    steps = kernel.Steps(begin.astype(np.int64), kind, coded.steps.what[keep], torn)
    which = place[np.flatnonzero(coded.steps.kind == kernel.TICKET)] if coded.tickets else ()
    told = [one for k, one in zip(which, coded.tickets, strict=True) if k >= 0]
    coded = coded._replace(steps=steps, row=coded.row[keep], lseq=coded.lseq[keep], event=coded.event[keep])
    return coded._replace(reused=reused, dropped=dropped, tickets=told, apart=True)


def _of(coded: Coded) -> Longs:
    """The member of each step."""
    return np.repeat(np.arange(len(coded.members)), np.diff(coded.steps.begin))


def _blank(coded: Coded) -> kernel.Outcome:
    return kernel.blank(coded.steps, coded.joins, len(coded.members), len(coded.member_of))


# -- from piece to piece members, events and tokens get other numbers


class _Placed(NamedTuple):
    """What is saved, by the numbers of now."""

    past: kernel.Cells
    lives: kernel.Lives
    ends: kernel.States
    """Of members."""
    given: kernel.States
    """Of tokens."""


def _placed(saved: SavedRun, coded: Coded, names: list[str]) -> _Placed:
    base, width = coded.known.base, len(coded.member_of)
    proto, column = kernel.cell(base), {names[m]: o for o, m in enumerate(coded.member_of.tolist())}
    columns = np.array([column[name] for name in saved.events], np.int64)
    spans = [np.arange(base[o], base[o] + n) for o, n in zip(columns.tolist(), saved.events.values(), strict=True)]
    number = np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int32)
    past, happened = np.zeros((int(base[-1]), width), proto.dtype), np.zeros(int(base[-1]) + 1, np.uint8)
    past[np.ix_(number, columns)], happened[number] = saved.past, 1

    def moved(s: kernel.States, some: Iterable[str], among: list[str]) -> tuple[kernel.States, Longs]:
        place, out = {name: k for k, name in enumerate(among)}, kernel.states(len(among), width, proto)
        to = np.array([place[name] for name in some], np.int64)
        out.has[to], out.vague[to], out.at[to], out.size[to] = 1, s.vague, s.at, s.size
        out.unsure[to] = s.vague[:, None]  # also of who has published since
        out.X[np.ix_(to, columns)], out.unsure[np.ix_(to, columns)] = s.X, s.unsure
        event, opener = number[s.event], number[s.opener]
        return out._replace(event=event, skipped=s.skipped, opener=opener, used=np.array([len(event)])), to

    (ends, who), (given, _) = moved(saved.ends, saved.upto, names), moved(saved.taken, saved.tokens, coded.tokens)
    K = np.zeros((len(names), width), proto.dtype)
    K[np.ix_(who, columns)] = saved.K
    return _Placed(past, kernel.Lives(K, ends.X.copy(), np.ones(len(names), np.uint8), happened), ends, given)


def _after(saved: SavedRun, table: pa.Table, here: Longs, seen: Coded, names: list[str], now: _Placed) -> SavedRun:
    """What is saved after `seen`. `here`: the rows, without those that are here twice."""
    kind, what = seen.steps.kind, seen.steps.what
    new = (seen.row >= saved.kept) & (seen.row < table.num_rows)
    n = np.bincount(_of(seen)[new], minlength=len(names)).tolist()
    upto = {name: saved.upto.get(name, 0) + k for name, k in zip(names, n, strict=True)}
    upto = {name: k for name, k in upto.items() if k}
    who = np.array([k for k, name in enumerate(names) if name in upto], np.int64)
    number = np.sort(what[(kind == kernel.PUBLISH) & (what >= 0)])
    events = np.bincount(seen.known.origin[number], minlength=len(seen.member_of))
    columns, renumber = np.flatnonzero(events), np.zeros(len(seen.known.origin), np.int32)
    renumber[number] = np.arange(len(number))

    def some(s: kernel.States, which: Longs) -> kernel.States:
        spans = [np.arange(a, a + n) for a, n in zip(s.at[which].tolist(), s.size[which].tolist(), strict=True)]
        at, size = np.concatenate([*spans, np.zeros(0, np.int64)]), s.size[which]
        X, unsure, used = s.X[np.ix_(which, columns)], s.unsure[np.ix_(which, columns)], np.array([len(at)])
        event, opener = renumber[s.event[at]], renumber[s.opener[at]]
        first = np.cumsum(size) - size
        return kernel.States(X, unsure, s.has[which], s.vague[which], first, size, event, s.skipped[at], opener, used)

    given, token = _given(saved, seen, names), {name: k for k, name in enumerate(seen.tokens)}
    taken = some(now.given, np.array([token[name] for name in given], np.int64))
    rows, kept = _kept(saved, table, here, seen, names, upto)
    publish = {names[m]: k for m, k in zip(seen.member_of[columns].tolist(), events[columns].tolist(), strict=True)}
    past, K = now.past[np.ix_(number, columns)], now.lives.K[np.ix_(who, columns)]
    return SavedRun(rows, kept, upto, publish, past, K, some(now.ends, who), given, taken)


def _kept(
    saved: SavedRun, table: pa.Table, here: Longs, seen: Coded, names: list[str], upto: Mapping[str, int]
) -> tuple[pa.Table, int]:
    """Of the rows those that still matter, and those that were not judged; and how many the former are. A join in front
    of each member's tells its order."""
    kind, at = seen.steps.kind, np.arange(len(seen.row))
    of, mine = _of(seen), seen.row < table.num_rows
    joined, acted = np.full(len(names), -1), np.full(len(names), -1)
    for last, which in ((joined, kind == kernel.JOIN), (acted, np.isin(kind, ACTS))):
        np.maximum.at(last, of[which], at[which])
    keep = ((kind == kernel.PUBLISH) & (seen.steps.what >= 0)) | (kind == kernel.TICKET)
    keep |= (kind == kernel.DROP) & (at > joined[of]) | (kind == kernel.GONE) & (at > acted[of])
    keep &= mine & (seen.lseq >= 0)
    unread = np.zeros(table.num_rows, bool)
    unread[here[here < table.num_rows]], unread[seen.row[mine]], unread[: saved.kept] = True, False, False
    order = dict(zip(names, seen.order, strict=True))
    joins = [
        {"member": name, "lseq": -1, "t_ns": 0, "kind": LOST}  # nobody knows
        if order[name] == UNTOLD
        else {"member": name, "lseq": -1, "t_ns": 0, "kind": "join", "reason": "genesis", "order": order[name]}
        for name in upto
    ]
    rows: Any = np.append(np.sort(seen.row[keep]), np.flatnonzero(unread))
    rest = table.unify_dictionaries().take(pa.array(rows)).cast(_PLAIN)  # so that texts are those of these rows
    whole = pa.concat_tables([pa.Table.from_pylist(joins, _PLAIN), rest]).combine_chunks()
    return pa.Table.from_arrays([typed(whole[f.name], f.type) for f in ROWS], schema=ROWS), len(joins) + int(keep.sum())


def _given(saved: SavedRun, seen: Coded, names: list[str]) -> dict[str, str]:
    """The tokens under which states are kept, the last one last."""
    given, steps = dict(saved.tokens), np.flatnonzero((seen.steps.kind == kernel.SNAPSHOT) & (seen.steps.what >= 0))
    for k, m in zip(seen.steps.what[steps].tolist(), seen.members_of(steps).tolist(), strict=True):
        given.pop(seen.tokens[k], None)
        given[seen.tokens[k]] = names[m]
    own: dict[str, list[str]] = {}
    for token, name in given.items():
        if token.startswith(ROOT):
            own.setdefault(name, []).append(token)
    gone = {token for tokens in own.values() for token in tokens[:-CHECKPOINTS]}
    return {token: name for token, name in given.items() if token not in gone and not token.startswith("\0")}


def waiting(saved: SavedRun) -> dict[str, tuple[int, str]]:
    """Members that wait -> how many steps they have, and what the first of these needs."""
    found: dict[str, tuple[int, str]] = {}
    for row in saved.rows.slice(saved.kept).select(["member", "lseq", "kind", "event", "peer", "token"]).to_pylist():
        name, step = str(row["member"]), saved.upto.get(row["member"], 0)
        n, what = found.get(name, (0, f"its step {step}"))
        if row["lseq"] == step:
            what = f"event {row['event']}" if row["kind"] == "deliver" else f"token {row['token']}"
            what = f"life {row['peer']}" if row["kind"] == "join" and row["token"] is None else what
        found[name] = n + 1, what
    return found


# -- what concerns several members


def _key(one: findings.Finding) -> tuple[str, str, int]:
    return one.rule, one.member, one.step or 0


def _followed(
    saved: SavedRun, seen: Coded, now: Coded, ends: kernel.States, tenures: list[Holding]
) -> frozenset[tuple[str, int, str]]:
    """Of tenures that began among these steps: which others the member knew to be over, by delivering their last event.
    (It can only have delivered what is here by now.)"""
    new = [tenure for tenure in tenures if tenure.step >= saved.upto.get(tenure.member, 0)]
    pairs: list[tuple[int, Pair]] = [
        (0, (other, one)) for one in new for other in tenures if other.ticket == one.ticket and other.last is not None
    ]
    known = set(audited.known_end(now, pairs))
    lasts = pa.array([other.last for _, (other, _) in pairs], pa.string())
    ids: Any = pc.index_in(lasts, value_set=seen.events.take(seen.ids)).fill_null(-1)
    for k, (e, (_, (_, one))) in enumerate(zip(ids.to_pylist(), pairs, strict=True)):
        m, o = seen.member(0, one.member), int(seen.known.origin[e]) if e >= 0 else 0
        skipped = ends.event[ends.at[m] : ends.at[m] + ends.size[m]]
        if e >= 0 and ends.X[m, o] > e - seen.known.base[o] and e not in skipped:
            known.add(k)
    return frozenset((one.member, one.step, str(other.last)) for k, (_, (other, one)) in enumerate(pairs) if k in known)


def _owners(
    tenures: list[Holding], followed: frozenset[tuple[str, int, str]], vague: set[str]
) -> Iterable[findings.Finding]:
    """Two owners of one ticket, without doubt."""
    for _, (earlier, later) in audited.overlaps((0, tenure) for tenure in tenures):
        known = (later.member, later.step, earlier.last) in followed and earlier.incarnation != later.incarnation
        one = tickets.two_owners(earlier, later, vague.__contains__)
        if not known and one.doubt is None:
            yield one
