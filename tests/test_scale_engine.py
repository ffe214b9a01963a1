"""The array engine decides what the core decides, on any number of threads and in any partition."""

from __future__ import annotations

import random

import numba
import numpy as np
import pytest
from scale_reference import reference

from whence.clock.probabilistic import unrank
from whence.scale.fast import TOO_LONG, Fast
from whence.scale.general import ALERTS4, ALERTS5, DELIVERED, EARLY, ERRORS, OVERTAKEN, SEEN, UNALERTED4, General
from whence.scale.network import Settings, key_sets, prepare
from whence.scale.random import COPY, KEYS, RECEIVER, bits, hashed, normal, normal_table, uniform


def small(seed: int, **fields: object) -> Settings:
    """A random small run in which errors are frequent."""
    rng = random.Random(seed)
    N = rng.randint(2, 60)
    R = rng.choice([1, 2, 3, 5, 8, 13, 20, 33, N])
    settings = {
        "processes": N,
        "entries": R,
        "keys": min(R, rng.randint(1, 4)),
        "deliveries": float(rng.choice([60, 150, 300]) * (N - 1)),
        "rate": rng.choice([30.0, 100.0, 200.0, 500.0]),
        "delay": rng.choice([0.0, 20.0, 50.0, 100.0]),
        "spread": rng.choice([0.0, 5.0, 20.0]),
        "skew": rng.choice([0.0, 5.0, 20.0, 60.0]),
        "memory": rng.choice([0, 1, 5, 30]),
        "seed": seed,
    }
    return Settings(**{**settings, **fields})  # type: ignore[arg-type]


def general(settings: Settings, **how: object) -> General:
    engine = General(prepare(settings), log=True, **how)  # type: ignore[arg-type]
    while engine.step(100):
        pass
    return engine


def variations(seed: int) -> dict[str, object]:
    """Every second run has more than the paper's network."""
    rng = random.Random(seed)
    if seed % 2:
        return {}
    extra: dict[str, object] = {}
    if rng.random() < 0.5:
        extra |= {"loss": rng.choice([0.02, 0.3]), "retry": rng.choice([10.0, 50.0])}
    if rng.random() < 0.5:
        extra |= {"churn": rng.choice([1.0, 20.0])}
    if rng.random() < 0.5:
        cities = rng.randint(1, 5)
        extra |= {"latencies": tuple(tuple(rng.uniform(0, 200) for _ in range(cities)) for _ in range(cities))}
    return extra


@pytest.mark.parametrize("block", range(10))
def test_general_equals_the_core(block: int) -> None:
    errors = 0
    for seed in range(20 * block, 20 * block + 20):
        settings = small(seed, **variations(seed))
        run = prepare(settings)
        core = reference(run)
        engine = general(settings)
        decisions = engine.decisions()
        for p, process in enumerate(core):
            assert decisions[p] == process.log, f"{settings}, process {p}"
        counted = [d for process in core for d in process.log if run.first <= d[0] < run.last]
        assert engine.counts[ERRORS] == sum(d[1] for d in counted)
        assert engine.counts[ALERTS4] == sum(d[2] for d in counted)
        assert engine.counts[ALERTS5] == sum(d[3] for d in counted)
        assert engine.counts[UNALERTED4] == 0
        errors += engine.counts[ERRORS]
    assert errors > 100


def fast(settings: Settings, chunk: int = 1000, **how: object) -> Fast:
    engine = Fast(prepare(settings), log=True, **how)  # type: ignore[arg-type]
    while engine.step(chunk):
        pass
    return engine


@pytest.mark.parametrize("block", range(10))
def test_fast_equals_the_core(block: int) -> None:
    errors = judged = 0
    for seed in range(1000 + 20 * block, 1000 + 20 * block + 20):
        settings = small(seed, spread=random.Random(seed).choice([5.0, 20.0]))
        run = prepare(settings)
        core = reference(run)
        engine = fast(settings, chunk=random.Random(seed).choice([100, 1000]))
        if engine.counts[TOO_LONG]:
            continue  # then the general engine is asked
        judged += 1
        wrong = {(p, d[0]) for p, process in enumerate(core) for d in process.log if d[1]}
        wrong = {(p, m) for p, m in wrong if run.first <= m < run.last}
        found = {(int(p), int(m)) for p, m in np.argwhere(engine.log) if run.first <= m < run.last}
        assert found == wrong, settings
        assert engine.counts[ERRORS] == len(wrong)
        slow = general(settings)
        for column in (DELIVERED, ERRORS, SEEN, OVERTAKEN, EARLY):
            assert engine.counts[column] == slow.counts[column], (column, settings)
        errors += len(wrong)
    assert judged > 10
    assert errors > 100
