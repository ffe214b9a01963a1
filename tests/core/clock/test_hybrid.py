"""Hybrid logical clocks: never against causality, and near physical time while the physical clocks are near each
other."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.order.survey.timed import Hybrid, HybridClock


class Forgets(HybridClock):
    """Does not look at the timestamp of a message."""

    def witness(self, other: Hybrid, physical: int) -> Hybrid:
        return self.tick(physical)


def run(kind: type[HybridClock], seed: int, skew: int, backwards: bool = False) -> tuple[int, int]:
    """Three processes that send to each other: how many effects are not after their cause; the largest distance from
    the truth."""
    rng = Random(seed)
    clocks = [kind() for _ in range(3)]
    offset = [rng.randint(-skew, skew) for _ in range(3)]
    under_way: list[Hybrid] = []
    wrong, far, now = 0, 0, 10_000
    for _ in range(200):
        now += rng.randrange(5)
        p = rng.randrange(3)
        if backwards and rng.random() < 0.1:
            offset[p] = rng.randint(-skew, skew)
        before = clocks[p].now
        if under_way and rng.random() < 0.5:
            cause = under_way.pop(rng.randrange(len(under_way)))
            after = clocks[p].witness(cause, now + offset[p])
            wrong += after <= cause
        else:
            after = clocks[p].tick(now + offset[p])
            under_way.append(after)
        wrong += after <= before
        far = max(far, after.time - now)
    return wrong, far


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 1000), st.booleans())
def test_effects_are_after_causes_and_time_is_within_the_skew(seed: int, skew: int, backwards: bool) -> None:
    wrong, far = run(HybridClock, seed, skew, backwards)
    assert wrong == 0
    assert far <= skew


def test_a_clock_that_forgets_is_seen() -> None:
    assert any(run(Forgets, seed, 100)[0] for seed in range(5))


def test_the_counter_tells_apart_what_happens_at_one_moment() -> None:
    clock = HybridClock()
    assert [clock.tick(5), clock.tick(5), clock.tick(4), clock.tick(6)] == [(5, 0), (5, 1), (5, 2), (6, 0)]
    assert clock.witness(Hybrid(9, 7), 6) == (9, 8)
    assert clock.witness(Hybrid(9, 3), 6) == (9, 9)
    assert clock.witness(Hybrid(1, 0), 20) == (20, 0)
