"""First arrivals: the calendar against an event queue, copy by copy, over generated runs."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from tests.long import few
from whence.lab.scale.dissemination import GossipRun
from whence.lab.scale.flood import AGE, GONE, NEVER, delay, phase_of, retarget, targets
from whence.lab.scale.gossip import GossipSettings


def small(seed: int) -> GossipSettings:
    rng = random.Random(seed)
    cities = rng.choice([0, 0, 1, 3])
    return GossipSettings(
        members=rng.randint(100, 200),
        events=9,
        publishers=3,
        rate=rng.choice([1.0, 10.0]),
        mode=rng.choice(["eager", "eager", "rounds"]),
        view=rng.choice([0, 0, 12]),
        fanout=rng.randint(2, 6),
        termination=rng.randint(2, 8),
        loss=rng.choice([0.0, 0.05, 0.5]),
        latencies=tuple(tuple(rng.uniform(0, 200) for _ in range(cities)) for _ in range(cities)),
        crash=rng.choice([0.0, 0.0, 0.3]),
        crash_at=rng.uniform(0, 1),
        forget=rng.choice([0.0, 0.2]),
        seed=seed,
    )


def reference(work: GossipRun, x: int, state: np.ndarray) -> tuple[dict[int, tuple[int, int]], int]:
    """Member -> arrival and age; and how many copies. An event queue: what comes first is processed first."""
    least, _, lost, jitter, base = work.links
    m, t, n = work.manner, work.times, work.s.members
    at, key = int(t.at[x]), work.keys[x]
    to, words = np.empty(64, np.int64), np.empty(64, np.uint32)
    mortal = len(t.down) > 0
    heap, found, copies = [(0, 0, int(t.owner[x]))], {}, 0
    while heap:
        when, age, p = heapq.heappop(heap)
        if p in found or (mortal and t.down[p] <= at + when < t.up[p]):
            continue
        found[p] = (when, age)
        tick, sends = 0, int(age < m.termination)
        if m.round:
            tick, sends = m.round - (at + when - phase_of(p, m.phase, m.round)) % m.round, m.termination - age
        for k in range(sends):
            sent = when + tick + k * m.round
            if mortal and t.down[p] <= at + sent:
                break
            targets(p, k, key, m, n, to, words)
            copies += m.fanout
            for q, word in zip(to[: m.fanout].tolist(), words[: m.fanout], strict=True):
                goal = int(retarget(q, p, word, key, state)) if m.forget else q
                if word >= lost:
                    time = sent + int(delay(word, p, goal, least, jitter, base))
                    heapq.heappush(heap, (time, age + k + 1, goal))
    return found, copies


@pytest.mark.parametrize("block", few(range(8), 2))
def test_first_arrivals_are_those_of_an_event_queue(block: int) -> None:
    reached = 0
    for seed in range(10 * block, 10 * block + 10):
        work = GossipRun(small(seed))
        came, state, copies = work.arrivals(0, min(6, len(work.times.at)))
        for x, row in enumerate(came):
            gone = (state[x] & GONE).astype(np.uint16)
            found, sent = reference(work, x, gone)
            known = {p: (int(row[p]) >> AGE, int(row[p]) & 31) for p in np.flatnonzero(row != NEVER).tolist()}
            assert known == found, f"{work.s}, event {x}"
            assert copies[x] == sent
            reached += len(found)
    assert reached > 1000
