"""The interval of an error rate, and what it says."""

from __future__ import annotations

from math import comb

import pytest

from whence.audit.judge.batch import rates
from whence.audit.judge.batch.rates import ABOVE, IN_DOUBT, LEVEL, UNDECIDED, WITHIN, interval, rate


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 100, 0.0, 0.0362167),
        (1, 1000, 2.5317e-5, 5.5589e-3),
        (10, 100, 0.0490047, 0.1762226),
        (100, 100, 0.9637833, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_known_intervals(hits: int, trials: int, low: float, high: float) -> None:
    """Those of the tables of Clopper and Pearson, at 95 %."""
    assert interval(hits, trials, 0.95) == pytest.approx((low, high), rel=1e-4)


@pytest.mark.parametrize(("trials", "p"), [(40, 0.001), (40, 0.1), (80, 0.02), (50, 0.5), (30, 0.97)])
def test_a_kept_contract_is_rarely_accused_and_a_broken_one_rarely_praised(trials: int, p: float) -> None:
    """Exactly, over all that can happen: each error is as rare as the level says."""
    chance = [comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    found = [interval(k, trials) for k in range(trials + 1)]
    assert sum(c for c, (low, _) in zip(chance, found, strict=True) if low > p) <= (1 - LEVEL) / 2
    assert sum(c for c, (_, high) in zip(chance, found, strict=True) if high < p) <= (1 - LEVEL) / 2


def test_what_an_interval_says() -> None:
    at = {outcome: rate(5, 10_000, 40, 40, allowed, False) for outcome, allowed in zip(
        (ABOVE, UNDECIDED, WITHIN), (0.001, 0.004, 0.01), strict=True
    )}  # fmt: skip
    for outcome, found in at.items():
        assert found.outcome == outcome and str(found).endswith(outcome)
    assert rate(5, 10_000, 40, 40, 0.001, True).outcome == IN_DOUBT
    assert rate(5, 0, 0, 0, 0.001, False).outcome == UNDECIDED
    assert set(rates.OUTCOMES) == {*at, IN_DOUBT}


def test_inversions_that_come_together_tell_less() -> None:
    """40 inversions of 40 events, and of 4 events at ten members each: that is as good as 4 in a tenth."""
    alone, together = rate(20, 10_000, 40, 40, 0.002, False), rate(20, 10_000, 40, 400, 0.002, False)
    assert (alone.outcome, together.outcome) == (ABOVE, UNDECIDED)
    assert together.clump == 10 and (together.low, together.high) == interval(4, 1_000)
