"""PCO17 Figure 3 with recorded round-trip times between cities instead of N(100, 20)."""

from __future__ import annotations

from math import log

from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, on_arrays
from whence.lab.paper.pco17 import BOUND, PAPER, SHARE, by_bound, curve, rates
from whence.lab.paper.plots import count, panels
from whence.lab.stats import quotient, ratio

KS = (1, 2, 3, 4, 5, 6, 8, 10)
SKEW = 5.0
"""Standard deviation of a copy's delay from the recorded latency, ms."""


def measure(options: RunOptions) -> list[Row]:
    """N = 1000 processes in the cities of the matrix, and the paper's network."""
    deliveries, seeds = (1e6, 4) if options.quick else (1e8, 8)
    base = {**PAPER, "latencies": options.latencies, "spread": 0.0, "skew": SKEW, "deliveries": deliveries}
    rows = on_arrays(options, [{**base, "keys": k} for k in KS], seeds)
    plain = on_arrays(options, [{**PAPER, "keys": k, "deliveries": deliveries} for k in KS], seeds)
    cities = {"cities": len(options.latencies)}
    return [{"network": "recorded", **cities, **r} for r in rows] + [{"network": "paper", **r} for r in plain]


def _split(rows: list[Row]) -> tuple[dict[int, Row], dict[int, Row]]:
    recorded, plain = ({r["keys"]: r for r in rows if r["network"] == n} for n in ("recorded", "paper"))
    return recorded, plain


def statistics(rows: list[Row]) -> Statistics:
    """The K nearest to theory against every other, on the same messages."""
    recorded, plain = _split(rows)
    optimum = log(2) * 100 / recorded[4]["in_flight"]
    nearest = min(KS, key=lambda k: abs(k - optimum))
    others = [k for k in KS if k != nearest]
    return {
        "nearest-K": [
            ratio(f"K = {k} by K = {nearest}", rates(recorded[k]), rates(recorded[nearest]), len(others))
            for k in others
        ],
        "no-more": [quotient("K = 4", rates(recorded[4]), rates(plain[4]))],
        "overtaken": [quotient("K = 4", by_run(recorded[4], "p_nc"), by_run(plain[4], "p_nc"))],
        "by-overtaken": [quotient("K = 4", _per_overtaken(recorded[4]), _per_overtaken(plain[4]))],
        "bound": by_bound(list(recorded.values()), "keys"),
    }


def _per_overtaken(row: Row) -> list[float]:
    return [rate / p for rate, p in zip(rates(row), by_run(row, "p_nc"), strict=True)]


def draw(rows: list[Row]) -> object:
    """Both networks and their bounds."""
    recorded, plain = (list(network.values()) for network in _split(rows))
    title = (
        f"Recorded latencies, {recorded[0]['cities']} cities: N = 1000, R = 100, 200 messages/s\n"
        f"{count(recorded[0]['deliveries'])}"
    )
    figure, [axes] = panels(title, ("K, entries of each process", SHARE))
    curve(axes, recorded, "keys", "recorded latencies", 1, f"{BOUND}, recorded")
    curve(axes, plain, "keys", "the paper's network", 0, f"{BOUND}, paper's")
    axes.set_yscale("log")
    axes.set_xticks(range(1, 11))
    axes.legend(fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw)
