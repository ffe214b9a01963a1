"""CCC11 Figure 4 on real sockets, beside the simulator: up to 125 members on loopback, many per process.

Loopback has no uplink limit, so rounds are fixed; the round that `UPLINK` would need is computed from the bytes sent,
and with it latency and throughput.
"""

from __future__ import annotations

from typing import Any

from whence.lab.paper.ccc11.evaluation import FAILED, UPLINK
from whence.lab.paper.ccc11.fig4 import LOAD
from whence.lab.paper.ccc11.live import Live, over_runs
from whence.lab.paper.ccc11.seeds import bars, by_run, from_zero, over_seeds
from whence.lab.paper.frame import Context, Outcome, Row, panels
from whence.lab.stats import Estimate, minus, quotient, rare

WHERE = ("live", "simulated")
ALL = "all updaters"
SIZES = {25: 10, 125: 5}
"""Members -> runs. Small clusters differ more from run to run."""
NOTE = (
    "Live messages are larger: member ids contain an address, packets are encrypted, and the ring's polls are "
    "included. Rounds begin when a process is scheduled, and the network takes microseconds."
)


def measure(context: Context) -> list[Row]:
    """The same settings on sockets and simulated, each with several runs."""
    sizes, rounds, round_ms = ({5: 2, 10: 2}, 12, 250.0) if context.quick else (SIZES, 15, 2000.0)
    few = ((2, 5) if context.quick else (5, 25)) + (0,)
    wanted = [(f"{c} updaters" if c else ALL, n, c or n) for c in few for n in sizes]
    points = list(dict.fromkeys((n, c) for _, n, c in wanted))
    found: dict[tuple[str, int, int], Row] = {}
    for n, c in points:
        size = Live(
            members=n,
            processes=min(n, 5),
            coordinators=c,
            rounds=rounds,
            round_ms=round_ms,
            ring_ms=max(1000.0, 2 * round_ms),
        )
        [found["live", n, c]] = over_runs(context, size, [LOAD], ["R1"], sizes[n])
    base: Row = {"load": LOAD, "rounds": rounds, "round_ms": round_ms, "loss": FAILED}
    for n, runs in sizes.items():
        mine = [c for m, c in points if m == n]
        settings = [{**base, "members": n, "coordinators": c} for c in mine]
        simulated = over_seeds(context, settings, runs, ("members", "coordinators", "round_ms"))
        found |= {("simulated", n, c): row for c, row in zip(mine, simulated, strict=True)}
    return [
        {"instance": name, "where": where, "rounds": rounds, **found[where, n, c]}
        for where in WHERE
        for name, n, c in wanted
    ]


def outcome(rows: list[Row]) -> Outcome:
    """The same shape as the paper: with few publishers messages stay constant, with all they grow."""
    rows = [_at_uplink(row) for row in rows]
    return Outcome(rows, statistics(rows), draw(rows), NOTE)


def _at_uplink(row: Row) -> Row:
    """Latency and throughput if a round lasts as long as the uplink needs for its bytes."""
    for run in (row, *row["runs"]):
        second = run["bytes_a_round"] / UPLINK
        run["latency_at_uplink_ms"] = run["latency_rounds"] * second * 1e3
        events = run["pairs"] * (1 - run["lost"]) / (row["members"] - 1)
        run["throughput_at_uplink"] = events / row["rounds"] / second
    return row


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Growth from the fewest members to the most, with all publishing against a few; and live by simulated."""
    instances = list(dict.fromkeys(row["instance"] for row in rows))
    by = {(w, i): [r for r in rows if r["where"] == w and r["instance"] == i] for w in WHERE for i in instances}
    found: dict[str, list[Estimate]] = {}
    columns = {"live-size": "bytes_a_round", "live-latency": "latency_at_uplink_ms"}
    for key, column in (columns | {"live-throughput": "throughput_at_uplink"}).items():
        grown = {
            at: quotient("", by_run(mine[-1], column), by_run(mine[0], column), len(by)) for at, mine in by.items()
        }
        found[key] = [minus(f"{w}, less {i}", grown[w, ALL], grown[w, i]) for w in WHERE for i in instances if i != ALL]
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
    """Latency in rounds, bytes sent, and latency and throughput over an uplink."""
    figure, axes = panels(
        f"CCC11 Figure 4 live: 6 events a round, members on loopback (lines), and simulated (dotted); "
        f"{min(row['seeds'] for row in rows)} runs or more",
        ("members", "latency of an event (rounds, mean)"),
        ("members", "sent by a member (bytes a round)"),
        ("members", "latency over a 10 Mbit/s uplink (ms, mean)"),
        ("members", "throughput over it (events/s at each member)"),
    )
    columns = ("latency_rounds", "bytes_a_round", "latency_at_uplink_ms", "throughput_at_uplink")
    for i, name in enumerate(dict.fromkeys(row["instance"] for row in rows)):
        for where, line in zip(WHERE, ("-", ":"), strict=True):
            mine = [row for row in rows if row["instance"] == name and row["where"] == where]
            for one, key in zip(axes, columns, strict=True):
                bars(one, mine, "members", key, i, f"{name}, {where}", 1.0, line)
    from_zero(*axes)
    axes[0].legend(fontsize=8)
    return figure
