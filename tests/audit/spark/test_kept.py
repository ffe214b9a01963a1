"""Audits into one place, one after the other: readers see a whole audit, and files of others stay."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.spark import traces
from whence.audit import Summary, audit_files
from whence.audit.spark.findings import TABLES
from whence.audit.spark.tables import alone
from whence.errors import UsageError


def rows(out: Path, table: str) -> list[str]:
    files = json.loads((out / "_whence.json").read_text())["tables"][table]["files"]
    assert sorted(files) == sorted(file.name for file in (out / table).glob("*.parquet"))
    found = [pa.Table.to_pylist(pq.read_table(out / table / file)) for file in files]
    return sorted(json.dumps(row, sort_keys=True) for one in found for row in one)


def same(out: Path, found: Summary, folder: Path, fresh: Path) -> None:
    """The tables are those of an audit that had no other before it."""
    whole = audit_files([folder], fresh, sparse=True)
    assert found == whole
    for table in TABLES:
        assert rows(out, table) == rows(fresh, table), table
    assert not (out / "_whence_new").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs with wrongs, a file each."""
    tables, _ = traces.make(6_000, runs=4, origins=5, members=40, wrongs=4)
    traces.write(tables, tmp_path / "traces")
    return tmp_path / "traces"


def test_an_audit_replaces_the_one_before(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    audit_files([folder], out, sparse=True)
    (folder / "part-0002.parquet").unlink()
    same(out, audit_files([folder], out, sparse=True), folder, tmp_path / "fresh")


def test_files_of_others_stay(folder: Path, tmp_path: Path) -> None:
    """Only what an audit wrote is replaced, also what one wrote that was killed while it published."""
    out = tmp_path / "out"
    audit_files([folder], out, sparse=True)
    mine = [out / "notes.txt", out / "violations" / "mine.csv", out / "members" / "mine.parquet"]
    for file in mine:
        file.write_text("mine")
    stale = out / "members" / "run-00000-0123456789ab.parquet"
    stale.write_text("stale")
    audit_files([folder], out, sparse=True)
    assert all(file.read_text() == "mine" for file in mine) and not stale.exists()


@pytest.mark.parametrize("name", ["violations/my.parquet", "report.html", "runs/mine.html", "_whence_new/mine"])
def test_a_directory_that_is_not_of_audits_stays_as_it_is(folder: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match="no audit wrote it"):
        audit_files([folder], tmp_path / "out")
    assert mine.read_text() == "mine" and [f for f in (tmp_path / "out").rglob("*") if f.is_file()] == [mine]


@pytest.mark.parametrize("name", ["report.html", "violations", "_whence_new", "_whence.json", "runs"])
@pytest.mark.parametrize("marked", [False, True])
def test_no_link_is_followed_out(folder: Path, tmp_path: Path, name: str, marked: bool) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    if marked:
        audit_files([folder], out)
        (shutil.rmtree if (out / name).is_dir() else Path.unlink)(out / name) if (out / name).exists() else None
    out.mkdir(exist_ok=True)
    if name.endswith((".html", ".json")):
        outside.write_text("{}")
    else:
        outside.mkdir()
        (outside / "mine").write_text("mine")
    (out / name).symlink_to(outside)
    with pytest.raises(UsageError, match="is a link"):
        audit_files([folder], out)
    kept = outside.read_text() if outside.is_file() else [f.read_text() for f in outside.iterdir()]
    assert kept in ("{}", ["mine"])


def test_one_audit_at_a_time(folder: Path, tmp_path: Path) -> None:
    with alone(tmp_path / "out"), pytest.raises(UsageError, match="another process is writing here"):
        audit_files([folder], tmp_path / "out")
    audit_files([folder], tmp_path / "out")


KILLED = """
import os, signal, sys
from whence.audit.spark import driver, tables
def kill(*args):
    os.kill(os.getpid(), getattr(signal, sys.argv[4]))
module, name = sys.argv[3].split(".")
setattr({"driver": driver, "files": tables.files}[module], name, kill)
driver.audit_files([sys.argv[1]], sys.argv[2], sparse=True)
"""


@pytest.mark.parametrize("by", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("when", ["driver.publish", "files.replace_bytes"])
def test_a_killed_audit_leaves_what_was_there(when: str, by: str, folder: Path, tmp_path: Path) -> None:
    """`files.replace_bytes`: all files are in their place, but for the manifest. The next audit begins anew."""
    out = tmp_path / "out"
    audit_files([folder / "part-0000.parquet"], out, sparse=True)
    before = (out / "_whence.json").read_text()
    named = [(out / table / file) for table, entry in json.loads(before)["tables"].items() for file in entry["files"]]
    held = [file.read_bytes() for file in named]
    command = [sys.executable, "-c", KILLED, str(folder), str(out), when, by]
    ended = subprocess.run(command, capture_output=True, env=os.environ, timeout=600)
    assert ended.returncode == -getattr(signal, by), ended.stderr
    assert (out / "_whence.json").read_text() == before and [file.read_bytes() for file in named] == held
    same(out, audit_files([folder], out, sparse=True), folder, tmp_path / "fresh")
