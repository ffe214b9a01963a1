"""The audit with Spark, against wrongs of known identity, in every design."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.judge.batch.rows import HOSTILE, A, B, judge, spoiled, step, table_of, triangle
from tests.audit.spark.session import spark  # noqa: F401
from tests.audit.spark.traces import Injected, make, write
from tests.lab.sim.runs import Run
from tests.long import few
from whence.audit.judge.batch import tables as results
from whence.audit.spark import audit as judge_frame
from whence.audit.spark import ingest, job, origins, past, tables
from whence.audit.spark.job import audit_files
from whence.audit.spark.pictures import draw, file_name
from whence.audit.trace import open_trace, shiviz
from whence.cli import main
from whence.errors import UsageError
from whence.lab.sim.scenario import parse


def test_a_picture_of_a_violation(tmp_path: Path) -> None:
    """The neighbourhood only, as a log that our own reader of ShiViz logs takes."""
    at_q = [step("q#1", 0, "join", order="causal", reason="genesis")]
    at_q += [step("q#1", k, "receive", B) for k in range(1, 30)]
    at_q += [step("q#1", 30, "deliver", B), step("q#1", 31, "deliver", A)]
    at_q += [step("p#1", k, "receive", B) for k in range(30)]
    rows = triangle(*at_q)
    table, audited = table_of(rows), judge(rows)
    wrong = results.violations(audited)
    assert draw(table, audited.coded, wrong, str(tmp_path)) == [file_name("r", "c", "causal")]
    (file,) = (tmp_path / "shiviz").iterdir()
    assert file.name == file_name("r", "c", "causal") and file.name.startswith("r-c-causal-")
    log = shiviz.load_log(file, shiviz.EXPRESSION)
    assert {record.host for record in log.records} == {"a#1", "b#1", "q#1"}
    assert len([record for record in log.records if record.host == "q#1"]) == 5
    clocks = {(record.host, record.event): record.clock for record in log.records}
    assert len(clocks) == len(log.records) == 5 + 3 + 4


def test_pictures_of_different_violations_have_different_names() -> None:
    """Also where a name of a file cannot tell their texts apart."""
    names = [("a-b", "c"), ("a", "b-c"), ("a b", "c"), ("a/b", "c"), ("x" * 300, "c"), ("x" * 301, "c")]
    found = {file_name(run, cluster, "causal") for run, cluster in names}
    assert len(found) == len(names) and max(map(len, found)) < 200


# -- with Spark


def found_in(out: Path) -> dict[str, set[tuple[str, str, str]]]:
    found: dict[str, set[tuple[str, str, str]]] = {}
    for v in pq.read_table(out / "violations").to_pylist():
        found.setdefault(v["rule"], set()).add((v["run"], v["member"], v["event"]))
    return found


def exactly(out: Path, injected: Injected) -> None:
    """Precision and recall 1.0: what was put in and nothing else."""
    found = found_in(out)
    assert found.pop("causal") == injected.inverted
    assert found.pop("gap") == injected.openers
    assert found.pop("integrity") == injected.duplicates
    assert {v[:2] for v in found.pop("two owners")} == injected.owners
    assert found.pop("reused id") == injected.reused
    assert found.pop("agreement") == injected.gaps
    assert not found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[pa.Table], Injected]:
    return make(100_000, runs=5, origins=5, members=40, wrongs=15)


@pytest.mark.parametrize("design", ["runs", "shuffle"])
def test_injected_wrongs_are_found_and_nothing_else(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    design: str,
) -> None:
    tables_, injected = small
    write(tables_, tmp_path / "in", layout="run" if design == "runs" else "mixed", files=3)
    found = audit_files(spark, [tmp_path / "in"], tmp_path / "out", design=design, complete=True)
    exactly(tmp_path / "out", injected)
    assert found.rows == sum(table.num_rows for table in tables_) and found.runs == 5
    assert found.verdicts["inverted"] == found.verdicts["duplicate"] == 15 and found.verdicts["unknown"] == 0
    verdicts = tables.read_table(spark, tmp_path / "out", "verdicts")
    assert verdicts.count() == found.deliveries == sum(t["kind"].to_pylist().count("deliver") for t in tables_)
    assert verdicts.where("violation").count() == 15 * 4


@pytest.mark.parametrize("layout", few(["mixed", "run"], 1))
def test_giant_runs_are_spread_over_workers(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    layout: str,
) -> None:
    """The same tables, whether a run is judged at one place or at many."""
    tables_, injected = small
    write(tables_, tmp_path / "in", layout=layout, files=3)
    for name, giant in (("one", 10**9), ("many", 10_000)):
        found = audit_files(spark, [tmp_path / "in"], tmp_path / name, giant=giant, complete=True)
        assert found.design == ("giant" if name == "many" else "runs")
        exactly(tmp_path / name, injected)
    assert_same_tables(tmp_path / "one", tmp_path / "many")


def test_a_giant_run_in_which_everybody_publishes(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """With deliveries in another order, twice and cut out, at publishers, too: the same tables."""
    (whole,), _ = make(6_000, runs=1, origins=20, members=20, wrongs=0)
    rng = np.random.default_rng(7)
    lseq, kind = whole["lseq"].to_numpy().copy(), whole["kind"].to_pylist()
    delivers = np.flatnonzero([k == "deliver" for k in kind])
    member = np.array(whole["member"].to_pylist())
    for a, b in rng.choice(delivers, (30, 2)).tolist():
        if member[a] == member[b]:
            lseq[a], lseq[b] = lseq[b], lseq[a]
    near = rng.choice(delivers[:-400], 60)
    for a in near.tolist():  # the next delivery of the same member, or one soon after
        b = next(b for b in delivers[delivers > a].tolist() if member[b] == member[a])
        lseq[a], lseq[b] = lseq[b], lseq[a]
    spoiled_ = whole.set_column(whole.schema.get_field_index("lseq"), "lseq", pa.array(lseq))
    keep = np.setdiff1d(np.arange(len(lseq)), rng.choice(delivers, 5))
    write([spoiled_.take(keep)], tmp_path / "in", layout="run")
    one = audit_files(spark, [tmp_path / "in"], tmp_path / "one", design="runs")
    many = audit_files(spark, [tmp_path / "in"], tmp_path / "many", giant=1_000)
    assert many.design == "giant" and one.verdicts["inverted"] > 20 and one.missing == 5
    for name in ("rows", "runs", "published", "deliveries", "verdicts", "violations", "missing", "doubts", "circles"):
        assert getattr(one, name) == getattr(many, name), name
    assert_same_tables(tmp_path / "one", tmp_path / "many")


def test_what_does_not_fit_into_a_worker_is_spread(
    spark: SparkSession,  # noqa: F811
    small: tuple[list[pa.Table], Injected],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(small[0], tmp_path / "in", layout="run")
    monkeypatch.setattr(job.session, "worker_memory", lambda spark: 10_000 * job.ROW_BYTES)
    assert audit_files(spark, [tmp_path / "in"], tmp_path / "out").design == "giant"
    with pytest.raises(UsageError, match="no design 'fastest'"):
        audit_files(spark, [tmp_path / "in"], tmp_path / "out", design="fastest")


def assert_same_tables(a: Path, b: Path) -> None:
    keys = {
        "verdicts": ("run", "member", "lseq"),
        "members": ("run", "member"),
        "violations": ("run", "rule", "detail"),
        "doubts": ("run", "member"),
    }
    for name, key in keys.items():
        paths = [x / name for x in (a, b) if (x / name).exists()]  # a table without rows has no files
        assert len(paths) in (0, 2), name
        if not paths:
            continue
        one, other = (sorted(pq.read_table(x).to_pylist(), key=lambda r: [r[k] for k in key]) for x in paths)
        assert one == other


def test_giant_runs_with_restarts_and_snapshots(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """Members that begin with the state of others, who are judged elsewhere; duplicates and conflicts, too."""
    rows = []
    for seed in range(6):
        mine = spoiled(Run(parse(HOSTILE), seed).rows, random.Random(seed))
        rows += mine + mine[:20] + [msgspec.structs.replace(mine[-1], t_ns=1)]
    save = tmp_path / "in" / "t.parquet"
    with open_trace(save) as trace:
        trace.append_many(rows)
    one = audit_files(spark, [save], tmp_path / "one")
    many = audit_files(spark, [save], tmp_path / "many", giant=100)
    assert many.design == "giant" and (one.rows, one.repeated, one.quarantined) == (len(rows), 120, 12)
    for name in (
        "rows",
        "runs",
        "members",
        "published",
        "deliveries",
        "repeated",
        "missing",
        "quarantined",
        "verdicts",
    ):
        assert getattr(one, name) == getattr(many, name), name
    assert one.violations == many.violations
    assert one.doubts == many.doubts > 0
    assert_same_tables(tmp_path / "one", tmp_path / "many")


@pytest.mark.long  # 10^5 rows: above
def test_a_million_rows(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    tables_, injected = make(1_000_000, runs=4, origins=10, members=100, wrongs=40, seed=3)
    write(tables_, tmp_path / "in", layout="mixed", files=4)
    found = audit_files(spark, [tmp_path / "in"], tmp_path / "out", design="shuffle", complete=True)
    exactly(tmp_path / "out", injected)
    assert found.rows == sum(table.num_rows for table in tables_)


def test_functions_from_dataframe_to_dataframe(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    rows = Run(parse(HOSTILE), 3).rows
    rows += [msgspec.structs.replace(row, run="again") for row in rows]
    with open_trace(tmp_path / "t.parquet") as trace:
        trace.append_many(rows)
    events = ingest.events(ingest.raw(spark, [tmp_path]))
    again = judge([row for row in rows if row.run == "again"])
    expected = {(v["member"], v["lseq"]): v["verdict"] for v in results.verdicts(again).to_pylist()}
    with judge_frame(events) as judged:
        found, broken, members = judged.verdicts.collect(), judged.violations.count(), judged.members.count()
    for run in {row.run for row in rows}:
        assert {(row.member, row.lseq): row.verdict for row in found if row.run == run} == expected
    pasts, of = past(events).collect(), origins(events).collect()
    assert len(pasts) == sum(row.kind == "publish" for row in rows)
    assert {len(row.vector) for row in pasts} == {len(of) // 2}
    assert broken == 0 and members == 2 * len({row.member for row in rows})


# -- the command


def audit_command(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any], str]:
    code_ = main(["audit", *map(str, args), "--json"])
    said = capsys.readouterr()
    return code_, json.loads(said.out) if said.out else {}, said.err


def test_the_command(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = Run(parse(HOSTILE), 1).rows
    for name, some in (("good", rows), ("bad", spoiled(rows, random.Random(1)))):
        with open_trace(tmp_path / name / "t.jsonl") as trace:
            trace.append_many(some)
    exit_code, said, progress = audit_command(capsys, tmp_path / "good", "--out", tmp_path / "out")
    assert exit_code == 0 and said["clean"] and said["rows"] == len(rows) and "starting Spark" in progress
    exit_code, said, _ = audit_command(capsys, tmp_path / "bad", "--out", tmp_path / "out")
    rule, count = next(iter(said["violations"].items()))
    assert exit_code == 1 and count and said["first"][rule]
    assert main(["audit", str(tmp_path / "bad"), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert f"violations: {rule}" in shown and said["first"][rule][0] in shown


def test_a_trace_with_parts_cut_out_is_in_doubt(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file of a publisher was not copied: exit code 3, and one line about it."""
    rows = Run(parse(HOSTILE), 1).rows
    absent = next(row.member for row in rows if row.kind == "publish")
    of_it = sum(row.kind == "deliver" and str(row.event).endswith(f"@{absent}") for row in rows if row.member != absent)
    with open_trace(tmp_path / "in" / "t.jsonl") as trace:
        trace.append_many([row for row in rows if row.member != absent])
    exit_code, said, _ = audit_command(capsys, tmp_path / "in", "--out", tmp_path / "out")
    assert exit_code == 3 and said["clean"] and not said["violations"]
    (doubt,) = [d for d in pq.read_table(tmp_path / "out" / "doubts").to_pylist() if d["member"] == absent]
    assert doubt["deliveries"] == of_it > 0
    assert any(absent in text for text in said["unjudged"])
    exit_code, said, _ = audit_command(capsys, tmp_path / "in", "--out", tmp_path / "out", "--complete")
    assert exit_code == 1 and said["violations"]["integrity"] == of_it


@pytest.mark.parametrize("design", ["runs", "shuffle", "giant"])
def test_a_run_without_a_name(spark: SparkSession, tmp_path: Path, design: str) -> None:  # noqa: F811
    rows = Run(parse(HOSTILE), 1).rows
    named = [
        msgspec.structs.replace(row, run=run, cluster=cluster)
        for run, cluster in (("", ""), ("x", "c"))
        for row in rows
    ]
    with open_trace(tmp_path / "in" / "t.parquet") as trace:
        trace.append_many(named)
    found = audit_files(spark, [tmp_path / "in"], tmp_path / "out", design=design)
    assert (found.runs, found.rows, found.quarantined, found.clean) == (2, len(named), 0, True)
    assert {row["run"] for row in pq.read_table(tmp_path / "out" / "members").to_pylist()} == {"", "x"}


def test_the_command_on_what_is_no_trace_at_all(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not clean: there is nothing to say about it. The quarantine says why."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "a.parquet").write_bytes(b"noise")
    (tmp_path / "trace" / "b.jsonl").write_text("{}\nnoise\n")
    exit_code, said, told = audit_command(capsys, tmp_path / "trace", "--out", tmp_path / "out")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out" / "quarantine").num_rows == 3


def test_the_command_on_what_is_no_log_at_all(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("noise\nand more\n")
    (tmp_path / "logs" / "b.log").write_bytes(b"\xff\xfe\x00")
    parser = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
    shiviz_logs = [tmp_path / "logs", "--format", "shiviz", "--parser", parser]
    exit_code, said, told = audit_command(capsys, *shiviz_logs, "--out", tmp_path / "out")
    assert exit_code == 2 and not said and "nothing readable" in told.splitlines()[-1]
    assert pq.read_table(tmp_path / "out" / "quarantine").num_rows >= 2


def wrong_inputs(place: Path) -> Iterator[tuple[list[object], str]]:
    (place / "empty").mkdir()
    (place / "file").write_text("")
    (place / "good").mkdir()
    (place / "good" / "t.jsonl").write_text("")
    yield [place / "gone", "--out", place / "out"], "no such file or directory"
    yield [place / "empty", "--out", place / "out"], "no trace in this directory"
    yield [place / "good", "--out", place / "file"], "is a file"
    yield [place / "good", "--out", place / "out", "--parser", "x"], "--format shiviz"


def test_input_that_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, says in wrong_inputs(tmp_path):
        exit_code, _, said = audit_command(capsys, *args)
        assert exit_code == 2 and says in said and said.count("\n") == 1


def test_the_command_without_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(make(200, runs=1, origins=2, members=5, wrongs=0)[0], tmp_path / "trace")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    exit_code, _, said = audit_command(capsys, tmp_path / "trace", "--out", tmp_path / "out")
    assert exit_code == 2 and "Java 17" in said.splitlines()[-1]


def test_a_relative_out_is_where_the_caller_is(
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers live where Spark was started; the caller may have moved on."""
    (tmp_path / "trace").mkdir()
    write(make(2_000, runs=1)[0], tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    found = audit_files(spark, ["trace"], "out")
    assert pq.read_table(tmp_path / "out" / "verdicts").num_rows == found.deliveries > 0
