"""PCO17 Figure 3: the error rate against K. Claim: the best K is 4 for every N; theory says ln 2 * R / X = 3.5."""

from __future__ import annotations

from math import log

from whence.paper.frame import Claim, Context, Outcome, best, count, curve, measure, panels, theory, worse
from whence.paper.pco17 import BOUND, COLOURS, PAPER, SHARE

NS = (500, 1000, 1500, 2000)
KS = tuple(range(1, 11))


def run(context: Context) -> Outcome:
    """Every N with every K."""
    deliveries = context.size(1e8, quick=4e6)
    rows = measure(
        context, [{**PAPER, "processes": n, "keys": k, "deliveries": deliveries} for n in NS for k in KS], seeds=8
    )
    claims = []
    for n in NS:
        mine = [row for row in rows if row["processes"] == n]
        found = best(mine, "keys")
        four = next(row for row in mine if row["keys"] == 4)
        by, error = worse(four, found)
        numbers = {
            "best_K": found["keys"],
            "rates": {row["keys"]: row["exact_rate"] for row in mine},
            "standard_errors": {row["keys"]: row["exact_rate_error"] for row in mine},
            "K4_worse_than_best_by": by,
            "standard_error_of_that": error,
        }
        claims.append(Claim(f"N = {n}: the error rate is least at K = 4", found["keys"] == 4, numbers))
        text = f"N = {n}: no K is measurably better than 4 (2 standard errors, same messages)"
        claims.append(Claim(text, by <= 2 * error, numbers))
        by_min, by_max = (min(mine, key=lambda row, e=e: row[e])["keys"] for e in ("eps_min", "eps_max"))  # type: ignore[misc]
        text = f"N = {n}: the paper's own estimates have their least at K = 4"
        claims.append(Claim(text, by_min == by_max == 4, {"eps_min": by_min, "eps_max": by_max}))
    optimum = log(2) * 100 / 20
    claims.append(Claim("the theoretical optimum is about 3.5", round(optimum, 1) == 3.5, {"ln2_R_over_X": optimum}))
    over = [row for row in rows if row["exact_rate"] > row["theory"]]
    above = [(row["processes"], row["keys"], row["exact_rate"], row["theory"]) for row in over]
    claims.append(Claim("the error rate is at most P_nc (1 - (1 - 1/R)^(KX))^K", not over, {"points_above": above}))
    title = f"PCO17 Figure 3: R = 100, 200 messages/s, {count(deliveries)}"
    figure, [axes] = panels(title, ("K, entries of each process", SHARE))
    for n, colour in zip(NS, COLOURS, strict=False):
        mine = [row for row in rows if row["processes"] == n]
        curve(axes, mine, "keys", f"N = {n}", colour)
    theory(axes, [row for row in rows if row["processes"] == 1000], "keys", BOUND + ", N = 1000", "black")
    axes.axvline(optimum, color="grey", linestyle=":", linewidth=1.2, label="theory: K = ln 2 · R / X = 3.5")
    axes.set_yscale("log")
    axes.set_xticks(KS)
    axes.set_ylim(top=2 * axes.get_ylim()[1])
    axes.legend(fontsize=8, ncols=2, loc="upper center")
    return Outcome(rows, claims, figure)
