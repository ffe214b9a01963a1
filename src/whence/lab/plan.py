"""The planner: from workload, network and target to settings and predictions.

Every setting comes from the formulas that the members themselves are sized by (`cast.sizing`, `order.sizing`,
`config.Settings`), every message's size from the codec. The planner adds:

* **round**: ten times the network's latency, so that what arrives in a round is forwarded in the next; shorter if a
  message could not hold all live events (`max_bytes`).
* **loss**: messages to a crashed member that is still in the views are lost, so gossip is planned for a loss of
  `1 - (1-x)(1-y)`.
* **k**: at least Theorem 5.2's `2 N y`, and enough that asking finds the event but for `1 - target`; at most
  `MOST_ASKED`.
* **latency**: a member gets an event at a random time with distribution `G` (`lab.spread`; what gossip misses
  comes by recovery). Causal order delivers it when its past is there, too. The past that may still be missing is what
  the publisher had delivered (`u` after it was published: `D(u)`; its own events: 1) and this member has not got.
  While an event is forwarded it travels in the same messages as what depends on it, so only those count that are
  no longer: `W(t) = sum over u, u + t >= termination - 1, of D(u) (1 - G(u+t))` events on average. They come in
  runs, of `S` on average, for who gets no message for a while misses all that was in them; runs are Poisson. So
  `D(t) = G(t) exp(-W(t) / S)`, solved by iteration.
* **bytes**: fanout messages a round, each with a digest of `n` entries, ten members, and the events alive; the ring's
  polls; and for what gossip misses k + 1 questions and their answers.

Errors (`ERRORS`) are what `whence paper ccc11/planner` holds the predictions to: docs/planner.md has the measured ones.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, exp, log, log1p
from typing import Any, Literal

import msgspec

from whence.core.cast import sizing as cast_sizing
from whence.core.cast.messages import Gossip, IHave
from whence.core.clock import Digest, Entry, Frame, Incarnation
from whence.core.config import MS, Config, Mode, Settings
from whence.core.order import sizing as order_sizing
from whence.core.order.messages import AckRecover, Recover
from whence.core.ring import messages as ring
from whence.core.wire import pack
from whence.errors import ConfigError
from whence.lab.spread import Arrivals, PrCast

ROUND_LATENCIES = 10
"""Rounds are this many network latencies long, unless something else limits them."""
LEAST_LATENCIES = 2
"""Rounds are at least this many latencies long; below that, messages miss the next round."""
MOST_ASKED = 64
"""Members asked for a missing event, at most: Theorem 5.2's `2 N y` grows with the cluster, the need does not."""
ITERATIONS = 6
"""Of the fixed point of D: it moves by less than a thousandth after four."""

QUANTILES = (0.5, 0.985, 0.99, 0.995)
"""Of the latency."""

ERRORS = {
    "reach_gossip": ("within 0.05, absolute; 1/N below 20 members", 0.05),
    "reach": ("within 0.01, absolute", 0.01),
    "latency_p50_ms": ("within 15 %", 0.15),
    "latency_p99_ms": ("within 25 % of p98.5 .. p99.5", 0.25),
    "bytes_per_s": ("within 15 %", 0.15),
}
"""The stated error of each prediction: relative, for probabilities absolute."""
ABSOLUTE = ("reach_gossip", "reach")


def error(name: str, members: int) -> float:
    """The stated error of a prediction. Gossip's reach follows the mean number of those that have an event, not its
    distribution (`cast.sizing`, out of step): in a small cluster that is wrong by something of the order of 1/N."""
    return max(ERRORS[name][1], 1 / members) if name == "reach_gossip" else ERRORS[name][1]


class PlanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the planner."""

    members: int
    publishers: int
    """`n`: how many may publish at a time, which is the number of tickets."""
    rate: float
    """Events per second of each publisher."""
    loss: float = 0.01
    """Share of messages lost on the network."""
    crash: float = 0.0
    """Share of members that are down at a time and not yet detected: Theorem 5.2's `p_f`."""
    target: float = 0.99999
    """Wanted probability that an event reaches everybody by gossip alone."""
    payload: int = 100
    """Bytes per event."""
    latency_ns: int = 10 * MS
    """Of the network, one way."""
    order: Literal["causal", "reliable"] = "causal"
    mode: Mode = "rounds"

    def __post_init__(self) -> None:
        n, top = self.members, 1 << 20
        wants = (
            ("members", n >= 2, "2 or more"),
            ("publishers", 1 <= self.publishers <= n, f"1 to {n}, the members"),
            ("rate", 0 < self.rate < 1e6, "more than 0 events a second of each publisher, below a million"),
            ("loss", 0 <= self.loss < 0.9, "a share, 0 <= loss < 0.9"),
            ("crash", 0 <= self.crash < 0.9, "a share, 0 <= crash < 0.9"),
            ("target", 0 < self.target < 1, "a probability between 0 and 1, such as 0.99999"),
            ("payload", 8 <= self.payload <= top, f"8 to {top} bytes"),
            ("latency_ns", self.latency_ns >= 1000, "1000 or more: latency is at least 0.001 ms"),
        )
        for name, fits, want in wants:
            if not fits:
                raise ConfigError(f"{name} is {getattr(self, name)}; want {want}")

    @property
    def swallowed(self) -> float:
        """Share of messages that are lost or sent to a member that is down."""
        return 1 - (1 - self.loss) * (1 - self.crash)


class MessageSizes(msgspec.Struct, frozen=True):
    """Bytes, by the codec."""

    fixed: int
    """A gossip message without events: header, digest, membership."""
    frame: float
    """One event in it."""
    ring: int
    """What one coordinator costs in one round of the ring: polls of the voters, their answers, a ping and its
    answer."""
    ask: int
    """A question for a missing event, and its answer without the event."""
    announcement: int
    """An announcement of nothing, in `tree` mode."""
    key: float
    """One event in it."""


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. Durations in ms, sizes in bytes unless the name says otherwise."""

    question: PlanQuestion
    settings: Settings
    """For `whence.join(..., settings=...)`, or a scenario."""
    round_ms: float
    fanout: int
    termination: int
    max_events: int
    """In one message."""
    forward_buffer: int
    """Events that wait to be sent on (cast)."""
    history: int
    """Ids remembered to suppress second arrivals (cast)."""
    B: int
    """Recovery buffer."""
    B_theorem: int
    """Theorem 5.1's `2 mu T`; `B` has a floor above it."""
    H: int
    """Events held because something before them is missing, and the recovered (H and R)."""
    k: int
    k_theorem: int
    """Theorem 5.2's `2 N p_f`."""
    time_to_terminate_ms: float
    time_to_recover_ms: float
    load: float
    """Events per round of all publishers."""
    needed_rounds: float
    """Theorem 5.1's T."""
    sizes: MessageSizes
    message_bytes: float
    """Of a gossip message, on average."""
    bytes_per_s: float
    """Sent by a member, on average (as much is received)."""
    events_bytes_per_s: float
    """Of these, what grows with the load."""
    packets_per_delivery: float
    """Sent by all members, for each delivery: events, rounds and announcements, without the ring and recovery."""
    event_packets_per_delivery: float
    """Of these, those with events in them."""
    hops_p50: int
    """Hops, or rounds, from the publisher to half of the members that gossip reaches."""
    hops_p99: int
    latency_p50_ms: float
    latency_p99_ms: float
    latency_p99_between_ms: tuple[float, float]
    """p98.5 and p99.5: where about one in a hundred has to be recovered, the p99 is one or the other."""
    reach_gossip: float
    """Probability that an event reaches all (living) members by gossip alone."""
    coverage: float
    """Share of members that gossip alone reaches, on average."""
    reach: float
    """Probability that it reaches all of them with recovery."""
    notes: tuple[str, ...] = ()


def plan_cluster(question: PlanQuestion, name_bytes: int = 18, seq: int = 10_000) -> ClusterPlan:
    """Settings for the question, and what they will do, where member ids are so long and events so many."""
    q = question
    chosen = cast_sizing.choose(q.members, q.swallowed, q.target, q.mode)
    notes: list[str] = []
    cast = PrCast(q.members, chosen.fanout, chosen.termination, q.swallowed, q.mode)
    most = cast.reach() if q.mode == "tree" else chosen.probability
    if most < q.target:
        notes.append(f"gossip alone cannot reach the target; the most it can is {most:.4f}: recovery does the rest")
    sizes = message_sizes(q, name_bytes, seq)
    round_ns = _round(q, chosen, sizes, notes)
    load = q.publishers * q.rate * round_ns / 1e9
    coverage = cast.coverage()[-1]
    theorem_k = order_sizing.recovery_fanout(q.members, q.crash)
    k = _asked(q, coverage, theorem_k)
    if k < theorem_k:
        notes.append(
            f"Theorem 5.2 would ask {theorem_k} members; all of {k} are down with probability {q.crash**k:.0e}"
        )
    settings = _settings(q, chosen, round_ns, load, k)
    config = settings.config(q.publishers, q.order)
    needed = order_sizing.needed_rounds(
        _prcast_rounds(config),
        *(t / round_ns for t in (config.ordering.time_to_terminate_ns, config.ordering.time_to_recover_ns)),
    )
    return ClusterPlan(
        question=q,
        settings=settings,
        round_ms=round_ns / 1e6,
        fanout=chosen.fanout,
        termination=chosen.termination,
        max_events=config.cast.max_events,
        forward_buffer=config.cast.buffer_items,
        history=config.cast.history_keys,
        B=config.ordering.buffer,
        B_theorem=order_sizing.buffer_size([load], needed),
        H=config.ordering.hold,
        k=k,
        k_theorem=theorem_k,
        time_to_terminate_ms=config.ordering.time_to_terminate_ns / 1e6,
        time_to_recover_ms=config.ordering.time_to_recover_ns / 1e6,
        load=load,
        needed_rounds=needed,
        sizes=sizes,
        coverage=coverage,
        notes=tuple(notes),
        **_predicted(q, config, cast, sizes, load, coverage),
    )


def _predicted(
    q: PlanQuestion, config: Config, cast: PrCast, sizes: MessageSizes, load: float, coverage: float
) -> dict[str, Any]:
    """What these settings will do: the second half of a `Plan`."""
    round_ns, k = config.round_ns, config.ordering.k
    # Now that the round is known, so is a hop's share of it: the slower, the farther gossip gets.
    cast = cast._replace(latency=q.latency_ns / round_ns)
    copies = cast.copies()
    message = sizes.fixed + (load * copies / cast.fanout if q.mode == "rounds" else 0.0) * sizes.frame
    late = [t * round_ns / 1e6 for t in _latency(q, config, cast.arrivals(), load)]
    fails = unanswered(q.loss, q.crash, coverage, k)
    events_bytes = _events(q, sizes, copies) + _recovery(q, sizes, coverage, k)
    others = (q.members - 1) / q.members  # deliveries of an event, for each member
    with_events = copies / others if q.mode != "rounds" else cast.fanout / (load * others)
    standing, packets = _standing(q, config, sizes)
    standing_packets = packets if q.mode != "rounds" else 0.0
    return {
        "message_bytes": message,
        "bytes_per_s": standing + events_bytes,
        "events_bytes_per_s": events_bytes,
        "packets_per_delivery": with_events + standing_packets / max(1e-9, q.publishers * q.rate * others),
        "event_packets_per_delivery": with_events,
        "hops_p50": _hops(cast, 0.5),
        "hops_p99": _hops(cast, 0.99),
        "latency_p50_ms": late[0],
        "latency_p99_ms": late[2],
        "latency_p99_between_ms": (late[1], late[3]),
        "reach_gossip": cast.reach(),
        "reach": 1.0 if q.order == "reliable" else exp((q.members - 1) * log1p(-min(0.999, (1 - coverage) * fails))),
    }


MODES: tuple[Mode, ...] = ("eager", "tree", "rounds")
FEWER, LATER = 0.5, 1.5
"""Trees are chosen if they send fewer than this share of eager gossip's packets, and their p99 is at most so many times
eager gossip's: with much loss, what a tree misses comes late."""


def choose(question: PlanQuestion) -> ClusterPlan:
    """The plan of the mode to use: `eager`, unless trees save most of the packets and little time is lost."""
    eager, tree = (plan_cluster(msgspec.structs.replace(question, mode=mode)) for mode in MODES[:2])
    saves = tree.packets_per_delivery <= FEWER * eager.packets_per_delivery
    return tree if saves and tree.latency_p99_ms <= LATER * eager.latency_p99_ms else eager


def _settings(q: PlanQuestion, chosen: cast_sizing.Sizing, round_ns: int, load: float, k: int) -> Settings:
    return Settings(
        members=q.members,
        loss=q.swallowed,
        target=q.target,
        rate=load,
        round_ns=round_ns,
        latency_ns=q.latency_ns,
        mode=q.mode,
        k=k,
        fanout=chosen.fanout,
        termination=chosen.termination,
        max_events=max(20, cast_sizing.buffer(load, chosen.termination)),
    )


def _prcast_rounds(config: Config) -> float:
    """A PrCast's duration, as `Settings` has it: without own time-outs, it is `time_to_terminate`."""
    return config.ordering.time_to_terminate_ns / config.round_ns


def message_sizes(q: PlanQuestion, name_bytes: int, seq: int) -> MessageSizes:
    """What messages weigh: typical ones, encoded. `name_bytes`: of a member id; `seq`: of events on a ticket."""
    me = "m" * (name_bytes - 2) + "#1"
    inc = Incarnation(1, 0, q.publishers).packed
    vector: tuple[Entry, ...] = ((inc, seq),) * q.publishers
    members = ((me, 3),) * min(10, q.members)
    frame = Frame.of(q.publishers - 1, inc, seq, me, vector, [b"x" * q.payload])
    fixed = len(pack("main", me, Gossip((), (), Digest(vector), members)))
    twenty = len(pack("main", me, Gossip((frame,) * 20, (2,) * 20, Digest(vector), members)))
    tenure = ring.Tenure(q.publishers - 1, inc)
    nonce = 1 << 40
    voters = min(3, q.members) - 1 / 2  # with k = 1; a poll of the own vote is no message, for some coordinators
    sit = len(pack("main", me, ring.Sit(1, nonce, tenure, seq)))
    vouch = len(pack("main", me, ring.Vouch(1, nonce, me)))
    ping = len(pack("main", me, ring.NewSucc(tenure, tenure))) + len(pack("main", me, ring.AckSucc(tenure, tenure)))
    ask = len(pack("main", me, Recover(nonce, ((*tenure, seq, seq),)))) + len(pack("main", me, AckRecover(nonce, ())))
    nothing = len(pack("main", me, IHave()))
    key = (len(pack("main", me, IHave((frame.key,) * 10, (2,) * 10))) - nothing) / 10
    return MessageSizes(fixed, (twenty - fixed) / 20, round(voters * (sit + vouch)) + ping, ask, nothing, key)


def _round(q: PlanQuestion, chosen: cast_sizing.Sizing, sizes: MessageSizes, notes: list[str]) -> int:
    """The length of a round in ns."""
    round_ns = ROUND_LATENCIES * q.latency_ns
    if q.mode == "rounds":
        fits = int(60_000 / (2 * q.publishers * q.rate * chosen.termination * sizes.frame) * 1e9)
        if fits < round_ns:
            round_ns = max(LEAST_LATENCIES * q.latency_ns, fits)
            notes.append("the round is short because a message holds at most 60,000 bytes of events")
        if fits < LEAST_LATENCIES * q.latency_ns:
            notes.append("too many events for a message: publish several in one frame, or use --mode eager")
    return -(-round_ns // MS) * MS  # whole ms


def answers(loss: float, crash: float) -> float:
    """The probability that a question reaches a living member and its answer comes back."""
    return (1 - loss) ** 2 * (1 - crash)


def _asked(q: PlanQuestion, coverage: float, theorem: int) -> int:
    """Enough that nobody answers with a probability below 1 - target; at least Theorem 5.2's; at most `MOST_ASKED`."""
    one = 1 - answers(q.loss, q.crash) * coverage
    needed = 1 if one <= 0 else ceil(log(1 - q.target) / log(one))
    return max(1, min(q.members - 1, MOST_ASKED, max(4, theorem, needed)))


def unanswered(loss: float, crash: float, coverage: float, k: int) -> float:
    """The probability that recovery brings nothing: neither the peer that is known to have the event, nor any of k."""
    one = answers(loss, crash)
    return (1 - one) * (1 - one * coverage) ** k


def _standing(q: PlanQuestion, config: Config, sizes: MessageSizes) -> tuple[float, float]:
    """Bytes and packets per second that a living member sends, on average, whatever the load: rounds, announcements to
    half of its neighbours in a tree, and the bytes of the ring."""
    announced = (config.cast.degree + 0.5) / 2 if q.mode == "tree" else 0.0
    rounds_a_second = 1e9 / config.round_ns
    ring = sizes.ring * q.publishers / q.members * 1e9 / config.ring.round_ns
    packets = (min(config.cast.fanout, q.members - 1) + announced) * rounds_a_second
    return (config.cast.fanout * sizes.fixed + announced * sizes.announcement) * rounds_a_second + ring, packets


def _hops(cast: PrCast, share: float) -> int:
    """After how many hops so many of those have the event that get it at all."""
    reached = cast.coverage()
    first = reached[0]
    return next((h for h, all_ in enumerate(reached) if all_ - first >= share * (reached[-1] - first)), len(reached))


def _events(q: PlanQuestion, sizes: MessageSizes, copies: float) -> float:
    """Bytes per second that a living member sends, on average, for the events."""
    header = 0 if q.mode == "rounds" else sizes.frame * 0.1 + 24  # a push has a message of its own
    announced = (cast_sizing.neighbours(q.members) + 0.5) * sizes.key if q.mode == "tree" else 0.0
    return q.publishers * q.rate * (copies * (sizes.frame + header) + announced)


def _recovery(q: PlanQuestion, sizes: MessageSizes, coverage: float, k: int) -> float:
    """Bytes per second that a member sends, on average, for what gossip missed: it asks k and the one that is known to
    have it, and those answer that have it."""
    missed = q.publishers * q.rate * (1 - coverage)
    return missed * (k + 1) * (sizes.ask + coverage * sizes.frame)


def _latency(q: PlanQuestion, config: Config, arrivals: Arrivals, load: float) -> list[float]:
    """`QUANTILES` of the time from publish to delivery at another member, in rounds."""
    step, G = arrivals.step, list(arrivals.cdf)
    # What gossip misses is noticed by a digest, asked for after time_to_terminate, and back a round trip later.
    wait = round((config.ordering.time_to_terminate_ns + 2 * q.latency_ns) / config.round_ns / step)
    missed, noticed = 1 - G[-1], arrivals.noticed
    G += [G[-1]] * wait
    G = [g + missed * (noticed[i - wait] / noticed[-1] if i >= wait else 0.0) for i, g in enumerate(G)]
    D = list(G)
    own = 1 / q.publishers
    together = round((config.cast.termination - 1) / step) if q.mode == "rounds" else 0
    runs = run_size(arrivals, config.cast.fanout * (1 - q.swallowed), load, q.publishers) if q.mode == "rounds" else 1.0
    for _ in range(ITERATIONS):
        D = [g * exp(-w / runs) for g, w in zip(G, _waiting(G, D, load * step, own, together), strict=True)]
    top = D[-1]
    return [next((i for i, d in enumerate(D) if d >= share * top), len(D)) * step for share in QUANTILES]


def _waiting(G: list[float], D: list[float], events: float, own: float, together: int) -> list[float]:
    """W(t): events of the past still missing, on average, at every time t. `events` are published in a step; those
    that are not yet `together` steps old travel in the same messages as what depends on them."""
    past = [events * (own + (1 - own) * d) for d in D]
    late = [1 - g if i >= together else 0.0 for i, g in enumerate(G)]
    return [sum(p * x for p, x in zip(past, late[t:], strict=False)) for t in range(len(G))]


def run_size(arrivals: Arrivals, messages: float, load: float, publishers: int) -> float:
    """S: how many events a member misses in one run, on average, when so many `messages` come to it a round.

    A message brings all that its sender forwards. Those with a given event come with the hazard `h = G' / (1 - G)`; a
    share `h / messages` of all, so those with two events, published u apart, come with `h(t) h(t+u) / messages`. Two
    independent events would both be missed with probability m^2; so they are with `m^2 exp(overlap(u))`, for one
    message less has to stay away. `more` sums up how many more are missed with a given one than by chance; and those
    that its publisher has in the same round: they are in the very same messages. A run that goes on after each event
    with the same probability, and has so many more, has `1 + more / 2` events on average.
    """
    step, missed = arrivals.step, 1 - arrivals.cdf[-1]
    if missed < _NOTHING:
        return 1.0
    h = [log((1 - a) / (1 - b)) for a, b in pairwise((0.0, *arrivals.cdf))]
    more = _in_one_round(load / publishers)
    for u in range(len(h)):
        overlap = sum(a * b for a, b in zip(h, h[u:], strict=False)) / (step * messages)
        both = exp(min(overlap, -log(missed)))  # at most: missed for certain
        more += (2 if u else 1) * load * step * missed * (both - 1)
    return 1 + more / 2


def _in_one_round(rate: float) -> float:
    """How many other events the publisher of an event has in the same round, on average. At a rate of 2.3 a round it
    has 2 or 3, at 0.3 none or one, as in the papers, who have each publish with a probability a round."""
    least = int(rate)
    pairs = least * (least - 1) + 2 * least * (rate - least)  # the mean of c (c-1)
    return pairs / rate


_NOTHING = 1e-12
"""Probability below which nothing is missed."""


def window(plan: ClusterPlan, rounds: int) -> tuple[int, int, int]:
    """Of a check, in rounds: from when to when frames count, and how long an event may be needed. The load begins
    `ramp` before, when the ring stands."""
    start = 16 + 6 * plan.question.publishers.bit_length() + ramp(plan)
    return start, start + rounds, ceil(plan.needed_rounds)


def ramp(plan: ClusterPlan) -> int:
    """Rounds until as many events are under way as ever."""
    return plan.termination + 2


def scenario(plan: ClusterPlan, rounds: int = 200) -> dict[str, object]:
    """A table that `whence sim` runs, as TOML: the plan's settings, load, loss and crashes."""
    q = plan.question
    round_ns = round(plan.round_ms * 1e6)
    start, stop, span = window(plan, rounds)
    table: dict[str, object] = {
        "about": f"whence plan: {q.members} members, {q.publishers} publishers, {q.rate:g} events/s each, loss "
        f"{q.loss:g}, crash {q.crash:g}, target {q.target:g}.",
        "members": q.members,
        "round": f"{round_ns}ns",
        "duration": f"{stop + span}r",
        "settle": f"{max(40, 4 * span)}r",
        "network": {"latency": "normal", "mean": f"{q.latency_ns}ns", "sd": f"{q.latency_ns // 5}ns", "loss": q.loss},
        "cluster": {
            "tickets": q.publishers,
            "coordinators": q.publishers,
            "order": q.order,
            "mode": q.mode,
            "recovery": "Rk",
            "k": plan.k,
            "target": q.target,
            "fanout": plan.fanout,
            "termination": plan.termination,
            "max_events": plan.max_events,
            "buffer": plan.B,
            "workload": {
                "rate": plan.load / q.publishers,
                "payload": f"{q.payload}B",
                "start": f"{start - ramp(plan)}r",
            },
        },
    }
    if q.crash:  # a share is down at a time; they come back, with their disk, before views forget them
        down = 8
        spared = q.publishers if q.members > 2 * q.publishers else 1
        table["chaos"] = {
            "start": f"{max(1, start - 2 * down)}r",
            "crash": f"{down / (q.crash * q.members):.3f}r",
            "down": f"{down}r",
            "disk": 1.0,
            "spare": [f"n{i}" for i in range(spared)],
        }
    return table
