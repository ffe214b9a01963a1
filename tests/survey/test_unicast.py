"""Causal order for unicast: a message waits for all that was sent to the same process in its past, and carries only
news."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.errors import UsageError
from whence.order.survey.unicast import Unicast, UnicastProcess

N = 4
Name = tuple[int, int, int]


def run(kind: type[UnicastProcess], seed: int, steps: int = 120) -> tuple[int, int, int, int]:
    """Random unicasts over links that reorder and duplicate: inversions, undelivered, duplicates seen, entries sent."""
    rng = Random(seed)
    processes = [kind(p) for p in range(N)]
    past: dict[Name, frozenset[Name]] = {}
    known: list[set[Name]] = [set() for _ in range(N)]
    here: list[set[Name]] = [set() for _ in range(N)]
    under_way: list[Unicast] = []
    inversions = entries = 0
    for step in range(steps + 10_000):
        if step < steps and (rng.random() < 0.4 or not under_way):
            a, b = rng.sample(range(N), 2)
            message = processes[a].send(b, b"")
            entries += len(message.known)
            name = (a, b, message.seq)
            past[name] = frozenset(known[a])
            known[a].add(name)
            under_way.append(message)
            continue
        if not under_way:
            break
        at = rng.randrange(len(under_way))
        message = under_way[at] if rng.random() < 0.1 else under_way.pop(at)
        for found in processes[message.to].receive(message):
            name = (found.sender, found.to, found.seq)
            due = {n for n in past[name] if n[1] == found.to}
            inversions += bool(due - here[found.to])
            assert name not in here[found.to]
            here[found.to].add(name)
            known[found.to] |= past[name] | {name}
    return inversions, len(past) - sum(map(len, here)), sum(p.duplicates for p in processes), entries


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_causal_and_complete(seed: int) -> None:
    inversions, undelivered, _, entries = run(UnicastProcess, seed)
    assert inversions == 0 and undelivered == 0
    assert entries < 120 * N * N  # less than the matrix each time


class DroppedMerge(UnicastProcess):
    """Does not learn what others know."""

    def _deliver(self, message: Unicast) -> None:
        super()._deliver(Unicast(message.sender, message.to, message.seq, (), message.body))


class Forgets(UnicastProcess):
    """Tells an entry to one destination and then to nobody else."""

    def send(self, to: int, body: bytes) -> Unicast:
        message = super().send(to, body)
        self.sent = dict.fromkeys(range(N), self.tick - 1)
        return message


@pytest.mark.parametrize("kind", [DroppedMerge, Forgets])
def test_a_broken_rule_is_seen(kind: type[UnicastProcess]) -> None:
    assert any(run(kind, seed)[0] for seed in range(20))


def test_the_triangle() -> None:
    a, b, c = (UnicastProcess(p) for p in range(3))
    slow, fast = a.send(2, b"cause"), a.send(1, b"go")
    assert fast.known == ((0, 2, 1),)
    assert b.receive(fast) == [fast]
    effect = b.send(2, b"effect")
    assert set(effect.known) == {(0, 1, 1), (0, 2, 1)}
    assert c.receive(effect) == []
    assert c.receive(slow) == [slow, effect]
    assert c.receive(slow) == [] and c.duplicates == 1
    assert b.send(2, b"again").known == ((1, 2, 1),)  # the rest is known there


def test_misuse_is_named() -> None:
    a, b = UnicastProcess(0), UnicastProcess(1, capacity=1)
    with pytest.raises(UsageError):
        a.send(0, b"")
    with pytest.raises(UsageError):
        a.receive(a.send(1, b""))
    assert b.receive(a.send(1, b"")) == [] and b.receive(a.send(1, b"")) == [] and b.overflow == 1
