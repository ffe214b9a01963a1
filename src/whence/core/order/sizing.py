"""The size of the recovery buffer by CCC11 Theorem 5.1, as the defaults use it. All times are in rounds. What the
theorem promises is in `lab/paper/ccc11/theorems.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from whence.errors import ConfigError


def needed_rounds(prcast_rounds: float, time_to_terminate: float, time_to_recover: float) -> float:
    """`T`: how long an event may be needed: one PrCast to spread, one to be missed, and the two waits."""
    return 2 * prcast_rounds + time_to_terminate + time_to_recover


def buffer_size(publish_probabilities: Iterable[float], rounds: float) -> int:
    """`|B| >= 2 mu T` with `mu = sum p_i` (Theorem 5.1, general form): events that the recovery buffer must hold."""
    mu = math.fsum(publish_probabilities)
    if mu < 0 or rounds < 0:
        raise ConfigError("buffer_size: probabilities and rounds must not be negative")
    return max(1, math.ceil(2 * mu * rounds - 1e-9))  # not one more for a rounding error
