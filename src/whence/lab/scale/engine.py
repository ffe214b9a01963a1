"""The engine: every process's vector, queue and list, as in the core, in arrays.

A process is advanced only when it sends: between two sends its actions are invisible to others. So one pass over the
messages in sending order, advancing only each sender, is a correct simulation without an event queue. Every `stride`
messages all processes catch up, independently of each other; nearly all work is done there, on all threads.

The oracle. The true past of a message is everything its sender had delivered or sent, and the past of all that.
Messages older than the longest delay are delivered everywhere, so a set of bits over the recent messages is exact.
Message `x` has bit `x mod S`:

    missing[p]   sent, and not delivered at p
    heard[p]     missing, but in the past of something delivered at p
    past[m]      what the sender of m knew: everything except what was missing and not heard of (the paper's vector
                 clock with its maximum)

    an error     m is delivered while past[m] & missing[p] is not empty
    overtaken    m is in heard[p] when it is delivered: something that depends on it came first (eps_max counts it)
    seen wrong   not overtaken, and past[m] & missing[p] is not within heard[p] (eps_min counts only these)

Few messages are missing at any time, and those are recent: a delivery looks at the words of bits from the oldest
missing message on, nearly always one or two. If they have nothing in common with past[m], m is ready, and correct
(PCO17 Corollary 1); only otherwise the R entries are compared. Algorithm 4 needs only the K entries of the sender.
Algorithm 5 asks of two messages whether the stamp of one reaches the entries that the other set. The answer is the same
at all processes, so it is a set of bits per message (`claims`), which is intersected with that of the list L
(`listed`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whence.errors import ConfigError
from whence.lab.scale.jit import kernel, span, threaded
from whence.lab.scale.network import Prepared, key_sets, travel
from whence.lab.scale.random import I32, I64, RECEIVER, U32, U64, bits

DELIVERED, ERRORS, SEEN, OVERTAKEN, ALERTS4, ALERTS5, UNALERTED4, UNALERTED5, EARLY = range(9)
"""Columns of the counts."""

ERROR, COVERED, WITNESSED = 1, 2, 4
"""Bits of a logged decision, below the message's number."""

LOG = 3
"""The number of those bits."""

SCANNED, COMING, WAITING, NEXT, LOGGED, OLDEST = range(6)
"""Columns of `Processes.sizes`."""

FIRST, LAST, WINDOW, SHIFT = range(4)
"""Entries of `Processes.limits`."""

NUMBER = 32
"""Bits of a message's number in `Processes.waiting`; above them is the entry it waits for."""

LANES = 16
"""Entries of a vector that are compared at once."""


class _Processes(NamedTuple):
    """All processes and the recent messages, in arrays; `p` is a process, `m` a message, `H` and `S` powers of two."""

    limits: I64
    """Messages FIRST .. LAST-1 are counted; the WINDOW; SHIFT, the bits of a number."""
    V: I32
    """[p, R] the vector."""
    missing: U64
    """[p, S / 64] sent, and not delivered here."""
    heard: U64
    """[p, S / 64] missing, and in the past of something delivered here."""
    listed: U64
    """[p, S / 64] the recent ones of the list L."""
    sizes: I64
    """[p, .] messages before SCANNED are processed; the lengths of `coming` and `waiting`; the NEXT place in L; the
    length LOGGED; nothing is missing before the word of bits OLDEST."""
    coming: I64
    """[p, .] messages in flight: arrival time and number in one integer, ascending."""
    waiting: I64
    """[p, .] arrived and not ready, in order of arrival: an entry of V that is too small, and the number."""
    recent: I64
    """[p, .] the list L, a ring; -1: empty."""
    receiver: U32
    """[p] its hash, which determines its delays."""
    keys: I32
    """[p, K] f(p)."""
    need: I32
    """[m mod H, R] what V must reach before m: its stamp, less one in the sender's entries."""
    stamp: I32
    """[m mod H, R] m.V itself."""
    sets: I32
    """[m mod H, K] f(sender)."""
    own: I32
    """[m mod H, K] m.V in those entries."""
    past: U64
    """[m mod H, S / 64] the true past."""
    claims: U64
    """[m mod H, S / 64] the messages whose stamps reach m.V in all entries of f(sender)."""
    counts: I64
    log: I64
    """[p, .] decisions, for tests; has no columns otherwise."""


@kernel
def _blocker(p: int, row: int, V: Any, need: Any) -> Any:
    """PCO17 Algorithm 2: an entry of V that is too small for a message, or -1 (`or` keeps the sign)."""
    for x in range(0, V.shape[1], LANES):
        short = np.int32(0)
        for i in range(LANES):
            short |= V[p, x + i] - need[row, x + i]
        if short < 0:
            while V[p, x] >= need[row, x]:
                x += 1
            return x
    return -1


@kernel
def _hear(p: int, row: int, past: Any, missing: Any, heard: Any) -> Any:
    """A message is delivered before its past, which p now knows of; returns whether any of it was new."""
    new = np.uint64(0)
    for w in range(past.shape[1]):
        behind = past[row, w] & missing[p, w]
        new |= behind & ~heard[p, w]
        heard[p, w] |= behind
    return new != 0


@kernel
def _witnessed(p: int, row: int, claims: Any, listed: Any) -> Any:
    """PCO17 Algorithm 5: whether a recent delivery depends on the values that the message sets."""
    found = np.uint64(0)
    for w in range(claims.shape[1]):
        found |= claims[row, w] & listed[p, w]
    return found != 0


@kernel
def _list(p: int, m: int, scanned: int, listed: Any, recent: Any, sizes: Any) -> None:
    """Append m to L and drop the oldest."""
    last = 64 * listed.shape[1] - 1
    at = sizes[p, NEXT]
    old = recent[p, at]
    if old + last >= scanned - 1:  # the bit of a still older one is now that of another message
        listed[p, (old & last) >> 6] &= ~(np.uint64(1) << np.uint64(old & 63))
    listed[p, (m & last) >> 6] |= np.uint64(1) << np.uint64(m & 63)
    recent[p, at] = m
    sizes[p, NEXT] = at + 1 if at + 1 < recent.shape[1] else 0


@kernel
def _count(
    p: int, late: bool, wrong: bool, new: bool, overtaken: bool, covered: bool, witnessed: bool, counts: Any
) -> None:
    """Count a delivery; most only add to DELIVERED."""
    counts[p, DELIVERED] += 1
    if covered or late or wrong or overtaken:
        counts[p, ERRORS] += wrong
        counts[p, SEEN] += new and not overtaken
        counts[p, OVERTAKEN] += overtaken
        counts[p, ALERTS4] += covered
        counts[p, ALERTS5] += witnessed
        counts[p, UNALERTED4] += overtaken and not covered
        counts[p, UNALERTED5] += overtaken and not witnessed
        counts[p, EARLY] += late or wrong


@kernel
def _expect(p: int, key: int, coming: Any, at: int) -> None:
    """Insert an arrival among `at` others."""
    while at > 0 and coming[p, at - 1] > key:
        coming[p, at] = coming[p, at - 1]
        at -= 1
    coming[p, at] = key


@kernel
def _scan(s: Any, net: Any, p: int, until: int) -> None:
    """Compute the arrivals of the messages sent before number `until`."""
    missing, listed, coming, sizes = s.missing, s.listed, s.coming, s.sizes
    shift, receiver = s.limits[SHIFT], s.receiver[p]
    send, sender, apart, key1, key2, base, city, skew, lost, retry = net
    last = missing.shape[1] - 1
    begin, size = sizes[p, SCANNED], sizes[p, COMING]
    room = coming[p, size:]
    for m in range(begin, until):  # a separate loop, so that it is vectorised
        time = travel(m, p, receiver, sender, apart, key1, key2, base, city, skew, lost, retry)
        room[m - begin] = ((send[m] + time) << shift) | m
    for m in range(begin, until):
        key = room[m - begin]
        if m & 63 == 0:  # the next word still refers to old messages
            listed[p, ((m >> 6) + 1) & last] = 0
        if sender[m] == p:
            continue
        missing[p, (m >> 6) & last] |= np.uint64(1) << np.uint64(m & 63)
        _expect(p, key, coming, size)
        size += 1
    sizes[p, COMING] = size
    sizes[p, SCANNED] = max(sizes[p, SCANNED], until)


@kernel
def _take(s: Any, p: int, end: int, at: int) -> None:
    """Process everything that arrives at p before `end`. After a delivery, waiting messages are retried in order of
    arrival, from the start after each success, to a fixed point. `at`: the first one to try now."""
    # Read fields once: each access counts references, which costs more than a delivery.
    limits, V, missing, heard, listed, sizes = s.limits, s.V, s.missing, s.heard, s.listed, s.sizes
    coming, waiting, recent, need, sets, own = s.coming, s.waiting, s.recent, s.need, s.sets, s.own
    past, claims, counts, log = s.past, s.claims, s.counts, s.log
    first, last = limits[FIRST], limits[LAST]
    number = (1 << limits[SHIFT]) - 1
    rows, words = len(need) - 1, past.shape[1] - 1
    done, size, waits, oldest, scanned = 0, sizes[p, COMING], sizes[p, WAITING], sizes[p, OLDEST], sizes[p, SCANNED]
    while True:
        late = at < waits
        if late:
            m = waiting[p, at] & ((1 << NUMBER) - 1)
            x = waiting[p, at] >> NUMBER
            if V[p, x] < need[m & rows, x]:
                at += 1
                continue
        elif done < size and coming[p, done] < end:
            m = coming[p, done] & number
            done += 1
        else:
            break
        row = m & rows
        while missing[p, oldest & words] == 0:  # m itself is missing
            oldest += 1
        behind = np.uint64(0)
        for w in range(oldest, (m >> 6) + 1):
            behind |= past[row, w & words] & missing[p, w & words]
        if behind != 0:
            short = _blocker(p, row, V, need)
            if short >= 0:
                if not late:
                    at = waits
                    waits += 1
                waiting[p, at] = (short << NUMBER) | m
                at += 1
                continue
        if late:
            waits -= 1
            for i in range(at, waits):
                waiting[p, i] = waiting[p, i + 1]
        at = 0
        new = _hear(p, row, past, missing, heard) if behind != 0 else False
        word, flag = (m >> 6) & words, np.uint64(1) << np.uint64(m & 63)
        overtaken = heard[p, word] & flag != 0
        heard[p, word] &= ~flag
        missing[p, word] &= ~flag
        covered = True
        for k in range(sets.shape[1]):
            x = sets[row, k]
            covered &= V[p, x] >= own[row, k]  # Algorithm 4
            V[p, x] += 1
        witnessed = _witnessed(p, row, claims, listed) if covered else False
        _list(p, m, scanned, listed, recent, sizes)
        if log.shape[1] > 0:
            log[p, sizes[p, LOGGED]] = (m << LOG) | (behind != 0) * ERROR | covered * COVERED | witnessed * WITNESSED
            sizes[p, LOGGED] += 1
        if first <= m < last:
            _count(p, late, behind != 0, new, overtaken, covered, witnessed, counts)
    for i in range(done, size):
        coming[p, i - done] = coming[p, i]
    sizes[p, COMING], sizes[p, WAITING], sizes[p, OLDEST] = size - done, waits, oldest


@kernel
def _advance(s: Any, net: Any, p: int, until: int) -> None:
    """Advance `p` to the time at which message `until` is sent."""
    _scan(s, net, p, until)
    _take(s, p, (net.send[until] << s.limits[SHIFT]) | until, s.sizes[p, WAITING])


@kernel
def _claim(m: int, window: int, stamp: Any, sets: Any, own: Any, claims: Any) -> None:
    """PCO17 Algorithm 5 between m and the messages before it, in both directions. If two messages are farther apart
    than the window, the sender of the later one had the earlier one: its stamp is smaller, and wherever the later one
    is delivered the earlier one was."""
    rows, words = len(stamp) - 1, claims.shape[1] - 1
    row, K = m & rows, sets.shape[1]
    claims[row] = 0
    for other in range(max(0, m - window), m):
        line = other & rows
        k = 0
        while k < K and stamp[row, sets[line, k]] >= own[line, k]:
            k += 1
        if k == K:
            claims[line, (m >> 6) & words] |= np.uint64(1) << np.uint64(m & 63)
        k = 0
        while k < K and stamp[line, sets[row, k]] >= own[row, k]:
            k += 1
        if k == K:
            claims[row, (other >> 6) & words] |= np.uint64(1) << np.uint64(other & 63)


@kernel
def _send(s: Any, net: Any, m: int) -> None:
    """PCO17 Algorithm 1. Messages older than the window are left out of the past: everybody has them."""
    p = net.sender[m]
    _advance(s, net, p, m)
    V, missing, heard, past, window = s.V, s.missing, s.heard, s.past, s.limits[WINDOW]
    row = m & (len(s.need) - 1)
    s.need[row] = V[p]
    for k in range(s.keys.shape[1]):
        x = s.keys[p, k]
        V[p, x] += 1
        s.sets[row, k] = x
        s.own[row, k] = V[p, x]
    s.stamp[row] = V[p]
    _claim(m, window, s.stamp, s.sets, s.own, s.claims)
    words = past.shape[1] - 1
    past[row] = 0
    begin = max(0, m - window)
    for w in range(begin >> 6, (m >> 6) + 1):
        past[row, w & words] = ~missing[p, w & words] | heard[p, w & words]
    past[row, (begin >> 6) & words] &= ~np.uint64(0) << np.uint64(begin & 63)
    past[row, (m >> 6) & words] &= (np.uint64(1) << np.uint64(m & 63)) - np.uint64(1)
    _scan(s, net, p, m + 1)
    if s.sizes[p, WAITING] > 0:  # an own send may make waiting messages ready
        _take(s, p, (net.send[m] << s.limits[SHIFT]) | m, 0)


@kernel
def _replace(s: Any, net: Any, p: int, sponsor: int, now: int, receiver: Any, keys: Any) -> None:
    """Just before message `now` a process leaves. A new one copies the sponsor's state, and gets what the sponsor has
    not received yet."""
    _advance(s, net, p, now)
    _advance(s, net, sponsor, now)
    logged = s.sizes[p, LOGGED]
    for of in (s.missing, s.heard, s.listed):
        of[p] = of[sponsor]
    for of in (s.waiting, s.recent, s.sizes):
        of[p] = of[sponsor]
    s.V[p] = s.V[sponsor]
    s.sizes[p, LOGGED] = logged
    s.receiver[p] = receiver
    s.keys[p] = keys
    shift = s.limits[SHIFT]
    send, sender, apart, key1, key2, base, city, skew, lost, retry = net
    for i in range(s.sizes[sponsor, COMING]):
        m = s.coming[sponsor, i] & ((1 << shift) - 1)
        time = travel(m, p, receiver, sender, apart, key1, key2, base, city, skew, lost, retry)
        arrival = max(send[m] + time, send[now])
        _expect(p, (arrival << shift) | m, s.coming, i)


@threaded
def steps(s: Any, net: Any, begin: int, end: int, stride: int, changes: Any) -> None:
    """Process messages begin .. end-1. Each change: the message it precedes, the replaced process, the sponsor, the new
    hash and keys."""
    at, who, sponsors, receivers, keys = changes
    change = np.searchsorted(at, begin)
    for start in range(begin, end, stride):
        stop = min(start + stride, end)
        for m in range(start, stop):
            while change < len(at) and at[change] == m:
                _replace(s, net, who[change], sponsors[change], m, receivers[change], keys[change])
                change += 1
            _send(s, net, m)
        for p in span(len(s.V)):
            _advance(s, net, p, min(stop, len(net.send) - 1))


class Engine:
    """A run, step by step."""

    def __init__(self, run: Prepared, log: bool = False) -> None:
        """`log`: keep every decision, for tests."""
        self.run = run
        s, N, W = run.settings, run.settings.processes, run.window
        self.stride = min(256, max(16, N // 8))
        self.total = len(run.net.send)
        self.done = 0
        slots = _power(2 * W + self.stride + 130)  # everything a delivery may need, and two words of bits to clear
        words = slots // 64
        R = -(-s.entries // LANES) * LANES  # the rest stays 0
        shift = self.total.bit_length()
        if int(run.net.send[-1] + run.longest).bit_length() + shift > 62:
            raise ConfigError(
                f"rate: {self.total:,} messages at {s.rate:g} a second take too long for the engine's clock"
            )
        self.state = _Processes(
            limits=np.array([run.first, run.last, W, shift], np.int64),
            V=np.zeros((N, R), np.int32),
            missing=np.zeros((N, words), np.uint64),
            heard=np.zeros((N, words), np.uint64),
            listed=np.zeros((N, words), np.uint64),
            sizes=np.zeros((N, 8), np.int64),
            coming=np.zeros((N, W + self.stride + 2), np.int64),
            waiting=np.zeros((N, W + 2), np.int64),
            recent=np.full((N, s.listed), -1, np.int64),
            receiver=run.receiver.copy(),
            keys=run.keys.copy(),
            need=np.zeros((slots, R), np.int32),
            stamp=np.zeros((slots, R), np.int32),
            sets=np.zeros((slots, s.keys), np.int32),
            own=np.zeros((slots, s.keys), np.int32),
            past=np.zeros((slots, words), np.uint64),
            claims=np.zeros((slots, words), np.uint64),
            counts=np.zeros((N, 16), np.int64),
            log=np.zeros((N, self.total + W * int((run.replaced >= 0).sum()) if log else 0), np.int64),
        )
        at = np.nonzero(run.replaced >= 0)[0]
        names = N + np.arange(len(at))  # a new process has a new number
        self.changes = (
            at,
            run.replaced[at],
            run.sponsor[at],
            bits(s.seed, RECEIVER, names).astype(np.uint32),
            key_sets(s, names) if len(at) else run.keys[:0],
        )

    def step(self, messages: int) -> bool:
        """Process this many more messages; False when the run is complete."""
        if self.done >= self.total:
            return False
        end = min(self.done + messages, self.total)
        steps(self.state, self.run.net, self.done, end, self.stride, self.changes)
        self.done = end
        return True

    @property
    def counts(self) -> I64:
        """The sums, by column."""
        return np.asarray(self.state.counts.sum(axis=0))

    def decisions(self) -> dict[int, list[tuple[int, bool, bool, bool]]]:
        """What each process delivered, in order: (message, error, Algorithm 4, Algorithm 5)."""
        log, sizes = self.state.log, self.state.sizes[:, LOGGED]
        return {
            p: [(int(e) >> LOG, bool(e & ERROR), bool(e & COVERED), bool(e & WITNESSED)) for e in log[p, : sizes[p]]]
            for p in range(len(log))
        }


def _power(n: int) -> int:
    """The least power of two that is at least n, and 64."""
    return max(64, 1 << (n - 1).bit_length())
