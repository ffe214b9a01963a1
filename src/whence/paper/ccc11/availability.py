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

from whence.paper.ccc11.availability_run import PATIENCE, Setting, point, quorums
from whence.paper.ccc11.seeds import COLOURS, MARKS, over_seeds, rounded
from whence.paper.ccc11.theorems import binomial_above
from whence.paper.frame import Claim, Context, Outcome, Row, error_bars, panels
from whence.sim.meter import wilson

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


def run(context: Context) -> Outcome:
    """Joins under crashes for several p_f: by alpha, and by k."""
    groups = [(0.5, 2), (0.5, 4)] if context.quick else [(a, RING_K) for a in ALPHAS] + [(0.5, k) for k in KS]
    groups = list(dict.fromkeys(groups))
    common: Row = {"tickets": QUICK_TICKETS, "crashes": 25} if context.quick else {"tickets": TICKETS}
    settings = [
        {**common, "alpha": alpha, "k": k, "failure": share * (1 - alpha) / 2}
        for alpha, k in groups
        for share in (QUICK if context.quick else SHARES)
    ]
    seeds = 2 if context.quick else 3
    found = over_seeds(context, settings, seeds, ("tickets", "alpha", "k", "failure"), RUNNER)
    rows = []
    for setting, row in zip(settings, found, strict=True):
        joins, joined = round(row["joins"] * seeds), round(row["joined"] * seeds)
        mine = [r for r in found if (r["alpha"], r["k"]) == (row["alpha"], row["k"])]
        reclaim = sum(r["reclaim_sum"] for r in mine) / max(1e-9, sum(r["reclaims"] for r in mine))
        low, high = wilson(joined, joins)
        rows.append(
            {
                **row,
                "share_of_limit": row["failure"] / ((1 - row["alpha"]) / 2),
                "success": joined / joins if joins else None,
                "low": low,
                "high": high,
                "reclaim_rounds": reclaim,
                "by_quorums": quorums(Setting(**setting), reclaim),
            }
        )
    return Outcome(rows, claims(rows), draw(rows), NOTE)


NOTE = (
    "p_f is the probability that a coordinator crashes in one ring round, for good: at a tenth of the limit and alpha "
    "= 0.5 half of the ring is replaced every 28 rounds. The paper assumes that an exclusion always succeeds, within 1 "
    "/ alpha rounds. A dead core is not founded again here; an operator would do that, or the ring itself while its "
    "last coordinators live (docs/ring.md). Bars are 95 % intervals as if joins were independent; the joins of one run "
    "all depend on its core."
)
KEYS = ("alpha", "k", "failure", "share_of_limit", "success", "low", "high", "by_quorums", "died")


def claims(rows: list[Row]) -> list[Claim]:
    """The statement of CCC11 section 4.4, why it does not hold, and what does."""
    return [*_models(), *_sentence(rows), *_causes(rows), *_printed(), _overhead(rows)]


def _models() -> list[Claim]:
    ideal = []
    for alpha in ALPHAS:
        for share in (0.5, 0.9, 1.9, 3.0):
            tried, found = model(1000, alpha, share * (1 - alpha) / 2, 2000, 1)
            ideal.append({"alpha": alpha, "share_of_limit": share, "joins": tried, "success": found / max(1, tried)})
    return [
        Claim(
            "in the paper's own model (tickets reclaimed in 1 / alpha rounds, always) joins succeed below the limit",
            all(case["success"] > 0.999 for case in ideal if case["share_of_limit"] < 1),
            {"n": 1000, "cases": ideal},
        )
    ]


def _sentence(rows: list[Row]) -> list[Claim]:
    known = [row for row in rows if row["success"] is not None and row["share_of_limit"] < 1]
    points = [{key: row[key] for key in KEYS} | {"joins": round(row["joins"] * row["seeds"])} for row in known]
    safe = [row for row in known if row["by_quorums"] >= 0.98]
    return [
        Claim(
            "in the protocol a join succeeds w.h.p. if p_f < (1 - alpha) / 2 (0.95 or more, at every p_f tried below)",
            bool(known) and all(row["high"] >= 0.95 for row in known),
            {"points": points, "why_not": WHY_NOT},
        ),
        Claim(
            "it does where quorums are not lost (0.95 or more, wherever the model of quorums says 0.98 or more)",
            bool(safe) and all(row["high"] >= 0.95 for row in safe),
            {"points": [{key: row[key] for key in KEYS} for row in safe]},
        ),
    ]


def _causes(rows: list[Row]) -> list[Claim]:
    def total(key: str) -> int:
        return sum(round(row[key] * row["seeds"]) for row in rows)

    failed, while_core = total("joins") - total("joined"), total("core_joins") - total("core_joined")
    by_k = {k: _bearable(mine) for k in KS if (mine := [r for r in rows if r["k"] == k and r["alpha"] == 0.5])}
    took = {a: min(row["reclaim_rounds"] for row in rows if row["alpha"] == a) for a in ALPHAS if _has(rows, a)}
    most = {a: 1 - 2 ** (-1 / t) for a, t in took.items()}
    return [
        Claim(
            "while there is a coordinator nearly every join succeeds (0.99), at every p_f, alpha and k",
            total("core_joined") >= 0.99 * total("core_joins") > 0,
            {"joins": total("core_joins"), "succeeded": total("core_joined")},
        ),
        Claim(
            "so what fails, fails for want of a coordinator (nine failed joins in ten, or more)",
            failed > 0 and while_core <= 0.1 * failed,
            {"failed": failed, "of_them_while_there_was_a_coordinator": while_core, "cores_dead": total("died")},
        ),
        Claim(
            "the first lease of a run to run out is one whose quorum of neighbours has crashed (in every such run)",
            total("lapsed") > 0 and total("by_quorum") == total("lapsed"),
            {
                "runs_in_which_a_lease_ran_out": total("lapsed"),
                "of_them_quorum_crashed": total("by_quorum"),
                "why_not": OTHERS,
            },
        ),
        Claim(
            "a larger k bears a larger p_f (the largest share of the limit with 0.95 or more does not fall as k grows)",
            len(by_k) > 1 and all(a <= b for a, b in pairwise(by_k.values())) and len(set(by_k.values())) > 1,
            {"alpha": 0.5, "largest_share_of_limit_by_k": by_k},
        ),
        Claim(
            "no k makes the sentence true at alpha = 0.25 and 0.5: where reclaiming takes t rounds, half of any "
            "neighbourhood crashes meanwhile at p_f = 1 - 2^(-1/t), which is below the limit",
            all(p < (1 - a) / 2 for a, p in most.items() if a <= 0.5),
            {"t": took, "p_f_at_which_half_crash": most, "limits": {a: (1 - a) / 2 for a in took}},
        ),
    ]


def _has(rows: list[Row], alpha: float) -> bool:
    return any(row["alpha"] == alpha for row in rows)


def _bearable(rows: list[Row]) -> float:
    """The largest share of the limit up to which joins succeed; 0 where they never do."""
    best = 0.0
    for row in sorted(rows, key=lambda row: float(row["share_of_limit"])):
        if row["success"] is None or row["success"] < 0.95:
            break
        best = round(row["share_of_limit"], 4)
    return best


def _printed() -> list[Claim]:
    chernoff = [
        {
            "n": n,
            "p_f": p,
            "exact": binomial_above(n, p, round(2 * n * p)),
            "stated": (e / 4) ** (2 * n * p),
            "derived": (e / 4) ** (n * p),
        }
        for n, p in ((20, 0.05), (100, 0.05), (125, 0.2), (1000, 0.05), (1000, 0.1))
    ]
    return [
        Claim(
            "more than 2 p_f n of n processes fail in a round with a probability below (e/4)^(2 p_f n), as printed",
            all(c["exact"] < c["stated"] for c in chernoff),
            {
                "cases": chernoff,
                "why_not": "the Chernoff bound of Theorem 5.1 gives (e/4)^(p_f n); the 2 is one too many",
            },
        ),
        Claim(
            "the same with (e/4)^(p_f n), which is what the Chernoff bound gives",
            all(c["exact"] < c["derived"] for c in chernoff),
            {"cases": len(chernoff)},
        ),
    ]


def _overhead(rows: list[Row]) -> Claim:
    return Claim(
        "a coordinator sends at most 2k + 1 ALIVE messages a round",
        all(row["alive_per_round"] <= 2 * row["k"] + 1 for row in rows),
        {"k": [row["k"] for row in rows], "mean": rounded([row["alive_per_round"] for row in rows])},
    )


WHY_NOT = (
    "The derivation counts tickets only. Keeping and reclaiming a ticket need a quorum of the neighbours. When more "
    "than k of 2k + 1 crash before they are reclaimed, the others of that neighbourhood stop rather than risk two "
    "owners (docs/ring.md, rules 8 and 17). Then one lease after the other expires in the whole core, and nobody is "
    "left to grant a ticket. There were always enough free tickets."
)


OTHERS = (
    "In the runs of seed 0 these are newcomers with a living quorum. The coordinator that granted their tickets "
    "crashed; its predecessor excluded everything up to a coordinator past them, and those that agree to that no "
    "longer vouch for the tickets in between (docs/ring.md, rule 12)."
)


def draw(rows: list[Row]) -> Any:
    """Success against p_f, by alpha and by k; the models of quorums dashed."""
    figure, axes = panels(
        f"CCC11 section 4.4: joins under crashes, {round(rows[0]['tickets'])} tickets",
        ("p_f, as a share of (1 - alpha) / 2", f"joins that succeed within {PATIENCE} ring rounds (%)"),
        ("p_f, as a share of (1 - alpha) / 2", f"joins that succeed within {PATIENCE} ring rounds (%)"),
    )
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
    mine = [row for row in rows if row["success"] is not None]
    y = [100 * row["success"] for row in mine]
    below = [100 * max(0.0, row["success"] - row["low"]) for row in mine]
    above = [100 * max(0.0, row["high"] - row["success"]) for row in mine]
    x = [row["share_of_limit"] for row in mine]
    error_bars(axes, x, y, [below, above], f"{MARKS[index]}-", COLOURS[index], label)
    x = [row["share_of_limit"] for row in rows]
    axes.plot(x, [100 * row["by_quorums"] for row in rows], "--", color=COLOURS[index], linewidth=1, alpha=0.7)
