"""The causal audit with Spark, design by design, next to DuckDB with the same kernel in the same run.

Rows per second (best of several, in a warm session), the ratio to the peer, CPU time and peak memory of all processes
together, the cost of a row as the trace grows; precision and recall at 10^7 rows; the command as it is typed, from
Enter to the prompt; a batch of the stream. `make bench BENCH=pipeline` takes 10^6 and 2 x 10^7 rows, and 10^4, 10^5 and
10^6 for the command (WHENCE_BENCH_COMMAND). In the environment, WHENCE_BENCH_ROWS="1000000 10000000 100000000" makes
the former 10^6, 10^7 and 10^8 (300 MB of trace), and WHENCE_BENCH_PARTS chooses some of "run mixed giant everybody
spread command stream rows members many check" (by default all but `spread`). `giant` and `everybody` are one run in
which 25 and all of 200 members publish, `members` one in which all of up to 10,000 do. `many`: memory of the driver, by
the number of runs (WHENCE_BENCH_RUNS).

Each figure is measured in a process of its own: `python -m bench.pipeline CASE FOLDER`. CPU time is there because a
busy machine halves every rate, ours and the peer's: judge by ratios.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402
from tests.audit.spark import traces as spark_traces  # noqa: E402  # the generator of the tests

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
    """Bytes of these processes, without files, from the cheap statm. smaps would also account for pages shared by
    forked workers, but takes a third of a core."""
    return sum(map(memory_of, children(pid)))


def memory_of(pid: int) -> int:
    """Bytes of this process."""
    with suppress(OSError, ValueError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


def cpu() -> float:
    """CPU seconds of this process and its children."""
    ticks = 0
    for each in children(os.getpid()):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def of_worker(pid: int) -> int:
    """Bytes of the largest Python worker that Spark has started below this process."""
    workers = (each for each in children(pid) if each != pid and "python" in _name(each))
    return max((memory_of(each) for each in workers), default=0)


class Peak(NamedTuple):
    """Memory at its peak, in GB."""

    all: float
    """Of all processes together."""
    worker: float
    """Of the largest Python worker."""


def measured(*arguments: str) -> tuple[Row, Peak]:
    """The output of the case, and its peak memory."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "bench.pipeline", *arguments]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    peak = worker = 0

    def sample() -> None:
        nonlocal peak, worker
        while process.poll() is None:
            peak, worker = max(peak, memory(process.pid)), max(worker, of_worker(process.pid))
            time.sleep(0.1)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    said, _ = process.communicate()
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"bench.pipeline {' '.join(arguments)} ended with {process.returncode}")
    return json.loads(said.splitlines()[-1]), Peak(peak / 1e9, worker / 1e9)


# -- traces


def write_trace(folder: Path, rows: int, layout: str) -> int:
    """20 runs x 25 origins x 200 members (`giant`: one run; `everybody`: one run x 200 origins, without wrongs; `tiny`:
    2 x 5 x 40), with wrongs; gives the number of rows. Made a part at a time, so that the size of the trace is not the
    size of memory."""
    if layout in ("giant", "everybody"):
        many = {"origins": 200, "wrongs": 0} if layout == "everybody" else {}
        parts = max(1, rows // 5_000_000)
        return spark_traces.write_file(spark_traces.make_long(rows, parts, **many), folder / "giant.parquet")
    runs = 2 if layout == "tiny" else 20
    small = {"origins": 5, "members": 40} if layout == "tiny" else {}
    wrongs = 4 if layout == "tiny" else 20
    parts = max(1, min(runs, rows // 10_000_000))
    written = 0
    for part in range(parts):
        tables, _ = spark_traces.make(rows // parts, runs=runs // parts, wrongs=wrongs // parts, seed=part + 1, **small)
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
PEER_RUN = 20_000_000
"""Rows of a run that the peer can take: it has a run in memory as a whole."""
LONG = 30.0
"""Seconds after which nothing is begun once more."""


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[Row, Any]:
    """Seconds and CPU seconds of the fastest of several runs, and its result. Long cases are repeated less often."""
    best: Row = {"seconds": float("inf")}
    result = None
    first = time.perf_counter()
    for turn in range(repeats):
        if turn and time.perf_counter() - first > LONG:
            break
        begun, used = time.perf_counter(), cpu()
        result = work()
        seconds = time.perf_counter() - begun
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "cpu": cpu() - used}
    return best, result


def embedded() -> Any:
    from whence.audit.spark.session import session

    return session("local[2]", os.environ.get("WHENCE_BENCH_MEMORY", "2g"))


def audit_case(design: str, folder: Path) -> Row:
    """Our audit, with this design."""
    from whence.audit import audit_files

    spark = embedded()
    with tempfile.TemporaryDirectory() as out:
        giant = 0 if design == "giant" else None
        best, summary = timed(lambda: audit_files([folder], out, spark=spark, giant=giant))
    return {**best, "rows": summary.rows, "violations": summary.violations}


def duckdb_case(case: str, folder: Path) -> Row:
    """The peer: DuckDB reads, the same kernel judges, the same tables are written; two threads, no Spark."""
    from concurrent.futures import ThreadPoolExecutor

    import duckdb

    from whence.audit.judge.batch.coding import READ
    from whence.audit.spark.findings import Summary, Terms, judge_runs
    from whence.audit.spark.tables import Parts

    base = duckdb.connect(config={"threads": 2})
    where = "SELECT DISTINCT run, cluster, filename FROM read_parquet(?, filename=true)"
    runs: dict[tuple[str, str], list[str]] = {}
    for run, cluster, file in sorted(base.execute(where, [str(folder / "*.parquet")]).fetchall()):
        runs.setdefault((run, cluster), []).append(file)
    columns = ", ".join(f'"{name}"' for name in READ)
    query = f"SELECT {columns}, filename AS file, file_row_number AS position "
    query += "FROM read_parquet(?, filename=true, file_row_number=true) WHERE run = ? AND cluster = ?"

    def one(out: str, number: int, run: str, cluster: str, mine: list[str]) -> Summary:
        found = base.cursor().sql(query, params=[mine, run, cluster]).to_arrow_table()
        judged = judge_runs(found, Terms())
        with Parts(out, f"run-{number:05d}") as parts:
            for name, table in judged.tables.items():
                parts.write(name, table)
        return judged.summary

    def work() -> Summary:
        total = Summary()
        with tempfile.TemporaryDirectory() as out, ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(one, out, k, *group, mine) for k, (group, mine) in enumerate(runs.items())]
            for job in jobs:
                total.add(job.result())
        return total

    best, summary = timed(work, 1 if case == "duckdb once" else REPEATS)
    return {**best, "rows": summary.rows, "violations": summary.violations}


def check_case(_: str, folder: Path) -> Row:
    """Precision and recall on 10^7 rows with wrongs of known identity, files in any layout."""
    import pyarrow.parquet as pq

    from whence.audit import audit_files

    tables, injected = spark_traces.make(10_000_000, runs=10, wrongs=200)
    spark_traces.write(tables, folder / "trace", layout="mixed", files=16)
    del tables
    summary = audit_files([folder / "trace"], folder / "out", spark=embedded())
    rows = pq.read_table(folder / "out" / "violations").to_pylist()
    found = {(v["rule"], v["run"], v["member"], "" if v["rule"] == "two owners" else v["event"]) for v in rows}
    wanted = {
        *(("causal", *w) for w in injected.inverted),
        *(("gap", *w) for w in injected.openers),
        *(("integrity", *w) for w in injected.duplicates),
        *(("two owners", *w, "") for w in injected.owners),
        *(("reused id", *w) for w in injected.reused),
        *(("agreement", *w) for w in injected.gaps),
    }
    right = len(found & wanted)
    precision, recall = right / max(1, len(found)), right / max(1, len(wanted))
    return {"rows": summary.rows, "injected": len(wanted), "precision": precision, "recall": recall}


def warm_case(_: str, folder: Path) -> Row:
    """A tiny trace in a session that has run one before."""
    from whence.audit import audit_files

    spark = embedded()
    with tempfile.TemporaryDirectory() as out:
        best, summary = timed(lambda: audit_files([folder], out, spark=spark))
    return {**best, "rows": summary.rows}


def stream_case(_: str, folder: Path) -> Row:
    """A trace that comes in pieces of 5,000 rows: from the piece's appearance to what was found in it."""
    import pyarrow.parquet as pq

    from whence.audit.spark.growing import FollowedBatch, follow

    table = pq.read_table(folder)
    trace, out = folder / "growing", folder / "watch"
    trace.mkdir()
    seen = threading.Condition()
    rows, batches = 0, 0

    def told(batch: FollowedBatch) -> None:
        nonlocal rows, batches
        with seen:
            rows, batches = batch.sums.rows, batches + 1
            seen.notify()

    delays = []
    stop = threading.Event()
    watcher = threading.Thread(target=follow, args=(trace, out, told), kwargs={"stop": stop})
    watcher.start()
    for piece in range(20):
        pq.write_table(table.slice(piece * 5_000, 5_000), trace / f".{piece}")
        begun = time.perf_counter()
        (trace / f".{piece}").rename(trace / f"{piece:02}.parquet")
        with seen:
            if not seen.wait_for(lambda due=(piece + 1) * 5_000: rows >= due, timeout=120):
                raise RuntimeError(f"no verdicts on piece {piece}")
        delays.append(time.perf_counter() - begun)
    stop.set()
    watcher.join()
    later = sorted(delays[1:])
    return {"first": delays[0], "median": later[len(later) // 2], "max": later[-1], "batches": batches}


def keyed_case(case: str, folder: Path) -> Row:
    """`audit_stream` in a warm session: 20 runs, four files a batch, verdicts written as Parquet, from the start of the
    query to its end."""
    import pyarrow.parquet as pq

    from whence.audit import audit_stream
    from whence.audit.spark.tables import spark_schema

    spark = embedded()
    rows = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))

    def work() -> None:
        files = spark.readStream.schema(spark_schema("events")).option("maxFilesPerTrigger", 4)
        steps = files.parquet(str(folder))
        with tempfile.TemporaryDirectory() as out:
            found = audit_stream(steps, exceptions=case != "keyed")
            sink = found.writeStream.format("parquet").option("checkpointLocation", f"{out}/saved")
            query = sink.trigger(availableNow=True).start(f"{out}/found")
            query.awaitTermination()

    work()  # what is compiled is not of the stream
    best, _ = timed(work)
    return {**best, "rows": rows, "rows/s": rows / best["seconds"], "cpu us/row": best["cpu"] / rows * 1e6}


def rows_case(_: str, folder: Path) -> Row:
    """Processor time of a row, in us, without Spark: the judge of the stream, and reading the same rows as Parquet and
    as JSON lines."""
    import pyarrow.parquet as pq

    from whence.audit.judge.batch.audited import audited
    from whence.audit.judge.batch.coding import READ, code
    from whence.audit.spark import ingest
    from whence.audit.spark.keyed import SavedRun, judged

    files = sorted(folder.glob("*.parquet"))
    to_lines(folder, folder / "lines")
    table = pq.read_table(files[0])

    def grown() -> int:
        state = SavedRun()
        for at in range(0, table.num_rows, 50_000):
            state = judged(state, ("r", "main"), table.slice(at, 50_000))[0].saved
        return int(table.num_rows)

    def read(place: Path) -> int:
        pieces, _ = ingest.plan(ingest.find([place]))
        return sum(ingest.read_piece(piece, READ)[0].num_rows for piece in pieces)

    def cost(work: Callable[[], int]) -> float:
        work()
        begun = time.process_time()
        rows = work()
        return (time.process_time() - begun) / rows * 1e6

    runs = pa.concat_tables(spark_traces.make(60_000, runs=1000, origins=2, members=5, wrongs=0)[0])

    def judged_together() -> int:
        audited(code(runs, complete=True))
        return 1000

    return {
        "judge of the stream": cost(grown),
        "arrays, a run of 60 rows": cost(judged_together),
        "Parquet": cost(lambda: sum(read(file) for file in files)),
        "JSON lines": cost(lambda: read(folder / "lines")),
    }


def members_case(_: str, number: Path) -> Row:
    """So many members, each of which delivers the last 22 events and publishes one: CPU seconds of judging them in this
    process, and how much more memory it has then."""
    import resource

    from whence.audit.judge.batch.audited import audited, warm
    from whence.audit.judge.batch.coding import READ, code

    warm()
    names = [f"m{k:06}#1" for k in range(int(number.name))]
    steps = [(k, e) for k in range(len(names)) for e in range(max(0, k - 22), k + 1)]
    columns: dict[str, list[Any]] = {
        **dict.fromkeys(READ, [None] * len(steps)),
        "run": [""] * len(steps),
        "cluster": [""] * len(steps),
        "lseq": [e - max(0, k - 22) for k, e in steps],
        "t_ns": list(range(len(steps))),
        "member": [names[k] for k, _ in steps],
        "event": [f"{names[e]}/1" for _, e in steps],
        "kind": ["publish" if e == k else "deliver" for k, e in steps],
    }
    table = pa.table(
        {name: pa.array(v, None if name in ("lseq", "t_ns") else pa.string()) for name, v in columns.items()}
    )
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    audited(code(table, complete=True))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": len(steps), "cpu": time.process_time() - begun, "more GB": (after - before) / 1e6}


def runs_case(_: str, folder: Path) -> Row:
    """Peak memory of the driver's Python process and of the JVM (2 GB of heap), which embedded has the executors in it,
    too."""
    import resource

    from whence.audit import audit_files

    with tempfile.TemporaryDirectory() as out:
        begun = time.perf_counter()
        summary = audit_files([folder], out, spark=embedded())
        seconds = time.perf_counter() - begun
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    high = [_high(child) for child in children(os.getpid()) if "java" in _name(child)]
    return {"rows": summary.rows, "runs": summary.runs, "seconds": seconds, "driver GB": driver, "JVM GB": max(high)}


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text()
    return ""


def _high(pid: int) -> float:
    """The most memory that a process has had, in GB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e6


def write_runs(folder: Path, runs: int) -> int:
    """So many runs of 60 rows, 1,000 in a file; gives the number of rows."""
    import numpy as np
    import pyarrow.parquet as pq

    (one,), _ = spark_traces.make(50, runs=1, origins=2, members=5, wrongs=0)
    for first in range(0, runs, 1000):
        names = pa.array([f"run-{first + k:07}" for k in range(1000)])
        codes = np.repeat(np.arange(1000, dtype=np.int32), one.num_rows)
        many = pa.concat_tables([one] * 1000).combine_chunks()
        run = pa.DictionaryArray.from_arrays(pa.array(codes), names)
        pq.write_table(many.set_column(many.schema.get_field_index("run"), "run", run), folder / f"{first:07}.parquet")
    return runs * one.num_rows


CASES: dict[str, Callable[[str, Path], Row]] = {
    "runs": audit_case,
    "shuffle": audit_case,
    "giant": audit_case,
    "duckdb": duckdb_case,
    "duckdb once": duckdb_case,
    "check": check_case,
    "warm": warm_case,
    "stream": stream_case,
    "keyed": keyed_case,
    "keyed exceptions": keyed_case,
    "many": runs_case,
    "rows": rows_case,
    "members": members_case,
}


# -- the table


PARTS = (
    ("run", "run", "runs"),
    ("mixed", "mixed", "shuffle"),
    ("giant", "giant", "giant"),
    ("everybody", "everybody", "giant"),
    ("spread", "run", "giant"),  # every run over all workers: slower, and in less memory
)
"""Name, layout of the trace, design."""


def designs(place: Path, rows: int, parts: list[str]) -> Iterator[Row]:
    """Each layout of a trace of so many rows, by the design that is meant for it, with the peer beside it."""
    for part, layout, design in PARTS:
        if part not in parts:
            continue
        folder = place / f"{part}-{rows}"
        folder.mkdir()
        written = write_trace(folder, rows, layout)
        ours, our_memory = measured(design, str(folder))
        measures = [(f"Spark, {design}", ours, our_memory)]
        peer: Row = {}
        if design != "giant" or rows <= PEER_RUN:
            peer, peer_memory = measured("duckdb", str(folder))
            measures.append(("DuckDB + kernel", peer, peer_memory))
        if (ours["rows"], ours["violations"]) != (written, peer.get("violations", ours["violations"])):
            raise RuntimeError(f"{design} and the peer do not agree: {ours} {peer}")
        for name, found, peak in measures:
            yield {
                "what": f"{name}: {layout} layout, {written:,} rows",
                "rows/s": written / found["seconds"],
                "seconds": found["seconds"],
                "cpu us/row": found["cpu"] / written * 1e6,
                "peak GB": peak.all,
                **({"worker GB": peak.worker} if found is ours else {}),
                **({"ratio to peer": peer["seconds"] / found["seconds"]} if found is ours and peer else {}),
            }
        shutil.rmtree(folder)


def typed(*arguments: str) -> Row:
    """Seconds from Enter to the prompt, and CPU seconds of the process."""
    command = [sys.executable, "-m", *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    after = os.times()
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - begun, "cpu": used}


def commands(place: Path, sizes: list[int]) -> Iterator[Row]:
    """The command a person types, from Enter to the prompt, page and all; beside it a process with DuckDB and the same
    kernel, which writes every verdict and draws no page. The first command of a size finds the kernels compiled."""
    for rows in sizes:
        folder = place / f"command-{rows}"
        folder.mkdir()
        written = write_trace(folder, rows, "tiny" if rows <= 10_000 else "run")
        lines = place / f"lines-{rows}"
        to_lines(folder, lines)
        ways = {
            "whence audit": ("whence", "audit", str(folder)),
            "whence audit --verdicts all": ("whence", "audit", str(folder), "--verdicts", "all"),
            "whence audit --engine local": ("whence", "audit", str(folder), "--engine", "local"),
            "whence audit --engine local, JSON lines": ("whence", "audit", str(lines), "--engine", "local"),
        }
        typed("whence", "audit", str(folder), "--engine", "local", "--out", str(place / "warm"))
        for n, (name, arguments) in enumerate(ways.items()):
            took = typed(*arguments, "--out", str(place / f"out-{rows}-{n}"))
            if "local" not in name:
                del took["cpu"]  # the JVM's is not in it: nobody waits for the JVM
            yield {"what": f"{name}, {written:,} rows", **took}
        yield {"what": f"DuckDB + kernel, {written:,} rows", **typed("bench.pipeline", "duckdb once", str(folder))}
        if rows <= 10_000:
            warm, _ = measured("warm", str(folder))
            yield {"what": f"audit_files(), {written:,} rows, warm session", **warm, "goal": "<= 1 s"}
        shutil.rmtree(folder)
        shutil.rmtree(lines)


def streams(place: Path, rows: int) -> Iterator[Row]:
    """Rows per second of both streams on 20 runs, and of `whence audit --follow --once` from Enter to the prompt."""
    folder = place / f"streams-{rows}"
    folder.mkdir()
    written = write_trace(folder, rows, "run")
    names = {
        "keyed": "audit_stream",
        "keyed exceptions": "audit_stream(exceptions=True)",
    }
    for case, name in names.items():
        keyed, _ = measured(case, str(folder))
        yield {"what": f"{name}, {written:,} rows", **keyed, "goal": ">= 1,000,000 rows/s"}
    took = typed("whence", "audit", str(folder), "--follow", "--once", "--json", "--out", str(place / "watched"))
    del took["cpu"]
    yield {"what": f"whence audit --follow --once, {written:,} rows", **took, "rows/s": written / took["seconds"]}
    shutil.rmtree(folder)


def to_lines(folder: Path, to: Path) -> None:
    """The same trace as JSON lines."""
    from whence.audit.trace import open_trace, read

    for file in sorted(folder.glob("*.parquet")):
        with open_trace(to / f"{file.stem}.jsonl") as trace:
            trace.append_many(read(file))


def figures() -> Iterator[Row]:
    sizes = [int(rows) for rows in os.environ.get("WHENCE_BENCH_ROWS", "1000000 20000000").split()]
    parts = os.environ.get(
        "WHENCE_BENCH_PARTS", "run mixed giant everybody command stream rows members many check"
    ).split()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for size in sizes:
            yield from designs(place, size, parts)
        if "command" in parts:
            typed_rows = os.environ.get("WHENCE_BENCH_COMMAND", "10000 100000 1000000")
            yield from commands(place, [int(rows) for rows in typed_rows.split()])
        if "stream" in parts:
            folder = place / "stream"
            folder.mkdir()
            write_trace(folder, 110_000, "giant")
            stream, _ = measured("stream", str(folder))
            yield {"what": "stream, 5,000 rows a batch, rows to verdicts", **stream, "goal": "<= 0.5 s after the first"}
            yield from streams(place, int(os.environ.get("WHENCE_BENCH_STREAM", "2000000")))
        if "rows" in parts:
            folder = place / "rows"
            folder.mkdir()
            write_trace(folder, 300_000, "giant")
            rows, _ = measured("rows", str(folder))
            yield {"what": "processor time of a row, us", **rows}
        for members in (1_000, 5_000, 10_000) if "members" in parts else ():
            found, _ = measured("members", str(members))
            yield {"what": f"{members:,} members, everybody publishes", **found, "goal": "seconds, and below 1 GB"}
        if "many" in parts:
            for runs in map(int, os.environ.get("WHENCE_BENCH_RUNS", "1000 10000 100000").split()):
                folder = place / f"many-{runs}"
                folder.mkdir()
                write_runs(folder, runs)
                many, _ = measured("many", str(folder))
                yield {"what": f"audit_files(), {runs:,} runs", **many}
                shutil.rmtree(folder)
        if "check" in parts:
            (place / "check").mkdir()
            check, peak = measured("check", str(place / "check"))
            yield {"what": "precision and recall, any layout", **check, "peak GB": peak.all}


def main() -> list[Row]:
    rows = []
    for row in figures():
        print(f"  {row}", file=sys.stderr, flush=True)  # it takes minutes
        rows.append(row)
    return rows


if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](sys.argv[1], Path(sys.argv[2]))))
