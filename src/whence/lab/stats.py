"""Quantiles, and 95 % intervals from runs and counts, for all of `lab`. Pure.

Estimates that are judged together (`of`) get wider intervals (Bonferroni), so that all of them cover at once with 95 %.
Comparisons are paired: settings run with the same seeds, and the interval is that of the differences or ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import atan, cos, exp, pi, sin, sqrt
from statistics import NormalDist, fmean, stdev

import msgspec

LEVEL = 0.95
UNKNOWN = 1e300
"""The interval of what too few runs say nothing about is from -UNKNOWN to UNKNOWN."""


class Estimate(msgspec.Struct, frozen=True, array_like=True):
    """A measured value with its interval; an exact value is its own interval."""

    at: str
    """Where it was measured, such as `N = 1000`."""
    value: float
    low: float
    high: float


def quantile(ordered: Sequence[float], q: float) -> float:
    """The value below which a share `q` of these sorted values lies; 0 without values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


@cache
def student(df: int, of: int = 1) -> float:
    """Student's t for a two-sided interval of one among `of`."""
    level = 1 - (1 - LEVEL) / of
    low, high = 0.0, 1.0
    while _within(high, df) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < level else (low, middle)
    return high


def _within(t: float, df: int) -> float:
    """P[-t < T < t] of Student's T (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle, odd = atan(t / sqrt(df)), df % 2
    term = (cos(angle) if odd else 1.0) if df > 1 else 0.0
    total = term
    for i in range(3 if odd else 2, df - 1, 2):
        term *= cos(angle) ** 2 * (i - 1) / i
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def exact(at: str, value: float) -> Estimate:
    """A value without error: a count, a sum, a comparison."""
    return Estimate(at, float(value), float(value), float(value))


def unknown(at: str, value: float = 0.0) -> Estimate:
    """A value that decides nothing."""
    return Estimate(at, value, -UNKNOWN, UNKNOWN)


def mean(at: str, runs: Sequence[float], of: int = 1) -> Estimate:
    """The mean of several runs. A single run decides nothing."""
    value = fmean(runs)
    if len(runs) < 2:
        return unknown(at, value)
    half = student(len(runs) - 1, of) * stdev(runs) / sqrt(len(runs))
    return Estimate(at, value, value - half, value + half)


def means(runs: Mapping[str, Sequence[float]]) -> list[Estimate]:
    """The means of several settings, judged together."""
    return [mean(at, some, len(runs)) for at, some in runs.items()]


def difference(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Estimate:
    """The mean of a - b, run by run: both with the same seeds."""
    return mean(at, [x - y for x, y in zip(a, b, strict=True)], of)


def ratio(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Estimate:
    """The mean of a / b, run by run. Runs where b is 0 cannot be compared; without two others nothing is decided."""
    found = [x / y for x, y in zip(a, b, strict=True) if y]
    return mean(at, found, of) if found else unknown(at)


def quotient(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Estimate:
    """mean(a) / mean(b) of independent runs (delta method on the logarithm). If one of them is 0 nothing is decided."""
    x, y = fmean(a), fmean(b)
    if min(len(a), len(b)) < 2 or x <= 0 or y <= 0:
        return unknown(at, x / y if y else 0.0)
    spread = sqrt(sum(stdev(runs) ** 2 / len(runs) / m**2 for runs, m in ((a, x), (b, y))))
    factor = exp(min(600.0, student(min(len(a), len(b)) - 1, of) * spread))
    return Estimate(at, x / y, x / y / factor, x / y * factor)


def paired_quotient(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Estimate:
    """mean(a) / mean(b) of runs with the same seeds. Unlike the mean of the ratios it has no bias where runs are short,
    and runs where b is 0 count (the ratio estimator of survey sampling)."""
    y = fmean(b)
    if len(b) < 2 or y <= 0 or not any(a) or sum(map(bool, b)) < min(3, len(b)):
        return unknown(at)
    value = fmean(a) / y
    left = mean(at, [(one - value * other) / y for one, other in zip(a, b, strict=True)], of)
    return Estimate(at, value, value + left.low, value + left.high)


def share(at: str, hits: float, trials: float, of: int = 1) -> Estimate:
    """A probability from counts (Wilson). Without trials everything is possible."""
    hits, trials = round(hits), round(trials)
    if not trials:
        return Estimate(at, 0.0, 0.0, 1.0)
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / of)
    p, z2 = hits / trials, z * z
    middle = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z * sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    return Estimate(at, p, max(0.0, middle - half), min(1.0, middle + half))


def clustered(at: str, hits: Sequence[float], trials: Sequence[float], of: int = 1) -> Estimate:
    """A probability from the counts of several runs. Trials of one run depend on each other, so the interval is over
    runs. Where all runs agree (none hit, usually) their spread says nothing, and the number of trials does."""
    runs = [(x, n) for x, n in zip(hits, trials, strict=True) if n]
    if len({round(x / n, 9) for x, n in runs}) < 2:
        return share(at, sum(hits), sum(trials), of)
    found = paired_quotient(at, [x for x, _ in runs], [n for _, n in runs], of)
    return Estimate(at, found.value, max(0.0, found.low), min(1.0, found.high))


def minus(at: str, a: Estimate, b: Estimate | float) -> Estimate:
    """The difference of two independent estimates (the widest interval that both allow), or to a constant."""
    if not isinstance(b, Estimate):
        b = exact("", b)
    return Estimate(at, a.value - b.value, a.low - b.high, a.high - b.low)
