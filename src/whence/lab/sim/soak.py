"""Many seeds of a scenario, on all cores."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import Any

import msgspec

from whence.lab.sim.run import run
from whence.lab.sim.scenario import Loaded, load

SUMS = ("published", "delivered", "lost", "over_gap", "inversions")
"""What a soak adds up, per order: they promise different things."""
TIMED = ("physical", "delta")
"""Mechanisms of the survey that need clocks that agree; all others tolerate clocks an hour apart."""
CLOCKS = {"clocks.offset": "5ms", "clocks.drift": 0, "chaos.clock": "100000r"}
"""Clocks that stay within the skew that such a mechanism allows for."""


class SeedResult(msgspec.Struct, frozen=True):
    """One run of a soak."""

    seed: int
    kind: str | None
    """Of its violation; None: it was clean."""
    violation: str | None
    seconds: float
    orders: dict[str, Counter[str]]
    """Order -> `SUMS`."""


def soak(scenario: str | Loaded, seeds: int = 100, start: int = 0, jobs: int | None = None) -> Iterator[SeedResult]:
    """Run the seeds `start`, `start + 1`, ... The results come as they are done, not in order."""
    loaded = load(scenario) if isinstance(scenario, str) else scenario
    todo, jobs = iter(range(start, start + seeds)), jobs or os.cpu_count() or 1
    pool = ProcessPoolExecutor(jobs, initializer=partial(signal.signal, signal.SIGINT, signal.SIG_IGN))
    pending: set[Future[SeedResult]] = set()
    try:
        while True:
            while len(pending) < 2 * jobs and (seed := next(todo, None)) is not None:
                pending.add(pool.submit(_one_seed, loaded, seed))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (f.result() for f in done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_seed(loaded: Loaded, seed: int) -> SeedResult:
    """In a worker process."""
    began = time.perf_counter()
    outcome = run(loaded, seed)
    orders: dict[str, Counter[str]] = {}
    for line in outcome.report.lines:
        orders.setdefault(line.order, Counter()).update({f: getattr(line, f) for f in SUMS})
    kind = None if outcome.violation is None else outcome.violation.kind
    return SeedResult(seed, kind, outcome.report.violation, time.perf_counter() - began, orders)


def with_mechanism(mechanism: str, settings: Mapping[str, Any] | None = None) -> Loaded:
    """The scenario `hostile-survey` with a mechanism of the survey, and with correct clocks if it needs them."""
    clocks = CLOCKS if mechanism in TIMED else {}
    return load("hostile-survey", settings={"cluster.mechanism": mechanism, **clocks, **(settings or {})})
