"""The steps around a step, found without reading the whole trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.audit.spark import ingest
from whence.audit.trace import Row, open_trace
from whence.cli import near

STEPS = 4_000
MEMBERS = ("a#1", "b#1", "c#1")


def rows(run: str = "r") -> list[Row]:
    """Three members that take turns; one step each millisecond."""
    return [
        Row(run, "c", member, lseq, 10**6 * (3 * lseq + n), "deliver", event=f"{lseq}@a#1", origin="a#1")
        for lseq in range(STEPS)
        for n, member in enumerate(MEMBERS)
    ]


def pieces(folder: Path) -> list[ingest.Piece]:
    found, bad = ingest.plan(ingest.find([folder]))
    assert bad == []
    return found


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_the_nearest_steps_of_the_run_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(near, "MOST", 301)
    monkeypatch.setattr(near, "READ_ROWS", 1)  # one part of a file, and no more
    monkeypatch.setattr(near, "WINDOW", 200_000)
    with open_trace(tmp_path / "t" / name) as trace:
        trace._batch = 1_000  # row groups
        trace.append_many(rows())
    around = near.rows(pieces(tmp_path / "t"), ("r", "c"), "b#1", 2_500)
    assert len(around) == 301
    assert ("b#1", 2_500) in {(row.member, row.lseq) for row in around}
    assert {row.member for row in around} == set(MEMBERS)
    assert all(abs(row.t_ns - 7_501 * 10**6) < 1_000 * 10**6 for row in around)


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_without_a_step_the_first_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(near, "MOST", 30)
    with open_trace(tmp_path / "t" / name) as trace:
        trace.append_many([*rows("other"), *rows()])
    for step in ((None, None), ("b#1", None), ("nobody", 7)):
        found = near.rows(pieces(tmp_path / "t"), ("r", "c"), *step)
        assert {(row.run, row.lseq) for row in found} == {("r", lseq) for lseq in range(10)}


def test_a_short_run_is_read_whole_from_all_its_files(tmp_path: Path) -> None:
    for member in MEMBERS:
        with open_trace(tmp_path / "t" / f"{member}.jsonl") as trace:
            trace.append_many(row for row in rows()[:300] if row.member == member)
    found = near.rows(pieces(tmp_path / "t"), ("r", "c"))
    assert sorted(found, key=lambda row: row.t_ns) == rows()[:300]
    assert near.rows(pieces(tmp_path / "t"), ("r", "another cluster")) == []
