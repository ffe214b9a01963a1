"""Hard times: damaged, foreign and missing input, a full disk, kills in mid-write. A name or the quarantine for each,
and nothing of what is good is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.spark import traces as spark_traces
from tests.audit.spark.session import spark  # noqa: F401
from whence.audit.spark.foreign import audit_logs
from whence.audit.spark.job import audit_files as audit
from whence.audit.spark.stream import StreamAudit, read_stream, watch
from whence.audit.spark.sweep import Grid, finished, run_missing
from whence.audit.spark.tables import manifest, read_table
from whence.audit.trace.shiviz import EXPRESSION
from whence.cli import main
from whence.errors import TraceError

TABLES = ("verdicts", "violations", "members", "quarantine")


@pytest.fixture(scope="module")
def tables() -> list[pa.Table]:
    """Four small runs; in each one thing of each kind is wrong."""
    return spark_traces.make(8_000, runs=4, origins=5, members=20, wrongs=4)[0]


def spoil(trace: Path, tables: list[pa.Table]) -> dict[str, str]:
    """Bad files of every kind into a directory; name -> a word of the reason that has to be given."""
    trace.mkdir(parents=True, exist_ok=True)
    pq.write_table(tables[3], trace / "whole.parquet")
    whole = (trace / "whole.parquet").read_bytes()
    (trace / "whole.parquet").unlink()
    (trace / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (trace / "empty.parquet").write_bytes(b"")
    (trace / "noise.parquet").write_bytes(bytes(range(256)) * 40)
    (trace / "headless.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    pq.write_table(pa.table({"name": ["x"], "value": [1]}), trace / "foreign.parquet")
    at = tables[3].schema.get_field_index("lseq")
    pq.write_table(tables[3].set_column(at, "lseq", tables[3]["lseq"].cast(pa.string())), trace / "typed.parquet")
    (trace / "noise.jsonl").write_bytes(b"\xff\xfe\x00\n{]\nnull\n")
    return {
        "truncated.parquet": "truncated",
        "empty.parquet": "empty",
        "noise.parquet": "not a Parquet file",
        "headless.parquet": "damaged",
        "foreign.parquet": "no column 'run', 'cluster', 'member', 'lseq', 'kind', 'event'",
        "typed.parquet": "column 'lseq' is string",
        "noise.jsonl": "",
    }


def quarantined(rows: list[Any]) -> Counter[str]:
    return Counter(Path(row.file).name for row in rows)


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: json.dumps(row, sort_keys=True, default=str))


def same_tables(one: Path, other: Path, names: tuple[str, ...] = TABLES[:3]) -> None:
    for name in names:
        assert ordered(pq.read_table(one / name)) == ordered(pq.read_table(other / name)), name


def test_bad_files_beside_good_ones(spark: SparkSession, tmp_path: Path, tables: list[pa.Table]) -> None:  # noqa: F811
    spark_traces.write(tables[:3], tmp_path / "good")
    spark_traces.write(tables[:3], tmp_path / "mixed")
    reasons = spoil(tmp_path / "mixed", tables)
    clean = audit(spark, [tmp_path / "good"], tmp_path / "out-good")
    found = audit(spark, [tmp_path / "mixed"], tmp_path / "out-mixed")
    assert (found.rows, found.verdicts, found.violations) == (clean.rows, clean.verdicts, clean.violations)
    same_tables(tmp_path / "out-good", tmp_path / "out-mixed")
    rows = read_table(spark, tmp_path / "out-mixed", "quarantine").collect()
    assert quarantined(rows) == {**dict.fromkeys(reasons, 1), "noise.jsonl": 3}
    assert len(rows) == found.quarantined == 9
    for row in rows:
        assert reasons[Path(row.file).name] in row.reason, row
        assert row.position == -1 or row.file.endswith(".jsonl")


def test_the_command_names_what_it_cannot_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for arguments in (
        [str(tmp_path / "empty"), "--out", str(tmp_path / "out")],
        [str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")],
        [str(tmp_path / "empty"), "--out", str(tmp_path / "out"), "--format", "shiviz", "--parser", "x"],
        [str(tmp_path / "file"), "--out", str(tmp_path / "file")],
    ):
        assert main(["audit", *arguments]) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1 and said.err.startswith("whence: ") and str(tmp_path) in said.err, said.err
    assert not (tmp_path / "out").exists()


# -- no disk space


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k,nr_inodes=200", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here (that takes root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path, but: int = 0) -> None:
    """Leave no room, but so many bytes."""
    with pytest.raises(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)
    os.truncate(place / "ballast", (place / "ballast").stat().st_size - but)


def test_a_full_disk_while_tables_are_written(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    small_disk: Path,
) -> None:
    many, _ = spark_traces.make(60_000, runs=4, origins=5, members=20, wrongs=4)
    spark_traces.write(many, tmp_path / "trace")
    fill(small_disk, but=16_384)
    with pytest.raises(TraceError, match="No space left on device"):
        audit(spark, [tmp_path / "trace"], small_disk / "out")
    assert not manifest(small_disk / "out").get("tables")
    assert [p.name for p in (small_disk / "out").glob(".staging-*")] == []  # it has tidied up
    (small_disk / "ballast").unlink()
    assert audit(spark, [tmp_path / "trace"], small_disk / "out").rows > 50_000  # with room, the same place will do


def test_a_full_disk_under_logs_and_sweeps(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    small_disk: Path,
) -> None:
    (tmp_path / "a.log").write_text('a {"a": 1}\nx\n')
    grid = Grid("g", "json:dumps", 1, {}, {"x": [1]})
    run_missing(spark, grid, small_disk / "sweep")  # dumps gives no dict: a point that fails is a result, too
    assert len(finished(small_disk / "sweep")) == 1
    fill(small_disk)
    with pytest.raises(TraceError, match="No space left on device"):
        audit_logs(spark, [tmp_path / "a.log"], EXPRESSION, small_disk / "logs")
    with pytest.raises(TraceError, match="No space left on device"):
        run_missing(spark, Grid("g", "json:dumps", 9, {}, {"x": [1, 2]}), small_disk / "sweep")
    (small_disk / "ballast").unlink()
    assert finished(small_disk / "sweep")  # what was finished before is still there
    run_missing(spark, Grid("g", "json:dumps", 9, {}, {"x": [1, 2]}), small_disk / "sweep")
    assert len(finished(small_disk / "sweep")) == 18


# -- kills


CODE = """
import sys
from whence.audit.spark import job, parts
from whence.audit.spark.session import session
write = parts.Parts.write
def slow(self, table, rows):
    write(self, table, rows)
    import time
    time.sleep(0.5 if table == "verdicts" else 0)
parts.Parts.write = slow
job.audit_files(session("local[2]", "1g"), sys.argv[1:2], sys.argv[2], design="runs")
"""


def test_killed_in_mid_write_and_run_again(spark: SparkSession, tmp_path: Path, tables: list[pa.Table]) -> None:  # noqa: F811
    spark_traces.write(tables[:1], tmp_path / "before")
    spark_traces.write(tables, tmp_path / "trace")
    out = tmp_path / "out"
    first = audit(spark, [tmp_path / "before"], out)
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(tmp_path / "trace"), str(out)], start_new_session=True, stderr=subprocess.PIPE
    )
    try:
        while process.poll() is None and not list(out.glob(".staging-*/verdicts/*.parquet")):
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()[1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert list(out.glob(".staging-*"))  # it left its half-written tables behind ...
    assert read_table(spark, out, "verdicts").count() == first.deliveries  # ... and what was finished is as it was
    again = audit(spark, [tmp_path / "trace"], out)
    assert not list(out.glob(".staging-*"))
    audit(spark, [tmp_path / "trace"], tmp_path / "fresh")
    same_tables(out, tmp_path / "fresh")
    assert manifest(out)["tables"]["verdicts"]["rows"] == again.deliveries > first.deliveries


# -- the stream


def test_a_stream_over_bad_files(spark: SparkSession, tmp_path: Path, tables: list[pa.Table]) -> None:  # noqa: F811
    trace, out = tmp_path / "trace", tmp_path / "watch"
    spark_traces.write(tables[:3], trace)
    reasons = spoil(trace, tables)
    with StreamAudit(out) as sink:
        watch(trace, sink, once=True)
        sink.settle(trace)
    found = audit(spark, [trace], tmp_path / "batch")
    batch = read_table(spark, tmp_path / "batch", "verdicts").collect()
    stream = read_stream(spark, out, "verdicts").collect()
    assert sorted(map(str, stream)) == sorted(map(str, batch)) and len(batch) == found.deliveries
    told = quarantined(read_stream(spark, out, "quarantine").collect())
    assert told == quarantined(read_table(spark, tmp_path / "batch", "quarantine").collect())
    assert set(told) == set(reasons)


def test_a_full_disk_under_a_stream(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    small_disk: Path,
    tables: list[pa.Table],
) -> None:
    trace, out = tmp_path / "trace", small_disk / "watch"
    spark_traces.write(tables, trace)
    audit(spark, [trace], tmp_path / "batch")
    fill(small_disk, but=32_768)
    with StreamAudit(out) as sink, pytest.raises(TraceError, match="No space left on device"):
        watch(trace, sink, once=True)
    (small_disk / "ballast").unlink()
    with StreamAudit(out) as sink:  # with room it goes on, and gives what the batch gives
        watch(trace, sink, once=True)
        sink.settle(trace)
    stream = read_stream(spark, out, "verdicts").collect()
    batch = read_table(spark, tmp_path / "batch", "verdicts").collect()
    assert sorted(map(str, stream)) == sorted(map(str, batch))
