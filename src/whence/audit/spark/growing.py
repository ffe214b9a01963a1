"""The audit of traces while they grow: what the batch says of them, told as soon as the rows that show it are there.

Members append JSON lines; Parquet files appear when they are complete. Rows are judged in this process, without Spark,
from a saved state (`judge.batch.saved`), to tell at once what is wrong. The tables are those of an audit at the end: a
follower that is killed leaves nothing, and the next one begins anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from pyarrow import compute as pc

from whence.audit.judge.batch.coding import Run, codes
from whence.audit.judge.batch.saved import SavedRun, waiting
from whence.audit.spark import ingest
from whence.audit.spark.blocks import by_run, read
from whence.audit.spark.driver import audit_files
from whence.audit.spark.findings import Summary, summed, told
from whence.audit.spark.ingest import Piece
from whence.audit.spark.keyed import judged
from whence.audit.spark.place import TraceFile, opened
from whence.audit.spark.tables import alone, claim, table_files
from whence.errors import TraceError

BATCH_BYTES: Final = 16 << 20
"""Bytes of trace in one batch: what memory and the time of a batch grow with."""

ROW_BYTES: Final = 200
"""Of a row as JSON, about. A row of a Parquet file counts as much: on disk it is smaller, in memory it is not."""

EVERY: Final = 0.5
"""Seconds after which the trace is looked at again."""


class FollowedBatch(NamedTuple):
    """What one batch has found; for whoever watches."""

    number: int
    sums: Summary
    """Of all batches so far."""
    newest_ns: int
    """The latest time of a row so far: for the lag of a live cluster."""
    violations: list[dict[str, Any]]
    waiting: dict[str, tuple[int, str]]
    """Members with steps that wait: how many, and what for."""
    seconds: float
    """What the audit of the batch took."""


def follow(
    trace: Path,
    out: Path,
    told: Callable[[FollowedBatch], None] = lambda batch: None,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    sparse: bool = False,
) -> FollowedBatch:
    """Judge a directory of traces until `stop` is set, then audit it as a whole and write the tables and the page into
    `out`. `once`: audit what is there now. `told` hears of every batch, of which the last one is what the audit found
    besides; it is returned. `sparse`: verdicts only on what is not in order."""
    if not trace.is_dir():
        raise TraceError(f"{trace}: no such directory; name the one that the members write their traces into")
    with alone(out):  # a place that is not to be written to is named now, not at the end
        claim(out)
    following, stop = _Following(trace), stop or threading.Event()
    while not (once or stop.is_set()):
        before = following.last
        for batch in following.batches():
            told(batch)
            if stop.is_set():
                break
        if following.last is before:
            stop.wait(EVERY)
    last = following.ended(out, sparse)
    told(last)
    return last


class _Following:
    """How far each file was read, and the judge of each run."""

    def __init__(self, trace: Path) -> None:
        self.last = FollowedBatch(-1, Summary(), 0, [], {}, 0.0)
        self._trace = trace
        self._saved: dict[Run, SavedRun] = {}
        self._broken: set[tuple[Any, ...]] = set()
        """The violations that were told."""
        self._size: dict[str, int] = {}
        """File -> its size when it was looked into."""
        self._upto: dict[str, int] = {}
        """File -> how many bytes of JSON lines, or how many row groups, were read."""

    def batches(self) -> Iterator[FollowedBatch]:
        """What is found in what has come since."""
        for pieces in self._batches():
            self._judge(pieces)
            yield self.last

    def ended(self, out: Path, sparse: bool) -> FollowedBatch:
        """What the audit of all that is there now finds besides."""
        begun = time.perf_counter()
        sums = audit_files([self._trace], out, sparse=sparse)
        broken = [row for file in table_files(out, "violations") for row in pq.read_table(file).to_pylist()]
        return self._next(sums, self.last.newest_ns, broken, begun)

    def _next(self, sums: Summary, newest: int, broken: list[dict[str, Any]], begun: float) -> FollowedBatch:
        new = [row for row in broken if _named(row) not in self._broken]
        self._broken |= set(map(_named, new))
        waits = {member: what for saved in self._saved.values() for member, what in waiting(saved).items()}
        seconds = time.perf_counter() - begun
        self.last = FollowedBatch(self.last.number + 1, sums, newest, new, waits, seconds)
        return self.last

    # -- what has come

    def _batches(self) -> Iterator[list[Piece]]:
        """What has come since, in batches."""
        batch: list[Piece] = []
        files: list[TraceFile] = []
        size = 0
        with suppress(TraceError):  # there is no file yet
            files = ingest.find([self._trace])
        for file in files:
            for piece in self._new(file) if file.size != self._size.get(file.place) else ():
                batch.append(piece)
                size += piece.rows * ROW_BYTES if piece.parquet else piece.end - piece.first
                if size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _new(self, file: TraceFile) -> Iterator[Piece]:
        """The complete lines, or the row groups, that were not read yet."""
        pieces, bad = ingest.plan([file])
        if bad:  # perhaps it is still being copied; if not, the end will tell
            return
        self._size[file.place], upto = file.size, self._upto.get(file.place, 0)
        if not all(piece.parquet for piece in pieces):
            yield from self._lines(file, upto)
            return
        groups = [group for piece in pieces for group in ingest.by_group(piece)]
        for number in range(upto, len(groups)):
            self._upto[file.place] = number + 1
            yield groups[number]

    def _lines(self, file: TraceFile, begin: int) -> Iterator[Piece]:
        """The complete lines from here on."""
        if file.size < begin:
            raise TraceError(f"{file.place}: it was {begin} bytes long and is shorter now; a trace only grows")
        at = begin
        with opened(file.place) as data:
            data.seek(at)
            while at < file.size and (block := data.read(BATCH_BYTES)):
                if last := block.rfind(b"\n") + 1:
                    yield Piece(file.place, False, (), begin, at + last, 0, None)
                    self._upto[file.place] = begin = at + last
                at += len(block)

    # -- what is found

    def _judge(self, pieces: list[Piece]) -> None:
        begun, sums = time.perf_counter(), deepcopy(self.last.sums)
        rows, bad = read(pieces)
        sums.quarantined += len(bad)
        broken: list[dict[str, Any]] = []
        for run, cluster, mine in by_run(told(rows)):
            key = run, cluster
            done, tables = judged(self._saved.get(key, SavedRun()), key, mine)
            self._saved[key] = done.saved
            one = summed(tables, rows=mine.num_rows, deliveries=tables["verdicts"].num_rows)
            verdict, texts = codes(tables["verdicts"]["verdict"])
            one.verdicts.update(
                zip(map(str, texts.to_pylist()), np.bincount(verdict, minlength=len(texts)).tolist(), strict=True)
            )
            sums.add(one)
            broken += tables["violations"].to_pylist()
        self._next(sums, max(self.last.newest_ns, pc.max(rows["t_ns"]).as_py() or 0), broken, begun)


def _named(violation: dict[str, Any]) -> tuple[Any, ...]:
    """What tells it from others."""
    return tuple(violation[name] for name in ("run", "cluster", "rule", "member", "lseq", "event"))
