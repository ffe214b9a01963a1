"""PCO17 Figure 3: the error rate against K. Claim: the best K is 4 for every N; theory says ln 2 * R / X = 3.5.

Every K sees the same messages, so rates are compared run by run. Errors are correlated (one slow message is late at
many receivers), so what counts is the number of messages, the same for every N. Around the minimum the curve is flat,
and ten times as many are sent there.
"""

from __future__ import annotations

from math import log

from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, on_arrays
from whence.lab.paper.pco17 import BOUND, PAPER, SHARE, band, by_bound, curve
from whence.lab.paper.plots import COLOURS, error_bars, panels
from whence.lab.stats import Estimate, exact, paired_quotient

NS = (500, 1000, 1500, 2000)
KS = tuple(range(1, 11))
NEAR = (3, 4, 5)
"""Run with more messages."""
SHOWN = (2, 3, 4, 5, 6)
"""In the second plot."""
BEST = 4
BESIDE = (3, 5)
OPTIMUM = log(2) * 100 / 20


def measure(options: RunOptions) -> list[Row]:
    """Every N with every K, and those around the minimum again with more messages."""
    messages, seeds, more = (1_000, 4, 2) if options.quick else (200_000, 32, 10)

    def points(ks: tuple[int, ...], messages: int) -> list[Row]:
        return [{**PAPER, "processes": n, "keys": k, "deliveries": float(messages * n)} for n in NS for k in ks]

    rows = [{"part": "all", **row} for row in on_arrays(options, points(KS, messages), seeds)]
    near = on_arrays(options, points(NEAR, more * messages), 2 * seeds)
    return rows + [{"part": "near", **row} for row in near]


def statistics(rows: list[Row]) -> Statistics:
    """Differences to K = 4 on the same messages."""
    found: Statistics = {
        "optimum": [exact("R = 100, X = 20", least_bound(100, 20))],
    }
    everywhere = [row for row in rows if row["part"] == "all"]
    found["bound"] = [
        p for n in NS for p in by_bound([{**r, "K": r["keys"]} for r in everywhere if r["processes"] == n], "K")
    ]
    for n in NS:
        mine = {(row["part"], row["keys"]): row for row in rows if row["processes"] == n}
        others = [k for k in KS if k != BEST]
        pairs = {k: _pair(mine, k) for k in others}
        found[f"least-{n}"] = [_by_four(*pairs[k], "exact_rate", len(others)) for k in others]
        found[f"flat-{n}"] = [_by_four(*pairs[k], "exact_rate", len(BESIDE)) for k in BESIDE]
        found[f"eps-{n}"] = [
            _by_four(*pairs[k], eps, 2 * len(others)) for eps in ("eps_min", "eps_max") for k in others
        ]
    return found


def least_bound(entries: int, in_flight: float) -> float:
    """The K, to a thousandth, at which (1 - (1 - 1/R)^(KX))^K, the bound by P_nc, is least."""
    tried = (k / 1000 for k in range(100, 10_000))
    return min(tried, key=lambda k: k * log(1 - (1 - 1 / entries) ** (k * in_flight)))


def _pair(mine: dict[tuple[str, int], Row], k: int) -> tuple[Row, Row]:
    """The rows of this K and of K = 4 on the same messages, as many as there are."""
    part = "near" if k in NEAR else "all"
    return mine[part, k], mine[part, BEST]


def _at(row: Row, four: Row, figure: str) -> str:
    return f"K = {row['keys']}: {row[figure]:.3g} and {four[figure]:.3g}" + (
        "" if figure == "exact_rate" else f" ({figure})"
    )


def _by_four(row: Row, four: Row, figure: str, of: int) -> Estimate:
    return paired_quotient(_at(row, four, figure), by_run(row, figure), by_run(four, figure), of)


def draw(rows: list[Row]) -> object:
    """All K; the band is what the paper could measure."""
    everywhere = [row for row in rows if row["part"] == "all"]
    messages = everywhere[0]["deliveries"] / (everywhere[0]["processes"] - 1)
    title = f"PCO17 Figure 3: R = 100, 200 messages/s, {messages:,.0f} messages a point"
    figure, [axes, zoom] = panels(
        title, ("K, entries of each process", SHARE), ("K, around the minimum", SHARE + " (by K = 4)")
    )
    for i, n in enumerate(NS):
        mine = [row for row in everywhere if row["processes"] == n]
        label = "the paper's eps_min to eps_max" if n == NS[0] else "_"
        band(axes, mine, "keys", COLOURS[i], label)
        curve(axes, mine, "keys", f"N = {n}", i, f"{BOUND}, N = 1000" if n == 1000 else "")
        by = {(row["part"], row["keys"]): row for row in rows if row["processes"] == n}
        points = [_by_four(*_pair(by, k), "exact_rate", 1) for k in KS if k in SHOWN]
        x = [k + 0.06 * (i - 1.5) for k in KS if k in SHOWN]
        error_bars(zoom, x, points, f"N = {n}", i, line="")
    axes.axvline(OPTIMUM, color="grey", linestyle=":", linewidth=1.2, label="theory: K = ln 2 · R / X = 3.5")
    axes.set_yscale("log")
    axes.set_xticks(KS)
    axes.set_ylim(top=4 * axes.get_ylim()[1])
    axes.legend(fontsize=8, ncols=2, loc="upper center")
    zoom.axhline(1.0, color="black", linewidth=0.8)
    zoom.set_xticks(SHOWN)
    return figure


STUDY = Study(measure, statistics, draw)
