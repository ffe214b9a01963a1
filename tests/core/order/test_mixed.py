"""Members of all orders in one cluster."""

from __future__ import annotations

import pytest

from tests.core.order.mixed import mixed
from tests.long import few


@pytest.mark.parametrize("seed", [10, 36, 346])
def test_weak_publishers_name_every_orphan_in_their_past(seed: int) -> None:
    """10, 36: one tenure hid another in the past. 346: one name of an orphan replaced a later one."""
    assert mixed(seed) == []


@pytest.mark.parametrize("block", few(range(20), 2))
def test_causality_and_agreement(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        assert mixed(seed) == [], seed
