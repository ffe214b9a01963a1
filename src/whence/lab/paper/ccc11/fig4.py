"""CCC11 Figure 4: latency, throughput and message size against the number of members, for 5, 25 and all coordinators.

The load is 6 events a round in total. Each setting's round is tuned to a fixed rate of failed connections
(`evaluation`), so larger messages mean longer rounds, and thereby higher latency and lower throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Any

from whence.lab.paper.ccc11.evaluation import UPLINK
from whence.lab.paper.ccc11.seeds import bars, by_run, fit, from_zero, tuned_runs
from whence.lab.paper.frame import Context, Outcome, Row, panels
from whence.lab.stats import Estimate, exact, mean, means

LOAD = 6.0
MEMBERS, QUICK = (25, 75, 125), (25, 40, 60)
INSTANCES: tuple[tuple[str, int], ...] = (("5 updaters", 5), ("25 updaters", 25), ("all updaters", 0))


def measure(context: Context) -> list[Row]:
    """Every instance with every number of members."""
    sizes = QUICK if context.quick else MEMBERS
    rounds, seeds = (20, 3) if context.quick else (40, 5)
    wanted: list[Row] = [
        {"members": n, "coordinators": c or n, "load": LOAD, "rounds": rounds, **context.published()}
        for _, c in INSTANCES
        for n in sizes
    ]
    names = [name for name, _ in INSTANCES for _ in sizes]
    found = tuned_runs(context, wanted, seeds, ("members", "coordinators", "round_ms"))
    return [{"instance": name, **row} for name, row in zip(names, found, strict=True)]


def outcome(rows: list[Row]) -> Outcome:
    """What the paper says of the figure."""
    return Outcome(rows, statistics(rows), draw(rows), note(rows))


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Each is computed from every seed's own curve, so its interval is over seeds."""
    by = {name: [row for row in rows if row["instance"] == name] for name, _ in INSTANCES}
    found: dict[str, list[Estimate]] = {}
    for few, name in ((5, INSTANCES[0][0]), (25, INSTANCES[1][0])):
        mine = by[name]
        latency, through, size = (curves(mine, key) for key in ("latency_ms", "throughput", "message_bytes"))
        n = [float(row["members"]) for row in mine]
        found[f"log-{few}"] = [mean(name, [_better(n, y) for y in latency])]
        found[f"growth-{few}"] = [mean(name, [log(y[-1] / y[0]) / log(n[-1] / n[0]) for y in latency])]
        found[f"throughput-{few}"] = [mean(name, [max(y) / min(y) for y in through])]
        found[f"size-{few}"] = [mean(name, [y[-1] / y[0] for y in size])]
    mine, name = by[INSTANCES[2][0]], INSTANCES[2][0]
    n = [float(row["members"]) for row in mine]
    latency = curves(mine, "latency_ms")
    steps = [f"{name}, {a:g} to {b:g}" for a, b in pairwise(n)]
    for key, column in (("size-all", "message_bytes"), ("throughput-all", "throughput")):
        ratios = [[b / a for a, b in pairwise(y)] for y in curves(mine, column)]
        found[key] = means(dict(zip(steps, map(list, zip(*ratios, strict=True)), strict=True)))
    found["latency-all"] = [mean(name, [y[-1] / y[0] for y in latency])]
    found["line-all"] = [mean(name, [fit(n, y)["r2"] for y in latency])]
    found["line-not-log-all"] = [mean(name, [-_better(n, y) for y in latency])]
    found["even"] = means({_where(row): by_run(row, "busiest") for row in rows})
    found["failed"] = [exact(_where(row), row["failed"]) for row in rows]
    found["shortest"] = [exact(_where(row), row["shortest"]) for row in rows]
    return found


def curves(rows: Sequence[Row], key: str) -> list[list[float]]:
    """One curve for each seed."""
    return [list(one) for one in zip(*(by_run(row, key) for row in rows), strict=True)]


def _better(n: Sequence[float], y: Sequence[float]) -> float:
    """By how much a logarithm explains more than a line."""
    return fit(n, y, logarithmic=True)["r2"] - fit(n, y)["r2"]


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
    for i, (name, _) in enumerate(INSTANCES):
        mine = [row for row in rows if row["instance"] == name]
        for one, key in zip(axes, ("latency_ms", "throughput", "message_bytes"), strict=True):
            bars(one, mine, "members", key, i, name)
    from_zero(*axes)
    axes[0].legend(fontsize=8)
    return figure
