"""`whence paper all`: every experiment into one page; data that is there is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from whence.cli import main
from whence.lab.paper import Experiment
from whence.lab.paper import run as every
from whence.lab.paper.frame import Study


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two cheap experiments, and a record of what was measured."""
    pytest.importorskip("pyarrow")
    measured: list[str] = []
    before_each(monkeypatch, measured.append)
    monkeypatch.setattr(every, "EXPERIMENTS", ["survey/examples", "ccc11/ring"])
    return measured


def before_each(monkeypatch: pytest.MonkeyPatch, call: Callable[[str], object]) -> None:
    """Call this with the name of each experiment that is about to be measured."""
    plain = Experiment.study

    def study(self: Experiment) -> Study:
        found: Study = plain.fget(self)  # type: ignore[misc]
        return msgspec.structs.replace(found, measure=lambda options: (call(self.name), found.measure(options))[1])

    monkeypatch.setattr(Experiment, "study", property(study))


def test_all_makes_the_page_and_continues_where_it_stopped(
    few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert few == ["survey/examples", "ccc11/ring"]
    page = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert page.startswith("# Every claim") and "Theorem 4.2" in page
    results = json.loads((tmp_path / "results.json").read_bytes())
    assert not results["experiments"]["ccc11/ring"]["quick"]  # a quick run does not replace a full one
    assert (tmp_path / "ccc11/ring/ring.csv").exists() and "Theorem 4.2" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "survey/examples/claims.json").unlink()
    assert main(["paper", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert few == ["survey/examples", "ccc11/ring", "survey/examples"]
    assert (tmp_path / "claims.md").read_text(encoding="utf-8") == page


def test_broken_data_is_measured_again(few: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "survey/examples"
    folder.mkdir(parents=True)
    (folder / "claims.json").write_text("{not json")
    (folder / "examples.parquet").write_bytes(b"nothing")
    assert main(["paper", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert "survey/examples" in few


def test_an_interrupted_run_says_how_to_continue(
    few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str) -> None:
        if name == "ccc11/ring":
            raise KeyboardInterrupt

    with monkeypatch.context() as once:
        before_each(once, interrupted)
        assert main(["paper", "all", "--quick", "--out", str(tmp_path)]) == 130
    assert f"finished experiments are in {tmp_path}; the same command continues" in capsys.readouterr().err
    assert main(["paper", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert few == ["survey/examples", "ccc11/ring"]


def test_where_nothing_can_be_written_nothing_is_measured(
    few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("all", "ccc11/ring"):
        assert main(["paper", name, "--quick", "--out", str(tmp_path / "file" / "out")]) == 2
        assert "out: cannot write into" in capsys.readouterr().err
    assert few == []


def test_a_file_is_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("")
    assert main(["paper", "all", "--out", str(tmp_path / "out")]) == 2
    assert "is a file" in capsys.readouterr().err
