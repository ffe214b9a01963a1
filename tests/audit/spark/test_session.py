"""Spark is started in one place, and what is missing has a name."""

from __future__ import annotations

import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from whence.audit.spark import session as sessions
from whence.audit.spark import tables
from whence.errors import TraceError, UsageError


def fake_java(place: Path, script: str) -> Path:
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return place


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8"),
        ("echo 'cannot load libjvm.so' >&2; exit 1", "does not say its version"),
    ],
)
def test_a_java_that_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", script)))
    with pytest.raises(UsageError, match=says) as caught:
        sessions.check_java()
    assert "Java 17 or newer" in str(caught.value)


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no Java found"):
        sessions.check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="JAVA_HOME is set to it"):
        sessions.check_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")))
    sessions.check_java()


@pytest.mark.skipif(find_spec("grpc") is not None, reason="Spark Connect's packages are installed")
def test_spark_connect_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"needs grpc.*whence\[connect\]"):
        sessions.session("sc://127.0.0.1:1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(UsageError, match="Spark Connect"):
        sessions.session()


def test_one_session_set_up_as_it_should_be(spark: SparkSession) -> None:
    assert sessions.session() is spark and spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"

    def where(batches):  # type: ignore[no-untyped-def]
        import whence.audit.judge.batch.kernel as kernel

        yield from (pa.RecordBatch.from_pydict({"a": [sys.executable], "b": [kernel.__name__]}) for _ in batches)

    row = spark.range(1).mapInArrow(where, "a string, b string").collect()[0]
    assert row["a"] == sys.executable and row["b"] == "whence.audit.judge.batch.kernel"


def test_the_package_is_packed_whole() -> None:
    import zipfile

    names = zipfile.ZipFile(sessions._packed()).namelist()
    assert {"whence/__init__.py", "whence/audit/judge/batch/kernel.py", "whence/audit/trace/schema.py"} <= set(names)
    assert all(name.endswith((".nbi", ".nbc")) for name in names if "__pycache__" in name)


# -- tables


def test_schemas_are_the_same_for_spark_and_arrow() -> None:
    for table in tables.TABLES:
        back = to_arrow_schema(tables.spark_schema(table))
        assert [(f.name, f.type) for f in back] == [(f.name, f.type) for f in tables.arrow_schema(table)], table


def test_only_what_is_finished_is_read(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"file": "f", "position": 1, "reason": "why"}], tables.arrow_schema("quarantine"))
    with pytest.raises(TraceError, match="no finished table"):
        tables.table_files(tmp_path, "quarantine")
    for _ in range(2):  # again, and the same
        with tables.Parts(str(tmp_path), "task") as parts:
            parts.write("quarantine", rows)
        tables.publish(tmp_path, {**parts.written, "doubts": {}}, {"inputs": []})
        assert pq.read_table(tables.table_files(tmp_path, "quarantine"))["reason"].to_pylist() == ["why"]
        assert pq.read_table(tables.table_files(tmp_path, "doubts")).num_rows == 0
        assert len(list((tmp_path / "quarantine").iterdir())) == len(list((tmp_path / "doubts").iterdir())) == 1
    (tmp_path / "verdicts").mkdir()  # a directory of that name is no table
    with pytest.raises(TraceError, match="no finished table 'verdicts'"):
        tables.table_files(tmp_path, "verdicts")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot write"), tables.alone(tmp_path / "file"):
        pass
    with pytest.raises(TraceError, match="No space left"), tables.alone(tmp_path):
        raise RuntimeError("Job aborted: OSError: [Errno 28] No space left on device")
