"""The planner's predictions at random settings, compared with the simulator."""

from __future__ import annotations

from typing import Any

from whence.paper.ccc11.predict import Check, check, questions
from whence.paper.ccc11.seeds import COLOURS
from whence.paper.frame import Claim, Context, Outcome, Row, panels
from whence.plan import ABSOLUTE, ERRORS

SHOWN = {
    "reach_gossip": "reaches all by gossip alone",
    "latency_p50_ms": "latency, p50 (ms)",
    "latency_p99_ms": "latency, p99 (ms)",
    "bytes_per_s": "sent by a member (bytes/s)",
}


def run(context: Context) -> Outcome:
    """20 settings (4 with --quick), each simulated with several seeds."""
    count, seeds, events = (4, 2, 80) if context.quick else (20, 4, 200)
    progress = context.count("runs")
    checks = check(questions(count, context.seed), seeds, events, context.master, progress, context.seed)
    rows = [_row(c) for c in checks]
    return Outcome(rows, claims(checks), draw(rows))


def _row(one: Check) -> Row:
    q = one.question
    row: Row = {f: getattr(q, f) for f in ("members", "publishers", "rate", "loss", "crash", "target", "payload")}
    row |= {"latency_ms": q.latency_ns / 1e6, "seeds": one.seeds, "events": one.events}
    for c in one.compared:
        row |= {f"{c.name}_{f}": getattr(c, f) for f in ("predicted", "measured", "low", "high", "within")}
    return row


def claims(checks: list[Check]) -> list[Claim]:
    """One for each prediction, and one for all."""
    said = []
    for i, (name, (stated, _)) in enumerate(ERRORS.items()):
        mine = [c.compared[i] for c in checks]
        if name in ABSOLUTE:
            off = [abs(c.predicted - c.measured) for c in mine]
        else:
            off = [abs(c.measured / c.predicted - 1) for c in mine]
        keys = ("predicted", "measured", "low", "high")
        missed = [{key: getattr(c, key) for key in keys} for c in mine if not c.within]
        by_mean = sum(c.by_mean for c in mine)
        numbers = {
            "settings": len(mine),
            "within_by_mean": by_mean,
            "largest": max(off),
            "mean": sum(off) / len(off),
            "missed": missed,
        }
        said.append(Claim(f"{name} is predicted {stated}", all(c.within for c in mine), numbers))
    held = sum(c.within for c in checks)
    said.append(
        Claim(
            f"all predictions are within their stated errors at {len(checks)} random settings",
            held == len(checks),
            {"settings": len(checks), "within": held},
        )
    )
    return said


def draw(rows: list[Row]) -> Any:
    """Measured against predicted; the band is the stated error."""
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
