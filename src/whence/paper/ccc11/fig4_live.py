"""CCC11 Figure 4 on real sockets, beside the simulator: members on loopback, several per process.

Loopback has no uplink limit, so rounds are fixed; the round that `UPLINK` would need is computed from the bytes sent.
"""

from __future__ import annotations

from typing import Any

from whence.paper.ccc11.evaluation import FAILED, UPLINK
from whence.paper.ccc11.fig4 import LOAD
from whence.paper.ccc11.live import ROUND_MS, Live, over_runs
from whence.paper.ccc11.seeds import bars, by_run, from_zero, over_seeds
from whence.paper.claims.intervals import minus, quotient, rare
from whence.paper.claims.model import Point
from whence.paper.frame import Context, Outcome, Row, panels

WHERE = ("live", "simulated")
NOTE = (
    "Live messages are larger: member ids contain an address, packets are encrypted, and the ring's polls are "
    "included. Rounds begin when a process is scheduled, and the network takes microseconds."
)


def measure(context: Context) -> list[Row]:
    """The same settings on sockets and simulated, each with several runs."""
    sizes, rounds, runs = ((5, 10), 12, 2) if context.quick else ((10, 20, 40), 30, 5)
    fewer = ("2 updaters", 2) if context.quick else ("5 updaters", 5)
    instances = (fewer, ("all updaters", 0))
    rows: list[Row] = []
    for name, c in instances:
        for n in sizes:
            size = Live(members=n, processes=min(n, 5), rounds=rounds, coordinators=c)
            rows += [
                {"instance": name, "where": "live", **row} for row in over_runs(context, size, [LOAD], ["R1"], runs)
            ]
    base: Row = {"load": LOAD, "rounds": rounds, "round_ms": ROUND_MS, "loss": FAILED}
    settings = [{**base, "members": n, "coordinators": c or n} for _, c in instances for n in sizes]
    found = over_seeds(context, settings, runs, ("members", "coordinators"))
    names = [name for name, _ in instances for _ in sizes]
    return rows + [{"instance": name, "where": "simulated", **row} for name, row in zip(names, found, strict=True)]


def outcome(rows: list[Row]) -> Outcome:
    """The same shape as the paper: with few publishers messages stay constant, with all they grow."""
    rows = [_at_uplink(row) for row in rows]
    return Outcome(rows, statistics(rows), draw(rows), NOTE)


def _at_uplink(row: Row) -> Row:
    """The latency if a round lasts as long as the uplink needs for its bytes."""
    for run in (row, *row["runs"]):
        run["latency_at_uplink_ms"] = run["latency_rounds"] * run["bytes_a_round"] / UPLINK * 1e3
    return row


def statistics(rows: list[Row]) -> dict[str, list[Point]]:
    """Growth from the fewest members to the most, with all publishing against a few; and live by simulated."""
    instances = list(dict.fromkeys(row["instance"] for row in rows))
    by = {(w, i): [r for r in rows if r["where"] == w and r["instance"] == i] for w in WHERE for i in instances}
    found: dict[str, list[Point]] = {}
    for key, column in (("live-size", "bytes_a_round"), ("live-latency", "latency_at_uplink_ms")):
        found[key] = []
        for where in WHERE:
            grown = {
                i: quotient("", by_run(by[where, i][-1], column), by_run(by[where, i][0], column)) for i in instances
            }
            few, every = grown[instances[0]], grown["all updaters"]
            found[key].append(minus(where, every, few))
    pairs = [(a, b) for i in instances for a, b in zip(by["live", i], by["simulated", i], strict=True)]
    found["live-rounds"] = [
        quotient(f"{a['instance']}, {a['members']:g} members", _late(a), _late(b), len(pairs)) for a, b in pairs
    ]
    found["live-lost"] = [
        rare(
            f"{r['where']}, {r['instance']}, {r['members']:g}", by_run(r, "lost_ordered"), by_run(r, "pairs"), len(rows)
        )
        for r in rows
    ]
    return found


def _late(row: Row) -> list[float]:
    return by_run(row, "latency_rounds")


def draw(rows: list[Row]) -> Any:
    """Latency in rounds, bytes sent, throughput, and the latency over an uplink."""
    figure, axes = panels(
        f"CCC11 Figure 4 live: 6 events a round, members on loopback (lines, {rows[0]['seeds']} runs), and simulated "
        "(dotted)",
        ("members", "latency of an event (rounds, mean)"),
        ("members", "sent by a member (bytes a round)"),
        ("members", "latency if a round lasts as 10 Mbit/s need (ms)"),
    )
    for i, name in enumerate(dict.fromkeys(row["instance"] for row in rows)):
        for where, line in zip(WHERE, ("-", ":"), strict=True):
            mine = [row for row in rows if row["instance"] == name and row["where"] == where]
            for one, key in zip(axes, ("latency_rounds", "bytes_a_round", "latency_at_uplink_ms"), strict=True):
                bars(one, mine, "members", key, i, f"{name}, {where}", 1.0, line)
    from_zero(*axes)
    axes[0].legend(fontsize=8)
    return figure
