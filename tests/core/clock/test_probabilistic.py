"""The (N, R, K) clock: key sets, the paper's worked examples, its special cases, and its one promise about alerts."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.clock.probabilistic import Keys, Pending, ProbabilisticClock, Stamp, even_keys, keys_of, unrank


class Msg(NamedTuple):
    keys: Keys
    stamp: Stamp
    name: str = ""


class Process:
    def __init__(self, R: int, keys: Keys, memory: int | None = None) -> None:
        self.keys = keys
        self.queue: Pending[Msg] = Pending(ProbabilisticClock(R, memory))
        self.log: list[str] = []
        self.alerts: dict[str, tuple[bool, bool]] = {}

    @property
    def V(self) -> list[int]:
        return self.queue.clock.V

    def _take(self, deliveries: list) -> list[str]:
        for message, alerts in deliveries:
            self.log.append(message.name)
            self.alerts[message.name] = alerts
        return [d.message.name for d in deliveries]

    def send(self, name: str) -> Msg:
        stamp, freed = self.queue.clock.stamp(self.keys), self.queue.retry()
        self.log.append(name)
        self._take(freed)
        return Msg(self.keys, stamp, name)

    def receive(self, message: Msg) -> list[str]:
        return self._take(self.queue.receive(message))


@pytest.mark.parametrize(("R", "K"), [(R, K) for R in (1, 5, 8) for K in range(1, R + 1)])
def test_unranking_is_a_bijection_in_lexicographic_order(R: int, K: int) -> None:
    sets = [unrank(i, R, K) for i in range(comb(R, K))]
    assert sets == list(combinations(range(R), K))


@given(st.integers(1, 400), st.data())
def test_unranked_keys_are_a_set_for_any_size(R: int, data: st.DataObject) -> None:
    K = data.draw(st.integers(1, min(R, 40)))
    set_id = data.draw(st.integers(0, comb(R, K) - 1))
    keys = unrank(set_id, R, K)
    assert len(keys) == K and list(keys) == sorted(set(keys)) and keys[0] >= 0 and keys[-1] < R


@pytest.mark.parametrize("bad", [(-1, 4, 2), (6, 4, 2), (0, 4, 0), (0, 4, 5), (0, 0, 0)])
def test_unrank_refuses_what_is_no_set(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        unrank(*bad)


def test_drawn_keys_are_uniform_over_the_sets() -> None:
    rng = Random(1)
    counts: dict[Keys, int] = {}
    for _ in range(6000):
        keys = keys_of(rng, 4, 2)
        counts[keys] = counts.get(keys, 0) + 1
    assert sorted(counts) == list(combinations(range(4), 2))
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 20.5  # chi square, 5 degrees, p = 0.001


def test_figure_1_a_message_waits_for_its_cause() -> None:
    # f(p_k) is printed as {3, 4}, which does not fit R = 4: {2, 3} here
    i, j, k = Process(4, (0, 1)), Process(4, (1, 2)), Process(4, (2, 3))
    m = i.send("m")
    assert m.stamp == (1, 1, 0, 0)
    assert j.receive(m) == ["m"] and j.V == [1, 1, 0, 0]
    m2 = j.send("m'")
    assert m2.stamp == (1, 2, 1, 0)
    assert k.receive(m2) == [] and k.V == [0, 0, 0, 0] and len(k.queue.messages()) == 1
    assert k.receive(m) == ["m", "m'"] and k.V == [1, 2, 1, 0]
    assert k.alerts == {"m": (False, False), "m'": (False, False)}


def test_figure_2_two_concurrent_messages_cover_a_missing_one_and_the_alert_says_so() -> None:
    i, j, k = Process(4, (0, 1)), Process(4, (1, 2)), Process(4, (2, 3))
    p1, p2 = Process(4, (0, 3)), Process(4, (1, 3))
    m = i.send("m")
    j.receive(m)
    m2 = j.send("m'")
    assert k.receive(p2.send("m2")) == ["m2"] and k.receive(p1.send("m1")) == ["m1"]
    assert k.V == [1, 1, 0, 2]
    assert k.receive(m2) == ["m'"]  # wrong: m is missing
    assert k.V == [1, 2, 1, 2]
    assert k.receive(m) == ["m"]
    # V_k[0] = 1 = m.V[0]: with the paper's printed `>` Algorithm 5 would say nothing about this true error
    assert k.alerts["m"] == (True, True)
    assert k.alerts["m'"] == (False, False)


def test_memory_bounds_the_list_and_with_it_algorithm_5() -> None:
    for memory, said in ((None, True), (1, False)):
        i, j = Process(4, (0, 1)), Process(4, (1, 2))
        p1, p2, k = Process(4, (0, 3)), Process(4, (1, 3)), Process(4, (2, 3), memory)
        m = i.send("m")
        j.receive(m)
        m2 = j.send("m'")
        for message in (p2.send("m2"), p1.send("m1"), m2, p2.send("m3")):
            k.receive(message)
        k.receive(m)
        assert k.alerts["m"] == (True, said)


def schedule(
    data: st.DataObject, processes: list[Process], steps: int
) -> tuple[list[set[str]], dict[str, frozenset[str]]]:
    """A random run of at least three processes over a network that reorders and in the end delivers all; the true past
    of each message, kept in sets of names, apart from any clock."""
    knows: list[set[str]] = [set() for _ in processes]
    past: dict[str, frozenset[str]] = {}
    flying: list[tuple[int, Msg]] = []

    def learn(at: int, since: int) -> None:
        for name in processes[at].log[since:]:
            if name not in past:  # its own, just sent
                past[name] = frozenset(knows[at])
            knows[at] |= past[name] | {name}

    def arrive(index: int) -> None:
        at, message = flying.pop(index)
        since = len(processes[at].log)
        processes[at].receive(message)
        learn(at, since)

    for step in range(steps):
        if not flying or data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(processes) - 1))
            since = len(processes[at].log)
            message = processes[at].send(f"{at}.{step}")
            learn(at, since)
            flying.extend((to, message) for to in range(len(processes)) if to != at)
        else:
            arrive(data.draw(st.integers(0, len(flying) - 1)))
    while flying:
        arrive(data.draw(st.integers(0, len(flying) - 1)))
    return knows, past


def errors(process: Process, past: dict[str, frozenset[str]]) -> list[str]:
    """Messages that came after something which depends on them."""
    seen: set[str] = set()
    wrong = []
    for name in process.log:
        if name in seen:
            wrong.append(name)
        seen |= past[name]
    return wrong


@settings(max_examples=150)
@given(st.data())
def test_everything_is_delivered_and_no_error_goes_without_an_alert(data: st.DataObject) -> None:
    n, R = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 5))
    K = data.draw(st.integers(1, R))
    rng = Random(data.draw(st.integers(0, 10**6)))
    processes = [Process(R, keys_of(rng, R, K)) for _ in range(n)]
    _, past = schedule(data, processes, 30)
    for process in processes:
        assert sorted(process.log) == sorted(past) and len(process.queue.messages()) == 0  # Lemma 1
        count = [
            sum(x in p.keys for p in processes for name in past if name.startswith(f"{processes.index(p)}."))
            for x in range(R)
        ]
        assert count == process.V
        for name in errors(process, past):
            assert process.alerts[name] == (True, True)
        assert all(covered for covered, witnessed in process.alerts.values() if witnessed)


@settings(max_examples=150)
@given(st.data())
def test_a_message_that_is_causally_ready_is_never_delayed(data: st.DataObject) -> None:
    rng = Random(data.draw(st.integers(0, 10**6)))
    processes = [Process(4, keys_of(rng, 4, 2)) for _ in range(4)]
    knows: list[set[str]] = [set() for _ in processes]
    past: dict[str, frozenset[str]] = {}
    sent: list[Msg] = []
    for step in range(20):
        at = data.draw(st.integers(0, 3))
        p = processes[at]
        ready = [m for m in sent if m.name not in knows[at] and past[m.name] <= set(p.log)]
        ready = [m for m in ready if m not in p.queue.messages() and m.name not in p.log]
        since = len(p.log)
        if ready and data.draw(st.booleans()):
            message = data.draw(st.sampled_from(ready))
            assert p.receive(message)[0] == message.name  # Corollary 1
        else:
            sent.append(p.send(f"{at}.{step}"))
        for name in p.log[since:]:
            past.setdefault(name, frozenset(knows[at]))
            knows[at] |= past[name] | {name}


@pytest.mark.parametrize(("R", "K", "N"), [(100, 4, 600), (100, 3, 600), (101, 4, 404), (7, 3, 7), (16, 1, 48)])
def test_even_keys_are_the_papers_perfect_distribution(R: int, K: int, N: int) -> None:
    """Of s entries no subset is that of more than one process more, or less, than any other of s (PCO17 4.1.3)."""
    sets = [even_keys(i, R, K) for i in range(N)]
    assert all(len(set(keys)) == K and min(keys) >= 0 and max(keys) < R for keys in sets)
    for s in range(1, K + 1):
        counts = Counter(part for keys in sets for part in combinations(keys, s))
        least = min(counts.values()) if len(counts) == comb(R, s) else 0
        assert max(counts.values()) <= least + 1


def test_even_keys_stay_close_to_that_at_any_number() -> None:
    counts = Counter(dict.fromkeys(range(100), 0))
    for i in range(600):
        counts.update(even_keys(i, 100, 4))
        assert max(counts.values()) - min(counts.values()) <= 4
    drawn = Counter(x for i in range(600) for x in keys_of(Random(i), 100, 4))
    assert max(drawn.values()) - min(drawn.values()) > 10
