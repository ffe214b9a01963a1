"""Rows on their way between tasks: one block for each run that a piece of a file holds, as one row of the shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.coding import READ, codes
from whence.audit.spark import ingest
from whence.audit.spark.findings import Out, RunFindings, Terms, judge_runs, refused, task_number
from whence.audit.spark.ingest import Bad, Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOCKS: Final = "run string, cluster string, rows long, block binary, piece long"
"""`piece`: where the block comes from; in this order rows mostly need no sorting."""

BLOCK_ROWS: Final = 1 << 18
"""Rows that are packed at a time: large enough for their dictionaries to pay."""

KEYS: Final = ("run", "cluster", "member", "lseq", "kind")
"""Columns that have a value in every row."""

REFUSED: Final = "\0refused"
"""In the column `run`: a block of quarantined rows. (Its `cluster` only spreads such blocks over tasks.)"""

NOTICE: Final = "\0notice"
"""In the column `run`: rows were refused of which nobody knows whose they were; for all tasks."""


def by_run(table: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
    """The rows of each run and cluster, without these two columns."""
    if not table.num_rows:
        return
    (run, runs), (cluster, clusters) = codes(table["run"]), codes(table["cluster"])
    rest = table.drop_columns(["run", "cluster"])
    if len(runs) == len(clusters) == 1:
        yield str(runs[0]), str(clusters[0]), rest
        return
    key = run * np.int64(len(clusters)) + cluster
    order = np.argsort(key, kind="stable")
    rest = rest.unify_dictionaries().take(order)
    keys, begin = np.unique(key[order], return_index=True)
    for k, a, b in zip(keys.tolist(), begin.tolist(), [*begin.tolist()[1:], len(key)], strict=True):
        yield str(runs[k // len(clusters)]), str(clusters[k % len(clusters)]), rest.slice(a, b - a)


def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of the gate as blocks, and what is no row as blocks of the quarantine."""
    number = task_number() << 32
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BLOCK_ROWS:
            yield from _packed(waiting, number)
            waiting, rows, number = [], 0, number + 1
    if rows:
        yield from _packed(waiting, number)


def _packed(batches: list[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    for at, field in enumerate(table.schema):
        if not pa.types.is_integer(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.string()).dictionary_encode())
    yield from _blocks(*ingest.sound(table, KEYS), number)


def _blocks(rows: pa.Table, bad: Sequence[Bad], number: int) -> Iterator[pa.RecordBatch]:
    """Blocks of these rows, without columns that have no value, and one of the quarantine."""
    if bad:
        yield _block(REFUSED, str(number), ingest.bad_table(bad), number)
        rows = ingest.lost(rows, bad)
    if not all(one.placed for one in bad):
        yield _block(NOTICE, "", ingest.bad_table([]), number)
    filled = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
    for run, cluster, mine in by_run(rows.select(filled)):
        yield _block(run, cluster, mine, number)


def of_pieces(spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
    """The rows of these pieces as blocks. With the blocks in the order of pieces, as files are written, mostly nothing
    has to be sorted."""

    return ingest.over(spark, list(enumerate(pieces)), lambda job: of_piece(*job), BLOCKS)


def of_piece(number: int, piece: Piece) -> Iterator[pa.RecordBatch]:
    """The rows of this piece as blocks, and what is no row as a block of the quarantine."""
    return _blocks(*read([piece]), number)


def read(pieces: Sequence[Piece]) -> tuple[pa.Table, list[Bad]]:
    """The rows of these pieces with their file, those that are lost among them (`ingest.lost`); and what is no row."""
    tables, wrong = [], []
    for piece in pieces:
        table, bad = ingest.read_piece(piece, READ)
        wrong += bad
        table = table.append_column("file", ingest.constant(piece.file, "file", table.num_rows))
        tables.append(ingest.lost(table, bad))
    return pa.concat_tables(tables), wrong


def judge_pieces(runs: Iterable[Sequence[Piece]], terms: Terms) -> Iterator[RunFindings]:
    """Judge the runs in each of these groups of pieces. A run is in one group."""

    def tables() -> Iterator[pa.Table | RunFindings]:
        for mine in runs:
            rows, bad = read(mine)
            if bad:
                yield refused(ingest.bad_table(bad))
            if all(one.placed for one in bad):
                yield rows
            elif rows.num_rows:
                yield judge_runs(rows, terms.doubted())

    return _judged_together(tables(), terms)


def _judged_together(found: Iterable[pa.Table | RunFindings], terms: Terms) -> Iterator[RunFindings]:
    """Judge the rows in these tables, small ones together: a call costs as much as thousands of rows. A run is in one
    table."""
    waiting: list[pa.Table] = []
    rows = 0
    for one in found:
        if isinstance(one, RunFindings):
            yield one
            continue
        waiting.append(one)
        rows += one.num_rows
        if rows >= BLOCK_ROWS:
            yield judge_runs(pa.concat_tables(waiting, promote_options="permissive"), terms)
            waiting, rows = [], 0
    if rows:
        yield judge_runs(pa.concat_tables(waiting, promote_options="permissive"), terms)


def pack(table: pa.Table) -> bytes:
    """A block: a compressed Arrow table, text as dictionaries; of a small run without the texts of others."""
    columns: list[Any] = table.columns
    for at, column in enumerate(columns):
        if pa.types.is_dictionary(column.type) and sum(len(c.dictionary) for c in column.chunks) > table.num_rows:
            table = table.set_column(at, table.field(at), column.cast(pa.string()).dictionary_encode())
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.unify_dictionaries().combine_chunks())
    return sink.getvalue().to_pybytes()


def _block(run: str, cluster: str, table: pa.Table, piece: int) -> pa.RecordBatch:
    data = pa.array([pack(table)], pa.binary())
    named = pa.array([run]), pa.array([cluster]), pa.array([table.num_rows])
    number = pa.array([piece], pa.int64())
    return pa.RecordBatch.from_arrays([*named, data, number], names=["run", "cluster", "rows", "block", "piece"])


def unpacked(blocks_of_one: Iterable[bytes]) -> pa.Table:
    """The rows of these blocks, with all columns in their order; one that no block has gets its default."""
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks_of_one]
    rows = pa.concat_tables(tables, promote_options="default")
    there, n = set(rows.column_names), rows.num_rows
    unplaced = {"position": pa.repeat(pa.scalar(-1), n), "file": ingest.constant("", "file", n)}
    lacking = {name: ingest.constant(0 if name == "t_ns" else None, name, n) for name in READ[2:]} | unplaced
    columns = [rows[name] if name in there else lacking[name] for name in lacking]
    return pa.table(columns, names=list(lacking))


def judged(blocks: DataFrame, out: Out, terms: Terms, tasks: int) -> DataFrame:
    """The blocks of a run come to one of so many tasks, which judges it. `out`: how findings leave the task."""

    from pyspark.sql import functions as F

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[RunFindings]:
        found = groups(batches)
        first = next(found, None)
        noticed = first is not None and first[0] == NOTICE

        def tables() -> Iterator[pa.Table | RunFindings]:
            for run, cluster, mine in found if noticed or first is None else chain([first], found):
                if run == REFUSED:
                    yield from (refused(pa.ipc.open_stream(block).read_all()) for block in mine)
                else:
                    yield _named(unpacked(mine), run, cluster)

        return _judged_together(tables(), terms.doubted() if noticed else terms)

    all_, one = F.sequence(F.lit(0), F.lit(tasks - 1)), F.pmod(F.hash("run", "cluster"), F.lit(tasks))
    notice = F.col("run") == NOTICE
    placed = blocks.withColumn("task", F.explode(F.when(notice, all_).otherwise(F.array(one))))
    together = placed.repartitionById(tasks, "task").sortWithinPartitions(~notice, "run", "cluster", "piece")
    return together.mapInArrow(lambda batches: out.emit(task(batches)), out.schema)


def _named(table: pa.Table, run: str, cluster: str) -> pa.Table:
    """The rows of a run with these two columns."""
    for name, value in (("run", run), ("cluster", cluster)):
        table = table.append_column(name, ingest.constant(value, name, table.num_rows))
    return table


def groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, list[bytes]]]:
    """The blocks of each run, which come one after the other."""
    rows = (row for batch in batches for row in zip(*(batch.column(c).to_pylist() for c in (0, 1, 3)), strict=True))
    for (run, cluster), mine in groupby(rows, itemgetter(0, 1)):
        yield run, cluster, [block for _, _, block in mine]
