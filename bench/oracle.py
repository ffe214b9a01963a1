"""How fast the judge is, and how fast a trace is written and read: deliveries or rows per second."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whence.audit.judge import Causality
from whence.audit.judge.report import report
from whence.audit.trace import JsonlTrace, ParquetTrace, Row, read

MEMBERS, ORIGINS, FRAMES, SIZE = 200, 25, 6_250, 20


def best(run: Callable[[], object], times: int = 3) -> float:
    """Seconds of the quickest of several runs."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def judge_frames(loss: float) -> None:
    """Every member hears of every frame before the next is published: the longest lists of news."""
    rng, judge = random.Random(1), Causality()
    names = [f"m{i}#1" for i in range(MEMBERS)]
    for frame in range(FRAMES):
        owner = frame % ORIGINS
        key = (owner, 1, frame // ORIGINS * SIZE + 1)
        judge.published(names[owner], key, SIZE)
        for name in names:
            if not loss or rng.random() >= loss:
                judge.delivered(name, key)
    found = report(judge)
    assert found.ok and bool(found.total.lost) == bool(loss)


def main() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def add(what: str, count: int, seconds: float, **more: object) -> None:
        rows.append({"what": what, "count": count, "seconds": seconds, "per second": count / seconds, **more})

    for loss in (0.0, 0.01):
        checks = MEMBERS * FRAMES
        add(f"judge, frames of {SIZE}, loss {loss:.0%}", checks * SIZE, best(lambda loss=loss: judge_frames(loss)))
    trace = [
        Row(
            "r",
            "c",
            f"m{i % 50}#1",
            i // 50,
            i * 1000,
            "deliver",
            event=f"0:0.0.1:{i // 50}@m0#1",
            origin="m0#1",
            ticket=0,
        )
        for i in range(500_000)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for kind in (ParquetTrace, JsonlTrace):
            path = Path(folder) / ("t.parquet" if kind is ParquetTrace else "t.jsonl")

            def write(kind: type[ParquetTrace] | type[JsonlTrace] = kind, path: Path = path) -> None:
                path.unlink(missing_ok=True)
                with kind(path) as writer:
                    writer.append_many(trace)

            add(f"{kind.__name__} write", len(trace), best(write), bytes=path.stat().st_size)
            add(f"{kind.__name__} read", len(trace), best(lambda path=path: sum(1 for _ in read(path))))
    return rows
