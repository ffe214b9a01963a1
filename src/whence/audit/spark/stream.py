"""The audit of traces while they grow: the verdicts of the batch, on what a live cluster has written so far.
Judged in this process, without Spark, row by row (`judge.follow`); it is here for the readers and tables of the batch.

Nothing is lost or counted twice, whatever is killed when. In the directory `out`:

    verdicts/00000012.parquet, violations/, quarantine/     what batch 12 found
    _watch.json             the last batch whose files are all there, and how far it has read each file of the trace;
                            replaced in one step, after them

A watcher that is started again reads the trace up to there once more, which gives the state of the judge, and goes on.
A batch that was not finished is judged anew. Whoever reads goes by `_watch.json` (`finished` does).
"""

from __future__ import annotations

import fcntl
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

from whence.audit.judge import Follower
from whence.audit.judge.batch.coding import Run
from whence.audit.judge.batch.tables import told, violations_table
from whence.audit.judge.findings import Finding
from whence.audit.spark import ingest
from whence.audit.spark.blocks import by_run
from whence.audit.spark.growing import BATCH_BYTES, Offset, growing_files, is_parquet, reach, read
from whence.audit.spark.keyed import fed
from whence.audit.spark.place import found as files_at
from whence.audit.spark.tables import MANIFEST, arrow_schema, disk_errors
from whence.errors import TraceError, UsageError
from whence.files import replacing, write_whole

MARK: Final = "_watch.json"
TABLES: Final = ("verdicts", "violations", "quarantine")
SETTLED: Final = "settled"
"""In the place of a batch's number: what waited when the trace was said to be complete."""

EVERY: Final = 0.5
"""Seconds after which the trace is looked at again."""

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
    sums: Sums = msgspec.field(default_factory=Sums)
    settled: Sums | None = None
    """The sums when the trace was said to be complete after this batch."""
    offset: Offset = {}
    """How far each file of the trace was read."""


class WatchedBatch(msgspec.Struct, frozen=True):
    """What one batch has found; for whoever watches."""

    number: int
    sums: Sums
    violations: list[dict[str, Any]]
    waiting: dict[str, tuple[int, str]]
    """Members with steps that wait: how many, and what for."""
    seconds: float
    """What the audit of the batch took."""


class StreamAudit:
    """Judges each batch of a directory of traces, and writes down what it found and how far it came."""

    def __init__(self, trace: Path, out: Path, on_batch: Callable[[WatchedBatch], None] = lambda batch: None) -> None:
        self.trace, self.out, self.on_batch = trace, out, on_batch
        with disk_errors(out):
            for name in TABLES:
                (out / name).mkdir(parents=True, exist_ok=True)
            self._lock = _locked(out / ".lock")
            if not (out / MANIFEST).exists():  # so that nobody takes these tables for traces
                write_whole(out / MANIFEST, b'{"tables": {}}')
        self.mark = read_mark(out)
        self.followers: _Followers = {}
        self._catch_up()

    def close(self) -> None:
        """Let another one watch."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _catch_up(self) -> None:
        """Judge what was judged before once more. What that tells is written already."""
        at: Offset = {}
        while (end := reach(self.trace, at, BATCH_BYTES, self.mark.offset)) != at:
            for _ in _fed(self.followers, _good(self._rows(at, end))):
                pass
            at = end
        if at != self.mark.offset:
            gone = next(file for file, n in self.mark.offset.items() if at.get(file) != n)
            raise TraceError(f"{self.trace / gone}: what was read of it is gone; delete {self.out} and watch again")

    def _rows(self, old: Offset, end: Offset) -> pa.Table:
        """What has come between these two offsets."""
        grown = ((file, old.get(file, 0), n) for file, n in end.items())
        return pa.concat_tables(read(str(self.trace.absolute() / file), a, b) for file, a, b in grown if b > a)

    def step(self) -> bool:
        """Judge the next rows; False: there are none. After an error another one has to go on. `on_batch` is told
        before the batch is finished: again, by the next one, if this one is killed there."""
        end = reach(self.trace, self.mark.offset, BATCH_BYTES)
        if end == self.mark.offset:
            return False
        table, batch, begun = self._rows(self.mark.offset, end), self.mark.batch + 1, time.perf_counter()
        tables, sums = _judge(table, self.followers, self.mark.sums)
        with disk_errors(self.out):
            self._write(tables, f"{batch:08d}")
            self.on_batch(WatchedBatch(batch, sums, _violations(tables), self.waiting, time.perf_counter() - begun))
            self._finish(WatchMark(batch, sums, offset=end))
            self._unsettle()
        return True

    @property
    def waiting(self) -> dict[str, tuple[int, str]]:
        """Members with steps that wait: how many, and what for."""
        return {member: what for follower in self.followers.values() for member, what in follower.waiting.items()}

    def settle(self) -> WatchedBatch:
        """The trace is complete as it is: judge also what waits, lines that have no end, and files that are no trace.
        Should more come after all, the stream goes on from where it was."""
        begun = time.perf_counter()
        ends = {key: follower.copy() for key, follower in self.followers.items()}
        tails = pa.concat_tables([ingest.RAW.empty_table(), *_tails(self.trace, self.mark.offset)])
        tables, sums = _judge(tails, ends, self.mark.sums, settle=True)
        with disk_errors(self.out):
            self._finish(msgspec.structs.replace(self.mark, settled=None))
            self._unsettle()
            self._write(tables, SETTLED)
            self._finish(msgspec.structs.replace(self.mark, settled=sums))
        return WatchedBatch(self.mark.batch, sums, _violations(tables), {}, time.perf_counter() - begun)

    def _write(self, tables: dict[str, pa.Table], file: str) -> None:
        for name, part in tables.items():
            with replacing(self.out / name / f"{file}.parquet") as new:
                pq.write_table(part, new, compression="zstd")

    def _finish(self, mark: WatchMark) -> None:
        write_whole(self.out / MARK, msgspec.json.encode(mark), sync=True)
        self.mark = mark

    def _unsettle(self) -> None:
        """Remove what `settle` has written before: it holds for the rows of that time only."""
        for name in TABLES:
            (self.out / name / f"{SETTLED}.parquet").unlink(missing_ok=True)


def watch(audit: StreamAudit, *, once: bool = False, stop: threading.Event | None = None) -> None:
    """Watch a directory of traces until `stop` is set; `once`: what is there now (then `audit.settle`)."""
    stopped = stop or threading.Event()
    if not audit.trace.is_dir():
        raise TraceError(f"{audit.trace}: no such directory; name the one that the members write their traces into")
    while not stopped.is_set():
        if not audit.step():
            if once:
                return
            stopped.wait(EVERY)


def finished(out: str | os.PathLike[str], table: str) -> list[Path]:
    """The files of what a watcher has found so far, also while it runs."""
    mark = read_mark(Path(out))
    files = sorted((Path(out) / table).glob("*.parquet"))
    return [f for f in files if (mark.settled is not None if f.stem == SETTLED else int(f.stem) <= mark.batch)]


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
    good, bad = _good(table), table.filter(table["bad"].is_valid())
    doubts, heard = before.doubts, list(_fed(followers, good))
    for run, follower in followers.items() if settle else ():
        judged, found = follower.settle(), follower.findings()
        heard.append((run, told(judged, found, run), found))
        doubts += sum(follower.torn.values())
    verdicts = pa.concat_tables([arrow_schema("verdicts").empty_table(), *(table for _, table, _ in heard)])
    broken = [violations_table(((0, one) for one in found if one.doubt is None), [run]) for run, _, found in heard]
    violations = pa.concat_tables([arrow_schema("violations").empty_table(), *broken])
    doubts += sum(one.doubt is not None for _, _, found in heard for one in found)
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


def _good(table: pa.Table) -> pa.Table:
    return table.filter(table["bad"].is_null())


def _fed(followers: _Followers, good: pa.Table) -> Iterator[tuple[Run, pa.Table, list[Finding]]]:
    """Feed these rows to the follower of each run; the table `verdicts` and what was found."""
    for run, cluster, rows in by_run(good):
        follower = followers.setdefault((run, cluster), Follower())
        yield (run, cluster), *fed(follower, rows, (run, cluster))


def _violations(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    return tables["violations"].to_pylist() if "violations" in tables else []


def _added(before: dict[str, int], names: pa.ChunkedArray[Any]) -> dict[str, int]:
    counts: Any = pc.value_counts(names)
    new = {str(one["values"]): int(one["counts"]) for one in counts.to_pylist()}
    return dict(sorted((Counter(before) + Counter(new)).items()))


# -- what is left of a trace that is complete


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


def _locked(path: Path) -> IO[bytes]:
    """Two watchers would write each other's state. The lock goes with the process, also when it is killed."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UsageError(f"{path.parent}: somebody is watching into this directory; choose another --out") from None
    return file
