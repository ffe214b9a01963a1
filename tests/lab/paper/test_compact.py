"""Singhal and Kshemkalyani's clock: over FIFO links it is the vector clock, with fewer entries in the messages."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.lab.paper.survey.examples import Entries, SkClock

N = 4


class Forgets(SkClock):
    """`LU` of what is learned is not set: it is never told on."""

    def deliver(self, entries: Entries) -> None:
        before = list(self.LU)
        super().deliver(entries)
        self.LU[:] = [lu if k == self.me else before[k] for k, lu in enumerate(self.LU)]


def run(kind: type[SkClock], seed: int, fifo: bool = True) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Random unicasts. Per event: the clock, and the vector of the events truly known. Also the entries that were
    sent."""
    rng = Random(seed)
    clocks = [kind(p, N) for p in range(N)]
    known: list[set[tuple[int, int]]] = [set() for _ in range(N)]
    links: dict[tuple[int, int], list[tuple[Entries, set[tuple[int, int]]]]] = {}
    seen: list[tuple[list[int], list[int]]] = []
    sent = 0
    for _ in range(120):
        busy = sorted(link for link, queue in links.items() if queue)
        if busy and rng.random() < 0.5:
            a, p = rng.choice(busy)
            queue = links[a, p]
            entries, past = queue.pop(0 if fifo else rng.randrange(len(queue)))
            clocks[p].deliver(entries)
            known[p] |= past
        else:
            p, to = rng.sample(range(N), 2)
            entries = clocks[p].send(to)
            sent += len(entries)
            known[p].add((p, clocks[p].VC[p]))
            links.setdefault((p, to), []).append((entries, set(known[p])))
        known[p].add((p, clocks[p].VC[p]))
        truth = [max((n for k, n in known[p] if k == q), default=0) for q in range(N)]
        seen.append((list(clocks[p].VC), truth))
    return seen, sent


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_the_clock_is_the_vector_clock(seed: int) -> None:
    seen, sent = run(SkClock, seed)
    for ours, truth in seen:
        assert ours == truth
    assert sent < 120 * N  # and cheaper


@pytest.mark.parametrize("kind,fifo", [(Forgets, True), (SkClock, False)])
def test_a_forgotten_update_and_links_that_reorder_are_seen(kind: type[SkClock], fifo: bool) -> None:
    assert any(ours != truth for seed in range(10) for ours, truth in run(kind, seed, fifo)[0])
