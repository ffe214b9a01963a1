"""CCC11 section 4.4: a process that wants a ticket gets one w.h.p. while p_f < (1 - alpha) / 2; and the ring's cost.

The paper counts tickets: those of crashed owners, at most `2 p_f n` w.h.p., are blocked until they are reclaimed; the
others are free. It does not consider quorums: both reclaiming and keeping a ticket need k+1 of the 2k+1 neighbours. So
the protocol is measured (`availability_run`) beside two models: the paper's, in which an exclusion always succeeds, and
one in which only a lost quorum prevents a join.
"""

from __future__ import annotations

import random
from itertools import pairwise
from math import e
from typing import Any

from whence.lab.paper.ccc11.availability_run import PATIENCE, Setting, point, quorums
from whence.lab.paper.ccc11.published import ROUND, Tolerant
from whence.lab.paper.ccc11.seeds import COLOURS, MARKS, by_run, over_seeds, total
from whence.lab.paper.ccc11.theorems import binomial_above
from whence.lab.paper.frame import Context, Outcome, Row, around, error_bars, panels
from whence.lab.stats import Estimate, exact, mean, share

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


def measure(context: Context) -> list[Row]:
    """Joins under crashes for several p_f: by alpha, by k, and with a founder that crashes; and quiet rings."""
    groups = [(0.5, 2), (0.5, 4)] if context.quick else [(a, RING_K) for a in ALPHAS] + [(0.5, k) for k in KS]
    groups = list(dict.fromkeys(groups))
    common: Row = {"tickets": QUICK_TICKETS, "crashes": 25} if context.quick else {"tickets": TICKETS}
    shares = QUICK if context.quick else SHARES
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
    seeds = 2 if context.quick else 5
    found = over_seeds(context, settings, seeds, ("tickets", "alpha", "k", "failure", "founder"), RUNNER)
    rows = []
    for setting, row in zip(settings, found, strict=True):
        mine = [r for r in found if (r["alpha"], r["k"]) == (row["alpha"], row["k"])]
        reclaim = sum(r["reclaim_sum"] for r in mine) / max(1e-9, sum(r["reclaims"] for r in mine))
        by_quorums = quorums(Setting(**setting), reclaim) if row["failure"] else 1.0
        of_limit = row["failure"] / ((1 - row["alpha"]) / 2)
        rows.append({**row, "share_of_limit": of_limit, "reclaim_rounds": reclaim, "by_quorums": by_quorums})
    return rows


def outcome(rows: list[Row]) -> Outcome:
    """The statement of CCC11 section 4.4, why it does not hold, and what does."""
    return Outcome(rows, statistics(rows), draw(rows), NOTE)


NOTE = (
    "p_f is the probability that a coordinator crashes in one ring round, for good: at a tenth of the limit and alpha "
    "= 0.5 half of the ring is replaced every 28 rounds. The paper assumes that an exclusion always succeeds, within 1 "
    "/ alpha rounds. A dead core is not founded again here; an operator would do that, or a council (docs/ring.md). "
    "Intervals are as if joins were independent; the joins of one run all depend on its core."
)


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
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


def _causes(rows: list[Row]) -> dict[str, list[Estimate]]:
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


def _overhead(rows: list[Row]) -> dict[str, list[Estimate]]:
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
    found = [joined(row) for row in mine]
    x = [row["share_of_limit"] for row in mine]
    error_bars(axes, x, [100 * p.value for p in found], around(found, 100), f"{MARKS[index]}-", COLOURS[index], label)
    x = [row["share_of_limit"] for row in rows]
    axes.plot(x, [100 * row["by_quorums"] for row in rows], "--", color=COLOURS[index], linewidth=1, alpha=0.7)
