"""The setting of CCC11 section 6 in the simulator: one run, and how the length of its rounds is tuned.

As in the paper: fanout 4, termination 5, full views, 20 events a message, history 40; recovery buffer by Theorem 5.1
and timeouts as long as a PrCast. The paper's machines are modelled by an uplink of `UPLINK` bytes a second, so larger
messages take longer. A message that could not be sent within a round is given up and counts as a failed connection, as
connections failed after a timeout in the paper. The round is tuned so that `FAILED` of all connections fail (`tuned`,
`tuned_runs`), as in the paper.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import msgspec

from whence.core.clock import MemberId
from whence.core.config import MS, Config
from whence.core.member import Member
from whence.core.order.recovery import buffer_size, needed_rounds
from whence.errors import UsageError
from whence.lab.paper.frame import Row, RunOptions, by_run, grid, summary, total
from whence.lab.paper.plots import error_bars
from whence.lab.sim.meter import Meter
from whence.lab.sim.run import run
from whence.lab.sim.scenario import Loaded, parse
from whence.lab.sim.settings import to_toml
from whence.lab.stats import Estimate, clustered

POINT, TRACED = f"{__name__}:point", f"{__name__}:traced"
"""The names of the runners below."""
FANOUT, TERMINATION, MAX_EVENTS, HISTORY = 4, 5, 20, 40
UPLINK = 1_250_000
"""Bytes a second: 10 Mbit/s, usual at the time. Another value scales all times alike."""
FAILED = 0.002
"""Share of failed connections that the paper tuned its rounds to."""
LATENCY_MS, LATENCY_SD_MS = 1.5, 0.4
"""One way: the paper's round trips took 1 to 5 ms."""
PAYLOAD = 16
"""Bytes of an event (not in the paper). Its clock is many times as large."""
VARIANTS = {"gossip": ("unordered", "off"), "causal": ("causal", "off"), "R1": ("causal", "R1"), "R4": ("causal", "Rk")}
"""Figure 5's curves: order, recovery."""
UNRECOVERED = ("gossip", "causal", "patient")
"""Without recovery, what gossip misses is lost; that is measured."""
PATIENT = "patient"
"""A causal layer without recovery that waits before it skips a gap as long as the others wait for a reply. (Ours skips
at once; the paper does not say.)"""
PILOT_MS = 100.0
"""The round of the pilot run, whose message sizes give the first estimate."""
GRID = tuple(0.1 * 1.01**i for i in range(1160))
"""Rounds to try, in ms: up to 10 s, one per cent apart."""
RAMP = TERMINATION + 3
"""Rounds until the number of events in flight is steady."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    members: int
    coordinators: int
    load: float
    """Events a round of all coordinators: `coordinators * p`."""
    variant: str = "R1"
    round_ms: float = PILOT_MS
    uplink: int = 0
    """Bytes a second; 0: sizes cost nothing, and no connection fails."""
    rounds: int = 100
    """Measured rounds."""
    loss: float = 0.0
    fanout: int = FANOUT
    termination: int = TERMINATION
    history: int = HISTORY
    in_step: bool = False
    buffer: float = 2.0
    """Size of the recovery buffer in units of `mu T`, the mean number of events needed at a time; Theorem 5.1 has 2."""
    crashed: float = 0.0
    """Share of members that crash for good when the load begins; never coordinators."""
    k: int = 4
    """R4: how many members are asked."""
    once: bool = False
    """Recovery as published: each missing event is requested once, and only if a later event shows it."""
    aging: bool = False
    """What leaves a full recovery buffer is the oldest by age, not what came first (Algorithm 5)."""
    seed: int = 0

    @property
    def start(self) -> int:
        """The round in which the load begins, after the ring has formed."""
        return 24 + 12 * self.coordinators.bit_length()

    @property
    def span(self) -> int:
        """Theorem 5.1's T, in rounds."""
        return ceil(needed_rounds(TERMINATION, TERMINATION, TERMINATION))


def scenario(s: Setting) -> Loaded:
    """The scenario of a run."""
    order, recovery = VARIANTS["causal" if s.variant == PATIENT else s.variant]
    network: dict[str, Any] = {"latency": "normal", "mean": _ms(LATENCY_MS), "sd": _ms(LATENCY_SD_MS), "loss": s.loss}
    if s.uplink:
        network |= {"uplink": f"{s.uplink}B", "queue": f"{int(s.uplink * s.round_ms / 1e3)}B"}
    table: dict[str, Any] = {
        "members": s.members,
        "round": _ms(s.round_ms),
        "duration": f"{s.start + RAMP + s.rounds + RAMP}r",
        "settle": f"{2 * s.span}r",
        "network": network,
        "cluster": {
            "profile": "ccc11",
            "view": "full",
            "tickets": s.coordinators,
            "coordinators": s.coordinators,
            "order": order,
            "recovery": recovery,
            "k": s.k,
            "once": s.once,
            "replacement": "age" if s.aging else "fifo",
            "fanout": s.fanout,
            "termination": s.termination,
            "max_events": MAX_EVENTS,
            "history": s.history,
            "buffer": max(1, ceil(buffer_size([s.load], s.span) * s.buffer / 2)),
            "time_to_terminate": float(2 * TERMINATION if s.variant == PATIENT else TERMINATION),
            "time_to_recover": float(TERMINATION),
            "ring_round": "4r",  # tolerates busy uplinks
            "delta": "1.5r",
            "workload": {"rate": s.load / s.coordinators, "payload": f"{PAYLOAD}B", "start": f"{s.start}r"},
        },
    }
    down = range(s.members - round(s.crashed * s.members), s.members)
    table["fault"] = [{"kind": "crash", "at": f"{s.start}r", "who": f"n{i}"} for i in down]
    return parse(to_toml({key: value for key, value in table.items() if value}), "ccc11.toml")


def _ms(ms: float) -> str:
    return f"{round(ms * MS)}ns"


def _in_step(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
    """Everybody begins a round at the same instant: no scenario can say that."""
    cast = msgspec.structs.replace(config.cast, in_step=True)
    return Member(me, msgspec.structs.replace(config, cast=cast), rng, checkpoint)


def measure(s: Setting) -> tuple[Meter, dict[str, Any]]:
    """Run it once. Returns the meter and the results."""
    first, last = s.start + RAMP, s.start + RAMP + s.rounds
    round_ns = round(s.round_ms * MS)
    meter = Meter(first * round_ns, last * round_ns, s.span * round_ns, sizes=True)
    outcome = run(scenario(s), s.seed, make=_in_step if s.in_step else Member, watch=meter.saw)
    missed = outcome.violation is not None and outcome.violation.kind == "lost" and s.variant in UNRECOVERED
    if outcome.violation is not None and not missed:
        raise UsageError(f"{s}: {outcome.violation}")
    frames = meter.result()
    [line] = outcome.report.lines
    failed = _failures(meter.sendings, s.uplink, int(s.uplink * s.round_ms / 1e3), 1e9)
    return meter, {
        "events": frames.frames,
        "pairs": frames.pairs,
        "lost": frames.lost / max(1, frames.pairs),
        "inversions": line.inversions / max(1, line.delivered),
        "lost_ordered": frames.lost / max(1, frames.pairs) + line.inversions / max(1, line.delivered),
        "gossip_missed": frames.gossip_missed / max(1, frames.pairs),
        "repeated": line.duplicates / max(1, line.delivered),
        "reach": frames.by_gossip / max(1, frames.frames),
        "latency_ms": frames.latency_ms["mean"],
        "latency_p99_ms": frames.latency_ms["p99"],
        "latency_rounds": frames.latency_ms["mean"] / s.round_ms,
        "message_bytes": frames.gossip_bytes,
        "bytes_a_round": sum(size for _, _, size in meter.sendings) / s.members / s.rounds,
        "throughput": (frames.pairs - frames.lost) / (s.members - 1) / (s.rounds * s.round_ms / 1e3),
        "asked": frames.asked,
        "answered": frames.answered,
        "overtaken": frames.overtaken,
        "requests": outcome.report.traffic.get("Recover", (0, 0))[0],
        "busiest": _busiest(meter.sendings, s.members),
        "failed": failed / max(1, len(meter.sendings)),
        "not_published": sum(outcome.report.not_published.values()),
    }


def _busiest(sendings: Sequence[tuple[int, int, int]], members: int) -> float:
    """The bytes that the busiest member sent, by the mean."""
    sent = Counter[int]()
    for who, _, size in sendings:
        sent[who] += size
    return max(sent.values(), default=0) * members / max(1, sent.total())


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner for `run_all` and `whence sweep`."""
    return measure(msgspec.convert(dict(setting), Setting))[1]


def traced(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner like `point`. `curve` has the share of messages that would fail with each round near the best one.
    (Exact only for the round of the run: message sizes depend slightly on delays.)"""
    s = msgspec.convert(dict(setting), Setting)
    meter, result = measure(s)
    round_ns = s.round_ms * MS
    sendings = [(who, at / round_ns, size) for who, at, size in meter.sendings]
    best = tuned_round(sendings)
    near = [i for i, r in enumerate(GRID) if best / 1.15 <= r <= best * 1.3]
    shares = [_failures(sendings, UPLINK * GRID[i] / 1e3) / max(1, len(sendings)) for i in near]
    return {**result, "curve": {"first": near[0], "shares": shares}}


def tuned(curves: Sequence[Mapping[str, Any]]) -> float:
    """The shortest round of the grid with which at most `FAILED` of the messages fail, on average over several runs."""
    for i, round_ms in enumerate(GRID):
        failed = 0.0
        for curve in curves:
            at = i - int(curve["first"])
            failed += 1.0 if at < 0 else curve["shares"][at] if at < len(curve["shares"]) else 0.0
        if failed / len(curves) <= FAILED:
            return round_ms
    return GRID[-1]


def tuned_round(sendings: Sequence[tuple[int, float, int]], failed: float = FAILED) -> float:
    """The shortest round in ms with which at most this share of messages (sender, time in rounds, bytes) cannot be sent
    over the uplink within a round."""
    low, high = 0.1, 10_000.0
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        if _failures(sendings, UPLINK * middle / 1e3) > failed * len(sendings):
            low = middle
        else:
            high = middle
    return high


def _failures(
    sendings: Sequence[tuple[int, float, int]], uplink: float, queue: float | None = None, second: float = 1.0
) -> int:
    """Messages given up with an uplink of this many bytes a second and a queue of as many bytes (unless given), as in
    `sim.network`. `second` is the length of a second in the unit of the times."""
    if not uplink:
        return 0
    room = uplink if queue is None else queue
    free: dict[int, float] = {}
    failures = 0
    for who, at, size in sendings:
        begin = max(free.get(who, at), at)
        if (begin - at) * uplink / second + size > room:
            failures += 1
        else:
            free[who] = begin + size * second / uplink
    return failures


TRIES = 5
"""How often a round is tuned. Each run's messages differ slightly from those the round was tuned by."""
NEAR = 1.02
"""A tuned round is at most this many times the shortest one."""


def tuned_runs(options: RunOptions, settings: Sequence[Row], seeds: int, keep: Sequence[str]) -> list[Row]:
    """Run each setting with each seed, and tune its round until at most `FAILED` of the connections of these runs fail.
    `shortest` is the shortest such round, as a share of the tuned one."""
    rounds = [tuned([run["curve"] for run in runs]) for runs in grid(options, settings, 1, TRACED, "pilots")]
    done: dict[int, Row] = {}
    todo = list(range(len(settings)))
    for number in range(TRIES):
        wanted: list[Row] = [{**settings[i], "round_ms": rounds[i], "uplink": UPLINK} for i in todo]
        found = grid(options, wanted, seeds, TRACED, "runs" if not number else "runs with a better round")
        again = []
        for i, setting, runs in zip(todo, wanted, found, strict=True):
            shortest = tuned([run["curve"] for run in runs])
            row = summary(setting, runs, keep) | {"shortest": shortest / rounds[i]}
            done[i] = row = min(row, done.get(i, row), key=_badness)
            if row["failed"] > FAILED or row["shortest"] < 1 / NEAR:
                again.append(i)
                rounds[i] = shortest if abs(shortest / rounds[i] - 1) > 0.001 else 1.01 * rounds[i]
        todo = again
        if not todo:
            break
    return [done[i] for i in range(len(settings))]


def _badness(row: Row) -> tuple[float, float, float]:
    """Of two tries the better one has few enough failures, then the shorter round."""
    return max(FAILED, row["failed"]), -row["shortest"], row["round_ms"]


# -- how often recovery succeeds

LEAST = 10
"""Attempts needed for a useful interval."""


def attempts(row: Row) -> float:
    """Events asked for, in all runs of a row; those that gossip delivered meanwhile do not count."""
    return max(0.0, total(row, "asked") - total(row, "overtaken"))


def tried(row: Row) -> str:
    """So many attempts, for people."""
    return f"{attempts(row):.0f} attempts"


def success(row: Row, at: str = "", of: int = 1) -> Estimate:
    """The success rate of recovery."""
    tries = [max(0.0, a - o) for a, o in zip(by_run(row, "asked"), by_run(row, "overtaken"), strict=True)]
    return clustered(at, [min(n, a) for n, a in zip(tries, by_run(row, "answered"), strict=True)], tries, of)


def success_bars(axes: Any, rows: Sequence[Row], x: str, index: int, label: str) -> None:
    """Success rates in per cent with their intervals, for rows with `LEAST` attempts or more."""
    rows = [row for row in rows if attempts(row) >= LEAST]
    if rows:
        found = [success(row) for row in rows]
        error_bars(axes, [row[x] for row in rows], found, label, index, 100)
        lowest = 100 * min(e.low for e in found) - 1
        axes.set_ylim(max(0.0, min(90.0, lowest, axes.get_ylim()[0])), 101)
