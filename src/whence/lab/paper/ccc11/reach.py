"""CCC11 section 6.2: do a fanout of 4 and 5 hops bring each event to 250 processes with high probability?

Full views, nothing lost, one event a round of one coordinator: nothing but the dissemination itself. Members in step
(all begin a round at the same instant, the best case) and out of step, as in any real cluster; and the sizes that
`cast.sizing` computes.
"""

from __future__ import annotations

from typing import Any

from whence.core.cast.sizing import choose
from whence.lab.paper.ccc11.evaluation import FANOUT, POINT, TERMINATION
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds
from whence.lab.paper.plots import COLOURS, error_bars, panels
from whence.lab.spread import PrCast
from whence.lab.stats import Estimate, clustered, exact, mean

MEMBERS, QUICK = (25, 60, 125, 250), (25, 250)
TARGET = 0.99


def measure(options: RunOptions) -> list[Row]:
    """Every size in step and out of step with 4 and 5; 250 also with the sizes for the target."""
    rounds, seeds = (20, 2) if options.quick else (100, 3)
    sized = choose(MEMBERS[-1], 0.0, TARGET)
    wanted: list[Row] = [
        {"members": n, "in_step": step, "fanout": FANOUT, "termination": TERMINATION}
        for n in (QUICK if options.quick else MEMBERS)
        for step in (True, False)
    ]
    wanted.append({"members": MEMBERS[-1], "in_step": False, "fanout": sized.fanout, "termination": sized.termination})
    settings = [{**w, "coordinators": 1, "load": 1.0, "rounds": rounds, "variant": "gossip"} for w in wanted]
    return over_seeds(options, settings, seeds, ("members", "in_step", "fanout", "termination"), POINT)


def statistics(rows: list[Row]) -> Statistics:
    """Events of a run share its members, so intervals are over runs."""
    large = [row for row in rows if row["members"] == MEMBERS[-1]]
    printed = [row for row in large if _printed(row)]
    return {
        "reach-250": [_reached(row, len(printed)) for row in printed],
        "reach-sized": [_reached(row, 1) for row in large if not _printed(row)],
        "cover-250": [mean(_step(row), [1 - m for m in by_run(row, "gossip_missed")], 2) for row in printed],
    }


def _printed(row: Row) -> bool:
    return (row["fanout"], row["termination"]) == (FANOUT, TERMINATION)


def _step(row: Row) -> str:
    return f"{'in step' if row['in_step'] else 'out of step'}, {row['fanout']} and {row['termination']}"


def _reached(row: Row, of: int) -> Estimate:
    events = by_run(row, "events")
    hits = [r * n for r, n in zip(by_run(row, "reach"), events, strict=True)]
    return clustered(f"{_step(row)}, {sum(events):.0f} events", hits, events, of)


def draw(rows: list[Row]) -> Any:
    """Measured, against the model of `cast.sizing`."""
    figure, axes = panels(
        "CCC11: fanout 4, 5 hops, nothing lost",
        ("members", "events that reach all of them (%)"),
        ("members", "members that an event reaches (%, mean)"),
    )
    for i, step in enumerate((True, False)):
        name = "in step" if step else "out of step"
        mine = [row for row in rows if _printed(row) and row["in_step"] == step]
        x = [row["members"] for row in mine]
        error_bars(axes[0], x, [_reached(row, 1) for row in mine], name, i, 100)
        error_bars(axes[1], x, [exact("", 1 - row["gossip_missed"]) for row in mine], name, i, 100)
        models = [PrCast(n, FANOUT, TERMINATION, 0.0, "rounds", step) for n in x]
        for one, y in ((axes[0], [m.reach() for m in models]), (axes[1], [m.coverage()[-1] for m in models])):
            one.plot(x, [100 * v for v in y], "--", color=COLOURS[i], linewidth=1, label=f"{name}, model")
    axes[0].set_ylim(0, 103)
    axes[0].legend(fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw)
