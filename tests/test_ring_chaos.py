"""Random chaos, a few hundred seeds of it; `python tests/ring_chaos.py COUNT` runs as many as wanted."""

from __future__ import annotations

import pytest

from ring_chaos import Chaos


@pytest.mark.parametrize("block", range(10))
def test_chaos(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        Chaos(seed, dense=seed % 5 == 4).run()
