"""Client histories: operations per second by stage, memory, a stale read, and Spark beside one process.

The histories are made here: sessions of transactions of 20 operations, half writes, n / 10 keys, every read from a
prefix of the commit order some 50 commits old. `make bench BENCH=histories` takes 10^6 and 10^7 operations; in the
environment WHENCE_BENCH_OPERATIONS="1000000 100000000" takes others, and WHENCE_BENCH_PARTS chooses some of "recorded
blind zipf stale text blocks registers lists files spark". Each case runs in a process of its own:
`python -m bench.histories CASE OPERATIONS FOLDER`. `limit_s` is the time to read the file and to copy each column once,
which every checker needs. `files` takes the recorded histories of WHENCE_DATA, if it is set. Beside the figures stands
AWDIT (Rust, one thread, text in), measured earlier on a machine of this class: it is not built here.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]

PARTS = ("recorded", "blind", "zipf", "stale", "text", "blocks", "registers", "lists", "files", "spark")
AWDIT = {10**6: 1.9, 10**7: 47.3}
"""Seconds of AWDIT, parse and TCC, by operations: 50 sessions, uniform keys."""
SIZE = 20
"""Operations of a transaction."""


def make(
    folder: Path, operations: int, zipf: bool = False, sessions: int = 50, size: int = SIZE, stale: bool = False
) -> Path:
    """A history as Parquet, in commit order."""
    import numba
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    @numba.njit(cache=False)
    def fill(session: Any, size: int, lag: Any, key: Any, write: Any, value: Any, keys: int) -> None:
        last = np.full(keys, -1, np.int64)
        before = np.empty(key.size, np.int64)
        previous = np.full(session.max() + 1, -1, np.int64)
        for t in range(session.size):
            prefix = max(previous[session[t]] + 1, t - lag[t])
            for i in range(t * size, (t + 1) * size):
                x = key[i]
                if write[i]:
                    value[i] = i + 1
                    before[i] = last[x]
                    last[x] = i
                    continue
                at = last[x]
                while at >= 0 and at // size != t and at // size >= prefix:
                    at = before[at]
                if at >= 0 and at // size != t:  # the last write of its transaction
                    value[i] = at + 1
                else:
                    value[i] = at + 1 if at >= 0 else 0
            previous[session[t]] = t

    rng = np.random.default_rng(7)
    txns = operations // size
    keys = max(10, operations // 10)
    session = rng.integers(0, sessions, txns).astype(np.int32)
    lag = rng.exponential(50, txns).astype(np.int64)
    if zipf:
        weights = np.cumsum(1 / np.arange(1, keys + 1) ** 0.99)
        key = np.searchsorted(weights, rng.random(txns * size) * weights[-1]).astype(np.int64)
    else:
        key = rng.integers(0, keys, txns * size)
    write = rng.random(txns * size) < 0.5
    value = np.zeros(txns * size, np.int64)
    fill(session, size, lag, key, write, value, keys)
    if stale:  # one read in the last tenth returns the initial value
        late = np.flatnonzero(~write & (value > 0) & (value < len(value) // 2))
        value[late[-1]] = 0
    t = np.repeat(np.arange(txns), size)
    table = pa.table(
        {
            "session": session[t],
            "txn": t,
            "op": np.tile(np.arange(size, dtype=np.int32), txns),
            "kind": pa.array(np.where(write, "w", "r")).dictionary_encode(),
            "key": key,
            "value": pa.array(value, mask=value == 0),
            "seq": t,
        }
    )
    path = folder / f"{operations}-{zipf}-{sessions}-{size}-{stale}.parquet"
    pq.write_table(table, path)
    return path


def one_process(path: Path, blind: bool = False, clock_bytes: int | None = None) -> Row:
    """From Parquet to verdicts, warm: the second of two runs."""
    import pyarrow.parquet as pq

    from whence.audit.history import check
    from whence.audit.history.graph import CLOCK_BYTES
    from whence.audit.history.tables import from_table

    for _ in range(2):
        started, worked = time.perf_counter(), time.process_time()
        columns = from_table(pq.read_table(path), str(path))
        columns.recorded = None if blind else columns.recorded
        read = time.perf_counter() - started
        report = check(columns, clock_bytes=clock_bytes or CLOCK_BYTES)
        took = time.perf_counter() - started
    cpu = time.process_time() - worked
    return {
        **told(report, took),
        "cpu_s": cpu,
        "parquet_s": read,
        "check_s": report.seconds,
        **limit(path),
    }


def limit(path: Path) -> Row:
    """What reading the file and copying each column once takes."""
    import numpy as np
    import pyarrow.parquet as pq

    started, worked = time.perf_counter(), time.process_time()
    table = pq.read_table(path)
    for name in table.column_names:
        column = table[name].combine_chunks()
        np.array(column.flatten() if name == "value" and "list" in str(column.type) else column, copy=True)
    return {"limit_s": time.perf_counter() - started, "limit_cpu_s": time.process_time() - worked}


def make_lists(folder: Path, operations: int) -> Path:
    """List-append as Jepsen has it: four operations a transaction, keys of up to 32 appends, one after the other."""
    import random

    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = random.Random(7)
    lists: dict[int, list[int]] = {}
    active = list(range(10))
    names = ("session", "txn", "op", "kind", "key", "value", "seq")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for t in range(operations // 4):
        session = rng.randrange(50)
        for op in range(4):
            n = rng.randrange(10)
            key = active[n]
            kind = "ra"[rng.random() < 0.5]
            value = list(lists.get(key, ())) if kind == "r" else [4 * t + op]
            if kind == "a":
                lists.setdefault(key, []).extend(value)
                if len(lists[key]) == 32:
                    del lists[key]
                    active[n] = max(active) + 1
            for name, each in zip(names, (session, t, op, kind, key, value, t), strict=True):
                columns[name].append(each)
    path = folder / f"{operations}-lists.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def recorded_files() -> Row:
    """Histories of real databases: with the recorded order as the first guess, and blind."""
    from whence.audit.history import check, discover, read

    if "WHENCE_DATA" not in os.environ:
        return {"note": "WHENCE_DATA is not set"}
    folders = [Path(os.environ["WHENCE_DATA"]) / "histories" / name for name in ("clean", "dbcop", "registers", "bugs")]
    found = [read(path) for path in discover(folders)]
    levels: Any = ["RC", "RA", "TCC"]
    figures: Row = {"histories": len(found), "operations": sum(each.key.size for each in found)}
    for name in ("arrays", "arrays_blind"):
        worked = time.process_time()
        for each in found:
            if name == "arrays_blind":
                each.recorded = None
            check(each, levels)
        figures[f"{name}_cpu_s"] = time.process_time() - worked
    return figures


def told(report: Any, took: float) -> Row:
    found = report.counterexample()
    return {
        "levels": " ".join(level for level, good in report.levels.items() if good) or "none",
        "seconds": took,
        "operations_per_s": report.operations / took,
        "cycle_edges": len(found.edges) if found else None,
        "note": "; ".join(report.notes)[:80],
    }


def from_text(path: Path) -> Row:
    from whence.audit.history import check, read

    for _ in range(2):
        started = time.perf_counter()
        columns = read(path)
        parsed = time.perf_counter() - started
        report = check(columns)
        took = time.perf_counter() - started
    return {**told(report, took), "parse_s": parsed}


def on_spark(path: Path) -> Row:
    """Warm, local[2], in one task."""
    from whence.audit.spark import histories
    from whence.audit.spark.session import session

    df = session(master="local[2]", memory="4g").read.parquet(str(path))
    for _ in range(2):
        started = time.perf_counter()
        good = {row["level"]: row["holds"] for row in histories.check(df, ["RC", "RA", "TCC"]).verdicts.collect()}
        took = time.perf_counter() - started
    return {"spark_s": took, "spark_holds": all(good.values())}


def case(name: str, operations: int, folder: Path) -> Row:
    if name == "files":
        return recorded_files()
    if name == "lists":
        return one_process(make_lists(folder, operations))
    if name == "registers":
        return one_process(make(folder, operations, size=1))
    if name == "blocks":
        path = make(folder, operations, sessions=1000)
        return one_process(path, clock_bytes=4 * (operations // SIZE) * 128)
    if name == "text":
        import pyarrow.parquet as pq

        table = pq.read_table(make(folder, operations))
        out = folder / "history.txt"
        columns = [table[n].to_pylist() for n in ("kind", "key", "value", "session", "txn")]
        with out.open("w") as file:
            file.writelines(f"{k}({x},{v or 0},{s},{t})\n" for k, x, v, s, t in zip(*columns, strict=True))
        return from_text(out)
    path = make(folder, operations, zipf=name == "zipf", stale=name == "stale")
    return on_spark(path) if name == "spark" else one_process(path, blind=name == "blind")


def main() -> list[Row]:
    sizes = [int(n) for n in os.environ.get("WHENCE_BENCH_OPERATIONS", "1000000 10000000").split()]
    parts = os.environ.get("WHENCE_BENCH_PARTS", " ".join(PARTS)).split()
    rows: list[Row] = []
    for operations in sizes:
        for name in parts:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "bench.histories", name, str(operations), folder]
                env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
                done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
            row = {"what": f"{name}, {operations:,} operations", **json.loads(done.stdout.splitlines()[-1])}
            if name in ("recorded", "blind", "text") and operations in AWDIT:
                row["awdit_elsewhere_s"] = AWDIT[operations]
            rows.append(row)
    return rows


if __name__ == "__main__":
    figures = case(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(json.dumps({**figures, "peak_GiB": peak}))
