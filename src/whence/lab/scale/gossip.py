"""What a run with up to ten million members is: its settings, its schedule of events, and what the planner says.

The members are those of `core`, with the planner's settings where none are given. Where the run is simpler than they
are, `flood`, `trees`, `delivery` and `dissemination` say so; docs/scale.md has the list, and what it changes.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count, islice
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from whence.core.cast.sizing import Sizing, choose, outlooks
from whence.core.config import Config
from whence.errors import ConfigError
from whence.lab.plan import ClusterPlan, PlanQuestion, plan_cluster
from whence.lab.scale.flood import AGE, Links, Manner
from whence.lab.scale.random import CHURN, GAP, I32, I64, SENDER, SPONSOR, below, bits, uniform
from whence.lab.spread import PrCast

MOST_US = 1 << (31 - AGE)
"""An event spreads for less than this, or an arrival and its age do not fit into 32 bits."""
LEAST_US = 250
"""No copy is faster: two members in one city."""
LONGEST_FANOUT, MOST_HOPS = 64, 31
PUBLISHER = 16
"""A stream of random numbers: who publishes."""


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run with many members. 0: by the planner, unless said otherwise."""

    members: int = 100_000
    events: int = 100
    publishers: int = 25
    """Tickets: how many publish at a time."""
    rate: float = 1.0
    """Events a second of each of them (Poisson)."""
    mode: Literal["eager", "rounds", "tree"] = "eager"
    view: int = 0
    """Members in a partial view; 0: everybody knows all."""
    fanout: int = 0
    termination: int = 0
    loss: float = 0.01
    """Share of copies that are lost."""
    latency: float = 10.0
    """Mean one-way delay in ms, of a normal distribution; the deviation is a fifth."""
    latencies: tuple[tuple[float, ...], ...] = ()
    """Recorded round-trip times between cities, in ms. Members are assigned to cities at random."""
    order: Literal["unordered", "fifo", "causal", "reliable"] = "causal"
    recovery: Literal["off", "R1", "Rk"] = "Rk"
    k: int = 0
    """Whom `Rk` asks."""
    buffer: int = 0
    """Events in a recovery buffer (Theorem 5.1)."""
    crash: float = 0.0
    """Share of members that crash for good."""
    crash_at: float = 0.0
    """When they do, in seconds; publishing begins at 0."""
    churn: float = 0.0
    """Members that go away a second."""
    away: float = 10.0
    """Seconds after which they are back, with the snapshot of another member."""
    forget: float = 0.0
    """Seconds after which views have forgotten a member that is down; 0: never."""
    tenure: float = 0.0
    """Seconds for which a member publishes before another one takes its ticket over; 0: for good. A crashed one's
    ticket is taken over by the next event."""
    payload: int = 100
    """Bytes of an event."""
    seed: int = 0

    def __post_init__(self) -> None:
        wants = (
            ("members", 100 <= self.members <= 20_000_000, "from 100 to 20,000,000"),
            ("events", 1 <= self.events <= 1_000_000, "from 1 to 1,000,000"),
            ("publishers", 1 <= self.publishers <= min(1000, self.members // 2), "from 1 to 1,000, half the members"),
            ("rate", 0 < self.rate <= 1e4, "more than 0 and at most 10,000 a second"),
            ("view", self.view == 0 or 4 <= self.view <= 64, "0, or from 4 to 64"),
            ("fanout", 0 <= self.fanout <= LONGEST_FANOUT, f"from 0 to {LONGEST_FANOUT}"),
            ("fanout", not self.view or self.fanout <= self.view, f"at most the view, {self.view}"),
            ("termination", 0 <= self.termination <= MOST_HOPS, f"from 0 to {MOST_HOPS}"),
            ("loss", 0 <= self.loss < 0.9, "at least 0 and below 0.9"),
            ("latency", 0.5 <= self.latency <= 1e4, "from 0.5 to 10,000 ms"),
            ("k", 0 <= self.k <= 64, "from 0 to 64"),
            ("buffer", self.buffer >= 0, "0 or more"),
            ("crash", 0 <= self.crash < 0.9, "at least 0 and below 0.9"),
            ("crash_at", 0 <= self.crash_at <= 1e6, "from 0 to a million seconds"),
            ("churn", 0 <= self.churn <= self.members, "from 0 to the members"),
            ("churn", not (self.churn and self.crash), "possible together with crash"),
            ("away", 0 < self.away <= 1e6, "more than 0 seconds"),
            ("forget", 0 <= self.forget <= 1e6, "0 seconds or more"),
            ("tenure", self.tenure == 0 or self.tenure >= 1, "0, or at least a second"),
            ("payload", 8 <= self.payload <= 1 << 20, "from 8 to 1048576 bytes"),
            ("seed", 0 <= self.seed < 2**63, "from 0 to 2^63 - 1"),
        )
        for name, fits, want in wants:
            if not fits:
                raise ConfigError(f"{name}: {getattr(self, name):g} is not {want}")
        if any(len(row) != len(self.latencies) for row in self.latencies):
            raise ConfigError("latencies: not a square matrix")
        if self.order == "reliable" and self.recovery == "off":
            raise ConfigError("order reliable needs recovery R1 or Rk")


class Expected(NamedTuple):
    """What members are configured to do, and what the planner expects of it."""

    config: Config
    plan: ClusterPlan | None
    """None in rounds mode: the planner plans for what is pushed at once."""
    coverage: float
    """Expected share of members that gossip alone reaches."""
    reach: float
    """Expected share of events that it brings to all."""
    copies: float
    """Expected copies of an event that a member sends."""


def outlook(s: GossipSettings) -> Expected:
    """The planner's settings, but for those that are given."""
    latency = s.latency if not s.latencies else float(np.median(np.array(s.latencies))) / 2
    mode: Literal["eager", "tree"] = "tree" if s.mode == "tree" else "eager"
    q = PlanQuestion(
        members=s.members,
        publishers=s.publishers,
        rate=s.rate,
        loss=s.loss,
        payload=s.payload,
        latency_ns=max(1000, round(latency * 1e6)),
        order="reliable" if s.order == "reliable" else "causal",
        mode=mode,
    )
    chosen = _sizing(s)
    plan = plan_cluster(q, given=chosen)
    changed: dict[str, Any] = {"recovery": s.recovery, "buffer": s.buffer or None}
    changed |= {"k": s.k} if s.k else {}
    if s.mode == "rounds":
        changed["mode"] = "rounds"
    config = msgspec.structs.replace(plan.settings, **changed).config(s.publishers, s.order)
    if chosen is None:
        return Expected(config, plan, plan.coverage, plan.reach_gossip, 1.0)
    cast = PrCast(s.members, chosen.fanout, chosen.termination, s.loss, s.mode)
    return Expected(config, plan if s.mode == "eager" else None, cast.coverage()[-1], cast.reach(), cast.copies())


def _sizing(s: GossipSettings) -> Sizing | None:
    """Fanout and termination, with what is given; None: as the planner says."""
    if s.mode == "tree":
        return None
    if s.fanout:
        return Sizing(s.fanout, s.termination or _hops(s.members, s.fanout, s.loss, s.mode), 0.0)
    best = choose(s.members, s.loss, PlanQuestion(members=2, publishers=1, rate=1).target, s.mode)
    return Sizing(best.fanout, s.termination or best.termination, 0.0)


@lru_cache(maxsize=256)
def _hops(members: int, fanout: int, loss: float, mode: Literal["eager", "rounds"]) -> int:
    """After how many hops nobody more is reached."""
    before = 0.0
    for hops, (_, mean, _) in enumerate(islice(outlooks(members, fanout, loss, mode, False), MOST_HOPS), 1):
        if mean - before < 1e-9:
            return hops
        before = mean
    return MOST_HOPS


def links(s: GossipSettings) -> Links:
    """Delays as in `lab.sim`: quantiles around the mean, or around half a recorded round trip."""
    normal, mean = NormalDist(), s.latency * 1000
    base = np.rint(np.array(s.latencies) * 500).astype(np.int32) if s.latencies else np.array([[round(mean)]], np.int32)
    spread = 0.0 if s.latencies else mean / 5
    jitter = np.array([round(spread * normal.inv_cdf((i + 0.5) / 4096)) for i in range(4096)], np.int32)
    least = max(LEAST_US, int(base.min()) + int(jitter.min()))
    return Links(least, least.bit_length() - 1, np.uint32(round(s.loss * 2**32)), jitter, base)


class Timetable(NamedTuple):
    """Who publishes when, and who is down when. Times in microseconds."""

    at: I64
    ticket: I32
    owner: I32
    unpublished: int
    """Nobody had the ticket."""
    down: I64
    """Of each member, empty if all stay; `up`: when it is back."""
    up: I64


def timetable(s: GossipSettings) -> Timetable:
    """The schedule: everything that does not depend on how events spread."""
    e = np.arange(s.events)
    gaps = -np.log1p(-uniform(bits(s.seed, GAP, e))) * (1e6 / (s.rate * s.publishers))
    at = np.cumsum(gaps).astype(np.int64)
    ticket = below(bits(s.seed, SENDER, e), s.publishers).astype(np.int32)
    down, up = _absences(s)
    owners: dict[tuple[int, int], int] = {}
    turns, taken = [0] * s.publishers, set[int]()
    draws = count()
    owner = np.full(s.events, -1, np.int32)

    def member(t: int, turn: int) -> int:
        while (t, turn) not in owners:
            who = int(below(bits(s.seed, PUBLISHER, [next(draws)]), s.members)[0])
            if who not in taken:
                taken.add(who)
                owners[t, turn] = who
        return owners[t, turn]

    for x in range(s.events):
        t, now = int(ticket[x]), int(at[x])
        turn = turns[t] = max(turns[t], int((now / 1e6 + t / s.publishers * s.tenure) // s.tenure) if s.tenure else 0)
        who = member(t, turn)
        if len(down) and down[who] <= now < up[who]:
            turns[t] += 1  # the ticket goes on to another member
            continue
        owner[x] = who
    kept = owner >= 0
    return Timetable(at[kept], ticket[kept], owner[kept], int((~kept).sum()), down, up)


def _absences(s: GossipSettings) -> tuple[I64, I64]:
    n = np.arange(s.members) if s.crash or s.churn else np.arange(0)
    never = np.int64(2**60)
    chance = uniform(bits(s.seed, CHURN, n))
    if s.crash:
        return np.where(chance < s.crash, np.int64(s.crash_at * 1e6), never), np.full(len(n), never)
    # each member goes once, or not at all, at a time that is uniform over the run
    run = s.events / (s.rate * s.publishers)
    at = (uniform(bits(s.seed, SPONSOR, n)) * run * 1e6).astype(np.int64)
    down = np.where(chance < s.churn * run / s.members, at, never)
    return down, np.where(down < never, down + np.int64(s.away * 1e6), never)


def manner(s: GossipSettings, config: Config) -> Manner:
    """How members gossip."""
    pause = config.round_ns // 1000 if s.mode != "eager" else 0
    phase = np.uint32(int(bits(s.seed, PUBLISHER, [2**40])[0]) & 0xFFFFFFFF)
    fanout, hops = config.cast.fanout, config.cast.termination
    if fanout > LONGEST_FANOUT or hops > MOST_HOPS:
        raise ConfigError(f"fanout {fanout}, termination {hops}: at most {LONGEST_FANOUT} and {MOST_HOPS}")
    return Manner(fanout, hops, pause, s.view, int(s.forget * 1e6), phase)
