"""The audit as a stream: verdicts on the growing trace of a live cluster, the same that the batch gives at its end.

`growing` is the source, `whence.audit.judge.follow` the judge; this ties them to Structured Streaming so that nothing
is lost or counted twice, whatever is killed when. In the directory `out`:

    checkpoint/             Spark's: which rows belong to which batch
    verdicts/00000012.parquet, violations/, quarantine/     what batch 12 found
    state/00000012.changes  what batch 12 changed in the state of the audit; now and then .whole, all of it
    _watch.json             the last batch whose files are all there; replaced in one step, after them

A batch that is run again after a kill begins from the state before it and writes the same files. Whoever reads goes by
`_watch.json` (`read_stream` does).
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from whence.audit.judge import Follower
from whence.audit.judge.batch.tables import told, violations_table
from whence.audit.judge.findings import Finding
from whence.audit.judge.follow import StateChanges
from whence.audit.spark import ingest
from whence.audit.spark.blocks import by_run
from whence.audit.spark.growing import BATCH_BYTES, growing_files, is_parquet, read
from whence.audit.spark.keyed import fed
from whence.audit.spark.place import found as files_at
from whence.audit.spark.sources import register
from whence.audit.spark.tables import MANIFEST, arrow_schema, disk_errors, require, spark_schema
from whence.errors import TraceError, UsageError, WhenceError

MARK: Final = "_watch.json"
TABLES: Final = ("verdicts", "violations", "quarantine")
SETTLED: Final = "settled"
"""In the place of a batch's number: what waited when the trace was said to be complete."""

EVERY: Final = "500 milliseconds"
"""How often the trace is looked at."""

TRIES: Final = 5
"""How often a stream is started that fails because a Python process was too slow to start."""

_FEW: Final = 1 << 20  # bytes of changes that are not worth a whole state
_States = list[tuple[str, str, StateChanges]]
_Followers = dict[tuple[str, str], Follower]


class Sums(msgspec.Struct):
    """What was read and found so far."""

    rows: int = 0
    bad: int = 0
    verdicts: dict[str, int] = {}
    violations: dict[str, int] = {}
    """By rule."""
    newest_ns: int = 0
    """The latest time of a row: for the lag of a live cluster."""
    doubts: int = 0
    """Deliveries that cannot be judged: the traces of their publishers are not all here."""


class WatchMark(msgspec.Struct):
    """What is finished."""

    batch: int = -1
    base: int = -1
    """The batch with which the whole state was written; changes follow from there."""
    base_bytes: int = 0
    change_bytes: int = 0
    sums: Sums = msgspec.field(default_factory=Sums)
    settled: Sums | None = None
    """The sums when the trace was said to be complete after this batch."""


class WatchedBatch(msgspec.Struct, frozen=True):
    """What one batch has found; for whoever watches."""

    number: int
    sums: Sums
    violations: list[dict[str, Any]]
    waiting: dict[str, tuple[int, str]]
    """Members with steps that wait: how many, and what for."""
    seconds: float
    """What the audit of the batch took."""
    again: bool = False
    """It was finished before, by a watcher that was killed: its violations may have been told already."""


class StreamAudit:
    """The sink: judges each batch and writes down what it found together with the state it leaves."""

    def __init__(self, out: Path, on_batch: Callable[[WatchedBatch], None] = lambda batch: None) -> None:
        self.out = out
        self.on_batch = on_batch
        self.error: WhenceError | None = None
        """Why the stream has failed, if this sink is why."""
        with disk_errors(out):
            for name in (*TABLES, "state"):
                (out / name).mkdir(parents=True, exist_ok=True)
            self._lock = _locked(out / ".lock")
            if not (out / MANIFEST).exists():  # so that nobody takes these tables for traces
                _replace(out / MANIFEST, b'{"tables": {}}')
        self.mark = read_mark(out)
        self.followers: _Followers = {}
        for file in _state_files(out, self.mark):
            _apply(self.followers, file)

    def close(self) -> None:
        """Let another one watch."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """For `foreachBatch`."""
        try:
            self._batch(rows, batch)
        except WhenceError as error:
            self.error = error
            raise

    def _batch(self, rows: DataFrame, batch: int) -> None:
        if batch <= self.mark.batch:
            found = _read(self.out / "violations" / f"{batch:08d}.parquet")
            self.on_batch(WatchedBatch(batch, self.mark.sums, found, self.waiting, 0.0, again=True))
            return
        if batch != self.mark.batch + 1:
            raise TraceError(
                f"{self.out}: Spark's checkpoint is at batch {batch}, the verdicts are at {self.mark.batch}: they do "
                "not belong together; delete this directory and watch again"
            )
        table = rows.toArrow()
        begun = time.perf_counter()
        tables, sums = _judge(table, self.followers, self.mark.sums)
        with disk_errors(self.out):
            for name, part in tables.items():
                _write(self.out / name / f"{batch:08d}.parquet", part)
            mark = self._save(batch, sums)
            _replace(self.out / MARK, msgspec.json.encode(mark))
            self._forget(mark)
        self.mark = mark
        found = tables["violations"].to_pylist() if "violations" in tables else []
        self.on_batch(WatchedBatch(batch, sums, found, self.waiting, time.perf_counter() - begun))

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        """Members with steps that wait: how many, and what for."""
        return {member: what for follower in self.followers.values() for member, what in follower.waiting.items()}

    def settle(self, trace: Path) -> WatchedBatch:
        """The trace is complete as it is: judge also what waits, lines that have no end, and files that are no trace.
        Should more come after all, the stream goes on from where it was."""
        begun = time.perf_counter()
        ends: _Followers = {}
        for (run, cluster), follower in self.followers.items():
            ends[run, cluster] = follower.copy()
        tails = pa.concat_tables([ingest.RAW.empty_table(), *_tails(trace, _consumed(self.out, self.mark.batch))])
        tables, sums = _judge(tails, ends, self.mark.sums, settle=True)
        mark = msgspec.structs.replace(self.mark, settled=sums)
        with disk_errors(self.out):
            _replace(self.out / MARK, msgspec.json.encode(msgspec.structs.replace(mark, settled=None)))
            for name in TABLES:
                (self.out / name / f"{SETTLED}.parquet").unlink(missing_ok=True)
            for name, part in tables.items():
                _write(self.out / name / f"{SETTLED}.parquet", part)
            _replace(self.out / MARK, msgspec.json.encode(mark))
        self.mark = mark
        found = tables["violations"].to_pylist() if "violations" in tables else []
        return WatchedBatch(mark.batch, sums, found, {}, time.perf_counter() - begun)

    def _save(self, batch: int, sums: Sums) -> WatchMark:
        """The changes of this batch; the whole state when the changes since the last one have outgrown it."""
        old = self.mark
        states = [(*key, follower.changes()) for key, follower in self.followers.items()]
        data = msgspec.msgpack.encode([state for state in states if state[2].any()])
        change_bytes = old.change_bytes + len(data)
        if change_bytes <= max(_FEW, 2 * old.base_bytes):
            _replace(self.out / "state" / f"{batch:08d}.changes", data)
            return WatchMark(batch, old.base, old.base_bytes, change_bytes, sums)
        data = msgspec.msgpack.encode([(*key, follower.whole()) for key, follower in self.followers.items()])
        _replace(self.out / "state" / f"{batch:08d}.whole", data)
        return WatchMark(batch, batch, len(data), 0, sums)

    def _forget(self, mark: WatchMark) -> None:
        """Files of the state that a whole one has replaced, and what was settled before more came."""
        if mark.base == mark.batch:
            for file in (self.out / "state").glob("[0-9]*"):  # a killed watcher may have left others
                if int(file.stem) < mark.base:
                    file.unlink(missing_ok=True)
        if self.mark.settled is not None:
            for name in TABLES:
                (self.out / name / f"{SETTLED}.parquet").unlink(missing_ok=True)


def start(
    spark: SparkSession,
    trace: str | os.PathLike[str],
    audit: StreamAudit,
    *,
    once: bool = False,
    every: str = EVERY,
    max_bytes: int = BATCH_BYTES,
) -> StreamingQuery:
    """Watch a directory of traces. `once`: what is there now, then stop (then `audit.settle`). `max_bytes`: of trace in
    a batch, which memory and the time of a batch grow with."""
    place = Path(trace)
    if not place.is_dir():
        raise TraceError(f"{place}: no such directory; name the one that the members write their traces into")
    if max_bytes < 1:
        raise UsageError(f"a batch has at least one byte, not {max_bytes}")
    register(spark)
    rows = spark.readStream.format("whence").option("max_bytes", max_bytes).load(str(place.absolute()))
    sink = rows.writeStream.foreachBatch(audit).option("checkpointLocation", str((audit.out / "checkpoint").absolute()))
    return (sink.trigger(availableNow=True) if once else sink.trigger(processingTime=every)).start()


def watch(
    spark: SparkSession,
    trace: str | os.PathLike[str],
    audit: StreamAudit,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    max_bytes: int = BATCH_BYTES,
) -> None:
    """`start`, and wait until it has read all there is (`once`) or until `stop` is set. Raises what it fails with, as a
    named error. Spark gives a Python process ten seconds to start, which is little where much else is going on: such a
    failure is tried again, and what was finished stays so."""
    stopped = stop or threading.Event()
    for left in reversed(range(TRIES)):
        query = start(spark, trace, audit, once=once, max_bytes=max_bytes)
        while query.isActive and not stopped.wait(0.1):
            pass
        query.stop()
        error = failure(query, audit)
        if error is None:
            return
        if not left or "failed to connect back" not in str(error):
            raise error


def failure(query: StreamingQuery, audit: StreamAudit) -> WhenceError | None:
    """Why the stream has ended, in one line; None: it has not failed."""
    if audit.error is not None:
        return audit.error
    error = query.exception()
    if error is None:
        return None
    text = str(error)
    ours = next((line.partition("TraceError: ")[2] for line in text.splitlines() if "TraceError: " in line), "")
    first = (text.partition("terminated with exception: ")[2] or text).strip().splitlines()[0]
    return TraceError(ours or f"the stream has failed: {first[:400]}")


def read_stream(spark: SparkSession, out: str | os.PathLike[str], table: str) -> DataFrame:
    """What a watcher has found so far: `verdicts`, `violations` or `quarantine`, also while it runs."""
    place = Path(out)
    mark = read_mark(place)
    files = sorted((place / table).glob("*.parquet"))
    done = [f for f in files if (mark.settled is not None if f.stem == SETTLED else int(f.stem) <= mark.batch)]
    if not done:
        return spark.createDataFrame([], spark_schema(table))
    return require(spark.read.schema(spark_schema(table)).parquet(*map(str, done)), table)


def read_mark(out: Path) -> WatchMark:
    """What is finished here."""
    try:
        return msgspec.json.decode((out / MARK).read_bytes(), type=WatchMark)
    except FileNotFoundError:
        return WatchMark()
    except (OSError, msgspec.DecodeError) as error:
        raise TraceError(f"{out / MARK}: damaged ({error}); delete {out} and watch again") from None


# -- the audit of one batch


def _judge(
    table: pa.Table, followers: _Followers, before: Sums, settle: bool = False
) -> tuple[dict[str, pa.Table], Sums]:
    """Tables of what was found (none that would be empty), and the sums with it."""
    bad = table.filter(table["bad"].is_valid())
    good = table.filter(table["bad"].is_null())
    judged: list[pa.Table] = [arrow_schema("verdicts").empty_table()]
    broken: list[pa.Table] = [arrow_schema("violations").empty_table()]
    doubts = before.doubts

    def hear(run: str, cluster: str, verdicts: pa.Table, found: list[Finding]) -> int:
        judged.append(verdicts)
        broken.append(violations_table(((0, one) for one in found if one.doubt is None), [(run, cluster)]))
        return sum(finding.doubt is not None for finding in found)

    for run, cluster, rows in by_run(good):
        follower = followers.setdefault((run, cluster), Follower())
        doubts += hear(run, cluster, *fed(follower, rows, (run, cluster)))
    for (run, cluster), follower in followers.items() if settle else ():
        end, some = follower.settled()
        found = end.findings()
        doubts += hear(run, cluster, told(some, found, (run, cluster)), found) + sum(end.torn.values())
    verdicts, violations = pa.concat_tables(judged), pa.concat_tables(broken)
    newest: int = pc.max(good["t_ns"]).as_py() or 0
    sums = Sums(
        before.rows + good.num_rows,
        before.bad + bad.num_rows,
        _added(before.verdicts, verdicts["verdict"]),
        _added(before.violations, violations["rule"]),
        max(before.newest_ns, newest),
        doubts,
    )
    quarantine = bad.select(["file", "position", "bad", "raw"]).rename_columns(["file", "position", "reason", "raw"])
    tables = {
        "verdicts": verdicts,
        "violations": violations,
        "quarantine": quarantine.cast(arrow_schema("quarantine")),
    }
    return {name: part for name, part in tables.items() if part.num_rows}, sums


def _added(before: dict[str, int], names: pa.ChunkedArray[Any]) -> dict[str, int]:
    counts: Any = pc.value_counts(names)
    new = {str(one["values"]): int(one["counts"]) for one in counts.to_pylist()}
    return dict(sorted((Counter(before) + Counter(new)).items()))


# -- what is left of a trace that is complete


def _consumed(out: Path, batch: int) -> dict[str, int]:
    """How far the trace was read, from Spark's log of offsets: a line of version, one of settings, one a source."""
    try:
        lines = (out / "checkpoint" / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        found: dict[str, int] = json.loads(lines[2])
    except (OSError, ValueError, IndexError):
        return {}
    return found


def _tails(trace: Path, consumed: dict[str, int]) -> Iterator[pa.Table]:
    """The last lines without an end, and the files that never became a trace."""
    root = trace.absolute()
    for file in growing_files(trace):
        _, bad = ingest.plan(files_at(file))
        first = consumed.get(str(file.relative_to(root)), 0)
        if bad:
            yield ingest.raw_rows(str(file), ingest.RAW.empty_table(), bad)
        elif not is_parquet(file) and _tail(file, first):
            yield read(str(file), first, file.stat().st_size)


def _tail(file: Path, first: int) -> bool:
    """There is one line from here on, and it has no end."""
    with file.open("rb") as data:
        data.seek(first)
        line = data.readline()
        return bool(line) and not line.endswith(b"\n")


# -- on disk


def _state_files(out: Path, mark: WatchMark) -> list[Path]:
    """The last whole state and the changes since; raises TraceError when one is missing."""
    first = [out / "state" / f"{mark.base:08d}.whole"] if mark.base >= 0 else []
    files = first + [out / "state" / f"{n:08d}.changes" for n in range(mark.base + 1, mark.batch + 1)]
    missing = next((file for file in files if not file.exists()), None)
    if missing is not None:
        raise TraceError(f"{missing}: missing; delete {out} and watch again")
    return files


def _apply(followers: _Followers, file: Path) -> None:
    try:
        _take(followers, msgspec.msgpack.decode(file.read_bytes(), type=_States))
    except (OSError, msgspec.DecodeError) as error:
        raise TraceError(f"{file}: damaged ({error}); delete {file.parent.parent} and watch again") from None


def _take(followers: _Followers, states: _States) -> None:
    for run, cluster, changes in states:
        followers.setdefault((run, cluster), Follower()).apply(changes)


def _write(path: Path, table: pa.Table) -> None:
    new = path.with_name(f".{path.name}.partial")
    pq.write_table(table, new, compression="zstd")
    new.replace(path)


def _locked(path: Path) -> IO[bytes]:
    """Two watchers would write each other's state. The lock goes with the process, also when it is killed."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UsageError(f"{path.parent}: somebody is watching into this directory; choose another --out") from None
    return file


def _replace(path: Path, data: bytes) -> None:
    """The file with this content, in one step."""
    new = path.with_name(f".{path.name}.partial")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _read(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist() if path.exists() else []
