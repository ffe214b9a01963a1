"""When members deliver, from when events arrive there: the order layer of `core.order.engine`, in closed form.

`a` is when an event arrives at a member, `S` its deadline there, `R` when it is resolved: delivered, or given up. For
events in the order of publishing, which extends causal order:

    S[x] = min(a[x] + patience, S of everything that depends on x)
    R[x] = min(S[x], max(a[x], R of the direct predecessors of x))

An event that is there at R is delivered then, any other one is late. Why this is the engine of the core: what arrives
waits until all its past is resolved, and for `patience` at most. Then everything it depends on is delivered that is
there, and given up that is not. So only a deadline that is reached makes anything come earlier, and one that is not
reached changes nothing: R of the past is below it anyway. `reliable` has no deadlines. `fifo` has one predecessor, the
event before on the same ticket, `unordered` none.

Few deadlines are reached. So `resolve` computes R without them, for all members at once, and `give_up` corrects the
members where an event waited for too long.

Times are microseconds after the event's own publishing, in rings of rows, one for each recent event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.lab.scale.flood import BUCKET, below32, delay
from whence.lab.scale.jit import kernel, span, threaded
from whence.lab.scale.random import hashed

LOST = np.int32(1 << 30)
"""It does not arrive, or is never resolved."""
LIMIT = np.int32(1 << 29)
"""Later than any time; LOST less any difference of times is above it."""
ABSENT = np.int32(-1)
"""The member is not there all the time: it does not count, and nothing waits there."""
BLOCK = 4096
"""Members whose rows are in a core's own cache."""
BINS = 8192
"""Of a histogram."""
DELIVERED, MISSED, LATE, BLOCKED, HELD, HELD_US, LONGEST, INVERTED = range(8)
"""Columns of the counts."""
ASK = np.uint32(0x68E31DA4)


@kernel
def direct(x: int, oldest: int, fifo: bool, ticket: Any, deps: Any, of: Any, before: Any) -> Any:
    """The direct predecessors of x that are in the rings."""
    tickets, count = deps.shape[1], 0
    for t in range(tickets):
        s = deps[x, t]
        if s == 0 or of[t, s] < oldest or (fifo and t != ticket[x]):
            continue
        covered = False
        for u in range(tickets):
            if u != t and deps[x, u] and not fifo:
                covered |= deps[of[u, deps[x, u]], t] >= s
        if not covered:
            before[x, count] = of[t, s]
            count += 1
    return count


@kernel
def give_up(
    x: int, p: int, oldest: int, patience: int, fifo: bool, a: Any, r: Any, at: Any, ticket: Any, seq: Any, deps: Any,
    before: Any, counts: Any,
) -> None:  # fmt: skip
    """The deadline of x is reached at p: what it depends on is resolved then; others may come earlier by that."""
    rows = len(a)
    for z in range(oldest, x + 1):
        row = z % rows
        due = a[row, p]
        for j in range(counts[z]):
            d = before[z, j]
            if d >= oldest:
                due = max(due, r[d % rows, p] + np.int32(at[d] - at[z]))
        past = deps[x, ticket[z]] >= seq[z] and not (fifo and ticket[z] != ticket[x])
        if z == x or past:
            due = min(due, a[x % rows, p] + np.int32(patience + at[x] - at[z]))
        r[row, p] = min(r[row, p], due)


@kernel
def resolve(
    x: int, lo: int, hi: int, oldest: int, patience: int, fifo: bool, a: Any, r: Any, at: Any, ticket: Any, seq: Any,
    deps: Any, before: Any, counts: Any,
) -> None:  # fmt: skip
    """R of one event at members lo .. hi-1. `patience` 0: there are no deadlines."""
    rows = len(a)
    mine, theirs = r[x % rows, lo:hi], a[x % rows, lo:hi]
    mine[:] = theirs
    for j in range(counts[x]):
        d = before[x, j]
        if d >= oldest:
            other, gap = r[d % rows, lo:hi], np.int32(at[d] - at[x])
            for i in range(len(mine)):
                mine[i] = max(mine[i], other[i] + gap)
    late = 0
    for i in range(len(mine)):
        mine[i] = LOST if mine[i] > LIMIT else mine[i]
        late |= (theirs[i] < LIMIT) & (theirs[i] >= 0) & (mine[i] - theirs[i] > patience)
    if patience and late:
        for i in range(len(mine)):
            if 0 <= theirs[i] < LIMIT and mine[i] - theirs[i] > patience:
                give_up(x, lo + i, oldest, patience, fifo, a, r, at, ticket, seq, deps, before, counts)


@threaded
def resolve_all(
    first: int, last: int, oldest: int, patience: int, fifo: bool, a: Any, r: Any, at: Any, ticket: Any, seq: Any,
    deps: Any, before: Any, counts: Any,
) -> None:  # fmt: skip
    """R of events first .. last-1 everywhere, blocks of members on all threads."""
    n = a.shape[1]
    for b in span((n + BLOCK - 1) // BLOCK):
        for x in range(first, last):
            low, hi = b * BLOCK, min(n, b * BLOCK + BLOCK)
            resolve(
                x, low, hi, max(oldest, x - len(a) + 1), patience, fifo, a, r, at, ticket, seq, deps, before, counts
            )


@threaded
def caused(first: int, last: int, oldest: int, r: Any, c: Any, at: Any, before: Any, counts: Any) -> None:
    """Where members deliver in a weaker order: when, at the earliest, causal order would let them. What never comes
    holds nothing back."""
    rows, n = r.shape
    for b in span((n + BLOCK - 1) // BLOCK):
        for x in range(first, last):
            for i in range(b * BLOCK, min(n, b * BLOCK + BLOCK)):
                due = r[x % rows, i] if r[x % rows, i] < LIMIT else ABSENT
                for j in range(counts[x]):
                    d = before[x, j]
                    if d >= max(oldest, x - rows + 1):
                        due = max(due, c[d % rows, i] + np.int32(at[d] - at[x]))
                c[x % rows, i] = due


@threaded
def settle(
    came: Any, state: Any, first: int, a: Any, termination: int, fanout: int, rounds: bool, gone: Any, load: Any
) -> None:
    """Arrivals of a batch into the ring, and the load of each member: copies sent and received. `gone`: members that
    do not count, for each event. `fanout` 0: trees, where the state says how many were sent."""
    rows, n = a.shape
    for b in span((n + BLOCK - 1) // BLOCK):
        for e in range(len(came)):
            for i in range(b * BLOCK, min(n, b * BLOCK + BLOCK)):
                key, row = came[e, i], (first + e) % rows
                age = key & 31
                known = key < np.int32(2**31 - 1)
                left = max(0, termination - age)
                sent = fanout * (left if rounds else min(left, 1)) if fanout else state[e, i] >> BUCKET
                load[0, i] += sent if known else 0
                load[1, i] += state[e, i] & 63
                a[row, i] = key >> 5 if known else LOST
                if len(gone) and gone[e, i]:
                    a[row, i] = ABSENT


@threaded
def count(first: int, last: int, unit: int, a: Any, r: Any, c: Any, counts: Any, histogram: Any) -> None:
    """Count what is final: events first .. last-1. `histogram`: of arrivals and of deliveries, in bins of 2^unit
    microseconds; for each block of members one, and `counts`."""
    rows, n = a.shape
    for b in span((n + BLOCK - 1) // BLOCK):
        for x in range(first, last):
            for i in range(b * BLOCK, min(n, b * BLOCK + BLOCK)):
                came, when = a[x % rows, i], r[x % rows, i]
                if came <= 0:  # absent, or the publisher
                    continue
                if came >= LIMIT:
                    counts[b, MISSED] += 1
                    continue
                histogram[0, b, min(came >> unit, BINS - 1)] += 1
                if when >= LIMIT:
                    counts[b, BLOCKED] += 1
                elif came > when:
                    counts[b, LATE] += 1
                else:
                    histogram[1, b, min(when >> unit, BINS - 1)] += 1
                    counts[b, DELIVERED] += 1
                    counts[b, HELD] += when > came
                    counts[b, HELD_US] += when - came
                    counts[b, LONGEST] = max(counts[b, LONGEST], when - came)
                    counts[b, INVERTED] += c[x % rows, i] > when


@kernel
def learn(
    x: int, k: int, oldest: int, r: Any, at: Any, ticket: Any, seq: Any, deps: Any, merged: Any, known: Any
) -> None:
    """What publisher k knows of when it publishes x: what it has delivered (or given up), and all its past."""
    rows = len(r)
    for w in range(oldest, x):
        row = w % rows
        if not merged[row, k] and at[w] + r[row, k] <= at[x]:
            merged[row, k] = True
            for t in range(deps.shape[1]):
                known[k, t] = max(known[k, t], deps[w, t])
            known[k, ticket[w]] = max(known[k, ticket[w]], seq[w])


@kernel
def holds(q: int, e: int, time: int, upto: int, buffer: int, a: Any, at: Any) -> Any:
    """Whether q has the event in its recovery buffer at a time (CCC11 Theorem 5.1): first in, first out."""
    rows = len(a)
    came = a[e % rows, q]
    if came < 0 or at[e] + came > time:
        return False
    if upto - e + rows < buffer:  # so many can not have come since
        return True
    newer = 0
    for w in range(max(0, upto - rows), upto):
        when = a[w % rows, q]
        newer += 0 <= when < LIMIT and at[e] + came < at[w] + when <= time
    return newer < buffer


@kernel
def ask(
    e: int, p: int, time: int, k: int, source: int, teller: int, turn: int, upto: int, buffer: int, key: Any,
    links: Any, a: Any, at: Any, down: Any, up: Any, load: Any, tally: Any,
) -> Any:  # fmt: skip
    """p asks for e: its `source` (R1) or `k` members at random, and the one that told of it. Returns when the first
    answer comes, in microseconds after e was published; LOST: never. `tally`: requests, answers."""
    least, _, lost, jitter, base = links
    n, best = a.shape[1], np.int64(LOST)
    key1, key2 = np.uint32(key), np.uint32(key >> np.uint64(32))
    for j in range(-1, 1 if source >= 0 else k):
        word = hashed(np.uint32(p * 64 + j + turn * 1024), np.uint32(key1 ^ ASK), key2)
        q = source if source >= 0 and j == 0 else below32(word, n)
        if j < 0:
            if teller < 0 or source >= 0:
                continue
            q = teller
        if q == p:
            continue
        tally[0] += 1
        load[0, p] += 1
        there = hashed(word, key2, key1)
        back = hashed(word, np.uint32(key2 ^ ASK), key1)
        then = time + delay(there, p, q, least, jitter, base)
        if there < lost or (len(down) and down[q] <= then < up[q]):
            continue
        load[1, q] += 1
        if holds(q, e, then, upto, buffer, a, at):
            load[0, q] += 1
            tally[1] += 1
            if back >= lost:
                load[1, p] += 1
                best = min(best, then - at[e] + delay(back, q, p, least, jitter, base))
    return best
