"""Streams and sweeps under bad files and full disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.spark import traces as spark_traces
from tests.audit.spark.disk import fill
from tests.audit.spark.traces import spoil
from whence.audit import audit_files
from whence.audit.spark.growing import follow
from whence.audit.spark.sweep import Grid, finished, keep, missing
from whence.audit.spark.tables import table_files
from whence.errors import TraceError


@pytest.fixture(scope="module")
def tables() -> list[pa.Table]:
    """Four small runs; in each one thing of each kind is wrong."""
    return spark_traces.make(8_000, runs=4, origins=5, members=20, wrongs=4)[0]


def rows_of(files: Iterable[Path | str]) -> list[dict[str, Any]]:
    return sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=str)


def quarantined(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(Path(row["file"]).name for row in rows)


def test_a_full_disk_under_a_sweep(small_disk: Path) -> None:
    """In a task; the driver names what Spark makes of it (`disk_errors`)."""
    few, many = (Grid("g", "json:dumps", seeds, {}, {"x": [1]}) for seeds in (1, 9))
    points = small_disk / "points"
    points.mkdir()
    keep(missing(few, small_disk), few.runner, points / "1.jsonl")  # dumps gives no dict: a failure is a result
    assert len(finished(small_disk)) == 1
    fill(small_disk)
    with pytest.raises(OSError, match="No space left on device"):
        keep(missing(many, small_disk), many.runner, points / "2.jsonl")
    (small_disk / "ballast").unlink()
    assert 1 <= len(finished(small_disk)) < 9  # what was finished before is still there
    keep(missing(many, small_disk), many.runner, points / "2.jsonl")
    assert len(finished(small_disk)) == 9


def test_a_stream_over_bad_files(tmp_path: Path, tables: list[pa.Table]) -> None:
    trace, out = tmp_path / "trace", tmp_path / "watch"
    spark_traces.write(tables[:3], trace)
    reasons = spoil(trace, tables)
    follow(trace, out, once=True)
    found = audit_files([trace], tmp_path / "batch")
    batch = rows_of(table_files(tmp_path / "batch", "verdicts"))
    assert rows_of(table_files(out, "verdicts")) == batch and len(batch) == found.deliveries
    told = quarantined(rows_of(table_files(out, "quarantine")))
    assert told == quarantined(rows_of(table_files(tmp_path / "batch", "quarantine"))) and set(told) == set(reasons)


def test_a_full_disk_under_a_stream(tmp_path: Path, small_disk: Path, tables: list[pa.Table]) -> None:
    trace, out = tmp_path / "trace", small_disk / "watch"
    spark_traces.write(tables, trace)
    audit_files([trace], tmp_path / "batch")
    fill(small_disk, but=32_768)
    with pytest.raises(TraceError, match="No space left on device"):
        follow(trace, out, once=True)
    (small_disk / "ballast").unlink()
    follow(trace, out, once=True)  # with room it gives what the batch gives
    batch = rows_of(table_files(tmp_path / "batch", "verdicts"))
    assert rows_of(table_files(out, "verdicts")) == batch
