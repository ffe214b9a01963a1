"""CCC11 section 4.4: who wants a ticket gets one w.h.p. while p_f < (1 - alpha) / 2; and what the ring costs.

`n` tickets, of which a share `alpha` is wanted all the time: by `alpha n` places, in each of which a process
coordinates until it crashes (in any ring round with probability `p_f`) and the next one asks for a ticket at once. A
join succeeds if it owns a ticket within `PATIENCE` ring rounds; only processes that live so long are asked.

The paper counts tickets: those of the crashed, at most `2 p_f n` w.h.p., are blocked while they are reclaimed, the
others are free. It does not count quorums: an exclusion needs k+1 of 2k+1 neighbours alive, so the ring also needs
`p_f` small against `k / (2k+1)` per reclaiming time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import e
from typing import Any

import msgspec

from whence import ports
from whence.clock import MemberId, address_of
from whence.config import MS, Config
from whence.errors import UsageError
from whence.member import Member
from whence.paper.ccc11.seeds import COLOURS, MARKS, over_seeds, panels, rounded
from whence.paper.ccc11.theorems import binomial_above
from whence.paper.frame import Claim, Context, Outcome, Row
from whence.sim.actions import Coordinate, Crash
from whence.sim.meter import wilson
from whence.sim.run import run as simulate
from whence.sim.scenario import parse
from whence.sim.settings import to_toml

ROUND_MS = 200
"""Of the ring; gossip has the same."""
PATIENCE = 16
"""Ring rounds in which a join must succeed. One exclusion takes about 3, waiting for its tickets `dist + 1` more."""
RING_K = 2
ALPHAS = (0.25, 0.5, 0.75)
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5)
"""p_f, as shares of (1 - alpha) / 2."""
QUICK = (0.02, 0.1, 1.5)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    tickets: int
    alpha: float
    failure: float
    """p_f: per coordinator and ring round."""
    rounds: int
    seed: int = 0


class _Watched(Member):
    """A member that notes when it became an owner, and counts its ring's messages."""

    owned: dict[str, int]
    counts: dict[str, int]

    def handle(self, event: ports.Input, now: int) -> list[ports.Output]:
        outs = super().handle(event, now)
        for out in outs:
            if type(out) is ports.Ticket and out.change == "owner":
                self.owned.setdefault(address_of(self.me), now)
            elif type(out) is ports.Send and type(out.message).__name__ in ("Alive", "Poll"):
                name = type(out.message).__name__
                self.counts[name] = self.counts.get(name, 0) + 1
        return outs


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner: joins tried and succeeded."""
    s = msgspec.convert(dict(setting), Setting)
    faults, wanted = lives(s)
    owned: dict[str, int] = {}
    counts: dict[str, int] = {}

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
        member = _Watched(me, config, rng, checkpoint)
        member.owned, member.counts = owned, counts
        return member

    first = round(s.alpha * s.tickets)
    members = 1 + max((int(a.who[1:]) for a in faults), default=first)
    table = {
        "members": max(first, members),
        "round": f"{ROUND_MS}ms",
        "duration": f"{s.rounds}r",
        "settle": "1r",
        "operator": "100000r",
        "network": {"latency": "normal", "mean": "2ms", "sd": "500us"},
        "cluster": {"tickets": s.tickets, "coordinators": first, "ring_k": RING_K, "fanout": 3, "termination": 5},
    }
    loaded = msgspec.structs.replace(parse(to_toml(table), "availability.toml"), faults=tuple(faults))
    outcome = simulate(loaded, s.seed, make=make)
    if outcome.violation is not None and outcome.violation.kind not in ("unsettled", "liveness"):
        raise UsageError(f"{s}: {outcome.violation}")
    patience = PATIENCE * ROUND_MS * MS
    joined = sum(1 for who, at in wanted.items() if who in owned and owned[who] - at <= patience)
    return {
        "joins": len(wanted),
        "joined": joined,
        "crashes": sum(isinstance(a, Crash) for a in faults),
        "alive_per_round": counts.get("Alive", 0) / s.rounds / max(1, first),
    }


def lives(s: Setting) -> tuple[list[Crash | Coordinate], dict[str, int]]:
    """Who crashes and who follows when; and the joins that are judged. n0, the founder, lives."""
    rng = random.Random(f"{s.seed}/lives")
    places = round(s.alpha * s.tickets)
    start = 12 + 4 * places.bit_length()
    round_ns = ROUND_MS * MS
    actions: list[Crash | Coordinate] = []
    judged: dict[str, int] = {}
    following = places
    for place in range(1, places):
        who, begun, at = place, 0.0, start + rng.random()
        while True:
            while rng.random() >= s.failure and at < s.rounds:
                at += 1
            if begun and min(at, s.rounds) - begun >= PATIENCE:
                judged[f"n{who}"] = round(begun * round_ns)
            if at >= s.rounds - 1:
                break
            actions.append(Crash(at=round(at * round_ns), who=f"n{who}"))
            who, begun, following = following, at, following + 1
            actions.append(Coordinate(at=round(at * round_ns), who=f"n{who}"))
            at += 1
    return sorted(actions, key=lambda a: a.at), judged


def model(n: int, alpha: float, failure: float, rounds: int, seed: int) -> tuple[int, int]:
    """Section 4.4's own model: a failed coordinator's ticket is blocked for 1 / alpha rounds, and nothing else is in
    the way. (joins tried, joins that found a free ticket)."""
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
    """Joins under crashes for several alpha and p_f."""
    tickets, rounds, seeds = (20, 120, 2) if context.quick else (20, 300, 6)
    alphas = (0.5,) if context.quick else ALPHAS
    settings = [
        {"tickets": tickets, "alpha": a, "failure": f * (1 - a) / 2, "rounds": rounds}
        for a in alphas
        for f in (QUICK if context.quick else SHARES)
    ]
    rows = []
    for row in over_seeds(context, f"{__name__}:point", settings, seeds, ("tickets", "alpha", "failure")):
        joins, joined = round(row["joins"] * seeds), round(row["joined"] * seeds)
        low, high = wilson(joined, joins)
        share = row["failure"] / ((1 - row["alpha"]) / 2)
        rows.append(
            {**row, "share_of_limit": share, "success": joined / joins if joins else None, "low": low, "high": high}
        )
    return Outcome(rows, claims(tickets, rows), draw(rows), NOTE)


NOTE = (
    "p_f is the probability that a coordinator crashes in one ring round, and nobody comes back: at a tenth of the "
    "limit and alpha = 0.5 half of the ring is replaced every 20 rounds. The paper assumes that an exclusion always "
    "succeeds, within 1 / alpha rounds."
)


def claims(tickets: int, rows: list[Row]) -> list[Claim]:
    """Section 4.4."""
    known = [row for row in rows if row["success"] is not None]
    below = [row for row in known if row["share_of_limit"] < 1]
    rare = [row for row in known if row["share_of_limit"] <= 0.05]
    beyond = [row for row in known if row["share_of_limit"] > 1]
    numbers = [
        {k: row[k] for k in ("alpha", "failure", "share_of_limit", "success", "low", "high")}
        | {"joins": round(row["joins"] * row["seeds"])}
        for row in known
    ]
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
    most = 2 * RING_K + 1
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
        ),
        Claim(
            "in the protocol a join succeeds w.h.p. if p_f < (1 - alpha) / 2 (0.95 or more, at every p_f tried below)",
            bool(below) and all(row["high"] >= 0.95 for row in below),
            {"points": numbers, "why_not": "" if all(row["high"] >= 0.95 for row in below) else WHY_NOT},
        ),
        Claim(
            "a join succeeds w.h.p. while crashes are rare (p_f up to 0.05 of the limit: 0.95 or more)",
            bool(rare) and all(row["high"] >= 0.95 for row in rare),
            {"points": [n for n in numbers if n["share_of_limit"] <= 0.05]},
        ),
        Claim(
            "beyond the limit joins fail more often than at the smallest p_f",
            bool(beyond) and max(r["success"] for r in beyond) < max(r["success"] for r in known),
            {"beyond": rounded([row["success"] for row in beyond])},
        ),
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
        Claim(
            f"a coordinator sends at most 2k + 1 = {most} ALIVE messages a round",
            all(row["alive_per_round"] <= most for row in rows),
            {"mean_per_coordinator_and_round": rounded([row["alive_per_round"] for row in rows]), "tickets": tickets},
        ),
    ]


WHY_NOT = (
    "The derivation counts tickets only. Reclaiming takes a quorum of the neighbours: when more than k of 2k + 1 crash "
    "before they are excluded, the survivors freeze rather than risk two owners (docs/ring.md), and admit nobody."
)


def draw(rows: list[Row]) -> Any:
    """Success against p_f."""
    figure, [axes] = panels(
        "CCC11 section 4.4: joins under crashes",
        ("p_f, as a share of (1 - alpha) / 2", f"joins that succeed within {PATIENCE} ring rounds (%)"),
    )
    figure.set_size_inches(7.5, 4.8)
    for i, alpha in enumerate(sorted({row["alpha"] for row in rows})):
        mine = [row for row in rows if row["alpha"] == alpha and row["success"] is not None]
        y = [100 * row["success"] for row in mine]
        below = [100 * max(0.0, row["success"] - row["low"]) for row in mine]
        above = [100 * max(0.0, row["high"] - row["success"]) for row in mine]
        axes.errorbar(
            [row["share_of_limit"] for row in mine], y, yerr=[below, above], fmt=f"{MARKS[i]}-", color=COLOURS[i],
            markersize=4, linewidth=1.4, capsize=2.5, label=f"alpha = {alpha:g}",
        )  # fmt: skip
    axes.axvline(1.0, color="grey", linestyle=":", label="p_f = (1 - alpha) / 2")
    axes.set_xscale("log")
    axes.set_ylim(0, 103)
    axes.legend(fontsize=8)
    return figure
