"""How often Algorithms 4 and 5 raise an alert, and what they miss. PCO17 section 4.2 states it without measurements.

A message is overtaken when something that depends on it was delivered first; alerts should detect that. Algorithm 4
misses none: stamps grow along causal order, so a process that delivered something that depends on m has reached m's
entries. Algorithm 5 misses an overtaken message when the message that came too early is no longer in the list L.
"""

from __future__ import annotations

from itertools import pairwise

from whence.paper.frame import Claim, Context, Outcome, count, measure, panels
from whence.paper.pco17 import COLOURS, PAPER

KS = (1, 2, 3, 4, 5, 6, 8, 10)
LENGTHS = (1, 2, 5, 10, 20, 40, 80)


def run(context: Context) -> Outcome:
    """Against K, with an L of two propagation times; and against the length of L, with K = 4."""
    deliveries = context.size(1e8, quick=1e6)
    base = {**PAPER, "alerts": True, "deliveries": deliveries}
    points = [{**base, "keys": k, "memory": 40} for k in KS] + [{**base, "memory": size} for size in LENGTHS]
    rows = measure(context, points, seeds=2)
    for row in rows:
        each = row["deliveries"]
        row["alert4_rate"], row["alert5_rate"] = row["alerts4"] / each, row["alerts5"] / each
        row["overtaken_rate"] = row["overtaken"] / each
        row["missed5_share"] = row["unalerted5"] / max(1, row["overtaken"])
    by_keys, by_length = rows[: len(KS)], rows[len(KS) :]
    four = by_keys[KS.index(4)]
    missed = {row["memory"]: row["missed5_share"] for row in by_length}
    claims = [
        Claim(
            "no overtaken message goes without an alert of Algorithm 4",
            sum(r["unalerted4"] for r in rows) == 0,
            {"overtaken": sum(r["overtaken"] for r in rows), "missed": sum(r["unalerted4"] for r in rows)},
        ),
        Claim(
            "Algorithm 4 greatly over-estimates the number of errors (10 alerts an overtaken message, or more)",
            four["alerts4"] >= 10 * four["overtaken"],
            {"alerts4_per_overtaken": four["alerts4"] / max(1, four["overtaken"])},
        ),
        Claim(
            "Algorithm 5 raises fewer false alerts (half as many, or less)",
            2 * (four["alerts5"] - four["overtaken"]) <= four["alerts4"] - four["overtaken"],
            {"alerts5_per_overtaken": four["alerts5"] / max(1, four["overtaken"])},
        ),
        Claim(
            "with L of two propagation times Algorithm 5 misses none",
            missed[40] == 0,
            {"missed_share_by_length_of_L": missed},
        ),
        Claim(
            "Algorithm 5 misses less the longer L is",
            all(missed[a] >= missed[b] for a, b in pairwise(LENGTHS)),
            {"missed_share_by_length_of_L": missed},
        ),
    ]
    figure, (axes, lists) = panels(
        f"Alerts: N = 1000, R = 100, 200 messages/s, {count(deliveries)}",
        ("K, entries of each process", "share of deliveries"),
        ("length of the list L of Algorithm 5 (K = 4)", "share"),
    )
    for key, label, colour in (
        ("alert4_rate", "alerts, Algorithm 4", COLOURS[1]),
        ("alert5_rate", "alerts, Algorithm 5, L = 40", COLOURS[4]),
        ("overtaken_rate", "overtaken: what alerts are to find", COLOURS[2]),
        ("exact_rate", "delivered before their past", COLOURS[0]),
    ):
        axes.plot(KS, [row[key] for row in by_keys], "o-", markersize=4, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(1, 11))
    axes.set_ylim(top=3)
    axes.legend(fontsize=8, loc="upper center", ncols=2)
    for key, label, colour in (
        ("alert5_rate", "alerts, share of deliveries", COLOURS[4]),
        ("missed5_share", "missed, share of the overtaken", COLOURS[3]),
    ):
        lists.plot(LENGTHS, [row[key] for row in by_length], "o-", markersize=4, color=colour, label=label)
    lists.axvline(20, color="grey", linestyle=":", linewidth=1.2, label="X = 20: one propagation time")
    lists.set_xscale("log")
    lists.set_xticks(LENGTHS, [str(size) for size in LENGTHS])
    lists.set_ylim(bottom=0)
    lists.legend(fontsize=8)
    return Outcome(rows, claims, figure)
