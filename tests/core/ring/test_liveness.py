"""After the last fault everybody has a ticket again, unaided: a few seeds of each scenario. `python -m
tests.core.ring.liveness COUNT` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.core.ring.liveness import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_liveness(name: str) -> None:
    for seed in range(1 if name == "rolling_kill" else 4):  # that one takes some seconds
        SCENARIOS[name](seed)
