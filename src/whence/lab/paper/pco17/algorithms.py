"""PCO17's algorithms, lemma and corollary: the worked example, the algorithms as printed and corrected, random runs.

The runs are small and dense, so that errors are frequent: every process broadcasts often over links that reorder. The
true causal past of every message is kept as a set. No two processes have the same set of entries, as the paper assumes
where it says that an error takes two concurrent messages.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from math import comb
from operator import ne
from random import Random
from typing import Any, NamedTuple

from whence.core.clock.probabilistic import Keys, ProbabilisticClock, Stamp, even_keys, unrank
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.stats import exact

PROCESSES, R, K = 12, 8, 2
SETS = ((6, 2), (6, 3), (8, 4))
"""(R, K) for which all sets of entries are generated."""


def measure(options: RunOptions) -> list[Row]:
    """Everything; random runs with several seeds."""
    rows: list[Row] = [{"part": "figure-1", "what": w, "paper": str(p), "ours": str(o)} for w, p, o in figure_1()]
    rows += [{"part": "figure-2", "what": w, "paper": str(p), "ours": str(o)} for w, p, o in figure_2()]
    for r, k in SETS:
        for part, make in (("algorithm-3-printed", algorithm_3), ("algorithm-3", unrank)):
            found = {made for i in range(comb(r, k)) if (made := make(i, r, k)) is not None and _subset(made, r, k)}
            rows.append({"part": part, "what": f"R = {r}, K = {k}", "share": len(found) / comb(r, k)})
    rows += [{"part": "even", "what": f"N = {n}", "share": unevenness(n)} for n in range(100, 700, 100)]
    seeds, messages = (3, 300) if options.quick else (10, 600)
    for i in range(seeds):
        options.say(i / seeds, f"random run {i + 1} of {seeds}")
        seed = options.seed * 1000 + i
        rows.append({"part": "random", "seed": i, **Broadcasts(seed, messages).counts()})
        lamport, whole = (Broadcasts(seed, messages, size, size).log for size in (1, R))
        rows.append({"part": "lamport", "seed": i, "share": sum(map(ne, lamport, whole))})
    for what, few, many in work():
        rows.append({"part": "work", "what": what, "share": many / few})
    return rows


def statistics(rows: list[Row]) -> Statistics:
    """All exact: one wrong value refutes."""
    found: Statistics = {}
    for part in ("figure-1", "figure-2"):
        mine = [row for row in rows if row["part"] == part]
        found[part] = [exact(row["what"], float(row["paper"] != row["ours"])) for row in mine]
    for part in ("algorithm-3-printed", "algorithm-3", "even", "lamport", "work"):
        found[part] = [exact(row.get("what", ""), row["share"]) for row in rows if row["part"] == part]
    runs = [row for row in rows if row["part"] == "random"]
    total = {key: sum(row[key] for row in runs) for key in Broadcasts.COUNTED}
    at = f"{total['delivered']} deliveries, {total['overtaken']} overtaken"
    for claim, key in (
        ("lemma-1", "undelivered"),
        ("corollary-1", "delayed"),
        ("algorithm-5-printed", "missed_printed"),
        ("algorithm-5", "missed"),
        ("two-concurrent", "alone"),
        ("two-at-first", "alone_at_first"),
        ("alert-in-time", "late_alerts"),
    ):
        found[claim] = [exact(at, total[key])]
    return found


# -- the worked example (Figures 1 and 2)

F = {"i": (0, 1), "j": (1, 2), "1": (0, 3), "2": (1, 3)}
"""f(p_i), f(p_j), f(p_1), f(p_2); R = 4."""


def figure_1() -> list[tuple[str, object, object]]:
    """p_k gets m' before m, and holds it until m is there. (what, as printed, ours)."""
    p_i, p_j, p_k = (ProbabilisticClock(4) for _ in range(3))
    m = p_i.stamp(F["i"])
    p_j.deliver(F["i"], m)
    after = p_j.stamp(F["j"])
    held = not p_k.ready(F["j"], after)
    p_k.deliver(F["i"], m)
    return [
        ("m.V", (1, 1, 0, 0), m),
        ("m'.V", (1, 2, 1, 0), after),
        ("p_k delays m'", True, held),
        ("p_k's vector after m", [1, 1, 0, 0], list(p_k.V)),
        ("then m' is ready", True, p_k.ready(F["j"], after)),
    ]


def figure_2() -> list[tuple[str, object, object]]:
    """m1 and m2 cover the entries of m, so p_k delivers m' before it."""
    p_i, p_j, p_k = (ProbabilisticClock(4) for _ in range(3))
    m = p_i.stamp(F["i"])
    p_j.deliver(F["i"], m)
    after = p_j.stamp(F["j"])
    for name in ("2", "1"):
        p_k.deliver(F[name], ProbabilisticClock(4).stamp(F[name]))
    vector = list(p_k.V)
    return [
        ("p_k's vector after m2 and m1", [1, 1, 0, 2], vector),
        ("p_k takes m' for ready", True, p_k.ready(F["j"], after)),
    ]


# -- Algorithm 3


def algorithm_3(set_id: int, R: int, K: int) -> Keys | None:
    """As printed: `C_k^R` of the R of the input, set_id never reduced, entries that begin where the last one stood.
    None if it does not end."""
    a = [0] * K
    k, r = K - 1, R - 1
    t = comb(R, k)
    saved = t
    for i in range(K):
        while set_id >= t:
            a[i] += 1
            r -= 1
            saved, t = t, comb(R, k)
            if r < -R:
                return None
        t = saved
        if i < K - 1:
            a[i + 1] = a[i]
        k -= 1
    return tuple(a)


def unevenness(processes: int, entries: int = 100, keys: int = 4) -> int:
    """Of all subsets of equally many entries, by how many processes those of the most and of the fewest differ."""
    sets = [even_keys(i, entries, keys) for i in range(processes)]
    worst = 0
    for s in range(1, keys + 1):
        counts = Counter(part for one in sets for part in combinations(one, s))
        fewest = min(counts.values()) if len(counts) == comb(entries, s) else 0
        worst = max(worst, max(counts.values()) - fewest)
    return worst


def _subset(keys: Keys, R: int, K: int) -> bool:
    return len(set(keys)) == K and all(0 <= x < R for x in keys)


# -- work


class _Counted(list[int]):
    """A vector that counts what is read of it."""

    read = 0

    def __iter__(self) -> Iterator[int]:
        for value in super().__iter__():
            self.read += 1
            yield value

    def __getitem__(self, x: Any) -> Any:
        self.read += 1
        return super().__getitem__(x)


def work() -> list[tuple[str, int, int]]:
    """Entries read by Algorithms 1 and 2 with R = 100 and 1000: (what, few, many)."""
    found: dict[str, list[int]] = {"Algorithm 1": [], "Algorithm 2": []}
    for entries in (100, 1000):
        for what, some in found.items():
            clock = ProbabilisticClock(entries)
            clock.V = counted = _Counted(clock.V)
            if what == "Algorithm 1":
                clock.stamp((0, 1, 2, 3))
            else:
                clock.ready((0, 1, 2, 3), (1, 1, 1, 1) + (0,) * (entries - 4))
            some.append(counted.read)
    return [(what, few, many) for what, (few, many) in found.items()]


# -- random runs


class Sent(NamedTuple):
    """A message, and its true past."""

    number: int
    sender: int
    V: Stamp
    past: frozenset[int]
    at: float
    whole: bool
    """The sender had all of its past: no error of its own is passed on."""


class Broadcasts:
    """Processes that broadcast over links that lose nothing and reorder."""

    COUNTED = (
        *("delivered", "overtaken", "undelivered", "delayed"),
        *("missed", "missed_printed", "alone", "alone_at_first", "late_alerts"),
    )

    def __init__(self, seed: int, messages: int, entries: int = R, keys: int = K) -> None:
        self.rng = Random(f"{seed}/algorithms")
        sets = comb(entries, keys)
        ids = Random(seed).sample(range(sets), PROCESSES) if sets >= PROCESSES else [0] * PROCESSES
        self.keys = [unrank(i, entries, keys) for i in ids]
        self.clocks = [ProbabilisticClock(entries) for _ in range(PROCESSES)]
        self.log: list[tuple[int, int]] = []
        """Who delivered which message."""
        self.early: dict[tuple[int, int], float] = {}
        """A process and a message that it lacks: when something that depends on it was delivered there."""
        self.has: list[set[int]] = [set() for _ in range(PROCESSES)]  # looked up and compared, never iterated
        self.heard: list[set[int]] = [set() for _ in range(PROCESSES)]
        """The past of everything delivered: what comes after is overtaken if it is in here."""
        self.arrived: dict[tuple[int, int], float] = {}
        self.waiting: list[list[Sent]] = [[] for _ in range(PROCESSES)]
        self.found: dict[str, int] = dict.fromkeys(self.COUNTED, 0)
        queue: list[tuple[float, int, int, Sent]] = []
        at = self.now = 0.0
        for number in range(messages):
            at += self.rng.expovariate(1.0)
            while queue and queue[0][0] <= at:
                self.now, _, to, sent = heapq.heappop(queue)
                self.receive(to, sent)
            self.now = at
            sent = self.send(self.rng.randrange(PROCESSES), number)
            for to in range(PROCESSES):
                if to != sent.sender:
                    arrives = at + max(0.0, self.rng.gauss(6, 2))
                    heapq.heappush(queue, (arrives, number * PROCESSES + to, to, sent))
        while queue:
            self.now, _, to, sent = heapq.heappop(queue)
            self.receive(to, sent)

    def send(self, me: int, number: int) -> Sent:
        past = frozenset(self.has[me] | self.heard[me])
        self.has[me].add(number)
        return Sent(number, me, self.clocks[me].stamp(self.keys[me]), past, self.now, self.heard[me] <= self.has[me])

    def receive(self, me: int, sent: Sent) -> None:
        """Into the queue; deliver what is ready. What has all of its past must be ready at once (Corollary 1)."""
        self.arrived[me, sent.number] = self.now
        if sent.past <= self.has[me] and not self.clocks[me].ready(self.keys[sent.sender], sent.V):
            self.found["delayed"] += 1
        self.waiting[me].append(sent)
        while ready := [m for m in self.waiting[me] if self.clocks[me].ready(self.keys[m.sender], m.V)]:
            self.waiting[me].remove(ready[0])
            self.deliver(me, ready[0])

    def deliver(self, me: int, sent: Sent) -> None:
        clock, keys = self.clocks[me], self.keys[sent.sender]
        printed = all(clock.V[x] > sent.V[x] for x in keys) and any(
            all(past[x] >= sent.V[x] for x in keys) for past in clock.L
        )
        alerts = clock.deliver(keys, sent.V)
        self.found["delivered"] += 1
        self.log.append((me, sent.number))
        if lacks := sent.past - self.has[me] - self.heard[me]:
            alone = len(self.has[me] - sent.past) < 2
            self.found["alone"] += alone
            self.found["alone_at_first"] += alone and sent.whole
            self.early |= dict.fromkeys(((me, number) for number in lacks), self.now)
        if sent.number in self.heard[me]:
            propagation = self.arrived[me, sent.number] - sent.at
            self.found["late_alerts"] += self.now > self.early[me, sent.number] + propagation
            self.found["overtaken"] += 1
            self.found["missed"] += not alerts.witnessed
            self.found["missed_printed"] += not printed
        self.has[me].add(sent.number)
        self.heard[me] |= sent.past

    def counts(self) -> dict[str, Any]:
        """What was found; the rest of the queues was never delivered (Lemma 1)."""
        return {**self.found, "undelivered": sum(map(len, self.waiting))}


STUDY = Study(measure, statistics)
