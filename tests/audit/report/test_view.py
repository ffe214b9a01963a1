"""The page of an audit, from a bounded part of the run that broke."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.audit.report.traces import trace
from whence.audit import audit_files
from whence.audit.report import render, view
from whence.audit.report.facts import Overview
from whence.audit.trace import Row, open_trace


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
    with open_trace(tmp_path / "traces" / "t.parquet") as file:
        for n, rows in enumerate(runs):
            file.append_many(msgspec.structs.replace(row, run=f"run-{n}") for row in rows)
    found = audit_files([tmp_path / "traces"], tmp_path / "out", command="whence audit traces --out out")
    assert found.runs == len({(n, row.cluster) for n, rows in enumerate(runs) for row in rows})
    return (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_run_that_broke_is_shown_and_what_broke(tmp_path: Path) -> None:
    said = page(tmp_path, clean(20), wrong(3))
    assert "run run-1, cluster c (one of 2)" in said
    assert "Order broke: 1 violation<" in said
    assert "9 deliveries of 5 events at 3 members" in said


def test_all_runs_are_summed_and_listed_the_worst_first(tmp_path: Path) -> None:
    """The worst is on the page itself, others have pages of their own; a second audit replaces them."""
    twice = [*wrong(3), *(msgspec.structs.replace(row, cluster="d") for row in wrong(2))]
    for _ in range(2):
        said = page(tmp_path, clean(20), wrong(3), clean(9), twice)
        assert "Order broke: 3 violations<" in said and "violations in 3 runs" in said
        assert "<td>causal</td><td>3</td>" in said
        listed = re.findall(r'<td><a href="([^"]+)">([^<]+)</a></td><td>(.)</td><td>(\d+)', said)
        assert [(run, cluster, n) for _, run, cluster, n in listed] == [
            ("run-3", "c", "1"),
            ("run-1", "c", "1"),
            ("run-3", "d", "1"),
            ("run-0", "c", "0"),
            ("run-2", "c", "0"),
        ]
        assert listed[0][0] == "report.html" and len(list((tmp_path / "out" / "runs").iterdir())) == 4
        other = (tmp_path / "out" / listed[1][0]).read_text()
        assert "run run-1, cluster c (one of 5)" in other and '<a href="../report.html">All runs</a>' in other


def test_inversions_that_nobody_forbade_are_not_green(tmp_path: Path) -> None:
    free = [msgspec.structs.replace(row, order="unordered" if row.order else None) for row in wrong(3)]
    said = page(tmp_path, free)
    assert "No promise was broken; 1 inversion where no causal order was asked for" in said
    assert "Order held" not in said and '"verdict good"' not in said


def test_what_is_in_quarantine_is_not_green(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "empty.jsonl").touch()
    assert "No violation found; 1 in quarantine" in page(tmp_path, clean(5))


def test_of_a_long_run_the_part_around_the_violation_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.audit.spark.driver.MOST", 50)
    said = page(tmp_path, clean(20), wrong(400))
    assert "50 of its 1,208 steps" in said
    assert "Deliveries, losses, verdicts and violations are of the whole run." in said
    assert ">803 deliveries.<" in said  # of the whole run, by the tables
    assert '"answer@b#1"' in said  # the violation is in the diagram


def test_without_a_violation_the_largest_run_is_shown(tmp_path: Path) -> None:
    assert "run run-1, cluster c (one of 3)" in page(tmp_path, clean(5), clean(30), clean(10))


def test_a_piece_of_a_giant_run_is_called_one(tmp_path: Path) -> None:
    """Its task has no table of members, which is made of all pieces at the end."""
    page(tmp_path, wrong(3))
    tables = {name: pq.read_table(tmp_path / "out" / name) for name in ("verdicts", "violations")}
    assert view.runs_in(tables) == [(1, 0, 9, "run-0", "c")]
    rows = pq.read_table(tmp_path / "traces" / "t.parquet")
    facts = view.facts(view.view(rows, tables, ("run-0", "c")), Overview(runs=1), "")
    assert facts.about == "audited: run run-0, cluster c; some of its members"
    assert "<dt>inversions</dt><dd>1</dd>" in render(facts)
