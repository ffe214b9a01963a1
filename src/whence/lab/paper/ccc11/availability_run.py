"""One run of a ring under crashes: which joins succeeded, and why the others failed.

There are `n` tickets and `alpha n` places. In each place a process coordinates until it crashes (in any ring round with
probability `p_f`); then the next one asks for a ticket at once. A join succeeds if it owns a ticket within `PATIENCE`
ring rounds; only processes that live this long are counted. The founder crashes like the others, or never
(`RingRun.founder`). The ring is not founded again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from whence.core import ports
from whence.core.clock import address_of
from whence.core.config import MS
from whence.core.member import Member
from whence.errors import UsageError
from whence.lab.sim.actions import CoordinateAction, Crash
from whence.lab.sim.run import run as simulate
from whence.lab.sim.scenario import parse
from whence.lab.sim.settings import to_toml

ROUND_MS = 200
"""Round of the ring and of gossip."""
ROUND = ROUND_MS * MS
PATIENCE = 8
"""Ring rounds within which a join must succeed. With a free ticket it takes a tenth of a round, an exclusion about
3."""
RING = "whence.core.ring.messages"
"""The module of the ring's messages."""


class RingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    tickets: int
    alpha: float
    failure: float
    """p_f: per coordinator and ring round."""
    crashes: int = 60
    """Approximate number; it determines the length of the run, within limits."""
    k: int = 2
    """Of the ring: a neighbourhood has 2k + 1."""
    founder: bool = False
    """Whether the founder crashes like the others."""
    seed: int = 0

    @property
    def places(self) -> int:
        return round(self.alpha * self.tickets)

    @property
    def start(self) -> int:
        """The round in which crashes begin, after the ring has formed."""
        return 12 + 4 * self.places.bit_length()

    @property
    def rounds(self) -> int:
        """Of the whole run; from 40 to 160 of them with crashes."""
        if not self.failure:
            return self.start + 40
        return self.start + min(160, max(40, round(self.crashes / (self.failure * self.places))))


class _Watch:
    """What is observed in a run."""

    def __init__(self, crashed: Mapping[str, int]) -> None:
        self.crashed = crashed
        self.owned: dict[str, int] = {}
        """When a process first became an owner."""
        self.last: dict[str, int] = {}
        """When a process was last in the L of an owner."""
        self.core: set[int] = set()  # looked up, never iterated
        """Rounds in which there was an owner."""
        self.sent = 0
        """Messages of the ring."""
        self.owned_rounds: set[tuple[str, int]] = set()  # counted, never iterated
        """Who owned a ticket in which round."""

    def saw(self, member: Member, outs: list[ports.Output], now: int) -> None:
        after = _neighbours(member)
        for out in outs:
            if type(out) is ports.Ticket and out.change == "owner":
                self.owned.setdefault(address_of(member.me), now)
            elif type(out) is ports.Send and type(out.message).__module__ == RING:
                self.sent += 1
        if member.ring.owns_at(now):
            self.core.add(now // ROUND)
            self.owned_rounds.add((member.me, now // ROUND))
            for who in after:
                self.last[who] = now


def _neighbours(member: Member) -> list[str]:
    """Its predecessors L, which only the fault-tolerant ring has."""
    ring: Any = member.ring
    return [address_of(z.member) for z in ring.neighbours.L]


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner: joins and successes, in total and while there was a coordinator; whether and how the core died."""
    s = msgspec.convert(dict(setting), RingRun)
    faults, wanted = schedule(s)
    crashed = {a.who: a.at for a in faults if isinstance(a, Crash)}
    watch = _Watch(crashed)
    members = 1 + max((int(a.who[1:]) for a in faults), default=s.places)
    table = {
        "members": max(s.places, members),
        "round": f"{ROUND_MS}ms",
        "duration": f"{s.rounds}r",
        "settle": "1r",
        "operator": "100000r",
        "network": {"latency": "normal", "mean": "2ms", "sd": "500us"},
        "cluster": {
            "ring": "neighbours",
            "ring_round": "1r",
            "delta": f"{ROUND_MS // 12}ms",
            "mode": "rounds",
            "tickets": s.tickets,
            "coordinators": s.places,
            "ring_k": s.k,
            "fanout": 3,
            "termination": 5,
        },
    }
    loaded = msgspec.structs.replace(parse(to_toml(table), "availability.toml"), faults=tuple(faults))
    outcome = simulate(loaded, s.seed, watch=watch.saw)
    if outcome.violation is not None and outcome.violation.kind not in ("unsettled", "liveness"):
        raise UsageError(f"{s}: {outcome.violation}")
    return _summary(s, watch, wanted)


def _summary(s: RingRun, watch: _Watch, wanted: Mapping[str, int]) -> dict[str, Any]:
    patience = PATIENCE * ROUND
    joined = {who: watch.owned.get(who, at + patience + 1) - at <= patience for who, at in wanted.items()}
    served = {  # there was a coordinator in every round of the join
        who: all(r in watch.core for r in range(at // ROUND, (at + patience) // ROUND + 1))
        for who, at in wanted.items()
    }
    dead = s.rounds - 1 not in watch.core
    over = max(watch.core, default=0) * ROUND - patience
    took = [
        (watch.last[who] - at) / ROUND for who, at in watch.crashed.items() if at < min(over, watch.last.get(who, 0))
    ]
    return {
        "joins": len(wanted),
        "joined": sum(joined.values()),
        "core_joins": sum(served.values()),
        "core_joined": sum(joined[who] for who in wanted if served[who]),
        "crashes": len(watch.crashed),
        "died": float(dead),
        "reclaim_sum": sum(took),
        "reclaims": len(took),
        "sent_per_round": watch.sent / max(1, len(watch.owned_rounds)),
        "founder_crashed": float("n0" in watch.crashed),
    }


def schedule(s: RingRun) -> tuple[list[Crash | CoordinateAction], dict[str, int]]:
    """The crashes and the joins that follow, and the joins that count. Place 0 is the founder's."""
    rng = random.Random(f"{s.seed}/lives")
    actions: list[Crash | CoordinateAction] = []
    judged: dict[str, int] = {}
    following = s.places
    for place in range(0 if s.founder else 1, s.places):
        who, begun, at = place, 0.0, s.start + rng.random()
        while True:
            while rng.random() >= s.failure and at < s.rounds:
                at += 1
            if begun and min(at, s.rounds - 1) - begun >= PATIENCE:
                judged[f"n{who}"] = round(begun * ROUND)
            if at >= s.rounds - 1:
                break
            actions.append(Crash(at=round(at * ROUND), who=f"n{who}"))
            who, begun, following = following, at, following + 1
            actions.append(CoordinateAction(at=round(at * ROUND), who=f"n{who}"))
            at += 1
    return sorted(actions, key=lambda a: a.at), judged
