"""`whence history`: exit codes, JSON, the story, files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whence.audit.history.tables import from_table
from whence.cli import main
from whence.errors import HistoryError

Capture = pytest.CaptureFixture[str]

HOLE = "w(1,1,0,0)\nr(1,1,1,1)\nw(2,1,1,1)\nr(2,1,2,2)\nr(1,0,2,3)\n"
GOOD = "w(1,1,0,0)\nr(1,1,1,1)\n"


@pytest.fixture
def hole(tmp_path: Path) -> Path:
    (tmp_path / "hole.txt").write_text(HOLE)
    return tmp_path / "hole.txt"


def test_the_same_file_twice_is_told_twice(hole: Path, tmp_path: Path) -> None:
    assert main(["history", str(hole), str(hole), "--out", str(tmp_path / "out")]) == 1
    assert (tmp_path / "out" / "index.html").read_text().count("<h2") == 2


def test_the_story(hole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(hole)]) == 1
    said = capsys.readouterr().out
    assert "TCC violated (COConflictAO). RC and RA hold." in said
    assert "t3 has t0 in its past (t0 -wr 1-> t1 -wr 2-> t2 -so-> t3)" in said
    assert "but nothing commits before the initial state." in said
    assert "writes follow reads is broken" in said


def test_json(hole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(hole), "--json", "--level", "tcc", "--level", "rc"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["levels"] == {"TCC": False, "RC": True}
    assert told["patterns"] == {"COConflictAO": 1} and told["operations"] == 5
    assert told["counterexample"]["edges"][1]["reader"] == "t3"
    assert {"file", "transactions", "sessions", "seconds"} <= set(told)
    assert main(["history", str(hole), "--level", "rc"]) == 0


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.txt").write_text("w(1,1,0,0)\nw(1,2\n")
    (tmp_path / "good.txt").write_text(GOOD)
    assert main(["history", str(tmp_path / "bad.txt")]) == 2
    assert "bad.txt, line 2: 'w(1,2' is not an operation" in capsys.readouterr().err
    assert main(["history", str(tmp_path)]) == 2, "one bad file is told, and the others are checked"
    told = capsys.readouterr()
    assert "bad.txt, line 2" in told.err and "good.txt: 2 operations" in told.out
    assert main(["history", str(tmp_path / "good.txt"), "--certificate"]) == 2
    assert main(["history", str(tmp_path / "good.txt"), "--format", "cobra"]) == 2


@pytest.mark.parametrize("content", [b"", b"PAR1 is not enough", b"\x00" * 5000])
def test_a_broken_parquet_file(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    assert main(["history", str(tmp_path / "a.parquet")]) == 2
    assert "a.parquet: no Parquet file" in capsys.readouterr().err


ROW = {"session": "a", "txn": 0, "op": 0, "kind": "w", "key": 1, "value": 1, "status": "committed"}


@pytest.mark.parametrize(
    "change, told",
    [
        ({"kind": "x"}, "row 1: the kind is r, w or a, not 'x'"),
        ({"session": None}, "row 1: the column 'session' is null"),
        ({"txn": None}, "row 1: the column 'txn' is null"),
        ({"key": None}, "row 1: the column 'key' is null"),
        ({"status": "lost"}, "row 1: the status is committed, aborted or indeterminate, not 'lost'"),
    ],
)
def test_bad_rows_of_a_table(change: dict[str, Any], told: str, tmp_path: Path, capsys: Capture) -> None:
    rows = [ROW, {**ROW, "op": 1, **change}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert main(["history", str(tmp_path / "a.parquet")]) == 2
    assert told in capsys.readouterr().err
    with pytest.raises(HistoryError, match=re.escape(told)):
        from_table(pa.Table.from_pylist(rows), "a")


def test_a_row_that_is_there_twice() -> None:
    rows = [ROW, {**ROW, "op": 1}, {**ROW, "op": 1}, {**ROW, "op": 0}]
    with pytest.raises(HistoryError, match="a second row of session a, txn 0, op"):
        from_table(pa.Table.from_pylist(rows), "a")


def test_a_folder_that_cannot_be_written_is_named_first(hole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(hole), "--out", str(hole)]) == 2
    told = capsys.readouterr()
    assert "hole.txt" in told.err and not told.out, "before the check"


def test_files_and_a_certificate_that_another_program_verifies(hole: Path, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text(GOOD)
    out = tmp_path / "out"
    assert main(["history", str(hole), str(tmp_path / "good.txt"), "--out", str(out), "--certificate"]) == 1
    findings = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert [found["pattern"] for found in findings] == ["COConflictAO"]
    verifier = Path(__file__).parents[2] / "src" / "whence" / "audit" / "history" / "verify.py"
    assert len(verifier.read_text().splitlines()) <= 60
    for name, level in (("hole", "RA"), ("good", "TCC")):
        assert json.loads((out / f"{name}.certificate.json").read_text())["level"] == level
        files = [str(out / f"{name}.operations.jsonl"), str(out / f"{name}.certificate.json")]
        assert subprocess.run([sys.executable, "-I", str(verifier), *files], check=False).returncode == 0
    proof = json.loads((out / "good.certificate.json").read_text())
    (out / "good.certificate.json").write_text(json.dumps({**proof, "order": proof["order"][::-1]}))
    assert (
        subprocess.run([sys.executable, "-I", str(verifier), *files], capture_output=True, check=False).returncode == 1
    )
    assert main(["history", str(hole), "--out", str(out)]) == 2, "an earlier check is not mixed with this one"
