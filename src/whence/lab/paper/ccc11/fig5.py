"""CCC11 Figure 5: latency, lost events and the success of recovery against the load, with and without the causal layer.

25 members, all of them coordinators, each publishing with probability p a round. At the right edge that is 12.5 events
a round, far more than messages of 20 events can carry for 5 rounds. An event is lost at a member that did not receive
it, or could not deliver it without violating optimistic causal order (with gossip alone: if it arrived after something
that depends on it).

Whether recovery lowers latency is tested at the highest load, with more seeds, in three settings: over the uplink
(`setting` is `top`), with a layer that skips a gap at once or waits as long as the others do for a reply (variant
`patient`); and without an uplink (`free`).

With `--as-published` R1 and R4 run as CCC11 prints them, and beside them as ours (`setting` is `ours`), with the same
rounds and seeds.
"""

from __future__ import annotations

from typing import Any

from whence.core.order.sizing import buffer_probability
from whence.lab.paper.ccc11.evaluation import FAILED, PATIENT, TERMINATION, UPLINK, VARIANTS
from whence.lab.paper.ccc11.seeds import (
    COLOURS,
    LEAST,
    bars,
    by_run,
    from_zero,
    over_seeds,
    success,
    success_bars,
    total,
    tuned_runs,
)
from whence.lab.paper.frame import Context, Outcome, Row, panels
from whence.lab.stats import Estimate, difference, means, minus, rare, ratio

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


def measure(context: Context) -> list[Row]:
    """Rounds are tuned for each load with R1; all variants use the same rounds."""
    loads = QUICK if context.quick else LOADS
    rounds, seeds, many = (24, 3, 3) if context.quick else (40, 6, COMPARED)
    base = {"members": MEMBERS, "coordinators": MEMBERS, "rounds": rounds, **context.published()}
    keep = ("variant", "load", "round_ms")
    first = tuned_runs(context, [{**base, "load": MEMBERS * p, "variant": "R1"} for p in loads], seeds, keep)
    settings = [
        {**base, "load": row["load"], "variant": v, "round_ms": row["round_ms"], "uplink": UPLINK}
        for v in VARIANTS
        if v != "R1"
        for row in first
    ]
    highest = settings[-1]
    free = {**base, "load": highest["load"], "round_ms": FREE_MS, "loss": FAILED}
    causal = [v for v in VARIANTS if v != "gossip"]
    here = [{**s, "once": False, "aging": False, "variant": v} for v in ASKING for s in settings[: len(loads)]]
    parts = {
        "uplink": first + over_seeds(context, settings, seeds, keep),
        "top": over_seeds(context, [{**highest, "variant": v} for v in (*causal, PATIENT)], many, keep),
        "free": over_seeds(context, [{**free, "variant": v} for v in causal], many, keep),
        "ours": over_seeds(context, here, seeds, keep) if context.as_published else [],
    }
    found = [{"setting": name, **row} for name, rows in parts.items() for row in rows]
    return [{**row, "p": row["load"] / MEMBERS, **_predicted(row)} for row in found]


def outcome(rows: list[Row]) -> Outcome:
    """What the paper says of the figure."""
    return Outcome(rows, statistics(rows), draw(rows))


def _predicted(row: Row) -> Row:
    """The predicted success of recovery: the member asked (R1) or one of four (R4) still holds the event (Theorem 5.1),
    and neither request nor reply is lost."""
    if row["variant"] not in ASKING:
        return {}
    held = buffer_probability([row["load"]], 4 * TERMINATION)
    one = (1 - row["failed"]) ** 2 * held
    return {"predicted": 1 - (1 - one * (1 - row["gossip_missed"])) ** 4 if row["variant"] == "R4" else one}


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """Comparisons are paired: all variants have the same seeds."""
    over = [row for row in rows if row["setting"] == "uplink"]
    by = {v: sorted((r for r in over if r["variant"] == v), key=lambda r: float(r["p"])) for v in VARIANTS}
    top, free = ({row["variant"]: row for row in rows if row["setting"] == setting} for setting in ("top", "free"))
    busy = [i for i, row in enumerate(by["gossip"]) if row["lost_ordered"] > 0.001]
    found = {
        "causal-halves": [
            ratio(_at(by["gossip"][i]), _lost(by["causal"][i]), _lost(by["gossip"][i]), len(busy)) for i in busy
        ],
        "most-at-high": [
            difference(f"{_at(by['gossip'][-1])} less {_at(by['gossip'][0])}", _saved(by, -1), _saved(by, 0))
        ],
        "recovered": [
            rare(f"{v}, {_at(row)}", _lost(row), by_run(row, "pairs"), 2 * len(by[v])) for v in ASKING for row in by[v]
        ],
        "slow": [ratio("R1", _late(by["R1"][-1]), _late(by["R1"][0]))],
        "overhead": means(
            {
                _at(a): [x / y for x, y in zip(_late(a), _late(b), strict=True)]
                for a, b in zip(by["R1"], by["gossip"], strict=True)
                if a["p"] < 0.3
            }
        ),
        "attempts": [difference(v, by_run(by[v][-1], "asked"), by_run(by[v][0], "asked"), 2) for v in ASKING],
        "low-R4": [minus(f"{_at(by['R4'][0])}, {_tried(by['R4'][0])}", success(by["R4"][0]), success(by["R4"][-1]))],
    }
    for v in ASKING:
        last = by[v][-1]
        found[f"off-{v}"] = [minus(f"{_at(last)}, {_tried(last)}", success(last), last["predicted"])]
        found[f"faster-uplink-{v}"] = [_faster(top[v], top["causal"])]
        found[f"faster-patient-{v}"] = [_faster(top[v], top[PATIENT])]
        found[f"faster-free-{v}"] = [_faster(free[v], free["causal"])]
    return found


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


def _tried(row: Row) -> str:
    return f"{total(row, 'asked') - total(row, 'overtaken'):.0f} attempts"


def draw(rows: list[Row]) -> Any:
    """Latency, loss, success of recovery."""
    figure, axes = panels(
        "CCC11 Figure 5: 25 members, all coordinators; fanout 4, termination 5, buffer by Theorem 5.1",
        ("p, events of each member a round", "latency of an event (ms, mean)"),
        ("p, events of each member a round", "lost (ordered) events (%)"),
        ("p, events of each member a round", f"recoveries that succeed (%; {LEAST} or more)"),
    )
    over, ours = (
        sorted((row for row in rows if row["setting"] == setting), key=lambda row: float(row["p"]))
        for setting in ("uplink", "ours")
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        mine = [row for row in over if row["variant"] == variant]
        beside = [row for row in ours if row["variant"] == variant]
        if beside:
            name = f"{variant} recovery as printed"
            bars(axes[0], beside, "p", "latency_ms", i, f"{variant} recovery, ours", line=":")
            bars(axes[1], beside, "p", "lost_ordered", i, "", 100, ":")
            success_bars(axes[2], beside, "p", i, f"{variant}, ours", ":")
        bars(axes[0], mine, "p", "latency_ms", i, name)
        bars(axes[1], mine, "p", "lost_ordered", i, name, 100)
        if variant in ASKING:
            success_bars(axes[2], mine, "p", i, name)
            x, y = [row["p"] for row in mine], [100 * row["predicted"] for row in mine]
            axes[2].plot(x, y, "--", linewidth=1, color=COLOURS[i], alpha=0.7, label=f"{variant} predicted")
    from_zero(axes[0])
    axes[1].set_yscale("symlog", linthresh=0.01)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    axes[2].legend(fontsize=8, loc="lower left")
    return figure
