"""Traces as a source of Spark, for `spark.read`.

    from whence.audit import register
    register(spark)
    rows = spark.read.format("whence").load("s3://bucket/traces")       # then: whence.audit.audit(rows)

The rows have the columns of the table `events`, and `position`, `bad` and `raw`: where something is no row, `bad` says
why, with its text in `raw`; `audit` puts it into the quarantine. A partition is a piece of a file. Spark does not prune
columns of sources in Python; with a schema of one's own (`spark.read.schema("run string, member string, ...")`) only
its columns are read. (A source that takes filters does not work at all in a session where that is not switched on.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from whence.audit.spark import ingest
from whence.audit.spark.ingest import Bad, Piece
from whence.audit.trace.schema import COLUMNS
from whence.errors import UsageError

_NAMES: Final = tuple(column.name for column in COLUMNS)


def register(spark: SparkSession) -> None:
    """Make the format `whence` known to this session."""
    spark.dataSource.register(_Traces)


def _paths(options: MutableMapping[str, str]) -> list[str]:
    """What `load` was given: a path, or several."""
    if "paths" in options:
        some: list[str] = json.loads(options["paths"])
        return some
    if "path" not in options:
        raise UsageError("no path: load('traces'), or .option('path', 'traces')")
    return [options["path"]]


class _Traces(DataSource):
    """`format("whence")`: traces as files, directories and globs, anywhere."""

    @classmethod
    def name(cls) -> str:
        return "whence"

    def schema(self) -> StructType | str:
        return from_arrow_schema(ingest.RAW)

    def reader(self, schema: StructType) -> _TraceReader:
        return _TraceReader(_paths(self.options), schema.names)


class _TraceReader(DataSourceReader):
    """A partition is a piece of a file, or a file that is no trace."""

    def __init__(self, paths: Sequence[str], columns: Sequence[str]) -> None:
        self._paths, self._columns = paths, columns

    def partitions(self) -> Sequence[InputPartition]:
        pieces, bad = ingest.plan(ingest.find(self._paths))
        return [InputPartition(job) for job in (*pieces, *bad)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._columns, partition.value)


def _rows(columns: Sequence[str], job: Piece | Bad) -> Iterator[pa.RecordBatch]:
    """What is in a piece of a file: these columns of `ingest.RAW`."""
    names = [name for name in _NAMES if name in columns]
    none = ingest.schema_of(names).empty_table()
    table, bad = ingest.read_piece(job, names) if isinstance(job, Piece) else (none, [job])
    yield from ingest.raw_rows(job.file, table, bad).select(list(columns)).to_batches(max_chunksize=1 << 16)


def read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """As `spark.read.format("whence")`, with tasks that read several pieces each."""
    pieces, bad = ingest.plan(ingest.find(paths))
    return ingest.over(spark, [*pieces, *bad], partial(_rows, ingest.RAW.names), from_arrow_schema(ingest.RAW))
