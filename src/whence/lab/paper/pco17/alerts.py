"""How often Algorithms 4 and 5 raise an alert, and what they miss. PCO17 section 4.2 states it without measurements.

A message is overtaken when something that depends on it was delivered first; alerts should detect that. Algorithm 4
misses none: stamps grow along causal order, so a process that delivered something that depends on m has reached m's
entries. Algorithm 5 misses an overtaken message when the message that came too early is no longer in the list L.
"""

from __future__ import annotations

from itertools import pairwise

from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, on_arrays
from whence.lab.paper.pco17 import PAPER, unalerted
from whence.lab.paper.plots import COLOURS, count, panels
from whence.lab.stats import Estimate, clustered, exact, mean, minus, ratio

KS = (1, 2, 3, 4, 5, 6, 8, 10)
LENGTHS = (1, 2, 5, 10, 20, 40, 80)
LONG = 20
"""One propagation time."""


def measure(options: RunOptions) -> list[Row]:
    """Against K, with an L of two propagation times; and against the length of L, with K = 4. Long lists miss next to
    nothing: four times as many deliveries are run with them."""
    base, longer = ({**PAPER, "deliveries": 2e6 if options.quick else deliveries} for deliveries in (1e8, 4e8))
    points = [{**base, "keys": k, "memory": 40} for k in KS]
    points += [{**(base if size < LONG else longer), "memory": size} for size in LENGTHS]
    rows = on_arrays(options, points, seeds=4)
    parts = ["keys"] * len(KS) + ["length"] * len(LENGTHS)
    for row in rows:
        row |= {f"{key}_rate": row[key] / row["deliveries"] for key in ("alerts4", "alerts5", "overtaken")}
        row["missed5_share"] = row["unalerted5"] / max(1, row["overtaken"])
    return [{"part": part, **row} for part, row in zip(parts, rows, strict=True)]


def statistics(rows: list[Row]) -> Statistics:
    """At K = 4 unless said otherwise."""
    by_length = {row["memory"]: row for row in rows if row["part"] == "length"}
    four = next(row for row in rows if row["part"] == "keys" and row["keys"] == 4)
    runs = list(zip(*(by_run(four, k) for k in ("alerts4", "alerts5", "overtaken")), strict=True))
    enough, steps = by_length[40], list(pairwise(LENGTHS))
    return {
        "unalerted": unalerted(rows),
        "over-estimates": [ratio("K = 4", by_run(four, "alerts4"), by_run(four, "overtaken"))],
        "fewer-false": [mean("K = 4, L = 40", [(a5 - late) / (a4 - late) for a4, a5, late in runs])],
        "one-time": [exact(f"{by_length[LONG]['overtaken']} overtaken", by_length[LONG]["missed5_share"])],
        "two-times": [exact(f"{enough['overtaken']} overtaken", enough["unalerted5"])],
        "longer": [less_missed(by_length[a], by_length[b], len(steps)) for a, b in steps],
    }


def less_missed(a: Row, b: Row, of: int) -> Estimate:
    """By how much smaller the missed share is with the longer list. Where neither list misses anything, by nothing."""
    x, y = (clustered("", by_run(row, "unalerted5"), by_run(row, "overtaken"), of) for row in (a, b))
    at = f"L = {a['memory']} and {b['memory']}: {x.value:.3g} and {y.value:.3g}"
    return minus(at, x, y) if x.value or y.value else exact(at, 0)


def draw(rows: list[Row]) -> object:
    """Alerts by K, and by the length of L."""
    by_keys, by_length = ([row for row in rows if row["part"] == part] for part in ("keys", "length"))
    figure, (axes, lists) = panels(
        f"Alerts: N = 1000, R = 100, 200 messages/s, {count(by_keys[0]['deliveries'])} or more",
        ("K, entries of each process", "share of deliveries"),
        ("length of the list L of Algorithm 5 (K = 4)", "share"),
    )
    for key, label, colour in (
        ("alerts4_rate", "alerts, Algorithm 4", COLOURS[1]),
        ("alerts5_rate", "alerts, Algorithm 5, L = 40", COLOURS[4]),
        ("overtaken_rate", "overtaken: what alerts are to find", COLOURS[2]),
        ("exact_rate", "delivered before their past", COLOURS[0]),
    ):
        axes.plot(KS, [row[key] for row in by_keys], "o-", markersize=4, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(1, 11))
    axes.set_ylim(top=3)
    axes.legend(fontsize=8, loc="upper center", ncols=2)
    for key, label, colour in (
        ("alerts5_rate", "alerts, share of deliveries", COLOURS[4]),
        ("missed5_share", "missed, share of the overtaken", COLOURS[3]),
    ):
        lists.plot(LENGTHS, [row[key] for row in by_length], "o-", markersize=4, color=colour, label=label)
    lists.axvline(20, color="grey", linestyle=":", linewidth=1.2, label="X = 20: one propagation time")
    lists.set_xscale("log")
    lists.set_xticks(LENGTHS, [str(size) for size in LENGTHS])
    lists.set_ylim(bottom=0)
    lists.legend(fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw)
