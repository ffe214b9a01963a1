"""The audit of traces while they grow: what the batch says of them, told as soon as the rows that show it are there.

Members append JSON lines; Parquet files appear when they are complete. Rows are judged in this process, without Spark,
one at a time (`judge.follow`). The tables are those of the batch, published at the end, all or none: a follower that is
killed leaves nothing, and the next one begins anew.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyarrow import compute as pc

from whence.audit.judge import Finding, Follower, Judged
from whence.audit.judge.batch.coding import READ, Run
from whence.audit.spark import ingest
from whence.audit.spark.blocks import by_run, read
from whence.audit.spark.driver import Work
from whence.audit.spark.findings import RunFindings, Summary, as_files, refused, summed
from whence.audit.spark.ingest import Bad, Piece
from whence.audit.spark.keyed import TABLES, rows_of, tables_of
from whence.audit.spark.place import TraceFile, opened
from whence.audit.spark.tables import staging
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
    """Judge a directory of traces until `stop` is set, then write the tables into `out`. `once`: what is there now;
    nothing more will come, so what waits is judged, too. `told` hears of every batch; the last one is returned.
    `sparse`: verdicts only on what is not in order."""
    if not trace.is_dir():
        raise TraceError(f"{trace}: no such directory; name the one that the members write their traces into")
    begun, following = time.monotonic(), _Following(trace, told, sparse)
    with staging(out):
        work = Work(out)
        work.collect([as_files(work.out, "follow").emit(following.findings(once, stop or threading.Event()))])
        work.publish(growing_files(trace), (*TABLES, "quarantine"), begun)
    work.checked()
    return following.last


def growing_files(path: Path) -> list[TraceFile]:
    """The files that are there now; none is no error, they may come."""
    try:
        return ingest.find([path])
    except TraceError:
        return []


class _Following:
    """How far each file was read, and the judge of each run."""

    def __init__(self, trace: Path, told: Callable[[FollowedBatch], None], sparse: bool) -> None:
        self.last = FollowedBatch(-1, Summary(), 0, [], {}, 0.0)
        self._trace, self._told, self._sparse = trace, told, sparse
        self._followers: dict[Run, Follower] = {}
        self._size: dict[str, int] = {}
        """File -> its size when it was looked into."""
        self._upto: dict[str, int] = {}
        """File -> how many bytes of JSON lines, or how many row groups, were read."""

    def findings(self, once: bool, stop: threading.Event) -> Iterator[RunFindings]:
        """What each batch has found."""
        while not stop.is_set():
            before = self.last
            for batch in self._batches():
                yield from self._judged(batch)
                if stop.is_set():
                    return
            if self.last is not before:
                continue
            if once:
                yield from self._judged(*self._rest(), settle=True)
                return
            stop.wait(EVERY)

    # -- what has come

    def _batches(self) -> Iterator[list[Piece]]:
        """What has come since, in batches."""
        batch: list[Piece] = []
        size = 0
        for file in growing_files(self._trace):
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

    def _rest(self) -> tuple[list[Piece], list[Bad]]:
        """What is left of a trace that is complete: last lines without an end, and files that never became a trace."""
        pieces, bad = ingest.plan(growing_files(self._trace))
        tails = [piece._replace(first=max(piece.first, self._upto.get(piece.file, 0))) for piece in pieces]
        return [tail for tail in tails if not tail.parquet and tail.first < tail.end], bad

    # -- what is found

    def _judged(self, pieces: list[Piece], bad: Sequence[Bad] = (), settle: bool = False) -> list[RunFindings]:
        """Judge what has come. `settle`: nothing more will come, so judge also what waits."""
        begun = time.perf_counter()
        rows, wrong = read(pieces) if pieces else (ingest.schema_of(READ).empty_table(), [])
        wrong += bad
        done = [refused(ingest.bad_table(wrong))] if wrong else []
        for run, cluster, mine in by_run(rows):
            follower = self._followers.setdefault((run, cluster), Follower())
            judged = follower.feed(rows_of(mine, (run, cluster)))
            done.append(self._found((run, cluster), judged, follower.findings(), mine.num_rows))
        for whose, follower in self._followers.items() if settle else ():
            done.append(self._found(whose, follower.settle(), follower.findings(), missing=sum(follower.torn.values())))
        sums = deepcopy(self.last.sums)
        for one in done:
            sums.add(one.summary)
        newest = max(self.last.newest_ns, pc.max(rows["t_ns"]).as_py() or 0)
        broken = [row for one in done if "violations" in one.tables for row in one.tables["violations"].to_pylist()]
        waiting = {member: what for follower in self._followers.values() for member, what in follower.waiting.items()}
        seconds = time.perf_counter() - begun
        self.last = FollowedBatch(self.last.number + 1, sums, newest, broken, waiting, seconds)
        self._told(self.last)
        return done

    def _found(
        self, run: Run, judged: list[Judged], found: list[Finding], rows: int = 0, missing: int = 0
    ) -> RunFindings:
        """What is new of a run."""
        tables = tables_of(run, judged, found, self._sparse)
        count = Counter(one.verdict.text for one in judged)
        doubts = sum(one.doubt is not None for one in found) + missing
        summary = summed(tables, rows=rows, deliveries=len(judged), doubts=doubts)
        summary.verdicts.update(count)
        return RunFindings(tables, summary)
