"""PCO17 Figures 3 to 6 with its own notation: it writes N(mu, sigma^2), so N(100, 20) has a deviation of 4.47 ms.

The other experiments read the 20 as the deviation. Here fewer messages overtake others, and errors are rarer.
"""

from __future__ import annotations

from math import sqrt

from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, on_arrays
from whence.lab.paper.pco17 import PAPER, by_bound, relative
from whence.lab.paper.pco17.sweeps import each_rate, interval
from whence.lab.stats import exact, paired_quotient, quotient

DEVIATION = sqrt(20)
KS = (2, 3, 4, 5, 6)
NS = (500, 1000, 2000)
LAMBDAS = (2000, 3000, 4000, 5000, 6000, 10000)
AT_EACH_RATE = (500, 1000, 1500, 2000)
LONG = 3
"""Times as many deliveries where errors are rarest."""


def measure(options: RunOptions) -> list[Row]:
    """Each figure's parameter; messages of the same N and rate are the same."""
    deliveries, seeds = (1e6, 4) if options.quick else (5e7, 16)
    points: list[tuple[str, Row]] = [("fig3", {"processes": n, "keys": k}) for n in NS for k in KS]
    points += [("fig4", {"rate": 1e6 / ms}) for ms in LAMBDAS]
    points += [("fig5", {"processes": n, "rate": n / 5}) for n in AT_EACH_RATE]
    points += [("fig6", {"processes": n}) for n in (100, *NS)]
    base = {**PAPER, "spread": DEVIATION, "skew": DEVIATION}
    settings: list[Row] = []
    for part, point in points:
        rare = part != "fig3" and point.get("rate", 200) <= 250
        settings.append({**base, **point, "deliveries": deliveries * (LONG if rare else 1)})
    rows = on_arrays(options, settings, seeds)
    return [
        {"part": part, "lambda_ms": round(1000 * row["processes"] / row["rate"]), **row}
        for (part, _), row in zip(points, rows, strict=True)
    ]


def statistics(rows: list[Row]) -> Statistics:
    """As those of the figures."""
    part = {name: [row for row in rows if row["part"] == name] for name in ("fig3", "fig4", "fig5", "fig6")}
    keys = {(row["processes"], row["keys"]): by_run(row, "exact_rate") for row in part["fig3"]}
    others = [k for k in KS if k != 4]
    outside = [run for row in rows for run in row["runs"] if not run["eps_min"] <= run["exact_rate"] <= run["eps_max"]]
    by_N = {row["processes"]: by_run(row, "exact_rate") for row in part["fig6"]}
    return {
        **{
            f"least-{n}": [paired_quotient(f"K = {k}", keys[n, k], keys[n, 4], len(others)) for k in others] for n in NS
        },
        "bound": by_bound([row | {"K": row["keys"]} for row in part["fig3"]], "K"),
        "brackets": [exact(f"{sum(len(row['runs']) for row in rows)} runs", len(outside))],
        **{f"lambda-{key}": found for key, found in interval(part["fig4"]).items()},
        **{f"processes-{key}": found for key, found in each_rate(part["fig5"]).items()},
        "constant": relative(part["fig6"], "processes", 1000, [2000]),
        "higher": relative(part["fig6"], "processes", 1000, [100]),
        "concurrency": [quotient(f"N = {n}", by_N[n], by_N[1000], 2) for n in (500, 2000)],
    }


STUDY = Study(measure, statistics)
