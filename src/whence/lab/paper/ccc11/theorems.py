"""CCC11's analysis: Theorem 5.1 (recovery buffer), Lemma 5.2 and Theorem 5.2 (whom to ask), Lemma 5.1 (no faults).

Each bound is checked as stated, exactly in the model it was derived in, and in the running protocol. Theorem 5.2 is
tested with recovery as published (`once`: k random members, asked once) and with ours, which also asks a member known
to have the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import e, exp, fsum, lgamma, log, log1p
from typing import Any

from whence.core.order.recovery import buffer_size
from whence.lab.paper.ccc11.evaluation import POINT, TERMINATION, success, success_bars, tried
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds, total
from whence.lab.paper.plots import panels
from whence.lab.plan import recovery_fanout, unanswered
from whence.lab.stats import Estimate, difference, exact, minus, ratio

BUFFERS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Sizes of the recovery buffer, in `mu T`: the theorem's is 2."""
SMALL = 0.5
"""The size at which replacement by age is compared with first in, first out: at 2 both hold everything."""
LOAD, LOSS = 3.0, 0.1
FAILURE = 0.1
"""Share of members that crash when the load begins."""


CHERNOFF = log(e / 4)
"""With delta = 1: Pr[X > 2 mu] < (e/4)^mu."""


def buffer_probability(publish_probabilities: Iterable[float], rounds: float) -> float:
    """Theorem 5.1: with `buffer_size(...)` a needed event is still held with probability greater than this."""
    return 1.0 - exp(fsum(publish_probabilities) * rounds * CHERNOFF)


def reply_probability(members: int, failure: float) -> float:
    """Lemma 5.2: the probability, at least, that one of `recovery_fanout(...)` processes is alive."""
    return 1.0 - exp(members * failure * CHERNOFF)


def asked(members: int) -> tuple[int, ...]:
    """The k to try, up to the theorem's 2 n p_f."""
    return tuple(sorted({1, 2, 3, 4, 6, recovery_fanout(members, FAILURE)}))


def measure(options: RunOptions) -> list[Row]:
    """Runs with loss; the exact sums need none."""
    members, rounds, seeds = (20, 40, 3) if options.quick else (40, 50, 4)
    # With a fanout of 2 gossip misses many events, so there is something to recover.
    base: Row = {"members": members, "coordinators": 5, "load": LOAD, "loss": LOSS, "rounds": rounds, "fanout": 2}
    keep = ("part", "variant", "buffer", "k", "once", "aging", "crashed", "members")
    plain: Row = {"variant": "R1", "buffer": 2.0, "k": 4, "once": False, "aging": False, "crashed": 0.0}
    buffers = BUFFERS[::2] if options.quick else BUFFERS
    wanted: list[Row] = [{**base, **plain, "part": "buffer", "buffer": b} for b in buffers]
    wanted += [
        {**base, **plain, "part": "asked", "variant": "R4", "k": k, "crashed": FAILURE, "once": once}
        for k in asked(members)
        for once in (True, False)
    ]
    wanted += [{**base, **plain, "part": "requests", "variant": v, "once": True} for v in ("R1", "R4")]
    wanted += [{**base, **plain, "part": "calm", "variant": "R4", "loss": 0.0, "fanout": 4, "history": 1024}]
    both = [{**base, **plain, "part": "aging", "buffer": SMALL, "aging": aging} for aging in (False, True)]
    rows = []
    for some, many in ((wanted, seeds), (both, 2 * seeds)):
        runs = [{k: v for k, v in setting.items() if k != "part"} for setting in some]
        found = over_seeds(options, runs, many, keep[1:], POINT)
        rows += [{"part": setting["part"], **row} for setting, row in zip(some, found, strict=True)]
    return rows


# -- the models


def buffer_model() -> list[Row]:
    """P[X > 2npT] of the binomial X that Theorem 5.1 is about, next to its bound (e/4)^(npT)."""
    rows = []
    for n, p in ((5, 0.1), (5, 0.3), (25, 0.04), (25, 0.24), (125, 0.048)):
        for t in (1, 2, 4, 8, 16):
            mu = n * p * t
            size = buffer_size([p] * n, t)
            rows.append(
                {"at": f"n = {n}, p = {p:g}, T = {t}", "mu": mu, "exact": binomial_above(n * t, p, size),
                 "bound": (e / 4) ** mu}
            )  # fmt: skip
    return rows


def general() -> list[Estimate]:
    """TR05's general form, processes with different p_i: P[X > 2 mu T] exactly, by its bound (e/4)^(mu T)."""
    found = []
    for p in ([0.02 * i for i in range(1, 11)], [0.9] + [0.01] * 24, [0.5] * 5 + [0.05] * 20):
        for t in (1, 4, 16):
            chances = [1.0]
            for one in p * t:
                chances = [a * (1 - one) + b * one for a, b in zip([*chances, 0.0], [0.0, *chances], strict=True)]
            above = fsum(chances[buffer_size(p, t) + 1 :])
            found.append(exact(f"{len(p)} processes, mu = {fsum(p):.3g}, T = {t}", above / exp(fsum(p) * t * CHERNOFF)))
    return found


def binomial_above(trials: int, p: float, k: int) -> float:
    """P[X > k], X binomial."""
    total = 0.0
    for i in range(k + 1, trials + 1):
        ways = lgamma(trials + 1) - lgamma(i + 1) - lgamma(trials - i + 1)
        total += exp(ways + i * log(p) + (trials - i) * log1p(-p))
    return total


def lemma_5_2() -> list[Estimate]:
    """log P[all of k = 2 n p_f failed] less the logarithm of the bound: both are too small for floats."""
    cases = [(n, failure) for n in (25, 125, 1000) for failure in (0.01, 0.05, 0.2)]
    return [exact(f"n = {n}, p_f = {f:g}", recovery_fanout(n, f) * log(f) - n * f * log(e / 4)) for n, f in cases]


def predicted(rows: list[Row]) -> dict[int, float]:
    """The planner's success by k, given the share of members that gossip reached."""
    coverage = 1 - max(row["gossip_missed"] for row in rows)
    return {int(row["k"]): 1 - unanswered(LOSS, FAILURE, coverage, int(row["k"])) for row in rows}


# -- what the claims are judged by


def statistics(rows: list[Row]) -> Statistics:
    """The points of every claim."""
    part = {name: [row for row in rows if row["part"] == name] for name in dict.fromkeys(r["part"] for r in rows)}
    sized, calm = part["buffer"], part["calm"][0]
    at_2, least = next(row for row in sized if row["buffer"] == 2.0), sized[0]
    bound = buffer_probability([LOAD], 4 * TERMINATION) * (1 - LOSS) ** 2
    members = int(at_2["members"])
    theorem = recovery_fanout(members, FAILURE)
    printed = [row for row in part["asked"] if row["once"]]
    ours = [row for row in part["asked"] if not row["once"]]
    stated = next(row for row in printed if row["k"] == theorem)
    formula = predicted(ours)
    fifo, aging = sorted(part["aging"], key=lambda row: bool(row["aging"]))
    r1, r4 = sorted(part["requests"], key=lambda row: str(row["variant"]))
    wrong = total(calm, "lost") * calm["pairs"] + total(calm, "inversions")
    return {
        "lemma-5.1": [exact(f"{total(calm, 'events'):.0f} events, {members} members", wrong)],
        "5.1-exact": [exact(case["at"], case["exact"] / case["bound"]) for case in buffer_model()],
        "5.1-general": general(),
        "5.1-protocol": [minus(f"{tried(at_2)}", success(at_2), bound)],
        "5.1-small": [minus(f"2 and {least['buffer']:g} npT", success(at_2), success(least))],
        "aging": [difference(f"buffer of {SMALL:g} npT", _rates(aging), _rates(fifo))],
        "5.2-lemma": lemma_5_2(),
        "5.2-stated": [
            minus(
                f"n = {members}, k = {theorem}, {tried(stated)}, success {success(stated).value:.3f}",
                success(stated),
                reply_probability(members, FAILURE),
            )
        ],
        "5.2-planner": [minus(f"k = {r['k']}", success(r, "", len(ours)), formula[int(r["k"])]) for r in ours],
        "k-times": [ratio(f"{tried(r4)}", _per_event(r4), _per_event(r1))],
    }


def _rates(row: Row) -> list[float]:
    """The success rate of each run."""
    runs = zip(*(by_run(row, key) for key in ("answered", "asked", "overtaken")), strict=True)
    return [min(1.0, answered / max(1.0, asked - overtaken)) for answered, asked, overtaken in runs]


def _per_event(row: Row) -> list[float]:
    """Requests sent for each event that was asked for."""
    return [r / max(1.0, a) for r, a in zip(by_run(row, "requests"), by_run(row, "asked"), strict=True)]


def draw(rows: list[Row]) -> Any:
    """Bound and exact probability; success by buffer; success by k."""
    figure, axes = panels(
        f"CCC11 Theorems 5.1 and 5.2: bounds, model and protocol ({LOSS:.0%} loss)",
        ("npT, events needed at a time", "P[more than 2npT events]"),
        ("recovery buffer (npT)", "R1 recoveries that succeed (%)"),
        ("k, members asked", "Rk recoveries that succeed (%)"),
    )
    shown = sorted((row for row in buffer_model() if row["exact"] > 1e-12), key=lambda row: float(row["mu"]))
    axes[0].plot([r["mu"] for r in shown], [r["bound"] for r in shown], "--", color="black", label="bound (e/4)^npT")
    axes[0].plot([r["mu"] for r in shown], [r["exact"] for r in shown], "o", markersize=4, label="exact (binomial)")
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=8)
    success_bars(axes[1], [row for row in rows if row["part"] == "buffer"], "buffer", 0, "first in, first out")
    success_bars(axes[1], [row for row in rows if row["part"] == "aging" and row["aging"]], "buffer", 2, "aging")
    axes[1].axvline(2.0, color="grey", linestyle=":", label="Theorem 5.1")
    axes[1].axhline(100 * (1 - LOSS) ** 2, color="black", linestyle="--", linewidth=1, label="both ways get through")
    ours = [row for row in rows if row["part"] == "asked" and not row["once"]]
    success_bars(axes[2], [row for row in rows if row["part"] == "asked" and row["once"]], "k", 1, "as published")
    success_bars(axes[2], ours, "k", 0, "ours: a known holder besides")
    formula = predicted(ours)
    axes[2].plot(list(formula), [100 * v for v in formula.values()], "--", color="black", linewidth=1,
                 label="planner's formula")  # fmt: skip
    members = int(ours[0]["members"])
    axes[2].axvline(recovery_fanout(members, FAILURE), color="grey", linestyle=":", label="Theorem 5.2: k = 2 n p_f")
    for one in axes[1:]:
        one.set_ylim(0, 102)
        one.legend(fontsize=8, loc="lower right")
    axes[2].set_xticks(list(formula))
    return figure


STUDY = Study(measure, statistics, draw)
