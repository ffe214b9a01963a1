"""A short attack on real processes: what `make soak-hostile` does for longer."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest
from soak.hostile import soak

if importlib.util.find_spec("cryptography") is None or not Path("/proc/self/fd").exists():
    pytest.skip("needs the cryptography package and /proc", allow_module_level=True)

pytestmark = pytest.mark.long


def test_attackers_cost_no_event_no_order_and_little_of_anything_else(tmp_path: Path) -> None:
    # Time is bounded by `make soak-hostile` (20 s); here the machine may be busy with other tests.
    result = asyncio.run(soak(tmp_path, 8.0, seed=7, max_delay=300))
    assert result["ok"], result
    assert result["cut_off"] > 0 and result["attacks"] > 500 and result["kills"] > 0
