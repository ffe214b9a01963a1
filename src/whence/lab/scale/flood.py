"""How one event spreads among all members: exact first arrivals, by gossip.

**The calendar.** Arrivals wait in buckets that are no wider than the shortest delay. A copy sent by a member of a
bucket arrives in a later one, so all first arrivals of a bucket are final when it is reached, in whatever order its
members are taken. Each member then sends all its copies at once.

**Randomness** is a hash of the event, the sender and the number of the copy. So nothing depends on the order of the
work: threads take different events.

Where this is simpler than `core.cast`: a member's targets are drawn with replacement from all others (or from its
partial view, of which it takes some that follow each other), the sender not left out; views do not change but for
members that are forgotten; copies that come within one microsecond are one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.lab.scale.jit import kernel, span, thread, threaded
from whence.lab.scale.random import I32, hashed

AGE = 5
"""Bits of an arrival's age in hops, below its time in microseconds."""
NEVER = np.int32(2**31 - 1)
COUNT, GONE, BUCKET, LATEST = 63, 64, 7, 510
"""A member's state, in 16 bits: how many copies came (COUNT, as many or more); GONE, all views have forgotten it; from
bit BUCKET on the bucket in which it expects the event so far (LATEST: that or a later one; one more: none; 0: what
comes is of no use)."""
FIRST = 1 << BUCKET
AGES = (1 << AGE) - 1
CHUNK = 256
"""Members that are noted next to each other in the calendar."""
CITY_KEY, PHASE_KEY, VIEW_KEY, DELAY_KEY = (np.uint32(x) for x in (0x51ED270B, 0x2C1B3C6D, 0x297A2D39, 0x9E3779B1))


class Links(NamedTuple):
    """Delays and losses; an argument of compiled functions. Times in microseconds."""

    least: int
    """The shortest delay."""
    shift: int
    """A bucket is 2^shift wide: not wider than the shortest delay."""
    lost: np.uint32
    """A copy with a hash below it is lost."""
    jitter: I32
    """What a delay may be more (or less) than that between the cities: 4,096 quantiles."""
    base: I32
    """Between cities."""


class Manner(NamedTuple):
    """How members gossip; an argument of compiled functions."""

    fanout: int
    termination: int
    round: int
    """Microseconds; 0: eager."""
    known: int
    """Members in a partial view; 0: all."""
    forget: int
    """Microseconds after which views forget a member that is down; 0: never."""
    phase: np.uint32
    """Of the run: gives each member the phase of its rounds, and its view."""


@kernel
def below32(word: Any, n: int) -> Any:
    """A number below n, from 32 random bits."""
    return np.int64((np.uint64(word) * np.uint64(n)) >> np.uint64(32))


@kernel
def city_of(p: int, cities: int) -> Any:
    """Members are assigned to cities at random."""
    return below32(hashed(np.uint32(p), CITY_KEY, CITY_KEY), cities)


@kernel
def delay(word: Any, p: int, q: int, least: int, jitter: Any, base: Any) -> Any:
    """How long a copy from p to q takes."""
    word = np.uint32(word * np.uint32(0x85EBCA77))  # other bits than those of the loss
    time = jitter[np.uint32(word ^ (word >> np.uint32(15))) >> np.uint32(20)]
    if len(base) == 1:
        time += base[0, 0]
    else:
        time += base[city_of(p, len(base)), city_of(q, len(base))]
    return max(np.int64(time), np.int64(least))


@kernel
def phase_of(p: int, phase: Any, pause: int) -> Any:
    """When the member's rounds begin, within a round."""
    return below32(hashed(np.uint32(p), phase, PHASE_KEY), pause)


@kernel
def targets(p: int, k: int, key: Any, manner: Any, n: int, to: Any, words: Any) -> None:
    """Whom p sends its k-th message of the event to, and 32 random bits for each copy."""
    fanout, view, phase = manner.fanout, manner.known, manner.phase
    begin = np.uint32(np.uint32(p) * np.uint32(64))
    key1, key2 = np.uint32(key), np.uint32((key >> np.uint64(32)) + np.uint64(k) * np.uint64(0x632BE5AB))
    start = below32(hashed(begin, key1, key2), view) if view else 0
    for j in range(fanout):  # a loop of its own, so that it is vectorised
        words[j] = hashed(np.uint32(begin + np.uint32(j)), key2, np.uint32(key1 ^ DELAY_KEY))
        if view:
            at = np.uint32(begin + np.uint32((start + j) % view))
            to[j] = below32(hashed(at, np.uint32(phase ^ VIEW_KEY), phase), n - 1)
        else:
            to[j] = below32(hashed(np.uint32(begin + np.uint32(j)), key1, key2), n - 1)
    for j in range(fanout):
        to[j] += to[j] >= p


@kernel
def retarget(q: int, p: int, word: Any, key: Any, state: Any) -> Any:
    """Another member, as long as that one is forgotten."""
    n = len(state)
    for x in range(64):
        if state[q] & GONE == 0 and q != p:
            break
        q = below32(hashed(np.uint32(word + np.uint32(x)), np.uint32(key >> np.uint64(32)), VIEW_KEY), n)
    return q


@kernel
def begin(at: int, forget: int, down: Any, up: Any, came: Any, state: Any) -> Any:
    """Nobody has the event. Returns whether anybody is or will be down."""
    came[:] = NEVER
    state[:] = (LATEST + 1) << BUCKET
    for p in range(len(down)):
        if down[p] <= at < up[p]:
            state[p] = GONE if forget and at - down[p] > forget else 0
    return len(down) > 0


@kernel
def flood(
    origin: int, at: int, key: Any, links: Any, manner: Any, down: Any, up: Any, came: Any, state: Any, s: Any
) -> Any:
    """First arrivals in `came` (microseconds after `at`, and the age), copies that came in `state`. Returns how many
    were sent. The origin never goes down before it has sent."""
    # Read fields once: each access counts references.
    least, shift, lost, jitter, base = links
    fanout, termination, pause, _, forget, phase = manner
    heads, fill, before, entries, free, found, to, times, words = s
    mortal = begin(at, forget, down, up, came, state)
    last, n, top, chunk = len(heads) - 1, len(came), 1, 0
    heads[:] = -1
    for i in range(len(free)):
        free[i] = i
    came[origin] = 0
    heads[0], fill[0], before[0], entries[0] = 0, 1, -1, origin
    bucket, idle, copies = 0, 0, 0
    while idle <= last:  # nothing is further ahead than the calendar is long
        here = bucket & last
        bucket += 1
        idle += 1
        while heads[here] >= 0:
            idle, count, chunk = 0, 0, heads[here]
            for i in range(chunk * CHUNK, chunk * CHUNK + fill[here]):
                found[count] = entries[i]
                count += state[entries[i]] >= FIRST  # else it came earlier
            heads[here], fill[here] = before[chunk], CHUNK
            top -= 1
            free[top] = chunk
            for i in range(count):
                p: Any = np.int64(found[i])
                state[p] &= GONE | COUNT
                when, age = np.int64(came[p] >> AGE), np.int64(came[p] & AGES)
                tick = pause - (at + when - phase_of(p, phase, pause)) % pause if pause else 0
                for k in range(termination - age if pause else int(age < termination)):
                    sent = when + tick + k * pause
                    if mortal and down[p] > at and at + sent >= down[p]:
                        break
                    targets(p, k, key, manner, n, to, words)
                    copies += fanout
                    live = 0
                    for j in range(fanout):  # without branches: nobody could predict them
                        q, word = to[j], words[j]
                        if forget and state[q] & GONE:
                            q = retarget(q, p, word, key, state)
                        time = sent + delay(word, p, q, least, jitter, base)
                        seen, good = np.int64(state[q]), word >= lost
                        state[q] = seen + (good & (seen & COUNT < COUNT))
                        to[live], times[live] = q, time
                        live += good & (min(time >> shift, LATEST) <= seen >> BUCKET)
                    for j in range(live):
                        q, time = to[j], times[j]
                        new, old = np.int32((time << AGE) | (age + k + 1)), came[q]
                        if new >= old or (mortal and down[q] > at and at + time >= down[q]):
                            continue
                        came[q] = new
                        if old >> (AGE + shift) == new >> (AGE + shift):  # it is in that bucket already
                            continue
                        state[q] = (state[q] & (GONE | COUNT)) | (min(time >> shift, LATEST) << BUCKET)
                        place = (time >> shift) & last
                        if heads[place] < 0 or fill[place] == CHUNK:
                            chunk = free[top]
                            top += 1
                            before[chunk] = heads[place]
                            heads[place], fill[place] = chunk, 0
                        entries[heads[place] * CHUNK + fill[place]] = q
                        fill[place] += 1
    return copies


@threaded
def spread(
    origins: Any, at: Any, keys: Any, links: Any, manner: Any, down: Any, up: Any, came: Any, state: Any, s: Any
) -> Any:
    """A batch of events, on all threads. `came`: a row for each."""
    copies = np.zeros(len(origins), np.int64)
    for e in span(len(origins)):
        t = thread()
        own = (s[0][t], s[1][t], s[2][t], s[3][t], s[4][t], s[5][t], s[6][t], s[7][t], s[8][t])
        copies[e] = flood(origins[e], at[e], keys[e], links, manner, down, up, came[e], state[e], own)
    return copies
