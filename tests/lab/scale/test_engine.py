"""The array engine decides what the core decides, on any number of threads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numba
import pytest

from tests.lab.scale.reference import reference
from tests.long import few
from whence.lab.scale.engine import ALERTS4, ALERTS5, EARLY, ERRORS, OVERTAKEN, SEEN, UNALERTED4, Engine
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


def ran(settings: ScaleSettings, chunk: int = 100) -> Engine:
    engine = Engine(prepare(settings), log=True)
    while engine.step(chunk):
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
def test_the_engine_equals_the_core(block: int) -> None:
    errors = 0
    for seed in range(20 * block, 20 * block + 20):
        settings = small(seed, **variations(seed))
        run = prepare(settings)
        core = reference(run)
        engine = ran(settings)
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


def test_the_papers_estimates_are_those_of_its_vector_clock() -> None:
    """eps_min and eps_max against sets of messages in the reference, over whole runs."""
    for seed in range(2000, 2010):
        run = prepare(small(seed))._replace(first=0, last=10**9)
        core = reference(run)
        engine = Engine(run)
        while engine.step(50):
            pass
        assert engine.counts[OVERTAKEN] == sum(process.overtaken for process in core)
        assert engine.counts[SEEN] == sum(process.seen for process in core)


@pytest.mark.parametrize("seed", few([3001, 3002, 3003], 1))
def test_threads_and_steps_change_nothing(seed: int) -> None:
    settings = small(seed, processes=60, entries=12, keys=2, deliveries=12_000.0, rate=150.0, skew=20.0, delay=50.0)
    counts = ran(settings).counts
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    assert (ran(settings).counts == counts).all()
    numba.set_num_threads(1)
    for chunk in (50, 137, 5000):
        assert (ran(settings, chunk).counts == counts).all(), chunk
    assert counts[ERRORS] > 0


def test_a_vector_clock_makes_no_error_and_lamports_clock_many() -> None:
    vector = small(7, processes=40, entries=40, keys=1, delay=50.0, skew=60.0, rate=200.0)
    lamport = small(7, processes=40, entries=1, keys=1, delay=50.0, skew=60.0, rate=200.0)
    assert ran(vector).counts[ERRORS] == 0
    assert ran(vector).counts[EARLY] > 0
    assert ran(lamport).counts[ERRORS] > 100
