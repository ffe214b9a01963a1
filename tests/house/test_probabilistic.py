"""docs/probabilistic.md is true: its example runs, its sizes are what the contract says, its fields exist."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import whence
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "probabilistic.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "docs/probabilistic.md", "exec"), {})
    assert "b'hello' None (" in capsys.readouterr().out


def test_the_sizes_are_those_of_the_contract() -> None:
    rows = re.findall(r"^\| (1e-\d) \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 4
    for target, R, K in rows:
        assert whence.Contract(target_error=float(target), rate=200, delay=0.1).size == (int(R), int(K))


def test_every_field_of_the_contract_is_described() -> None:
    fields = {f.name for f in msgspec.structs.fields(whence.Contract)} - {"members"}
    assert fields <= set(re.findall(r"`(\w+)`", TEXT))


def test_the_numbers_are_those_of_the_scenario() -> None:
    [line] = run(load(ROOT / "src" / "whence" / "lab" / "scenarios" / "probabilistic.toml")).report.lines
    for number in (line.delivered, line.inversions, line.alerts4, line.alerts5):
        assert re.search(rf"\b{number:,}\b", TEXT), f"{number:,} is not in docs/probabilistic.md"
    assert line.missed == line.lost == 0 and f"{line.error_rate:.1e}".replace("e-0", "e-") in TEXT
