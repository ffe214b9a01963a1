"""Verdicts on deliveries, given the past of every event, and what members lack at the end of a run.

Members are judged independently of each other. A member has delivered everything up to X, except what it skipped.

A member that begins with the state of another one is judged after that state is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.audit.judge.batch.compiled import Bytes, Ints, Longs, Small, compiled
from whence.audit.judge.batch.kernel import (
    CHECKPOINT,
    DELIVER,
    GENESIS,
    JOIN,
    SNAPSHOT,
    Joins,
    Past,
    Steps,
    awaited,
    grown,
    happened,
    let_one_go,
    raise_to,
    wait,
    work_list,
)
from whence.audit.judge.promises import Verdict

IN_ORDER, INVERTED, FIFO_INVERTED, OVER_GAP, AFTER_GAP, DUPLICATE, UNKNOWN = map(int, Verdict)
"""As plain numbers, for numba."""

HOLE, PASSED = 1, 2
"""Skipped: due to this member, or not (the state it began with lacked it, or steps that may tell of it are missing)."""

NEVER = np.int32(2**31 - 1)


class States(NamedTuple):
    """What members had delivered, at some moments: all up to X, except what they skipped. Only what is not 0 in X is
    kept: there may be so many publishers that all of it would take more room than the rows of a run."""

    first: Longs
    """Where the entries of each state begin ..."""
    entries: Longs
    """... and how many."""
    origin: Ints
    """Entries, by origin: which ..."""
    upto: Ints
    """... has been delivered up to which seq; ..."""
    unsure: Bytes
    """... 1 if events of it may have been delivered in steps that are missing. Of all other origins: `vague`."""
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
    """How many entries, and how many skipped ones, of all states; an array of two."""


class Verdicts(NamedTuple):
    """What `judge` found."""

    verdict: Small
    """Of each row; -1 where there is none to give."""
    cause: Ints
    """The event it is wrong with respect to; -1: none."""
    ends: States
    """Each member's state at the end."""
    taken: States
    """The state under each token."""


@compiled
def grown_bytes(a: Bytes) -> Bytes:
    out = np.empty(2 * len(a) + 64, a.dtype)
    out[: len(a)] = a
    return out


class MemberArrays(NamedTuple):
    """One member while it is judged."""

    X: Ints
    last: Ints
    """Origin -> the largest seq delivered."""
    hole: Ints
    """Origin -> the first HOLE; NEVER: none."""
    taint: Ints
    """Origin -> an origin with a hole in the past of all it will publish; -1: none; -2: not known."""
    unsure: Bytes
    mark: Bytes
    """Event -> HOLE, PASSED or 0."""
    opener: Ints
    touched: Ints
    """Events with a mark, once."""
    n: Longs
    """How many are touched, how many are HOLEs, and whether the state is vague; an array of three."""


@compiled
def _life(origins: int, events: int) -> MemberArrays:
    X, last, hole = np.zeros(origins, np.int32), np.zeros(origins, np.int32), np.full(origins, NEVER, np.int32)
    taint, unsure, mark = np.full(origins, -1, np.int32), np.zeros(origins, np.uint8), np.zeros(events, np.uint8)
    opener, touched = np.empty(events, np.int32), np.empty(events, np.int32)
    return MemberArrays(X, last, hole, taint, unsure, mark, opener, touched, np.zeros(3, np.int64))


@compiled
def _begin(life: MemberArrays) -> None:
    """With nothing."""
    life.X[:] = 0
    life.last[:] = 0
    life.hole[:] = NEVER
    life.taint[:] = -1
    life.unsure[:] = 0
    for k in range(life.n[0]):
        life.mark[life.touched[k]] = 0
    life.n[:] = 0


@compiled
def _forget(life: MemberArrays) -> None:
    """The member goes on from a state that is not known."""
    _begin(life)
    life.unsure[:] = 1
    life.n[2] = 1


@compiled
def _mark(life: MemberArrays, base: Longs, o: int, first: int, last: int, opener: int, skipped: int) -> None:
    """(o, first) .. (o, last) are skipped by the delivery of `opener`."""
    for e in range(base[o] + first - 1, base[o] + last):
        life.mark[e] = skipped
        life.opener[e] = opener
        life.touched[life.n[0]] = e
        life.n[0] += 1
    if skipped == HOLE and first <= last:
        life.n[1] += last - first + 1
        life.hole[o] = min(life.hole[o], first)


@compiled
def states(n: int) -> States:
    """Room for so many."""
    first, entries, at, size = (
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )
    origin, upto, unsure = np.empty(64, np.int32), np.empty(64, np.int32), np.empty(64, np.uint8)
    has, vague = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
    event, skipped, opener = np.empty(64, np.int32), np.empty(64, np.uint8), np.empty(64, np.int32)
    used = np.zeros(2, np.int64)
    return States(first, entries, origin, upto, unsure, has, vague, at, size, event, skipped, opener, used)


@compiled
def _roomy(states: States, origins: int, skipped: int) -> States:
    """The same with room for so many more entries and skipped events."""
    first, entries, origin, upto, unsure, has, vague, at, size, event, passed, opener, used = states
    while used[0] + origins > len(origin):
        origin, upto, unsure = grown(origin), grown(upto), grown_bytes(unsure)
    while used[1] + skipped > len(event):
        event, passed, opener = grown(event), grown_bytes(passed), grown(opener)
    return States(first, entries, origin, upto, unsure, has, vague, at, size, event, passed, opener, used)


@compiled
def _save(states: States, k: int, life: MemberArrays) -> States:
    """The state as number k."""
    states = _roomy(states, len(life.X), life.n[0])
    used = states.used
    states.has[k] = 1
    states.vague[k] = life.n[2]
    states.first[k], states.at[k] = used[0], used[1]
    for o in range(len(life.X)):
        if life.X[o]:
            states.origin[used[0]], states.upto[used[0]] = o, life.X[o]
            states.unsure[used[0]] = life.unsure[o]
            used[0] += 1
    for j in range(life.n[0]):
        e = life.touched[j]
        if life.mark[e]:
            states.event[used[1]] = e
            states.skipped[used[1]] = life.mark[e]
            states.opener[used[1]] = life.opener[e]
            used[1] += 1
    states.entries[k], states.size[k] = used[0] - states.first[k], used[1] - states.at[k]
    return states


@compiled
def _load(life: MemberArrays, states: States, k: int, past: Past, mine: bool) -> None:
    """Go on from state k. What it lacks is still due to the member if it is `mine`: its own, from before."""
    _begin(life)
    life.n[2] = states.vague[k]
    life.unsure[:] = states.vague[k]
    life.taint[:] = -2
    entries = range(states.first[k], states.first[k] + states.entries[k])
    for j in entries:
        life.X[states.origin[j]], life.unsure[states.origin[j]] = states.upto[j], states.unsure[j]
    for j in range(states.at[k], states.at[k] + states.size[k]):
        e = states.event[j]
        o = past.origin[e]
        s = e - past.base[o] + 1
        _mark(life, past.base, o, s, s, states.opener[j], states.skipped[j] if mine else PASSED)
    for j in entries:
        o = states.origin[j]
        s = life.X[o]
        while s and life.mark[past.base[o] + s - 1]:
            s -= 1
        life.last[o] = s


@compiled
def _tainted(life: MemberArrays, past: Past, o: int, s: int, temp: Ints) -> int:
    """(o, s) is next of its origin and skips nothing new. An origin with a hole in its past, or -1."""
    if life.taint[o] >= 0:
        return int(life.taint[o])
    if life.hole[o] < s:
        life.taint[o] = o
    elif life.taint[o] == -1:  # nothing up to (o, s-1), and holes made since are above its past: the news can meet one
        e = past.base[o] + s - 1
        for k in range(past.at[e], past.at[e] + past.size[e]):
            if life.hole[past.entry[k]] <= past.value[k]:
                life.taint[o] = past.entry[k]
                break
    else:
        temp[:] = 0
        raise_to(temp, past, o, s)
        life.taint[o] = -1
        for i in range(len(temp)):
            if i != o and life.hole[i] <= temp[i]:
                life.taint[o] = i
                break
    return int(life.taint[o])


@compiled
def _fill(life: MemberArrays, past: Past, e: int, o: int, s: int) -> None:
    """What was skipped is delivered after all."""
    if life.mark[e] == HOLE:
        life.n[1] -= 1
        if life.hole[o] == s:
            s += 1
            while s <= life.X[o] and life.mark[past.base[o] + s - 1] != HOLE:
                s += 1
            life.hole[o] = s if s <= life.X[o] else NEVER
        for i in range(len(life.taint)):
            if life.taint[i] >= 0:
                life.taint[i] = -2
    life.mark[e] = 0


@compiled
def _skip(life: MemberArrays, past: Past, e: int, temp: Ints) -> tuple[int, int]:
    """(o, s) comes without all of its past: X rises to it, and what that skips becomes holes. Verdict and cause."""
    o = past.origin[e]
    s = e - past.base[o] + 1
    temp[:] = life.X
    raise_to(temp, past, o, s)
    temp[o] = s - 1
    cause = -1
    for i in range(len(temp)):
        if temp[i] > life.X[i]:
            low = life.X[i] + 1
            if not life.unsure[i] and (cause < 0 or i == o):
                cause = past.base[i] + low - 1
            _mark(life, past.base, i, low, temp[i], e, PASSED if life.unsure[i] else HOLE)
            life.X[i] = temp[i]
            if life.taint[i] == -1:
                life.taint[i] = -2  # nobody has looked at the past of what was skipped
    life.X[o] = life.last[o] = s
    life.unsure[o] = 0
    if cause >= 0:
        life.taint[o] = past.origin[cause]
        return OVER_GAP, cause
    life.taint[o] = -2
    return _as_next(life, past, o, s, temp)


@compiled
def _as_next(life: MemberArrays, past: Past, o: int, s: int, temp: Ints) -> tuple[int, int]:
    """Nothing is newly skipped: is anything in its past missing from before?"""
    if not life.n[1]:
        return IN_ORDER, -1
    i = _tainted(life, past, o, s, temp)
    return (IN_ORDER, -1) if i < 0 else (AFTER_GAP, past.base[i] + life.hole[i] - 1)


@compiled
def _deliver(life: MemberArrays, past: Past, e: int, next_in_order: bool, temp: Ints) -> tuple[int, int]:
    """The verdict on this delivery, and the event it is wrong with respect to. `next_in_order`: it is the next of its
    origin, and nothing is newly skipped."""
    o = past.origin[e]
    s = e - past.base[o] + 1
    if next_in_order:
        return _as_next(life, past, o, s, temp)
    if s > life.X[o]:
        return _skip(life, past, e, temp)
    if not life.mark[e]:
        return DUPLICATE, e
    cause = life.opener[e]
    _fill(life, past, e, o, s)
    if life.last[o] > s:
        return FIFO_INVERTED, cause
    life.last[o] = s
    return INVERTED, cause


@compiled
def _in_order(
    row: int, end: int, steps: Steps, early: Bytes, base: Longs, origin: Ints, whole: Ints, X: Ints, last: Ints,
    unsure: Bytes, verdict: Small,
) -> int:  # fmt: skip
    """The way that nearly every row takes, by itself: deliveries in order, of a member without holes, up to the first
    row that is none. In a loop that can do more, each row costs several times as much. Returns that row."""
    kind, what, torn = steps.kind, steps.what, steps.torn
    for r in range(row, end):
        w = int(what[r])
        if kind[r] != DELIVER or w < 0 or torn[r] or early[r]:
            return r
        o = origin[w]
        s = w - base[o] + 1
        if s != X[o] + 1:
            return r
        above = 0  # without a way out of the loop it is done several entries at a time
        for i in range(len(X)):
            above += int(whole[w, i] > X[i])
        if above != 1:  # more than its own
            return r
        for i in range(len(X)):  # only X[o] rises; but who writes one entry cannot soon read many (store forwarding)
            X[i] = max(X[i], whole[w, i])
        last[o] = s
        unsure[o] = 0
        verdict[r] = IN_ORDER
    return end


@compiled
def judge(steps: Steps, joins: Joins, past: Past, early: Bytes, todo: Bytes, given: States) -> Verdicts:
    """The verdict on every delivery of the members `todo`. `given`: states under tokens that are known from before.
    Where there are no whole vectors, news are compared."""
    begin, kind, what, torn = steps
    members, origins, tokens = len(begin) - 1, len(past.base) - 1, len(given.has)
    verdict, cause = np.full(len(kind), -1, np.int8), np.full(len(kind), -1, np.int32)
    life, temp = _life(origins, past.base[-1]), np.empty(origins, np.int32)
    taken, ends = given, states(members)
    work = work_list(tokens, todo)
    awaited(steps, todo, work, 0)
    for k in range(tokens):
        work.done[k] |= given.has[k]
    at = begin[:-1].copy()
    base, origin, news, size, entry, value = past.base, past.origin, past.at, past.size, past.entry, past.value
    X, last, unsure, n, done = life.X, life.last, life.unsure, life.n, work.done
    whole, dense = past.whole, len(past.whole) > 0
    while work.top[0] or let_one_go(work):
        work.top[0] -= 1
        m = int(work.stack[work.top[0]])
        if ends.has[m]:  # it was waiting
            _load(life, ends, m, past, True)
        else:
            _begin(life)
        while True:
            if dense and not n[1]:
                at[m] = _in_order(at[m], begin[m + 1], steps, early, base, origin, whole, X, last, unsure, verdict)
            if at[m] == begin[m + 1]:
                break
            r = at[m]
            w = int(what[r])
            if torn[r]:
                _forget(life)
            if kind[r] == DELIVER:
                if w < 0 or early[r]:
                    verdict[r] = UNKNOWN
                    at[m] += 1
                    continue
                o = origin[w]
                s = w - base[o] + 1
                fine = s == X[o] + 1
                if fine and dense:
                    above = 0
                    for i in range(origins):
                        above += int(whole[w, i] > X[i])
                    fine = above == 1  # its own
                elif fine:
                    for k in range(news[w], news[w] + size[w]):
                        if value[k] > X[entry[k]]:
                            fine = False
                            break
                if fine:
                    X[o] = last[o] = s
                    unsure[o] = 0
                if fine and not n[1]:
                    verdict[r] = IN_ORDER
                else:
                    verdict[r], cause[r] = _deliver(life, past, w, fine, temp)
            elif kind[r] == SNAPSHOT and w >= 0:
                taken = _save(taken, w, life)
                happened(work, w)
            elif kind[r] == JOIN:
                token = int(joins.token[w])
                if token >= 0 and not done[token]:
                    wait(work, m, token)
                    break
                if token >= 0 and taken.has[token]:
                    _load(life, taken, token, past, joins.how[w] == CHECKPOINT)
                elif joins.how[w] != GENESIS:
                    _forget(life)
            at[m] += 1
        ends = _save(ends, m, life)
    return Verdicts(verdict, cause, ends, taken)


class Losses(NamedTuple):
    """What members never delivered, though it was due to them: events per member, and ranges."""

    gaps: Longs
    lost: Longs
    lost_of_live: Longs
    disagreed: Longs
    member: Ints
    """Ranges that another live member has, or whose publisher is alive: who lacks them, of those that promise
    agreement (others may lack all of most publishers), ..."""
    first: Ints
    """... the first event, ..."""
    last: Ints
    """... the last."""


@compiled
def _had(past: Past, ends: States, alive: Bytes, stamp: Ints) -> tuple[Longs, Bytes]:
    """What some live member has: all up to a seq per origin, and beyond that what is marked."""
    upto, had = np.zeros(len(past.base) - 1, np.int64), np.zeros(past.base[-1], np.uint8)
    holes = np.zeros(len(past.base) - 1, np.int64)
    for turn in range(2):
        for m in range(len(alive)):
            if not alive[m]:
                continue
            for k in range(ends.at[m], ends.at[m] + ends.size[m]):
                holes[past.origin[ends.event[k]]] += 1
                stamp[ends.event[k]] = m + 1
            for k in range(ends.first[m], ends.first[m] + ends.entries[m]):
                o = ends.origin[k]
                if turn == 0 and not holes[o]:
                    upto[o] = max(upto[o], ends.upto[k])
                elif turn == 1 and holes[o]:
                    for e in range(past.base[o] + upto[o], past.base[o] + ends.upto[k]):
                        had[e] |= stamp[e] != m + 1
            for k in range(ends.at[m], ends.at[m] + ends.size[m]):
                holes[past.origin[ends.event[k]]] = 0
    return upto, had


@compiled
def losses(past: Past, ends: States, alive: Bytes, superseded: Bytes, live_origin: Bytes, agreement: Bytes) -> Losses:
    """Over all members of a run. `superseded`: they live on in another, whose gaps theirs are now. `agreement`: those
    who promise it."""
    members, origins = len(alive), len(past.base) - 1
    stamp = np.zeros(past.base[-1], np.int32)
    upto, had = _had(past, ends, alive, stamp)
    gaps, lost = np.zeros(members, np.int64), np.zeros(members, np.int64)
    of_live, disagreed = np.zeros(members, np.int64), np.zeros(members, np.int64)
    who, first, last, used = np.empty(64, np.int32), np.empty(64, np.int32), np.empty(64, np.int32), 0
    X, unsure = np.zeros(origins, np.int32), np.zeros(origins, np.uint8)
    for m in range(members):
        if superseded[m]:
            continue
        for k in range(ends.at[m], ends.at[m] + ends.size[m]):
            hole = ends.skipped[k] == HOLE
            gaps[m] += hole
            stamp[ends.event[k]] = -(m + 1) if hole else 0
        if not alive[m]:
            continue
        X[:] = 0
        unsure[:] = ends.vague[m]
        for k in range(ends.first[m], ends.first[m] + ends.entries[m]):
            X[ends.origin[k]], unsure[ends.origin[k]] = ends.upto[k], ends.unsure[k]
        for o in range(origins):
            if unsure[o]:
                continue
            open_range = False
            low = past.base[o] + X[o]
            for e in range(past.base[o] if gaps[m] else low, past.base[o + 1]):
                due = e >= low or stamp[e] == -(m + 1)
                lost[m] += due
                of_live[m] += due and live_origin[o]
                there = e < past.base[o] + upto[o] or had[e]
                disagreed[m] += due and there
                if due and (there or live_origin[o]) and agreement[m]:
                    if open_range:
                        last[used - 1] = e
                    else:
                        if used == len(who):
                            who, first, last = grown(who), grown(first), grown(last)
                        who[used], first[used], last[used] = m, e, e
                        used += 1
                        open_range = True
                else:
                    open_range = False
    return Losses(gaps, lost, of_live, disagreed, who[:used].copy(), first[:used].copy(), last[:used].copy())
