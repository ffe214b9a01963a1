"""Each mechanism of the SURVEY in the simulator's worlds: `hostile-survey` for all of them, within what they assume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whence.order import MECHANISMS
from whence.sim.scenario import Loaded
from whence.sim.sweep import changed

TIMED = ("physical", "delta")
"""They go by the processes' clocks, which have to agree; all others take clocks that are an hour apart."""
CLOCKS = {"clocks.offset": "5ms", "clocks.drift": 0, "chaos.clock": "100000r"}
"""Clocks that differ by less than the skew that `Config.sized` allows for, and stay so."""

__all__ = ["MECHANISMS", "TIMED", "hostile"]


def hostile(mechanism: str, settings: Mapping[str, Any] | None = None) -> Loaded:
    """The hostile world, ordered by this mechanism. Everything else is as it is for all, but for the clocks of those
    that go by clocks."""
    clocks = CLOCKS if mechanism in TIMED else {}
    return changed("hostile-survey", {"cluster.mechanism": mechanism, **clocks, **(settings or {})})
