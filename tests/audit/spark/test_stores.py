"""Traces and tables in an object store: a real S3 server (moto's, as a process of its own), through the command."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.spark import traces as spark_traces
from whence.audit import audit_files
from whence.audit.spark import place, tables
from whence.audit.spark.ingest import find, plan
from whence.cli import main
from whence.errors import TraceError, UsageError

pytestmark = pytest.mark.xdist_group("spark")

WAIT = 120.0
"""Seconds after which the server is taken as broken. Nothing is measured by it."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What follows a path in a URI to name our server, which has the bucket `bucket`."""
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + WAIT
        up = False
        while not up and server.poll() is None and time.monotonic() < end:
            with suppress(OSError):
                up = urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).status == 200
            time.sleep(0.1)
        assert up, "the S3 server does not come up"
        where = quote(f"http://127.0.0.1:{port}", safe="")
        query = f"?endpoint_override={where}&region=us-east-1&allow_bucket_creation=true"
        place.make_directory(f"s3://bucket{query}")
        yield query
    finally:
        server.kill()
        server.wait()
        log.close()


def put(store: str, name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    place.write_bytes(f"s3://bucket/{name}{store}", sink.getvalue().to_pybytes())


def rows_of(files: list[str]) -> list[dict[str, Any]]:
    rows = [row for file in files for row in pq.read_table(place.parquet(file)).to_pylist()]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def test_the_command_in_a_store(
    spark: SparkSession,
    store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In and out, with directories that name the run, and with a glob; the same tables as on a disk. Again: what was
    there before is replaced, and nothing of it is left."""
    made, _ = spark_traces.make(6_000, runs=3, origins=5, members=20, wrongs=2)
    spark_traces.write(made, tmp_path / "in")
    for table in made:
        run = table["run"][0].as_py()
        put(store, f"in/run={quote(run)}/t.parquet", table.drop_columns(["run"]))
    put(store, "in/run=other/t.csv", made[0])  # no trace by its name
    out = f"s3://bucket/out{store}"
    told = [
        main(["audit", where + store, "--out", out, "--json", "--verdicts", "all"])
        for where in ("s3://bucket/in", "s3a://bucket/in/run=*/*.parquet")
    ]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    audit_files([tmp_path / "in"], tmp_path / "out", spark=spark)
    assert told == [1, 1] and said[0]["rows"] == said[1]["rows"] == sum(table.num_rows for table in made)
    for name in ("verdicts", "violations", "members", "doubts"):
        files = tables.table_files(out, name)
        assert rows_of(files) == rows_of(tables.table_files(tmp_path / "out", name)), name
        there = [
            found.place.partition("?")[0].rpartition("/")[2] for found in place.found(f"s3://bucket/out/{name}{store}")
        ]
        assert there == [file.partition("?")[0].rpartition("/")[2] for file in files]
    assert tables.read_table(spark, out, "violations").count() == sum(said[0]["violations"].values())
    page = place.read_bytes(f"s3://bucket/out/report.html{store}")
    assert b"<html" in page[:1000].lower()


def test_what_is_not_there(store: str) -> None:
    with pytest.raises(TraceError, match="no such file or directory"):
        find([f"s3://bucket/nothing{store}"])
    with pytest.raises(TraceError, match="no file matches"):
        find([f"s3://bucket/nothing-*/x{store}"])


def test_a_file_system_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match=r"foo://host: no file system for it .* Known are s3://"):
        find(["foo://host/traces"])


def test_logs_of_others_are_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text('a {"a": 1}\nx\n')
    assert (
        main(["audit", str(tmp_path / "a.log"), "--format", "shiviz", "--parser", "x", "--out", "s3://bucket/out"]) == 2
    )
    assert "on this machine only" in capsys.readouterr().err


def test_places_of_this_machine(tmp_path: Path) -> None:
    """Globs, `file://`, hidden files; directories name columns that the files lack, whatever their type."""
    made, _ = spark_traces.make(400, runs=1, origins=3, members=5, wrongs=0)
    for name in ("a=1/run=7/cluster=x%20y/t.parquet", "a=1/_hidden/t.parquet", "b/t.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        pq.write_table(made[0].drop_columns(["run", "cluster", "version"]), tmp_path / name)
    (file,) = find([f"file://{tmp_path}/a=1"])
    assert (
        file.place == str(tmp_path / "a=1/run=7/cluster=x%20y/t.parquet") == find([tmp_path / "*" / "run=*"])[0].place
    )
    pieces, bad = plan([file])
    assert not bad and [piece.of for piece in pieces] == [("7", "x y")]
    _, bad = plan(find([tmp_path / "b"]))
    assert bad[0].reason == "not a whence trace: it has no column 'run', 'cluster'"
