"""The fast engine: only the paper's network, and without storing the processes' vectors.

1. A vector only counts deliveries. If all of m's past has arrived before m, m is delivered on arrival, and correctly
   (PCO17 Corollary 1). This needs no counting, queueing or sorting, and is true of 98 in 100 deliveries.
2. A copy's arrival time is a hash of message and receiver. So what a sender had delivered depends only on its own
  arrivals (`arrived`, then `pasts`, one pass over the messages); after that, receivers are independent (`judge`, in any
  order).
3. Say m arrives at r while some of its past is missing, and T is the arrival of the last missing message. Until T the
  only irregularity is that m may be delivered too early. Then some p in m's past arrives later than m here, and either
  the sender of m had skipped p too, or every entry of p is covered by messages that arrived by T and that the sender of
  m had not delivered. This is a cheap test that most fail. (`Pending` retries waiting messages from the oldest on after
  each delivery, so the first undelivered message of m's past cannot have arrived before m.)
4. The rest is replayed message by message with the core's own rules, from the last moment at which nothing waited at r.

Sets of messages are bits: bit i of a set of m is message m - window + i. Older messages have arrived everywhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whence.lab.scale.general import DELIVERED, EARLY, ERRORS, OVERTAKEN, SEEN
from whence.lab.scale.jit import kernel, lowest, span, threaded
from whence.lab.scale.network import Prepared
from whence.lab.scale.random import hashed, normal
from whence.lab.scale.sets import add, has, join, piece

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

LANES = 64
"""Receivers that are processed together: enough for the vector registers, few enough for the caches."""

TOGETHER = 256
"""Messages whose senders' arrivals one thread computes together."""

TOO_LONG = 15
"""Column of the counts: replays that would have to start too long ago. Then something waits nearly always, and this
engine is unsuitable: it stops at once."""

REPLAYED = 100
"""A replay of more arrivals than this is too long."""


class _Past(NamedTuple):
    """Tables about messages; an argument of compiled functions."""

    window: int
    had: U64
    """[m, .] what the sender had delivered or sent when it sent m, as counted by the stamp."""
    past: U64
    """[m, .] the true past: the transitive closure of `had`."""
    covers: U64
    """[process, R / 64] f(p) as bits."""
    keys: npt.NDArray[np.int32]
    """[process, K] f(p)."""
    sent: npt.NDArray[np.int32]
    """[m] the send time, lower 32 bits. Only differences are used, which are far smaller."""


@kernel
def _close(m: int, window: int, had: Any, past: Any) -> None:
    """past[m] from had[m], newest first: a message in the past of a newer one adds nothing."""
    for w in range(past.shape[1]):
        past[m, w] = 0
    for i in range(window - 1, -1, -1):
        flag = np.uint64(1) << np.uint64(i & 63)
        if had[m, i >> 6] & flag != 0 and past[m, i >> 6] & flag == 0:
            y = m - window + i
            if y >= 0:
                join(past, m, past, y)
            past[m, i >> 6] |= flag


@kernel
def _ready(y: int, low: int, high: int, window: int, held: Any, had: Any, sender: Any, keys: Any, count: Any) -> Any:
    """PCO17 Algorithm 2 without vectors: in no entry may the messages that y's sender had and are missing here
    outnumber those that are here and it had not. `held` is the set of messages delivered here, from `low` on; `count`
    is scratch, all zeros."""
    first = y - window
    missing = 0
    for w in range(had.shape[1]):
        word = had[y, w] & ~piece(held, first + 64 * w - low)
        while word != 0:
            x = first + 64 * w + lowest(word)
            word &= word - np.uint64(1)
            if low <= x < y:
                missing += 1
                for k in range(keys.shape[1]):
                    count[keys[sender[x], k]] -= 1
    if missing == 0:
        return True
    for w in range((high - first + 63) >> 6):
        word = piece(held, first + 64 * w - low)
        if w < had.shape[1]:
            word &= ~had[y, w]  # bits from `window` on are never set: later than y
        while word != 0:
            x = first + 64 * w + lowest(word)
            word &= word - np.uint64(1)
            for k in range(keys.shape[1]):
                count[keys[sender[x], k]] += 1
    ready = True
    for x in range(len(count)):
        ready &= count[x] >= 0
        count[x] = 0
    return ready


@kernel
def _replay(
    r: int,
    target: int,
    low: int,
    high: int,
    quiet: Any,
    until: Any,
    window: int,
    when: Any,
    doubt: Any,
    held: Any,
    known: Any,
    order: Any,
    had: Any,
    past: Any,
    sender: Any,
    keys: Any,
    count: Any,
) -> Any:
    """Replay process r from a quiet moment, when nothing waits, until `target` is delivered or time `until`.

    False if that takes too long. `when[x - low]` is the arrival of message x, for low <= x < high. Afterwards `held` is
    the set of delivered messages from `low` on, and `known` those and their past, without what target's delivery adds.
    `doubt` is False for messages whose past was complete on arrival.
    """
    events = 0
    for w in range(len(held)):
        held[w] = 0
    for i in range(high - low):
        held[i >> 6] |= np.uint64(when[i] < quiet) << np.uint64(i & 63)
        if quiet <= when[i] < until:
            at = events
            while at > 0 and when[order[at - 1]] > when[i]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
            events += 1
            if events == REPLAYED:
                return False
    for w in range(len(held)):
        known[w] = held[w]
    waiting = 0  # waiting messages are kept in the part of `order` already read
    for e in range(events):
        order[waiting] = order[e]
        waiting += 1
        at = waiting - 1  # the new one first; after each delivery from the oldest on
        while at < waiting:
            y = low + order[at]
            doubtful = doubt[y - low] and sender[y] != r
            if doubtful and not _ready(y, low, high, window, held, had, sender, keys, count):
                at += 1
                continue
            add(held, y - low, np.uint64(1))
            if y == target:
                return True
            for i in range(at, waiting - 1):
                order[i] = order[i + 1]
            waiting -= 1
            add(known, y - low, np.uint64(1))
            for w in range(past.shape[1] if doubtful else 0):
                add(known, y - window + 64 * w - low, past[y, w])
            at = 0
    return True


@kernel
def _arrivals(r: int, low: int, high: int, when: Any, receiver: Any, net: Any) -> None:
    """When the messages low .. high-1 arrive at r."""
    send, sender, apart, key1, key2, base, _, skew, _, _ = net
    for x in range(low, high):
        when[x - low] = send[x]
        if sender[x] != r:
            time = base[0, 0] + apart[x] + normal(hashed(receiver[r], key1[x], key2[x]), skew)
            when[x - low] += max(time, 0)


@kernel
def _quiet(low: int, high: int, now: int, window: int, when: Any, past: Any, coming: Any) -> Any:
    """The last moment before `now` at which the past of everything that had arrived was complete."""
    while True:
        earliest = now
        some = 0
        for x in range(low, high):
            if when[x - low] >= now:
                coming[some] = x
                some += 1
        for y in range(low, high):
            if when[y - low] < earliest:
                for i in range(some):
                    x = coming[i]
                    if x >= y:
                        break
                    if x >= y - window and has(past, y, x, window):
                        earliest = when[y - low]
                        break
        if earliest == now:
            return now
        now = earliest


@threaded
def arrived(p: Any, net: Any, receiver: Any, begin: int, end: int) -> None:
    """What had arrived at the senders of messages begin .. end-1; nearly always the same as what they had delivered."""
    window, had = p.window, p.had
    send, sender = net.send, net.sender
    for block in span(-(-(end - begin) // TOGETHER)):
        when = np.zeros(window, np.int64)
        for m in range(begin + block * TOGETHER, min(end, begin + (block + 1) * TOGETHER)):
            low = max(0, m - window)
            _arrivals(sender[m], low, m, when, receiver, net)
            for w in range(had.shape[1]):
                had[m, w] = 0
            for x in range(low, m):
                i = x - m + window
                had[m, i >> 6] |= np.uint64(when[x - low] <= send[m]) << np.uint64(i & 63)


@kernel
def pasts(p: Any, net: Any, receiver: Any, begin: int, end: int, lookback: int, counts: Any) -> None:
    """Turn what had arrived (`had`) at the senders of messages begin .. end-1 into what they had delivered, and compute
    the true past of these messages."""
    window, had, past, _, keys, _ = p
    send, sender = net.send, net.sender
    when, doubt = np.zeros(lookback, np.int64), np.ones(lookback, np.bool_)
    order, coming = np.zeros(lookback, np.int64), np.zeros(lookback, np.int64)
    held, known = np.zeros((lookback >> 6) + 1, np.uint64), np.zeros((lookback >> 6) + 1, np.uint64)
    count = np.zeros(int(keys.max()) + 1, np.int64)
    for m in range(begin, end):
        s = sender[m]
        _close(m, window, had, past)
        clean = True
        for w in range(had.shape[1]):
            clean &= had[m, w] == past[m, w]
        if clean:
            continue
        # Something arrived before its past: it waits, or was delivered too early. Only a replay can tell.
        low = max(0, m - lookback)
        _arrivals(s, low, m, when, receiver, net)
        quiet = _quiet(low, m, send[m] + 1, window, when, past, coming)
        far = low > 0 and quiet - (send[m] - send[m - window]) <= send[low]
        if far or not _replay(
            s, -1, low, m, quiet, send[m] + 1, window, when, doubt, held, known, order, had, past, sender, keys, count
        ):
            counts[0, TOO_LONG] += 1
            return
        for w in range(had.shape[1]):
            had[m, w] = piece(held, m - window + 64 * w - low)
        _close(m, window, had, past)


@kernel
def _fill(x: int, row: int, first: int, lanes: int, arrive: Any, receiver: Any, sent: Any, net: Any) -> Any:
    """The arrivals of x at each receiver of a block; returns the least and the greatest delay."""
    word1, word2, skew = net.key1[x], net.key2[x], net.skew
    mean = np.int32(net.base[0, 0] + net.apart[x])
    begin = sent[x]
    least, most = np.int32(2**30), np.int32(0)
    for lane in range(lanes):
        time = max(np.int32(0), np.int32(mean + normal(hashed(receiver[first + lane], word1, word2), skew)))
        least, most = min(least, time), max(most, time)
        arrive[row, lane] = np.int32(begin + time)
    own = net.sender[x] - first
    if 0 <= own < lanes:
        arrive[row, own] = begin
    return least, most


@kernel
def _covered(m: int, lane: int, late: Any, now: int, arrive: Any, rivals: Any, p: Any, sender: Any, cover: Any) -> Any:
    """Whether m may have been delivered too early (idea 3 above). `rivals`: messages of its past that may arrive
    later."""
    window, had, covers, sent = p.window, p.had, p.covers, p.sent
    mask = len(arrive) - 1
    mine = arrive[m & mask, lane]
    for w in range(len(cover)):
        cover[w] = 0
    for w in range(had.shape[1]):
        word = ~had[m, w]
        while word != 0:
            x = m - window + 64 * w + lowest(word)
            word &= word - np.uint64(1)
            if 0 <= x < m and np.int32(arrive[x & mask, lane] - mine) <= late:
                for v in range(len(cover)):
                    cover[v] |= covers[sender[x], v]
    for x in range(m + 1, now + 1):
        if np.int32(sent[x] - mine) > late:
            break
        if np.int32(arrive[x & mask, lane] - mine) <= late:
            for v in range(len(cover)):
                cover[v] |= covers[sender[x], v]
    for i in range(1, rivals[m & mask, 0] + 1):
        x = rivals[m & mask, i]
        if np.int32(arrive[x & mask, lane] - mine) > 0:
            bare = np.uint64(0)
            for v in range(len(cover)):
                bare |= covers[sender[x], v] & ~cover[v]
            if bare == 0 or not has(had, m, x, window):
                return True
    return False


@kernel
def _settle(
    m: int,
    lane: int,
    first: int,
    late: Any,
    now: int,
    begin: int,
    longest: int,
    bounds: Any,
    arrive: Any,
    early: Any,
    lates: Any,
    earlies: Any,
    p: Any,
    sender: Any,
    scratch: Any,
    counts: Any,
) -> Any:
    """Replay receiver first + lane until m is delivered; returns whether that was an error. `early` and `lates` are the
    messages of this lane that arrived before their past, and how long it was missing."""
    window, had, past, sent = p.window, p.had, p.past, p.sent
    when, doubt, order, count, held, known = scratch
    mask = len(arrive) - 1
    mine = arrive[m & mask, lane]
    quiet, moved = np.int32(0), True
    while moved:  # the last moment before m arrived at which nothing can have waited
        moved = False
        for e in range(earlies[lane] - 1, max(-1, earlies[lane] - 1 - early.shape[1]), -1):
            y = early[lane, e & (early.shape[1] - 1)]
            if y < now - mask:
                break
            came = np.int32(arrive[y & mask, lane] - mine)
            if came < quiet <= came + lates[lane, e & (early.shape[1] - 1)]:
                quiet, moved = came, True
    low = m
    while low > begin and np.int32(sent[low - 1] - mine) >= quiet - longest:
        low -= 1
    oldest = m  # the oldest message to try; a window before it is needed too
    for e in range(earlies[lane] - 1, max(-1, earlies[lane] - 1 - early.shape[1]), -1):
        y = early[lane, e & (early.shape[1] - 1)]
        if y < low:
            break
        if np.int32(arrive[y & mask, lane] - mine) >= quiet:
            oldest = min(oldest, y)
    low = max(begin, min(low, oldest - window))
    if low < now - mask or (low < begin + window and begin > 0):
        counts[TOO_LONG] += 1
        return False
    high = m + 1
    while high <= now and np.int32(sent[high] - mine) <= late:
        high += 1
    words = ((high - low) >> 6) + 1
    held, known = held[:words], known[:words]
    for x in range(low, high):
        when[x - low] = np.int32(arrive[x & mask, lane] - mine)
        doubt[x - low] = False
    for e in range(earlies[lane] - 1, max(-1, earlies[lane] - 1 - early.shape[1]), -1):
        y = early[lane, e & (early.shape[1] - 1)]
        if y < low:
            break
        if y < high:
            doubt[y - low] = True
    if not _replay(
        first + lane,
        m,
        low,
        high,
        quiet,
        late + 1,
        window,
        when,
        doubt,
        held,
        known,
        order,
        had,
        past,
        sender,
        p.keys,
        count,
    ):
        counts[TOO_LONG] += 1
        return False
    wrong, fresh = False, 0
    for w in range(past.shape[1]):
        at = m - window + 64 * w
        wrong |= past[m, w] & ~piece(held, at - low) != 0  # `low` is a window before m, or the first message
        word = past[m, w] & ~piece(known, at - low)
        while word != 0:
            fresh += 1
            counts[OVERTAKEN] += bounds[0] <= at + lowest(word) < bounds[1]
            word &= word - np.uint64(1)
    if m < bounds[1]:
        counts[ERRORS] += wrong
        counts[SEEN] += fresh > 0 and piece(known, m - low) & np.uint64(1) == 0
    return wrong


@kernel
def _block(
    first: int,
    lanes: int,
    begin: int,
    judge: int,
    end: int,
    longest: int,
    bounds: Any,
    p: Any,
    net: Any,
    receiver: Any,
    ring: int,
    counts: Any,
    log: Any,
) -> None:
    """Judge messages judge .. end-1 at the receivers first .. first+lanes-1. Messages from `begin` on are filled in,
    since they may still be in flight."""
    window, past, sent = p.window, p.past, p.sent
    sender, total = net.sender, len(net.send)
    arrive = np.zeros((ring, LANES), np.int32)
    lag = np.zeros((ring, 2), np.int32)  # least and greatest delay of each message in this block
    delay = np.zeros(LANES, np.int32)
    queue, queued, settled = np.empty((LANES * ring, 3), np.int64), 0, 0
    early, lates = np.empty((LANES, ring), np.int64), np.empty((LANES, ring), np.int32)
    earlies = np.zeros(LANES, np.int64)
    cover, rivals = np.zeros(p.covers.shape[1], np.uint64), np.empty((ring, window + 1), np.int64)
    scratch = (
        np.zeros(ring, np.int64),
        np.zeros(ring, np.bool_),
        np.zeros(ring, np.int64),
        np.zeros(64 * p.covers.shape[1], np.int64),
        np.zeros((ring >> 6) + 1, np.uint64),
        np.zeros((ring >> 6) + 1, np.uint64),
    )
    mask = ring - 1
    final = min(end + window + 1, total) - 1
    for m in range(begin, final + 1):
        if counts[TOO_LONG] > 0:
            return
        row = m & mask
        lag[row, 0], lag[row, 1] = _fill(m, row, first, lanes, arrive, receiver, sent, net)
        some = 0
        for w in range(past.shape[1]):
            word = past[m, w]
            while word != 0:
                x = m - window + 64 * w + lowest(word)
                word &= word - np.uint64(1)
                other = x & mask
                if x >= begin and np.int32(sent[x] - sent[m]) + lag[other, 1] > lag[row, 0]:
                    if some == 0:
                        delay[:] = 0
                    some += 1
                    rivals[row, some] = x
                    for lane in range(LANES):
                        delay[lane] = max(delay[lane], np.int32(arrive[other, lane] - arrive[row, lane]))
        rivals[row, 0] = some
        if some > 0:
            own = sender[m] - first
            for lane in range(lanes):
                if delay[lane] > 0 and lane != own:
                    if judge <= m < end:
                        at = queued % len(queue)
                        queue[at, 0], queue[at, 1], queue[at, 2] = m, lane, delay[lane]
                        queued += 1
                    at = earlies[lane] & mask
                    early[lane, at], lates[lane, at] = m, delay[lane]
                    earlies[lane] += 1
        while settled < queued and (queue[settled % len(queue), 0] <= m - window or m == final):
            at = settled % len(queue)
            x, lane, late = queue[at, 0], queue[at, 1], queue[at, 2]
            settled += 1
            counts[EARLY] += x < bounds[1]
            if _covered(x, lane, late, m, arrive, rivals, p, sender, cover):
                wrong = _settle(
                    x,
                    lane,
                    first,
                    late,
                    m,
                    begin,
                    longest,
                    bounds,
                    arrive,
                    early,
                    lates,
                    earlies,
                    p,
                    sender,
                    scratch,
                    counts,
                )
                if log.shape[0] > 0 and wrong:
                    log[first + lane, x] = 1


@threaded
def judge(
    p: Any, net: Any, receiver: Any, tasks: Any, longest: int, bounds: Any, ring: int, counts: Any, log: Any
) -> None:
    """Run every task (first receiver, number, first message to fill in, first to judge, end) on any free thread."""
    for t in span(len(tasks)):
        _block(
            tasks[t, 0],
            tasks[t, 1],
            tasks[t, 2],
            tasks[t, 3],
            tasks[t, 4],
            longest,
            bounds,
            p,
            net,
            receiver,
            ring,
            counts[t],
            log,
        )


class Fast:
    """A run of the fast engine, step by step: first the pasts, then the receivers."""

    def __init__(self, run: Prepared, part: tuple[int, int] = (0, 1), log: bool = False) -> None:
        """`part` (i, n): only the i-th n-th of the receivers. `log`: keep every error, for tests."""
        self.run = run
        N, total, W = run.settings.processes, len(run.net.send), run.window
        words = -(-W // 64)
        covers = np.zeros((N, -(-run.settings.entries // 64)), np.uint64)
        for k in range(run.settings.keys):
            covers[np.arange(N), run.keys[:, k] >> 6] |= np.uint64(1) << (run.keys[:, k] & 63).astype(np.uint64)
        sent = (run.net.send & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        self.past = _Past(
            W, np.zeros((total, words), np.uint64), np.zeros((total, words), np.uint64), covers, run.keys, sent
        )
        self.low, self.high = (N * i // part[1] for i in (part[0], part[0] + 1))
        self.ring = 1 << (8 * W).bit_length()
        self.log = np.zeros((N, total) if log else (0, 0), np.uint8)
        self.counts = np.zeros(16, np.int64)
        self.known, self.judged = 0, run.first

    def step(self, messages: int) -> bool:
        """Process this many more messages; False when the run is complete."""
        run, W, total = self.run, self.run.window, len(self.run.net.send)
        begin, end = self.judged, min(self.judged + messages, run.last + W, total)
        if begin >= end or self.counts[TOO_LONG]:
            return False
        known = min(end + W + 1, total)
        counts = np.zeros((1, 16), np.int64)
        arrived(self.past, run.net, run.receiver, self.known, known)
        pasts(self.past, run.net, run.receiver, self.known, known, 8 * W, counts)
        self.known, self.judged = known, end
        self.counts += counts[0]
        if counts[0, TOO_LONG]:
            return False
        firsts = np.arange(self.low, self.high, LANES)
        tasks = np.empty((len(firsts), 5), np.int64)
        tasks[:, 0], tasks[:, 1] = firsts, np.minimum(LANES, self.high - firsts)
        tasks[:, 2:] = max(0, begin - 6 * W), begin, end
        found = np.zeros((len(tasks), 16), np.int64)
        bounds = np.array([run.first, run.last])
        judge(self.past, run.net, run.receiver, tasks, run.longest, bounds, self.ring, found, self.log)
        self.counts += found.sum(axis=0)
        sender = run.net.sender[begin : min(end, run.last)]
        own = int(((self.low <= sender) & (sender < self.high)).sum())
        self.counts[DELIVERED] += len(sender) * (self.high - self.low) - own
        return True
