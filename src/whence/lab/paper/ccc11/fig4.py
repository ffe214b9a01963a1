"""CCC11 Figure 4: latency, throughput and message size against the number of members, for 5, 25 and all coordinators.

The load is 6 events a round in total. Each setting's round is tuned to a fixed rate of failed connections
(`evaluation`), so larger messages mean longer rounds, and thereby higher latency and lower throughput. Nothing is lost,
so throughput is 6 events by the round: not another observation than the round.

Live (`--live`): up to 125 members on loopback, many per process, beside the simulator. Loopback has no uplink limit, so
rounds are fixed; the round that `UPLINK` would need is computed from the bytes sent, and with it latency and
throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log
from statistics import fmean
from typing import Any

from whence.lab.paper.ccc11.evaluation import FAILED, POINT, UPLINK, tuned_runs
from whence.lab.paper.ccc11.fig5 import never
from whence.lab.paper.ccc11.live import WHERE, Size, beside, over_runs
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds
from whence.lab.paper.plots import curves, from_zero, panels
from whence.lab.stats import exact, mean, means, minus, quotient

LOAD = 6.0
MEMBERS, QUICK = (25, 50, 75, 100, 125), (25, 40, 60)
INSTANCES: tuple[tuple[str, int], ...] = (("5 updaters", 5), ("25 updaters", 25), ("all updaters", 0))
ALL = "all updaters"


def measure(options: RunOptions) -> list[Row]:
    """Every instance with every number of members."""
    sizes = QUICK if options.quick else MEMBERS
    rounds, seeds = (20, 3) if options.quick else (40, 5)
    wanted: list[Row] = [
        {"members": n, "coordinators": c or n, "load": LOAD, "rounds": rounds} for _, c in INSTANCES for n in sizes
    ]
    names = [name for name, _ in INSTANCES for _ in sizes]
    found = tuned_runs(options, wanted, seeds, ("members", "coordinators", "round_ms"))
    return [{"instance": name, **row} for name, row in zip(names, found, strict=True)]


def statistics(rows: list[Row]) -> Statistics:
    """Each is computed from every seed's own curve, so its interval is over seeds."""
    by = {name: [row for row in rows if row["instance"] == name] for name, _ in INSTANCES}
    found: Statistics = {}
    for few, (name, _) in zip((5, 25), INSTANCES, strict=False):
        mine = by[name]
        latency, through, size = (by_seed(mine, key) for key in ("latency_ms", "throughput", "message_bytes"))
        n = [float(row["members"]) for row in mine]
        found[f"log-{few}"] = [mean(name, [_better(n, y) for y in latency])]
        found[f"unbounded-{few}"] = [mean(name, [_better(n, y, lambda x: 1 / x) for y in latency])]
        found[f"growth-{few}"] = [mean(name, [log(y[-1] / y[0]) / log(n[-1] / n[0]) for y in latency])]
        found[f"throughput-{few}"] = [mean(name, [max(y) / min(y) for y in through])]
        found[f"size-{few}"] = found[f"slightly-{few}"] = [mean(name, [y[-1] / y[0] for y in size])]
    mine = by[ALL]
    n = [float(row["members"]) for row in mine]
    latency = by_seed(mine, "latency_ms")
    steps = [f"{ALL}, {a:g} to {b:g}" for a, b in pairwise(n)]
    for key, column in (("size-all", "message_bytes"), ("throughput-all", "throughput")):
        ratios = [[b / a for a, b in pairwise(y)] for y in by_seed(mine, column)]
        found[key] = means(dict(zip(steps, map(list, zip(*ratios, strict=True)), strict=True)))
    found["latency-all"] = [mean(ALL, [y[-1] / y[0] for y in latency])]
    found["line-all"] = [mean(ALL, [explained(n, y) for y in latency])]
    found["line-not-log-all"] = [mean(ALL, [-_better(n, y) for y in latency])]
    found["even"] = means({_where(row): by_run(row, "busiest") for row in rows})
    found["failed"] = [exact(_where(row), row["failed"]) for row in rows]
    found["shortest"] = [exact(_where(row), row["shortest"]) for row in rows]
    found["repeated"] = means({_where(row): by_run(row, "repeated") for row in rows})
    return found


def by_seed(rows: Sequence[Row], key: str) -> list[list[float]]:
    """One curve for each seed."""
    return [list(one) for one in zip(*(by_run(row, key) for row in rows), strict=True)]


def explained(xs: Sequence[float], ys: Sequence[float]) -> float:
    """r2: the share of the variance that the best line explains."""
    mx, my = fmean(xs), fmean(ys)
    b = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
    left = sum((y - my - b * (x - mx)) ** 2 for x, y in zip(xs, ys, strict=True))
    total = sum((y - my) ** 2 for y in ys)
    return 1 - left / total if total else 1.0


def _better(n: Sequence[float], y: Sequence[float], other: Callable[[float], float] = float) -> float:
    """By how much a logarithm explains more than a line, or than a + b of another function of n."""
    return explained([log(x) for x in n], y) - explained([other(x) for x in n], y)


def _where(row: Row) -> str:
    return f"{row['instance']}, {row['members']} members"


def note(rows: list[Row]) -> str:
    """Remarks for the reader."""
    shortest, longest = min(row["round_ms"] for row in rows), max(row["round_ms"] for row in rows)
    return (
        f"Rounds were tuned to between {shortest:.1f} and {longest:.1f} ms at {UPLINK:,} bytes/s a process; "
        "another uplink scales all times alike. The paper's text does not give the values of its figure: shapes are "
        "compared, not values."
    )


def draw(rows: list[Row]) -> Any:
    """Latency, throughput, message size."""
    figure, axes = panels(
        "CCC11 Figure 4: 6 events a round, fanout 4, termination 5, R1; rounds tuned to 0.2 % failed connections",
        ("members", "latency of an event (ms, mean)"),
        ("members", "throughput (events/s at each member)"),
        ("members", "gossip message (bytes, mean)"),
    )
    names = {name: name for name, _ in INSTANCES}
    curves(axes, rows, "members", ("latency_ms", "throughput", "message_bytes"), "instance", names)
    from_zero(*axes)
    axes[0].legend(fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw, note)

# -- on sockets

SIZES = {25: 10, 125: 5}
"""Members -> runs. Small clusters differ more from run to run."""


def measure_live(options: RunOptions) -> list[Row]:
    """The same settings on sockets and simulated, each with several runs."""
    sizes, rounds, round_ms = ({5: 2, 10: 2}, 12, 250.0) if options.quick else (SIZES, 15, 2000.0)
    few = ((2, 5) if options.quick else (5, 25)) + (0,)
    wanted = [(f"{c} updaters" if c else ALL, n, c or n) for c in few for n in sizes]
    found: dict[tuple[str, int, int], Row] = {}
    for n, c in dict.fromkeys((n, c) for _, n, c in wanted):
        size = Size(members=n, processes=min(n, 5), coordinators=c, rounds=rounds, round_ms=round_ms)
        [found["live", n, c]] = over_runs(options, size, [LOAD], ["R1"], sizes[n])
        setting = {"load": LOAD, "rounds": rounds, "round_ms": round_ms, "loss": FAILED, "members": n}
        keep = ("members", "coordinators", "round_ms")
        [found["simulated", n, c]] = over_seeds(options, [{**setting, "coordinators": c}], sizes[n], keep, POINT)
    return [
        _at_uplink({"instance": name, "where": where, "rounds": rounds, **found[where, n, c]})
        for where in WHERE
        for name, n, c in wanted
    ]


def _at_uplink(row: Row) -> Row:
    """Latency and throughput if a round lasts as long as the uplink needs for its bytes."""
    for run in (row, *row["runs"]):
        second = run["bytes_a_round"] / UPLINK
        run["latency_at_uplink_ms"] = run["latency_rounds"] * second * 1e3
        events = run["pairs"] * (1 - run["lost"]) / (row["members"] - 1)
        run["throughput_at_uplink"] = events / row["rounds"] / second
    return row


def statistics_live(rows: list[Row]) -> Statistics:
    """Growth from the fewest members to the most, with all publishing against a few; and live by simulated."""
    instances = list(dict.fromkeys(row["instance"] for row in rows))
    by = {(w, i): [r for r in rows if r["where"] == w and r["instance"] == i] for w in WHERE for i in instances}
    found: Statistics = {}
    columns = {"live-size": "bytes_a_round", "live-latency": "latency_at_uplink_ms"}
    for key, column in (columns | {"live-throughput": "throughput_at_uplink"}).items():
        grown = {
            at: quotient("", by_run(mine[-1], column), by_run(mine[0], column), len(by)) for at, mine in by.items()
        }
        found[key] = [minus(f"{w}, less {i}", grown[w, ALL], grown[w, i]) for w in WHERE for i in instances if i != ALL]
    pairs = [(a, b) for i in instances for a, b in zip(by["live", i], by["simulated", i], strict=True)]
    found["live-rounds"] = [
        quotient(
            f"{a['instance']}, {a['members']:g} members",
            by_run(a, "latency_rounds"),
            by_run(b, "latency_rounds"),
            len(pairs),
        )
        for a, b in pairs
    ]
    found["live-lost"] = [never(f"{r['where']}, {r['instance']}, {r['members']:g}", r, len(rows)) for r in rows]
    return found


def draw_live(rows: list[Row]) -> Any:
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
    beside(axes, rows, "members", columns, "instance", {row["instance"]: row["instance"] for row in rows})
    from_zero(*axes)
    axes[0].legend(fontsize=8)
    return figure


LIVE = Study(
    measure_live,
    statistics_live,
    draw_live,
    "Live messages are larger: member ids contain an address, packets are encrypted, and the ring's polls are "
    "included. Rounds begin when a process is scheduled, and the network takes microseconds.",
)
