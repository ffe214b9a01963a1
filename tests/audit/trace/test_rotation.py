"""Parquet with rotation: complete files, and nothing is lost when the process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from whence.audit.trace import ParquetTrace, RotatingTrace, Row, read, trace_files

pytest.importorskip("pyarrow")


def sample(n: int, first: int = 0) -> list[Row]:
    return [Row("r", "c", "a#1", k, k, "step") for k in range(first, first + n)]


def test_full_segments_are_parquet_and_all_rows_are_there(tmp_path: Path) -> None:
    trace = RotatingTrace(tmp_path / "n1.parquet", rows=10)
    for row in sample(35):
        trace.append(row)
    trace.flush()
    assert (tmp_path / "n1-000004.jsonl").exists()
    trace.close()
    trace.close()
    assert trace.failed == []
    assert [file.name for file in trace_files(tmp_path)] == [f"n1-{k:06d}.parquet" for k in range(1, 5)]
    assert list(read(tmp_path)) == sample(35)


def test_the_next_life_goes_on_with_the_next_number(tmp_path: Path) -> None:
    RotatingTrace(tmp_path / "n1.parquet").close()
    assert list(tmp_path.iterdir()) == [], "nothing written leaves nothing"
    for first in (0, 12):
        trace = RotatingTrace(tmp_path / "n1.parquet", rows=10)
        for row in sample(12, first):
            trace.append(row)
        trace.close()
    assert len(trace_files(tmp_path)) == 4
    assert list(read(tmp_path)) == sample(24)


def test_a_segment_that_cannot_become_parquet_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ParquetTrace, rows: list[Row]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ParquetTrace, "_write", full)
    trace = RotatingTrace(tmp_path / "n1.parquet", rows=10)
    for row in sample(15):
        trace.append(row)
    trace.close()
    assert "No space left" in str(trace.failed[0])
    assert list(read(tmp_path)) == sample(15)


KILLED = """
import os, signal, sys
from whence.audit.trace import RotatingTrace, Row
trace = RotatingTrace(sys.argv[1], rows=7)
for k in range(1000):
    trace.append(Row("r", "c", "a#1", k, k, "step"))
    trace.flush()
    if k == 500:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_no_flushed_row(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "n1.parquet")])
    assert done.returncode == -signal.SIGKILL
    rows = read(tmp_path, on_bad="collect")
    assert {row.lseq: row for row in rows} == {row.lseq: row for row in sample(501)}
    assert rows.bad == []
