"""CCC11's analysis: Theorem 5.1 (recovery buffer), Lemma 5.2 and Theorem 5.2 (whom to ask), Lemma 5.1 (no faults).

Each bound is checked three times: as stated, exactly in the model it was derived in, and in the running protocol.
"""

from __future__ import annotations

from math import e, exp, lgamma, log, log1p
from typing import Any

from whence.order.sizing import buffer_probability, buffer_size, recovery_fanout, tolerated_failure
from whence.paper.ccc11.evaluation import TERMINATION
from whence.paper.ccc11.seeds import over_seeds, rate, rounded, success_bars
from whence.paper.frame import Claim, Context, Outcome, Row, panels
from whence.plan import unanswered

BUFFERS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Sizes of the recovery buffer, in `mu T`: the theorem's is 2."""
ASKED = (1, 2, 3, 4, 6)
LOAD, LOSS = 3.0, 0.1
FAILURE = 0.1
"""Share of members that crash when the load begins."""


def run(context: Context) -> Outcome:
    """Exact sums, then runs with loss."""
    members, rounds, seeds = (20, 40, 2) if context.quick else (40, 150, 6)
    # With a fanout of 2 gossip misses many events, so there is something to recover.
    base: Row = {"members": members, "coordinators": 5, "load": LOAD, "loss": LOSS, "rounds": rounds, "fanout": 2}
    buffers = BUFFERS[::2] if context.quick else BUFFERS
    sized = over_seeds(context, [{**base, "variant": "R1", "buffer": b} for b in buffers], seeds, ("buffer",))
    by_k = [{**base, "variant": "R4", "k": k, "crashed": FAILURE} for k in ASKED]
    asked = over_seeds(context, by_k, seeds, ("k", "crashed"))
    quiet: Row = {**base, "loss": 0.0, "fanout": 4, "variant": "R4", "history": 1024}
    [calm] = over_seeds(context, [quiet], seeds, ("load",))
    rows = [{"part": "buffer", **_rate(r)} for r in sized] + [{"part": "asked", **_rate(r)} for r in asked]
    model = _buffer_model()
    claims = [*_buffer_claims(model, rows), *_reply_claims(members, rows), _lemma_1(calm)]
    return Outcome(rows + [{"part": "model", **row} for row in model], claims, draw(model, rows))


def _rate(row: Row) -> Row:
    return {**row, **rate(row)}


# -- Theorem 5.1


def _buffer_model() -> list[Row]:
    """P[X > 2npT] of the binomial X that the theorem is about, next to its bound (e/4)^(npT)."""
    rows = []
    for n, p in ((5, 0.1), (5, 0.3), (25, 0.04), (25, 0.24), (125, 0.048)):
        for t in (1, 2, 4, 8, 16):
            mu = n * p * t
            size = buffer_size([p] * n, t)
            exact = binomial_above(n * t, p, size)
            rows.append({"n": n, "p": p, "T": t, "mu": mu, "exact": exact, "bound": (e / 4) ** mu})
    return rows


def binomial_above(trials: int, p: float, k: int) -> float:
    """P[X > k], X binomial."""
    total = 0.0
    for i in range(k + 1, trials + 1):
        ways = lgamma(trials + 1) - lgamma(i + 1) - lgamma(trials - i + 1)
        total += exp(ways + i * log(p) + (trials - i) * log1p(-p))
    return total


def _buffer_claims(model: list[Row], rows: list[Row]) -> list[Claim]:
    sized = [row for row in rows if row["part"] == "buffer"]
    at_2 = next(row for row in sized if row["buffer"] == 2.0)
    bound = buffer_probability([LOAD], 4 * TERMINATION)
    worst = max(model, key=lambda row: row["exact"] / row["bound"])
    smallest = sized[0]
    numbers = {
        "buffer_in_mu_T": [row["buffer"] for row in sized],
        "success": [row["success"] for row in sized],
        "attempts": rounded([row["asked"] * row["seeds"] for row in sized]),
        "predicted_at_2": bound * (1 - LOSS) ** 2,
    }
    return [
        Claim(
            "Theorem 5.1: a buffer of 2npT overflows with a probability below (e/4)^(npT) (exact binomial sums)",
            all(row["exact"] < row["bound"] for row in model),
            {"cases": len(model), "closest": worst},
        ),
        Claim(
            "Theorem 5.1 in the protocol: with a buffer of 2 mu T the source still has what is asked (R1 succeeds "
            "as often as question and answer get through, within 0.04)",
            at_2["success"] is not None and at_2["success"] > bound * (1 - LOSS) ** 2 - 0.04,
            numbers,
        ),
        Claim(
            "and a buffer far below mu T does not do (success at the smallest buffer is lower by 0.1 or more)",
            smallest["success"] is not None and at_2["success"] - smallest["success"] > 0.1,
            numbers,
        ),
    ]


# -- Lemma 5.2 and Theorem 5.2


def _reply_claims(members: int, rows: list[Row]) -> list[Claim]:
    cases = []
    for n in (25, 125, 1000):
        for failure in (0.01, 0.05, 0.2):
            k = recovery_fanout(n, failure)
            # Logarithms: both probabilities are too close to 1 for floats.
            nobody, bound = k * log(failure), n * failure * log(e / 4)
            cases.append({"n": n, "p_f": failure, "k": k, "log_nobody": nobody, "log_bound": bound})
    asked = [row for row in rows if row["part"] == "asked"]
    failure = asked[0]["crashed"]
    theorem = recovery_fanout(members, failure)
    there = [row for row in asked if row["k"] >= min(theorem, ASKED[-1])]
    predicted = _predicted(asked)
    off = [abs(row["success"] - predicted[row["k"]]) for row in asked if row["success"] is not None]
    return [
        Claim(
            "Lemma 5.2: of 2 n p_f processes one lives with a probability above 1 - (e/4)^(n p_f) (exactly: 1 - p_f^k)",
            all(case["log_nobody"] < case["log_bound"] for case in cases),
            {"cases": cases},
        ),
        Claim(
            f"Theorem 5.2 in the protocol: with {failure:.0%} of {members} crashed, asking k >= 2 n p_f = {theorem} "
            f"(at most {ASKED[-1]} tried) gets an answer to more than 0.95 of the questions",
            bool(there) and all(row["success"] is not None and row["success"] > 0.95 for row in there),
            {
                "k": [row["k"] for row in asked],
                "success": [row["success"] for row in asked],
                "attempts": rounded([row["asked"] * row["seeds"] for row in asked]),
                "tolerated_failure": {k: tolerated_failure(members, k) for k in ASKED},
            },
        ),
        Claim(
            "the planner's formula gives the success rate (within 0.06): neither the one known to have the event "
            "nor any of k others answers with probability (1 - a) (1 - a coverage)^k, a = (1-x)^2 (1-y)",
            all(o < 0.06 for o in off),
            {
                "predicted": predicted,
                "success": [row["success"] for row in asked],
                "largest_difference": max(off, default=0),
            },
        ),
    ]


def _predicted(asked: list[Row]) -> dict[int, float]:
    """Success by k, given the share of members that gossip reached."""
    coverage = 1 - max(row["gossip_missed"] for row in asked)
    return {k: 1 - unanswered(LOSS, FAILURE, coverage, k) for k in range(1, ASKED[-1] + 1)}


def _lemma_1(calm: Row) -> Claim:
    return Claim(
        "Lemma 5.1: without faults and losses everybody delivers everything, in causal order (checked at every step)",
        calm["lost"] == 0 and calm["inversions"] == 0,
        {"events": calm["events"] * calm["seeds"], "lost": calm["lost"], "inversions": calm["inversions"]},
    )


def draw(model: list[Row], rows: list[Row]) -> Any:
    """Bound and exact probability; success by buffer; success by k."""
    figure, axes = panels(
        f"CCC11 Theorems 5.1 and 5.2: bounds, model and protocol ({LOSS:.0%} loss)",
        ("npT, events needed at a time", "P[more than 2npT events]"),
        ("recovery buffer (npT)", "R1 recoveries that succeed (%)"),
        ("k, members asked", "Rk recoveries that succeed (%)"),
    )
    shown = sorted((row for row in model if row["exact"] > 1e-12), key=lambda row: float(row["mu"]))
    axes[0].plot([r["mu"] for r in shown], [r["bound"] for r in shown], "--", color="black", label="bound (e/4)^npT")
    axes[0].plot([r["mu"] for r in shown], [r["exact"] for r in shown], "o", markersize=4, label="exact (binomial)")
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=8)
    for one, part, x in ((axes[1], "buffer", "buffer"), (axes[2], "asked", "k")):
        success_bars(one, [row for row in rows if row["part"] == part], x, 0, "measured")
        one.set_ylim(0, 102)
    axes[1].axvline(2.0, color="grey", linestyle=":", label="Theorem 5.1")
    axes[1].axhline(100 * (1 - LOSS) ** 2, color="black", linestyle="--", linewidth=1, label="both ways get through")
    axes[1].legend(fontsize=8)
    ks = range(1, ASKED[-1] + 1)
    predicted = _predicted([row for row in rows if row["part"] == "asked"])
    axes[2].plot(ks, [100 * predicted[k] for k in ks], "--", color="black", linewidth=1, label="planner's formula")
    axes[2].legend(fontsize=8, loc="lower right")
    axes[2].set_xticks(ks)
    return figure
