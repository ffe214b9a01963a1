"""Predictable reliability: the papers' formulas, used by the defaults and checked by simulation.

CCC11 Theorem 5.1, Lemma 5.2, Theorem 5.2. All times are in rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from whence.errors import ConfigError

_BASE: float = math.e / 4  # Chernoff with delta = 1: Pr[X > 2 mu] < (e/4)^mu


def needed_rounds(prcast_rounds: float, time_to_terminate: float, time_to_recover: float) -> float:
    """`T`: how long an event may be needed: one PrCast to spread, one to be missed, and the two waits."""
    return 2 * prcast_rounds + time_to_terminate + time_to_recover


def buffer_size(publish_probabilities: Iterable[float], rounds: float) -> int:
    """`|B| >= 2 mu T` with `mu = sum p_i` (Theorem 5.1, general form): events that the recovery buffer must hold."""
    mu = math.fsum(publish_probabilities)
    if mu < 0 or rounds < 0:
        raise ConfigError("buffer_size: probabilities and rounds must not be negative")
    return max(1, math.ceil(2 * mu * rounds - 1e-9))  # not one more for a rounding error


def buffer_probability(publish_probabilities: Iterable[float], rounds: float) -> float:
    """Theorem 5.1: with `buffer_size(...)` a needed event is still held with probability greater than this."""
    return 1.0 - math.pow(_BASE, math.fsum(publish_probabilities) * rounds)


def recovery_fanout(members: int, failure: float) -> int:
    """Lemma 5.2: ask at least `2 n p_f` processes to find a live one with high probability."""
    if not 0 <= failure <= 1:
        raise ConfigError(f"failure must be a probability, not {failure}")
    return max(1, math.ceil(2 * members * failure - 1e-9))


def reply_probability(members: int, failure: float) -> float:
    """Lemma 5.2: the probability, at least, that one of `recovery_fanout(...)` processes is alive."""
    return 1.0 - math.pow(_BASE, members * failure)
