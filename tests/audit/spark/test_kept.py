"""An audit into a place where there was one before: what has not changed is not judged again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.spark import traces
from whence.audit import Summary, audit_files
from whence.audit.spark import blocks, driver
from whence.audit.spark.findings import TABLES, Judged, Terms
from whence.audit.spark.tables import alone
from whence.errors import UsageError

ORDERED = ("in_order",)


def rows(out: Path, table: str) -> list[str]:
    files = json.loads((out / "_whence.json").read_text())["tables"][table]["files"]
    assert sorted(files) == sorted(file.name for file in (out / table).iterdir())
    found = [pa.Table.to_pylist(pq.read_table(out / table / file)) for file in files]
    return sorted(json.dumps(row, sort_keys=True) for one in found for row in one)


def said(found: Summary) -> dict[str, Any]:
    """Without what depends on the order of the runs, and on who judged them."""
    return {name: n for name, n in vars(found).items() if name not in ("first", "unjudged", "design")}


def same(out: Path, found: Summary, folder: Path, fresh: Path) -> None:
    """The tables are those of an audit of all of it."""
    whole = audit_files([folder], fresh, sparse=True)
    assert said(found) == said(whole)
    for table in (*TABLES, *ORDERED):
        assert rows(out, table) == rows(fresh, table), table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs with wrongs, a file each."""
    tables, _ = traces.make(6_000, runs=4, origins=5, members=40, wrongs=4)
    traces.write(tables, tmp_path / "traces")
    return tmp_path / "traces"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were judged; a task has one run."""
    runs: list[str] = []
    judge = blocks.judge_runs

    def counted(table: pa.Table, terms: Terms) -> Judged:
        runs.extend(sorted({str(run) for run in table["run"].to_pylist()}))
        return judge(table, terms)

    monkeypatch.setattr(blocks, "judge_runs", counted)
    monkeypatch.setattr(driver, "TASK_ROWS", 1)
    return runs


def test_nothing_new(folder: Path, judged: list[str], tmp_path: Path) -> None:
    first = audit_files([folder], tmp_path / "out", sparse=True)
    assert len(judged) == 4 and not first.clean
    judged.clear()
    told: list[str] = []
    again = audit_files([folder], tmp_path / "out", sparse=True, progress=told.append)
    assert judged == [] and said(again) == said(first) and any("all runs are as" in text for text in told)
    same(tmp_path / "out", again, folder, tmp_path / "fresh")


def test_a_new_file_costs_what_is_in_it(folder: Path, judged: list[str], tmp_path: Path) -> None:
    audit_files([folder], tmp_path / "out", sparse=True)
    judged.clear()
    (more,), _ = traces.make(1_500, runs=1, origins=5, members=40, wrongs=1, seed=9)
    name = pa.array(["run-new"] * more.num_rows).dictionary_encode()
    traces.write_file([more.set_column(more.schema.get_field_index("run"), "run", name)], folder / "new.parquet")
    found = audit_files([folder], tmp_path / "out", sparse=True)
    assert judged == ["run-new"] and found.runs == 5
    same(tmp_path / "out", found, folder, tmp_path / "fresh")


def _rewritten(folder: Path) -> None:
    table = pq.read_table(folder / "part-0002.parquet")
    traces.write_file([table.slice(0, table.num_rows - 50)], folder / "part-0002.parquet")


def _another_part(folder: Path) -> None:
    """Rows of a run that is there already."""
    table = pq.read_table(folder / "part-0002.parquet")
    traces.write_file([table.slice(table.num_rows - 50)], folder / "part-0009.parquet")


def _removed(folder: Path) -> None:
    (folder / "part-0002.parquet").unlink()


@pytest.mark.parametrize("change", [_rewritten, _another_part, _removed])
def test_what_has_changed_is_judged_again(
    change: Callable[[Path], None], folder: Path, judged: list[str], tmp_path: Path
) -> None:
    audit_files([folder], tmp_path / "out", sparse=True)
    judged.clear()
    change(folder)
    found = audit_files([folder], tmp_path / "out", sparse=True)
    assert judged == ([] if change is _removed else ["run-0002"])
    same(tmp_path / "out", found, folder, tmp_path / "fresh")


def test_other_terms_or_a_damaged_note_or_table_or_a_wish(folder: Path, judged: list[str], tmp_path: Path) -> None:
    def again(**how: Any) -> int:
        judged.clear()
        audit_files([folder], tmp_path / "out", **{"sparse": True, **how})
        return len(judged)

    assert again() == 4 and again() == 0
    assert again(fresh=True) == 4 and again(complete=True) == 4 and again() == 4 and again(sparse=False) == 4
    assert again() == 4
    notes = sorted((tmp_path / "out" / "_tasks").glob("*.json"))
    notes[0].write_text(notes[0].read_text()[:100])
    notes[1].unlink()
    assert again() == 2
    table = sorted((tmp_path / "out" / "members").iterdir())[0]
    table.unlink()
    assert again() == 1


def test_files_of_several_runs_are_taken_over_together(judged: list[str], tmp_path: Path) -> None:
    tables, _ = traces.make(6_000, runs=3, origins=5, members=40, wrongs=4)
    files = traces.write(tables, tmp_path / "traces", layout="mixed", files=3)
    audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    judged.clear()
    audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == []
    files[1].unlink()
    found = audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert len(judged) == 3
    same(tmp_path / "out", found, tmp_path / "traces", tmp_path / "fresh")


def renamed(table: pa.Table, run: str, cluster: str) -> pa.Table:
    for name, value in (("run", run), ("cluster", cluster)):
        column = pa.array([value] * table.num_rows).dictionary_encode()
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def test_names_may_be_empty(judged: list[str], tmp_path: Path) -> None:
    """A run of a cluster without names is one of several, not all of them."""
    made, _ = traces.make(4_500, runs=3, origins=5, members=40, wrongs=3)
    names = [("", ""), ("", "main"), ("a", "")]
    traces.write([renamed(t, *name) for t, name in zip(made, names, strict=True)], tmp_path / "traces")
    audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    judged.clear()
    found = audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == []
    same(tmp_path / "out", found, tmp_path / "traces", tmp_path / "fresh")
    os.utime(tmp_path / "traces" / "part-0002.parquet")
    judged.clear()
    found = audit_files([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == ["a"]
    same(tmp_path / "out", found, tmp_path / "traces", tmp_path / "fresh")


def test_files_in_another_order(folder: Path, judged: list[str], tmp_path: Path) -> None:
    """Of rows that contradict each other the first is kept."""
    table = pq.read_table(folder / "part-0002.parquet").slice(0, 1)
    late = pa.array([7], table.schema.field("t_ns").type)
    traces.write_file([table.set_column(table.schema.get_field_index("t_ns"), "t_ns", late)], folder / "other.parquet")
    files = sorted(folder.iterdir())
    audit_files(files, tmp_path / "out", sparse=True)
    judged.clear()
    audit_files(files[::-1], tmp_path / "out", sparse=True)
    audit_files(files[::-1], tmp_path / "fresh", sparse=True)
    assert judged[0] == "run-0002"
    assert rows(tmp_path / "out", "quarantine") == rows(tmp_path / "fresh", "quarantine")


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../outside": {"mine": 1}}},
        {"files": {"members/../../outside": {"mine": 1}}},
        {"files": {"members": {"../../outside/mine": 1}}},
        {"files": {"shiviz": {"../../outside/mine": 1}}},
        {"files": {"metrics": {"mine": 1}}},
        {"files": [1]},
        {"summary": {"rows": "many"}},
    ],
)
def test_a_note_names_only_files_of_the_tables(
    change: dict[str, Any], folder: Path, judged: list[str], tmp_path: Path
) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    audit_files([folder], out, sparse=True)
    judged.clear()
    note = sorted((out / "_tasks").glob("*.json"))[0]
    note.write_text(json.dumps({**json.loads(note.read_text()), **change}))
    found = audit_files([folder], out, sparse=True)
    assert len(judged) == 1
    same(out, found, folder, tmp_path / "fresh")
    assert (outside / "mine").read_text() == "mine" and [p.name for p in outside.iterdir()] == ["mine"]


def test_files_of_others_stay(folder: Path, judged: list[str], tmp_path: Path) -> None:
    """Only what an audit wrote is replaced, also what one wrote that was killed while it published."""
    out = tmp_path / "out"
    audit_files([folder], out, sparse=True)
    mine = [out / "notes.txt", out / "violations" / "mine.csv", out / "_tasks" / "violations" / "mine.csv"]
    for file in mine[:2]:
        file.write_text("mine")
    stale = out / "members" / "stale.parquet"
    stale.write_text("stale")
    content = json.loads((out / "_whence.json").read_text())
    (out / "_whence.json").write_text(json.dumps({**content, "unfinished": {"members": ["stale.parquet"]}}))
    audit_files([folder], out, sparse=True, fresh=True)
    assert all(file.read_text() == "mine" for file in mine[:2]) and not stale.exists()
    assert "unfinished" not in json.loads((out / "_whence.json").read_text())


def test_one_audit_at_a_time(folder: Path, tmp_path: Path) -> None:
    with alone(tmp_path / "out"), pytest.raises(UsageError, match="another process is writing here"):
        audit_files([folder], tmp_path / "out")
    audit_files([folder], tmp_path / "out")


KILLED = """
import os, signal, sys
from whence.audit.spark import blocks, driver
driver.TASK_ROWS, judge, runs = 1, blocks.judge_runs, []
def counted(*args):
    runs.append(args)
    if len(runs) == 3:
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
    return judge(*args)
blocks.judge_runs = counted
driver.audit_files([sys.argv[1]], sys.argv[2], sparse=True)
"""


@pytest.mark.parametrize("by", ["SIGKILL", "SIGINT"])
def test_a_killed_audit_goes_on_where_it_was(by: str, folder: Path, judged: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(folder), str(out), by]
    ended = subprocess.run(command, capture_output=True, env=os.environ, timeout=600)
    assert ended.returncode == -getattr(signal, by), ended.stderr
    assert len(list((out / "_tasks").glob("*.json"))) == 2 and not (out / "_whence.json").exists()
    assert not list(out.glob("[a-z]*"))  # nothing of it is to be seen
    found = audit_files([folder], out, sparse=True)
    assert len(judged) == 2 and not list((out / "_tasks" / "members").iterdir())
    same(out, found, folder, tmp_path / "fresh")
