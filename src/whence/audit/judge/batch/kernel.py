"""The true past of every event of one run of one cluster, on integers.

It is prefix-closed per origin (a publisher's events follow one another), so one integer per origin describes it
exactly, even with loss:

    X_q[o] = the largest seq of origin o in the past of anything q has delivered.

(o, s) arriving at q with s <= X_q[o] is a duplicate if q has it, an inversion otherwise; if it never arrives it is a
gap.

Two passes. `rebuild` (here) follows the members whose steps others depend on, publishers and those who gave a snapshot,
with a work list: a delivery waits until its publish is known. It leaves the **news** of every event: the entries of its
past that rose since its origin's event before; and, where there is room, its whole vector, which is compared many times
as fast. `judge` takes one member after the other; when q has all of (o, s-1), only the news of (o, s) have to be
compared. Rows are ordered by `lseq` only.

Events are numbered 0, 1, ... by origin and seq: event `base[o] + s - 1` is (o, s). A false trace can make members wait
in a circle: the first of them is let go, and sees an effect without its cause, as the trace says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.batch.rows import SAME, Rows, clear, empty_rows, get, merge, rise, roomy

OTHER, PUBLISH, DELIVER, JOIN, SNAPSHOT, GONE, TICKET, DROP = range(8)
"""Kinds of rows. TICKET and DROP are nothing to this kernel."""

GENESIS, INSTALLED, CHECKPOINT, UNCLEAR = range(4)
"""How a member joins. UNCLEAR: in no known way, or after a life whose end may be cut off."""

DENSE = 1 << 25
"""Numbers in a table without gaps: 128 MB. Where one for each event and publisher is more, events have no whole
vectors; where one for each member and publisher is more, what members know is kept in `Rows`."""


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


class Past(NamedTuple):
    """The true past of all events."""

    base: Longs
    """Events of the origins before o; one more entry for all."""
    origin: Ints
    """Of each event."""
    at: Longs
    """Where the news of each event begin."""
    size: Ints
    """How many."""
    entry: Ints
    """News: which origin ..."""
    value: Ints
    """... rose to which seq."""
    frame: Longs
    """Origin -> its first whole vector in `frames`."""
    frames: Ints
    """Whole vectors, of every `step`-th event of an origin: so that no vector is far away."""
    step: int
    whole: Ints
    """Event -> its vector, itself included; without rows where that would take too much room."""


@compiled
def grown(a: Ints) -> Ints:
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


@compiled
def raise_to(X: Ints, past: Past, o: int, s: int) -> None:
    """X to its maximum with (o, s) and its past. X is closed under happened-before, so what (o, X[o]) knew it has."""
    low = X[o]
    k = s // past.step
    if k * past.step > low:
        frame = past.frames[past.frame[o] + k - 1]
        for i in range(len(X)):
            X[i] = max(X[i], frame[i])
        low = k * past.step
    for e in range(past.base[o] + low, past.base[o] + s):
        for at in range(past.at[e], past.at[e] + past.size[e]):
            X[past.entry[at]] = max(X[past.entry[at]], past.value[at])
    X[o] = s


class Work(NamedTuple):
    """Who goes on, and who waits for what. Causes are numbered: events, then tokens."""

    done: Bytes
    """Cause -> it has happened, or was let go."""
    head: Ints
    """Cause -> the first member that waits for it; -1: nobody."""
    next: Ints
    """Member -> the next one that waits for the same."""
    blocked: Longs
    """Member -> what it waits for; -1: nothing."""
    stack: Ints
    """Members that can go on."""
    top: Longs
    """How many; an array of one."""


@compiled
def work_list(causes: int, todo: Bytes) -> Work:
    n = len(todo)
    stack, top = np.empty(n + 1, np.int32), np.zeros(1, np.int64)
    for m in range(n - 1, -1, -1):
        if todo[m]:
            stack[top[0]] = m
            top[0] += 1
    waiting = np.full(n, -1, np.int32)
    return Work(
        np.zeros(causes, np.uint8), np.full(causes, -1, np.int32), waiting, np.full(n, -1, np.int64), stack, top
    )


@compiled
def wait(work: Work, m: int, cause: int) -> None:
    work.blocked[m] = cause
    work.next[m] = work.head[cause]
    work.head[cause] = m


@compiled
def happened(work: Work, cause: int) -> None:
    work.done[cause] = 1
    m = work.head[cause]
    work.head[cause] = -1
    while m >= 0:
        work.blocked[m] = -1
        work.stack[work.top[0]] = m
        work.top[0] += 1
        m = work.next[m]


@compiled
def let_one_go(work: Work) -> bool:
    """Nobody can go on: the first of those that wait in a circle need not wait. False if nobody waits."""
    for m in range(len(work.blocked)):
        if work.blocked[m] >= 0:
            happened(work, work.blocked[m])
            return True
    return False


@compiled
def awaited(steps: Steps, todo: Bytes, work: Work, events: int) -> None:
    """Nobody waits for a state that no row will give."""
    work.done[events:] = 1
    for m in range(len(todo)):
        if todo[m]:
            for r in range(steps.begin[m], steps.begin[m + 1]):
                if steps.kind[r] == SNAPSHOT and steps.what[r] >= 0:
                    work.done[events + steps.what[r]] = 0


@compiled
def _empty_past(base: Longs, room: int) -> Past:
    origins, events = len(base) - 1, base[-1]
    step = max(64, origins)  # whole vectors take no more room than one number per event
    origin, frame = np.empty(events, np.int32), np.zeros(origins, np.int64)
    frames = 0
    for o in range(origins):
        origin[base[o] : base[o + 1]] = o
        frame[o] = frames
        frames += (base[o + 1] - base[o]) // step
    at, count = np.zeros(events, np.int64), np.zeros(events, np.int32)
    between = np.zeros((frames, origins), np.int32)
    whole = np.zeros((events if events * origins <= room else 0, origins), np.int32)
    entry, value = np.empty(1024, np.int32), np.empty(1024, np.int32)
    return Past(base, origin, at, count, entry, value, frame, between, step, whole)


@compiled
def _publish(past: Past, e: int, x: Ints, seen: Ints, said: Ints, used: int) -> tuple[Ints, Ints, int]:
    """The news of event e: what rose in its publisher's x since it `said` so last."""
    entry, value, o = past.entry, past.value, past.origin[e]
    while used + len(x) > len(entry):
        entry, value = grown(entry), grown(value)
    past.at[e] = used
    for i in range(len(x)):
        v = max(x[i], seen[i])
        if v > said[i] and i != o:
            said[i] = v
            entry[used] = i
            value[used] = v
            used += 1
    past.size[e] = used - past.at[e]
    s = e - past.base[o] + 1
    if s % past.step == 0:
        past.frames[past.frame[o] + s // past.step - 1] = said
    if len(past.whole):
        past.whole[e] = said
        past.whole[e, o] = s
    return entry, value, used


@compiled
def _learn(rows: Rows, past: Past, r: int, o: int, s: int) -> Rows:
    """`raise_to`, of a row that is mostly empty; nothing, if it has (o, s)."""
    low = get(rows, r, int(o))
    if s <= low:
        return rows
    k = s // past.step
    if k * past.step > low:
        frame = past.frames[past.frame[o] + k - 1]
        rows = roomy(rows, len(frame))
        for i in range(len(frame)):
            if frame[i]:
                rise(rows, r, i, int(frame[i]))
        low = k * past.step
    for e in range(past.base[o] + low, past.base[o] + s):
        rows = roomy(rows, int(past.size[e]))
        for at in range(past.at[e], past.at[e] + past.size[e]):
            rise(rows, r, int(past.entry[at]), int(past.value[at]))
    rows = roomy(rows, 1)
    rise(rows, r, int(o), int(s))
    return rows


@compiled
def _publish_risen(past: Past, e: int, rows: Rows, r: int, used: int) -> tuple[Ints, Ints, int]:
    """`_publish`, from what rose in row r since the last time."""
    entry, value, o = past.entry, past.value, past.origin[e]
    past.at[e] = used
    k = rows.risen[r]
    rows.risen[r] = -1
    while k >= 0:
        if rows.column[k] != o:
            if used == len(entry):
                entry, value = grown(entry), grown(value)
            entry[used] = rows.column[k]
            used += 1
        after = rows.link_risen[k]
        rows.link_risen[k] = SAME
        k = after
    entry[past.at[e] : used] = np.sort(entry[past.at[e] : used])
    for k in range(past.at[e], used):
        value[k] = get(rows, r, int(entry[k]))
    past.size[e] = used - past.at[e]
    s = e - past.base[o] + 1
    if s % past.step == 0:
        k = rows.head[r]
        while k >= 0:
            past.frames[past.frame[o] + s // past.step - 1, rows.column[k]] = rows.value[k]
            k = rows.link[k]
    return entry, value, used


@compiled
def _forget(x: Ints, seen: Ints) -> None:
    """The member goes on from another state. What it delivered stays in the past of its publishes."""
    seen[:] = np.maximum(seen, x)
    x[:] = 0


@compiled
def rebuild(
    steps: Steps, joins: Joins, tokens: int, base: Longs, todo: Bytes, room: int = DENSE
) -> tuple[Past, Bytes, int]:
    """The past of every event. `todo`: the members to follow, all who publish or give a state that is used. `room`: see
    `DENSE`. Returns also which rows deliver an event before its publish, and how often a member was let go: both
    only in a false trace."""
    begin, kind, what, torn = steps
    origins, events = len(base) - 1, base[-1]
    place = np.cumsum(todo.astype(np.int64)) - 1
    n = place[-1] + 1
    wide = (n + tokens) * origins > room
    past = _empty_past(base, 0 if wide else room)
    width = 0 if wide else origins
    X = np.zeros((n, width), np.int32)
    seen = np.zeros((n, width), np.int32)  # what a member had delivered before it installed another state
    said = np.zeros((width, width), np.int32)  # the past as of an origin's last publish
    taken, has = np.zeros((tokens, width), np.int32), np.zeros(tokens, np.uint8)
    # Where that is too much: of each member the past of its next publish; what it has, once it has installed another
    # state; and of each token.
    rows, row = empty_rows(2 * n + tokens if wide else 0), np.arange(n)
    known, early = np.zeros(events, np.uint8), np.zeros(len(kind), np.uint8)
    work = work_list(events + tokens, todo)
    awaited(steps, todo, work, events)
    at = begin[:-1].copy()
    origin, news, size, entry, value = past.origin, past.at, past.size, past.entry, past.value
    done, whole, dense = work.done, past.whole, len(past.whole) > 0
    used = circles = 0
    while True:
        if not work.top[0]:
            if not let_one_go(work):
                break
            circles += 1
        work.top[0] -= 1
        m = int(work.stack[work.top[0]])
        p = place[m]
        x = X[p]
        while at[m] < begin[m + 1]:
            r = at[m]
            w = int(what[r])
            if torn[r] and wide:
                row[p] = n + p
                clear(rows, n + p)
            elif torn[r]:
                _forget(x, seen[p])
            if w < 0:
                pass
            elif kind[r] == DELIVER:
                if not done[w]:
                    wait(work, m, w)
                    break
                o = origin[w]
                s = w - base[o] + 1
                if not known[w]:
                    early[r] = 1
                elif wide:
                    rows = _learn(rows, past, row[p], o, s)
                    rows = _learn(rows, past, p, o, s) if row[p] != p else rows
                elif s > x[o] and dense:
                    for i in range(origins):
                        x[i] = max(x[i], whole[w, i])
                elif s == x[o] + 1:
                    for k in range(news[w], news[w] + size[w]):
                        x[entry[k]] = max(x[entry[k]], value[k])
                    x[o] = s
                elif s > x[o]:
                    raise_to(x, past, o, s)
            elif kind[r] == PUBLISH:
                if wide:
                    entry, value, used = _publish_risen(past, w, rows, p, used)
                else:
                    entry, value, used = _publish(past, w, x, seen[p], said[origin[w]], used)
                if len(entry) > len(past.entry):
                    past = Past(base, origin, news, size, entry, value, past.frame, past.frames, past.step, whole)
                known[w] = 1
                happened(work, w)
            elif kind[r] == SNAPSHOT:
                if wide:
                    clear(rows, 2 * n + w)
                    rows = merge(rows, row[p], 2 * n + w)
                else:
                    taken[w] = x
                has[w] = 1
                happened(work, events + w)
            elif kind[r] == JOIN and joins.how[w] != GENESIS:
                token = int(joins.token[w])
                if token >= 0 and not work.done[events + token]:
                    wait(work, m, events + token)
                    break
                if wide:
                    row[p] = n + p
                    clear(rows, n + p)
                    if token >= 0 and has[token]:
                        rows = merge(rows, 2 * n + token, n + p)
                        rows = merge(rows, n + p, p)
                    at[m] += 1
                    continue
                _forget(x, seen[p])
                if token >= 0 and has[token]:
                    x[:] = taken[token]
            at[m] += 1
    return past, early, circles


@compiled
def vectors(past: Past) -> Ints:
    """All pasts as whole vectors, by event, from the news: an event itself is not in its past, but what its origin
    published before it is."""
    origins = len(past.base) - 1
    out = np.zeros((len(past.origin), origins), np.int32)
    now = np.zeros(origins, np.int32)
    for o in range(origins):
        now[:] = 0
        for e in range(past.base[o], past.base[o + 1]):
            for k in range(past.at[e], past.at[e] + past.size[e]):
                now[past.entry[k]] = past.value[k]
            now[o] = e - past.base[o]
            out[e] = now
    return out
