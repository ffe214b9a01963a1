"""Random chaos over some seeds; `python -m tests.core.ring.chaos COUNT` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.core.ring.chaos import Chaos
from tests.long import few


def test_a_newcomer_of_an_excluded_one_is_out_when_temp_rounds_are_over() -> None:
    """Its probation outlasted them: then the promises not to vouch for it were void, and it became an owner."""
    Chaos(60348, dense=True).run()


def test_a_lost_seat_is_handed_over_only_to_the_predecessor_it_had() -> None:
    """Another may not know that it was excluded, and its ticket granted to somebody else."""
    Chaos(5264, dense=True).run()


@pytest.mark.parametrize("block", few(range(10), 2))
def test_chaos(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        Chaos(seed, dense=seed % 5 == 4).run()
