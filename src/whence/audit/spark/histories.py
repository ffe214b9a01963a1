"""Client histories on Spark: many side by side, or one spread over the cluster.

    from whence.audit.spark import histories
    checked = histories.check(df, levels=["RC", "RA", "TCC"])

One giant history goes through stages: A read consistency, by session; B reads-from, by key, the one large exchange;
C, D the graph of transactions and a topological order of it, in one place; E writers that this order puts between a
read's writer and its reader, by key; F clocks and the test of these candidates, by blocks of sessions; G a new order if
there were necessary edges, and again from E. docs/histories.md has the schema of the operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegralType, NullType

from whence.audit.history import Anomaly, CycleEdge, History, HistoryReport, Level, Op
from whence.audit.history import check as check_one
from whence.audit.history import kernels as k
from whence.audit.history.check import BAD, Findings, asked_levels, settle_levels
from whence.audit.history.graph import NO_VERSIONS, Graph
from whence.audit.history.levels import PATTERNS
from whence.audit.history.model import INIT
from whence.audit.history.story import story
from whence.audit.history.tables import REQUIRED, SCHEMA, code_keys, from_table
from whence.audit.spark.session import check_workers
from whence.errors import HistoryError

BLOCK_BYTES: Final = 1 << 30
"""Clocks that one task makes at a time."""

RESULT: Final = (
    "history string, part string, level string, holds boolean, operations long, transactions long, sessions long, "
    "pattern string, count long, guarantee string, story string, finding string, smallest boolean, position long, "
    "session string, txn long, notes string, seconds double"
)
FIELDS: Final = {
    "verdict": ("history", "level", "holds", "operations", "transactions", "sessions", "notes", "seconds"),
    "finding": ("history", "level", "pattern", "count", "guarantee", "story", "finding", "smallest"),
    "order": ("history", "level", "position", "session", "txn"),
}
_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
}
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


def read(spark: SparkSession, path: str) -> DataFrame:
    """A Parquet file or folder of operations; raises HistoryError for what is none."""
    try:
        return spark.read.parquet(path)
    except AnalysisException as error:
        raise HistoryError(f"{path}: no Parquet file: {str(error).splitlines()[0]}") from None


def check(
    df: DataFrame, levels: Sequence[Level] | None = None, certificate: bool = False, spread: bool | None = None
) -> Checked:
    """Check the operations in `df`. With a column `history` each history is one task, else the one is spread.

    `spread`: True spreads one history over the cluster, False gives it to one task.
    """
    missing = [name for name in REQUIRED if name not in df.columns]
    if missing:
        raise HistoryError(f"the DataFrame has no column {missing[0]!r}; operations have these:\n{SCHEMA}")
    check_workers(df.sparkSession)
    if "history" not in df.columns:
        spread = True if spread is None else spread
        df = df.withColumn("history", F.lit("history"))
    rows = _spread(df, levels, certificate) if spread else _side_by_side(df, levels, certificate)
    return Checked(*(rows.where(F.col("part") == part).select(*FIELDS[part]) for part in FIELDS))


def _side_by_side(df: DataFrame, levels: Sequence[Level] | None, certificate: bool) -> DataFrame:
    def one(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        name = str(key[0].as_py())
        return _rows(name, check_one(from_table(table, name), levels), certificate)

    grouped: Any = df.groupBy("history")
    found: DataFrame = grouped.applyInArrow(one, RESULT)
    return found.persist(StorageLevel.MEMORY_AND_DISK)


def _rows(name: str, report: HistoryReport, certificate: bool) -> pa.Table:
    """A report as rows of RESULT."""
    sizes: dict[str, Any] = {"operations": report.operations, "transactions": report.transactions}
    sizes |= {"sessions": report.sessions, "seconds": report.seconds}
    sizes |= {"notes": "; ".join(report.notes) or None}
    rows = [{"part": "verdict", "level": level, "holds": holds, **sizes} for level, holds in report.levels.items()]
    shown = {finding.pattern: finding for finding in reversed(report.findings)}
    smallest = report.counterexample()
    shown |= {smallest.pattern: smallest} if smallest else {}
    told = story(report) if report.findings else None
    for pattern, count in report.patterns.items():
        row = {"part": "finding", "level": PATTERNS[pattern][0][0], "pattern": pattern, "count": count, "story": told}
        if (finding := shown.get(pattern)) is not None:
            row |= {"guarantee": finding.guarantee, "finding": json.dumps(report.finding_dict(finding), default=str)}
        rows.append(row | {"smallest": finding is not None and finding is smallest})
    if certificate and report.order is not None:
        for position, t in enumerate(report.order):
            session, txn = report.place(int(t))
            row = {"part": "order", "level": report.certified, "position": position}
            rows.append(row | {"session": session, "txn": txn})
    rows = [{"history": name, **row} for row in rows]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


# -- one giant history


def _spread(df: DataFrame, levels: Sequence[Level] | None, certificate: bool) -> DataFrame:
    if "CM" in (levels or ()):
        raise HistoryError("CM takes quadratic memory: give the DataFrame a column `history`, and one task checks it")
    told = df.select(F.col("session").cast("string").alias("session"), "kind").distinct().collect()
    bad = sorted({str(row["kind"]) for row in told} - {"r", "w", "a"})
    if bad or any(row["session"] is None for row in told):
        raise HistoryError(f"the kind is r, w or a, not {bad[0]!r}" if bad else "the column 'session' has a null")
    if not told:
        raise HistoryError("the DataFrame holds no operation, so there is nothing to check")
    started = perf_counter()
    giant = Giant(df, sorted({row["session"] for row in told}))
    try:
        report = giant.report(levels)
        report.seconds = perf_counter() - started
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
        value = df.schema["value"].dataType
        self.lists = isinstance(value, ArrayType)
        types = (df.schema["key"].dataType, value.elementType if isinstance(value, ArrayType) else value)
        self.numeric = all(isinstance(each, IntegralType | NullType) for each in types)

    def close(self) -> None:
        for each in self.kept:
            each.unpersist()

    def report(self, levels: Sequence[Level] | None) -> HistoryReport:
        coded, aborted = self._coded()
        by_session = coded.repartition(F.col("session"))
        value = "array<long>" if self.lists else "long"
        local = self._keep(by_session.mapInArrow(_consistent(self.sessions), A_ROWS.format(value)))
        heads = local.where("at = 0").select("session", "pos", "txn", "seq").toArrow()
        first, recorded, self.numbers = _numbered(heads, len(self.sessions))
        operations = local.count()
        single = not self.lists and operations == heads.num_rows
        levels = asked_levels("history", levels, single, operations)
        stage = (_lists_from if self.lists else _reads_from)(first, aborted)
        known = self._keep(local.repartition(F.col("key")).mapInArrow(stage, B_ROWS))
        reads = known.where(F.col("what").isin(k.READ, k.INTERMEDIATE))
        pulled = reads.select("t", "at", "key", "writer", "value").toArrow()
        order = np.lexsort((pulled["at"].to_numpy(), pulled["t"].to_numpy()))
        column = {name: pulled[name].to_numpy()[order] for name in pulled.column_names}
        history = History(
            "history", first, np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int32),
            np.empty(0, np.int64), 0, recorded, session_names=self.sessions,
        )  # fmt: skip
        versions = NO_VERSIONS
        if self.lists:
            pairs = known.where(F.col("what") == VERSION).select("t", "writer", "key").toArrow()
            versions = np.stack([pairs[name].to_numpy().astype(np.int64) for name in pairs.column_names], axis=1)
        nobody = np.zeros(1, np.int64), np.empty(0, np.int32)
        c = column
        graph = _Spread(history, c["t"], c["at"], c["key"], c["writer"], c["value"], nobody, versions)
        graph.spark, graph.rows = self.spark, known
        report = settle_levels(graph, levels, self._bad(known), operations)
        self._tell(report)
        return report

    def _bad(self, known: DataFrame) -> Findings:
        """How many reads are wrong by themselves, by pattern; and values that were written twice."""
        found = Findings([])
        for row in known.where((F.col("what") >= k.THIN) & (F.col("what") < VERSION)).groupBy("what").count().collect():
            found.counts[BAD_NAMES[row["what"]]] += row["count"]
        twice = known.where("twice = 1").count()
        found.counts.update({"NonRepeatableRead": twice} if twice else {})
        repeated = known.where(F.col("twice") == k.REPEATED)
        if (count := repeated.count()) > 0:
            one = repeated.orderBy("key", "value").first()
            assert one is not None
            pair = f"({one['key']}, {one['value']})" if self.numeric else "keys and values are hashes here"
            found.notes.append(
                f"{count} values were written twice, such as {pair}: reads are ambiguous, the first is taken"
            )
        return found

    def _coded(self) -> tuple[DataFrame, tuple[Any, Any]]:
        """Integers for keys and values. Strings are hashed; a collision is refused, never taken as equal."""
        df = self.df
        nothing: tuple[Any, Any] = (np.empty(0, np.int64), np.empty(0, np.int64))
        if not self.numeric:
            for name in ("key", "value"):
                each = F.explode(name) if name == "value" and self.lists else F.col(name)
                whole = df.select(each.alias("one")).where("one is not null").distinct()
                hashed = whole.select(F.xxhash64("one").alias("h"))
                if hashed.groupBy("h").count().where("count > 1").limit(1).count():
                    raise HistoryError(
                        f"two values of the column {name!r} have the same hash: code it to integers first"
                    )
            df = df.withColumn("key", self._hash("key")).withColumn("value", self._hash("value"))
        for name in ("op", "seq"):
            if name not in df.columns:
                df = df.withColumn(name, F.lit(0) if name == "seq" else F.monotonically_increasing_id())
        if "status" in df.columns:
            if df.where("status = 'indeterminate'").limit(1).count():
                raise HistoryError("a spread history has no indeterminate transactions: decide which of them committed")
            value = F.col("value")[0] if self.lists else F.col("value")
            gone = df.where("status = 'aborted' and kind != 'r'").select("key", value.cast("long").alias("value"))
            table = gone.toArrow()
            nothing = (table["key"].to_numpy(), table["value"].to_numpy())
            df = df.where("status is null or status = 'committed'")
        columns = [F.col("session").cast("string"), F.col("txn").cast("long"), F.col("op").cast("long"), F.col("kind")]
        value = F.col("value").cast("array<long>" if self.lists else "long")
        return df.select(*columns, F.col("key").cast("long"), value, F.col("seq").cast("long")), nothing

    def _hash(self, name: str) -> Column:
        """Null stays null."""
        if name == "value" and self.lists:
            return F.transform("value", lambda each: F.xxhash64(each))
        return F.when(F.col(name).isNotNull(), F.xxhash64(name))

    def _keep(self, df: DataFrame) -> DataFrame:
        self.kept.append(df.persist(StorageLevel.MEMORY_AND_DISK))
        return self.kept[-1]

    def _tell(self, report: HistoryReport) -> None:
        """Fetch the operations of the transactions that findings name."""
        nodes = sorted({t for finding in report.findings for t in finding.nodes() if t >= 0})
        if not nodes:
            return
        places = {t: report.place(t) for t in nodes}
        wanted = [(session, int(self.numbers[t])) for t, (session, _) in places.items()]
        asked = self.spark.createDataFrame(wanted, "session string, txn long")
        df = self.df.withColumn("session", F.col("session").cast("string")).withColumn("txn", F.col("txn").cast("long"))
        if not self.numeric:
            df = df.withColumn("key_hash", self._hash("key")).withColumn("value_hash", self._hash("value"))
        rows = df.join(F.broadcast(asked), ["session", "txn"]).collect()
        if "op" in df.columns:
            rows.sort(key=lambda row: row["op"])
        by_place = {place: t for t, place in zip(places, wanted, strict=True)}
        names: dict[Any, Any] = {}
        for row in rows:
            t = by_place[row["session"], row["txn"]]
            write, value = row["kind"] != "r", row["value"]
            if self.lists:
                value = value[0] if write else tuple(value or ())
            report.shown.setdefault(t, []).append(Op(write, row["key"], value))
            if not self.numeric:
                names[row["key_hash"]] = row["key"]
                seen = (row["value_hash"], row["value"]) if self.lists else ([row["value_hash"]], [row["value"]])
                names |= dict(zip(*(each or () for each in seen), strict=True))
        report.findings = [_renamed(finding, names) for finding in report.findings]


def _renamed(finding: Anomaly, names: dict[Any, Any]) -> Anomaly:
    """Keys and values as the source has them, instead of their hashes."""
    if not names:
        return finding

    def named(step: CycleEdge) -> CycleEdge:
        key, value = names.get(step.key, step.key), names.get(step.value, step.value)
        return replace(step, key=key, value=value, past=tuple(map(named, step.past)))

    keys = tuple(names.get(key, key) for key in finding.keys)
    return replace(finding, keys=keys, edges=tuple(map(named, finding.edges)))


A_ROWS: Final = "session int, pos int, txn long, at int, what byte, twice byte, key long, value {}, seq long"
B_ROWS: Final = "key long, value long, what byte, twice byte, t int, at int, writer int"
E_ROWS: Final = "t2 int, t1 int, t3 int, at int, key long"
F_ROWS: Final = "t2 int, t1 int, t3 int, key long, level int"
APART: Final = 20
"""A row of its own for a list that is no prefix of the longest."""
VERSION: Final = 21
"""A row of its own for neighbours in the longest list of a key: `t`, then `writer`."""
BAD_NAMES: Final = BAD | {APART: "IncompatibleOrder"}

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


def _stage(work: Callable[[pa.Table], dict[str, Any]]) -> Callable[[Batches], Batches]:
    """As `mapInArrow` takes it: the rows of a task as one table in, columns out."""

    def stage(batches: Batches) -> Batches:
        rows = [batch for batch in batches if batch.num_rows]
        if rows:
            yield from pa.table(work(pa.Table.from_batches(rows))).to_batches()

    return stage


def _consistent(sessions: list[str]) -> Any:
    """Stage A: read consistency inside each transaction, by session."""

    def work(table: pa.Table) -> dict[str, Any]:
        columns = from_table(table, "history")
        assert columns.session_names is not None and columns.recorded is not None
        what, twice = np.zeros(columns.key.size, np.uint8), np.zeros(columns.key.size, np.uint8)
        value: Any = columns.value
        if columns.lists is None:
            k.classify(columns.begin, columns.write, columns.key, columns.value, columns.keys, what, twice)
        else:
            what = np.where(columns.write == 1, k.FINAL, k.READ).astype(np.uint8)
            value = pa.ListArray.from_arrays(pa.array(columns.lists[0], pa.int32()), pa.array(columns.lists[1]))
        sizes = np.diff(columns.begin)
        t = np.repeat(np.arange(sizes.size), sizes)
        codes = np.searchsorted(np.array(sessions), np.array(columns.session_names, str)).astype(np.int32)
        s = np.repeat(np.arange(codes.size), np.diff(columns.first))
        pos = np.arange(sizes.size) - columns.first[s]
        keys = columns.key if columns.key_names is None else columns.key_names[columns.key]
        numbers = columns.labels if columns.labels is not None else pos
        return {
            "session": codes[s][t], "pos": pos[t].astype(np.int32), "txn": numbers[t].astype(np.int64),
            "at": (np.arange(t.size) - columns.begin[t]).astype(np.int32), "what": what.astype(np.int8),
            "twice": twice.astype(np.int8), "key": keys.astype(np.int64), "value": value, "seq": columns.recorded[t],
        }  # fmt: skip

    return _stage(work)


def _reads_from(first: Any, aborted: tuple[Any, Any]) -> Any:
    """Stage B: the writer of every external read, by key."""

    def work(table: pa.Table) -> dict[str, Any]:
        column = {name: table[name].to_numpy() for name in table.column_names}
        t = (first[column["session"]] + column["pos"]).astype(np.int32)
        order = np.lexsort((column["at"], t))
        t, at, value = t[order], column["at"][order], column["value"][order]
        what, keys = column["what"][order].astype(np.uint8), column["key"][order]
        codes, _, size = code_keys(keys)
        twice = column["twice"][order].astype(np.uint8)
        writer = k.match(codes, value, t, size, _gone(keys, codes, aborted), what, twice)
        return {
            "key": keys, "value": value, "what": what.astype(np.int8), "twice": twice.astype(np.int8), "t": t,
            "at": at, "writer": writer,
        }  # fmt: skip

    return _stage(work)


def _gone(keys: Any, codes: Any, aborted: tuple[Any, Any]) -> tuple[Any, Any]:
    """What aborted transactions wrote to these keys, coded."""
    here = {int(key): int(code) for key, code in zip(keys, codes, strict=True)} if aborted[0].size else {}
    bad = [(here[int(x)], v) for x, v in zip(*aborted, strict=True) if int(x) in here]
    return np.array([x for x, _ in bad], np.int32), np.array([v for _, v in bad], np.int64)


def _lists_from(first: Any, aborted: tuple[Any, Any]) -> Any:
    """Stage B of lists: all their rules, for they speak of one key at a time."""

    def work(table: pa.Table) -> dict[str, Any]:
        column = {name: table[name].to_numpy() for name in table.column_names if name != "value"}
        t = (first[column["session"]] + column["pos"]).astype(np.int32)
        order = np.lexsort((column["at"], t))
        t, at, keys = t[order], column["at"][order], column["key"][order]
        lists: Any = table["value"].take(order).combine_chunks()
        codes, names, size = code_keys(keys)
        txns, begin = np.unique(t, return_index=True)
        write = (column["what"][order] == k.FINAL).astype(np.uint8)
        judged = k.judge_lists(
            np.append(begin, t.size).astype(np.int64), write, codes, lists.offsets.to_numpy().astype(np.int64),
            lists.flatten().to_numpy().astype(np.int64), size, _gone(keys, codes, aborted),
        )  # fmt: skip
        writer = np.where(judged.writer >= 0, txns[judged.writer], INIT)
        apart, pairs = np.flatnonzero(judged.apart), judged.versions
        of_pairs = pairs[:, 2] if names is None else names[pairs[:, 2]]
        nothing = np.zeros(apart.size + len(pairs), np.int64)
        what = np.repeat([APART, VERSION], [apart.size, len(pairs)])
        return {
            "key": np.concatenate([keys, keys[apart], of_pairs]).astype(np.int64),
            "value": np.concatenate([judged.value, nothing]),
            "what": np.concatenate([judged.what, what]).astype(np.int8),
            "twice": np.concatenate([judged.twice, nothing]).astype(np.int8),
            "t": np.concatenate([t, t[apart], txns[pairs[:, 0]]]).astype(np.int32),
            "at": np.concatenate([at, at[apart], nothing[apart.size :]]).astype(np.int32),
            "writer": np.concatenate([writer, nothing[: apart.size], txns[pairs[:, 1]]]).astype(np.int32),
        }

    return _stage(work)


def _between(orders: Any) -> Any:
    """Stage E: candidates, by key. `orders`: the order and the ranks, as a broadcast."""

    def work(table: pa.Table) -> dict[str, Any]:
        order, ranked = orders.value
        column = {name: table[name].to_numpy() for name in table.column_names}
        keys, what = column["key"], column["what"]
        codes, names, size = code_keys(keys)
        finals = np.flatnonzero(what == k.FINAL)
        begin, ranks = k.sort_pairs(codes[finals], ranked[column["t"][finals]], size)
        k.sort_each(begin, ranks)
        reads = np.flatnonzero((what == k.READ) | (what == k.INTERMEDIATE))
        found = k.candidates(
            column["t"][reads], column["at"][reads], codes[reads], column["writer"][reads], begin, ranks, order, ranked
        )
        made = {name: found[:, i] for i, name in enumerate(("t2", "t1", "t3", "at"))}
        made["key"] = (found[:, 4] if names is None else names[found[:, 4]]).astype(np.int64)
        return made

    return _stage(work)


def _tested(graph: Any, wide: int) -> Any:
    """Stage F: clocks of one block of sessions after the other, and the candidates with t2 in it."""

    def work(table: pa.Table) -> dict[str, Any]:
        txns, order = graph.value
        column = {name: table[name].to_numpy() for name in table.column_names}
        blocks = txns.session[column["t2"]] // wide
        parts: list[pa.Table] = []
        for block in np.unique(blocks):
            mine = np.flatnonzero(blocks == block)
            found = np.stack([column[name][mine] for name in ("t2", "t1", "t3", "at")], axis=1).astype(np.int32)
            low, high = int(block) * wide, min(txns.first.size - 1, (int(block) + 1) * wide)
            clock = k.clocks(txns, order, low, high)
            level = np.empty(mine.size, np.uint8)
            k.confirm(found, clock, low, txns, level)
            good = level < 255
            made = {name: found[good, i] for i, name in enumerate(("t2", "t1", "t3"))}
            parts.append(pa.table(made | {"key": column["key"][mine][good], "level": level[good].astype(np.int32)}))
        whole = pa.concat_tables(parts)
        return {name: whole[name] for name in whole.column_names}

    return _stage(work)


class _Spread(Graph):
    """The graph with stages E and F on Spark."""

    spark: SparkSession
    rows: DataFrame

    def every_edge(self) -> None:
        return None

    def edges(self, order: Any, rank: Any, everything: bool = False) -> Any:
        context = self.spark.sparkContext
        ranks = context.broadcast((order, rank))
        found = self.rows.mapInArrow(_between(ranks), E_ROWS)
        whole = context.broadcast((self.txns, order))
        sessions = self.first.size - 1
        wide = max(1, min(sessions, BLOCK_BYTES // (4 * max(1, self.total))))
        blocks = -(-sessions // wide)
        by_block = found.repartition(blocks, "t2") if blocks > 1 else found.coalesce(1)
        edges = by_block.mapInArrow(_tested(whole, wide), F_ROWS).toArrow()
        ranks.destroy()
        whole.destroy()
        return np.stack(
            [edges[name].to_numpy().astype(np.int64) for name in ("t2", "t1", "t3", "key", "level")], axis=1
        )
