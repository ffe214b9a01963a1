"""A run with many members: events spread in batches, then their order follows.

    spread -> settle -> publish, one event after the other -> resolve_all -> count

`flood` and `trees` give first arrivals, which do not depend on order. `_publish` goes through the events in order of
time with what is sparse: what the publishers know of when they publish, and the pursuit of what gossip did not bring.
`delivery` does the rest for all members at once, as soon as nothing can change an event any more (`settled_us`); its
row is used again when nothing can change its delivery (`final_us`).

Simpler than the core: the pursuit of a missing event is its own (there: of the ticket); it begins with the first
arrival of something that depends on it, or with a digest, which comes from a random member after an exponential time of
the mean of its rounds; it is asked for once, and by `reliable` `TURNS` times; what arrived is told of, delivered or
not.
"""

from __future__ import annotations

import resource
import sys
import time
from functools import cache
from math import ceil, log2
from typing import Any

import msgspec
import numba
import numpy as np

from whence.errors import ConfigError
from whence.lab.plan import message_sizes
from whence.lab.scale import delivery as d
from whence.lab.scale import trees
from whence.lab.scale.flood import CHUNK, spread
from whence.lab.scale.gossip import MOST_US, Expected, GossipSettings, links, manner, outlook, timetable
from whence.lab.scale.jit import Progress, use_threads
from whence.lab.scale.random import I64, below, bits, uniform

MOST_BYTES = 8e9
MOST_AT_A_TIME = 4_000_000
"""First arrivals in a batch of events, but for 8 events."""
TURNS = 3
"""How often `reliable` asks."""
DIGESTS = 64
"""Digests that are looked at, at most, until one shows that something is missing."""
EVENT, TELLER = 32, 33
"""Streams of random numbers."""


class LatencyQuantiles(msgspec.Struct, frozen=True):
    """Of all deliveries, in ms."""

    p50: float
    p90: float
    p99: float
    most: float


class MemberLoad(msgspec.Struct, frozen=True):
    """Messages with an event in them, or about one that is missing, of a member in the whole run."""

    sent_mean: float
    sent_most: int
    received_mean: float
    received_most: int


class Predicted(msgspec.Struct, frozen=True):
    """What the planner says of the same settings."""

    reach: float
    """Events that gossip brings to all members, as a share."""
    coverage: float
    """Members that gossip brings an event to, as a share."""
    copies: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    buffer: int
    """Theorem 5.1, `2 mu T`, at least the core's floor."""


class GossipResult(msgspec.Struct, frozen=True):
    """The result of a run."""

    members: int
    events: int
    mode: str
    order: str
    fanout: int
    termination: int
    expected: int
    """Members that should deliver, over all events: those that were there all the time, but the publisher."""
    delivered: int
    missed: int
    """Not brought by gossip (or trees)."""
    recovered: int
    """Of these, brought by an answer."""
    lost: int
    """Not delivered: never brought, given up before it came, or blocked."""
    coverage: float
    """1 - missed / expected."""
    reach: float
    """Share of the events of which gossip missed nobody."""
    arrival_ms: LatencyQuantiles
    latency_ms: LatencyQuantiles
    """From publish to delivery."""
    held: int
    """Deliveries that waited for others."""
    held_ms: float
    """How long, on average over those."""
    held_most_ms: float
    inversions: int
    """Delivered before something of the past that came later; only where nobody orders."""
    requests: int
    answers: int
    unpublished: int
    """A ticket had no owner, or an owner that had not caught up."""
    load: MemberLoad
    copies_per_delivery: float
    bytes_per_delivery: float
    predicted: Predicted
    seconds: float
    """Without compiling."""
    cpu_seconds: float
    deliveries_per_s: float
    deliveries_per_cpu_s: float
    memory_mb: int
    threads: int


class GossipRun:
    """A run, batch by batch."""

    def __init__(self, settings: GossipSettings) -> None:
        s = self.s = settings
        self.expected: Expected = outlook(s)
        self.links, self.times = links(s), timetable(s)
        config = self.expected.config
        self.manner = manner(s, config)
        order = config.ordering
        us = [ns // 1000 for ns in (order.time_to_terminate_ns, order.time_to_recover_ns, config.round_ns)]
        self.wait_us, self.again_us, round_us = us
        patience = self.wait_us + (self.again_us if s.recovery != "off" else 0)
        self.patience = patience if s.order in ("causal", "fifo") else 0
        self.digest_us = round_us / (config.cast.fanout * (1 - s.loss))
        self.k, self.buffer, self.turns = order.k, order.buffer, TURNS if s.order == "reliable" else 1
        self.batch_size = max(8, min(64, MOST_AT_A_TIME // s.members))
        self._sizes(round_us, patience)
        n, w, e = s.members, self.rows, len(self.times.at)
        self.a = np.empty((w, n), np.int32)
        self.r = self.a if s.order == "unordered" else np.empty((w, n), np.int32)
        self.c = self.r if s.order in ("causal", "reliable") else np.empty((w, n), np.int32)
        self.batch = np.empty((self.batch_size, n), np.int32), np.empty((self.batch_size, n), np.uint16)
        self.scratch = self._scratch()
        self.grove, self.tree = self._plant()
        self.load = np.zeros((2, n), np.uint32)
        self.counts = np.zeros((-(-n // d.BLOCK), 8), np.int64)
        self.histogram = np.zeros((2, len(self.counts), d.BINS), np.int64)
        self.seq, self.deps = np.zeros(e, np.int32), np.zeros((e, s.publishers), np.int32)
        self.of = np.zeros((s.publishers, e + 1), np.int64)
        self.before, self.many = np.zeros((e, s.publishers), np.int64), np.zeros(e, np.int64)  # direct predecessors
        self.causes, self.causing = (self.before, self.many) if s.order != "fifo" else (self.before * 0, self.many * 0)
        self.whom, self.column = np.unique(self.times.owner, return_inverse=True)
        self.pa, self.pr = np.zeros((2, w, len(self.whom)), np.int32)
        self.merged = np.zeros((w, len(self.whom)), np.bool_)
        self.known = np.zeros((len(self.whom), s.publishers), np.int32)
        self.last = np.zeros(s.publishers, np.int32)
        self.keys = bits(s.seed, EVENT, np.arange(e))
        self.missing = np.zeros((0, 5), np.int64)
        """Rows: event, member, when it is asked for (absolute), who told (-1: something that depends on it), turn."""
        self.tally = np.zeros(2, np.int64)
        self.copies = self.recovered = self.missed = self.unready = self.incomplete = 0
        self.resolved = self.counted = 0

    def _sizes(self, round_us: int, patience: int) -> None:
        """Times after which nothing changes, and what the rings need for them."""
        s, at = self.s, self.times.at
        slowest = self.slowest = int(self.links.base.max()) + int(self.links.jitter.max())
        pause = self.manner.round if s.mode == "rounds" else 0
        self.spread_us = self.manner.termination * (slowest + pause) + 16 * round_us * (s.mode == "tree")
        if self.spread_us >= MOST_US:
            raise ConfigError(f"latency: an event spreads for up to {self.spread_us / 1e6:.0f} s; at most 67 s")
        asked = sum(self.again_us << turn for turn in range(self.turns - 1)) + self.wait_us + 2 * slowest
        late = ceil(DIGESTS / 4 * self.digest_us)
        self.settled_us = self.spread_us + (late + asked if s.recovery != "off" else 0)
        self.final_us = 2 * self.settled_us + patience
        under_way = int((np.arange(len(at)) - np.searchsorted(at, at - self.final_us)).max(initial=0)) + 1
        self.rows = min(len(at), under_way + self.batch_size) + self.batch_size
        self.unit = max(0, ceil(log2(max(1, 2 * self.final_us) / d.BINS)))
        distinct = 1 + (s.order != "unordered") + (s.order in ("unordered", "fifo"))
        grown = 16 * len(np.unique(self.times.owner)) * (1 + (s.crash > 0)) if s.mode == "tree" else 0
        needs = s.members * (4 * self.rows * distinct + 6 * self.batch_size + 40 + grown)
        if needs > MOST_BYTES:
            raise ConfigError(
                f"members: {s.members:,} with {under_way:,} events under way need {needs / 1e9:.0f} GB, "
                f"at most {MOST_BYTES / 1e9:.0f}; lower rate, publishers or events"
            )

    def run(self, tell: Progress) -> None:
        """All events."""
        t, e = self.times, len(self.times.at)
        for first in range(0, e, self.batch_size):
            end = min(e, first + self.batch_size)
            came, state, copies = self.arrivals(first, end)
            self.copies += int(copies.sum())
            self._settle(first, came, state)
            for x in range(first, end):
                self._publish(x)
            self._finish(end, int(t.at[end - 1]))
            tell(end / e, f"{end:,} of {e:,} events among {self.s.members:,} members")
        self._pursue(e, 2**62)
        self._finish(e, 2**62)

    def arrivals(self, first: int, end: int) -> tuple[Any, Any, Any]:
        """How a batch of events spreads: arrivals and ages; what came at each member; copies that were sent."""
        t, events, many = self.times, slice(first, end), end - first
        came, state = self.batch[0][:many], self.batch[1][:many]
        if self.grove is not None:
            graft = self.expected.config.cast.graft // 1000
            copies = trees.climb(
                self.tree[events], t.at[events], self.keys[events], self.links, self.manner, graft, self.grove, t.down,
                t.up, came, state, self.scratch,
            )  # fmt: skip
            return came, state, copies
        copies = spread(
            t.owner[events], t.at[events], self.keys[events], self.links, self.manner, t.down, t.up, came, state,
            self.scratch,
        )  # fmt: skip
        return came, state, copies

    def _plant(self) -> tuple[trees.Grove | None, I64]:
        """The trees: of each owner, and anew once a crash has been noticed."""
        s, t = self.s, self.times
        if s.mode != "tree":
            return None, t.at[:0]
        cast = self.expected.config.cast
        noticed = int(s.crash_at * 1e6) + cast.silence * cast.round // 1000
        later = (t.at >= noticed).astype(np.int64) if s.crash else t.at * 0
        pairs, tree = np.unique(t.owner * np.int64(2) + later, return_inverse=True)
        everybody = np.arange(s.members)
        epochs = [everybody, np.flatnonzero(t.down > noticed)] if later.any() else [everybody]
        return trees.plant(s.members, cast.neighbours, pairs // 2, s.seed, self.links, epochs, pairs % 2), tree

    def _scratch(self) -> tuple[Any, ...]:
        threads: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        slowest = self.slowest + self.manner.round * self.manner.termination
        buckets = 1 << max(1, (slowest >> self.links.shift) + 2).bit_length()
        if self.s.mode == "tree":
            cast = self.expected.config.cast
            furthest = (4 * self.manner.round + cast.graft // 1000 + 2 * self.slowest) >> self.links.shift
            return trees.scratch(threads, self.s.members, furthest, cast.neighbours + 1)
        chunks = self.manner.fanout * max(1, self.manner.termination if self.manner.round else 1) * self.s.members
        chunks = chunks // CHUNK + 2 * buckets + 2  # only what is used takes memory
        sizes = (buckets, buckets, chunks, chunks * CHUNK, chunks + 1, CHUNK)
        calendar = [np.empty((threads, size), np.int32) for size in sizes]
        return (*calendar, *(np.empty((threads, 64), kind) for kind in (np.int64, np.int64, np.uint32)))

    def _settle(self, first: int, came: Any, state: Any) -> None:
        t = self.times
        gone = np.zeros((0, 0), np.bool_)
        if len(t.down):
            at = t.at[first : first + len(came), None]
            gone = (t.down[None, :] < at + self.settled_us) & (t.up[None, :] > at)
        m = self.manner
        fanout, rounds = (0 if self.s.mode == "tree" else m.fanout), self.s.mode == "rounds"
        d.settle(came, state, first, self.a, m.termination, fanout, rounds, gone, self.load)

    def _finish(self, end: int, now: int) -> None:
        """Resolve and count what nothing can change any more."""
        t, oldest = self.times, max(0, end - self.rows)
        fifo = self.s.order == "fifo"
        upto = min(end, int(np.searchsorted(t.at, now - self.settled_us, "right")))
        if self.r is not self.a:
            d.resolve_all(
                self.resolved, upto, oldest, self.patience, fifo, self.a, self.r, t.at, t.ticket, self.seq, self.deps,
                self.before, self.many,
            )  # fmt: skip
        if self.c is not self.r:
            d.caused(self.resolved, upto, oldest, self.r, self.c, t.at, self.causes, self.causing)
        self.resolved = upto
        upto = min(upto, int(np.searchsorted(t.at, now - self.final_us, "right")))
        d.count(self.counted, upto, self.unit, self.a, self.r, self.c, self.counts, self.histogram)
        self.counted = upto

    # -- one event after the other ------------------------------------------------------------------------------

    def _publish(self, x: int) -> None:
        """What the publisher knows of, and whom gossip will miss."""
        t, row, k, ticket = self.times, x % self.rows, int(self.column[x]), int(self.times.ticket[x])
        oldest = max(0, x - self.rows + self.batch_size + 1)
        self._pursue(x, int(t.at[x]))
        self.pa[row] = self.a[row, self.whom]
        self.merged[row] = False
        d.learn(x, k, oldest, self.pr, t.at, t.ticket, self.seq, self.deps, self.merged, self.known)
        if self.known[k, ticket] < self.last[ticket]:  # a new owner that has not caught up does not publish
            self.unready += 1
            self.a[row] = self.pa[row] = self.pr[row] = d.ABSENT
            return
        self.last[ticket] += 1
        self.seq[x] = self.last[ticket]
        self.of[ticket, self.seq[x]] = x
        self.deps[x] = self.known[k]
        fifo = self.s.order == "fifo"
        direct = (x, oldest, False, t.ticket, self.deps, self.of)
        self.causing[x] = d.direct(*direct, self.causes)
        if fifo:
            self.many[x] = d.direct(x, oldest, True, t.ticket, self.deps, self.of, self.before)
        self._at_publishers(x, range(len(self.whom)))
        self._miss(x)

    def _at_publishers(self, x: int, columns: range) -> None:
        """R of one event at publishers, who are ahead of the other members."""
        t, row = self.times, x % self.rows
        if self.s.order == "unordered":
            self.pr[row] = self.pa[row]
            return
        oldest = max(0, x - self.rows + self.batch_size + 1)
        d.resolve(
            x, columns.start, columns.stop, oldest, self.patience, self.s.order == "fifo", self.pa, self.pr, t.at,
            t.ticket, self.seq, self.deps, self.before, self.many,
        )  # fmt: skip

    def _miss(self, x: int) -> None:
        """Whom gossip has missed: when they notice, by a digest or by what depends on it."""
        t, s, row = self.times, self.s, self.a[x % self.rows]
        who = np.flatnonzero(row == d.LOST)
        self.missed += len(who)
        self.incomplete += len(who) > 0
        if s.recovery == "off":
            return
        if len(self.missing):  # x tells of what it depends on
            e, p = self.missing[:, 0], self.missing[:, 1]
            past = (self.deps[x, t.ticket[e]] >= self.seq[e]) & (row[p] < d.LIMIT) & (row[p] >= 0)
            ask = t.at[x] + row[p] + self.wait_us
            first = past & (self.missing[:, 4] == 0)
            self.missing[first, 2] = np.minimum(self.missing[first, 2], ask[first])
            self.missing[past & (ask <= self.missing[:, 2]), 3] = -1
        if len(who):
            at, teller = self._told(x, who)
            rows = np.column_stack((who * 0 + x, who, at + self.wait_us, teller, who * 0))
            self.missing = np.vstack((self.missing, rows))

    def _told(self, x: int, who: I64) -> tuple[I64, I64]:
        """The first digest that shows x to each of these members, and whose."""
        t, row = self.times, self.a[x % self.rows]
        clock, at, teller = np.zeros(len(who)), np.full(len(who), 2**61), np.full(len(who), -1)
        way = int(self.links.base.mean())
        for i in range(DIGESTS):
            draw = bits(int(self.keys[x] >> np.uint64(1)), TELLER, who * DIGESTS + i)
            clock -= np.log1p(-uniform(draw)) * self.digest_us
            peer = below(bits(int(draw[0]), TELLER, who), self.s.members)
            has = (row[peer] >= 0) & (row[peer] + way <= clock) & (teller < 0) & (peer != who)
            at[has], teller[has] = t.at[x] + clock[has].astype(np.int64), peer[has]
        return at, teller

    def _pursue(self, upto: int, now: int) -> None:
        """Ask for what is due before `now`, in order of time; events before `upto` are there."""
        while len(self.missing):
            due = np.flatnonzero(self.missing[:, 2] <= now)
            if not len(due):
                return
            due = due[np.lexsort((self.missing[due, 1], self.missing[due, 0], self.missing[due, 2]))]
            over = [self._ask(i, upto) for i in due.tolist()]
            self.missing = np.delete(self.missing, due[over], axis=0)

    def _ask(self, i: int, upto: int) -> bool:
        """One member asks for one event; False: it will ask again."""
        e, p, now, teller, turn = map(int, self.missing[i])
        t, row = self.times, e % self.rows
        if now >= 2**61 or self.a[row, p] != d.LOST or e < upto - self.rows + self.batch_size:
            return True
        source = int(t.owner[e]) if self.s.recovery == "R1" else -1
        answer = d.ask(
            e, p, now, self.k, source, teller, turn, upto, self.buffer, self.keys[e], self.links, self.a, t.at, t.down,
            t.up, self.load, self.tally,
        )  # fmt: skip
        if answer >= d.LIMIT:
            self.missing[i, 2:] = now + (self.again_us << turn), -1, turn + 1
            return turn + 1 >= self.turns
        self.a[row, p] = answer
        self.recovered += 1
        if (at := int(np.searchsorted(self.whom, p))) < len(self.whom) and self.whom[at] == p:
            self.pa[row, at] = answer
            for x in range(max(e, upto - self.rows + self.batch_size), upto):
                self._at_publishers(x, range(at, at + 1))
        return True


def run_gossip(settings: GossipSettings, threads: int | None = None, progress: Progress | None = None) -> GossipResult:
    """Run one setting, on all threads unless said otherwise."""
    use_threads(threads)
    tell = progress or (lambda done, what: None)
    tell(0.0, "loading the kernels (the first time they are compiled: a minute)")
    load_kernels(settings.mode == "tree")
    began, spent = time.perf_counter(), time.process_time()
    work = GossipRun(settings)
    work.run(tell)
    return _result(work, time.perf_counter() - began, time.process_time() - spent)


@cache
def load_kernels(tree: bool) -> None:
    """Compile, or load the cached code, before the time is measured: a run that uses all of it."""
    how: dict[str, Any] = {"mode": "tree" if tree else "eager", "fanout": 2, "termination": 4, "loss": 0.3}
    GossipRun(GossipSettings(members=100, events=9, publishers=2, order="fifo", **how)).run(lambda done, what: None)


def _latency(histogram: I64, unit: int) -> LatencyQuantiles:
    total = np.cumsum(histogram)
    if not total[-1]:
        return LatencyQuantiles(0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = ((int(np.searchsorted(total, q * total[-1])) + 0.5) * 2**unit / 1000 for q in (0.5, 0.9, 0.99))
    return LatencyQuantiles(p50, p90, p99, (int(np.flatnonzero(histogram)[-1]) + 1) * 2**unit / 1000)


def _result(work: GossipRun, seconds: float, cpu: float) -> GossipResult:
    s, plan, config = work.s, work.expected.plan, work.expected.config
    sums = work.counts.sum(axis=0)
    longest = int(work.counts[:, d.LONGEST].max())
    delivered = int(sums[d.DELIVERED])
    lost = int(sums[[d.MISSED, d.LATE, d.BLOCKED]].sum())
    expected = delivered + lost
    sent, received = work.load.astype(np.int64)
    question = plan.question if plan else None
    sizes = message_sizes(question, 18, 10_000) if question else None
    frame = sizes.frame * 1.1 + 24 if sizes else s.payload
    each = max(1, delivered)
    share = work.missed / max(1, expected)
    events = len(work.times.at) - work.unready
    arrivals, deliveries = work.histogram.sum(axis=1)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    bytes_sent = work.copies * frame + (int(work.tally[0]) * sizes.ask + int(work.tally[1]) * frame if sizes else 0)
    return GossipResult(
        members=s.members,
        events=events,
        mode=s.mode,
        order=s.order,
        fanout=work.manner.fanout,
        termination=work.manner.termination,
        expected=expected,
        delivered=delivered,
        missed=work.missed,
        recovered=work.recovered,
        lost=lost,
        coverage=1 - share,
        reach=1 - work.incomplete / max(1, events),
        arrival_ms=_latency(arrivals, work.unit),
        latency_ms=_latency(deliveries, work.unit),
        held=int(sums[d.HELD]),
        held_ms=int(sums[d.HELD_US]) / max(1, int(sums[d.HELD])) / 1000,
        held_most_ms=longest / 1000,
        inversions=int(sums[d.INVERTED]),
        requests=int(work.tally[0]),
        answers=int(work.tally[1]),
        unpublished=work.times.unpublished + work.unready,
        load=MemberLoad(float(sent.mean()), int(sent.max()), float(received.mean()), int(received.max())),
        copies_per_delivery=work.copies / each,
        bytes_per_delivery=bytes_sent / each,
        predicted=Predicted(
            work.expected.reach,
            work.expected.coverage,
            work.expected.copies,
            plan.latency_p50_ms if plan else None,
            plan.latency_p99_ms if plan else None,
            config.ordering.buffer,
        ),
        seconds=seconds,
        cpu_seconds=cpu,
        deliveries_per_s=delivered / seconds,
        deliveries_per_cpu_s=delivered / max(1e-9, cpu),
        memory_mb=round(rss),
        threads=numba.get_num_threads(),
    )
