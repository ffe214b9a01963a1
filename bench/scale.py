"""How fast the array engine is: deliveries a second with the exact oracle on, next to the machine's limit.

The limit is measured in the same run: the same hashes and table look-ups that give each copy its delay, stored, and
nothing else. No engine that draws a delay per copy can be faster. Shares are of processor time, because the machine may
have other work too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from whence.lab.scale import ScaleSettings, run_scale
from whence.lab.scale.jit import span, threaded
from whence.lab.scale.random import COPY, RECEIVER, bits, hashed, normal, normal_table

LANES = 64


@threaded
def delays(out: Any, receiver: Any, key1: Any, key2: Any, table: Any) -> None:
    """A delay for each copy, blocks of receivers on all threads."""
    for block in span(len(receiver) // LANES):
        for m in range(len(key1)):
            word1, word2 = key1[m], key2[m]
            for lane in range(LANES):
                word = hashed(receiver[block * LANES + lane], word1, word2)
                out[block, m & 255, lane] = np.int32(100_000 + normal(word, table))


def best(work: Callable[[], float], repeat: int = 3) -> float:
    """The best of several runs, since the machine may be busy."""
    return max(work() for _ in range(repeat))


def limit(messages: int = 40_000, receivers: int = 1024) -> tuple[float, float]:
    """Delays a second, and a second of processor time, and nothing else."""
    copies = bits(0, COPY, np.arange(messages))
    arguments = (
        np.zeros((receivers // LANES, 256, LANES), np.int32),
        bits(0, RECEIVER, np.arange(receivers)).astype(np.uint32),
        copies.astype(np.uint32),
        (copies >> np.uint64(32)).astype(np.uint32),
        normal_table(20_000.0),
    )
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    delays(*arguments)

    spent: list[float] = []

    def work() -> float:
        began, before = time.perf_counter(), time.process_time()
        delays(*arguments)
        spent.append(messages * receivers / (time.process_time() - before))
        return messages * receivers / (time.perf_counter() - began)

    return best(work), max(spent)


def row(what: str, top: float, settings: ScaleSettings) -> dict[str, Any]:
    """The engine on one setting. CPU time is measured with one thread: on a busy machine, threads burn time waiting for
    each other."""

    def alone() -> float:
        before = time.process_time()
        result = run_scale(settings, threads=1)
        return result.deliveries / (time.process_time() - before)

    run_scale(settings)
    rate = best(lambda: run_scale(settings).deliveries_per_s)
    spent = best(alone)
    return {
        "what": what,
        "deliveries_per_s": round(rate),
        "deliveries_per_cpu_s": round(spent),
        "share_of_limit": round(spent / top, 3),
    }


def main() -> list[dict[str, Any]]:
    """Rows for `python -m bench`."""
    wall, top = limit()
    rows: list[dict[str, Any]] = [
        {
            "what": "limit: a delay per copy and nothing else",
            "deliveries_per_s": round(wall),
            "deliveries_per_cpu_s": round(top),
        }
    ]
    for n in (500, 1000, 2000, 10_000):
        settings = ScaleSettings(processes=n, deliveries=2e7)
        rows.append(row(f"the paper's network, N = {n:,}, R = 100, K = 4", top, settings))
    cities = tuple(tuple(20.0 + 10 * ((i * 7 + j * 3) % 17) for j in range(20)) for i in range(20))
    hostile = ScaleSettings(deliveries=2e7, loss=0.01, churn=5.0, latencies=cities, skew=5.0)
    rows.append(row("also 1 % loss, churn and a matrix of latencies", top, hostile))
    return rows
