"""A run too large for one worker: `whence.audit.judge.batch.pieces` as a plan of Spark.

    blocks          -> scouted  -> which states of other members somebody begins with
    blocks          -> routed   -> the rows of each member in one of so many buckets
    buckets, states -> outlined -> the steps that matter to others
    all outlines    -> rebuilt  -> what all need to know: `Shared`, and the past of every event
    buckets, past   -> judged
    the ends of all -> what members lack, and tickets with two owners

Everything moves by shuffles, keyed by run and cluster, so giants are judged side by side. A worker has a bucket of rows
with the past, or the notes of a run with the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from whence.audit.judge.batch import audited, pieces, tables
from whence.audit.judge.batch.coding import Run, codes
from whence.audit.judge.batch.compiled import interpreted
from whence.audit.judge.batch.pieces import Shared
from whence.audit.spark import ingest
from whence.audit.spark.blocks import pack, unpacked
from whence.audit.spark.findings import (
    Out,
    RunFindings,
    Summary,
    Terms,
    assumed,
    conflicts,
    few,
    frozen,
    summed,
    thawed,
    told,
)

BUCKET_ROWS: Final = 4_000_000
"""Rows of members that are judged together, at most."""

CHUNK: Final = 32 << 20
"""Bytes of one row of what is shared."""

WHOLE: Final = -1
"""In the place of a bucket: the run as a whole."""

_ROUTED: Final = "run string, cluster string, part int, piece long, block binary"
_AS_ROUTED: Final = Out(iter, _ROUTED)  # type: ignore[arg-type]
_BEFORE: Final = -(1 << 62)  # pieces from here on are not rows, but what has to be known first ...
_PAST: Final = -(1 << 61)  # ... and the past of events


Kept = tuple[DataFrame, list[DataFrame]]
"""Findings, and what to unpersist when they are not needed any more."""


class _Part(NamedTuple):
    """A part of a run, as it comes to a worker. Lists are emptied as they are read, to save memory."""

    run: Run
    number: int
    before: list[bytes]
    past: list[bytes]
    blocks: list[bytes]


Work = Callable[[_Part], Iterator[Any]]
"""What is done with a part, and rows or findings that come of it."""


def spread_out(blocks: DataFrame, out: Out, terms: Terms, runs: int, buckets: int) -> Kept:
    """The findings in these blocks, all of so many runs that are to be spread over `buckets` tasks each."""
    most = int(blocks.sparkSession.conf.get("spark.sql.shuffle.partitions") or runs)
    few, many = min(most, runs), min(most, runs * buckets)
    blocks = blocks.select("run", "cluster", "piece", "block")
    plan = _task(blocks.mapInArrow(_scouted, _ROUTED), _planned, few)
    parts = blocks.mapInArrow(_routed(buckets), _ROUTED)
    parts = parts.persist(StorageLevel.MEMORY_AND_DISK)

    outlined = _task(parts.unionByName(_copies(plan, buckets)), partial(_outlined, terms), many)
    rebuilt = _task(outlined.unionByName(plan), partial(_rebuilt, terms), few, out)
    rebuilt = rebuilt.persist(StorageLevel.MEMORY_AND_DISK)
    shared, past = _left(rebuilt, "shared"), _left(rebuilt, "past")
    known = _copies(shared.unionByName(past), buckets)
    judged = _task(parts.unionByName(known), partial(_judged, terms), many, out)
    judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
    lacking = _task(shared.unionByName(_left(judged, "ended")), partial(_losses, terms), few, out)
    return rebuilt.unionByName(judged).unionByName(lacking), [parts, rebuilt, judged]


def _copies(rows: DataFrame, buckets: int) -> DataFrame:
    """These rows for each of so many buckets."""
    each = rows.sparkSession.range(buckets).select(F.col("id").cast("int").alias("part"))
    return rows.drop("part").crossJoin(F.broadcast(each))


def _left(done: DataFrame, what: str) -> DataFrame:
    """What these tasks left for others under this name (`what PIECE`), as rows of `_ROUTED`."""
    said = F.split("passed.what", " ")
    named = F.col("passed.run").alias("run"), F.col("passed.cluster").alias("cluster")
    rows = done.where(said[0] == what).withColumn("part", F.lit(WHOLE)).withColumn("piece", said[1].cast("long"))
    return rows.select(*named, "part", "piece", F.col("passed.blob").alias("block"))


def _task(rows: DataFrame, work: Work, tasks: int, out: Out = _AS_ROUTED) -> DataFrame:
    """Each part of a run at one of so many places, with its rows in the order of pieces. `out`: how what comes of it
    leaves the task."""
    keys = ["run", "cluster", "part"]
    together = rows.repartition(tasks, *keys).sortWithinPartitions(*keys, "piece")
    return together.mapInArrow(
        lambda batches: out.emit(made for part in _parts(batches) for made in work(part)), out.schema
    )


def _lists(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows, one at a time: some are large."""
    for row in range(batch.num_rows):
        yield tuple(column[row].as_py() for column in batch.columns)


# -- who depends on whom, and which row goes where


def _scouted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for run, cluster, piece, block in _lists(batch):
            yield _block((run, cluster), WHOLE, piece, frozen(pieces.scouted(unpacked([block]))))


def _planned(part: _Part) -> Iterator[pa.RecordBatch]:
    yield _block(part.run, WHOLE, _BEFORE, frozen(pieces.together(map(thawed, part.blocks))))


def _block(run: Run, part: int, piece: int, block: bytes) -> pa.RecordBatch:
    columns: list[Any] = [pa.array([run[0]]), pa.array([run[1]]), pa.array([part], pa.int32())]
    columns += [pa.array([piece], pa.int64()), pa.array([block], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["run", "cluster", "part", "piece", "block"])


def _routed(buckets: int) -> Any:
    """Blocks, cut into the buckets of their members."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for run, cluster, piece, block in _lists(batch):
                for part, mine in _cut(unpacked([block]), buckets):
                    yield _block((run, cluster), part, piece, pack(mine))

    return task


def _cut(table: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    member, names = codes(table["member"])
    part = np.array([crc32(str(n).encode()) % buckets for n in names.to_pylist()], np.int64)[member]
    order = np.argsort(part, kind="stable")
    table = table.unify_dictionaries().take(order)
    found, begin = np.unique(part[order], return_index=True)
    for p, start, end in zip(found.tolist(), begin.tolist(), [*begin.tolist()[1:], len(order)], strict=True):
        yield p, table.slice(start, end - start)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[_Part]:
    rows = (row for batch in batches for row in _lists(batch))
    for (run, cluster, number), mine in groupby(rows, itemgetter(0, 1, 2)):
        part = _Part((run, cluster), number, [], [], [])
        for *_, piece, block in mine:
            (part.before if piece < _PAST else part.past if piece < 0 else part.blocks).append(block)
        yield part


def _emptied(blobs: list[bytes]) -> Iterator[bytes]:
    blobs.reverse()
    while blobs:
        yield blobs.pop()


# -- what the pieces need to know of each other


def _outlined(terms: Terms, part: _Part) -> Iterator[pa.RecordBatch]:
    """An outline of each bucket that has rows."""
    if part.blocks:
        table = unpacked(_emptied(part.blocks))
        with interpreted(few(table.num_rows)):
            outline = pieces.outlined(table, thawed(part.before[0]), terms.complete)
        yield _block(part.run, WHOLE, part.number, frozen(outline))


def _rebuilt(terms: Terms, part: _Part) -> Iterator[RunFindings]:
    outlines = [thawed(one) for one in _emptied(part.blocks)]
    with interpreted(few(sum(outline.notes.num_rows for outline in outlines))):
        shared, found = pieces.rebuilt(outlines, thawed(part.before[0]), terms.complete)
    made = {"violations": tables.violations_table(found, [part.run])}
    yield RunFindings(made, summed(made))
    for what, blob in _passed(shared):
        yield RunFindings({}, Summary(), passed=(*part.run, what, blob))


def _passed(shared: Shared) -> Iterator[tuple[str, bytes]]:
    """In chunks: all but the past, which is most of it; then the past."""
    past, blob = shared.past, frozen(shared._replace(past=None))
    for k, at in enumerate(range(0, len(blob), CHUNK)):
        yield f"shared {_BEFORE + k}", blob[at : at + CHUNK]
    rows = max(1, CHUNK // max(1, past.shape[1] * past.itemsize))
    for k, at in enumerate(range(0, max(1, len(past)), rows)):
        yield f"past {_PAST + k}", frozen(past[at : at + rows])


# -- on the workers


def _judged(terms: Terms, part: _Part) -> Iterator[RunFindings]:
    if part.blocks:
        shared = thawed(b"".join(_emptied(part.before)))
        shared = shared._replace(past=np.concatenate([thawed(chunk) for chunk in _emptied(part.past)]))
        table = unpacked(_emptied(part.blocks))
        with interpreted(few(table.num_rows)):
            found = _found(part.run, table, pieces.judged(table, shared, terms.complete), shared)
        yield found


def _found(run: Run, table: pa.Table, piece: pieces.JudgedPiece, shared: Shared) -> RunFindings:
    """The tables of these members, except what needs all members; and the input of that."""
    a = piece.audited._replace(coded=piece.audited.coded._replace(runs=[run]))
    made = {
        "verdicts": tables.verdicts(a),
        "violations": tables.violations(a),
        "quarantine": ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())),
    }
    table = told(table)
    summary = summed(made, rows=table.num_rows, repeated=a.coded.repeated)
    summary.assumed = assumed(table, a.coded.order, a.coded.there())
    ended = frozen(pieces.ended(piece, shared, tables.members(a)))
    return RunFindings(made, summary, rows=table, passed=(*run, "ended 0", ended))


# -- at the end


def _losses(terms: Terms, part: _Part) -> Iterator[RunFindings]:
    """What members lack, and owners of one ticket: from the states that all of them ended with."""
    shared, ended = thawed(b"".join(part.before)), [thawed(blob) for blob in _emptied(part.blocks)]
    with interpreted(few(0)):
        end = pieces.at_the_end(shared, ended, terms.complete)
        rates = []
        if end.samples and terms.error_rate is not None:
            rates = [(0, audited.rated(end.samples, 0, end.audited, end.doubts, terms.error_rate))]
    runs = [part.run]
    made = {
        "members": end.members,
        "violations": tables.violations_table([*end.found, *audited.too_many(rates)], runs),
        "rates": tables.rates_table(rates, runs),
        "doubts": tables.doubts_table(end.doubts, runs),
    }
    yield RunFindings(made, summed(made, runs=1, published=len(shared.known.ids)))
