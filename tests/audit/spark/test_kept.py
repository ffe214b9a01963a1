"""An audit into a place where there was one before: what has not changed is not judged again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.spark import traces
from tests.audit.spark.session import spark
from whence.audit.spark import blocks, local, tables
from whence.audit.spark.findings import TABLES, Judged, Terms
from whence.audit.spark.job import audit_files
from whence.audit.spark.local import audit_here
from whence.audit.spark.summary import Summary
from whence.cli import main

__all__ = ["spark"]

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
    whole = audit_here([folder], fresh, sparse=True)
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
    judge = blocks.judge_run

    def counted(table: pa.Table, run: str, cluster: str, terms: Terms) -> Judged:
        runs.append(run)
        return judge(table, run, cluster, terms)

    monkeypatch.setattr(blocks, "judge_run", counted)
    monkeypatch.setattr(local, "TASK_ROWS", 1)
    return runs


def test_nothing_new(folder: Path, judged: list[str], tmp_path: Path) -> None:
    first = audit_here([folder], tmp_path / "out", sparse=True)
    assert len(judged) == 4 and not first.clean
    judged.clear()
    told: list[str] = []
    again = audit_here([folder], tmp_path / "out", sparse=True, progress=told.append)
    assert judged == [] and said(again) == said(first) and any("all runs are as" in text for text in told)
    same(tmp_path / "out", again, folder, tmp_path / "fresh")


def test_a_new_file_costs_what_is_in_it(folder: Path, judged: list[str], tmp_path: Path) -> None:
    audit_here([folder], tmp_path / "out", sparse=True)
    judged.clear()
    (more,), _ = traces.make(1_500, runs=1, origins=5, members=40, wrongs=1, seed=9)
    name = pa.array(["run-new"] * more.num_rows).dictionary_encode()
    traces.write_file([more.set_column(more.schema.get_field_index("run"), "run", name)], folder / "new.parquet")
    found = audit_here([folder], tmp_path / "out", sparse=True)
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
    audit_here([folder], tmp_path / "out", sparse=True)
    judged.clear()
    change(folder)
    found = audit_here([folder], tmp_path / "out", sparse=True)
    assert judged == ([] if change is _removed else ["run-0002"])
    same(tmp_path / "out", found, folder, tmp_path / "fresh")


def test_other_terms_or_a_damaged_note_or_table_or_a_wish(folder: Path, judged: list[str], tmp_path: Path) -> None:
    def again(**how: Any) -> int:
        judged.clear()
        audit_here([folder], tmp_path / "out", **{"sparse": True, **how})
        return len(judged)

    assert again() == 4 and again() == 0
    assert again(fresh=True) == 4 and again(complete=True) == 4 and again() == 4 and again(sparse=False) == 4
    assert again() == 4
    notes = sorted((tmp_path / "out" / "tasks").iterdir())
    notes[0].write_text(notes[0].read_text()[:100])
    notes[1].unlink()
    assert again() == 2
    table = sorted((tmp_path / "out" / "members").iterdir())[0]
    table.unlink()
    assert again() == 1


def test_files_of_several_runs_are_taken_over_together(judged: list[str], tmp_path: Path) -> None:
    tables, _ = traces.make(6_000, runs=3, origins=5, members=40, wrongs=4)
    files = traces.write(tables, tmp_path / "traces", layout="mixed", files=3)
    audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
    judged.clear()
    audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == []
    files[1].unlink()
    found = audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
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
    audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
    judged.clear()
    found = audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == []
    same(tmp_path / "out", found, tmp_path / "traces", tmp_path / "fresh")
    os.utime(tmp_path / "traces" / "part-0002.parquet")
    judged.clear()
    found = audit_here([tmp_path / "traces"], tmp_path / "out", sparse=True)
    assert judged == ["a"]
    same(tmp_path / "out", found, tmp_path / "traces", tmp_path / "fresh")


def test_files_in_another_order(folder: Path, judged: list[str], tmp_path: Path) -> None:
    """Of rows that contradict each other the first is kept."""
    table = pq.read_table(folder / "part-0002.parquet").slice(0, 1)
    late = pa.array([7], table.schema.field("t_ns").type)
    traces.write_file([table.set_column(table.schema.get_field_index("t_ns"), "t_ns", late)], folder / "other.parquet")
    files = sorted(folder.iterdir())
    audit_here(files, tmp_path / "out", sparse=True)
    judged.clear()
    audit_here(files[::-1], tmp_path / "out", sparse=True)
    audit_here(files[::-1], tmp_path / "fresh", sparse=True)
    assert judged[0] == "run-0002"
    assert rows(tmp_path / "out", "quarantine") == rows(tmp_path / "fresh", "quarantine")


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../outside": ["mine", 1]}},
        {"files": {"members/../../outside": ["mine", 1]}},
        {"files": {"members": ["../../outside/mine", 1]}},
        {"pictures": ["../../outside/mine"]},
        {"files": {"metrics": ["mine", 1]}},
        {"files": [1]},
        {"summary": {"rows": "many"}},
        {"note": "../../outside/mine"},
    ],
)
def test_a_note_names_only_files_of_the_tables(
    change: dict[str, Any], folder: Path, judged: list[str], tmp_path: Path
) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    audit_here([folder], out, sparse=True)
    judged.clear()
    note = sorted((out / "tasks").iterdir())[0]
    content = json.loads(note.read_text())
    content["said"] = [json.dumps({**json.loads(content["said"][0]), **change})]
    note.write_text(json.dumps(content))
    found = audit_here([folder], out, sparse=True)
    assert len(judged) == 1
    same(out, found, folder, tmp_path / "fresh")
    assert (outside / "mine").stat().st_nlink == 1 and [p.name for p in outside.iterdir()] == ["mine"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "out", "outside", "traces"]


def test_two_audits_publish_one_after_the_other(
    folder: Path, judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are all of one of them."""
    out, move = tmp_path / "out", tables._move
    other = Thread(target=lambda: audit_here([folder], out, sparse=True, fresh=True))

    def moved(*args: Any) -> None:
        move(*args)
        if other.ident is None:
            other.start()
            other.join(1)  # it would be done by then, and is not: it waits

    monkeypatch.setattr(tables, "_move", moved)
    found = audit_here([folder], out, sparse=True)
    other.join()
    same(out, found, folder, tmp_path / "fresh")
    assert not list(out.glob(".staging-*"))


KILLED = """
import os, signal, sys
from whence.audit.spark import blocks, local, tables
local.TASK_ROWS, judge, runs = 1, blocks.judge_run, []
def counted(*args):
    runs.append(args)
    if len(runs) == 3:
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
    return judge(*args)
blocks.judge_run = counted
local.audit_here([sys.argv[1]], sys.argv[2], sparse=True)
"""


@pytest.mark.parametrize("by", ["SIGKILL", "SIGINT"])
def test_a_killed_audit_goes_on_where_it_was(by: str, folder: Path, judged: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(folder), str(out), by]
    ended = subprocess.run(command, capture_output=True, env=os.environ, timeout=600)
    assert ended.returncode == -getattr(signal, by), ended.stderr
    (left,) = out.glob(".staging-*")
    assert len(list((left / "tasks").iterdir())) == 2
    found = audit_here([folder], out, sparse=True)
    assert len(judged) == 2 and not list(out.glob(".staging-*"))
    same(out, found, folder, tmp_path / "fresh")


def mixed(place: Path) -> Path:
    """Two runs in one file, beside files of one run each."""
    tables, _ = traces.make(3_000, runs=2, origins=5, members=40, wrongs=2, seed=7)
    traces.write(tables, place / "mixed", layout="mixed", files=1)
    return place / "mixed"


def test_with_spark(spark: SparkSession, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it wrote is taken over without it."""
    out = tmp_path / "out"
    first = audit_files(spark, [folder], out, sparse=True)
    notes = sorted((out / "tasks").iterdir())
    assert notes and main(["audit", str(folder), "--out", str(out), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["design"] == "local"
    assert sorted((out / "tasks").iterdir()) == notes
    tables, _ = traces.make(3_000, runs=2, origins=5, members=40, wrongs=2, seed=5)
    for n, table in enumerate(tables):
        name = pa.array([f"more-{n}"] * table.num_rows).dictionary_encode()
        path = folder / f"more-{n}.parquet"
        traces.write_file([table.set_column(table.schema.get_field_index("run"), "run", name)], path)
    found = audit_files(spark, [folder], out, sparse=True)
    assert found.runs == first.runs + 2 and set(notes) < set((out / "tasks").iterdir())
    same(out, found, folder, tmp_path / "fresh")
    split = audit_files(spark, [folder, mixed(tmp_path)], tmp_path / "split", sparse=True, design="runs")
    again = audit_files(spark, [folder, tmp_path / "mixed"], tmp_path / "split", sparse=True)
    assert said(again) == said(split)
    giants = audit_files(spark, [folder], out, sparse=True, design="giant", fresh=True)
    assert len(list((out / "tasks").iterdir())) == 1 and giants.design == "giant"
    told: list[str] = []
    audit_files(spark, [folder], out, sparse=True, progress=told.append)
    assert any("all runs are as" in text for text in told)
