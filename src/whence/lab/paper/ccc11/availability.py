"""CCC11 section 4.4: a process that wants a ticket gets one w.h.p. while p_f < (1 - alpha) / 2; and the ring's cost.

The paper counts tickets: those of crashed owners, at most `2 p_f n` w.h.p., are blocked until they are reclaimed; the
others are free. It does not consider quorums: both reclaiming and keeping a ticket need k+1 of the 2k+1 neighbours. So
the protocol is measured (`availability_run`) beside two models: the paper's, in which an exclusion always succeeds, and
one in which only a lost quorum prevents a join.

Live (`--live`) every member is a process of its own, so that a crash is a SIGKILL. First coordinators are killed one at
a time, each chosen at random, the founder too; a member that waits asks for a ticket at once. Then more than half of
the coordinators are killed at the same moment. Nobody is left with a quorum, so leases run out, and a ring without an
owner cannot grant: joins fail, as they do simulated.
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from math import e
from typing import Any

from whence.lab.paper.ccc11.availability_run import PATIENCE, RingRun, point, quorums
from whence.lab.paper.ccc11.live import ring, started
from whence.lab.paper.ccc11.members import LiveTask
from whence.lab.paper.ccc11.published import ROUND, Tolerant
from whence.lab.paper.ccc11.theorems import binomial_above
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds, total
from whence.lab.paper.plots import COLOURS, error_bars, panels
from whence.lab.stats import Estimate, exact, mean, share
from whence.live.api import run
from whence.live.fleet.fleet import Members
from whence.live.fleet.process import ANSWER_S
from whence.live.fleet.task import MemberSpec

TICKETS = 40
ALPHAS = (0.25, 0.5, 0.75)
KS = (1, 2, 4, 8)
"""Used with alpha = 0.5; the other alphas use `RING_K`."""
RING_K = 2
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
"""p_f, as shares of (1 - alpha) / 2."""
QUICK = (0.02, 0.1, 0.9)
QUICK_TICKETS = 20
RUNNER = f"{point.__module__}:point"
QUIET_KS = (1, 2, 4)
"""Rings without crashes, in which the ring's messages are counted."""


def model(n: int, alpha: float, failure: float, rounds: int, seed: int) -> tuple[int, int]:
    """CCC11 section 4.4's own model: a failed coordinator's ticket is blocked for 1 / alpha rounds, and nothing else
    prevents a join. Returns (joins tried, joins that found a free ticket)."""
    rng = random.Random(f"{seed}/model")
    wanting = round(alpha * n)
    blocked = [0] * round(1 / alpha)
    living, tried, found = wanting, 0, 0
    for _ in range(rounds):
        failed = sum(rng.random() < failure for _ in range(living))
        living -= failed
        blocked = [failed, *blocked[:-1]]
        asking = wanting - living
        given = min(asking, max(0, n - living - sum(blocked)))
        tried, found, living = tried + asking, found + given, living + given
    return tried, found


def measure(options: RunOptions) -> list[Row]:
    """Joins under crashes for several p_f: by alpha, by k, and with a founder that crashes; and quiet rings."""
    groups = [(0.5, 2), (0.5, 4)] if options.quick else [(a, RING_K) for a in ALPHAS] + [(0.5, k) for k in KS]
    groups = list(dict.fromkeys(groups))
    common: Row = {"tickets": QUICK_TICKETS, "crashes": 25} if options.quick else {"tickets": TICKETS}
    shares = QUICK if options.quick else SHARES
    settings = [
        {**common, "alpha": alpha, "k": k, "failure": share * (1 - alpha) / 2, "founder": False}
        for alpha, k in groups
        for share in shares
    ]
    settings += [
        {**common, "alpha": 0.5, "k": 4, "failure": share * 0.25, "founder": True}
        for share in shares[: len(shares) // 2]
    ]
    settings += [{**common, "alpha": 0.5, "k": k, "failure": 0.0, "founder": False} for k in QUIET_KS]
    seeds = 2 if options.quick else 5
    found = over_seeds(options, settings, seeds, ("tickets", "alpha", "k", "failure", "founder"), RUNNER)
    rows = []
    for setting, row in zip(settings, found, strict=True):
        mine = [r for r in found if (r["alpha"], r["k"]) == (row["alpha"], row["k"])]
        reclaim = sum(r["reclaim_sum"] for r in mine) / max(1e-9, sum(r["reclaims"] for r in mine))
        by_quorums = quorums(RingRun(**setting), reclaim) if row["failure"] else 1.0
        of_limit = row["failure"] / ((1 - row["alpha"]) / 2)
        rows.append({**row, "share_of_limit": of_limit, "reclaim_rounds": reclaim, "by_quorums": by_quorums})
    return rows


NOTE = (
    "p_f is the probability that a coordinator crashes in one ring round, for good: at a tenth of the limit and alpha "
    "= 0.5 half of the ring is replaced every 28 rounds. The paper assumes that an exclusion always succeeds, within 1 "
    "/ alpha rounds. A dead core is not founded again here; an operator would do that, or a council (docs/ring.md). "
    "Intervals are as if joins were independent; the joins of one run all depend on its core."
)


def statistics(rows: list[Row]) -> Statistics:
    """The points of every claim."""
    crashing = [row for row in rows if row["failure"]]
    known = [row for row in crashing if not row["founder"] and total(row, "joins")]
    safe = [row for row in known if row["by_quorums"] >= 0.98]
    found = {
        "model": _model(),
        "sentence": [joined(row, len(known)) for row in known],
        "where-quorums": [joined(row, len(safe)) for row in safe],
        "founder": [_served([row], _at(row)) for row in crashing if row["founder"]],
        "printed": [exact(at, exactly / stated) for at, exactly, stated, _ in _chernoff()],
        "derived": [exact(at, exactly / derived) for at, exactly, _, derived in _chernoff()],
    }
    return found | _causes(crashing) | _overhead([row for row in rows if not row["failure"]])


def joined(row: Row, of: int = 1) -> Estimate:
    """The share of joins that succeeded."""
    return share(_at(row), total(row, "joined"), total(row, "joins"), of)


def _at(row: Row) -> str:
    return f"alpha = {row['alpha']:g}, k = {row['k']:g}, p_f = {row['share_of_limit']:.3g} of the limit"


def _served(rows: list[Row], at: str) -> Estimate:
    """The share of joins that succeeded, of those made while there was a coordinator."""
    done, tried = (sum(total(row, key) for row in rows) for key in ("core_joined", "core_joins"))
    return share(f"{at}, {tried:.0f} joins", done, tried)


def _model() -> list[Estimate]:
    found = []
    for alpha in ALPHAS:
        for part in (0.5, 0.9):
            tried, succeeded = model(1000, alpha, part * (1 - alpha) / 2, 2000, 1)
            found.append(share(f"alpha = {alpha:g}, {part:g} of the limit", succeeded, tried))
    return found


def _causes(rows: list[Row]) -> Statistics:
    """What fails, and for want of what."""

    def count(key: str) -> float:
        return sum(total(row, key) for row in rows)

    failed, while_core = count("joins") - count("joined"), count("core_joins") - count("core_joined")
    by_k = {k: [r for r in rows if (r["k"], r["alpha"], r["founder"]) == (k, 0.5, False)] for k in KS}
    steps = [(a, b) for a, b in pairwise(k for k, mine in by_k.items() if mine)]
    took = {a: min(row["reclaim_rounds"] for row in rows if row["alpha"] == a) for a in {r["alpha"] for r in rows}}
    half = {a: 1 - 2 ** (-1 / t) for a, t in took.items() if t}
    first = share(f"{count('lapsed'):.0f} runs in which a lease ran out", count("by_quorum"), count("lapsed"))
    return {
        "served": [_served(rows, "all points")],
        "for-want": [share(f"{failed:.0f} failed joins", while_core, failed)],
        "first-lapse": [exact(first.at, first.value)] if count("lapsed") else [],
        "larger-k": [exact(f"k = {a} to {b}", _bearable(by_k[b]) - _bearable(by_k[a])) for a, b in steps],
        "half-crash": [
            exact(f"alpha = {a:g}: {p:.3g}, limit {(1 - a) / 2:.3g}", p - (1 - a) / 2)
            for a, p in sorted(half.items())
            if a <= 0.5
        ],
    }


def _bearable(rows: list[Row]) -> float:
    """The largest share of the limit up to which joins succeed; 0 where they never do."""
    best = 0.0
    for row in sorted(rows, key=lambda row: float(row["share_of_limit"])):
        if not total(row, "joins") or joined(row).value < 0.95:
            break
        best = round(row["share_of_limit"], 4)
    return best


def _chernoff() -> list[tuple[str, float, float, float]]:
    """P[more than 2 p_f n of n fail]: exactly, the bound as printed, and as the Chernoff bound gives it."""
    return [
        (f"n = {n}, p_f = {p:g}", binomial_above(n, p, round(2 * n * p)), (e / 4) ** (2 * n * p), (e / 4) ** (n * p))
        for n, p in ((20, 0.05), (100, 0.05), (125, 0.2), (1000, 0.05), (1000, 0.1))
    ]


def _overhead(rows: list[Row]) -> Statistics:
    """Messages of the ring that a coordinator sends in a round without crashes, less the paper's 2k + 1."""

    def beyond(key: str, allowed: Any) -> list[Estimate]:
        return [
            mean(
                f"k = {row['k']:g}: {row[key]:.3g} messages",
                [n - allowed(row["k"]) for n in by_run(row, key)],
                len(rows),
            )
            for row in rows
        ]

    return {
        "overhead": beyond("sent_per_round", lambda k: 2 * k + 1),
        "overhead-ours": beyond("sent_per_round", lambda k: 3 * (2 * k + 1)),
        "overhead-algorithm-2": [
            exact(f"k = {k}: {sent:.3g} messages", sent - (2 * k + 1)) for k in QUIET_KS for sent in [_as_printed(k)]
        ],
    }


def _as_printed(k: int, rounds: int = 10) -> float:
    """Messages that a coordinator of Algorithm 2 as printed sends in a round, without crashes."""
    size = 4 * k + 4
    ring = Tolerant(size, k, 0)
    ring.settled({f"p{i}": (size - 1 - i, i / size * ROUND) for i in range(size)})
    ring.run(rounds * ROUND - 1e-9)
    return sum(step.kind == "send" for step in ring.steps) / size / rounds


def draw(rows: list[Row]) -> Any:
    """Success against p_f, by alpha and by k; the models of quorums dashed."""
    figure, axes = panels(
        f"CCC11 section 4.4: joins under crashes, {round(rows[0]['tickets'])} tickets",
        ("p_f, as a share of (1 - alpha) / 2", f"joins that succeed within {PATIENCE} ring rounds (%)"),
        ("p_f, as a share of (1 - alpha) / 2", f"joins that succeed within {PATIENCE} ring rounds (%)"),
    )
    rows = [row for row in rows if row["failure"] and not row["founder"]]
    alphas, ks = sorted({row["alpha"] for row in rows}), sorted({row["k"] for row in rows})
    for i, alpha in enumerate(alphas):
        mine = [row for row in rows if row["alpha"] == alpha and row["k"] == RING_K]
        _curve(axes[0], mine, i, f"alpha = {alpha:g}, k = {RING_K}")
    for i, k in enumerate(ks):
        _curve(axes[1], [row for row in rows if row["k"] == k and row["alpha"] == 0.5], i, f"k = {k}, alpha = 0.5")
    for one in axes:
        one.plot([], [], "--", color="grey", linewidth=1, label="if only quorums matter")
        one.axvline(1.0, color="grey", linestyle=":", label="the paper's limit")
        one.set_xscale("log")
        one.set_ylim(0, 103)
        one.legend(fontsize=8)
    return figure


def _curve(axes: Any, rows: list[Row], index: int, label: str) -> None:
    mine = [row for row in rows if total(row, "joins")]
    error_bars(axes, [row["share_of_limit"] for row in mine], [joined(row) for row in mine], label, index, 100)
    x = [row["share_of_limit"] for row in rows]
    axes.plot(x, [100 * row["by_quorums"] for row in rows], "--", color=COLOURS[index], linewidth=1, alpha=0.7)


STUDY = Study(measure, statistics, draw, NOTE)

# -- on sockets

PLACES, SEATS, NEAR = 6, 12, 2
"""alpha = 1/2; each neighbourhood is all others."""
STORM = 4
"""Coordinators killed at once: two of five neighbours are left, three are needed."""


def measure_live(options: RunOptions) -> list[Row]:
    """One row, with all runs."""
    crashes, after, round_ms, count = (2, 1, 600.0, 2) if options.quick else (6, 4, 2000.0, 5)
    runs = []
    for i in range(count):
        options.say(i / count, f"live: run {i + 1} of {count}")
        runs.append(one_live(crashes, after, round_ms, options.seed * 1000 + i))
    return [{"places": PLACES, "tickets": SEATS, "k": NEAR, "round_ms": round_ms, "seeds": count, "runs": runs}]


def one_live(crashes: int, after: int, round_ms: float, seed: int) -> Row:
    """One run: joins, and those that succeeded, while coordinators are killed one at a time and `after` the storm."""
    return run(_one_live(crashes, after, round_ms, random.Random(seed)))


async def _one_live(crashes: int, after: int, round_ms: float, rng: random.Random) -> Row:
    patience = PATIENCE * round_ms / 1e3
    members = PLACES + crashes + after
    tasks = [
        LiveTask(
            cluster="availability",
            members=[MemberSpec()],
            tickets=SEATS,
            publishing=int(i < PLACES),
            seed=rng.getrandbits(30),
            timeout=120.0,
            settings=ring(round_ms, members=members, ring_k=NEAR),
        )
        for i in range(members)
    ]
    async with started(tasks) as fleet:
        owners, waiting = fleet.all[:PLACES], fleet.all[PLACES:]
        took: list[float | None] = []
        for _ in range(crashes):
            await owners.pop(rng.randrange(len(owners))).kill()
            owners.append(waiting.pop())
            took.append(await _ask(owners[-1], patience))
        await asyncio.gather(*(owner.kill() for owner in rng.sample(owners, STORM)))
        await asyncio.sleep(patience)
        later = [await _ask(asking, patience) for asking in waiting]
    found = [t for t in took if t is not None]
    return {
        "joins": float(len(took)),
        "joined": float(len(found)),
        "rounds": sum(found) / max(1, len(found)) / (round_ms / 1e3),
        "after": float(len(later)),
        "after_joined": float(sum(t is not None for t in later)),
    }


async def _ask(asking: Members, patience: float) -> float | None:
    """Ask for a ticket; crashes are `patience` apart, however soon it comes."""
    found, _ = await asyncio.gather(
        asking.ask("ask", patience=patience, timeout=patience + ANSWER_S), asyncio.sleep(patience)
    )
    return None if found is None else float(found)


def statistics_live(rows: list[Row]) -> Statistics:
    """Counts over all runs; joins of one run are not quite independent."""
    [row] = rows

    def joins(of: str, done: str) -> list[Estimate]:
        return [share(f"{total(row, of):.0f} joins, {row['seeds']} runs", total(row, done), total(row, of))]

    return {
        "live-served": joins("joins", "joined"),
        "live-storm": joins("after", "after_joined"),
        "live-soon": [mean(f"{row['seeds']} runs", by_run(row, "rounds"))],
    }


def draw_live(rows: list[Row]) -> Any:
    """Two points with intervals."""
    found = statistics_live(rows)
    figure, [axes] = panels(
        f"CCC11 section 4.4 live: {PLACES} of {SEATS} tickets, k = {NEAR}, SIGKILL",
        ("", "joins that succeed (%)"),
    )
    points = [found["live-served"][0], found["live-storm"][0]]
    names = ("one coordinator killed\nat a time", f"after {STORM} of {PLACES} were killed\nat the same moment")
    labels = [f"{name}\n({p.at})" for name, p in zip(names, points, strict=True)]
    error_bars(axes, labels, points, "", scale=100, line="")
    axes.set_ylim(0, 105)
    return figure


LIVE = Study(
    measure_live,
    statistics_live,
    draw_live,
    f"{PLACES} coordinators of {SEATS} tickets, k = {NEAR}, each member a process. One coordinator is killed "
    f"every {PATIENCE} ring rounds: p_f = 1 / {PATIENCE * PLACES} on average, a twelfth of the limit.",
)
