"""The page of an audit, from finished tables and a bounded part of the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.traces import trace
from whence.cli import near
from whence.cli.audit_page import write_audit_page
from whence.judge.batch import tables
from whence.judge.batch.audited import audited, doubts
from whence.judge.batch.coding import code
from whence.spark import ingest
from whence.spark.parts import Parts
from whence.trace import COLUMNS, Row, open_trace


def clean(n: int) -> list[Row]:
    return trace(*((m, k, f"{i}@a#1") for i in range(n) for m, k in [("a#1", "publish"), ("b#1", "deliver")]))


def wrong(n: int) -> list[Row]:
    """c delivers an answer before the question, after n events in order."""
    steps = [
        (m, k, f"{i}@a#1") for i in range(n) for m, k in [("a#1", "publish"), ("b#1", "deliver"), ("c#1", "deliver")]
    ]
    steps += [("a#1", "publish", "q@a#1"), ("b#1", "deliver", "q@a#1"), ("b#1", "publish", "answer@b#1")]
    return trace(*steps, ("c#1", "deliver", "answer@b#1"), ("c#1", "deliver", "q@a#1"))


def page(tmp_path: Path, *runs: list[Row]) -> str:
    """The page of an audit of these runs."""
    renamed = [
        [Row(f"run-{n}", *(getattr(row, f) for f in Row.__struct_fields__[1:])) for row in rows]
        for n, rows in enumerate(runs)
    ]
    with open_trace(tmp_path / "traces" / "t.parquet") as file:
        file.append_many(row for rows in renamed for row in rows)
    pieces, _ = ingest.plan(ingest.find([tmp_path / "traces"]))
    with Parts(str(tmp_path / "out"), "run") as parts:
        for piece in pieces:
            table, _ = ingest.read_piece(piece, [c.name for c in COLUMNS])
            for n in range(len(runs)):
                mine = table.filter(ingest.pc.equal(table["run"].cast("string"), f"run-{n}"))
                a = audited(code(mine))
                parts.write("verdicts", tables.verdicts(a, f"run-{n}", "c"))
                parts.write("violations", tables.violations(a, f"run-{n}", "c"))
                parts.write("members", tables.members(a, f"run-{n}", "c"))
                parts.write("doubts", tables.doubts_table(doubts(a), f"run-{n}", "c"))
    made = write_audit_page(pieces, tmp_path / "out", len(runs), "whence audit traces --out out")
    assert made is not None
    return made.read_text(encoding="utf-8")


def test_the_run_that_broke_is_shown_and_what_broke(tmp_path: Path) -> None:
    said = page(tmp_path, clean(20), wrong(3))
    assert "run run-1, cluster c (one of 2)" in said
    assert "Order broke: 1 violation<" in said
    assert "9 deliveries of 5 events at 3 members" in said


def test_of_a_long_run_the_part_around_the_violation_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MOST", 50)
    said = page(tmp_path, clean(20), wrong(400))
    assert "50 of its 1,208 steps" in said
    assert "Deliveries, losses, verdicts and violations are of the whole run." in said
    assert ">803 deliveries.<" in said  # of the whole run, by the tables
    assert '"answer@b#1"' in said  # the violation is in the diagram


def test_without_a_violation_the_largest_run_is_shown(tmp_path: Path) -> None:
    assert "run run-1, cluster c (one of 3)" in page(tmp_path, clean(5), clean(30), clean(10))
