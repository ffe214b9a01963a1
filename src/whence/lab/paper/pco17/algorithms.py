"""PCO17's algorithms, lemma and corollary: the worked example, the algorithms as printed and corrected, random runs.

The runs are small and dense, so that errors are frequent: every process broadcasts often over links that reorder. The
true causal past of every message is kept as a set.
"""

from __future__ import annotations

import heapq
from math import comb
from random import Random
from typing import Any, NamedTuple

from whence.core.clock.probabilistic import Keys, ProbabilisticClock, Stamp, keys_of, unrank
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
    seeds, messages = (3, 300) if options.quick else (10, 600)
    for i in range(seeds):
        options.say(i / seeds, f"random run {i + 1} of {seeds}")
        rows.append({"part": "random", "seed": i, **Broadcasts(options.seed * 1000 + i, messages).counts()})
    return rows


def statistics(rows: list[Row]) -> Statistics:
    """All exact: one wrong value refutes."""
    found: Statistics = {}
    for part in ("figure-1", "figure-2"):
        mine = [row for row in rows if row["part"] == part]
        found[part] = [exact(row["what"], float(row["paper"] != row["ours"])) for row in mine]
    for part in ("algorithm-3-printed", "algorithm-3"):
        found[part] = [exact(row["what"], row["share"]) for row in rows if row["part"] == part]
    runs = [row for row in rows if row["part"] == "random"]
    total = {key: sum(row[key] for row in runs) for key in Broadcasts.COUNTED}
    at = f"{total['delivered']} deliveries, {total['overtaken']} overtaken"
    for claim, key in (
        ("lemma-1", "undelivered"),
        ("corollary-1", "delayed"),
        ("algorithm-5-printed", "missed_printed"),
        ("algorithm-5", "missed"),
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


def _subset(keys: Keys, R: int, K: int) -> bool:
    return len(set(keys)) == K and all(0 <= x < R for x in keys)


# -- random runs


class Sent(NamedTuple):
    """A message, and its true past."""

    number: int
    sender: int
    V: Stamp
    past: frozenset[int]


class Broadcasts:
    """Processes that broadcast over links that lose nothing and reorder."""

    COUNTED = ("delivered", "overtaken", "undelivered", "delayed", "missed", "missed_printed")

    def __init__(self, seed: int, messages: int) -> None:
        self.rng = Random(f"{seed}/algorithms")
        self.keys = [keys_of(self.rng, R, K) for _ in range(PROCESSES)]
        self.clocks = [ProbabilisticClock(R) for _ in range(PROCESSES)]
        self.has: list[set[int]] = [set() for _ in range(PROCESSES)]  # looked up and compared, never iterated
        self.heard: list[set[int]] = [set() for _ in range(PROCESSES)]
        """The past of everything delivered: what comes after is overtaken if it is in here."""
        self.waiting: list[list[Sent]] = [[] for _ in range(PROCESSES)]
        self.found: dict[str, int] = dict.fromkeys(self.COUNTED, 0)
        queue: list[tuple[float, int, int, Sent]] = []
        now = 0.0
        for number in range(messages):
            now += self.rng.expovariate(1.0)
            while queue and queue[0][0] <= now:
                _, _, to, sent = heapq.heappop(queue)
                self.receive(to, sent)
            sent = self.send(self.rng.randrange(PROCESSES), number)
            for to in range(PROCESSES):
                if to != sent.sender:
                    heapq.heappush(queue, (now + self.rng.gauss(6, 2), number * PROCESSES + to, to, sent))
        while queue:
            _, _, to, sent = heapq.heappop(queue)
            self.receive(to, sent)

    def send(self, me: int, number: int) -> Sent:
        past = frozenset(self.has[me] | self.heard[me])
        self.has[me].add(number)
        return Sent(number, me, self.clocks[me].stamp(self.keys[me]), past)

    def receive(self, me: int, sent: Sent) -> None:
        """Into the queue; deliver what is ready. What has all of its past must be ready at once (Corollary 1)."""
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
        if sent.number in self.heard[me]:
            self.found["overtaken"] += 1
            self.found["missed"] += not alerts.witnessed
            self.found["missed_printed"] += not printed
        self.has[me].add(sent.number)
        self.heard[me] |= sent.past

    def counts(self) -> dict[str, Any]:
        """What was found; the rest of the queues was never delivered (Lemma 1)."""
        return {**self.found, "undelivered": sum(map(len, self.waiting))}


STUDY = Study(measure, statistics)
