"""Parts of a test that only `make test-long` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], keep: int) -> list[Any]:
    """Parameters of a test: the first `keep` run always, the others are marked `long`."""
    return [
        value
        if n < keep
        else pytest.param(*value, marks=pytest.mark.long)
        if isinstance(value, tuple)
        else pytest.param(value, marks=pytest.mark.long)
        for n, value in enumerate(values)
    ]
