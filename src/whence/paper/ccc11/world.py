"""CCC11's comparison of recovery schemes over recorded latencies: members in cities all over the world.

Rounds are as long as the slowest round trip, so a message arrives before the next round; 1 % of messages are lost.
Everything else is as in Figure 5.
"""

from __future__ import annotations

from typing import Any

from whence.paper.ccc11.evaluation import VARIANTS
from whence.paper.ccc11.fig5 import NAMES, success
from whence.paper.ccc11.seeds import bars, over_seeds, rounded
from whence.paper.frame import Claim, Context, Outcome, Row, panels

LOADS, QUICK = (2.0, 4.0, 8.0, 12.0), (2.0, 8.0)
COORDINATORS = 10
LOSS = 0.01


def run(context: Context) -> Outcome:
    """40 cities (20 with --quick), evenly picked from the matrix."""
    members, rounds, seeds = (20, 24, 2) if context.quick else (40, 100, 4)
    members = min(members, len(context.latencies))
    picked = [i * len(context.latencies) // members for i in range(members)]
    matrix = [[float(context.latencies[a][b]) for b in picked] for a in picked]
    slowest = max(max(row) for row in matrix)
    base: Row = {
        "members": members,
        "coordinators": min(COORDINATORS, members),
        "rounds": rounds,
        "loss": LOSS,
        "round_ms": round(slowest),
        "latencies": matrix,
    }
    settings = [{**base, "variant": v, "load": load} for v in VARIANTS for load in (QUICK if context.quick else LOADS)]
    found = over_seeds(context, settings, seeds, ("variant", "load", "round_ms"))
    rows = [{**row, **success({**row, "failed": LOSS})} for row in found]
    note = f"{members} cities of {len(context.latencies)}, round {round(slowest)} ms, the slowest round trip"
    return Outcome(rows, claims(rows), draw(rows, members), note)


def claims(rows: list[Row]) -> list[Claim]:
    """Figure 5's claims, with recorded latencies."""
    by = {v: [row for row in rows if row["variant"] == v] for v in VARIANTS}
    lost = {v: [row["lost_ordered"] for row in mine] for v, mine in by.items()}
    late = {v: rounded([row["latency_ms"] for row in mine]) for v, mine in by.items()}
    loads = [row["load"] for row in by["R1"]]
    shown: dict[str, Any] = {"events_a_round": loads, **{v: rounded(x) for v, x in lost.items()}}
    return [
        Claim(
            "the causal layer greatly reduces lost (ordered) events (at most half of gossip's)",
            all(c <= g / 2 for c, g in zip(lost["causal"], lost["gossip"], strict=True)),
            shown,
        ),
        Claim(
            "with recovery almost all events are delivered in order (at least 99 %)",
            all(x < 0.01 for v in ("R1", "R4") for x in lost[v]),
            shown,
        ),
        Claim(
            "the causal layer with recovery adds less than half to gossip's latency",
            all(a < 1.5 * b for a, b in zip(late["R1"], late["gossip"], strict=True)),
            {"events_a_round": loads, "latency_ms": late},
        ),
    ]


def draw(rows: list[Row], members: int) -> Any:
    """Latency and loss."""
    figure, axes = panels(
        f"CCC11's variants between {members} cities (recorded latencies, {LOSS:.0%} loss)",
        ("events a round", "latency of an event (ms, mean)"),
        ("events a round", "lost (ordered) events (%)"),
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        mine = [row for row in rows if row["variant"] == variant]
        bars(axes[0], mine, "load", "latency_ms", i, name)
        bars(axes[1], mine, "load", "lost_ordered", i, name, 100)
    axes[0].set_ylim(0, 1.1 * max(row["latency_ms"] for row in rows))
    axes[1].set_yscale("symlog", linthresh=0.01)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    return figure
