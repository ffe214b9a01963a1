"""The planner's predictions at random settings, compared with the simulator."""

from __future__ import annotations

from typing import Any

from whence.lab.paper.ccc11.predict import Check, check, questions
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.paper.plots import COLOURS, panels
from whence.lab.plan import ABSOLUTE, ERRORS
from whence.lab.stats import Estimate

SHOWN = {
    "reach_gossip": "reaches all by gossip alone",
    "latency_p50_ms": "latency, p50 (ms)",
    "latency_p99_ms": "latency, p99 (ms)",
    "bytes_per_s": "sent by a member (bytes/s)",
}


def measure(options: RunOptions) -> list[Row]:
    """20 settings (4 with --quick), each simulated with several seeds."""
    count, seeds, events = (4, 2, 80) if options.quick else (20, 4, 200)
    progress = options.count("runs")
    return [
        _row(c) for c in check(questions(count, options.seed), seeds, events, options.master, progress, options.seed)
    ]


def _row(one: Check) -> Row:
    q = one.question
    row: Row = {f: getattr(q, f) for f in ("members", "publishers", "rate", "loss", "crash", "target", "payload")}
    row |= {"latency_ms": q.latency_ns / 1e6, "seeds": one.seeds, "events": one.events}
    for c in one.compared:
        row |= {f"{c.name}_{f}": getattr(c, f) for f in ("predicted", "measured", "low", "high", "least", "most")}
    return row


def statistics(rows: list[Row]) -> Statistics:
    """Where the measurement lies in the band that the planner states: -1 and 1 are its ends."""
    return {name: [_within(name, row) for row in rows] for name in ERRORS}


def _within(name: str, row: Row) -> Estimate:
    least, most = row[f"{name}_least"], row[f"{name}_most"]
    middle, half = (least + most) / 2, max(1e-12, (most - least) / 2)
    at = f"{row['members']} members, loss {row['loss']:g}, predicted {row[f'{name}_predicted']:.4g}"
    return Estimate(at, *((row[f"{name}_{end}"] - middle) / half for end in ("measured", "low", "high")))


def draw(rows: list[Row]) -> Any:
    """StoredResult against predicted; the band is the stated error."""
    names = [(f"predicted: {name}", "measured") for name in SHOWN.values()]
    figure, axes = panels(
        f"whence plan at {len(rows)} random settings (band: stated error, from 20 members on)", *names
    )
    for one, name in zip(axes, SHOWN, strict=True):
        x = [row[f"{name}_predicted"] for row in rows]
        y = [row[f"{name}_measured"] for row in rows]
        low = [max(0.0, m - row[f"{name}_low"]) for m, row in zip(y, rows, strict=True)]
        high = [max(0.0, row[f"{name}_high"] - m) for m, row in zip(y, rows, strict=True)]
        one.errorbar(x, y, yerr=[low, high], fmt="o", markersize=4, capsize=2, color=COLOURS[0], linewidth=1)
        span = sorted({min([*x, *y]), *x, max([*x, *y])})
        error = ERRORS[name][1]
        below = [v - error if name in ABSOLUTE else v * (1 - error) for v in span]
        above = [v + error if name in ABSOLUTE else v * (1 + error) for v in span]
        one.fill_between(span, below, above, alpha=0.15, color="grey")
        one.plot(span, span, "--", color="black", linewidth=1)
        if name not in ABSOLUTE:
            one.set_xscale("log")
            one.set_yscale("log")
    return figure


STUDY = Study(measure, statistics, draw)
