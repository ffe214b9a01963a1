"""Streams and sweeps under bad files and full disks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.audit.spark import traces as spark_traces
from tests.audit.spark.disk import fill
from tests.audit.spark.traces import spoil
from whence.audit import audit_files, read_table
from whence.audit.spark import stream
from whence.audit.spark.stream import StreamAudit, watch
from whence.audit.spark.sweep import Grid, finished, run_missing
from whence.errors import TraceError

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def tables() -> list[pa.Table]:
    """Four small runs; in each one thing of each kind is wrong."""
    return spark_traces.make(8_000, runs=4, origins=5, members=20, wrongs=4)[0]


def quarantined(rows: list[Any]) -> Counter[str]:
    return Counter(Path(row.file).name for row in rows)


def test_a_full_disk_under_a_sweep(
    spark: SparkSession,
    small_disk: Path,
) -> None:
    grid = Grid("g", "json:dumps", 1, {}, {"x": [1]})
    run_missing(spark, grid, small_disk / "sweep")  # dumps gives no dict: a point that fails is a result, too
    assert len(finished(small_disk / "sweep")) == 1
    fill(small_disk)
    with pytest.raises(TraceError, match="No space left on device"):
        run_missing(spark, Grid("g", "json:dumps", 9, {}, {"x": [1, 2]}), small_disk / "sweep")
    (small_disk / "ballast").unlink()
    assert finished(small_disk / "sweep")  # what was finished before is still there
    run_missing(spark, Grid("g", "json:dumps", 9, {}, {"x": [1, 2]}), small_disk / "sweep")
    assert len(finished(small_disk / "sweep")) == 18


def of_stream(spark: SparkSession, out: Path, table: str) -> list[Any]:
    return spark.read.parquet(*map(str, stream.finished(out, table))).collect()


def test_a_stream_over_bad_files(spark: SparkSession, tmp_path: Path, tables: list[pa.Table]) -> None:
    trace, out = tmp_path / "trace", tmp_path / "watch"
    spark_traces.write(tables[:3], trace)
    reasons = spoil(trace, tables)
    with StreamAudit(trace, out) as sink:
        watch(sink, once=True)
        sink.settle()
    found = audit_files([trace], tmp_path / "batch")
    batch = read_table(spark, tmp_path / "batch", "verdicts").collect()
    streamed = of_stream(spark, out, "verdicts")
    assert sorted(map(str, streamed)) == sorted(map(str, batch)) and len(batch) == found.deliveries
    told = quarantined(of_stream(spark, out, "quarantine"))
    assert told == quarantined(read_table(spark, tmp_path / "batch", "quarantine").collect())
    assert set(told) == set(reasons)


def test_a_full_disk_under_a_stream(
    spark: SparkSession,
    tmp_path: Path,
    small_disk: Path,
    tables: list[pa.Table],
) -> None:
    trace, out = tmp_path / "trace", small_disk / "watch"
    spark_traces.write(tables, trace)
    audit_files([trace], tmp_path / "batch")
    fill(small_disk, but=32_768)
    with StreamAudit(trace, out) as sink, pytest.raises(TraceError, match="No space left on device"):
        watch(sink, once=True)
    (small_disk / "ballast").unlink()
    with StreamAudit(trace, out) as sink:  # with room it goes on, and gives what the batch gives
        watch(sink, once=True)
        sink.settle()
    streamed = of_stream(spark, out, "verdicts")
    batch = read_table(spark, tmp_path / "batch", "verdicts").collect()
    assert sorted(map(str, streamed)) == sorted(map(str, batch))
