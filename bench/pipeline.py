"""The causal audit with Spark, design by design, next to DuckDB with the same kernel in the same run.

Rows per second (best of several, in a warm session), the ratio to the peer, peak memory of all processes together, the
cost of a row as the trace grows; the whole command on a tiny trace, cold and warm; a batch of the stream. Sizes: 10^6
and 2 x 10^7 rows; `WHENCE_BENCH_ROWS=100000000` adds 10^8, `WHENCE_BENCH_ROWS=1000000` is a quick look at 10^6 alone.

Each figure is measured in a process of its own: `python -m bench.pipeline CASE FOLDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"

Row = dict[str, Any]


# -- memory of a process and all it started


def children(pid: int) -> Iterator[int]:
    """This process and all below it."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from children(int(child))


def memory(pid: int) -> int:
    """Bytes: what the processes share (a forked worker with its parent) is counted once."""
    total = 0
    for each in children(pid):
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) * 1024
    return total


def measured(*arguments: str) -> tuple[Row, float]:
    """What the case says, and its peak memory in GB."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), str(TESTS)])}
    command = [sys.executable, "-m", "bench.pipeline", *arguments]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    peak = 0

    def sample() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.1)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    said, _ = process.communicate()
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"bench.pipeline {' '.join(arguments)} ended with {process.returncode}")
    return json.loads(said.splitlines()[-1]), peak / 1e9


# -- traces


def write_trace(folder: Path, rows: int, layout: str) -> int:
    """20 runs x 25 origins x 200 members (`giant`: one run), wrongs in it; the number of rows. Made a part at a time, so
    that the size of the trace is not the size of memory."""
    import pyarrow as pa
    import spark_traces

    runs = 1 if layout == "giant" else 20
    parts = max(1, min(runs, rows // 10_000_000))
    written = 0
    for part in range(parts):
        tables, _ = spark_traces.make(rows // parts, runs=runs // parts, wrongs=20 // parts, seed=part + 1)
        for number, table in enumerate(tables):
            name = pa.array([f"run-{part:02d}-{number:02d}"])
            coded = pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int32()), name)
            tables[number] = table.set_column(table.schema.get_field_index("run"), "run", coded)
            written += table.num_rows
        for file in spark_traces.write(tables, folder / "part", layout="mixed" if layout == "mixed" else "run"):
            file.rename(folder / f"{part:02d}-{file.name}")
    (folder / "part").rmdir()
    return written


# -- cases: each prints its figures as one line of JSON

REPEATS = 3


def timed(work: Callable[[], Any]) -> tuple[list[float], Any]:
    seconds, result = [], None
    for _ in range(REPEATS):
        begun = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begun)
    return seconds, result


def audit_case(design: str, folder: Path) -> Row:
    """Our audit, with this design."""
    from whence.spark.audit import audit
    from whence.spark.session import session

    spark = session("local[2]", os.environ.get("WHENCE_BENCH_MEMORY", "2g"))
    with tempfile.TemporaryDirectory() as out:
        seconds, summary = timed(lambda: audit(spark, [folder], out, design=design))
    return {"seconds": seconds, "rows": summary.rows, "verdicts": summary.verdicts, "violations": summary.violations}


def duckdb_case(_: str, folder: Path) -> Row:
    """The peer: DuckDB reads, the same kernel judges, the same tables are written; two threads, no Spark."""
    from concurrent.futures import ThreadPoolExecutor

    import duckdb
    from whence.spark.audit import Summary, audit_run
    from whence.spark.coding import READ
    from whence.spark.parts import Parts

    base = duckdb.connect(config={"threads": 2})
    files = str(folder / "*.parquet")
    groups = base.execute("SELECT DISTINCT run, cluster, filename FROM read_parquet(?, filename=true)", [files]).fetchall()
    runs: dict[tuple[str, str], list[str]] = {}
    for run, cluster, file in sorted(groups):
        runs.setdefault((run, cluster), []).append(file)
    columns = ", ".join(f'"{name}"' for name in READ if name not in ("run", "cluster"))

    def one(out: str, number: int, run: str, cluster: str, mine: list[str]) -> Summary:
        query = f"SELECT {columns}, filename AS file, file_row_number AS position FROM read_parquet(?, filename=true, "
        query += "file_row_number=true) WHERE run = ? AND cluster = ?"
        found = base.cursor().execute(query, [mine, run, cluster]).to_arrow_table()
        with Parts(out, f"run-{number:05d}") as parts:
            return audit_run(found, run, cluster, parts)

    def work() -> Summary:
        total = Summary()
        with tempfile.TemporaryDirectory() as out, ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(one, out, k, *group, mine) for k, (group, mine) in enumerate(runs.items())]
            for job in jobs:
                total.add(job.result())
        return total

    seconds, summary = timed(work)
    return {"seconds": seconds, "rows": summary.rows, "verdicts": summary.verdicts, "violations": summary.violations}


CASES = {"runs": audit_case, "shuffle": audit_case, "giant": audit_case, "duckdb": duckdb_case}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](sys.argv[1], Path(sys.argv[2]))))
