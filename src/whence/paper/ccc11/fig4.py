"""CCC11 Figure 4: latency, throughput and message size against the number of members, for 5, 25 and all coordinators.

The load is 6 events a round in all. The round of each setting is tuned to a fixed rate of failed connections
(`evaluation`), so larger messages mean longer rounds: latency and throughput in the units of time follow from sizes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from whence.paper.ccc11.evaluation import FAILED, UPLINK
from whence.paper.ccc11.seeds import NEAR, bars, fit, panels, rounded, tuned_runs
from whence.paper.frame import Claim, Context, Outcome, Row

LOAD = 6.0
MEMBERS, QUICK = (25, 50, 75, 100, 125), (25, 40, 60)
INSTANCES: tuple[tuple[str, int], ...] = (("5 updaters", 5), ("25 updaters", 25), ("all updaters", 0))


def run(context: Context) -> Outcome:
    """Every instance with every number of members; rounds tuned by the very runs that are measured."""
    sizes = QUICK if context.quick else MEMBERS
    rounds, seeds = (20, 2) if context.quick else (50, 4)
    wanted: list[Row] = [
        {"members": n, "coordinators": c or n, "load": LOAD, "rounds": rounds} for _, c in INSTANCES for n in sizes
    ]
    names = [name for name, _ in INSTANCES for _ in sizes]
    found = tuned_runs(context, wanted, seeds, ("members", "coordinators", "round_ms"))
    rows = [{"instance": name, **row} for name, row in zip(names, found, strict=True)]
    return Outcome(rows, claims(rows), draw(rows), note(rows))


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of the figure."""
    said: list[Claim] = []
    by = {name: [row for row in rows if row["instance"] == name] for name, _ in INSTANCES}
    for name in ("5 updaters", "25 updaters"):
        said += _constant(name, by[name])
    said += _growing(by["all updaters"])
    failed = [row["failed"] for row in rows]
    said.append(
        Claim(
            f"the rounds are tuned to {FAILED:.1%} failed connections (at most that, and more in a round that is "
            f"{NEAR - 1:.0%} shorter)",
            all(row["failed"] <= FAILED and row["shortest"] >= 1 / NEAR for row in rows),
            {
                "failed": rounded(failed),
                "mean": sum(failed) / len(failed),
                "shortest_round_by_round": rounded([row["shortest"] for row in rows]),
                "why_not_closer": CLIFF,
            },
        )
    )
    return said


CLIFF = (
    "A message holds at most 20 events. Where many are full, failures set in at the round that carries four full ones: "
    "one per cent more or less of it makes the difference between none and more than 0.2 %."
)


def _numbers(rows: list[Row], key: str) -> dict[str, Any]:
    return {
        "members": [row["members"] for row in rows],
        key: rounded([row[key] for row in rows]),
        "standard_error": rounded([row[f"{key}_error"] for row in rows]),
    }


def _constant(name: str, rows: list[Row]) -> list[Claim]:
    n = [float(row["members"]) for row in rows]
    latency = [row["latency_ms"] for row in rows]
    in_rounds = fit(n, [row["latency_rounds"] for row in rows], logarithmic=True)
    log_fit, line = fit(n, latency, logarithmic=True), fit(n, latency)
    through = [row["throughput"] for row in rows]
    size = [row["message_bytes"] for row in rows]
    growth, factor = latency[-1] / latency[0], n[-1] / n[0]
    return [
        Claim(
            f"{name}: latency grows logarithmically (a + b ln N explains it as well as a line or better, b > 0)",
            log_fit["b"] > 0 and log_fit["r2"] >= line["r2"] - 0.02 and growth < factor**0.5,
            {
                **_numbers(rows, "latency_ms"),
                "logarithmic": log_fit,
                "linear": line,
                "in_rounds_logarithmic": in_rounds,
                "growth": growth,
                "growth_of_members": factor,
            },
        ),
        Claim(
            f"{name}: throughput stays constant (within 20 %)",
            max(through) / min(through) < 1.2,
            {**_numbers(rows, "throughput"), "largest_by_smallest": max(through) / min(through)},
        ),
        Claim(f"{name}: message size falls slightly", size[-1] < size[0], _numbers(rows, "message_bytes")),
    ]


def _growing(rows: list[Row]) -> list[Claim]:
    n = [float(row["members"]) for row in rows]
    latency = [row["latency_ms"] for row in rows]
    line, log_fit = fit(n, latency), fit(n, latency, logarithmic=True)
    through = [row["throughput"] for row in rows]
    size = [row["message_bytes"] for row in rows]
    return [
        Claim(
            "all updaters: messages grow with the members",
            all(a < b for a, b in pairwise(size)),
            {**_numbers(rows, "message_bytes"), "linear": fit(n, size)},
        ),
        Claim(
            "all updaters: latency grows linearly (a line explains more than 0.95 of it, and more than a logarithm)",
            line["b"] > 0 and line["r2"] > 0.95 and line["r2"] > log_fit["r2"],
            {**_numbers(rows, "latency_ms"), "linear": line, "logarithmic": log_fit},
        ),
        Claim("all updaters: throughput falls", all(a > b for a, b in pairwise(through)), _numbers(rows, "throughput")),
    ]


def note(rows: list[Row]) -> str:
    """What the reader should know."""
    shortest, longest = min(row["round_ms"] for row in rows), max(row["round_ms"] for row in rows)
    return (
        f"Rounds were tuned to between {shortest:.1f} and {longest:.1f} ms at {UPLINK:,} bytes/s a process; "
        "another uplink scales all times alike. The paper's figure itself is not in the text that we have: shapes are "
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
    for one in axes:
        one.set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    return figure
