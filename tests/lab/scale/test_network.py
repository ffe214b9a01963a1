"""The array engine's randomness and network: moments, tails and independence, not only speed."""

from __future__ import annotations

import numpy as np
import pytest

from whence.core.clock.probabilistic import unrank
from whence.errors import ConfigError
from whence.lab.scale.network import ScaleSettings, key_sets, prepare, travel
from whence.lab.scale.random import COPY, GAP, KEYS, RECEIVER, below, bits, hashed, normal, normal_table, uniform


def sample(messages: int = 1500, receivers: int = 1000) -> np.ndarray:
    """Standard normal numbers, a row per message, as the engine draws them."""
    table = normal_table(1e6)
    copies = bits(5, COPY, np.arange(messages))
    key1, key2 = copies.astype(np.uint32)[:, None], (copies >> np.uint64(32)).astype(np.uint32)[:, None]
    to = bits(5, RECEIVER, np.arange(receivers)).astype(np.uint32)[None, :]
    with np.errstate(over="ignore"):
        words = hashed.py_func(to, key1, key2)
    return normal.py_func(words, table) / 1e6


def test_normal_numbers_have_the_moments_and_tails_of_a_normal_distribution() -> None:
    z = sample()
    assert abs(z.mean()) < 0.004
    assert abs(z.var() - 1) < 0.006
    assert abs((z**3).mean()) < 0.02
    assert abs((z**4).mean() - 3) < 0.05
    for edge, tail in ((1, 0.158655), (2, 0.022750), (3, 0.0013499), (4, 3.167e-5)):
        for side in (z > edge, z < -edge):
            assert abs(side.mean() - tail) < 5 * (tail / z.size) ** 0.5, edge


def test_normal_numbers_of_different_copies_are_independent() -> None:
    z = sample()
    between = np.corrcoef(z[:60])  # messages, over 1000 receivers
    assert np.abs(between[np.triu_indices(60, 1)]).max() < 5 / 1000**0.5
    between = np.corrcoef(z[:, :60].T)  # receivers, over 1500 messages
    assert np.abs(between[np.triu_indices(60, 1)]).max() < 5 / 1500**0.5
    steps = (z[:-1] * z[1:]).mean(), (z[:, :-1] * z[:, 1:]).mean(), (z[:-1, :-1] * z[1:, 1:]).mean()
    assert max(map(abs, steps)) < 5 / z.size**0.5
    far = np.abs(z) > 2  # tails do not come together either
    assert abs((far[:, :-1] & far[:, 1:]).mean() - 0.0455**2) < 2e-4


def test_uniform_numbers_fill_all_cells_alike() -> None:
    for stream in (GAP, KEYS, RECEIVER):
        u = uniform(bits(1, stream, np.arange(200_000)))
        cells = np.bincount((u * 100).astype(int), minlength=100)
        assert ((cells - 2000) ** 2 / 2000).sum() < 160  # chi square, 99 degrees of freedom: 1 in 10^4 is above 161
    assert np.bincount(below(bits(1, KEYS, np.arange(70_000)), 7)).min() > 9_500
    assert (bits(1, GAP, np.arange(1000)) != bits(2, GAP, np.arange(1000))).all()
    assert (bits(1, GAP, np.arange(1000)) != bits(1, KEYS, np.arange(1000))).all()


def test_messages_are_those_of_poisson_senders() -> None:
    run = prepare(ScaleSettings(processes=10, deliveries=900_000, rate=200.0))
    gaps = np.diff(run.net.send)
    assert abs(gaps.mean() / 5000 - 1) < 0.02
    assert abs(gaps.std() / 5000 - 1) < 0.02
    assert np.bincount(run.net.sender, minlength=10).min() > 9_000


def test_delays_are_those_of_the_paper_and_never_negative() -> None:
    run = prepare(ScaleSettings(processes=50, deliveries=49_000))
    times = np.array([[travel(m, p, run.receiver[p], *run.net[1:]) for p in range(50)] for m in range(800)]) / 1000
    assert abs(times.mean() - 100) < 2.5
    assert abs(times.mean(axis=1).std() - 20) < 2
    assert abs((times - times.mean(axis=1, keepdims=True)).std() - 20) < 0.5
    assert times.min() >= 0
    assert times.max() * 1000 <= run.longest
    short = prepare(ScaleSettings(processes=50, deliveries=49_000, delay=0.0))
    late = [travel(m, p, short.receiver[p], *short.net[1:]) for m in range(100) for p in range(50)]
    assert min(late) == 0


def test_lost_copies_come_a_retry_later() -> None:
    plain = ScaleSettings(processes=20, deliveries=19_000, spread=0.0, skew=0.0)
    run = prepare(ScaleSettings(processes=20, deliveries=19_000, spread=0.0, skew=0.0, loss=0.2, retry=50.0))
    times = np.array([travel(m, p, run.receiver[p], *run.net[1:]) for m in range(1000) for p in range(20)])
    tries = (times - 100_000) // 50_000
    assert prepare(plain).longest == 100_000
    for lost in range(3):
        assert abs((tries >= lost).mean() - 0.2**lost) < 0.01
    assert tries.max() <= 8


@pytest.mark.parametrize(("R", "K"), [(10, 3), (100, 4), (5, 5), (64, 1), (1000, 12)])
def test_key_sets_are_drawn_by_unranking(R: int, K: int) -> None:
    settings = ScaleSettings(entries=R, keys=K, processes=50, seed=3)
    sets = key_sets(settings, np.arange(50))
    assert all(len(set(keys)) == K and list(keys) == sorted(keys) and keys[-1] < R for keys in sets.tolist())
    if R <= 100:
        from math import comb

        ids = bits(3, KEYS, np.arange(50)) % np.uint64(comb(R, K))
        assert [tuple(keys) for keys in sets.tolist()] == [unrank(int(i), R, K) for i in ids]


def test_the_vector_clock_gives_each_process_its_own_entry() -> None:
    assert key_sets(ScaleSettings(entries=30, keys=1, processes=30), np.arange(30)).ravel().tolist() == list(range(30))


@pytest.mark.parametrize(
    ("field", "value"),
    [("processes", 1), ("entries", 0), ("keys", 101), ("keys", 0), ("deliveries", 0), ("rate", 0), ("rate", -1),
     ("rate", float("nan")), ("delay", -1), ("loss", 1.0), ("loss", -0.1), ("churn", 1e4), ("seed", -1),
     ("deliveries", 1e13)],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        prepare(ScaleSettings(**{field: value}))
