"""The error rate against one parameter: PCO17 Figures 4 to 6, and what it leaves out, churn.

N = 1000, R = 100 and K = 4 unless the parameter is one of them. Errors are rare where claims compare: more deliveries
are run there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, on_arrays
from whence.lab.paper.pco17 import BOUND, PAPER, SHARE, band, by_x, curve, relative, unalerted
from whence.lab.paper.plots import COLOURS, count, panels
from whence.lab.stats import mean, minus, quotient

LAMBDAS = (1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000)
AT_EACH_RATE = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000)
AT_ONE_RATE = (50, 100, 200, 300, 500, 750, 1000, 2000, 5000, 10000)
RATES = (0.0, 1.0, 5.0, 20.0, 50.0, 100.0)


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Points along one parameter, and how they are drawn."""

    x: str
    values: Sequence[float]
    setting: Callable[[Any], Row]
    """Value -> what differs from the paper's setting."""
    deliveries: float = 1e8
    quick: float = 2e6
    seeds: int = 16
    quick_seeds: int = 4
    more: Mapping[float, float] = {}
    """Value -> how many times as many deliveries (in a quick run, none has more)."""
    title: str
    label: str
    scale: str = "log"
    logarithmic: bool = False
    """The x axis."""
    mark: tuple[float, str] | None = None
    """A vertical line, and its label."""

    def measure(self, options: RunOptions) -> list[Row]:
        """One row for each value."""
        deliveries = self.quick if options.quick else self.deliveries
        times = {v: min(1, self.more.get(v, 1)) if options.quick else self.more.get(v, 1) for v in self.values}
        points = [{**PAPER, **self.setting(v), "deliveries": deliveries * times[v]} for v in self.values]
        rows = on_arrays(options, points, self.quick_seeds if options.quick else self.seeds)
        return [{**row, self.x: v} for v, row in zip(self.values, rows, strict=True)]

    def draw(self, rows: list[Row]) -> Any:
        """The measured error rate between the paper's two estimates, and the bound."""
        often = count(min(row["deliveries"] for row in rows if self.more.get(row[self.x], 1) >= 1))
        figure, [axes] = panels(f"{self.title}, {often}{' or more' if self.more else ''}", (self.label, SHARE))
        band(axes, rows, self.x, COLOURS[0])
        curve(axes, rows, self.x, "measured (exact)", 0, BOUND)
        if self.mark:
            axes.axvline(self.mark[0], color="grey", linestyle=":", linewidth=1.2, label=self.mark[1])
        axes.set_yscale(self.scale)
        if self.scale == "linear":
            axes.set_ylim(bottom=0)
        if self.logarithmic:
            axes.set_xscale("symlog", linthresh=min(v for v in self.values if v))
        axes.legend(fontsize=8)
        return figure


def _study(statistics: Callable[[list[Row]], Statistics], **sweep: Any) -> Study:
    made = Sweep(**sweep)
    return Study(made.measure, statistics, made.draw)


def interval(rows: list[Row]) -> Statistics:
    """Rates by that of 5000 ms."""
    rate = by_x(rows, "lambda_ms")
    found = {ms: mean("", runs, 3) for ms, runs in rate.items()}
    rise = [minus("", found[b], found[a]) for a, b in ((3000, 2000), (10000, 3000))]
    around = [(a - b) / 2 for a, b in zip(rate[4000], rate[6000], strict=True)]  # for each 1000 ms
    below = [a - b for a, b in zip(rate[2000], rate[3000], strict=True)]
    return {
        "flat": [quotient("4000 to 6000 by 2000 to 3000 ms", around, below)],
        "stable": [quotient(f"{ms} ms", rate[ms], rate[5000], 2) for ms in (4000, 6000)],
        "fast": [quotient("2000 ms", rate[2000], rate[5000])],
        "steep": [minus("3000 to 2000 ms, less 10000 to 3000 ms", *rise)],
    }


def each_rate(rows: list[Row]) -> Statistics:
    """Rates by that of N = 1000, and by how much more the processes from 1000 to 1500 add than the 500 before. Runs of
    different N are independent, so the interval is over sums of one run of each."""
    rate = by_x(rows, "processes")
    bend = [a - 2 * b + c for a, b, c in zip(rate[1500], rate[1000], rate[500], strict=True)]
    return {
        "fast": [quotient("N = 2000", rate[2000], rate[1000])],
        "bend": [mean("500 to 1000 to 1500", bend)],
    }


def one_rate(rows: list[Row]) -> Statistics:
    """Rates by that of N = 1000, and of neighbours."""
    by = partial(relative, rows, "processes")
    return {
        "constant": by(1000, [2000]),
        "falls": by(1000, AT_ONE_RATE[-2:]),
        "higher": by(1000, [100]),
        "steady": [by(b, [a])[0] for a, b in pairwise(AT_ONE_RATE[:7])],
    }


def replaced(rows: list[Row]) -> Statistics:
    """Processes differ, so runs are independent."""
    return {"churn": relative(rows, "churn", 0.0, RATES[1:]), "unalerted": unalerted(rows)}


FIG4 = _study(
    interval,
    x="lambda_ms",
    values=LAMBDAS,
    setting=lambda ms: {"rate": 1e6 / ms},
    quick_seeds=8,
    more={1000: 0.1, 1500: 0.1, 4000: 20, 5000: 20, 6000: 20},
    title="PCO17 Figure 4: N = 1000, R = 100, K = 4",
    label="λ, mean interval between two messages of one process (ms)",
    mark=(5000, "λ = 5000 ms, for which K = 4 is chosen"),
)
FIG5 = _study(
    each_rate,
    x="processes",
    values=AT_EACH_RATE,
    setting=lambda n: {"processes": n, "rate": n / 5},
    title="PCO17 Figure 5: R = 100, K = 4, λ = 5000 ms",
    label="N, processes (each sends every 5 s)",
    mark=(1000, "N = 1000, for which K = 4 is chosen"),
)
FIG6 = _study(
    one_rate,
    x="processes",
    values=AT_ONE_RATE,
    setting=lambda n: {"processes": n},
    more=dict.fromkeys(AT_ONE_RATE[-4:], 10),  # in a large group each slow message causes more errors at once
    title="PCO17 Figure 6: R = 100, K = 4, 200 messages/s in total",
    label="N, processes (together 200 messages/s)",
    scale="linear",
    logarithmic=True,
)
CHURN = _study(
    replaced,
    x="churn",
    values=RATES,
    setting=lambda churn: {"churn": churn},
    deliveries=3e8,
    quick_seeds=8,
    title="Churn: N = 1000, R = 100, K = 4, 200 messages/s",
    label="processes replaced per second",
    scale="linear",
)
