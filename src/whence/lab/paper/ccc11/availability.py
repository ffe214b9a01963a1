"""CCC11 section 4.4: a process that wants a ticket gets one w.h.p. while p_f < (1 - alpha) / 2; and the ring's cost.

The paper counts tickets: those of crashed owners, at most `2 p_f n` w.h.p., are blocked until they are reclaimed; the
others are free. It assumes that alpha remains constant and an exclusion takes 1 / alpha rounds: in that model the
sentence is tested. The protocol is measured, too (`availability_run`): there both reclaiming and keeping a ticket need
k+1 of the 2k+1 neighbours.
"""

from __future__ import annotations

import random
from itertools import pairwise
from math import e
from typing import Any

from whence.lab.paper.ccc11.availability_run import PATIENCE, point
from whence.lab.paper.ccc11.published import ROUND, Tolerant
from whence.lab.paper.ccc11.theorems import binomial_above
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds, total
from whence.lab.paper.plots import error_bars, panels
from whence.lab.stats import Estimate, clustered, exact, mean, share

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
    for row in found:
        mine = [r for r in found if (r["alpha"], r["k"]) == (row["alpha"], row["k"])]
        reclaim = sum(r["reclaim_sum"] for r in mine) / max(1e-9, sum(r["reclaims"] for r in mine))
        of_limit = row["failure"] / ((1 - row["alpha"]) / 2)
        rows.append({**row, "share_of_limit": of_limit, "reclaim_rounds": reclaim})
    return rows


NOTE = (
    "p_f is the probability that a coordinator crashes in one ring round, for good: at a tenth of the limit and alpha "
    "= 0.5 half of the ring is replaced every 28 rounds. The paper assumes that an exclusion always succeeds, within 1 "
    "/ alpha rounds. A dead core is not founded again here; an operator would do that, or a council (docs/ring.md). "
)


def statistics(rows: list[Row]) -> Statistics:
    """The points of every claim."""
    crashing = [row for row in rows if row["failure"]]
    known = [row for row in crashing if not row["founder"] and total(row, "joins")]
    found = {
        "model": _model(),
        "sentence": [joined(row, len(known)) for row in known],
        "founder": [_served([row], _at(row)) for row in crashing if row["founder"]],
        "reclaim": [exact(f"alpha = {a:g}", as_printed_reclaims(a) - 1 / a) for a in ALPHAS if 1 / a % 1 == 0],
        "reclaim-ours": [exact(f"alpha = {a:g}: {took:.3g} rounds", took - 1 / a) for a, took in _reclaims(known)],
        "printed": [exact(at, exactly / stated) for at, exactly, stated, _ in _chernoff()],
        "derived": [exact(at, exactly / derived) for at, exactly, _, derived in _chernoff()],
    }
    return found | _causes(crashing) | _overhead([row for row in rows if not row["failure"]])


def joined(row: Row, of: int = 1) -> Estimate:
    """The share of joins that succeeded."""
    return clustered(_at(row), by_run(row, "joined"), by_run(row, "joins"), of)


def _reclaims(rows: list[Row]) -> list[tuple[float, float]]:
    """By alpha, the mean time until the tickets of a crashed owner are free again, in our ring with the usual k."""
    return sorted({row["alpha"]: row["reclaim_rounds"] for row in rows if row["k"] == RING_K}.items())


def _at(row: Row) -> str:
    return f"alpha = {row['alpha']:g}, k = {row['k']:g}, p_f = {row['share_of_limit']:.3g} of the limit"


def _served(rows: list[Row], at: str) -> Estimate:
    """The share of joins that succeeded, of those made while there was a coordinator."""
    done, tried = ([n for row in rows for n in by_run(row, key)] for key in ("core_joined", "core_joins"))
    return clustered(f"{at}, {sum(tried):.0f} joins", done, tried)


def _model() -> list[Estimate]:
    found = []
    for alpha in ALPHAS:
        for part in (0.5, 0.9):
            tried, succeeded = model(1000, alpha, part * (1 - alpha) / 2, 2000, 1)
            found.append(share(f"alpha = {alpha:g}, {part:g} of the limit", succeeded, tried))
    return found


def _causes(rows: list[Row]) -> Statistics:
    """What fails, and for want of what."""

    def without(tried: str, done: str) -> list[float]:
        return [run[tried] - run[done] for row in rows for run in row["runs"]]

    failed, while_core = without("joins", "joined"), without("core_joins", "core_joined")
    by_k = {k: [r for r in rows if (r["k"], r["alpha"], r["founder"]) == (k, 0.5, False)] for k in KS}
    steps = [(a, b) for a, b in pairwise(k for k, mine in by_k.items() if mine)]
    took = {a: min(row["reclaim_rounds"] for row in rows if row["alpha"] == a) for a in {r["alpha"] for r in rows}}
    half = {a: 1 - 2 ** (-1 / t) for a, t in took.items() if t}
    return {
        "served": [_served(rows, "all points")],
        "for-want": [clustered(f"{sum(failed):.0f} failed joins", while_core, failed)],
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
        "overhead-alive": [
            exact(f"k = {k}: {sent:.3g} messages", sent - (2 * k + 1)) for k in QUIET_KS for sent in [_alive(k)]
        ],
    }


def _alive(k: int, rounds: int = 10) -> float:
    """ALIVE messages that a coordinator of Algorithm 2 as printed sends in a round, without crashes."""
    size = 4 * k + 4
    ring = Tolerant(size, k, 0)
    ring.settled({f"p{i}": (size - 1 - i, i / size * ROUND) for i in range(size)})
    ring.run(rounds * ROUND - 1e-9)
    return sum(step.what == "ALIVE" for step in ring.steps) / size / rounds


def as_printed_reclaims(alpha: float, k: int = 2) -> float:
    """Rounds from a crash until its tickets can be granted again, by Algorithms 2 to 4 as printed: `alpha n` owners,
    equally far apart; the mean over phases of the rounds."""
    apart, owners = round(1 / alpha), 4 * k + 4
    took = []
    for part in range(8):
        ring = Tolerant(owners * apart, k, 0)
        ring.settled({f"p{i}": ((owners - 1 - i) * apart, (i * 0.37 + part / 8) % 1 * ROUND) for i in range(owners)})
        ring.run(2 * ROUND)
        ring.crash("p1")
        ring.run(60 * ROUND)
        took += [step.at - 2 * ROUND for step in ring.steps if step.kind == "free"]
    return mean("", took).value / ROUND


def draw(rows: list[Row]) -> Any:
    """Success against p_f, by alpha and by k."""
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
        one.axvline(1.0, color="grey", linestyle=":", label="the paper's limit")
        one.set_xscale("log")
        one.set_ylim(0, 103)
        one.legend(fontsize=8)
    return figure


def _curve(axes: Any, rows: list[Row], index: int, label: str) -> None:
    mine = [row for row in rows if total(row, "joins")]
    error_bars(axes, [row["share_of_limit"] for row in mine], [joined(row) for row in mine], label, index, 100)


STUDY = Study(measure, statistics, draw, NOTE)
