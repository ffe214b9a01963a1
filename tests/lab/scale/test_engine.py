"""The array engine decides what the core decides, on any number of threads and in any partition."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numba
import numpy as np
import pytest
from msgspec import structs

from tests.lab.scale.reference import reference
from tests.long import few
from whence.lab.scale.fast import TOO_LONG, Fast
from whence.lab.scale.general import ALERTS4, ALERTS5, DELIVERED, EARLY, ERRORS, OVERTAKEN, SEEN, UNALERTED4, General
from whence.lab.scale.network import ScaleSettings, prepare


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small runs spend more on waking threads than on messages; the test of threads sets its own number."""
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)


def small(seed: int, **fields: object) -> ScaleSettings:
    """A random small run in which errors are frequent. Most of its messages warm it up and cool it down; decisions are
    compared from the first message to the last."""
    rng = random.Random(seed)
    N = min(rng.randint(2, 60), rng.randint(2, 60)) if seed % 20 else 60
    R = rng.choice([1, 2, 3, 5, 8, 13, 20, 33, N])
    settings = {
        "processes": N,
        "entries": R,
        "keys": min(R, rng.randint(1, 4)),
        "deliveries": float(rng.choice([20, 50, 100]) * (N - 1)),
        "rate": rng.choice([30.0, 100.0, 200.0]),
        "delay": rng.choice([0.0, 20.0, 50.0, 100.0]),
        "spread": rng.choice([0.0, 5.0, 20.0]),
        "skew": rng.choice([0.0, 5.0, 20.0, 50.0]),
        "memory": rng.choice([0, 1, 5, 30, 1000]),
        "seed": seed,
    }
    if seed % 5 == 3 and not fields:
        settings["publishers"] = rng.randint(2, N)
    return ScaleSettings(**{**settings, **fields})  # type: ignore[arg-type]


def general(settings: ScaleSettings, **how: object) -> General:
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


@pytest.mark.parametrize("block", few(range(10), 3))
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


def fast(settings: ScaleSettings, chunk: int = 1000, **how: object) -> Fast:
    engine = Fast(prepare(settings), log=True, **how)  # type: ignore[arg-type]
    while engine.step(chunk):
        pass
    return engine


@pytest.mark.parametrize("block", few(range(10), 3))
def test_fast_equals_the_core(block: int) -> None:
    errors = judged = 0
    for seed in range(1000 + 20 * block, 1000 + 20 * block + 20):
        settings = small(seed, spread=random.Random(seed).choice([5.0, 20.0]))
        if seed % 5 == 3:
            settings = structs.replace(settings, publishers=random.Random(seed).randint(2, settings.processes))
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


def test_the_papers_estimates_are_those_of_its_vector_clock() -> None:
    """eps_min and eps_max against sets of messages in the reference, over whole runs."""
    for seed in range(2000, 2010):
        run = prepare(small(seed))._replace(first=0, last=10**9)
        core = reference(run)
        engine = General(run)
        while engine.step(50):
            pass
        assert engine.counts[OVERTAKEN] == sum(process.overtaken for process in core)
        assert engine.counts[SEEN] == sum(process.seen for process in core)


@pytest.mark.parametrize("seed", few([3001, 3002, 3003], 1))
def test_threads_partitions_and_steps_change_nothing(seed: int) -> None:
    settings = small(seed, processes=60, entries=12, keys=2, deliveries=12_000.0, rate=150.0, skew=20.0, delay=50.0)
    run = prepare(settings)
    slow, quick = general(settings).counts, fast(settings).counts
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    assert (general(settings).counts == slow).all()
    assert (fast(settings).counts == quick).all()
    numba.set_num_threads(1)
    for chunk in (50, 137, 5000):
        assert (fast(settings, chunk).counts == quick).all(), chunk
    for parts in (2, 7):
        sums = []
        for kind in (General, Fast):
            total = np.zeros(16, np.int64)
            for i in range(parts):
                engine = kind(run, part=(i, parts))
                while engine.step(700):
                    pass
                total += engine.counts
            sums.append(total)
        assert (sums[0] == slow).all(), parts
        assert (sums[1] == quick).all(), parts
    assert slow[ERRORS] > 0
    for column in (DELIVERED, ERRORS, SEEN, OVERTAKEN, EARLY):
        assert slow[column] == quick[column]


def test_a_vector_clock_makes_no_error_and_lamports_clock_many() -> None:
    vector = small(7, processes=40, entries=40, keys=1, delay=50.0, skew=60.0, rate=200.0)
    lamport = small(7, processes=40, entries=1, keys=1, delay=50.0, skew=60.0, rate=200.0)
    assert general(vector).counts[ERRORS] == 0
    assert general(vector).counts[EARLY] > 0
    assert general(lamport).counts[ERRORS] > 100


def test_the_fast_engine_says_when_too_much_waits() -> None:
    heavy = small(1, processes=40, entries=20, keys=2, rate=2000.0, delay=100.0, skew=60.0, deliveries=4000.0)
    assert fast(heavy).counts[TOO_LONG] > 0
