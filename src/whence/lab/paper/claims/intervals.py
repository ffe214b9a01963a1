"""Points with 95 % intervals, from runs and counts. Pure.

Points that are judged together (`of`) get wider intervals (Bonferroni), so that all of them cover at once with 95 %.
Comparisons are paired: settings run with the same seeds, and the interval is that of the differences or ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import exp, lgamma, log, pi, sqrt
from statistics import NormalDist, fmean, stdev

from whence.lab.paper.claims.model import Point

LEVEL = 0.95
_STEPS = 400
_NORMAL_FROM = 200
"""Degrees of freedom from which Student's distribution is taken for the normal one."""


@cache
def student(df: int, of: int = 1) -> float:
    """Student's t for a two-sided interval of one among `of`."""
    tail = (1 - LEVEL) / 2 / of
    if df >= _NORMAL_FROM:
        return NormalDist().inv_cdf(1 - tail)
    low, high = 0.0, 1.0
    while _tail(high, df) > tail:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, df) > tail else (low, middle)
    return high


def _tail(t: float, df: int) -> float:
    """P[T > t] (Simpson); beyond 1 over `u = 1 / x`, where the range is finite."""
    scale = exp(lgamma((df + 1) / 2) - lgamma(df / 2) - log(df * pi) / 2)

    def density(x: float) -> float:
        return float(scale * (1 + x * x / df) ** (-(df + 1) / 2))

    def inverse(u: float) -> float:
        return density(1 / u) / (u * u) if u else (scale if df == 1 else 0.0)

    if t < 1:
        return _simpson(density, t, 1.0) + _simpson(inverse, 0.0, 1.0)
    return _simpson(inverse, 0.0, 1 / t)


def _simpson(f: Callable[[float], float], a: float, b: float) -> float:
    step = (b - a) / _STEPS
    inner = sum((4 if i % 2 else 2) * f(a + i * step) for i in range(1, _STEPS))
    return (f(a) + inner + f(b)) * step / 3


def exact(at: str, value: float) -> Point:
    """A value without error: a count, a sum, a comparison."""
    return Point(at, float(value), float(value), float(value))


def mean(at: str, runs: Sequence[float], of: int = 1) -> Point:
    """The mean of several runs. A single run decides nothing: its interval is everything."""
    value = fmean(runs)
    if len(runs) < 2:
        return Point(at, value, -1e300, 1e300)
    half = student(len(runs) - 1, of) * stdev(runs) / sqrt(len(runs))
    return Point(at, value, value - half, value + half)


def means(runs: Mapping[str, Sequence[float]]) -> list[Point]:
    """The means of several settings, judged together."""
    return [mean(at, some, len(runs)) for at, some in runs.items()]


def difference(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Point:
    """The mean of a - b, run by run: both with the same seeds."""
    return mean(at, [x - y for x, y in zip(a, b, strict=True)], of)


def ratio(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Point:
    """The mean of a / b, run by run. Runs where b is 0 cannot be compared; without two others nothing is decided."""
    found = [x / y for x, y in zip(a, b, strict=True) if y]
    return mean(at, found, of) if found else Point(at, 0.0, -1e300, 1e300)


def quotient(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Point:
    """mean(a) / mean(b) of independent runs (delta method on the logarithm). Without errors in one of them nothing is
    decided."""
    x, y = fmean(a), fmean(b)
    if min(len(a), len(b)) < 2 or x <= 0 or y <= 0:
        return Point(at, x / y if y else 0.0, -1e300, 1e300)
    spread = sqrt(sum(stdev(runs) ** 2 / len(runs) / m**2 for runs, m in ((a, x), (b, y))))
    factor = exp(min(600.0, student(min(len(a), len(b)) - 1, of) * spread))
    return Point(at, x / y, x / y / factor, x / y * factor)


def paired_quotient(at: str, a: Sequence[float], b: Sequence[float], of: int = 1) -> Point:
    """mean(a) / mean(b) of runs with the same seeds. Unlike the mean of the ratios it has no bias where runs are short,
    and runs where b is 0 count (the ratio estimator of survey sampling)."""
    y = fmean(b)
    if len(b) < 2 or y <= 0:
        return Point(at, 0.0, -1e300, 1e300)
    value = fmean(a) / y
    left = mean(at, [(one - value * other) / y for one, other in zip(a, b, strict=True)], of)
    return Point(at, value, value + left.low, value + left.high)


def share(at: str, hits: float, trials: float, of: int = 1) -> Point:
    """A probability from counts (Wilson). Without trials everything is possible."""
    hits, trials = round(hits), round(trials)
    if not trials:
        return Point(at, 0.0, 0.0, 1.0)
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / of)
    p, z2 = hits / trials, z * z
    middle = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z * sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials)) / (1 + z2 / trials)
    return Point(at, p, max(0.0, middle - half), min(1.0, middle + half))


def rare(at: str, rates: Sequence[float], trials: Sequence[float], of: int = 1) -> Point:
    """A small probability from the rates of several runs. Where all runs agree (none was seen, usually) the spread says
    nothing, and the number of trials does."""
    if len(set(rates)) == 1:
        return share(at, rates[0] * sum(trials), sum(trials), of)
    found = mean(at, rates, of)
    return Point(at, found.value, max(0.0, found.low), min(1.0, found.high))


def minus(at: str, a: Point, b: Point) -> Point:
    """The difference of two independent points; the interval is the widest that both allow."""
    return Point(at, a.value - b.value, a.low - b.high, a.high - b.low)


def less(at: str, a: Point, by: float) -> Point:
    """A point, less a constant."""
    return Point(at, a.value - by, a.low - by, a.high - by)
