"""The formulas of Theorems 5.1 and 5.2; `lab/paper/ccc11/theorems.py` measures what they promise."""

from __future__ import annotations

import math

import pytest

from whence.core.order.sizing import buffer_probability, buffer_size, needed_rounds, recovery_fanout
from whence.errors import ConfigError


def test_formulas() -> None:
    assert needed_rounds(5, 5, 5) == 20
    assert buffer_size([0.1] * 25, 20) == 100
    assert buffer_size([0.5, 0.25], 10) == 15  # the general form: 2 mu T
    assert buffer_probability([0.1] * 25, 20) == pytest.approx(1 - (math.e / 4) ** 50)
    assert recovery_fanout(100, 0.02) == 4
    with pytest.raises(ConfigError):
        buffer_size([-1], 3)
    with pytest.raises(ConfigError):
        recovery_fanout(10, 1.5)
