"""Whether a cluster that may invert a few deliveries inverts no more of them than it was allowed.

The rate is the share of deliveries (of others' events, at all members that promise a rate) that are inverted. It is a
sample, so it is judged by an interval, at the level `LEVEL`: Clopper and Pearson's, which never covers less than it
says, so a cluster that keeps its contract is rarely accused, however few inversions were expected.

Inversions come in clumps: what makes one member get an event too late makes others, too. With x inversions of each
event, the variance is that of independent deliveries times `D = sum x^2 / sum x` (for a small rate, where the term of
the rate itself is negligible; otherwise D is too large, and the interval too wide). As Korn and Graubard (1998,
"Confidence intervals for proportions with small expected number of positive counts estimated from survey data") do,
the interval is that of 1/D as many deliveries. In 24 runs of the packaged scenario `probabilistic` the number of
inversions varies 4.5 times as much as if they were independent.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, log1p
from typing import Final, NamedTuple

LEVEL: Final = 0.99
"""Of the interval: of clusters that invert exactly as much as they may, at most one in 200 is accused."""

ABOVE, UNDECIDED, WITHIN, IN_DOUBT = "above", "not decided", "within", "in doubt"
OUTCOMES: Final = (ABOVE, UNDECIDED, WITHIN, IN_DOUBT)
"""The interval is above what is allowed, contains it, is below; or the trace is not complete."""

_TINY: Final = 1e-300
_EXACT: Final = 1e-13


class Rate(NamedTuple):
    """The error rate of one run of one cluster."""

    members: int
    deliveries: int
    inverted: int
    clump: float
    """D: about how many inversions come together."""
    low: float
    high: float
    """The interval."""
    allowed: float
    outcome: str
    """One of `OUTCOMES`."""

    def __str__(self) -> str:
        share = self.inverted / max(1, self.deliveries)
        return (
            f"{self.inverted:,} of {self.deliveries:,} deliveries at {self.members:,} probabilistic "
            f"{'member is' if self.members == 1 else 'members are'} inverted: {share:.3g} ({LEVEL:.0%} interval "
            f"{self.low:.3g} to {self.high:.3g}); allowed: {self.allowed:g}; {self.outcome}"
        )


def rate(members: int, deliveries: int, inverted: int, squares: int, allowed: float, doubt: bool) -> Rate:
    """Judge these counts. `squares`: the sum of the squares of the inversions of each event. `doubt`: the trace is not
    complete."""
    clump = squares / inverted if inverted else 1.0
    low, high = interval(inverted / clump, deliveries / clump)
    outcome = IN_DOUBT if doubt else ABOVE if low > allowed else WITHIN if high < allowed else UNDECIDED
    return Rate(members, deliveries, inverted, clump, low, high, allowed, outcome)


def interval(hits: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability. The counts need not be whole. Without trials everything is
    possible."""
    if not trials:
        return 0.0, 1.0
    tail, misses = (1 - level) / 2, max(0.0, trials - hits)
    low = _where(lambda p: _beta(p, hits, misses + 1) > tail) if hits else 0.0
    high = _where(lambda p: _beta(p, hits + 1, misses) > 1 - tail) if misses else 1.0
    return low, high


def _where(above: Callable[[float], bool]) -> float:
    """From where on this holds, between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _beta(p: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_p(a, b), by its continued fraction (DLMF 8.17.22), which converges
    fast below the mean."""
    if p > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - p, b, a)
    if p <= 0:
        return 0.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(p) + b * log1p(-p)) / a
    c, d = 1.0, 1 / _away(1 - (a + b) * p / (a + 1))
    out, m = d, 0
    while True:  # Lentz's method; about sqrt(max(a, b)) turns at most
        m += 1
        before = out
        for term in (
            m * (b - m) * p / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * p / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            out *= c * d
        if abs(out - before) <= _EXACT * abs(out):
            return front * out


def _away(x: float) -> float:
    """Not zero."""
    return x if abs(x) > _TINY else _TINY
