"""Spark is started in one place, and what is missing has a name."""

from __future__ import annotations

import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.audit.spark.session import spark  # noqa: F401
from whence.audit.spark import archive, tables
from whence.audit.spark import session as sessions
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


def test_partitions_follow_the_input() -> None:
    assert sessions.partitions(None, 4) == sessions.partitions(10, 4) == 4
    assert sessions.partitions(100_000_000, 4) == 50


def test_one_session_set_up_as_it_should_be(spark: SparkSession) -> None:  # noqa: F811
    assert sessions.session(rows=50_000_000) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "25"
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


def test_what_numba_keeps_is_shipped_while_its_function_is_there(tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text("import numba\n\n@numba.njit(cache=True)\ndef f(): ...\n")
    kept = {"room.f-3.py311.nbi", "room.f-3.py311.1.nbc", "room.C.f-3.py311.2.nbc"}
    not_kept = {"room.f-4.py311.nbi", "room.f-9.py311.nbi", "gone.f-3.py311.nbi", "room.cpython-311.pyc", "x.nbi"}
    found = {name for name in kept | not_kept if sessions._machine_code(tmp_path / "__pycache__" / name)}
    assert found == kept


# -- tables


def test_the_gate_names_what_is_wrong(spark: SparkSession) -> None:  # noqa: F811
    right = spark.createDataFrame([], tables.spark_schema("quarantine"))
    assert tables.require(right.select("raw", "reason", "position", "file"), "quarantine").columns == right.columns
    with pytest.raises(UsageError, match="no column 'raw'"):
        tables.require(right.drop("raw"), "quarantine")
    with pytest.raises(UsageError, match="'position' is string, not int64"):
        tables.require(right.withColumn("position", right.position.cast("string")), "quarantine")


def test_schemas_are_the_same_for_spark_and_arrow(spark: SparkSession) -> None:  # noqa: F811
    for table in tables.TABLES:
        empty = spark.createDataFrame(tables.arrow_schema(table).empty_table(), tables.spark_schema(table))
        assert tables.require(empty, table).columns == tables.arrow_schema(table).names


def test_only_what_is_finished_is_read(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    rows = spark.createDataFrame([("f", 1, "why", None)], tables.spark_schema("quarantine"))
    with pytest.raises(TraceError, match="no finished table"):
        tables.read_table(spark, tmp_path, "quarantine")
    with pytest.raises(RuntimeError), tables.staging(tmp_path) as stage:
        rows.write.parquet(f"{stage}/quarantine")
        raise RuntimeError("killed")
    assert not list(tmp_path.iterdir())
    left = tmp_path / ".staging-999999999-dead"  # of a process that is no more
    left.mkdir()
    for _ in range(2):  # again, and the same
        with tables.staging(tmp_path) as stage:
            rows.write.parquet(f"{stage}/quarantine")
            tables.publish(stage, tmp_path, {"quarantine": 1}, {"inputs": []})
        assert tables.read_table(spark, tmp_path, "quarantine").collect() == rows.collect()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["_whence.json", "quarantine"]
    (tmp_path / "verdicts").mkdir()  # a directory of that name is no table
    with pytest.raises(TraceError, match="no finished table 'verdicts'"):
        tables.read_table(spark, tmp_path, "verdicts")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot write"), tables.staging(tmp_path / "file"):
        pass
    with pytest.raises(TraceError, match="No space left"), tables.staging(tmp_path):
        raise RuntimeError("Job aborted: OSError: [Errno 28] No space left on device")


def test_an_archive_of_classes_is_made_once_and_then_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its header is there, it is not taken for one; others are kept, but not for ever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (made, _) = archive.options("java 17", "spark 4")
    assert made.startswith("-XX:ArchiveClassesAtExit=")
    file = Path(made.partition("=")[2])
    assert file.parent == tmp_path / "whence"
    file.write_bytes(bytes(64))
    assert archive.options("java 17", "spark 4")[0] == made
    file.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(60))
    assert archive.options("java 17", "spark 4")[:2] == [f"-XX:SharedArchiveFile={file}", "-Xshare:auto"]
    for number in range(2 * archive.KEPT):
        other = Path(archive.options("java 21", str(number))[0].partition("=")[2])
        assert other != file
        other.write_bytes(b"\xa8\xba\x0b\xf0")
    assert len(list(file.parent.iterdir())) == archive.KEPT


@pytest.mark.parametrize("name", ["a file", "a file/below"])
def test_where_there_is_no_place_for_an_archive_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    with caplog.at_level("INFO", "whence.audit.spark.archive"):
        assert archive.options("java 17") == []
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert archive.options("java 17") == []
    assert len(caplog.records) == 2 and "takes longer to start" in caplog.text
