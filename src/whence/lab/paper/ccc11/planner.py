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
from whence.lab.plan import ERRORS, ClusterPlan, PlanQuestion
from whence.lab.sim.meter import Frames, Meter
from whence.lab.sim.run import run
from whence.lab.sim.scenario import parse
from whence.lab.sim.settings import to_toml
from whence.lab.stats import Estimate, exact, mean, share

MESSAGES = 100_000
"""The most gossip messages in one run: a quiet cluster would need very many rounds for its events."""


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
    return dict(msgspec.to_builtins(simulate(plan, rounds, int(setting["seed"]))))


def simulate(plan: ClusterPlan, rounds: int, seed: int) -> Frames:
    """Run the plan's scenario and measure its frames."""
    start, stop, span = (round(r * plan.round_ms * 1e6) for r in planner.window(plan, rounds))
    spread = round(planner.ramp(plan) * plan.round_ms * 1e6)
    meter = Meter(start, stop, span, sizes=True, spread=spread)
    outcome = run(parse(to_toml(planner.scenario(plan, rounds)), "plan.toml"), seed, watch=meter.saw)
    if outcome.violation is not None:
        raise UsageError(f"the simulated plan violates an invariant (seed {seed}): {outcome.violation}")
    return meter.result()


def check(
    questions: Sequence[PlanQuestion], seeds: int, events: int, progress: Progress | None = None, seed: int = 0
) -> list[Row]:
    """Simulate the plan of each question `seeds` times, with about this many events each time."""
    todo = []
    for i, question in enumerate(questions):
        plan = planner.plan_cluster(question)
        rounds = max(30, min(MESSAGES // (question.members * plan.fanout), round(events / plan.load)))
        one = {"question": msgspec.to_builtins(question), "rounds": rounds}
        todo += [{**one, "seed": seed * 1_000_003 + i * 1009 + s} for s in range(seeds)]
    found = [msgspec.convert(r, Frames) for r in run_all(f"{__name__}:point", todo, progress)]
    checks = []
    for i, question in enumerate(questions):
        rounds = int(str(todo[i * seeds]["rounds"]))
        checks.append(compare(simulated(question, rounds), found[i * seeds : (i + 1) * seeds], rounds))
    return checks


def compare(plan: ClusterPlan, frames: Sequence[Frames], rounds: int) -> Row:
    """The question, and each prediction beside its measurement: the 95 % interval (`low`, `high`) and the prediction,
    give or take its stated error (`least`, `most`); `within`, if these meet. Bytes are predicted for the events
    actually published: under heavy loss a publisher may lose its ticket for a while."""
    total = sum(f.frames for f in frames)
    published = total / len(frames) / (plan.load * rounds)
    plan = msgspec.structs.replace(plan, bytes_per_s=plan.bytes_per_s - (1 - published) * plan.events_bytes_per_s)
    measured = {
        "reach_gossip": share("", sum(f.by_gossip for f in frames), total),
        "reach": share("", sum(f.by_all for f in frames), total),
        "latency_p50_ms": _mean([f.latency_ms["p50"] for f in frames]),
        "latency_p99_ms": _mean([f.latency_ms["p99"] for f in frames]),
        "bytes_per_s": _mean([f.bytes_per_s for f in frames]),
    }
    if plan.question.mode == "tree":  # recovery may be faster than the repair of the tree: who brought it says nothing
        del measured["reach_gossip"]
    compared: list[Row] = []
    for name, one in measured.items():
        least, most = plan.band(name)
        found = {"predicted": getattr(plan, name), "measured": one.value, "low": one.low, "high": one.high}
        within = least <= one.high and one.low <= most
        compared.append({"name": name, **found, "least": least, "most": most, "within": within})
    return {**msgspec.to_builtins(plan.question), "seeds": len(frames), "events": total, "compared": compared}


def _mean(values: list[float]) -> Estimate:
    """The mean of several runs; of a single run its value."""
    return mean("", values) if len(values) > 1 else exact("", values[0])


def questions(count: int, seed: int) -> list[PlanQuestion]:
    """Random settings: small enough to simulate, with varied load, loss, crashes and targets (most of them so low that
    failures can be counted). Every third is for trees."""
    rng = random.Random(f"{seed}/questions")
    found = []
    for i in range(count):
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
                mode="tree" if i % 3 == 2 else "eager",
            )
        )
    return found


# -- the experiment


def measure(options: RunOptions) -> list[Row]:
    """20 settings (4 with --quick), each simulated with several seeds."""
    count, seeds, events = (4, 2, 80) if options.quick else (20, 4, 200)
    return check(questions(count, options.seed), seeds, events, options.count("runs"), options.seed)


def statistics(rows: list[Row]) -> Statistics:
    """Where the measurement lies in the band that the planner states: -1 and 1 are its ends."""
    return {name: [_within(row, c) for row in rows for c in row["compared"] if c["name"] == name] for name in ERRORS}


def _within(row: Row, c: Row) -> Estimate:
    middle, half = (c["least"] + c["most"]) / 2, max(1e-12, (c["most"] - c["least"]) / 2)
    at = f"{row['members']} members, {row['mode']}, loss {row['loss']:g}, predicted {c['predicted']:.4g}"
    return Estimate(at, *((c[end] - middle) / half for end in ("measured", "low", "high")))


STUDY = Study(measure, statistics)
