"""CCC11 Figure 5: latency, lost events and the success of recovery against the load, with and without the causal layer.

25 members, all of them coordinators, each publishing with probability p a round. At the right edge that is 12.5 events
a round, far more than messages of 20 events can carry for 5 rounds. An event is lost at a member that did not receive
it, or could not deliver it without violating optimistic causal order (with gossip alone: if it arrived after something
that depends on it).
"""

from __future__ import annotations

from typing import Any

from whence.order.sizing import buffer_probability
from whence.paper.ccc11.evaluation import FAILED, PATIENT, TERMINATION, UPLINK, VARIANTS
from whence.paper.ccc11.live import BUSY, ROUND_MS, Live, measure
from whence.paper.ccc11.seeds import (
    COLOURS,
    LEAST,
    bars,
    from_zero,
    over_seeds,
    rate,
    rounded,
    success_bars,
    tuned_runs,
)
from whence.paper.frame import Claim, Context, Outcome, Row, panels

MEMBERS = 25
LOADS, QUICK = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.3, 0.5)
WHERE = ("live", "simulated")
NAMES = {
    "gossip": "gossip alone",
    "causal": "causal layer, no recovery",
    "R1": "causal layer, R1 recovery",
    "R4": "causal layer, R4 recovery",
}


def run(context: Context) -> Outcome:
    """Rounds are tuned for each load with R1; all variants use the same rounds."""
    if context.live:
        return beside(context)
    loads = QUICK if context.quick else LOADS
    rounds, seeds = (24, 2) if context.quick else (80, 4)
    base = {"members": MEMBERS, "coordinators": MEMBERS, "rounds": rounds}
    keep = ("variant", "load", "round_ms")
    first = tuned_runs(context, [{**base, "load": MEMBERS * p, "variant": "R1"} for p in loads], seeds, keep)
    settings = [
        {**base, "load": row["load"], "variant": v, "round_ms": row["round_ms"], "uplink": UPLINK}
        for v in VARIANTS
        if v != "R1"
        for row in first
    ]
    settings.append({**settings[-1], "variant": PATIENT})  # at the highest load
    others = over_seeds(context, settings, seeds, keep)
    found = sorted(others + first, key=lambda row: [*VARIANTS, PATIENT].index(row["variant"]))
    rows = [{**row, "p": row["load"] / MEMBERS, **success(row)} for row in found]
    return Outcome(rows, claims(rows), draw(rows))


def success(row: Row) -> Row:
    """The success rate of recovery, and the prediction: the member asked (R1) or one of four (R4) still holds the event
    (Theorem 5.1), and neither request nor reply is lost."""
    if row["variant"] not in ("R1", "R4"):
        return {"success": None, "success_low": None, "success_high": None, "predicted_success": None}
    held = buffer_probability([row["load"]], 4 * TERMINATION)
    one = (1 - row["failed"]) ** 2 * held
    if row["variant"] == "R4":
        one = 1 - (1 - one * (1 - row["gossip_missed"])) ** 4
    return {**rate(row), "predicted_success": one}


NO_FASTER = (
    "Without recovery our members skip a gap after time_to_terminate, exactly when with recovery they send a request. "
    "So recovery can hardly be faster. The next claim compares with a variant that waits as long and requests nothing."
)


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of the figure."""
    by = {v: [row for row in rows if row["variant"] == v] for v in VARIANTS}
    lost = {v: [row["lost_ordered"] for row in mine] for v, mine in by.items()}
    loads = [row["p"] for row in by["R1"]]
    latency = {v: [row["latency_rounds"] for row in mine] for v, mine in by.items()}
    in_ms = {v: rounded([row["latency_ms"] for row in mine]) for v, mine in by.items()}
    errors = {v: rounded([row["lost_ordered_error"] for row in mine]) for v, mine in by.items()}
    busy = [i for i, g in enumerate(lost["gossip"]) if g > 0.001]
    shown: dict[str, Any] = {"p": loads, **{v: rounded(x) for v, x in lost.items()}, "standard_error": errors}
    delay: dict[str, Any] = {"p": loads, "rounds": {v: rounded(x) for v, x in latency.items()}, "ms": in_ms}
    growth = latency["R1"][-1] / latency["R1"][0]
    return [
        Claim(
            "the causal layer greatly reduces lost (ordered) events (at most half of gossip's, where that loses any)",
            bool(busy) and all(lost["causal"][i] <= lost["gossip"][i] / 2 for i in busy),
            shown,
        ),
        Claim(
            "with recovery almost all events are delivered in order (at least 99 %, at every load)",
            all(x < 0.01 for v in ("R1", "R4") for x in lost[v]),
            shown,
        ),
        Claim(
            "latency grows slowly with the load (R1, in rounds: by less than half over all loads)",
            growth < 1.5,
            {**delay, "growth": growth, "growth_of_load": loads[-1] / loads[0]},
        ),
        Claim(
            "the causal layer adds a small overhead to gossip's latency (R1: less than half, below p = 0.3)",
            all(a < 1.5 * b for a, b, p in zip(latency["R1"], latency["gossip"], loads, strict=True) if p < 0.3),
            delay,
        ),
        Claim(
            "at the highest load recovery lowers latency (R1 and R4 below the causal layer without recovery)",
            latency["R1"][-1] < latency["causal"][-1] and latency["R4"][-1] < latency["causal"][-1],
            {**delay, "why_not": NO_FASTER},
        ),
        *_patient(rows),
        *(_converges(v, by[v]) for v in ("R1", "R4")),
        Claim(
            "the number of recovery attempts increases with the load",
            all(by[v][-1]["asked"] > by[v][0]["asked"] for v in ("R1", "R4")),
            {v: rounded([row["asked"] for row in by[v]]) for v in ("R1", "R4")},
        ),
    ]


def _patient(rows: list[Row]) -> list[Claim]:
    """Recovery compared with waiting as long without a request."""
    waits = [row for row in rows if row["variant"] == PATIENT]
    if not waits:
        return []
    top = {row["variant"]: row for row in rows if row["load"] == waits[0]["load"]}
    return [
        Claim(
            "at the highest load recovery lowers latency, compared with a causal layer that waits as long for what it "
            "misses (time_to_terminate + time_to_recover) and asks nobody",
            all(top[v]["latency_rounds"] < waits[0]["latency_rounds"] for v in ("R1", "R4")),
            {v: {key: row[key] for key in PATIENT_KEYS} for v, row in top.items()},
        )
    ]


PATIENT_KEYS = ("latency_rounds", "latency_rounds_error", "latency_p99_ms", "lost_ordered")


def _converges(variant: str, rows: list[Row]) -> Claim:
    measured = [row["success"] for row in rows]
    predicted = [row["predicted_success"] for row in rows]
    off = [None if m is None else abs(m - p) for m, p in zip(measured, predicted, strict=True)]
    known = [o for o in off if o is not None]
    return Claim(
        f"{variant}: the success rate of recovery converges to the predicted one as load grows (0.05 at the end)",
        bool(known) and off[-1] is not None and off[-1] < 0.05 and off[-1] <= max(known),
        {
            "p": [row["p"] for row in rows],
            "measured": measured,
            "predicted": rounded(predicted),
            "attempts": rounded([row["asked"] * row["seeds"] for row in rows]),
        },
    )


def draw(rows: list[Row]) -> Any:
    """Latency, loss, success of recovery."""
    figure, axes = panels(
        "CCC11 Figure 5: 25 members, all coordinators; fanout 4, termination 5, buffer by Theorem 5.1",
        ("p, events of each member a round", "latency of an event (ms, mean)"),
        ("p, events of each member a round", "lost (ordered) events (%)"),
        ("p, events of each member a round", f"recoveries that succeed (%; {LEAST} or more)"),
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        mine = [row for row in rows if row["variant"] == variant]
        bars(axes[0], mine, "p", "latency_ms", i, name)
        bars(axes[1], mine, "p", "lost_ordered", i, name, 100)
        if variant in ("R1", "R4"):
            success_bars(axes[2], mine, "p", i, name)
            x, y = [row["p"] for row in mine], [100 * row["predicted_success"] for row in mine]
            axes[2].plot(x, y, "--", linewidth=1, color=COLOURS[i], alpha=0.7, label=f"{variant} predicted")
    from_zero(axes[0])
    axes[1].set_yscale("symlog", linthresh=0.01)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    axes[2].legend(fontsize=8, loc="lower left")
    return figure


# -- on real sockets


def beside(context: Context) -> Outcome:
    """Members on loopback, beside the simulator with the same settings; neither has an uplink limit."""
    size = Live(members=8, processes=2, rounds=24) if context.quick else Live(members=25, processes=5, rounds=60)
    loads = [size.members * p for p in ((0.1, 0.5) if context.quick else (0.1, 0.3, 0.5))]
    live = [{"where": "live", **row} for row in measure(context, size, loads, list(VARIANTS))]
    base: Row = {"members": size.members, "coordinators": size.members, "rounds": size.rounds}
    base |= {"round_ms": ROUND_MS, "loss": FAILED}
    settings = [{**base, "variant": v, "load": load} for v in VARIANTS for load in loads]
    found = over_seeds(context, settings, 2 if context.quick else 4, ("variant", "load", "round_ms"))
    rows = [{**row, "p": row["load"] / size.members} for row in live + [{"where": "simulated", **row} for row in found]]
    note = (
        f"{size.members} members in {size.processes} processes. Differences: live, a round begins when its process is "
        "scheduled, messages cost CPU time (shared by all on one machine), TCP retransmits, and 0.2 % of gossip is "
        "dropped on purpose as failed connections; the network takes microseconds, not 1.5 ms."
    )
    return Outcome(rows, live_claims(rows), draw_live(rows, size.members), note)


def live_claims(rows: list[Row]) -> list[Claim]:
    """The same shape as simulated."""
    by = {(w, v): [r for r in rows if r["where"] == w and r["variant"] == v] for w in WHERE for v in VARIANTS}
    lost = {key: [row["lost_ordered"] for row in mine] for key, mine in by.items()}
    late = {key: [row["latency_rounds"] for row in mine] for key, mine in by.items()}
    numbers = {w: {v: rounded(lost[w, v]) for v in VARIANTS} for w in WHERE}
    delay = {w: {v: rounded(late[w, v]) for v in VARIANTS} for w in WHERE}
    ratios = [a / b for v in VARIANTS for a, b in zip(late["live", v], late["simulated", v], strict=True)]
    top = {w: lost[w, "gossip"][-1] for w in WHERE}
    return [
        Claim(
            "live as simulated: gossip alone loses (ordered) events, more with more load",
            all(lost[w, "gossip"][-1] > lost[w, "gossip"][0] for w in WHERE),
            numbers,
        ),
        Claim(
            "live as simulated: the causal layer loses at most half of that at the highest load",
            all(lost[w, "causal"][-1] <= top[w] / 2 for w in WHERE),
            numbers,
        ),
        Claim(
            "live as simulated: with recovery at least 99 % are delivered in order",
            all(x < 0.01 for w in WHERE for v in ("R1", "R4") for x in lost[w, v]),
            numbers,
        ),
        Claim(
            "latency in rounds is the simulator's within 30 %",
            all(0.7 <= r <= 1.3 for r in ratios),
            {
                "rounds": delay,
                "live_by_simulated": rounded(ratios),
                "overslept_rounds": {v: rounded([r["overslept_rounds"] for r in by["live", v]]) for v in VARIANTS},
                "why_not": BUSY,
            },
        ),
        Claim(
            "gossip's losses at the highest load are the simulator's within a third",
            abs(top["live"] / top["simulated"] - 1) < 1 / 3 if top["simulated"] else False,
            {"lost": top},
        ),
    ]


def draw_live(rows: list[Row], members: int) -> Any:
    """Latency and loss, live (lines) and simulated (dots)."""
    figure, axes = panels(
        f"CCC11 Figure 5 live: {members} members on loopback (lines), and simulated (dotted)",
        ("p, events of each member a round", "latency of an event (rounds, mean)"),
        ("p, events of each member a round", "lost (ordered) events (%)"),
    )
    for i, (variant, name) in enumerate(NAMES.items()):
        for where, line in zip(WHERE, ("-", ":"), strict=True):
            mine = [row for row in rows if row["variant"] == variant and row["where"] == where]
            label = name if where == "live" else "_"  # matplotlib lists no label that begins with _
            bars(axes[0], mine, "p", "latency_rounds", i, label, 1.0, line)
            bars(axes[1], mine, "p", "lost_ordered", i, label, 100, line)
    from_zero(axes[0])
    axes[1].set_yscale("symlog", linthresh=0.01)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    return figure
