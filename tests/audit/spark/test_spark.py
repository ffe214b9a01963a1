"""Audits with Spark: the same tables as without it, whatever the design; DataFrame in, DataFrames out."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.audit.judge.batch.rows import HOSTILE, spoiled
from tests.audit.judge.traces import pairs
from tests.audit.spark.traces import make, write
from tests.lab.sim.runs import Run
from whence.audit import audit, audit_files, audit_stream, read_table, read_traces
from whence.audit.spark import driver
from whence.audit.spark.findings import TABLES
from whence.audit.spark.tables import spark_schema, table_files
from whence.audit.trace import Row, open_trace
from whence.errors import UsageError
from whence.lab.sim.scenario import parse

pytestmark = pytest.mark.xdist_group("spark")


def in_order(found: DataFrame | Path, table: str = "") -> list[dict[str, Any]]:
    """The rows of a DataFrame, or of a table that an audit wrote."""
    if isinstance(found, Path):
        rows = [row for file in table_files(found, table) for row in pq.read_table(file).to_pylist()]
    else:
        rows = [row.asDict(recursive=True) for row in found.collect()]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def assert_same(one: Path, other: Path) -> None:
    for table in TABLES:
        assert in_order(one, table) == in_order(other, table), table


def trace(place: Path, seed: int = 1) -> Path:
    """A run in which steps change places, rows that are there twice, and a step that is told of in two ways; the same
    as a second run; and a short one with an effect before its cause."""
    rows = spoiled(Run(parse(HOSTILE), seed).rows, random.Random(seed))
    rows += [*rows[:20], msgspec.structs.replace(rows[-1], t_ns=1)]
    rows += [msgspec.structs.replace(row, run="again") for row in rows]
    a, b = "0:1.0.1:1@a", "1:1.0.1:1@b"
    said = [("a", 0, "publish", a), ("b", 0, "deliver", a), ("b", 1, "publish", b)]
    said += [("c", 0, "deliver", b), ("c", 1, "deliver", a)]
    rows += [Row("wrong", "x", member, lseq, 0, kind, event) for member, lseq, kind, event in said]
    with open_trace(place) as out:
        out.append_many(rows)
    return place


# -- files


def test_the_tables_are_the_same_in_every_design(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Injected wrongs, a run without a name, half a line, a rate; in one process, a task for each run, a shuffle, and
    every run spread over workers. Where workers lack memory runs are spread, too."""
    tables, _ = make(12_000, runs=3, origins=5, members=40, wrongs=6)
    write(tables, tmp_path / "in", layout="run")
    trace(tmp_path / "in" / "t.jsonl")
    rates = pairs(100, dict.fromkeys(range(0, 80, 4), 2), "")
    with (tmp_path / "in" / "rate.jsonl").open("wb") as damaged:
        damaged.write(
            b"\n".join(map(msgspec.json.encode, rates))
            + b'\n{"run":"r","cluster":"c","member":"x"}\n{"run":"run-0000","cluster":"main","member":"m39#1","ls'
        )
    how: dict[str, Any] = {"complete": True, "error_rate": 0.01}
    local = audit_files([tmp_path / "in"], tmp_path / "local", **how)
    for design in ("runs", "shuffle", "giant"):
        if design == "shuffle":
            monkeypatch.setattr(driver, "SMALL", 0)
        if design == "giant":
            monkeypatch.setattr("whence.audit.spark.session.worker_memory", lambda spark: 1_000 * driver.ROW_BYTES)
        found = audit_files([tmp_path / "in"], tmp_path / design, spark=spark, **how)
        assert found.design == design and found.rates == {"above": 1}
        for name in vars(found):
            if name not in ("design", "first", "unjudged", "refused"):
                assert getattr(found, name) == getattr(local, name), (design, name)
        assert_same(tmp_path / design, tmp_path / "local")
        assert (tmp_path / design / "report.html").exists()


def test_a_giant_run_in_which_everybody_publishes(spark: SparkSession, tmp_path: Path) -> None:
    """With deliveries in another order, twice and cut out, at publishers, too: the same tables."""
    (whole,), _ = make(6_000, runs=1, origins=20, members=20, wrongs=0)
    rng = np.random.default_rng(7)
    lseq, kind = whole["lseq"].to_numpy().copy(), whole["kind"].to_pylist()
    delivers = np.flatnonzero([k == "deliver" for k in kind])
    member = np.array(whole["member"].to_pylist())
    for a, b in rng.choice(delivers, (30, 2)).tolist():
        if member[a] == member[b]:
            lseq[a], lseq[b] = lseq[b], lseq[a]
    for a in rng.choice(delivers[:-400], 60).tolist():  # the next delivery of the same member, or one soon after
        b = next(b for b in delivers[delivers > a].tolist() if member[b] == member[a])
        lseq[a], lseq[b] = lseq[b], lseq[a]
    mixed = whole.set_column(whole.schema.get_field_index("lseq"), "lseq", pa.array(lseq))
    keep = np.setdiff1d(np.arange(len(lseq)), rng.choice(delivers, 5))
    write([mixed.take(keep)], tmp_path / "in", layout="run")
    one = audit_files([tmp_path / "in"], tmp_path / "one")
    many = audit_files([tmp_path / "in"], tmp_path / "many", giant=1_000, spark=spark)
    assert many.design == "giant" and one.verdicts["inverted"] > 20 and one.missing == 5
    assert (one.violations, one.doubts) == (many.violations, many.doubts)
    assert_same(tmp_path / "one", tmp_path / "many")


# -- DataFrames


def test_one_pass_gives_all_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Of what Spark's own reader makes of our JSON lines: numbers are bigint, columns without values are not there. The
    tables are those of the command, whether a run is judged at one place or spread; the session is as it was."""
    file = trace(tmp_path / "in" / "t.jsonl")
    before = dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.shuffle.partitions")
    rows = spark.read.json(str(file))
    assert dict(rows.dtypes)["ticket"] == "bigint"
    audit_files([file], tmp_path / "out")
    for giant in (None, 100):
        with audit(rows, giant=giant, sparse=False) as found:
            for name in TABLES:
                mine = getattr(found, name)
                assert mine.dtypes == [(f.name, f.dataType.simpleString()) for f in spark_schema(name).fields]
                told, theirs = in_order(mine), in_order(tmp_path / "out", name)
                if name == "quarantine":  # a DataFrame has no files
                    told, theirs = (sorted(row["reason"] for row in some) for some in (told, theirs))
                    assert len(told) == 4
                assert told == theirs and (told or name == "rates"), (name, giant)
    after = dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.shuffle.partitions")
    assert before == after


def test_workers_without_our_package_are_named(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, and not as the JVM's stack when the first table is used."""
    rows = spark.read.json(str(trace(tmp_path / "t.jsonl")))
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    for python in (str(bare), "no-such-python"):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(UsageError, match=rf"run {python}, which has no whence: .*PYSPARK_PYTHON"):
            audit(rows)


def test_a_small_table_takes_few_tasks_in_a_session_with_200_partitions(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Each of 200 tasks would start a Python worker for nothing."""
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.shuffle.partitions", "200")
    rows = theirs.read.json(str(trace(tmp_path / "t.jsonl")))
    tasks = theirs.sparkContext.statusTracker()
    theirs.sparkContext.setJobGroup("few tasks", "")
    try:
        with audit(rows, giant=100) as found:
            assert found.violations.count()
            stages = [
                stage
                for job in tasks.getJobIdsForGroup("few tasks")
                for stage in tasks.getJobInfo(job).stageIds  # type: ignore[union-attr]
            ]
    finally:
        theirs.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    ran = [info.numTasks for stage in stages if (info := tasks.getStageInfo(stage)) is not None]
    assert ran and max(ran) < 40
    assert theirs.conf.get("spark.sql.shuffle.partitions") == "200"


def test_six_columns_are_enough(spark: SparkSession) -> None:
    """Three processes, an effect before its cause; types as other sources have them."""
    a, b = "0:1.0.1:1@a", "1:1.0.1:1@b"
    said = [("a", 0, "publish", a), ("b", 0, "deliver", a), ("b", 1, "publish", b)]
    said += [("c", 0, "deliver", b), ("c", 1, "deliver", a)]
    rows = [(7, "x", member, lseq, kind, event, [1]) for member, lseq, kind, event in said]
    df = spark.createDataFrame(
        rows, "run int, cluster string, member string, lseq short, kind string, event string, more array<int>"
    )
    found = audit(df.withColumn("lseq", F.col("lseq").cast("decimal(20,0)")), sparse=False)
    (violation,) = found.violations.collect()
    assert (violation.run, violation.rule, violation.member, violation.event) == ("7", "causal", "c", a)
    assert [row.verdict for row in found.verdicts.orderBy("member", "lseq").collect()] == [
        "in order",
        "over a gap",
        "inverted",
    ]
    found.unpersist()


def test_a_wrong_table_is_refused_at_once_with_all_that_is_wrong(spark: SparkSession) -> None:
    df = spark.createDataFrame([("r", 1.5, {"a": 1})], "run string, lseq double, token map<string, int>")
    with pytest.raises(UsageError) as refused:
        audit(df)
    said = str(refused.value)
    assert "no column cluster, member, kind, event;" in said
    assert "lseq is double, not bigint" in said and "token is map<string,int>, not string" in said
    assert "\n" not in said and "Exception" not in said


def test_rows_that_cannot_be_judged_and_none_at_all(spark: SparkSession) -> None:
    rows = [("r", "c", "a", 0, "join", None, "causal"), ("r", "c", "b", 0, "join", None, "casual")]
    rows += [(None, "c", "a", 1, "publish", "e@a", None), ("r", "c", "a", -1, "publish", "f@a", None)]
    df = spark.createDataFrame(
        rows, "run string, cluster string, member string, lseq int, kind string, event string, order string"
    )
    with audit(df) as found:
        reasons = {row.reason.partition(" (")[0]: (row.file, row.position) for row in found.quarantine.collect()}
        members = [row.member for row in found.members.collect()]
    refused = ("no value in column 'run'", "lseq is below 0", "unknown order 'casual'")
    assert reasons == dict.fromkeys(refused, ("", -1)) and sorted(members) == ["a", "b"]
    with audit(df.where("member = 'nobody'")) as found:
        assert [getattr(found, name).count() for name in TABLES] == [0] * 6
    with pytest.raises(UsageError, match="error rate is 3;"):
        audit(df, error_rate=3)


# -- our own files, and streams


def test_traces_as_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """Bad files and lines are rows with `bad`, and the audit puts them into quarantine as the command does."""
    place = trace(tmp_path / "in" / "t.jsonl").parent
    write(make(2_000, runs=2, origins=3, members=5, wrongs=0)[0], place / "parquet")
    (place / "noise.parquet").write_bytes(b"noise")
    (place / "half.jsonl").write_text('{"run": "r"\n')
    audit_files([place], tmp_path / "out")
    with audit(read_traces(spark, [place]), sparse=False) as found:
        for name in TABLES:
            assert in_order(getattr(found, name)) == in_order(tmp_path / "out", name), name
    assert in_order(read_table(spark, tmp_path / "out", "members")) == in_order(tmp_path / "out", "members")
    few = read_traces(spark, [place / "parquet" / "*.parquet"], ["member", "lseq"])
    assert few.columns == ["member", "lseq"] and few.where("member is null").count() == 0 < few.count()


def test_a_stream_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries one after the other, as after a kill: the second goes on from the state in the checkpoint. Together
    they find what the audit finds, each verdict once."""
    a, b = "0:1.0.1:1@a", "1:1.0.1:1@b"
    said = [("a", 0, "publish", a), ("b", 0, "deliver", a), ("c", 0, "deliver", b), ("c", 1, "deliver", a)]
    rows = [Row("wrong", "x", member, lseq, 0, kind, event) for member, lseq, kind, event in said]
    rows += [*Run(parse(HOSTILE), 1).rows, Row("wrong", "x", "b", 1, 0, "publish", b)]
    half = len(rows) // 2
    schema = spark_schema("events")
    for number, some in enumerate((rows[:half], rows[half:])):
        with open_trace(tmp_path / "in" / f"{number}.jsonl") as out:
            out.append_many(some)
        steps = spark.readStream.schema(schema).json(str(tmp_path / "in"))
        sink = audit_stream(steps).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "saved"))
        query = sink.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out"))
    with audit(spark.read.json(str(tmp_path / "in")), sparse=False) as batch:
        expected = in_order(batch.verdicts), {(row.rule, row.member, row.event) for row in batch.violations.collect()}
    violations = found.where("violations is not null").select("violations.*").collect()
    assert in_order(found.where("verdicts is not null").select("verdicts.*")) == expected[0]
    assert {(row.rule, row.member, row.event) for row in violations} == expected[1] == {("causal", "c", a)}
