"""The scenario `hostile-survey` for each mechanism of the SURVEY, within its assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whence.core.order import MECHANISMS
from whence.lab.sim.scenario import Loaded
from whence.lab.sim.sweep import changed

TIMED = ("physical", "delta")
"""They need clocks that agree; all others tolerate clocks an hour apart."""
CLOCKS = {"clocks.offset": "5ms", "clocks.drift": 0, "chaos.clock": "100000r"}
"""Clocks that stay within the skew that `Requirements` allows for."""

__all__ = ["MECHANISMS", "TIMED", "hostile"]


def hostile(mechanism: str, settings: Mapping[str, Any] | None = None) -> Loaded:
    """The hostile world with this mechanism, and with correct clocks if it needs them."""
    clocks = CLOCKS if mechanism in TIMED else {}
    return changed("hostile-survey", {"cluster.mechanism": mechanism, **clocks, **(settings or {})})
