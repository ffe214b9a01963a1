"""PCO17 Figure 3 with recorded round-trip times between cities instead of N(100, 20)."""

from __future__ import annotations

from math import log

from whence.lab.paper.frame import Context, Outcome, Row, count, curve, panels, theory
from whence.lab.paper.frame import measure as run_points
from whence.lab.paper.pco17 import BOUND, COLOURS, PAPER, SHARE, by_bound, rates
from whence.lab.stats import Estimate, quotient, ratio

KS = (1, 2, 3, 4, 5, 6, 8, 10)
SKEW = 5.0
"""Standard deviation of a copy's delay from the recorded latency, ms."""


def measure(context: Context) -> list[Row]:
    """N = 1000 processes in the cities of the matrix, and the paper's network."""
    deliveries = context.size(1e8, quick=2e6)
    base = {**PAPER, "latencies": context.latencies, "spread": 0.0, "skew": SKEW, "deliveries": deliveries}
    rows = run_points(context, [{**base, "keys": k} for k in KS])
    plain = run_points(context, [{**PAPER, "keys": k, "deliveries": deliveries} for k in KS])
    cities = {"cities": len(context.latencies)}
    return [{"network": "recorded", **cities, **r} for r in rows] + [{"network": "paper", **r} for r in plain]


def outcome(rows: list[Row]) -> Outcome:
    """The best K, and the errors by the paper's network."""
    return Outcome(rows, statistics(rows), draw(rows))


def _split(rows: list[Row]) -> tuple[dict[int, Row], dict[int, Row]]:
    recorded, plain = ({r["keys"]: r for r in rows if r["network"] == n} for n in ("recorded", "paper"))
    return recorded, plain


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """The K nearest to theory against every other, on the same messages."""
    recorded, plain = _split(rows)
    optimum = log(2) * 100 / recorded[4]["in_flight"]
    nearest = min(KS, key=lambda k: abs(k - optimum))
    others = [k for k in KS if k != nearest]
    grown = quotient("K = 4", rates(recorded[4]), rates(plain[4]))
    overtaken = quotient("K = 4", recorded[4]["p_nc_runs"], plain[4]["p_nc_runs"])
    by_overtaken = quotient("K = 4", _per_overtaken(recorded[4]), _per_overtaken(plain[4]))
    return {
        "nearest-K": [
            ratio(f"K = {k} by K = {nearest}", rates(recorded[k]), rates(recorded[nearest]), len(others))
            for k in others
        ],
        "no-more": [grown],
        "overtaken": [overtaken],
        "by-overtaken": [by_overtaken],
        "bound": by_bound(list(recorded.values()), "keys"),
    }


def _per_overtaken(row: Row) -> list[float]:
    return [rate / p for rate, p in zip(rates(row), row["p_nc_runs"], strict=True)]


def draw(rows: list[Row]) -> object:
    """Both networks and their bounds."""
    recorded, plain = (list(network.values()) for network in _split(rows))
    title = (
        f"Recorded latencies, {recorded[0]['cities']} cities: N = 1000, R = 100, 200 messages/s\n"
        f"{count(recorded[0]['deliveries'])}"
    )
    figure, [axes] = panels(title, ("K, entries of each process", SHARE))
    curve(axes, recorded, "keys", "recorded latencies", COLOURS[1])
    theory(axes, recorded, "keys", BOUND + ", recorded", COLOURS[1])
    curve(axes, plain, "keys", "the paper's network", COLOURS[0])
    theory(axes, plain, "keys", BOUND + ", paper's", COLOURS[0])
    axes.set_yscale("log")
    axes.set_xticks(range(1, 11))
    axes.legend(fontsize=8)
    return figure
