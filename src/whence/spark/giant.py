"""A run too large for one worker.

Only the steps of some members matter to others: those who publish, hold a ticket, or give a state that somebody begins
with. They are **followed** first, on one worker; what it learns (the past of every event, and the states) goes into a
file that all others read. Then every other member is judged by itself, on any worker. What members lack at the end is
found when the last one is judged, from one vector for each.

The memory of a worker is set by the rows of the followed members, or of a bucket of the others, whichever is more.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession

from whence.spark import findings, ingest, kernel, session
from whence.spark import judge as j
from whence.spark.audit import Summary, blocks, conflicts, counted, groups, summed, unpacked
from whence.spark.coding import Coded, Known, Needed, code, codes, picked
from whence.spark.compiled import Bytes
from whence.spark.ingest import Piece
from whence.spark.parts import Parts
from whence.spark.tables import arrow_schema

BUCKET_ROWS: Final = 4_000_000
"""Rows of members that are judged together."""

Run = tuple[str, str]
"""And its cluster."""


class Shared(NamedTuple):
    """What the others need to know."""

    known: Known
    past: kernel.Past
    taken: j.States


class Ended(NamedTuple):
    """What became of some members."""

    members: pa.Table
    """Rows of `members`, without losses."""
    ends: j.States
    elsewhere: list[str]
    """Members that live on in one of these."""
    summary: Summary


def audit_giant(spark: SparkSession, pieces: Sequence[Piece], run: Run, stage: Path, number: int) -> Summary:
    """Audit one run of a cluster; `number` tells it from other giants."""
    place = stage / f".giant-{number}"
    place.mkdir()
    followed, needed = scout(spark, pieces, run)
    rows = sum(p.rows for p in pieces)
    buckets = max(2 * session.cores(spark), -(-rows // BUCKET_ROWS))

    first = blocks(spark, pieces, str(stage), _only(run, followed))
    first.repartition(1).sortWithinPartitions("piece").mapInArrow(
        _follow(run, needed, str(stage), str(place), number), "n long"
    ).collect()
    rest = blocks(spark, pieces, str(stage), _others(run, followed, buckets))
    by_bucket = rest.repartition(buckets, "cluster").sortWithinPartitions("cluster", "piece")
    by_bucket.mapInArrow(_judge(run, str(stage), str(place), number), "n long").collect()
    return _losses(run, stage, place, number)


# -- whose steps matter to others


def scout(spark: SparkSession, pieces: Sequence[Piece], run: Run) -> tuple[set[str], Needed]:
    """The members to follow, and what the others need of them."""

    def work(piece: Piece) -> Iterator[pa.RecordBatch]:
        table, _ = ingest.read_piece(piece, ("run", "cluster", "member", "kind", "reason", "peer", "token"))
        found = pickle.dumps(_scouted(table, run))
        yield pa.RecordBatch.from_pydict({"found": pa.array([found], pa.binary())})

    followed: set[str] = set()
    taken: dict[str, set[str]] = {}
    used: set[str] = set()
    ended: set[str] = set()
    for row in ingest.over(spark, pieces, work, "found binary").collect():
        members, gave, tokens, peers = pickle.loads(row["found"])
        followed |= members
        used |= tokens
        ended |= peers
        for token, member in gave:
            taken.setdefault(token, set()).add(member)
    for token in used:
        followed |= taken.get(token, set())
    return followed | ended, Needed(sorted(used), sorted(ended))


def _scouted(table: pa.Table, run: Run) -> tuple[set[str], set[tuple[str, str]], set[str], set[str]]:
    """Publishers and owners; (token, who took it); tokens used; lives that others go on from."""
    table = _of(table, run)
    kind, kinds = codes(table["kind"])
    member, names = codes(table["member"])
    place = {name: k for k, name in enumerate(kinds.to_pylist())}
    acts = np.isin(kind, [place[k] for k in ("publish", "ticket") if k in place])
    members = {str(names[m]) for m in np.unique(member[acts]).tolist()}
    special = np.flatnonzero(np.isin(kind, [place[k] for k in ("join", "snapshot") if k in place]))
    gave, tokens, peers = set(), set(), set()
    for row in picked(table.select(["member", "kind", "reason", "peer", "token"]), special):
        if row["kind"] == "snapshot" and row["token"] is not None:
            gave.add((row["token"], row["member"]))
        elif row["token"] is not None and row["reason"] != "genesis":
            tokens.add(row["token"])
        elif row["reason"] == "checkpoint" and row["peer"] not in (None, row["member"]):
            peers.add(row["peer"])
    return members, gave, tokens, peers


def _of(table: pa.Table, run: Run) -> pa.Table:
    for name, wanted in zip(("run", "cluster"), run, strict=True):
        code_, values = codes(table[name])
        at = values.to_pylist()
        if at != [wanted]:
            mine: Any = code_ == (at.index(wanted) if wanted in at else -2)
            table = table.filter(pa.array(mine))
    return table


Split = Callable[[str, str, pa.Table], Iterator[tuple[str, str, pa.Table]]]


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


def _follow(run: Run, needed: Needed, stage: str, place: str, number: int) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [block for _, _, mine in groups(batches) for block in mine]
        if not rows:
            return
        table = unpacked(rows)
        coded = code(table, needed=needed)
        tokens, origins = len(coded.tokens), len(coded.base) - 1
        past, early, circles = kernel.rebuild(coded.steps, coded.joins, tokens, coded.base, findings.followed(coded))
        found = j.judge(coded.steps, coded.joins, past, early, _all(coded), j.states(tokens, origins))
        names = [str(coded.members[m]) for m in coded.member_of.tolist()]
        known = Known(coded.events.take(coded.ids), coded.base, names, coded.tokens, coded.torn)
        with Parts(stage, f"giant-{number}-followed") as parts:
            a = findings.Audited(coded, past, found, _no_losses(coded), circles)
            _write(run, table, a, parts, place, "followed")
        _keep(Path(place) / "shared", Shared(known, past, found.taken))
        yield pa.RecordBatch.from_pydict({"n": [table.num_rows]})

    return task


def _judge(run: Run, stage: str, place: str, number: int) -> Task:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shared: Shared | None = None
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        with Parts(stage, f"giant-{number}-{part:05d}") as parts:
            for _, bucket, mine in groups(batches):
                shared = shared or _shared(place)
                table = unpacked(mine)
                coded = code(table, known=shared.known)
                early = np.zeros(len(coded.lseq), np.uint8)
                found = j.judge(coded.steps, coded.joins, shared.past, early, _all(coded), shared.taken)
                a = findings.Audited(coded, shared.past, found, _no_losses(coded), 0)
                _write(run, table, a, parts, place, bucket)
                yield pa.RecordBatch.from_pydict({"n": [table.num_rows]})

    return task


def _all(coded: Coded) -> Bytes:
    return (np.diff(coded.steps.begin) > 0).astype(np.uint8)


def _no_losses(coded: Coded) -> j.Losses:
    zeros, none = np.zeros(len(coded.members), np.int64), np.empty(0, np.int32)
    return j.Losses(zeros, zeros, zeros, zeros, none, none, none)


def _write(run: Run, table: pa.Table, a: findings.Audited, parts: Parts, place: str, name: str) -> None:
    """The tables of these members, but for what needs all of them; and what that needs."""
    wrong, members = findings.violations(a, *run), findings.members(a, *run)
    parts.write("verdicts", findings.verdicts(a, *run))
    parts.write("violations", wrong)
    parts.write("quarantine", ingest.bad_table(conflicts(table, a.coded.conflicts.tolist())))
    there = np.flatnonzero(_all(a.coded))
    e = a.found.ends
    ends = j.States(e.X[there], e.unsure[there], e.has[there], e.at[there], e.size[there], e.event, e.skipped, e.opener)
    ended = Ended(members, ends, _superseded(a.coded), summed(a, members, wrong, table.num_rows))
    _keep(Path(place) / f"ended-{name}", ended)


def _superseded(coded: Coded) -> list[str]:
    return [str(coded.members[m]) for m in np.flatnonzero(coded.superseded).tolist()] + coded.elsewhere


def _keep(path: Path, what: Shared | Ended) -> None:
    """All or nothing: a task may be run twice."""
    new = path.with_name(f".{path.name}-{uuid4().hex}")
    with new.open("wb") as file:
        pickle.dump(what, file, protocol=5)
    new.rename(path)


def _shared(place: str) -> Shared:
    try:
        with (Path(place) / "shared").open("rb") as file:
            found: Shared = pickle.load(file)
            return found
    except FileNotFoundError:  # nobody publishes, so nothing is known
        none = np.empty(0, np.int32)
        base = np.zeros(1, np.int64)
        past, _, _ = kernel.rebuild(
            kernel.Steps(base, np.empty(0, np.int8), none, np.empty(0, np.uint8)),
            kernel.Joins(np.empty(0, np.int8), none), 0, base, np.zeros(1, np.uint8),
        )  # fmt: skip
        return Shared(Known(pa.array([], pa.string()), base, [], [], []), past, j.states(0, 0))


# -- at the end


def _losses(run: Run, stage: Path, place: Path, number: int) -> Summary:
    """What members lack: from the states that all of them ended with."""
    shared = _shared(str(place))
    every: list[Ended] = []
    for path in sorted(place.glob("ended-*")):
        with path.open("rb") as file:
            every.append(pickle.load(file))
    total = Summary(runs=1, published=len(shared.past.origin))
    for ended in every:
        ended.summary.runs = ended.summary.published = 0
        total.add(ended.summary)
    if not every:
        return total
    members = pa.concat_tables([ended.members for ended in every])
    order = pc.sort_indices(members["member"]).to_numpy()
    members = members.take(order)
    names = [str(name) for name in members["member"].to_pylist()]
    gone = {name for ended in every for name in ended.elsewhere}
    superseded = np.array([name in gone for name in names], np.uint8)
    alive = np.array(members["alive"].to_pylist(), np.uint8)
    alive[superseded == 1] = 0
    e = _joined([ended.ends for ended in every])
    ends = j.States(e.X[order], e.unsure[order], e.has[order], e.at[order], e.size[order], e.event, e.skipped, e.opener)
    at = {name: m for m, name in enumerate(names)}
    member_of = np.array([at[name] for name in shared.known.origins], np.int32)
    lost = j.losses(shared.past, ends, alive, superseded, alive[member_of])
    columns = {"gaps": lost.gaps, "lost": lost.lost, "lost_of_live": lost.lost_of_live, "disagreements": lost.disagreed}
    for name, values in {**columns, "alive": alive == 1}.items():
        new: Any = values
        place_of = members.schema.get_field_index(name)
        members = members.set_column(place_of, arrow_schema("members").field(name), pa.array(new))
    everybody = findings.Everybody(
        members["member"].combine_chunks(), [str(o) for o in members["order"].to_pylist()], alive, member_of,
        shared.known.ids, shared.past, ends, lost,
    )  # fmt: skip
    wrong = findings.violations_table(list(findings.of_agreement(everybody)), *run)
    with Parts(str(stage), f"giant-{number}") as parts:
        parts.write("members", members)
        parts.write("violations", wrong)
    total.add(Summary(**counted(wrong)))
    return total


def _joined(all_: list[j.States]) -> j.States:
    """The states of all, one after the other."""
    offsets = np.cumsum([0] + [len(s.event) for s in all_])
    return j.States(
        np.concatenate([s.X for s in all_]),
        np.concatenate([s.unsure for s in all_]),
        np.concatenate([s.has for s in all_]),
        np.concatenate([s.at + offset for s, offset in zip(all_, offsets, strict=False)]),
        np.concatenate([s.size for s in all_]),
        np.concatenate([s.event for s in all_]),
        np.concatenate([s.skipped for s in all_]),
        np.concatenate([s.opener for s in all_]),
    )
