"""A short attack on a real cluster: what `make soak-hostile` does for longer."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest
from soak.hostile import soak

if importlib.util.find_spec("cryptography") is None or not Path("/proc/self/fd").exists():
    pytest.skip("needs the cryptography package and /proc", allow_module_level=True)


def test_liars_and_strangers_cost_no_event_and_little_of_anything_else(tmp_path: Path) -> None:
    # Time is bounded by `make soak-hostile` (20 s); here the machine may be busy with other tests.
    result = asyncio.run(soak(tmp_path / "keys", 3.0, seed=7, max_delay=300))
    assert result["ok"], result
    assert result["cut_off"] > 0 and result["attacks"] > 100
