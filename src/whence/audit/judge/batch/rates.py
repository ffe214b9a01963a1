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

from math import log, sqrt
from typing import Final, NamedTuple

import numpy as np

LEVEL: Final = 0.99
"""Of the interval: of clusters that invert exactly as much as they may, at most one in 200 is accused."""

ABOVE, UNDECIDED, WITHIN, IN_DOUBT = "above", "not decided", "within", "in doubt"
OUTCOMES: Final = (ABOVE, UNDECIDED, WITHIN, IN_DOUBT)
"""The interval is above what is allowed, contains it, is below; or the trace is not complete."""


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
    low = _quantile(tail, hits, misses + 1) if hits else 0.0
    return low, _quantile(1 - tail, hits + 1, misses) if misses else 1.0


def _quantile(share: float, a: float, b: float) -> float:
    """Below which p this share of a beta distribution is: a sum of its density over log odds, 40 times its width to
    either side."""
    middle, width = log(a / b), sqrt(1 / a + 1 / b)
    odds = np.linspace(middle - 40 * width, middle + 40 * width, 1 << 16)
    density = -a * np.logaddexp(0, -odds) - b * np.logaddexp(0, odds)
    each = np.exp(density - density.max())
    below = np.cumsum(each) - each / 2
    return float(1 / (1 + np.exp(-np.interp(share * each.sum(), below, odds))))
