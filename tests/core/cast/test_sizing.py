"""Sizing: the formulas against the real protocol, by Monte Carlo, in rounds in step, out of step, and eager."""

from __future__ import annotations

from math import e, sqrt

import pytest

from tests.core.cast.cluster import Cluster, config, names, news
from tests.long import few
from whence.core.cast import sizing
from whence.core.cast.sizing import Mode
from whence.lab import spread

MEMBERS = (8, 25, 60, 125, 250)
LOSSES = (0.0, 0.05, 0.2)
MODEL_ERROR = 0.02
"""What the module says of itself: good to about two per cent."""


def measure(
    n: int, fanout: int, termination: int, loss: float, mode: Mode, in_step: bool, casts: int
) -> tuple[float, float]:
    """The fraction of casts that reached all, and the mean fraction of members reached. Four casts at a time, from
    different origins, so that they share messages only by chance; membership is kept out of it."""
    settings = config(
        mode=mode,
        in_step=in_step,
        fanout=fanout,
        termination=termination,
        max_members=2,
        max_events=100,
        expire=1_000_000,
    )
    cluster = Cluster(settings, seed=1000 * n + termination, loss=loss)
    ids = names(n)
    cluster.genesis(ids)
    for k in range(casts):
        origin = ids[k * 31 % n]
        cluster.broadcast(origin, news(origin, k))
        if k % 4 == 3:
            cluster.run(termination + 1 if mode == "rounds" else 0.2)
    cluster.run(termination + 1)
    counts = dict.fromkeys(range(casts), 0)
    for got in cluster.first.values():
        for item, _ in got:
            counts[int(item.key[1])] += 1
    return sum(c == n - 1 for c in counts.values()) / casts, sum(counts.values()) / casts / (n - 1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("members", few(MEMBERS, 2))
@pytest.mark.parametrize(("mode", "in_step"), [("rounds", True), ("rounds", False), ("eager", False)])
def test_predictions_hold(members: int, loss: float, mode: Mode, in_step: bool) -> None:
    chosen = sizing.choose(members, loss, 0.9, mode, in_step)
    assert 0.9 <= chosen.probability <= 1
    casts = 160 if members < 100 else 120 if members < 200 else 60
    reached_all, reached = measure(members, chosen.fanout, chosen.termination, loss, mode, in_step, casts)
    error = sqrt(max(chosen.probability * (1 - chosen.probability), 1 / casts) / casts)
    assert reached_all >= chosen.probability - MODEL_ERROR - 3 * error
    expected = spread.PrCast(members, chosen.fanout, chosen.termination, loss, mode, in_step).coverage()[-1]
    assert reached == pytest.approx((expected * members - 1) / (members - 1), abs=0.01)


@pytest.mark.parametrize(("mode", "in_step"), [("rounds", True), ("rounds", False), ("eager", False)])
def test_predictions_are_not_empty_caution(mode: Mode, in_step: bool) -> None:
    """Where a cast is predicted to fail often, it does: the prediction is no trivial lower bound."""
    fanout, termination = (5, 6) if mode == "eager" else (3, 5)
    predicted = spread.PrCast(60, fanout, termination, 0.05, mode, in_step).reach()
    assert 0.4 < predicted < 0.9
    reached_all, _ = measure(60, fanout, termination, 0.05, mode, in_step, 200)
    assert abs(reached_all - predicted) < 0.05 + 3 * sqrt(0.25 / 200)


def test_out_of_step_an_item_needs_more_hops() -> None:
    step, drift = (spread.PrCast(250, 4, 5, 0.0, in_step=s).reach() for s in (True, False))
    assert 0.3 < step < 0.5
    assert drift < 0.01
    assert spread.PrCast(250, 4, 5, 0.0).coverage()[-1] == pytest.approx(0.98, abs=0.003)
    assert spread.PrCast(250, 4, 5, 0.0, in_step=True).coverage()[-1] == pytest.approx(0.996, abs=0.003)


def test_choices_are_minimal() -> None:
    for members in (8, 25, 125):
        for mode in ("rounds", "eager"):
            chosen = sizing.choose(members, 0.05, 0.95, mode)
            if chosen.termination > 1:
                assert spread.PrCast(members, chosen.fanout, chosen.termination - 1, 0.05, mode).reach() < 0.95


@pytest.mark.parametrize("mode", ["rounds", "eager"])
@pytest.mark.parametrize("members", [2, 3, 5])
def test_a_handful_gets_one_direct_push(members: int, mode: Mode) -> None:
    assert sizing.choose(members, 0.0, 0.999, mode) == sizing.Sizing(members - 1, 1, 1.0)
    assert sizing.choose(1, 0.0, 0.999, mode).probability == 1


def test_a_target_out_of_reach_is_admitted() -> None:
    chosen = sizing.choose(3, 0.2, 0.999, "eager")
    assert chosen.probability < 0.999
    assert chosen.probability == spread.PrCast(3, chosen.fanout, chosen.termination, 0.2, "eager").reach()


def test_a_direct_push_survives_only_without_loss() -> None:
    assert spread.PrCast(5, 4, 1, 0.1, "eager").reach() == pytest.approx(0.9**4)
    assert spread.PrCast(5, 4, 9, 0.1, "eager").reach() == pytest.approx(0.9**4)  # nobody forwards


def test_buffer_and_history_hold_twice_the_mean() -> None:
    assert sizing.buffer(6, 5) == 60
    assert (e / 4) ** 30 < 1e-4
    assert sizing.history(600, 5) == 2 * 600 * 7
    assert sizing.history(6, 5) == sizing.HISTORY_FLOOR


def test_a_history_by_the_formula_hands_nothing_up_twice() -> None:
    """The formula without its floor: eight new items a round, out of step."""
    history = 2 * 8 * (4 + 2)
    cluster = Cluster(config(history=history, fanout=3, termination=4, max_events=60), seed=4)
    ids = names(30)
    cluster.genesis(ids)
    for k in range(400):
        cluster.broadcast(ids[k % 30], news(ids[k % 30], k))
        cluster.run(1 / 8)
    cluster.run(6)
    for got in cluster.first.values():
        assert len({i.key for i, _ in got}) == len(got)
    small = Cluster(config(history=8, fanout=3, termination=4, max_events=60), seed=4)
    small.genesis(ids)
    for k in range(100):
        small.broadcast(ids[k % 30], news(ids[k % 30], k))
        small.run(1 / 8)
    assert any(len({i.key for i, _ in got}) < len(got) for got in small.first.values())  # the test can fail
