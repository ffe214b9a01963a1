"""The array form of the judge: the past of every event of many runs, the verdict on every delivery, what is lacking.

As in `judge.causality`, a past is one integer per origin: how many of its events are in it. Pasts are rows of a matrix,
a column for each origin, in cells as small as the longest publisher allows (`cell`). Everything is decided column by
column, so a run with many publishers is judged in blocks of columns that fit into `ROOM`, one after the other: each
block goes through all rows, and adds what it sees to their verdicts.

For each run and block of columns:

* `rebuild` follows the members whose steps others depend on, in turns, each as far as it can go: a delivery waits for
  its publish;
* `judge` takes one member after the other; the state that a member begins with is judged before;
* `had` and `lacking` find what members lack at the end.

A run in pieces (`pieces`) and one that grows (`saved`) call these themselves; `judged` does it for many whole runs in
one call. Rows are ordered by
`lseq` only. Events are numbered by run, origin and seq: event `base[o] + s - 1` is (o, s). In an impossible trace
members wait in a circle. The first of them is let go: what it delivered is not known from then on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.promises import Verdict

OTHER, PUBLISH, DELIVER, JOIN, SNAPSHOT, GONE, TICKET, DROP, LOST = range(9)
"""Kinds of rows. TICKET, DROP and LOST are nothing to this kernel."""

GENESIS, INSTALLED, CHECKPOINT, UNCLEAR = range(4)
"""How a member joins. UNCLEAR: in no known way, or after a life whose end may be cut off."""

IN_ORDER, INVERTED, FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN = map(int, Verdict)
"""As plain numbers, for numba."""

HOLE, PASSED = 1, 2
"""Skipped: due to this member, or not (the state it began with lacked it, or steps that may tell of it are missing)."""

NEVER = np.int32(2**31 - 1)

FEW = 64
"""Columns that are looked at one by one where one of them is above."""

ROOM = 1 << 27
"""Bytes of all matrices of one block of columns; four times as many for what members may skip in it."""

Cells = Any
"""A matrix or a row of it: one of the types of `cell`."""


class Steps(NamedTuple):
    """The rows of all members, by member and `lseq`."""

    begin: Longs
    """Member m has the rows `begin[m] .. begin[m+1] - 1`."""
    kind: Small
    what: Ints
    """PUBLISH, DELIVER: the event (-1: published by nobody, or published before); JOIN: which one; SNAPSHOT: the token
    (-1: used by nobody)."""
    torn: Bytes
    """1 where steps are missing right before the row."""


class Joins(NamedTuple):
    """All JOIN rows."""

    how: Small
    token: Ints
    """The state it begins with; -1: none. Who goes on after all of a previous life has a token for the end of it."""


class EventTable(NamedTuple):
    """All events that were published."""

    base: Longs
    """Events of the origins before o; one more entry for all."""
    origin: Ints
    """Of each event."""


class Runs(NamedTuple):
    """Run k has the members `member[k] .. member[k+1] - 1`, and so on."""

    member: Longs
    origin: Longs
    token: Longs


class Block(NamedTuple):
    """Some columns of a run: its members, tokens and events, and the origins `low .. high - 1`."""

    member: int
    members: int
    token: int
    tokens: int
    event: int
    events: int
    low: int
    high: int


class States(NamedTuple):
    """What members had delivered, at some moments, in one block: all up to X, except what they skipped."""

    X: Cells
    unsure: Bytes
    """1 for an origin of which events may have been delivered in steps that are missing."""
    has: Bytes
    """1 where there is such a state."""
    vague: Bytes
    """1 where it is not known from its beginning: steps before it are missing, or the state it goes back to is."""
    at: Longs
    """Where the skipped ones of each state begin ..."""
    size: Longs
    """... and how many."""
    event: Ints
    skipped: Bytes
    """HOLE or PASSED."""
    opener: Ints
    """The event whose delivery skipped it."""
    used: Longs
    """How many skipped ones, of all states; an array of one."""


class Lives(NamedTuple):
    """Where `rebuild` begins, and where it ends."""

    K: Cells
    """Of each member to follow, the past of its next publish."""
    X: Cells
    """What it has delivered, once it is not the same (`apart`): it has installed another state."""
    apart: Bytes
    happened: Bytes
    """In a run that grows: 1 for an event that was published before, and one more entry. There whoever waits for what
    nobody gives goes on waiting."""


class Outcome(NamedTuple):
    """What was found in all runs."""

    verdict: Small
    """Of each row; -1 where there is none to give."""
    cause: Ints
    """The event it is wrong with respect to; -1: none."""
    early: Bytes
    """1 for a row that delivers an event before its publish; only in an impossible trace."""
    unmet: Bytes
    """1 for a join that waited in a circle for the state it begins with."""
    vague: Bytes
    """Member -> it is not known from its beginning."""
    lost: Longs
    """Member -> events skipped; never delivered though due; those of them of a live publisher; that another one has."""
    heard: Bytes
    """Member -> it has something of others."""
    most: Longs
    """Origin -> the most events of it that a live member has."""


LACKS = ("member", "first", "last", "there")
"""Columns: ranges of events that members lack, of those that promise agreement. `there`: another live member has the
first one; otherwise its publisher is alive."""


def cell(base: Longs) -> Cells:
    """An array of the type that holds the longest publisher's count."""
    longest = int(np.diff(base).max()) if len(base) > 1 else 0
    return np.empty(0, np.uint8 if longest < 1 << 8 else np.int32)


def event_table(base: Longs) -> EventTable:
    """The events that these origins have."""
    return EventTable(base, np.repeat(np.arange(len(base) - 1, dtype=np.int32), np.diff(base)))


@compiled
def grown(a: Any) -> Any:
    out = np.empty(2 * len(a) + 64, a.dtype)
    out[: len(a)] = a
    return out


@compiled
def number(begin: Longs, kind: Small, event: Ints, row: Longs, t: Longs, ids: int) -> tuple[Ints, Longs, Ints, Longs]:
    """Numbers the events by origin and seq. `event`: the id on each step, -1 for none; `row`: where its time is in `t`.
    An id that two members publish belongs to the first by time: the one use of a clock here, and only in a trace that
    is false anyway.

    Returns: id -> number (-1: published by nobody), number -> row of the publish, origin -> member, `base`."""
    members = len(begin) - 1
    first = np.full(ids, -1, np.int64)
    for m in range(members):
        for r in range(begin[m], begin[m + 1]):
            if kind[r] == PUBLISH and event[r] >= 0:
                old = first[event[r]]
                if old < 0 or (old < begin[m] and t[row[r]] < t[row[old]]):
                    first[event[r]] = r
    number_of, row_of = np.full(ids, -1, np.int32), np.empty(ids, np.int64)
    member_of, base = np.empty(members, np.int32), np.zeros(members + 1, np.int64)
    n = origins = 0
    for m in range(members):
        before = n
        for r in range(begin[m], begin[m + 1]):
            if kind[r] == PUBLISH and event[r] >= 0 and first[event[r]] == r:
                number_of[event[r]] = n
                row_of[n] = r
                n += 1
        if n > before:
            member_of[origins] = m
            origins += 1
            base[origins] = n
    return number_of, row_of[:n].copy(), member_of[:origins].copy(), base[: origins + 1].copy()


# -- who goes on


@compiled
def _givers(steps: Steps, block: Block, todo: Bytes, wanted: int, kind: int, first: int) -> Longs:
    """Event or token (`wanted` of them, from `first`) -> which of the members `todo` publishes or gives it; -1: none,
    nobody waits for it."""
    out = np.full(wanted, -1)
    for m in range(block.members if wanted else 0):
        begin, end = steps.begin[block.member + m], steps.begin[block.member + m + 1]
        for r in range(begin, end if todo[block.member + m] else begin):
            if steps.kind[r] == kind and steps.what[r] >= 0:
                out[steps.what[r] - first] = m
    return out


@compiled
def _still(left: Longs, waits: Longs, done: Bytes, free: Longs, giver: Longs, growing: bool) -> Longs:
    """Those of these members that wait for something. If none can go on, some wait in a circle: the first of these is
    let go. `waits`: what a member waits for, or -1; `done`: what has happened; `free`: what it was let go from.
    `growing`: what nobody gives may still come."""
    left = left[waits[left] >= 0]
    if len(left) and not done[waits[left]].any():
        if growing:
            return left[:0]
        m = left[0]
        for _ in left:  # whoever waits for a circle comes to it in so many steps, and goes round
            m = giver[waits[m]]
        first = m
        for _ in left:
            m = giver[waits[m]]
            first = min(first, m)
        free[first] = waits[first]
    return left


@compiled
def _place(block: Block, todo: Bytes) -> tuple[Longs, Longs]:
    """The members `todo` of the block; and of each member how many of them come before it."""
    mine = todo[block.member : block.member + block.members].astype(np.int64)
    return np.flatnonzero(mine), np.cumsum(mine) - mine


# -- the past


@compiled
def rise(x: Cells, past: Cells) -> None:
    """x to its maximum with a past."""
    for i in range(len(x)):
        if past[i] > x[i]:  # six times as fast as `max`, which is of wider numbers
            x[i] = past[i]


@compiled
def unborn(block: Block, todo: Bytes, proto: Cells) -> Lives:
    """Members that begin with their first rows."""
    n, width = _place(block, todo)[0].size, block.high - block.low
    K, X = np.zeros((n, width), proto.dtype), np.zeros((n, width), proto.dtype)
    return Lives(K, X, np.zeros(n, np.uint8), np.zeros(0, np.uint8))


@compiled
def rebuild(
    steps: Steps, joins: Joins, events: EventTable, block: Block, todo: Bytes, past: Cells, lives: Lives, given: States,
    found: Outcome,
) -> Longs:  # fmt: skip
    """The past of every event of a run, into the rows of `past`. `todo`: the members to follow, all who publish or give
    a state that is used. `given`: states under tokens that are known from before. Marks which rows are `early`, and
    which joins `unmet`. Returns up to which row each member of the block came."""
    early, unmet = found.early, found.unmet
    begin, kind, what, torn = steps
    low, high, first = block.low, block.high, block.event
    left, place = _place(block, todo)
    K, X, apart, happened = lives
    growing = len(happened) > 0
    taken, has = given.X.copy(), given.has.copy()
    giver = _givers(steps, block, todo, block.events, PUBLISH, first)  # of events, then of tokens
    giver = np.append(giver, _givers(steps, block, todo, block.tokens, SNAPSHOT, block.token))
    done = np.append(happened[:-1], has) if growing else (giver < 0).astype(np.uint8)
    at = begin[block.member : block.member + block.members].copy()
    waits, free = np.full(block.members, -1), np.full(block.members, -1)
    while len(left):
        for m in left:
            if waits[m] >= 0 and not done[waits[m]] and waits[m] != free[m]:
                continue
            waits[m] = -1
            mine, x = K[place[m]], X[place[m]] if apart[place[m]] else K[place[m]]
            while at[m] < begin[block.member + m + 1]:
                r = at[m]
                w = int(what[r])
                if kind[r] == DELIVER and w >= 0 and not done[w - first]:
                    if free[m] != w - first:
                        waits[m] = w - first
                        break
                    early[r], free[m] = 1, -1
                if torn[r] or early[r]:
                    apart[place[m]] = 1
                    x = X[place[m]]
                    x[:] = 0
                if w < 0 or early[r]:
                    pass
                elif kind[r] == DELIVER:
                    rise(mine, past[w - first])
                    if apart[place[m]]:
                        rise(x, past[w - first])
                elif kind[r] == PUBLISH:
                    o = events.origin[w]
                    past[w - first] = mine
                    if low <= o < high:
                        past[w - first, o - low] = w - events.base[o] + 1
                    done[w - first] = 1
                elif kind[r] == SNAPSHOT:
                    taken[w - block.token] = x
                    has[w - block.token] = done[block.events + w - block.token] = 1
                elif kind[r] == JOIN and joins.how[w] != GENESIS:
                    token = int(joins.token[w]) - block.token
                    if joins.token[w] >= 0 and not done[block.events + token]:
                        if free[m] != block.events + token:
                            waits[m] = block.events + token
                            break
                        unmet[w] = 1
                    apart[place[m]] = 1
                    x = X[place[m]]
                    x[:] = 0
                    if joins.token[w] >= 0 and has[token]:
                        x[:] = taken[token]
                        rise(mine, x)
                at[m] += 1
        left = _still(left, waits, done, free, giver, growing)
    return at


# -- verdicts


class MemberArrays(NamedTuple):
    """One member while it is judged, in one block of columns."""

    X: Cells
    last: Ints
    """Origin -> the largest seq delivered."""
    under: Ints
    """Origin -> the seq before the first HOLE; NEVER: there is none."""
    unsure: Bytes
    mark: Bytes
    """Event of these origins -> HOLE, PASSED or 0."""
    opener: Ints
    touched: Ints
    """Events with a mark, once."""
    n: Longs
    """How many are touched, how many are HOLEs, and whether the state is vague; an array of three."""


@compiled
def _begin(life: MemberArrays, vague: int) -> None:
    """With nothing; `vague`: that is not known."""
    life.X[:] = 0
    life.last[:] = 0
    life.under[:] = NEVER
    life.unsure[:] = vague
    for k in range(life.n[0]):
        life.mark[life.touched[k]] = 0
    life.n[:] = 0
    life.n[2] = vague


@compiled
def _mark(life: MemberArrays, c: int, begin: int, first: int, last: int, opener: int, skipped: int) -> None:
    """Seqs first .. last of column c, whose events begin at `begin`, are skipped by the delivery of `opener`."""
    for e in range(begin + first - 1, begin + last):
        life.mark[e] = skipped
        life.opener[e] = opener
        life.touched[life.n[0]] = e
        life.n[0] += 1
    if skipped == HOLE and first <= last:
        life.n[1] += last - first + 1
        life.under[c] = min(life.under[c], first - 1)


@compiled
def states(n: int, columns: int, proto: Cells) -> States:
    """Room for so many."""
    X, unsure = np.zeros((n, columns), proto.dtype), np.zeros((n, columns), np.uint8)
    has, vague, at, size = np.zeros(n, np.uint8), np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
    event, skipped, opener = np.empty(16, np.int32), np.empty(16, np.uint8), np.empty(16, np.int32)
    return States(X, unsure, has, vague, at, size, event, skipped, opener, np.zeros(1, np.int64))


@compiled
def _save(s: States, k: int, life: MemberArrays, first: int) -> States:
    """The state as number k. `first`: the first event of the block."""
    event, skipped, opener, used = s.event, s.skipped, s.opener, s.used
    while used[0] + life.n[0] > len(event):
        event, skipped, opener = grown(event), grown(skipped), grown(opener)
    s.has[k], s.vague[k], s.at[k] = 1, life.n[2], used[0]
    s.X[k], s.unsure[k] = life.X, life.unsure
    for j in range(life.n[0]):
        e = life.touched[j]
        if life.mark[e]:
            event[used[0]], skipped[used[0]], opener[used[0]] = first + e, life.mark[e], life.opener[e]
            used[0] += 1
    s.size[k] = used[0] - s.at[k]
    return States(s.X, s.unsure, s.has, s.vague, s.at, s.size, event, skipped, opener, used)


@compiled
def _load(life: MemberArrays, s: States, k: int, events: EventTable, low: int, mine: bool) -> None:
    """Go on from state k. What it lacks is still due to the member if it is `mine`: its own, from before."""
    _begin(life, int(s.vague[k]))
    life.X[:], life.unsure[:] = s.X[k], s.unsure[k]
    first = events.base[low]
    for j in range(s.at[k], s.at[k] + s.size[k]):
        e = int(s.event[j])
        o = events.origin[e]
        q = e - events.base[o] + 1
        _mark(life, o - low, events.base[o] - first, q, q, s.opener[j], s.skipped[j] if mine else PASSED)
    for c in range(len(life.X)):
        q = int(life.X[c])
        while q and life.n[0] and life.mark[events.base[low + c] - first + q - 1]:
            q -= 1
        life.last[c] = q


@compiled
def _late(life: MemberArrays, c: int, begin: int, s: int) -> int:
    """(o, s) is in the past of what was delivered before: a second time, or after its effect."""
    e = begin + s - 1
    if not life.mark[e]:
        return DUPLICATE
    if life.mark[e] == HOLE:
        life.n[1] -= 1
        if life.under[c] == s - 1:
            q = s
            while q < life.X[c] and life.mark[begin + q] != HOLE:
                q += 1
            life.under[c] = q if q < life.X[c] else NEVER
    life.mark[e] = 0
    if life.last[c] > s:
        return FIFO_INVERTED
    life.last[c] = s
    return INVERTED


@compiled
def _above(past: Cells, x: Any, first: int, end: int) -> bool:
    """Whether some cell of a past is above that of x, in these columns. Without a way out of the loop it is done many
    cells at a time."""
    found = False
    for c in range(first, end):
        found |= past[c] > x[c]
    return found


@compiled
def _early(life: MemberArrays, events: EventTable, block: Block, past: Cells, e: int) -> tuple[int, int]:
    """e is not in the past of what was delivered: X rises to it, and what that skips becomes holes. Verdict and cause,
    as far as these columns tell. Of several causes that of its own origin is named, or else the first by origin."""
    low, first, o = block.low, events.base[block.low], events.origin[e]
    s, own, cause, X = int(e - events.base[o] + 1), int(o - block.low), -1, life.X
    for at in range(0, len(X), FEW):
        end = min(at + FEW, len(X))
        for c in range(at, end if _above(past, X, at, end) else at):
            upto = s - 1 if c == own else int(past[c])
            if upto > X[c]:
                begin = events.base[low + c]
                if not life.unsure[c] and (cause < 0 or c == own):
                    cause = begin + X[c]
                _mark(life, c, begin - first, int(X[c]) + 1, upto, e, PASSED if life.unsure[c] else HOLE)
                X[c] = upto
    if 0 <= own < len(X):
        X[own] = life.last[own] = s
        life.unsure[own] = 0
    if cause >= 0:
        return OVER_GAP, cause
    if life.n[1]:
        if 0 <= own < len(X) and life.under[own] < s - 1:
            return AFTER_GAP, events.base[o] + life.under[own]
        for at in range(0, len(X), FEW):
            end = min(at + FEW, len(X))
            for c in range(at, end if _above(past, life.under, at, end) else at):
                if c != own and life.under[c] < past[c]:
                    return AFTER_GAP, events.base[low + c] + life.under[c]
    return IN_ORDER, -1


@compiled
def _in_order(
    row: int, end: int, steps: Steps, early: Bytes, events: EventTable, block: Block, past: Cells, X: Cells, last: Ints,
    unsure: Bytes, verdict: Small,
) -> int:  # fmt: skip
    """The way that nearly every row takes, by itself: deliveries in order, of a member without holes, up to the first
    row that is none. In a loop that can do more, each row costs several times as much. Returns that row."""
    kind, what, torn, base, origin, first, low = (
        steps.kind, steps.what, steps.torn, events.base, events.origin, block.event, block.low,
    )  # fmt: skip
    width = len(X)
    for r in range(row, end):
        w = int(what[r])
        if kind[r] != DELIVER or w < 0 or torn[r] or early[r]:
            return r
        o = origin[w]
        s = w - base[o] + 1
        own = int(o - low)
        mine = 0 <= own < width
        if mine and X[own] != s - 1:
            return r
        p = past[w - first]
        if _above(p, X, 0, own if mine else width) or _above(p, X, own + 1 if mine else width, width):
            return r
        if mine:
            X[own] = s
            last[own] = s
            unsure[own] = 0
        verdict[r] = max(verdict[r], IN_ORDER)
    return end


@compiled
def _told(verdict: Small, cause: Ints, r: int, v: int, why: int, own: bool) -> None:
    """What a block says of a row, beside what other blocks said: late, over a gap, after a gap, in order, in this
    order. `own`: the cause is of the event's own origin."""
    old = verdict[r]
    if v in (INVERTED, FIFO_INVERTED, DUPLICATE):
        said = True
    elif old in (INVERTED, FIFO_INVERTED, DUPLICATE):
        said = False
    elif v == OVER_GAP:
        said = old != OVER_GAP or own
    else:
        said = old < 0 or (v == AFTER_GAP and (old == IN_ORDER or (old == AFTER_GAP and own)))
    if said:
        verdict[r], cause[r] = v, why


@compiled
def judge(
    steps: Steps, joins: Joins, events: EventTable, block: Block, past: Cells, todo: Bytes, ends: States, given: States,
    found: Outcome,
) -> tuple[States, States]:  # fmt: skip
    """Adds what these columns tell to the verdict on every delivery of the members `todo`. `ends`: the states that they
    go on from; `given`: those under tokens that are known from before. Returns both as they are at the end."""
    begin, kind, what, torn = steps
    verdict, cause, early, unmet = found.verdict, found.cause, found.early, found.unmet
    base, first, low, width = events.base, events.base[block.low], block.low, block.high - block.low
    n = int(base[block.high] - first)
    life = MemberArrays(
        np.zeros(width, past.dtype), np.zeros(width, np.int32), np.full(width, NEVER, np.int32),
        np.zeros(width, np.uint8), np.zeros(n, np.uint8), np.empty(n, np.int32), np.empty(n, np.int32),
        np.zeros(3, np.int64),
    )  # fmt: skip
    left, place = _place(block, todo)
    taken = given
    giver = _givers(steps, block, todo, block.tokens, SNAPSHOT, block.token)
    done = np.maximum((giver < 0).astype(np.uint8), given.has)
    at = begin[block.member : block.member + block.members].copy()
    waits, free = np.full(block.members, -1), np.full(block.members, -1)
    while len(left):
        for m in left:
            if waits[m] >= 0 and not done[waits[m]] and waits[m] != free[m]:
                continue
            waits[m], end = -1, begin[block.member + m + 1]
            if ends.has[place[m]]:
                _load(life, ends, place[m], events, low, True)
            else:
                _begin(life, 0)
            while True:
                if not life.n[1]:
                    at[m] = _in_order(
                        at[m], end, steps, early, events, block, past, life.X, life.last, life.unsure, verdict
                    )
                if at[m] == end:
                    break
                r = at[m]
                w = int(what[r])
                if torn[r] or early[r]:
                    _begin(life, 1)
                if early[r]:
                    pass
                elif kind[r] == DELIVER and w < 0:
                    verdict[r] = UNKNOWN
                elif kind[r] == DELIVER:
                    o = events.origin[w]
                    s = int(w - base[o] + 1)
                    if low <= o < block.high and s <= life.X[o - low]:
                        why = int(life.opener[w - first])
                        v = _late(life, int(o - low), int(base[o] - first), s)
                        why = w if v == DUPLICATE else why
                    else:
                        v, why = _early(life, events, block, past[w - block.event], w)
                    _told(verdict, cause, r, v, why, why >= 0 and events.origin[why] == o)
                elif kind[r] == SNAPSHOT and w >= 0:
                    taken = _save(taken, w - block.token, life, first)
                    done[w - block.token] = 1
                elif kind[r] == JOIN:
                    token = -1 if joins.token[w] < 0 or unmet[w] else int(joins.token[w]) - block.token
                    if token >= 0 and not done[token]:
                        if free[m] != token:
                            waits[m] = token
                            break
                        unmet[w] = 1
                    if token >= 0 and taken.has[token]:
                        _load(life, taken, token, events, low, joins.how[w] == CHECKPOINT)
                    elif joins.how[w] != GENESIS:
                        _begin(life, 1)
                at[m] += 1
            ends = _save(ends, place[m], life, first)
        left = _still(left, waits, done, free, giver, False)
    return ends, taken


# -- what members lack


@compiled
def had(events: EventTable, low: int, high: int, who: Ints, ends: States, alive: Bytes, some: Bytes) -> None:
    """Marks what the live ones of these members have."""
    first, stamp = events.base[low], np.full(len(some), -1, np.int32)
    for k in range(len(who) if high > low else 0):
        for j in range(ends.at[k], ends.at[k] + ends.size[k]):
            stamp[ends.event[j] - first] = k
        for c in range(high - low if alive[who[k]] else 0):
            begin = events.base[low + c] - first
            for e in range(begin, begin + ends.X[k, c]):
                some[e] |= stamp[e] != k


@compiled
def lacking(
    events: EventTable, low: int, high: int, who: Ints, ends: States, alive: Bytes, superseded: Bytes, member_of: Ints,
    agreement: Bytes, some: Bytes, found: Outcome,
) -> Ints:  # fmt: skip
    """Adds to `found` what these members have and lack at the end, and returns the ranges (`LACKS`). `superseded`: they
    live on in another, whose gaps theirs are now. `agreement`: those who promise it. `some`: what some live member
    has."""
    start, base, lost = events.base[low], events.base, found.lost
    stamp, lacks, used = np.full(len(some), -1, np.int32), np.empty((16, 4), np.int32), 0
    for k in range(len(who)):
        m, gaps = who[k], 0
        found.vague[m] |= ends.vague[k]
        for c in range(high - low):
            found.heard[m] |= ends.X[k, c] > 0 and member_of[low + c] != m
            if alive[m]:
                found.most[low + c] = max(found.most[low + c], ends.X[k, c])
        if superseded[m]:
            continue
        for j in range(ends.at[k], ends.at[k] + ends.size[k]):
            hole = ends.skipped[j] == HOLE
            gaps += hole
            stamp[ends.event[j] - start] = k if hole else -1
        lost[m, 0] += gaps
        for c in range(high - low if alive[m] else 0):
            if ends.unsure[k, c]:
                continue
            begin, living = base[low + c], alive[member_of[low + c]]
            open_range, from_here = False, begin + ends.X[k, c]
            for e in range(begin if gaps else from_here, base[low + c + 1]):
                due = e >= from_here or stamp[e - start] == k
                there = some[e - start]
                lost[m, 1] += due
                lost[m, 2] += due and living
                lost[m, 3] += due and there
                if not (due and (there or living) and agreement[m]):
                    open_range = False
                elif open_range:
                    lacks[used - 1, 2] = e
                else:
                    if used == len(lacks):
                        lacks = np.concatenate((lacks, np.empty_like(lacks)))
                    lacks[used, 0], lacks[used, 1], lacks[used, 2], lacks[used, 3] = m, e, e, there
                    used += 1
                    open_range = True
    return lacks[:used].copy()


# -- whole runs


@compiled
def blank(steps: Steps, joins: Joins, members: int, origins: int) -> Outcome:
    """Nothing found yet."""
    rows, unmet = len(steps.kind), np.zeros(len(joins.how), np.uint8)
    return Outcome(
        np.full(rows, -1, np.int8), np.full(rows, -1, np.int32), np.zeros(rows, np.uint8), unmet,
        np.zeros(members, np.uint8), np.zeros((members, 4), np.int64), np.zeros(members, np.uint8),
        np.zeros(origins, np.int64),
    )  # fmt: skip


@compiled
def judged(
    steps: Steps, joins: Joins, events: EventTable, runs: Runs, member_of: Ints, todo: Bytes, there: Bytes,
    alive: Bytes, superseded: Bytes, agreement: Bytes, proto: Cells, room: int,
) -> tuple[Outcome, Ints]:  # fmt: skip
    """Whole runs. `todo`: see `rebuild`; `there`: members with rows; `room`: see `ROOM`."""
    found = blank(steps, joins, len(there), len(member_of))
    lacks = np.empty((0, 4), np.int32)
    for k in range(len(runs.member) - 1):
        m, o, t = runs.member[k], runs.origin[k], runs.token[k]
        members, origins, tokens = runs.member[k + 1] - m, runs.origin[k + 1] - o, runs.token[k + 1] - t
        e, n = events.base[o], events.base[runs.origin[k + 1]] - events.base[o]
        who = (np.flatnonzero(there[m : m + members]) + m).astype(np.int32)
        column = (n + 4 * members + 2 * tokens) * proto.itemsize  # its bytes; and where members skip all there is:
        skipped = 9 * n // max(1, origins) * (members + tokens)
        width = max(1, min(origins, room // max(1, column), 4 * room // max(1, skipped)))
        for low in range(o, max(o + 1, o + origins), width):
            block = Block(m, members, t, tokens, e, n, low, min(low + width, o + origins))
            past = np.empty((n, block.high - low), proto.dtype)
            given = states(tokens, block.high - low, proto)
            rebuild(steps, joins, events, block, todo, past, unborn(block, todo, proto), given, found)
            ends, _ = judge(
                steps, joins, events, block, past, there, states(len(who), block.high - low, proto), given, found
            )
            some = np.zeros(events.base[block.high] - events.base[low], np.uint8)
            had(events, low, block.high, who, ends, alive, some)
            mine = lacking(events, low, block.high, who, ends, alive, superseded, member_of, agreement, some, found)
            if len(mine):
                lacks = np.concatenate((lacks, mine))
    return found, lacks


def whole(runs: Runs, events: EventTable, k: int) -> Block:
    """All columns of run k."""
    (m, n), (o, p), (t, u) = (column[k : k + 2].tolist() for column in runs)
    e, end = int(events.base[o]), int(events.base[p])
    return Block(m, n - m, t, u - t, e, end - e, o, p)
