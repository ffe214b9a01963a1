"""Rows on their way between tasks: one block for each run that a piece of a file holds, as one row of the shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from whence.judge.batch.coding import READ, codes
from whence.spark import ingest
from whence.spark.ingest import Piece
from whence.spark.json_lines import schema_of
from whence.spark.parts import Parts

_BLOCKS: Final = "run string, cluster string, rows long, block binary, piece int"

Run = tuple[str, str]
"""A run and its cluster."""


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


def read(pieces: Sequence[Piece], stage: str) -> pa.Table:
    """The rows of these pieces with their file; what is no row goes to the quarantine, in a file named after the piece:
    however often it is read, it is there once."""
    tables = []
    for piece in pieces:
        table, bad = ingest.read_piece(piece, READ)
        if bad:
            name = blake2b(f"{piece.file} {piece.first}".encode(), digest_size=8).hexdigest()
            with Parts(stage, f"piece-{name}") as parts:
                parts.write("quarantine", ingest.bad_table(bad))
        zeros: Any = np.zeros(table.num_rows, np.int32)
        files = pa.DictionaryArray.from_arrays(pa.array(zeros), [piece.file])
        tables.append(table.append_column("file", files))
    return pa.concat_tables(tables)


Split = Callable[[str, str, pa.Table], Iterable[tuple[str, str, pa.Table]]]


def blocks(spark: SparkSession, pieces: Sequence[Piece], stage: str, split: Split) -> DataFrame:
    """The rows of these pieces as blocks: compressed Arrow tables, text still as dictionaries. `split` cuts the rows of
    a run in a piece further, or leaves some out. Columns without any value (there are many) are left out, too. With
    the blocks in the order of pieces, as files are written, mostly nothing has to be sorted."""

    def work(job: tuple[int, Piece]) -> Iterator[pa.RecordBatch]:
        number, piece = job
        rows = read([piece], stage)
        filled = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
        for run, cluster, table in by_run(rows.select(filled)):
            for name, part, mine in split(run, cluster, table):
                if mine.num_rows:
                    yield _block(name, part, mine, number)

    return ingest.over(spark, list(enumerate(pieces)), work, _BLOCKS)


def _block(run: str, cluster: str, table: pa.Table, piece: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.unify_dictionaries().combine_chunks())
    data = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    named = pa.array([run]), pa.array([cluster]), pa.array([table.num_rows])
    number = pa.array([piece], pa.int32())
    return pa.RecordBatch.from_arrays([*named, data, number], names=["run", "cluster", "rows", "block", "piece"])


def unpacked(blocks_of_one: Iterable[bytes]) -> pa.Table:
    """The rows of these blocks, with all columns."""
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks_of_one]
    rows = pa.concat_tables(tables, promote_options="default")
    for column in schema_of(READ[2:]):
        if column.name not in rows.column_names:
            rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.type))
    return rows


def groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, list[bytes]]]:
    """The blocks of each run, which come one after the other."""
    now: tuple[str, str] | None = None
    mine: list[bytes] = []
    for batch in batches:
        for run, cluster, block in zip(*(batch.column(c).to_pylist() for c in (0, 1, 3)), strict=True):
            if now is not None and (run, cluster) != now:
                yield *now, mine
                mine = []
            now = run, cluster
            mine.append(block)
    if now is not None:
        yield *now, mine
