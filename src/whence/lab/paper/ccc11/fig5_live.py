"""CCC11 Figure 5 on real sockets, beside the simulator with the same settings; neither has an uplink limit."""

from __future__ import annotations

from typing import Any

from whence.lab.paper.ccc11.evaluation import FAILED, VARIANTS
from whence.lab.paper.ccc11.fig5 import NAMES
from whence.lab.paper.ccc11.live import Live, over_runs
from whence.lab.paper.ccc11.seeds import bars, by_run, from_zero, over_seeds
from whence.lab.paper.frame import Context, Outcome, Row, panels
from whence.lab.stats import Estimate, difference, quotient, rare, ratio

WHERE = ("live", "simulated")


def measure(context: Context) -> list[Row]:
    """Several runs of each point, live and simulated."""
    size = (
        Live(members=8, processes=2, rounds=12)
        if context.quick
        else Live(members=25, processes=5, rounds=20, round_ms=500)
    )
    loads = [size.members * p for p in ((0.1, 0.5) if context.quick else (0.1, 0.3, 0.5))]
    runs = 2 if context.quick else 5
    live = [{"where": "live", **row} for row in over_runs(context, size, loads, list(VARIANTS), runs)]
    base: Row = {"members": size.members, "coordinators": size.members, "rounds": size.rounds}
    base |= {"round_ms": size.round_ms, "loss": FAILED}
    settings = [{**base, "variant": v, "load": load} for v in VARIANTS for load in loads]
    found = over_seeds(context, settings, runs, ("variant", "load", "round_ms", "members"))
    return [{**row, "p": row["load"] / size.members} for row in live + [{"where": "simulated", **row} for row in found]]


def outcome(rows: list[Row]) -> Outcome:
    """The same shape as simulated."""
    return Outcome(rows, statistics(rows), draw(rows), NOTE)


NOTE = (
    "Differences: live, a round begins when its process is scheduled, messages cost CPU time (shared by all on one "
    "machine), TCP retransmits, and 0.2 % of gossip is dropped on purpose as failed connections; the network takes "
    "microseconds, not 1.5 ms."
)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Live and simulated runs are independent of each other."""
    by = {(w, v): [r for r in rows if r["where"] == w and r["variant"] == v] for w in WHERE for v in VARIANTS}
    pairs = [(a, b) for v in VARIANTS for a, b in zip(by["live", v], by["simulated", v], strict=True)]
    last, first = {k: mine[-1] for k, mine in by.items()}, {k: mine[0] for k, mine in by.items()}
    return {
        "live-gossip": [
            difference(w, by_run(last[w, "gossip"], "lost_ordered"), by_run(first[w, "gossip"], "lost_ordered"), 2)
            for w in WHERE
        ],
        "live-halves": [
            ratio(w, by_run(last[w, "causal"], "lost_ordered"), by_run(last[w, "gossip"], "lost_ordered"), 2)
            for w in WHERE
        ],
        "live-recovered": [
            rare(f"{r['where']}, {r['variant']}, p = {r['p']:g}", by_run(r, "lost_ordered"), by_run(r, "pairs"), 12)
            for r in rows
            if r["variant"] in ("R1", "R4")
        ],
        "live-rounds": [quotient(f"{a['variant']}, p = {a['p']:g}", _late(a), _late(b), len(pairs)) for a, b in pairs],
        "live-lost": [
            quotient(
                f"p = {last['live', 'gossip']['p']:g}",
                by_run(last["live", "gossip"], "lost_ordered"),
                by_run(last["simulated", "gossip"], "lost_ordered"),
            )
        ],
    }


def _late(row: Row) -> list[float]:
    return by_run(row, "latency_rounds")


def draw(rows: list[Row]) -> Any:
    """Latency and loss, live (lines) and simulated (dots)."""
    figure, axes = panels(
        f"CCC11 Figure 5 live: {rows[0]['members']:g} members on loopback (lines, {rows[0]['seeds']} runs), and "
        "simulated (dotted)",
        ("p, events of each member a round", "latency of an event (rounds, mean)"),
        ("p, events of each member a round", "lost (ordered) events (%)"),
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        for where, line in zip(WHERE, ("-", ":"), strict=True):
            mine = [row for row in rows if row["variant"] == variant and row["where"] == where]
            label = name if where == "live" else "_"  # matplotlib lists no label that begins with _
            bars(axes[0], mine, "p", "latency_rounds", i, label, 1.0, line)
            bars(axes[1], mine, "p", "lost_ordered", i, label, 100, line)
    from_zero(axes[0])
    axes[1].set_yscale("symlog", linthresh=0.01)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    return figure
