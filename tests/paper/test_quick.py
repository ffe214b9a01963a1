"""The quick form of every figure, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whence.cli import main
from whence.paper import EXPERIMENTS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_figure(name: str, tmp_path: Path) -> None:
    assert main(["paper", name, "--quick", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert found["claims"] and (tmp_path / f"{name.rpartition('/')[2]}.csv").exists()
