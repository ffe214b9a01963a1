"""What goes into the quarantine accuses nobody: rows of correct runs, damaged in every way, on both ways in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.audit.judge.batch.rows import HOSTILE
from tests.lab.sim.runs import Run
from tests.long import few
from whence.audit import Summary, audit, audit_files
from whence.audit.spark.tables import spark_schema
from whence.audit.trace.schema import COLUMNS
from whence.cli import main
from whence.lab.sim.scenario import parse

Step = dict[str, Any]
Damage = Callable[[Step], Any]


@pytest.fixture(scope="module")
def correct() -> list[Step]:
    """Members of four orders that crash, leave, come back and hand on tickets."""
    rows = Run(parse(HOSTILE.replace('duration = "40r"', 'duration = "30r"')), 5).clean().rows
    return [json.loads(msgspec.json.encode(row)) for row in rows]


def to(name: str, value: Any) -> Damage:
    return lambda step: {**step, name: value}


COLUMNWISE: dict[str, Damage] = {f"no {name}": to(name, None) for name in ("run", "cluster", "member", "lseq", "kind")}
COLUMNWISE |= {
    "no event": lambda step: {**step, "event": None},
    "capitals": lambda step: {**step, "kind": step["kind"].upper()},
    "unknown kind": to("kind", "delivered"),
    "unknown order": to("order", "casual"),
    "lseq below": lambda step: {**step, "lseq": -1 - step["lseq"]},
    "lseq above": lambda step: {**step, "lseq": (1 << 62) + step["lseq"]},
}
LINES: dict[str, Damage] = {f"a list in {c.name}": to(c.name, ["x"]) for c in COLUMNS if c.name in ("run", "ticket")}
LINES |= {
    "version 0": to("version", 0),
    "text for a number": lambda step: {**step, "lseq": str(step["lseq"])},
    "a number for text": to("member", 7),
    "half a line": lambda step: json.dumps(step)[: len(json.dumps(step)) // 2],
    "a few letters": lambda step: json.dumps(step)[:9],
    "two lines in one": lambda step: json.dumps(step) + json.dumps({**step, "lseq": step["lseq"] + 1}),
    "noise": lambda step: "\0\ufffd{]",
}


def damaged(steps: list[Step], ways: dict[str, Damage], rng: random.Random) -> Iterator[tuple[str, list[Any]]]:
    """The run with one kind of damage: in all steps of a member, in some of them, in its first or in its last ones, and
    in steps of all members."""
    members = sorted({step["member"] for step in steps})
    for name, damage in ways.items():
        for where in ("all", "some", "first", "last", "anywhere"):
            whose = rng.choice(members)
            mine = sorted((k for k, s in enumerate(steps) if s["member"] == whose), key=lambda k: steps[k]["lseq"])
            n = rng.randrange(1, 6)
            hit = {"all": mine, "first": mine[:n], "last": mine[-n:]}.get(where, rng.sample(mine, min(len(mine), n)))
            hit = rng.sample(range(len(steps)), 20) if where == "anywhere" else hit
            yield f"{name} {where}", [damage(s) if k in set(hit) else s for k, s in enumerate(steps)]
    for whose in rng.sample(members, 3):
        by = rng.randrange(1, 30)
        yield f"shifted by {by}", [{**s, "lseq": s["lseq"] - by * (s["member"] == whose)} for s in steps]
        last = max(s["lseq"] for s in steps if s["member"] == whose)
        at = {last, *rng.sample(range(last + 1), min(4, last))}
        other = [{**s, "event": "0:0.9.1:1@x"} for s in steps if s["member"] == whose and s["lseq"] in at]
        yield "contradictions", steps + other


def as_lines(steps: list[Any]) -> str:
    return "".join(f"{s if isinstance(s, str) else json.dumps(s)}\n" for s in steps)


def as_table(steps: list[Step]) -> pa.Table:
    kinds = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    return pa.table({c.name: pa.array([s.get(c.name) for s in steps], kinds[c.type]) for c in COLUMNS})


def accuses_nobody(found: Summary, name: str) -> None:
    assert found.violations == {}, (name, found.first)
    assert not found.quarantined or not found.sure, name


@pytest.mark.parametrize(("part", "complete"), few([(p, c) for p in range(5) for c in (False, True)], 2))
def test_files(correct: list[Step], tmp_path: Path, part: int, complete: bool) -> None:
    rng, taken = random.Random(part), 0
    assert audit_files([_parquet(correct, tmp_path)], tmp_path / "out", complete=complete).violations == {}
    for name, steps in islice(damaged(correct, COLUMNWISE | LINES, rng), part, None, 5):
        (tmp_path / "t.jsonl").write_text(as_lines(steps))
        found = audit_files([tmp_path / "t.jsonl"], tmp_path / "out", complete=complete)
        accuses_nobody(found, name)
        taken += found.quarantined > 0
    for name, steps in islice(damaged(correct, COLUMNWISE, rng), part, None, 5):
        found = audit_files([_parquet(steps, tmp_path)], tmp_path / "out", complete=complete)
        accuses_nobody(found, name)
        taken += found.quarantined > 0
    assert taken > 20


def _parquet(steps: list[Step], tmp_path: Path) -> Path:
    pq.write_table(as_table(steps), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.mark.parametrize("giant", [None, 100])
def test_dataframes(correct: list[Step], spark: SparkSession, tmp_path: Path, giant: int | None) -> None:
    """Each damage is a run; where the run's name is gone nobody knows which one it was."""
    tables, rng = [], random.Random(2)
    for name, steps in [("whole", correct), *damaged(correct, COLUMNWISE, rng)][:: 3 if giant is None else 9]:
        tables.append(as_table([{**s, "run": s["run"] and name} for s in steps]))
    pq.write_table(pa.concat_tables(tables), tmp_path / "all.parquet")
    rows = spark.read.schema(spark_schema("events")).parquet(str(tmp_path / "all.parquet"))
    for complete in (False, True):
        with audit(rows, complete=complete, giant=giant) as found:
            assert found.violations.collect() == []
            assert found.quarantine.count() > 50 and found.doubts.count()


def test_the_gate_of_a_pipeline(correct: list[Step], tmp_path: Path) -> None:
    """Exit 0 only where deliveries were judged, and nothing was put aside."""

    def code(*files: Path) -> int:
        return main(["audit", *map(str, files), "--out", str(tmp_path / "out"), "--engine", "local"])

    good = _parquet(correct, tmp_path)
    assert code(good) in (0, 3)
    (tmp_path / "capitals.jsonl").write_text(as_lines([{**s, "kind": s["kind"].upper()} for s in correct]))
    assert code(tmp_path / "capitals.jsonl") == 2  # nothing readable
    (tmp_path / "quiet.jsonl").write_text(as_lines([s for s in correct if s["kind"] == "join"]))
    assert code(tmp_path / "quiet.jsonl") == 3
    small = [{"run": "r", "cluster": "c", "member": m, "t_ns": 0, "version": 2} for m in "ab"]
    steps = [
        {**small[0], "lseq": 0, "kind": "publish", "event": "e@a"},
        {**small[0], "lseq": 1, "kind": "deliver", "event": "e@a"},
        {**small[1], "lseq": 0, "kind": "deliver", "event": "e@a"},
    ]
    (tmp_path / "small.jsonl").write_text(as_lines(steps))
    assert code(tmp_path / "small.jsonl") == 0
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and no more")
    assert code(tmp_path / "small.jsonl", tmp_path / "damaged.parquet") == 3


def test_an_order_that_no_row_tells_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"run": "r", "cluster": "c", "t_ns": 0, "version": 2}
    steps = [{**one, "member": m, "lseq": 0, "kind": "join", "reason": "genesis"} for m in "abc"]
    steps[0]["order"] = "causal"
    (tmp_path / "t.jsonl").write_text(as_lines(steps))
    assert audit_files([tmp_path / "t.jsonl"], tmp_path / "out").assumed == 2
    main(["audit", str(tmp_path / "t.jsonl"), "--out", str(tmp_path / "out"), "--engine", "local"])
    assert "members whose order no row tells: taken as causal" in capsys.readouterr().out
