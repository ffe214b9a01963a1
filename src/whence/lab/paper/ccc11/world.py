"""CCC11's comparison of recovery schemes over recorded latencies: members in cities all over the world.

Rounds are as long as the slowest round trip, so a message arrives before the next round; 1 % of messages are lost.
Everything else is as in Figure 5.
"""

from __future__ import annotations

from typing import Any

from whence.lab.paper.ccc11.evaluation import POINT, VARIANTS
from whence.lab.paper.ccc11.fig5 import NAMES
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds
from whence.lab.paper.plots import bars, losses, panels
from whence.lab.stats import difference, rare, ratio

LOADS, QUICK = (2.0, 4.0, 8.0, 12.0), (2.0, 8.0)
COORDINATORS = 10
LOSS = 0.01


def measure(options: RunOptions) -> list[Row]:
    """40 cities (20 with --quick), evenly picked from the matrix."""
    members, rounds, seeds = (20, 24, 3) if options.quick else (40, 80, 6)
    members = min(members, len(options.latencies))
    picked = [i * len(options.latencies) // members for i in range(members)]
    matrix = [[float(options.latencies[a][b]) for b in picked] for a in picked]
    slowest = max(max(row) for row in matrix)
    base: Row = {
        "members": members,
        "coordinators": min(COORDINATORS, members),
        "rounds": rounds,
        "loss": LOSS,
        "round_ms": round(slowest),
        "latencies": matrix,
        **options.published(),
    }
    settings = [{**base, "variant": v, "load": load} for v in VARIANTS for load in (QUICK if options.quick else LOADS)]
    return over_seeds(options, settings, seeds, ("variant", "load", "round_ms", "members"), POINT)


def statistics(rows: list[Row]) -> Statistics:
    """Paired by seed."""
    by = {v: sorted((r for r in rows if r["variant"] == v), key=lambda r: float(r["load"])) for v in VARIANTS}
    pairs = list(zip(by["causal"], by["gossip"], strict=True))
    found = {
        "world-halves": [
            ratio(_at(c), by_run(c, "lost_ordered"), by_run(g, "lost_ordered"), len(pairs)) for c, g in pairs
        ],
        "world-recovered": [
            rare(f"{v}, {_at(row)}", by_run(row, "lost_ordered"), by_run(row, "pairs"), 2 * len(pairs))
            for v in ("R1", "R4")
            for row in by[v]
        ],
        "world-overhead": [
            ratio(_at(a), by_run(a, "latency_rounds"), by_run(b, "latency_rounds"), len(pairs))
            for a, b in zip(by["R1"], by["gossip"], strict=True)
        ],
    }
    for v in ("R1", "R4"):
        a, b = by[v][-1], by["causal"][-1]
        where = f"{_at(a)}: {a['latency_ms']:.0f} and {b['latency_ms']:.0f} ms"
        found[f"world-faster-{v}"] = [difference(where, by_run(a, "latency_rounds"), by_run(b, "latency_rounds"))]
    return found


def _at(row: Row) -> str:
    return f"{row['load']:g} events a round"


def note(rows: list[Row]) -> str:
    """Remarks for the reader."""
    return f"{rows[0]['members']} cities, round {rows[0]['round_ms']:g} ms, the slowest round trip"


def draw(rows: list[Row]) -> Any:
    """Latency and loss."""
    figure, axes = panels(
        f"CCC11's variants between {rows[0]['members']} cities (recorded latencies, {LOSS:.0%} loss)",
        ("events a round", "latency of an event (ms, mean)"),
        ("events a round", "lost (ordered) events (%)"),
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        mine = [row for row in rows if row["variant"] == variant]
        bars(axes[0], mine, "load", "latency_ms", i, name)
        bars(axes[1], mine, "load", "lost_ordered", i, name, 100)
    axes[0].set_ylim(0, 1.1 * max(row["latency_ms"] for row in rows))
    losses(axes[1])
    axes[0].legend(fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw, note)
