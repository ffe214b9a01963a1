"""CCC11 Figure 5: latency, lost events and the success of recovery against the load, with and without the causal layer.

25 members, all of them coordinators, each publishing with probability p a round. At the right edge that is 12.5 events
a round, far more than messages of 20 events can carry for 5 rounds. An event is lost at a member that did not receive
it, or could not deliver it without violating optimistic causal order (with gossip alone: if it arrived after something
that depends on it).

Whether recovery lowers latency is tested at the highest load, with more seeds, in three settings: over the uplink
(`setting` is `top`), with a layer that skips a gap at once or waits as long as the others do for a reply (variant
`patient`); and without an uplink (`free`).

Ours also asks for what only digests show, and again. `printed` is recovery as in Algorithm 5, at the highest load: a
missing event is asked for once, the buffer is first in, first out. A message of 20 events takes the youngest; if the
oldest went first, gossip alone would lose half as much.

Live (`--live`), and simulated with the same settings beside it, there is no uplink limit.
"""

from __future__ import annotations

from typing import Any

from whence.lab.paper.ccc11.evaluation import (
    FAILED,
    LEAST,
    PATIENT,
    POINT,
    TERMINATION,
    UPLINK,
    VARIANTS,
    attempts,
    success,
    success_bars,
    tried,
    tuned_runs,
)
from whence.lab.paper.ccc11.live import WHERE, Size, beside, over_runs
from whence.lab.paper.ccc11.theorems import buffer_probability
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds
from whence.lab.paper.plots import COLOURS, curves, from_zero, losses, panels
from whence.lab.stats import Estimate, clustered, difference, mean, minus, quotient, ratio

MEMBERS = 25
LOADS, QUICK = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.3, 0.5)
FREE_MS = 250.0
"""The round of the runs without an uplink, as live (`live`)."""
COMPARED = 12
"""Seeds of the paired comparisons of latency: differences of a hundredth of a round matter there."""
NAMES = {
    "gossip": "gossip alone",
    "causal": "causal layer, no recovery",
    "R1": "causal layer, R1 recovery",
    "R4": "causal layer, R4 recovery",
}
ASKING = ("R1", "R4")


def measure(options: RunOptions) -> list[Row]:
    """Rounds are tuned for each load with R1; all variants use the same rounds."""
    loads = QUICK if options.quick else LOADS
    rounds, seeds, many = (24, 3, 3) if options.quick else (40, 6, COMPARED)
    base = {"members": MEMBERS, "coordinators": MEMBERS, "rounds": rounds}
    keep = ("variant", "load", "round_ms")
    first = tuned_runs(options, [{**base, "load": MEMBERS * p, "variant": "R1"} for p in loads], seeds, keep)
    settings = [
        {**base, "load": row["load"], "variant": v, "round_ms": row["round_ms"], "uplink": UPLINK}
        for v in VARIANTS
        if v != "R1"
        for row in first
    ]
    highest = settings[-1]
    free = {**base, "load": highest["load"], "round_ms": FREE_MS, "loss": FAILED}
    causal = [v for v in VARIANTS if v != "gossip"]
    parts = {
        "uplink": first + over_seeds(options, settings, seeds, keep, POINT),
        "top": over_seeds(options, [{**highest, "variant": v} for v in (*causal, PATIENT)], many, keep, POINT),
        "printed": over_seeds(options, [{**highest, "variant": v, "once": True} for v in ASKING], many, keep, POINT),
        "free": over_seeds(options, [{**free, "variant": v} for v in causal], many, keep, POINT),
    }
    found = [{"setting": name, **row} for name, rows in parts.items() for row in rows]
    return [{**row, "p": row["load"] / MEMBERS, **_predicted(row)} for row in found]


def _predicted(row: Row) -> Row:
    """The predicted success of recovery: the member asked (R1) or one of four (R4) still holds the event (Theorem 5.1),
    and neither request nor reply is lost."""
    if row["variant"] not in ASKING:
        return {}
    held = buffer_probability([row["load"]], 4 * TERMINATION)
    one = (1 - row["failed"]) ** 2 * held
    return {"predicted": 1 - (1 - one * (1 - row["gossip_missed"])) ** 4 if row["variant"] == "R4" else one}


def statistics(rows: list[Row]) -> Statistics:
    """Comparisons are paired: all variants have the same seeds."""
    over = [row for row in rows if row["setting"] == "uplink"]
    by = {v: sorted((r for r in over if r["variant"] == v), key=lambda r: float(r["p"])) for v in VARIANTS}
    top, free = ({row["variant"]: row for row in rows if row["setting"] == setting} for setting in ("top", "free"))
    busy = [i for i, row in enumerate(by["gossip"]) if row["lost_ordered"] > 0.001]
    printed = [row for row in rows if row["setting"] == "printed"]
    found = {
        "printed-recovered": [never(f"{row['variant']}, {_at(row)}", row, len(printed)) for row in printed],
        "printed-success": [
            minus(f"{row['variant']}, {tried(row)}", success(row, "", len(printed)), row["predicted"])
            for row in printed
        ],
        "causal-halves": [
            ratio(_at(by["gossip"][i]), _lost(by["causal"][i]), _lost(by["gossip"][i]), len(busy)) for i in busy
        ],
        "most-at-high": [
            difference(f"{_at(by['gossip'][-1])} less {_at(by['gossip'][0])}", _saved(by, -1), _saved(by, 0))
        ],
        "recovered": [never(f"{v}, {_at(row)}", row, 2 * len(by[v])) for v in ASKING for row in by[v]],
        "repeated": [mean(v, by_run(by[v][-1], "repeated"), 2) for v in ("gossip", "causal")],
        "slow": [ratio("R1", _late(by["R1"][-1]), _late(by["R1"][0]))],
        "slow-ms": [ratio("R1", by_run(by["R1"][-1], "latency_ms"), by_run(by["R1"][0], "latency_ms"))],
        "overhead": [
            ratio(_at(a), _late(a), _late(b), len(by["causal"]))
            for a, b in zip(by["causal"], by["gossip"], strict=True)
        ],
        "overhead-asking": [
            ratio(f"{v}, {_at(a)}", _late(a), _late(b), 2 * len(by[v]))
            for v in ASKING
            for a, b in zip(by[v], by["causal"], strict=True)
        ],
        "attempts": [difference(v, by_run(by[v][-1], "asked"), by_run(by[v][0], "asked"), 2) for v in ASKING],
        "low-R4": [minus(f"{_at(by['R4'][0])}, {tried(by['R4'][0])}", success(by["R4"][0]), success(by["R4"][-1]))],
    }
    for v in ASKING:
        some = [row for row in by[v] if attempts(row) >= LEAST]
        found[f"off-{v}"] = off = [
            minus(f"{_at(row)}, {tried(row)}", success(row, "", len(some)), row["predicted"]) for row in some
        ]
        found[f"closer-{v}"] = [minus(f"{len(off)} loads", distance(off[-1]), distance(off[0]))] if off[1:] else []
        found[f"faster-uplink-{v}"] = [_faster(top[v], top["causal"])]
        found[f"faster-patient-{v}"] = [_faster(top[v], top[PATIENT])]
        found[f"faster-free-{v}"] = [_faster(free[v], free["causal"])]
    return found


def distance(off: Estimate) -> Estimate:
    """How far it is from 0."""
    ends = sorted((abs(off.low), abs(off.high)))
    return Estimate(off.at, abs(off.value), 0.0 if off.low <= 0 <= off.high else ends[0], ends[1])


def never(at: str, row: Row, of: int, key: str = "lost_ordered") -> Estimate:
    """The share of deliveries that never happened, or out of order."""
    pairs = by_run(row, "pairs")
    return clustered(at, [lost * n for lost, n in zip(by_run(row, key), pairs, strict=True)], pairs, of)


def _saved(by: dict[str, list[Row]], at: int) -> list[float]:
    """Events that the causal layer saves: lost with gossip alone less lost with it."""
    return [a - b for a, b in zip(_lost(by["gossip"][at]), _lost(by["causal"][at]), strict=True)]


def _faster(a: Row, b: Row) -> Estimate:
    where = f"{_at(a)}: {a['latency_rounds']:.3f} and {b['latency_rounds']:.3f} rounds, {a['seeds']} seeds"
    return difference(where, _late(a), _late(b))


def _late(row: Row) -> list[float]:
    return by_run(row, "latency_rounds")


def _lost(row: Row) -> list[float]:
    return by_run(row, "lost_ordered")


def _at(row: Row) -> str:
    return f"p = {row['p']:g}"


P = "p, events of each member a round"


def _frame(title: str, x: str, unit: str, *more: str) -> tuple[Any, list[Any]]:
    """Plots of the latency in this unit, of the loss, and of more, against the load."""
    ys = (f"latency of an event ({unit}, mean)", "lost (ordered) events (%)", *more)
    figure, axes = panels(title, *((x, y) for y in ys))
    return figure, axes


def _finish(axes: list[Any]) -> None:
    from_zero(axes[0])
    losses(axes[1])
    axes[0].legend(fontsize=8)


def draw(rows: list[Row]) -> Any:
    """Latency, loss, success of recovery."""
    title = "CCC11 Figure 5: 25 members, all coordinators; fanout 4, termination 5, buffer by Theorem 5.1"
    figure, axes = _frame(title, P, "ms", f"recoveries that succeed (%; {LEAST} or more)")
    over = sorted((row for row in rows if row["setting"] == "uplink"), key=lambda row: float(row["p"]))
    curves(axes[:2], over, "p", ("latency_ms", "lost_ordered"), "variant", NAMES)
    for i, variant in enumerate(NAMES):
        if variant in ASKING:
            mine = [row for row in over if row["variant"] == variant]
            success_bars(axes[2], mine, "p", i, NAMES[variant])
            x, y = [row["p"] for row in mine], [100 * row["predicted"] for row in mine]
            axes[2].plot(x, y, "--", linewidth=1, color=COLOURS[i], alpha=0.7, label=f"{variant} predicted")
    _finish(axes)
    axes[2].legend(fontsize=8, loc="lower left")
    return figure


STUDY = Study(measure, statistics, draw)

# -- on sockets


def measure_live(options: RunOptions) -> list[Row]:
    """Several runs of each point, live and simulated."""
    quick = options.quick
    size = Size(members=8, processes=2, rounds=12) if quick else Size(members=25, processes=5, rounds=20, round_ms=500)
    loads = [size.members * p for p in ((0.1, 0.5) if quick else (0.1, 0.3, 0.5))]
    runs = 2 if quick else 5
    live = over_runs(options, size, loads, list(VARIANTS), runs)
    base: Row = {"members": size.members, "coordinators": size.members, "rounds": size.rounds}
    base |= {"round_ms": size.round_ms, "loss": FAILED}
    settings = [{**base, "variant": v, "load": load} for v in VARIANTS for load in loads]
    simulated = over_seeds(options, settings, runs, ("variant", "load", "round_ms", "members"), POINT)
    both = zip(WHERE, (live, simulated), strict=True)
    return [{"where": where, **row, "p": row["load"] / size.members} for where, rows in both for row in rows]


def statistics_live(rows: list[Row]) -> Statistics:
    """Live and simulated runs are independent of each other."""
    by = {(w, v): [r for r in rows if r["where"] == w and r["variant"] == v] for w in WHERE for v in VARIANTS}
    pairs = [(a, b) for v in VARIANTS for a, b in zip(by["live", v], by["simulated", v], strict=True)]
    last, first = {k: mine[-1] for k, mine in by.items()}, {k: mine[0] for k, mine in by.items()}
    return {
        "live-gossip": [difference(w, _lost(last[w, "gossip"]), _lost(first[w, "gossip"]), 2) for w in WHERE],
        "live-halves": [ratio(w, _lost(last[w, "causal"]), _lost(last[w, "gossip"]), 2) for w in WHERE],
        "live-recovered": [
            never(f"{r['where']}, {r['variant']}, p = {r['p']:g}", r, 12) for r in rows if r["variant"] in ASKING
        ],
        "live-rounds": [quotient(f"{a['variant']}, p = {a['p']:g}", _late(a), _late(b), len(pairs)) for a, b in pairs],
        "live-lost": [
            quotient(
                f"p = {last['live', 'gossip']['p']:g}",
                _lost(last["live", "gossip"]),
                _lost(last["simulated", "gossip"]),
            )
        ],
    }


def draw_live(rows: list[Row]) -> Any:
    """Latency and loss, live (lines) and simulated (dots)."""
    size = f"{rows[0]['members']:g} members on loopback (lines, {rows[0]['seeds']} runs), and simulated (dotted)"
    figure, axes = _frame(f"CCC11 Figure 5 live: {size}", P, "rounds")
    beside(axes, rows, "p", ("latency_rounds", "lost_ordered"), "variant", NAMES)
    _finish(axes)
    return figure


LIVE = Study(
    measure_live,
    statistics_live,
    draw_live,
    "Differences: live, a round begins when its process is scheduled, messages cost CPU time (shared by all on one "
    "machine), TCP retransmits, and 0.2 % of gossip is dropped on purpose as failed connections; the network takes "
    "microseconds, not 1.5 ms.",
)
