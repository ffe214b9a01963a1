"""docs/simulator.md is true: its example runs, and it names every key and every kind of action."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from whence.lab.sim.actions import KINDS
from whence.lab.sim.scenario import Chaos, Clocks, NetworkSettings, ScenarioCluster, SimScenario, Workload

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "table", [SimScenario, ScenarioCluster, Workload, NetworkSettings, Clocks, Chaos, *KINDS.values()]
)
def test_every_key_is_described(table: type[msgspec.Struct]) -> None:
    said = set(re.findall(r"`(\w+)", TEXT))
    missing = [f for f in table.__struct_encode_fields__ if f not in said]
    assert set(missing) <= {"network", "clocks", "cluster", "chaos", "workload"}, missing  # these are headings


def test_every_packaged_scenario_is_listed_and_every_listed_one_is_there() -> None:
    section = TEXT.partition("| scenario | what |")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE))
    assert listed == {p.stem for p in (ROOT / "src" / "whence" / "lab" / "scenarios").glob("*.toml")}


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "docs/simulator.md", "exec"), {})
    assert "deliveries" in capsys.readouterr().out
