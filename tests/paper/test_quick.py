"""The quick form of every experiment, end to end: its verdicts are those that are stored."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from whence.cli import main
from whence.paper import EXPERIMENTS
from whence.paper.claims.page import stored
from whence.paper.frame import Recorded

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_figure(name: str, tmp_path: Path) -> None:
    """A verdict that changes needs a new docs/claims.md (`make claims`)."""
    assert main(["paper", name, "--quick", "--out", str(tmp_path)]) == 0
    found = msgspec.json.decode((tmp_path / "claims.json").read_bytes(), type=Recorded)
    assert (tmp_path / f"{name.rpartition('/')[2]}.csv").exists()
    assert {j.key: j.status for j in found.claims if not j.earlier} == stored().quick[name]
