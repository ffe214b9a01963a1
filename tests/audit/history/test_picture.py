"""The page of a check, and input that is awkward."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.audit.history.cases import DATA, PATTERNS, WHY_SKIPPED, history
from whence.audit.history import check
from whence.audit.history.picture import page, svg
from whence.cli import main


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_is_drawn_or_told(pattern: str) -> None:
    report = check(history(PATTERNS[pattern][0]))
    found = report.counterexample()
    assert found is not None
    text = page([report])
    assert '<td class="violated">violated</td>' in text and found.pattern in text
    if not found.edges:
        assert "<svg" not in text
        return
    drawn = svg(report, found)
    for t in found.nodes():
        assert f">{report.history.name(t)}</text>" in drawn
    ends = len(re.findall(r"marker-end", drawn))
    assert ends >= len({(e.src, e.dst, e.kind) for e in found.edges})
    numbers = [float(n) for n in re.findall(r'(?:x|y|x1|y1|x2|y2)="(-?[\d.]+)"', drawn)]
    assert min(numbers) >= 0


def test_a_page_holds_no_markup_of_the_history() -> None:
    """Keys and file names come from the input."""
    report = check(history(PATTERNS["COConflictAO"][0]))
    report.history.file = "<script>alert(1).txt"
    text = page([report])
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.txt").write_text(PATTERNS["COConflictAO"][0].replace(" ", "\n") + "\n")
    (tmp_path / "good.txt").write_text("w(1,1,0,0)\nr(1,1,1,1)\n")
    assert main(["history", str(tmp_path / "bad.txt"), str(tmp_path / "good.txt"), "--out", str(tmp_path / "out")]) == 1
    assert "index.html" in capsys.readouterr().err
    text = (tmp_path / "out" / "index.html").read_text()
    assert text.count("<svg") == 1 and "2 histories, 1 violated." in text and "good.txt" in text


@pytest.mark.skipif(DATA is None, reason=WHY_SKIPPED)
def test_awkward_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert DATA is not None
    for case in json.loads((DATA / "hostile" / "expected.json").read_text()):
        name, expected = case["file"], case.get("expected", {})
        code = main(["history", str(DATA / name), "--json"])
        told = capsys.readouterr()
        if "bad-line" in name:
            assert code == 2 and "line 3" in told.err and name in told.err
            continue
        if "empty" in name:
            assert code == 2 and "holds no operation" in told.err and name in told.err
            continue
        report = json.loads(told.out)
        assert code == (1 if "violated" in expected.values() else 0)
        for level, verdict in expected.items():
            assert report["levels"][level] is (verdict == "ok"), name
        if "repeated" in name:
            assert any("(1, 1) is written twice" in note for note in report["notes"])
