"""A run too large for one worker: `whence.judge.batch.spread` as a plan of Spark.

    blocks -> scouted -> who is followed, of each run
    blocks -> routed  -> followed: their members judged, and what all others need to know (`Shared`)
                      -> others, in buckets, with a copy of that
    the ends of all   -> what members lack

Everything moves by shuffles, keyed by run and cluster, so giants are judged side by side. A worker's memory is set by
the rows of the followed members of a run, or by those of a bucket and what is shared, whichever is more.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from whence.judge.batch import rated, spread, tables
from whence.judge.batch.audited import Audited
from whence.judge.batch.coding import codes
from whence.judge.batch.compiled import interpreted
from whence.judge.batch.spread import Ended, Shared
from whence.spark import ingest
from whence.spark.blocks import Run, pack, unpacked
from whence.spark.findings import Judged, Out, Terms, few
from whence.spark.summary import Summary, conflicts, counted, summed

BUCKET_ROWS: Final = 4_000_000
"""Rows of members that are judged together, at most."""

CHUNK: Final = 32 << 20
"""Bytes of one row of what is shared."""

FOLLOWED: Final = -1
"""The part of a run that has the followed members; others are numbered from 0."""

_PLAN: Final = "run string, cluster string, plan binary"
_ROUTED: Final = "run string, cluster string, part int, piece long, block binary"
_BEFORE: Final = -(1 << 62)  # pieces from here on are not rows


class Spread(NamedTuple):
    """Findings, and what to unpersist when they are not needed any more."""

    findings: DataFrame
    kept: list[DataFrame]


def spread_out(blocks: DataFrame, out: Out, terms: Terms, runs: int, buckets: int) -> Spread:
    """The findings in these blocks, all of so many runs that are to be spread over `buckets` tasks each."""
    most = int(blocks.sparkSession.conf.get("spark.sql.shuffle.partitions") or runs)
    few, many = min(most, runs), min(most, runs * buckets)
    found = blocks.select("run", "cluster", "block").mapInArrow(_scouted, _PLAN)
    plan = found.repartition(few, "run", "cluster").groupBy("run", "cluster").applyInArrow(_planned, _PLAN)
    routed = blocks.join(F.broadcast(plan), ["run", "cluster"]).select("run", "cluster", "piece", "block", "plan")
    parts = routed.mapInArrow(_routed(buckets), _ROUTED)
    first = _lit(FOLLOWED, "int", "part"), _lit(_BEFORE, "long", "piece")
    needed = plan.select("run", "cluster", *first, F.col("plan").alias("block"))

    followed = _task(parts.where(f"part = {FOLLOWED}").unionByName(needed), _follow(out, terms.complete), out, few)
    followed = followed.persist(StorageLevel.MEMORY_AND_DISK)
    shared = _left(followed, "shared")
    each = shared.sparkSession.range(buckets).select(F.col("id").cast("int").alias("part"))
    copies = shared.drop("part").crossJoin(F.broadcast(each))
    others = _task(parts.where("part >= 0").unionByName(copies), _others(out, terms.complete), out, many)
    others = others.persist(StorageLevel.MEMORY_AND_DISK)
    ends = shared.unionByName(_left(followed, "ended")).unionByName(_left(others, "ended"))
    lacking = _task(ends, _losses(out, terms), out, few)
    return Spread(followed.unionByName(others).unionByName(lacking), [followed, others])


def _lit(value: int, kind: str, name: str) -> Any:
    return F.lit(value).cast(kind).alias(name)


def _left(done: DataFrame, what: str) -> DataFrame:
    """What these tasks left for others, as rows of `_ROUTED`: `what`, or several `what 0`, `what 1`, ..."""
    mine = done.where(F.split("passed.what", " ")[0] == what)
    number = F.coalesce(F.split("passed.what", " ")[1].cast("long"), F.lit(0)) if what == "shared" else F.lit(0)
    piece = (F.lit(_BEFORE) + number) if what == "shared" else F.lit(0).cast("long")
    named = F.col("passed.run").alias("run"), F.col("passed.cluster").alias("cluster")
    return mine.select(*named, _lit(FOLLOWED, "int", "part"), piece.alias("piece"), F.col("passed.blob").alias("block"))


def _task(rows: DataFrame, work: Any, out: Out, tasks: int) -> DataFrame:
    """The rows of a part of a run at one of so many places, in the order of pieces."""
    keys = ["run", "cluster", "part"]
    return rows.repartition(tasks, *keys).sortWithinPartitions(*keys, "piece").mapInArrow(work, out.schema)


# -- whose steps matter to others


def _scouted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for run, cluster, block in _lists(batch):
            found = pickle.dumps(spread.scouted(unpacked([block])))
            yield _plan(run, cluster, found)


def _planned(found: pa.Table) -> pa.Table:
    named = found.slice(0, 1).to_pylist()[0]
    plan = spread.to_follow([pickle.loads(one or b"") for one in found["plan"].to_pylist()])
    return pa.Table.from_batches([_plan(named["run"], named["cluster"], pickle.dumps(plan))])


def _plan(run: str, cluster: str, plan: bytes) -> pa.RecordBatch:
    columns: list[Any] = [pa.array([run]), pa.array([cluster]), pa.array([plan], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["run", "cluster", "plan"])


def _lists(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _routed(buckets: int) -> Any:
    """Blocks, cut into the part of the followed members and the buckets of the others."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        followed: set[str] = set()
        whose: Run | None = None
        for batch in batches:
            for run, cluster, piece, block, plan in _lists(batch):
                if whose != (run, cluster):
                    whose, followed = (run, cluster), pickle.loads(plan)[0]
                for part, mine in _cut(unpacked([block]), followed, buckets):
                    columns: list[Any] = [pa.array([run]), pa.array([cluster]), pa.array([part], pa.int32())]
                    columns += [pa.array([piece]), pa.array([pack(mine)], pa.binary())]
                    yield pa.RecordBatch.from_arrays(columns, names=["run", "cluster", "part", "piece", "block"])

    return task


def _cut(table: pa.Table, followed: set[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    member, names = codes(table["member"])
    to = [FOLLOWED if n in followed else crc32(str(n).encode()) % buckets for n in names.to_pylist()]
    part = np.array(to, np.int64)[member]
    order = np.argsort(part, kind="stable")
    table = table.unify_dictionaries().take(order)
    found, begin = np.unique(part[order], return_index=True)
    for p, start, end in zip(found.tolist(), begin.tolist(), [*begin.tolist()[1:], len(order)], strict=True):
        yield p, table.slice(start, end - start)


# -- on the workers


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Run, list[bytes], list[bytes]]]:
    """Of each part of a run: what is no rows (`_BEFORE`), and the blocks."""
    now: tuple[str, str, int] | None = None
    before: list[bytes] = []
    blocks: list[bytes] = []
    for batch in batches:
        for run, cluster, part, piece, block in _lists(batch):
            if now is not None and (run, cluster, part) != now:
                yield now[:2], before, blocks
                before, blocks = [], []
            now = run, cluster, part
            (before if piece < 0 else blocks).append(block)
    if now is not None:
        yield now[:2], before, blocks


def _follow(out: Out, complete: bool) -> Any:
    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[Judged]:
        for run, (plan,), blocks in _parts(batches):
            needed = pickle.loads(plan)[1]
            shared = spread.nothing()
            if blocks:
                table = unpacked(blocks)
                with interpreted(few(table.num_rows)):
                    a, shared = spread.followed(table, needed, complete)
                    found = _found(run, table, a)
                yield found
            blob = pickle.dumps(shared, protocol=5)
            for k, at in enumerate(range(0, len(blob), CHUNK)):
                yield Judged(*run, {}, Summary(), passed=(f"shared {k}", blob[at : at + CHUNK]))

    return lambda batches: out.emit(judged(batches))


def _others(out: Out, complete: bool) -> Any:
    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[Judged]:
        for run, before, blocks in _parts(batches):
            if blocks:
                table, shared = unpacked(blocks), _shared(before)
                with interpreted(few(table.num_rows)):
                    found = _found(run, table, spread.others(table, shared, complete))
                yield found

    return lambda batches: out.emit(judged(batches))


def _shared(chunks: list[bytes]) -> Shared:
    found: Shared = pickle.loads(b"".join(chunks))
    return found


def _found(run: Run, table: pa.Table, a: Audited) -> Judged:
    """The tables of these members, except what needs all members; and the input of that."""
    wrong, members = tables.violations(a, *run), tables.members(a, *run)
    made = {
        "verdicts": tables.verdicts(a, *run),
        "violations": wrong,
        "quarantine": ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())),
    }
    summary = summed(a, members, wrong, table.num_rows)
    summary.runs = summary.published = 0
    return Judged(*run, made, summary, passed=("ended", pickle.dumps(spread.ended(a, members), protocol=5)))


# -- at the end


def _losses(out: Out, terms: Terms) -> Any:
    """What members lack: from the states that all of them ended with."""

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[Judged]:
        for run, before, blobs in _parts(batches):
            shared = _shared(before)
            pieces: list[Ended] = [pickle.loads(blob) for blob in blobs]
            summary = Summary(runs=1, published=len(shared.past.origin))
            made: dict[str, pa.Table] = {}
            if pieces:
                with interpreted(few(0)):
                    end = spread.at_the_end(shared, pieces, terms.complete)
                samples = (piece.sample for piece in pieces)
                rates, doubts = rated.judged(samples, end.everybody, end.doubts, terms.error_rate)
                made = {
                    "members": end.members,
                    "violations": tables.violations_table([*end.found, *rated.wrong(rates)], *run),
                    "rates": tables.rates_table(rates, *run),
                    "doubts": tables.doubts_table(doubts, *run),
                }
                summary.doubt(doubts)
                summary.rate(rates)
                summary.add(Summary(**counted(made["violations"])))
            yield Judged(*run, made, summary)

    return lambda batches: out.emit(judged(batches))
