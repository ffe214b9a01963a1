"""Client histories on Spark: many side by side, or one spread over the cluster.

    from whence.spark import histories
    checked = histories.check(df, levels=["RC", "RA", "TCC"])

One giant history goes through stages: A read consistency, by session; B reads-from, by key, the one large exchange;
C, D the graph of transactions and a topological order of it, in one place; E writers that this order puts between a
read's writer and its reader, by key; F clocks and the test of these candidates, by blocks of sessions; G a new order if
there were necessary edges, and again from E. docs/histories.md has the schema of the operations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegralType

from whence.errors import HistoryError
from whence.history import Level, Report, bykey
from whence.history import check as check_one
from whence.history import kernels as k
from whence.history.arrays import Columns, Rounds, check_columns, make_graph, settle_levels
from whence.history.columns import code_keys
from whence.history.levels import PATTERNS, REGISTERS, TRANSACTIONAL
from whence.history.model import Op
from whence.history.story import story
from whence.history.tables import REQUIRED, SCHEMA, from_table, history_of

SMALL: Final = 50_000
"""Operations below which a history is checked by the reference form."""
BLOCK_BYTES: Final = 1 << 30
"""Clocks that one task makes at a time."""

RESULT: Final = (
    "history string, part string, level string, holds boolean, operations long, transactions long, sessions long, "
    "pattern string, count long, guarantee string, story string, finding string, position long, session string, "
    "txn long, notes string"
)
FIELDS: Final = {
    "verdict": ("history", "level", "holds", "operations", "transactions", "sessions", "notes"),
    "finding": ("history", "level", "pattern", "count", "guarantee", "story", "finding"),
    "order": ("history", "level", "position", "session", "txn"),
}
_ARROW: Final[dict[str, pa.DataType]] = {"string": pa.string(), "boolean": pa.bool_(), "long": pa.int64()}
_SCHEMA: Final = pa.schema([(name, _ARROW[kind]) for name, kind in (each.split() for each in RESULT.split(", "))])


@dataclass(frozen=True)
class Checked:
    """The answer, as tables."""

    verdicts: DataFrame
    """A row for each history and level: whether it holds."""
    findings: DataFrame
    """A row for each finding: pattern, how many of it there are, the story, and the finding as JSON."""
    order: DataFrame
    """With `certificate`: the commit order that proves the strongest level that holds."""


def check(
    df: DataFrame, levels: Sequence[Level] | None = None, certificate: bool = False, spread: bool | None = None
) -> Checked:
    """Check the operations in `df`. With a column `history` each history is one task, else the one is spread.

    `spread`: True spreads one history over the cluster, False gives it to one task.
    """
    missing = [name for name in REQUIRED if name not in df.columns]
    if missing:
        raise HistoryError(f"the DataFrame has no column {missing[0]!r}; operations have these:\n{SCHEMA}")
    if "history" not in df.columns:
        spread = True if spread is None else spread
        df = df.withColumn("history", F.lit("history"))
    rows = _spread(df, levels, certificate) if spread else _side_by_side(df, levels, certificate)
    return Checked(*(rows.where(F.col("part") == part).select(*FIELDS[part]) for part in FIELDS))


def _side_by_side(df: DataFrame, levels: Sequence[Level] | None, certificate: bool) -> DataFrame:
    def one(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        name = str(key[0].as_py())
        lists = pa.types.is_list(table.schema.field("value").type)
        if table.num_rows < SMALL or lists or "CM" in (levels or ()):
            report = check_one(history_of(table, name), levels)
        else:
            report = check_columns(from_table(table, name), levels)
        return _rows(name, report, certificate)

    grouped: Any = df.groupBy("history")
    found: DataFrame = grouped.applyInArrow(one, RESULT)
    return found.persist(StorageLevel.MEMORY_AND_DISK)


def _rows(name: str, report: Report, certificate: bool) -> pa.Table:
    """A report as rows of RESULT."""
    rows: list[dict[str, Any]] = []
    sizes = {"operations": report.operations, "transactions": report.transactions, "sessions": report.sessions}
    for level, holds in report.levels.items():
        notes = "; ".join(report.notes) or None
        rows.append({"history": name, "part": "verdict", "level": level, "holds": holds, **sizes, "notes": notes})
    shown = {finding.pattern: finding for finding in reversed(report.findings)}
    told = story(report) if report.findings else None
    for pattern, count in report.patterns.items():
        finding = shown.get(pattern)
        what = None if finding is None else json.dumps(report.finding_dict(finding), default=str)
        rows.append(
            {
                "history": name,
                "part": "finding",
                "level": PATTERNS[pattern][0][0],
                "pattern": pattern,
                "count": count,
                "guarantee": finding.guarantee if finding else None,
                "story": told,
                "finding": what,
            }
        )
    if certificate and report.order is not None:
        for position, t in enumerate(report.order):
            session, txn = report.places[int(t)]
            row = {"history": name, "part": "order", "level": report.certified}
            rows.append({**row, "position": position, "session": session, "txn": txn})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


# -- one giant history


def _spread(df: DataFrame, levels: Sequence[Level] | None, certificate: bool) -> DataFrame:
    levels = TRANSACTIONAL if levels is None else levels
    if any(level in REGISTERS for level in levels):
        raise HistoryError("a spread history is checked for RC, RA and TCC; CCv is TCC for single operations")
    if isinstance(df.schema["value"].dataType, ArrayType):
        raise HistoryError("lists are not spread: give the DataFrame a column `history`, and one task checks them")
    names = [str(row[0]) for row in df.select(F.col("session").cast("string")).distinct().collect()]
    giant = Giant(df, sorted(names))
    try:
        report = giant.report(levels)
        table = _rows("history", report, certificate)
    finally:
        giant.close()
    made: DataFrame = df.sparkSession.createDataFrame(table)
    return made


class Giant:
    """One history, spread. Rows of stage A stay by session until B has them by key."""

    def __init__(self, df: DataFrame, sessions: list[str]) -> None:
        self.df, self.sessions = df, sessions
        self.spark = df.sparkSession
        self.kept: list[DataFrame] = []
        self.numeric = all(isinstance(df.schema[name].dataType, IntegralType) for name in ("key", "value"))

    def close(self) -> None:
        for each in self.kept:
            each.unpersist()

    def report(self, levels: Sequence[Level]) -> Report:
        coded, aborted = self._coded()
        local = self._keep(coded.repartition(F.col("session")).mapInArrow(_consistent(self.sessions), A_ROWS))
        heads = local.where("at = 0").select("session", "pos", "txn", "seq").toArrow()
        first, recorded, self.numbers = _numbered(heads, len(self.sessions))
        known = self._keep(local.repartition(F.col("key")).mapInArrow(_reads_from(first, aborted), B_ROWS))
        counted: Counter[str] = Counter()
        bad = known.where(F.col("what") >= k.THIN).groupBy("what").count().collect()
        for row in bad:
            counted[BAD_NAMES[row["what"]]] += row["count"]
        twice = known.where("twice = 1").count()
        counted.update({"NonRepeatableRead": twice} if twice else {})
        notes = []
        repeated = known.where(F.col("twice") == REPEATED)
        if (count := repeated.count()) > 0:
            one = repeated.orderBy("key", "value").first()
            assert one is not None
            pair = f"({one['key']}, {one['value']})" if self.numeric else "keys and values are hashes here"
            notes.append(f"{count} values were written twice, such as {pair}: reads are ambiguous, the first is taken")
        reads = known.where(F.col("what").isin(k.READ, k.INTERMEDIATE))
        pulled = reads.select("t", "at", "key", "writer", "value").toArrow()
        order = np.lexsort((pulled["at"].to_numpy(), pulled["t"].to_numpy()))
        column = {name: pulled[name].to_numpy()[order] for name in pulled.column_names}
        graph = make_graph(first, column["t"], column["at"], column["key"], column["writer"], column["value"], {})
        columns = Columns(
            "history", first, np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int32),
            np.empty(0, np.int64), 0, recorded, session_names=self.sessions,
        )  # fmt: skip
        rounds = _Spread(self, known, graph)
        report = settle_levels(columns, graph, rounds, levels, counted, notes=notes, operations=coded.count())
        self._tell(report)
        return report

    def _coded(self) -> tuple[DataFrame, tuple[Any, Any]]:
        """Integers for keys and values. Strings are hashed; a collision is refused, never taken as equal."""
        df = self.df
        nothing: tuple[Any, Any] = (np.empty(0, np.int64), np.empty(0, np.int64))
        if not self.numeric:
            for name in ("key", "value"):
                hashed = df.where(F.col(name).isNotNull()).select(name, F.xxhash64(name).alias("h")).distinct()
                if hashed.groupBy("h").count().where("count > 1").limit(1).count():
                    raise HistoryError(
                        f"two values of the column {name!r} have the same hash: code it to integers first"
                    )
                df = df.withColumn(name, F.when(F.col(name).isNotNull(), F.xxhash64(name)))
        for name in ("op", "seq"):
            if name not in df.columns:
                df = df.withColumn(name, F.lit(0) if name == "seq" else F.monotonically_increasing_id())
        self.recorded = "seq" in self.df.columns
        if "status" in df.columns:
            if df.where("status = 'indeterminate'").limit(1).count():
                raise HistoryError("a spread history has no indeterminate transactions: decide which of them committed")
            gone = df.where("status = 'aborted' and kind = 'w'").select("key", "value").toArrow()
            nothing = (gone["key"].to_numpy(), gone["value"].to_numpy())
            df = df.where("status is null or status = 'committed'")
        columns = [F.col("session").cast("string"), F.col("txn").cast("long"), F.col("op").cast("long"), F.col("kind")]
        return df.select(*columns, *(F.col(name).cast("long") for name in ("key", "value", "seq"))), nothing

    def _keep(self, df: DataFrame) -> DataFrame:
        self.kept.append(df.persist(StorageLevel.MEMORY_AND_DISK))
        return self.kept[-1]

    def _tell(self, report: Report) -> None:
        """Fetch the operations of the transactions that findings name."""
        nodes = sorted({t for finding in report.findings for t in finding.nodes() if t >= 0})
        if not nodes:
            return
        places = {t: report.places[t] for t in nodes}
        wanted = [(session, int(self.numbers[t])) for t, (session, _) in places.items()]
        asked = self.spark.createDataFrame(wanted, "session string, txn long")
        df = self.df.withColumn("session", F.col("session").cast("string")).withColumn("txn", F.col("txn").cast("long"))
        rows = df.join(F.broadcast(asked), ["session", "txn"]).collect()
        if "op" in df.columns:
            rows.sort(key=lambda row: row["op"])
        by_place = {place: t for t, place in zip(places, wanted, strict=True)}
        for row in rows:
            t = by_place[row["session"], row["txn"]]
            report.shown.setdefault(t, []).append(Op(row["kind"] != "r", row["key"], row["value"]))


A_ROWS: Final = "session int, pos int, txn long, at int, what byte, twice byte, key long, value long, seq long"
B_ROWS: Final = "key long, value long, what byte, twice byte, t int, at int, writer int"
E_ROWS: Final = "t2 int, t1 int, t3 int, at int, key long"
F_ROWS: Final = "t2 int, t1 int, t3 int, key long, level int"
BAD_NAMES: Final = {
    k.THIN: "ThinAirRead", k.ABORTED: "AbortedRead", k.FUTURE: "FutureRead", k.NOT_OWN: "NotMyOwnWrite",
    k.NOT_LAST: "NotMyLastWrite", k.INTERMEDIATE: "IntermediateRead",
}  # fmt: skip

REPEATED: Final = 2
"""In the column `twice`: a write whose value another write has, too."""

Batches = Iterator[pa.RecordBatch]


def _numbered(heads: pa.Table, sessions: int) -> tuple[Any, Any, Any]:
    """The first number of each session, the recorded order (None: there is none), and the transactions' own numbers."""
    s, pos = heads["session"].to_numpy(), heads["pos"].to_numpy()
    first = np.zeros(sessions + 1, np.int32)
    np.cumsum(np.bincount(s, minlength=sessions), out=first[1:])
    t = first[s] + pos
    recorded, numbers = np.empty(t.size, np.int64), np.empty(t.size, np.int64)
    recorded[t], numbers[t] = heads["seq"].to_numpy(), heads["txn"].to_numpy()
    return first, recorded if recorded.size and recorded.any() else None, numbers


def _whole(batches: Batches) -> pa.Table | None:
    rows = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(rows) if rows else None


def _consistent(sessions: list[str]) -> Any:
    """Stage A: read consistency inside each transaction, by session."""

    def stage(batches: Batches) -> Batches:
        table = _whole(batches)
        if table is None:
            return
        columns = from_table(table, "history")
        assert columns.session_names is not None and columns.recorded is not None
        what, twice = np.zeros(columns.key.size, np.uint8), np.zeros(columns.key.size, np.uint8)
        k.classify(columns.begin, columns.write, columns.key, columns.value, what, twice)
        sizes = np.diff(columns.begin)
        t = np.repeat(np.arange(sizes.size), sizes)
        codes = np.searchsorted(np.array(sessions), np.array(columns.session_names)).astype(np.int32)
        s = np.repeat(np.arange(codes.size), np.diff(columns.first))
        pos = np.arange(sizes.size) - columns.first[s]
        keys = columns.key if columns.key_names is None else columns.key_names[columns.key]
        numbers = columns.numbers if columns.numbers is not None else pos
        made = {
            "session": codes[s][t], "pos": pos[t].astype(np.int32), "txn": numbers[t].astype(np.int64),
            "at": (np.arange(t.size) - columns.begin[t]).astype(np.int32), "what": what.astype(np.int8),
            "twice": twice.astype(np.int8), "key": keys.astype(np.int64), "value": columns.value,
            "seq": columns.recorded[t],
        }  # fmt: skip
        yield from pa.table(made).to_batches()

    return stage


def _reads_from(first: Any, aborted: tuple[Any, Any]) -> Any:
    """Stage B: the writer of every external read, by key."""

    def stage(batches: Batches) -> Batches:
        table = _whole(batches)
        if table is None:
            return
        column = {name: table[name].to_numpy() for name in table.column_names}
        t = (first[column["session"]] + column["pos"]).astype(np.int32)
        order = np.lexsort((column["at"], t))
        t, at, value = t[order], column["at"][order], column["value"][order]
        what, keys = column["what"][order].astype(np.uint8), column["key"][order]
        codes, _, _ = code_keys(keys)
        repeated = np.empty(t.size, np.int64)
        here = {int(key): int(code) for key, code in zip(keys, codes, strict=True)} if aborted[0].size else {}
        bad = [(here[int(x)], v) for x, v in zip(*aborted, strict=True) if int(x) in here]
        gone = np.array([x for x, _ in bad], np.int32), np.array([v for _, v in bad], np.int64)
        writer = np.empty(t.size, np.int32)
        whole = np.array([0, t.size], np.int64)
        count = bykey.match(whole, codes, value, t, np.arange(t.size, dtype=np.int32), what, writer, *gone, repeated)
        twice = column["twice"][order].copy()
        twice[repeated[:count]] = REPEATED
        made = {
            "key": keys, "value": value, "what": what.astype(np.int8), "twice": twice, "t": t,
            "at": at, "writer": writer,
        }  # fmt: skip
        yield from pa.table(made).to_batches()

    return stage


def _between(rank: Any) -> Any:
    """Stage E: candidates, by key. `rank` is a broadcast."""

    def stage(batches: Batches) -> Batches:
        table = _whole(batches)
        if table is None:
            return
        column = {name: table[name].to_numpy() for name in table.column_names}
        keys, what = column["key"], column["what"]
        codes, names, size = code_keys(keys)
        finals = np.flatnonzero(what == k.FINAL)
        finals = finals[np.lexsort((rank.value[column["t"][finals]], codes[finals]))]
        begin = np.searchsorted(codes[finals], np.arange(size + 1))
        reads = np.flatnonzero((what == k.READ) | (what == k.INTERMEDIATE))
        room = 1 << 16
        while True:
            out = np.empty((room, 5), np.int32)
            count = k.candidates(
                column["t"][reads], column["at"][reads], codes[reads], column["writer"][reads], column["t"][finals],
                begin, rank.value, out,
            )  # fmt: skip
            if count <= room:
                break
            room = count
        found = out[:count]
        made = {name: found[:, i] for i, name in enumerate(("t2", "t1", "t3", "at"))}
        made["key"] = (found[:, 4] if names is None else names[found[:, 4]]).astype(np.int64)
        yield from pa.table(made).to_batches()

    return stage


def _tested(graph: Any, wide: int) -> Any:
    """Stage F: clocks of one block of sessions after the other, and the candidates with t2 in it."""

    def stage(batches: Batches) -> Batches:
        table = _whole(batches)
        if table is None:
            return
        first, session, begin, writer, at, order = graph.value
        column = {name: table[name].to_numpy() for name in table.column_names}
        blocks = session[column["t2"]] // wide
        for block in np.unique(blocks):
            mine = np.flatnonzero(blocks == block)
            found = np.stack([column[name][mine] for name in ("t2", "t1", "t3", "at")], axis=1).astype(np.int32)
            low, high = int(block) * wide, min(first.size - 1, (int(block) + 1) * wide)
            clock = k.clocks(first, session, begin, writer, order, low, high)
            level = np.empty(mine.size, np.uint8)
            k.confirm(found, clock, low, first, session, begin, writer, at, level)
            good = level < 255
            made = {name: found[good, i] for i, name in enumerate(("t2", "t1", "t3"))}
            made |= {"key": column["key"][mine][good], "level": level[good].astype(np.int32)}
            yield from pa.table(made).to_batches()

    return stage


class _Spread(Rounds):
    """The rounds with stages E and F on Spark."""

    def __init__(self, giant: Giant, known: DataFrame, graph: Any) -> None:
        nothing = np.empty(0, np.int32)
        super().__init__(graph, bykey.ByKey(np.zeros(1, np.int64), *[nothing] * 5))
        self.giant, self.rows = giant, known
        self.known = np.empty((0, 5), np.int64)

    def edges(self, order: Any, rank: Any) -> Any:
        graph, context = self.graph, self.giant.spark.sparkContext
        graph.rounds += 1
        ranks = context.broadcast(rank)
        found = self.rows.mapInArrow(_between(ranks), E_ROWS)
        whole = context.broadcast((graph.first, graph.session, graph.begin, graph.writer, graph.at, order))
        sessions = graph.first.size - 1
        wide = max(1, min(sessions, BLOCK_BYTES // (4 * max(1, graph.total))))
        blocks = -(-sessions // wide)
        by_block = found.repartition(blocks, "t2") if blocks > 1 else found.coalesce(1)
        edges = by_block.mapInArrow(_tested(whole, wide), F_ROWS).toArrow()
        ranks.destroy()
        whole.destroy()
        return np.stack(
            [edges[name].to_numpy().astype(np.int64) for name in ("t2", "t1", "t3", "key", "level")], axis=1
        )
