"""A run too large for one worker: `whence.judge.batch.spread` on the workers of Spark.

The members that others depend on are followed on one worker, which leaves what it learns in a file for all others. The
rest is judged in buckets, on any worker. A worker's memory is set by the rows of the followed members, or by those of a
bucket, whichever is more.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from whence.judge.batch import spread, tables
from whence.judge.batch.audited import Audited
from whence.judge.batch.coding import Needed, codes
from whence.judge.batch.spread import Ended, Shared
from whence.spark import ingest, session
from whence.spark.blocks import Run, Split, blocks, groups, unpacked
from whence.spark.ingest import Piece
from whence.spark.parts import Parts
from whence.spark.summary import Summary, conflicts, counted, summed

BUCKET_ROWS: Final = 4_000_000
"""Rows of members that are judged together."""


def audit_giant(
    spark: SparkSession, pieces: Sequence[Piece], run: Run, stage: Path, number: int, complete: bool
) -> Summary:
    """Audit one run of a cluster; `number` tells it from other giants."""
    place = stage / f".giant-{number}"
    place.mkdir()
    followed, needed = scout(spark, pieces, run)
    rows = sum(p.rows for p in pieces)
    buckets = max(2 * session.cores(spark), -(-rows // BUCKET_ROWS))

    first = blocks(spark, pieces, str(stage), _only(run, followed))
    first.repartition(1).sortWithinPartitions("piece").mapInArrow(
        _follow(run, needed, str(stage), str(place), number, complete), "n long"
    ).collect()
    rest = blocks(spark, pieces, str(stage), _others(run, followed, buckets))
    by_bucket = rest.repartition(buckets, "cluster").sortWithinPartitions("cluster", "piece")
    by_bucket.mapInArrow(_judge(run, str(stage), str(place), number, complete), "n long").collect()
    return _losses(run, stage, place, number, complete)


# -- whose steps matter to others


def scout(spark: SparkSession, pieces: Sequence[Piece], run: Run) -> tuple[set[str], Needed]:
    """The members to follow, and what the others need of them."""

    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        table, _ = ingest.read_piece(piece, ("run", "cluster", "member", "kind", "reason", "peer", "token"))
        found = pickle.dumps(spread.scouted(_of(table, run)))
        yield pa.RecordBatch.from_pydict({"found": pa.array([found], pa.binary())})

    rows = ingest.over(spark, pieces, work, "found binary").collect()
    return spread.to_follow([pickle.loads(row["found"]) for row in rows])


def _of(table: pa.Table, run: Run) -> pa.Table:
    for name, wanted in zip(("run", "cluster"), run, strict=True):
        code_, values = codes(table[name])
        at = values.to_pylist()
        if at != [wanted]:
            mine: Any = code_ == (at.index(wanted) if wanted in at else -2)
            table = table.filter(pa.array(mine))
    return table


def _only(run: Run, followed: set[str]) -> Split:
    def split(name: str, cluster: str, table: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
        if (name, cluster) == run:
            member, names = codes(table["member"])
            mine: Any = np.array([n in followed for n in names.to_pylist()], bool)[member]
            yield name, "followed", table.filter(pa.array(mine))

    return split


def _others(run: Run, followed: set[str], buckets: int) -> Split:
    def split(name: str, cluster: str, table: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
        if (name, cluster) != run:
            return
        member, names = codes(table["member"])
        to = [-1 if n in followed else crc32(str(n).encode()) % buckets for n in names.to_pylist()]
        bucket = np.array(to, np.int64)[member]
        order = np.argsort(bucket, kind="stable")
        table = table.unify_dictionaries().take(order)
        found, begin = np.unique(bucket[order], return_index=True)
        for b, start, end in zip(found.tolist(), begin.tolist(), [*begin.tolist()[1:], len(order)], strict=True):
            if b >= 0:
                yield name, f"{b:06d}", table.slice(start, end - start)

    return split


# -- on the workers

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _follow(run: Run, needed: Needed, stage: str, place: str, number: int, complete: bool) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [block for _, _, mine in groups(batches) for block in mine]
        if not rows:
            return
        table = unpacked(rows)
        a, shared = spread.followed(table, needed, complete)
        with Parts(stage, f"giant-{number}-followed") as parts:
            _write(run, table, a, parts, place, "followed")
        _keep(Path(place) / "shared", shared)
        yield pa.RecordBatch.from_pydict({"n": [table.num_rows]})

    return task


def _judge(run: Run, stage: str, place: str, number: int, complete: bool) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shared: Shared | None = None
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        with Parts(stage, f"giant-{number}-{part:05d}") as parts:
            for _, bucket, mine in groups(batches):
                shared = shared or _shared(place)
                table = unpacked(mine)
                _write(run, table, spread.others(table, shared, complete), parts, place, bucket)
                yield pa.RecordBatch.from_pydict({"n": [table.num_rows]})

    return task


def _write(run: Run, table: pa.Table, a: Audited, parts: Parts, place: str, name: str) -> None:
    """The tables of these members, except what needs all members; and the input of that."""
    wrong, members = tables.violations(a, *run), tables.members(a, *run)
    parts.write("verdicts", tables.verdicts(a, *run))
    parts.write("violations", wrong)
    parts.write("quarantine", ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())))
    _keep(Path(place) / f"ended-{name}", (spread.ended(a, members), summed(a, members, wrong, table.num_rows)))


def _keep(path: Path, what: Shared | tuple[Ended, Summary]) -> None:
    """Write all or nothing: a task may run twice."""
    new = path.with_name(f".{path.name}-{uuid4().hex}")
    with new.open("wb") as file:
        pickle.dump(what, file, protocol=5)
    new.rename(path)


def _shared(place: str) -> Shared:
    try:
        found: Shared = pickle.loads((Path(place) / "shared").read_bytes())
        return found
    except FileNotFoundError:  # nobody publishes
        return spread.nothing()


# -- at the end


def _losses(run: Run, stage: Path, place: Path, number: int, complete: bool) -> Summary:
    """What members lack: from the states that all of them ended with."""
    shared = _shared(str(place))
    total = Summary(runs=1, published=len(shared.past.origin))
    pieces: list[Ended] = []
    for path in sorted(place.glob("ended-*")):
        piece, summary = pickle.loads(path.read_bytes())
        pieces.append(piece)
        summary.runs = summary.published = 0
        total.add(summary)
    if pieces:
        members, found, doubts = spread.at_the_end(shared, pieces, complete)
        wrong = tables.violations_table(found, *run)
        with Parts(str(stage), f"giant-{number}") as parts:
            parts.write("members", members)
            parts.write("violations", wrong)
            parts.write("doubts", tables.doubts_table(doubts, *run))
        total.doubt(doubts)
        total.add(Summary(**counted(wrong)))
    return total
