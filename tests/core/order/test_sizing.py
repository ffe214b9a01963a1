"""The formula of Theorem 5.1; `lab/paper/ccc11/theorems.py` measures what it promises."""

from __future__ import annotations

import pytest

from whence.core.order.recovery import buffer_size, needed_rounds
from whence.errors import ConfigError


def test_formulas() -> None:
    assert needed_rounds(5, 5, 5) == 20
    assert buffer_size([0.1] * 25, 20) == 100
    assert buffer_size([0.5, 0.25], 10) == 15  # the general form: 2 mu T
    with pytest.raises(ConfigError):
        buffer_size([-1], 3)
