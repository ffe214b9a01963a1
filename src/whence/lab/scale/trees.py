"""How one event spreads along trees, with lazy repair (`core.cast.tree`): first arrivals.

Members have links both ways to as many neighbours as the core looks for. The tree of a publisher consists of the links
over which a flood from there came first. An event is pushed along it; a member below a lost push (or a crashed member)
hears of the event by announcements, which neighbours send with their next two rounds, waits for `graft`, and asks the
nearest announcer. What it then gets it pushes on. Repairs use a calendar as `flood` does.

Simpler than the core: the links are random cycles over all members. A repair does not bend the tree: all trees (and
links) are made anew, over those who live, once a crash is noticed by silence; who comes and goes (churn) is repaired
around. A flood of an origin's first event is not counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.lab.scale.flood import AGE, AGES, BUCKET, DELAY_KEY, NEVER, delay, phase_of
from whence.lab.scale.jit import kernel, span, thread, threaded, wide
from whence.lab.scale.random import I32, bits, hashed

LINK = 48
"""A stream of random numbers, and those after it: the links."""
NEWS = np.uint32(0x7FEB352D)
LATE = wide(1 << 40)
REQUESTS = 4
"""As `core.cast.tree.REQUESTS`."""


class Grove(NamedTuple):
    """Links and trees; an argument of compiled functions. A tree's members stand in the order in which its flood
    reached them."""

    links: I32
    """[epoch, p, .] neighbours; the link j of p is the link j ^ 1 of its neighbour."""
    order: I32
    """[tree, i] the member."""
    above: I32
    """[tree, i] where its parent stands."""
    place: I32
    """[tree, p] where p stands."""
    below: I32
    """[tree, i] how many it pushes to."""
    epoch: I32
    """[tree]"""


def cycles(members: int, degree: int, living: Any, seed: int, epoch: int) -> I32:
    """Links: random cycles over those who live; two links of each cycle. Others have none (-1)."""
    found = np.full((members, degree), -1, np.int32)
    for i in range(0, degree, 2):
        ring = living[np.argsort(bits(seed, LINK + epoch, living + np.uint64(i) * np.uint64(members)))]
        found[ring, i] = np.roll(ring, -1)
        found[ring, i + 1] = np.roll(ring, 1)
    return found


@kernel
def grow(
    origin: int, key: Any, links: Any, least: int, shift: int, jitter: Any, base: Any, due: Any, above: Any
) -> None:
    """A flood: when it reaches each member (`due`), and from where (`above`)."""
    due[:], above[:] = NEVER, -1
    due[origin] = 0
    key1, key2, bucket = np.uint32(key), np.uint32(key >> np.uint64(32)), 0
    while bucket < NEVER:
        later = wide(NEVER)
        for p in range(len(due)):
            here = due[p] >> shift
            if here > bucket and due[p] < NEVER:
                later = min(later, wide(here))
            if here != bucket:
                continue
            for j in range(links.shape[1]):
                q = wide(links[p, j])
                if q >= 0:
                    word = hashed(np.uint32(p * 64 + j), key1, key2)
                    time = due[p] + delay(word, p, q, least, jitter, base)
                    if time < due[q]:
                        due[q], above[q] = time, p
                        later = min(later, time >> shift)
        bucket = later


@kernel
def told(
    u: int, v: int, j: int, since: int, at: int, key: Any, least: int, lost: Any, jitter: Any, base: Any, pause: int,
    phase: Any,
) -> Any:  # fmt: skip
    """When an announcement by u, which has the event since `since`, reaches v at its link j; LATE: never. Half of the
    neighbours are told in each round."""
    word = hashed(np.uint32(u * 64 + j), np.uint32(np.uint32(key) ^ NEWS), np.uint32(key >> np.uint64(32)))
    if word < lost:
        return LATE
    begin = phase_of(u, phase, pause)
    rounds = (at + since - begin) // pause + 1
    rounds += (rounds + j) & 1
    return rounds * pause + begin - at + delay(word, u, v, least, jitter, base)


@kernel
def down_tree(
    tree: int, at: int, key: Any, net: Any, grove: Any, down: Any, up: Any, came: Any, state: Any, keys: Any
) -> Any:
    """Pushes along the tree; returns how many."""
    least, _, lost, jitter, base = net
    order, above, below = grove.order[tree], grove.above[tree], grove.below[tree]
    key1, key2, copies, mortal = np.uint32(key), np.uint32(key >> np.uint64(32)), 0, len(down) > 0
    keys[0], came[order[0]], state[order[0]] = 0, 0, below[0] << BUCKET
    copies = wide(below[0])
    for i in range(1, len(order)):
        p = wide(order[i])
        if p < 0:
            break
        parent = keys[above[i]]
        word = hashed(np.uint32(i), key1, np.uint32(key2 ^ DELAY_KEY))
        new = parent + (np.int32(delay(word, order[above[i]], p, least, jitter, base)) << AGE) + 1
        arrives = parent < NEVER and word >= lost
        if mortal and arrives:
            arrives = not down[p] <= at + (new >> AGE) < up[p]
        keys[i] = new if arrives else NEVER
        came[p] = keys[i]
        state[p] = (below[i] << BUCKET | 1) if arrives else 0
        copies += below[i] * arrives
    return copies


@kernel
def nearest(
    p: int, time: int, skip: int, at: int, key: Any, least: int, lost: Any, jitter: Any, base: Any, pause: int,
    phase: Any, links: Any, came: Any,
) -> Any:  # fmt: skip
    """The neighbour with the least age that has told p of the event by `time`, after `skip` others (of fewer, the
    last)."""
    chosen, floor = wide(-1), wide(-1)
    for _ in range(skip + 1):
        best = wide(1 << 30)
        for j in range(links.shape[1]):
            u = wide(links[p, j])
            if u < 0 or came[u] < 0 or came[u] == NEVER:
                continue
            rank = wide((came[u] & AGES) * 64 + j)
            if not floor < rank < best:
                continue
            if told(u, p, j ^ 1, came[u] >> AGE, at, key, least, lost, jitter, base, pause, phase) <= time:
                best, chosen = rank, u
        floor = best
    return chosen


@kernel
def plan(i: int, time: int, heads: Any, calendar: Any, size: int) -> Any:
    """Something happens to the i-th of those who miss the event, perhaps; returns the size of the calendar."""
    place = time % len(heads)
    calendar[size] = wide(heads[place]) << 32 | i
    heads[place] = size
    return size + 1


@kernel
def repair(
    tree: int, at: int, key: Any, net: Any, manner: Any, graft: int, grove: Any, down: Any, up: Any, came: Any,
    state: Any, s: Any,
) -> Any:  # fmt: skip
    """Whoever got no push asks; returns copies. `push` and `ask`: when one comes next, and the member's next request.
    Meanwhile `came` has their number, x as -2 - x."""
    least, shift, lost, jitter, base = net
    pause, phase = manner.round, manner.phase
    links, place = grove.links[grove.epoch[tree]], grove.place[tree]
    above, order, below = grove.above[tree], grove.order[tree], grove.below[tree]
    who, age, tries, heads, push, ask, calendar = s[1:]
    key1, key2, copies, mortal = np.uint32(key), np.uint32(key >> np.uint64(32)), 0, len(down) > 0
    heads[:], count, size = -1, 0, 0
    for p in range(len(came)):
        if came[p] == NEVER and place[p] >= 0 and not (mortal and down[p] <= at < up[p]):
            came[p], who[count], tries[count], push[count], ask[count] = -2 - count, p, 0, LATE, LATE
            for j in range(links.shape[1]):
                u = wide(links[p, j])
                if u >= 0 and 0 <= came[u] < NEVER:
                    hears = told(u, p, j ^ 1, came[u] >> AGE, at, key, least, lost, jitter, base, pause, phase)
                    ask[count] = min(ask[count], hears + graft)
            if ask[count] < LATE:
                size = plan(count, ask[count] >> shift, heads, calendar, size)
            count += 1
    bucket, idle = wide(0), 0
    while idle < len(heads):
        here = bucket % len(heads)
        entry, heads[here] = heads[here], -1
        bucket, idle = bucket + 1, idle + 1
        while entry >= 0:
            i, entry = calendar[entry] & wide(0xFFFFFFFF), calendar[entry] >> 32
            p, due = wide(who[i]), min(push[i], ask[i])
            if due >> shift >= bucket:  # it was planned for now before something came in between
                continue
            idle = 0
            if mortal and down[p] <= at + due < up[p]:
                push[i] = ask[i] = LATE
            elif push[i] > ask[i]:
                skip = tries[i] % 2
                u = nearest(p, due, skip, at, key, least, lost, jitter, base, pause, phase, links, came)
                tries[i] += 1
                ask[i] = due + graft if tries[i] < REQUESTS else LATE
                there = hashed(np.uint32(p), np.uint32(key1 + np.uint32(tries[i])), key2)
                back = hashed(there, key2, key1)
                then = due + delay(there, p, u, least, jitter, base)
                state[p] += 1 << BUCKET
                if there >= lost and not (mortal and down[u] <= at + then < up[u]):
                    state[u] += 1 << BUCKET
                    copies += 1
                    if back >= lost:
                        then += delay(back, u, p, least, jitter, base)
                        if then < push[i]:
                            push[i], age[i] = then, (came[u] & AGES) + 1
                if min(push[i], ask[i]) < LATE:
                    size = plan(i, min(push[i], ask[i]) >> shift, heads, calendar, size)
            else:
                time, push[i], ask[i] = push[i], LATE, LATE
                came[p] = (time << AGE) | min(age[i], AGES)
                state[p] += (below[place[p]] << BUCKET) + 1
                copies += below[place[p]]
                for j in range(links.shape[1]):
                    q = wide(links[p, j])
                    x = -2 - wide(came[q]) if q >= 0 else -1
                    if x < 0:  # it has the event
                        continue
                    before = min(push[x], ask[x])
                    if tries[x] == 0:
                        hears = told(p, q, j, time, at, key, least, lost, jitter, base, pause, phase)
                        ask[x] = min(ask[x], hears + graft)
                    if order[above[place[q]]] == p:
                        word = hashed(np.uint32(place[q]), key1, np.uint32(key2 ^ DELAY_KEY))
                        new = time + delay(word, p, q, least, jitter, base)
                        if word >= lost and new < push[x]:
                            push[x], age[x] = new, age[i] + 1
                    if min(push[x], ask[x]) < before:
                        size = plan(x, min(push[x], ask[x]) >> shift, heads, calendar, size)
    for i in range(count):
        if came[who[i]] < 0:
            came[who[i]] = NEVER
    return copies


@threaded
def climb(
    trees: Any, at: Any, keys: Any, net: Any, manner: Any, graft: int, grove: Any, down: Any, up: Any, came: Any,
    state: Any, s: Any,
) -> Any:  # fmt: skip
    """A batch of events, on all threads; as `flood.spread`."""
    copies = np.zeros(len(trees), np.int64)
    for e in span(len(trees)):
        t = thread()
        own = (s[0][t], s[1][t], s[2][t], s[3][t], s[4][t], s[5][t], s[6][t], s[7][t])
        came[e][:], state[e][:] = NEVER, 0
        copies[e] = down_tree(trees[e], at[e], keys[e], net, grove, down, up, came[e], state[e], own[0])
        copies[e] += repair(trees[e], at[e], keys[e], net, manner, graft, grove, down, up, came[e], state[e], own)
    return copies


def scratch(threads: int, members: int, buckets: int, degree: int) -> tuple[Any, ...]:
    """What the threads need for themselves; only what is used takes memory."""
    plain = [np.empty((threads, members), np.int32) for _ in range(4)]
    times = [np.empty((threads, members), np.int64) for _ in range(2)]
    calendar = np.empty((threads, (degree + REQUESTS + 2) * members), np.int64)
    return (*plain, np.empty((threads, buckets), np.int32), *times, calendar)


def plant(members: int, degree: int, owners: Any, seed: int, net: Any, epochs: list[Any], which: Any) -> Grove:
    """The trees of these owners; `which`: the epoch of each; an epoch: those who live in it."""
    degree += degree % 2
    links = np.stack([cycles(members, degree, living, seed, x) for x, living in enumerate(epochs)])
    shape = (len(owners), members)
    order, above, place, below = (np.full(shape, fill, np.int32) for fill in (-1, 0, -1, 0))
    due, parent = np.empty(members, np.int32), np.empty(members, np.int32)
    least, shift, _, jitter, base = net
    for tree, owner in enumerate(owners):
        key = bits(seed, LINK - 1, [tree])[0]
        grow(int(owner), key, links[which[tree]], least, shift, jitter, base, due, parent)
        known = np.argsort(due, kind="stable")[: int((due < NEVER).sum())]
        order[tree, : len(known)] = known
        place[tree, known] = np.arange(len(known))
        above[tree, 1 : len(known)] = place[tree, parent[known[1:]]]
        below[tree] = np.bincount(above[tree, 1 : len(known)], minlength=members)
    return Grove(links, order, above, place, below, np.asarray(which, np.int32))
