"""The general engine: every process's vector, queue and list, as the core keeps them, in arrays.

A process is advanced only when somebody needs to know its state: when it sends. Between two of its sends nothing that
it does can be seen by others. So one pass over the messages in the order of sending, advancing only the sender of
each, is a correct simulation, with no event queue. Every `stride` messages all processes catch up, each independent of
the others: that is where nearly all work is done, on as many threads as there are.

The oracle. The true past of a message is everything its sender had delivered or sent, and the past of all that. Older
than the longest delay it is delivered everywhere, so a set of bits over the recent messages is exact. Message `x` has
bit `x mod S`:

    missing[p]   sent, and not delivered at p
    known[p]     delivered at p, or in the past of something delivered at p (the paper's vector clock with its maximum)
    past[m]      known[sender] when m was sent

    an error     m is delivered while past[m] & missing[p] is not empty
    overtaken    m is in known[p] before it is delivered: something that depends on it came first (eps_max counts it)
    seen wrong   not overtaken, and past[m] is not within known[p] (eps_min counts only these)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.errors import ConfigError
from whence.scale.jit import kernel, span, threaded
from whence.scale.network import Run, key_sets, travel
from whence.scale.random import RECEIVER, bits

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

DELIVERED, ERRORS, SEEN, OVERTAKEN, ALERTS4, ALERTS5, UNALERTED4, UNALERTED5, EARLY = range(9)
"""Columns of the counts."""

ERROR, COVERED, WITNESSED = 1, 2, 4
"""Bits of a logged decision, below the message's number."""

LOG = 3
"""How many bits those are."""

SCANNED, COMING, WAITING, RECENT, NEXT, LOGGED = range(6)
"""Columns of `State.sizes`."""

FIRST, LAST, LOW, HIGH, WINDOW, SHIFT = range(6)
"""Entries of `State.limits`."""


class State(NamedTuple):
    """All processes and the recent messages, in arrays; `p` is a process, `m` a message, `H` and `S` powers of two."""

    limits: I64
    """Messages FIRST .. LAST-1 at processes LOW .. HIGH-1 are counted; the WINDOW; SHIFT: bits of a message's
    number."""
    V: I32
    """[p, R] the vector."""
    missing: U64
    """[p, S / 64] sent, and not delivered here."""
    known: U64
    """[p, S / 64] delivered here, or in the past of something delivered here."""
    sizes: I64
    """[p, .] messages before SCANNED have been looked at; how long the next three are."""
    coming: I64
    """[p, .] what is on its way: arrival time and number in one integer, ascending."""
    waiting: I64
    """[p, .] arrived and not ready, in order of arrival."""
    recent: I64
    """[p, .] the list L, a ring."""
    receiver: U32
    """[p] the hash under which it gets its copies."""
    keys: I32
    """[p, K] f(p)."""
    need: I32
    """[m mod H, R] what V has to reach before m: its stamp, less one in the sender's entries."""
    stamp: I32
    """[m mod H, R] m.V itself."""
    sets: I32
    """[m mod H, K] f(sender)."""
    past: U64
    """[m mod H, S / 64] the true past."""
    counts: I64
    log: I64
    """[p, .] decisions, for tests; has no columns otherwise."""


@kernel
def _ready(p: int, row: int, V: Any, need: Any, past: Any, missing: Any) -> Any:
    """Algorithm 2: no entry of V is too small. That is so if nothing of the past is missing (PCO17 Corollary 1), which
    is cheaper to see; otherwise all entries are compared (the sign survives the or)."""
    behind = np.uint64(0)
    for w in range(past.shape[1]):
        behind |= past[row, w] & missing[p, w]
    if behind == 0:
        return True
    short = np.int32(0)
    for x in range(V.shape[1]):
        short |= V[p, x] - need[row, x]
    return short >= 0


@kernel
def _witnessed(p: int, m: int, window: int, recent: Any, size: int, stamp: Any, sets: Any) -> Any:
    """Algorithm 5: does a recent delivery depend on the values that m sets?"""
    last = len(stamp) - 1
    row = m & last
    for i in range(min(size, recent.shape[1])):
        other = recent[p, i]
        line = other & last
        k = 0
        while k < sets.shape[1] and stamp[line, sets[row, k]] >= stamp[row, sets[row, k]]:
            k += 1
        if k == sets.shape[1] and other >= m - window:  # an older one the sender of m had before: its stamp is smaller
            return True
    return False


@kernel
def _deliver(
    p: int,
    m: int,
    late: bool,
    limits: Any,
    V: Any,
    missing: Any,
    known: Any,
    sizes: Any,
    recent: Any,
    need: Any,
    stamp: Any,
    sets: Any,
    past: Any,
    counts: Any,
    log: Any,
) -> None:
    """Deliver m at p: the oracle, Algorithms 4 and 5, then count it."""
    row = m & (len(need) - 1)
    bit = m & (64 * past.shape[1] - 1)
    word, flag = bit >> 6, np.uint64(1) << np.uint64(bit & 63)
    overtaken = known[p, word] & flag != 0
    wrong = unknown = np.uint64(0)
    for w in range(past.shape[1]):
        wrong |= past[row, w] & missing[p, w]
        unknown |= past[row, w] & ~known[p, w]
        known[p, w] |= past[row, w]
    known[p, word] |= flag
    missing[p, word] &= ~flag
    covered = True
    for k in range(sets.shape[1]):
        x = sets[row, k]
        covered &= V[p, x] > need[row, x]
        V[p, x] += 1
    witnessed = covered and _witnessed(p, m, limits[WINDOW], recent, sizes[p, RECENT], stamp, sets)
    recent[p, sizes[p, NEXT]] = m
    sizes[p, NEXT] = sizes[p, NEXT] + 1 if sizes[p, NEXT] + 1 < recent.shape[1] else 0
    sizes[p, RECENT] += 1
    if log.shape[1] > 0:
        log[p, sizes[p, LOGGED]] = (m << LOG) | (wrong != 0) * ERROR | covered * COVERED | witnessed * WITNESSED
        sizes[p, LOGGED] += 1
    if limits[FIRST] <= m < limits[LAST] and limits[LOW] <= p < limits[HIGH]:
        counts[p, DELIVERED] += 1
        if covered or late or wrong != 0 or overtaken:
            counts[p, ERRORS] += wrong != 0
            counts[p, SEEN] += (not overtaken) and unknown != 0
            counts[p, OVERTAKEN] += overtaken
            counts[p, ALERTS4] += covered
            counts[p, ALERTS5] += witnessed
            counts[p, UNALERTED4] += overtaken and not covered
            counts[p, UNALERTED5] += overtaken and not witnessed
            counts[p, EARLY] += late or wrong != 0


@kernel
def _expect(p: int, key: int, coming: Any, sizes: Any) -> None:
    """Note that something will arrive."""
    at = sizes[p, COMING]
    while at > 0 and coming[p, at - 1] > key:
        coming[p, at] = coming[p, at - 1]
        at -= 1
    coming[p, at] = key
    sizes[p, COMING] += 1


@kernel
def _scan(s: Any, net: Any, p: int, until: int) -> None:
    """Look at the messages sent before number `until`: when does each arrive here?"""
    missing, known, coming, sizes = s.missing, s.known, s.coming, s.sizes
    shift, receiver = s.limits[SHIFT], s.receiver[p]
    send, sender, apart, key1, key2, base, city, skew, lost, retry = net
    ring = 64 * missing.shape[1]
    for m in range(sizes[p, SCANNED], until):
        bit = m & (ring - 1)
        flag = np.uint64(1) << np.uint64(bit & 63)
        known[p, bit >> 6] &= ~flag  # it still says something about message m - ring
        if sender[m] == p:
            continue
        missing[p, bit >> 6] |= flag
        arrival = send[m] + travel(m, p, receiver, sender, apart, key1, key2, base, city, skew, lost, retry)
        _expect(p, (arrival << shift) | m, coming, sizes)
    sizes[p, SCANNED] = max(sizes[p, SCANNED], until)


@kernel
def _retry(s: Any, p: int) -> None:
    """What waits, first come first, from the start again after each delivery, to a fixed point."""
    waiting, sizes, V, need, past, missing = s.waiting, s.sizes, s.V, s.need, s.past, s.missing
    at = 0
    while at < sizes[p, WAITING]:
        m = waiting[p, at]
        if not _ready(p, m & (len(need) - 1), V, need, past, missing):
            at += 1
            continue
        for i in range(at, sizes[p, WAITING] - 1):
            waiting[p, i] = waiting[p, i + 1]
        sizes[p, WAITING] -= 1
        _deliver(
            p, m, True, s.limits, V, s.missing, s.known, sizes, s.recent, need, s.stamp, s.sets, s.past, s.counts, s.log
        )
        at = 0


@kernel
def _advance(s: Any, net: Any, p: int, until: int) -> None:
    """Process `p` up to the moment at which message `until` is sent: everything that arrives before."""
    _scan(s, net, p, until)
    # Read once: every look at a field of a tuple counts references, which costs more than a delivery.
    limits, V, missing, known, sizes, coming, waiting = s.limits, s.V, s.missing, s.known, s.sizes, s.coming, s.waiting
    recent, need, stamp, sets, past, counts, log = s.recent, s.need, s.stamp, s.sets, s.past, s.counts, s.log
    shift = limits[SHIFT]
    end = (net.send[until] << shift) | until
    mask = (1 << shift) - 1
    done = 0
    while done < sizes[p, COMING] and coming[p, done] < end:
        m = coming[p, done] & mask
        done += 1
        if _ready(p, m & (len(need) - 1), V, need, past, missing):
            _deliver(p, m, False, limits, V, missing, known, sizes, recent, need, stamp, sets, past, counts, log)
            if sizes[p, WAITING] > 0:
                _retry(s, p)
        else:
            waiting[p, sizes[p, WAITING]] = m
            sizes[p, WAITING] += 1
    for i in range(done, sizes[p, COMING]):
        coming[p, i - done] = coming[p, i]
    sizes[p, COMING] -= done


@kernel
def _send(s: Any, net: Any, m: int) -> None:
    """Algorithm 1. What is older than the window is no longer part of a past: everybody has it."""
    p = net.sender[m]
    _advance(s, net, p, m)
    row = m & (len(s.need) - 1)
    for x in range(s.V.shape[1]):
        s.need[row, x] = s.V[p, x]
    for k in range(s.keys.shape[1]):
        s.V[p, s.keys[p, k]] += 1
        s.sets[row, k] = s.keys[p, k]
    for x in range(s.V.shape[1]):
        s.stamp[row, x] = s.V[p, x]
    _scan(s, net, p, m + 1)
    ring = 64 * s.past.shape[1]
    for w in range(s.past.shape[1]):
        s.past[row, w] = 0
    for x in range(max(0, m - s.limits[WINDOW]), m):
        bit = x & (ring - 1)
        s.past[row, bit >> 6] |= s.known[p, bit >> 6] & (np.uint64(1) << np.uint64(bit & 63))
    bit = m & (ring - 1)
    s.known[p, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
    s.missing[p, bit >> 6] &= ~(np.uint64(1) << np.uint64(bit & 63))
    if s.sizes[p, WAITING] > 0:  # an own send counts too, and can set free what waits
        _retry(s, p)


@kernel
def _replace(s: Any, net: Any, p: int, sponsor: int, now: int, receiver: Any, keys: Any) -> None:
    """Just before message `now` a process leaves; a new one copies the sponsor's state, and will get what the sponsor
    has not got yet."""
    _advance(s, net, p, now)
    _advance(s, net, sponsor, now)
    logged = s.sizes[p, LOGGED]
    s.V[p] = s.V[sponsor]
    s.missing[p] = s.missing[sponsor]
    s.known[p] = s.known[sponsor]
    s.waiting[p] = s.waiting[sponsor]
    s.recent[p] = s.recent[sponsor]
    s.sizes[p] = s.sizes[sponsor]
    s.sizes[p, LOGGED] = logged
    s.receiver[p] = receiver
    s.keys[p] = keys
    s.sizes[p, COMING] = 0
    shift = s.limits[SHIFT]
    send, sender, apart, key1, key2, base, city, skew, lost, retry = net
    for i in range(s.sizes[sponsor, COMING]):
        m = s.coming[sponsor, i] & ((1 << shift) - 1)
        time = travel(m, p, receiver, sender, apart, key1, key2, base, city, skew, lost, retry)
        arrival = max(send[m] + time, send[now])
        _expect(p, (arrival << shift) | m, s.coming, s.sizes)


@threaded
def steps(s: Any, net: Any, begin: int, end: int, stride: int, changes: Any) -> None:
    """Messages begin .. end-1. The changes: just before which message, who is replaced, from whose state, new hash and
    keys."""
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


class General:
    """A run, step by step."""

    def __init__(self, run: Run, part: tuple[int, int] = (0, 1), log: bool = False) -> None:
        """`part`: (i, n) counts only the i-th n-th of the receivers. `log`: keep every decision, for tests."""
        self.run = run
        s, N, W = run.settings, run.settings.processes, run.window
        self.stride = min(256, max(16, N // 8))
        self.total = len(run.net.send)
        self.done = 0
        words = _power(2 * W + self.stride + 2) // 64
        slots = _power(2 * W + self.stride + 2)
        R = -(-s.entries // 16) * 16  # whole vector registers; the rest stays 0
        low, high = (N * i // part[1] for i in (part[0], part[0] + 1))
        shift = self.total.bit_length()
        if int(run.net.send[-1] + run.longest).bit_length() + shift > 62:
            raise ConfigError(
                f"rate: {self.total:,} messages at {s.rate:g} a second take too long for the engine's clock"
            )
        self.state = State(
            limits=np.array([run.first, run.last, low, high, W, shift], np.int64),
            V=np.zeros((N, R), np.int32),
            missing=np.zeros((N, words), np.uint64),
            known=np.zeros((N, words), np.uint64),
            sizes=np.zeros((N, 8), np.int64),
            coming=np.zeros((N, W + self.stride + 2), np.int64),
            waiting=np.zeros((N, W + 2), np.int64),
            recent=np.zeros((N, s.listed), np.int64),
            receiver=run.receiver.copy(),
            keys=run.keys.copy(),
            need=np.zeros((slots, R), np.int32),
            stamp=np.zeros((slots, R), np.int32),
            sets=np.zeros((slots, s.keys), np.int32),
            past=np.zeros((slots, words), np.uint64),
            counts=np.zeros((N, 16), np.int64),
            log=np.zeros((N, self.total + W * int((run.replaced >= 0).sum()) if log else 0), np.int64),
        )
        at = np.nonzero(run.replaced >= 0)[0]
        names = N + np.arange(len(at))  # a new process is a new name
        self.changes = (
            at,
            run.replaced[at],
            run.sponsor[at],
            bits(s.seed, RECEIVER, names).astype(np.uint32),
            key_sets(s, names) if len(at) else run.keys[:0],
        )

    def step(self, messages: int) -> bool:
        """Go on by so many messages; False when all of the run is done."""
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
