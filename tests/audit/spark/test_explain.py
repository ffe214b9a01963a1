"""A closer look at a violation: what it shows is in the trace, and shows what it claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.audit.spark.session import spark
from whence.audit.judge.batch import audited
from whence.audit.judge.batch import tables as results
from whence.audit.judge.batch.coding import code
from whence.audit.spark.explain import chain, export_shiviz, neighbourhood
from whence.audit.spark.tables import arrow_schema
from whence.audit.trace import Row, shiviz
from whence.errors import UsageError
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

__all__ = ["spark"]

SCENARIOS = Path(__file__).parents[3] / "src" / "whence" / "lab" / "scenarios"
Verdict = dict[str, Any]


def tables(spark: SparkSession, rows: Iterable[Row]) -> tuple[DataFrame, list[Verdict]]:
    """Events and verdicts."""
    schema = arrow_schema("events")
    events = pa.Table.from_pydict({f.name: [getattr(r, f.name, "f") for r in rows] for f in schema}, schema=schema)
    judged = audited.audited(code(events))
    verdicts = results.verdicts(judged).cast(arrow_schema("verdicts"))
    return spark.createDataFrame(events), verdicts.to_pylist()


class Trace:
    """Rows written by hand."""

    def __init__(self, *members: str) -> None:
        self.rows: list[Row] = []
        self.steps: Counter[str] = Counter()
        self.seqs: Counter[str] = Counter()
        for member in members:
            self.add(member, "join", reason="genesis", order="causal")

    def add(self, member: str, kind: str, event: str | None = None, **more: Any) -> int:
        step = self.steps[member]
        self.rows.append(Row("r", "main", member, step, len(self.rows), kind, event=event, **more))
        self.steps[member] += 1
        return step

    def publish(self, member: str) -> str:
        self.seqs[member] += 1
        event = f"0:0.0.1:{self.seqs[member]}@{member}"
        self.add(member, "publish", event)
        self.add(member, "deliver", event)
        return event


def test_the_shortest_chain_however_long(spark: SparkSession) -> None:
    trace = Trace("a", "b", "d", "f", "g", "q")
    c = trace.publish("a")
    trace.add("b", "deliver", c)
    first = trace.publish("b")
    trace.add("d", "deliver", first)
    second = trace.publish("d")
    trace.add("f", "deliver", second)
    trace.add("f", "snapshot", token="f/1")
    trace.add("g", "join", reason="snapshot", token="f/1", order="causal")
    e = trace.publish("g")
    trace.add("g", "deliver", c)  # too late to be how it knew
    trace.add("q", "deliver", e)
    trace.add("q", "deliver", c)
    events, rows = tables(spark, trace.rows)
    wrong = next(v for v in rows if v["member"] == "q" and v["verdict"] == "inverted")
    assert [(r.member, r.kind, r.event or r.token) for r in chain(events, wrong)] == [
        ("a", "publish", c),
        ("b", "deliver", c),
        ("b", "publish", first),
        ("d", "deliver", first),
        ("d", "publish", second),
        ("f", "deliver", second),
        ("f", "snapshot", "f/1"),
        ("g", "join", "f/1"),
        ("g", "publish", e),
    ]
    assert chain(events, {**wrong, "cause_event": "0:0.0.1:7@nobody"}) == []


def test_chains_of_a_simulated_run_are_true(spark: SparkSession) -> None:
    """Each step is in the trace, and follows the one before it: at the same member, or as its delivery."""
    rows: list[Row] = []
    run(load(SCENARIOS / "hostile.toml"), 3, sink=rows.append)
    rows = [Row(**{f: "r" if f == "run" else getattr(r, f) for f in Row.__struct_fields__}) for r in rows]
    there = {(r.member, r.lseq, r.kind, r.event) for r in rows}
    events, judged = tables(spark, rows)
    wanted = [v for v in judged if v["cause_event"] is not None and v["verdict"] != "duplicate"]
    assert len(wanted) > 20
    for wrong in wanted[:: len(wanted) // 3][:3]:
        steps = chain(events, wrong)
        ends = [wrong["event"], wrong["cause_event"]]
        assert [steps[0].event, steps[-1].event] == (ends if wrong["verdict"] == "inverted" else ends[::-1])
        assert steps[0].kind == steps[-1].kind == "publish"
        assert {(s.member, s.lseq, s.kind, s.event) for s in steps} <= there
        for before, after in pairwise(steps):
            mine = after.member == before.member and after.lseq > before.lseq
            told = (after.event or after.token) == (before.event or before.token)
            assert mine or (after.kind in ("deliver", "join") and told)


def test_a_neighbourhood_can_be_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    trace = Trace("a", "b", "q", "far")
    for _ in range(10):
        trace.add("far", "fault", reason="not of interest")
        trace.add("q", "fault", reason="long before")
    c = trace.publish("a")
    trace.add("b", "deliver", c)
    e = trace.publish("b")
    trace.add("q", "deliver", e)
    at = trace.add("q", "deliver", c)
    for _ in range(10):
        trace.add("q", "fault", reason="long after")
    trace.add("far", "deliver", c)
    events, judged = tables(spark, trace.rows)
    wrong = next(v for v in judged if v["lseq"] == at and v["member"] == "q")
    near = neighbourhood(events, wrong, radius=1)
    assert {(r.member, r.lseq) for r in near.collect()} == {
        ("a", 0), ("a", 1), ("a", 2),
        ("b", 0), ("b", 1), ("b", 2), ("b", 3),
        ("q", at - 2), ("q", at - 1), ("q", at), ("q", at + 1),
    }  # fmt: skip
    violation = {"run": "r", "cluster": "main", "member": "q", "lseq": at, "event": c, "witness": [c, e]}
    assert {(r.member, r.lseq) for r in neighbourhood(events, violation, 0).collect()} == {
        ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("q", at - 1), ("q", at)
    }  # fmt: skip
    assert export_shiviz(near, tmp_path / "near.log") == 11
    log = shiviz.load_log(tmp_path / "near.log", shiviz.EXPRESSION)
    by_host = {h: [r.event for r in log.records if r.host == h] for h in ("a", "b", "q")}
    assert by_host["q"] == [f"deliver {e} (step {at - 1})", f"deliver {c} (step {at})"]
    effect = next(r for r in log.records if r.host == "q" and e in r.event)
    assert effect.clock["a"] == 2 and effect.clock["b"] == 3, "drawn with arrows from a by b to q"
    with pytest.raises(UsageError, match="number of steps"):
        neighbourhood(events, wrong, -1)
