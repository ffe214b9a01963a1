"""Simulates plans, and compares the planner's predictions with the measurements, here at random settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from whence.core.config import MS
from whence.errors import UsageError
from whence.lab import plan as planner
from whence.lab.paper.frame import Progress, Row, RunOptions, Statistics, Study, run_all
from whence.lab.paper.plots import COLOURS, panels
from whence.lab.plan import ABSOLUTE, ERRORS, ClusterPlan, PlanQuestion
from whence.lab.sim.meter import Frames, Meter
from whence.lab.sim.run import run
from whence.lab.sim.scenario import parse
from whence.lab.sim.settings import to_toml
from whence.lab.stats import Estimate, exact, mean, share

MESSAGES = 100_000
"""The most gossip messages in one run: a quiet cluster would need very many rounds for its events."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction and its measurement."""

    name: str
    predicted: float
    measured: float
    low: float
    """Bounds of the measurement's 95 % interval."""
    high: float
    least: float
    """The prediction, give or take its stated error."""
    most: float
    stated: str
    """The planner's stated error."""
    within: bool
    """The prediction, give or take its stated error, meets the interval."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, simulated."""

    question: PlanQuestion
    seeds: int
    events: int
    compared: tuple[Compared, ...]

    @property
    def within(self) -> bool:
        """All predictions are within their stated errors."""
        return all(c.within for c in self.compared)


def simulated(question: PlanQuestion, rounds: int) -> ClusterPlan:
    """The plan for a cluster in the simulator, with its short names and few events."""
    first = planner.plan_cluster(question)
    seq = max(1, round(question.rate * first.round_ms / 1e3 * rounds / 2))
    name = round(fmean(len(f"n{i}#1") for i in range(question.members)))
    return planner.plan_cluster(question, name, seq)


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a plan once: `question`, `rounds`, `seed` in, `Frames` out."""
    rounds = int(setting["rounds"])
    plan = simulated(msgspec.convert(setting["question"], PlanQuestion), rounds)
    frames = simulate(plan, rounds, int(setting["seed"]))
    return dict(msgspec.to_builtins(frames))


def simulate(plan: ClusterPlan, rounds: int, seed: int) -> Frames:
    """Run the plan's scenario and measure its frames."""
    start, stop, span = (round(r * plan.round_ms * 1e6) for r in planner.window(plan, rounds))
    spread = round(planner.ramp(plan) * plan.round_ms * 1e6)
    meter = Meter(start, stop, span, sizes=True, spread=spread)
    outcome = run(parse(to_toml(planner.scenario(plan, rounds)), "plan.toml"), seed, make=meter.make)
    if outcome.violation is not None:
        raise UsageError(f"the simulated plan violates an invariant (seed {seed}): {outcome.violation}")
    return meter.result()


def rounds_for(plan: ClusterPlan, events: int) -> int:
    """Rounds for about this many events: at least 30, and no more than `MESSAGES` allows."""
    most = MESSAGES // (plan.question.members * plan.fanout)
    return max(30, min(most, round(events / plan.load)))


def check(
    questions: Sequence[PlanQuestion],
    seeds: int,
    events: int,
    master: str | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> list[Check]:
    """Simulate the plan of each question `seeds` times, with about this many events each time."""
    todo = []
    for i, question in enumerate(questions):
        rounds = rounds_for(planner.plan_cluster(question), events)
        for s in range(seeds):
            todo.append(
                {"question": msgspec.to_builtins(question), "rounds": rounds, "seed": seed * 1_000_003 + i * 1009 + s}
            )
    found = [msgspec.convert(r, Frames) for r in run_all(f"{__name__}:point", todo, master, progress)]
    checks = []
    for i, question in enumerate(questions):
        rounds = int(str(todo[i * seeds]["rounds"]))
        checks.append(compare(simulated(question, rounds), found[i * seeds : (i + 1) * seeds], rounds))
    return checks


def compare(plan: ClusterPlan, frames: Sequence[Frames], rounds: int) -> Check:
    """Predictions beside measurements. Bytes are predicted for the events actually published: under heavy loss a
    publisher may lose its ticket for a while."""
    total = sum(f.frames for f in frames)
    published = total / len(frames) / (plan.load * rounds)
    bytes_per_s = plan.bytes_per_s - (1 - published) * plan.events_bytes_per_s
    plan = msgspec.structs.replace(plan, bytes_per_s=bytes_per_s)
    latencies = {q: [f.latency_ms[q] for f in frames] for q in ("p50", "p99")}
    measured = {
        "reach_gossip": share("", sum(f.by_gossip for f in frames), total),
        "reach": share("", sum(f.by_all for f in frames), total),
        "latency_p50_ms": _mean(latencies["p50"]),
        "latency_p99_ms": _mean(latencies["p99"]),
        "bytes_per_s": _mean([f.bytes_per_s for f in frames]),
    }
    # With trees, recovery may be faster than the repair of the tree: who brought an event says nothing of reach.
    skipped = ("reach_gossip",) if plan.question.mode == "tree" else ()
    return Check(
        question=plan.question,
        seeds=len(frames),
        events=total,
        compared=tuple(_compared(plan, name, measured[name]) for name in ERRORS if name not in skipped),
    )


def _mean(values: list[float]) -> Estimate:
    """The mean of several runs; of a single run its value."""
    return mean("", values) if len(values) > 1 else exact("", values[0])


def _compared(plan: ClusterPlan, name: str, measured: Estimate) -> Compared:
    stated, error = ERRORS[name][0], planner.error(name, plan.question.members)
    predicted = getattr(plan, name)
    least, most = plan.latency_p99_between_ms if name == "latency_p99_ms" else (predicted, predicted)
    if name in ABSOLUTE:
        least, most = least - error, most + error
    else:
        least, most = (1 - error) * least, (1 + error) * most
    return Compared(
        name=name,
        predicted=predicted,
        measured=measured.value,
        low=measured.low,
        high=measured.high,
        least=least,
        most=most,
        stated=stated,
        within=least <= measured.high and measured.low <= most,
    )


def questions(count: int, seed: int) -> list[PlanQuestion]:
    """Random settings: small enough to simulate, with varied load, loss, crashes and targets (most of them so low that
    failures can be counted)."""
    rng = random.Random(f"{seed}/questions")
    found = []
    for _ in range(count):
        members = round(10 ** rng.uniform(1, 2.1))
        publishers = min(members, round(10 ** rng.uniform(0, 1.4)))
        latency_ms = round(10 ** rng.uniform(0, 2))
        load = 10 ** rng.uniform(-0.5, 0.9)  # events a round of ten latencies
        found.append(
            PlanQuestion(
                members=members,
                publishers=publishers,
                rate=round(load / publishers / (10 * latency_ms / 1e3), 4),
                loss=round(rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.25))), 3),
                crash=round(rng.choice((0.0, 0.0, rng.uniform(0.005, 0.05))), 3),
                target=rng.choice((0.3, 0.6, 0.8, 0.9, 0.95, 0.99, 0.999, 0.99999)),
                payload=round(10 ** rng.uniform(1.2, 3)),
                latency_ns=latency_ms * MS,
            )
        )
    return found


# -- the experiment

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
