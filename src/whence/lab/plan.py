"""The planner: from workload, network and target to settings and predictions.

Every setting comes from the formulas that the members themselves are sized by (`cast.sizing`, `order.recovery`,
`config.Settings`), every message's size from the codec. The planner adds:

* **round**: ten times the network's latency.
* **loss**: messages to a crashed member that is still in the views are lost, so gossip is planned for a loss of
  `1 - (1-x)(1-y)`.
* **k**: at least Theorem 5.2's `2 N y`, and enough that asking finds the event but for `1 - target`; at most
  `MOST_ASKED`.
* **latency**: an event is pushed at once at every hop, so a member has it after its number of hops. What gossip misses
  is noticed by a digest, asked for after `time_to_terminate`, and back a round trip later; below a lost push of a tree
  it comes by request, after an announcement. Meanwhile causal order holds back what is published after it.
* **bytes**: fanout messages a round, each with a digest of `n` entries and ten members; a push for each copy; the
  ring's polls; and for what gossip misses k + 1 questions and their answers.

Errors (`ERRORS`) are what `whence paper ccc11/planner` holds the predictions to: docs/planner.md has the measured ones.
"""

from __future__ import annotations

from math import ceil, exp, log, log1p
from typing import Any, Literal, NamedTuple

import msgspec

from whence.core.cast import sizing as cast_sizing
from whence.core.cast.messages import Gossip, IHave
from whence.core.clock import Digest, Entry, Frame, Incarnation
from whence.core.config import MS, Config, Settings
from whence.core.order.messages import AckRecover, Recover
from whence.core.order.recovery import buffer_size, needed_rounds
from whence.core.ring import messages as ring
from whence.core.wire import Message, pack
from whence.errors import ConfigError
from whence.lab.spread import PrCast

ROUND_LATENCIES = 10
"""Rounds are this many network latencies long."""
MOST_ASKED = 64
"""Members asked for a missing event, at most: Theorem 5.2's `2 N y` grows with the cluster, the need does not."""


class StatedError(NamedTuple):
    """How wrong a prediction may be: the sum of three parts."""

    text: str
    absolute: float = 0.0
    hops: float = 0.0
    """In network latencies."""
    relative: float = 0.0


ERRORS = {
    "reach_gossip": StatedError("within 0.1, absolute", absolute=0.1),
    "reach": StatedError("within 0.01, absolute", absolute=0.01),
    "latency_p50_ms": StatedError("within one hop; where most wait, from the hops to that", hops=1),
    "latency_p99_ms": StatedError("from p98.5 to p99.5, within one hop and 25 %", hops=1, relative=0.25),
    "bytes_per_s": StatedError("within 15 %", relative=0.15),
}


def recovery_fanout(members: int, failure: float) -> int:
    """CCC11 Lemma 5.2: ask at least `2 n p_f` processes to find a live one with high probability."""
    if not 0 <= failure <= 1:
        raise ConfigError(f"failure must be a probability, not {failure}")
    return max(1, ceil(2 * members * failure - 1e-9))


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
    mode: Literal["eager", "tree"] = "eager"

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
    B: int
    """Recovery buffer."""
    B_theorem: int
    """Theorem 5.1's `2 mu T`; `B` has a floor above it."""
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
    bytes_per_s: float
    """Sent by a member, on average (as much is received)."""
    events_bytes_per_s: float
    """Of these, what grows with the load."""
    packets_per_delivery: float
    """Sent by all members, for each delivery: events, rounds and announcements, without the ring and recovery."""
    latency_p50_ms: float
    latency_p50_between_ms: tuple[float, float]
    """Where most have to wait for what is recovered: from the hops alone to that."""
    latency_p99_ms: float
    latency_p99_between_ms: tuple[float, float]
    """p98.5, noticed soon, and p99.5, noticed late: where about one in a hundred has to be recovered, the p99 is one or
    the other."""
    reach_gossip: float
    """Probability that an event reaches all (living) members by gossip alone."""
    coverage: float
    """Share of members that gossip alone reaches, on average."""
    reach: float
    """Probability that it reaches all of them with recovery."""
    notes: tuple[str, ...] = ()

    def band(self, name: str) -> tuple[float, float]:
        """A prediction, give or take its stated error."""
        error, one = ERRORS[name], getattr(self, name)
        least, most = getattr(self, name.replace("_ms", "_between_ms")) if error.hops else (one, one)
        slack = error.absolute + error.hops * self.question.latency_ns / 1e6
        return least * (1 - error.relative) - slack, most * (1 + error.relative) + slack


def plan_cluster(
    question: PlanQuestion, name_bytes: int = 18, seq: int = 10_000, given: cast_sizing.Sizing | None = None
) -> ClusterPlan:
    """Settings for the question, and what they will do, where member ids are so long and events so many. `given`: with
    this fanout and termination."""
    q = question
    chosen = given or cast_sizing.choose(q.members, q.swallowed, q.target, q.mode)
    cast = PrCast(q.members, chosen.fanout, chosen.termination, q.swallowed, q.mode)
    round_ns = -(-ROUND_LATENCIES * q.latency_ns // MS) * MS  # whole ms
    load = q.publishers * q.rate * round_ns / 1e9
    coverage = cast.coverage()[-1]
    theorem_k = recovery_fanout(q.members, q.crash)
    k = _asked(q, coverage, theorem_k)
    settings = Settings(
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
    )
    config = settings.config(q.publishers, q.order)
    ordering = config.ordering
    waits = [t / round_ns for t in (ordering.time_to_terminate_ns, ordering.time_to_recover_ns)]
    needed = needed_rounds(waits[0], *waits)  # without own time-outs, a PrCast is time_to_terminate
    return ClusterPlan(
        question=q,
        settings=settings,
        round_ms=round_ns / 1e6,
        fanout=chosen.fanout,
        termination=chosen.termination,
        B=ordering.buffer,
        B_theorem=buffer_size([load], needed),
        k=k,
        k_theorem=theorem_k,
        time_to_terminate_ms=ordering.time_to_terminate_ns / 1e6,
        time_to_recover_ms=ordering.time_to_recover_ns / 1e6,
        load=load,
        needed_rounds=needed,
        reach_gossip=cast.reach(),
        coverage=coverage,
        notes=_notes(q, cast, k, theorem_k),
        **_predicted(q, config, cast, message_sizes(q, name_bytes, seq)),
    )


def _notes(q: PlanQuestion, cast: PrCast, k: int, theorem_k: int) -> tuple[str, ...]:
    notes = []
    if (most := cast.reach()) < q.target:
        notes.append(f"gossip alone cannot reach the target; the most it can is {most:.4f}: recovery does the rest")
    if k < theorem_k:
        down = f"{q.crash**k:.0e}"
        notes.append(f"Theorem 5.2 would ask {theorem_k} members; all of {k} are down with probability {down}")
    return tuple(notes)


def _predicted(q: PlanQuestion, config: Config, cast: PrCast, sizes: MessageSizes) -> dict[str, Any]:
    """What these settings will do: the second half of a plan."""
    coverage, copies, k = cast.coverage()[-1], cast.copies(), config.ordering.k
    others = (q.members - 1) / q.members  # deliveries of an event, for each member
    standing, packets, events_bytes = _traffic(q, config, cast, sizes)
    p50, p99 = (_latency_ms(q, config, cast, share) for share in (0.5, 0.99))
    between = _latency_ms(q, config, cast, 0.985, luck=0), _latency_ms(q, config, cast, 0.995, luck=1)
    fails = min(0.999, (1 - coverage) * unanswered(q.loss, q.crash, coverage, k))
    return {
        "sizes": sizes,
        "bytes_per_s": standing + events_bytes,
        "events_bytes_per_s": events_bytes,
        "packets_per_delivery": copies / others + packets / (q.publishers * q.rate * others),
        "latency_p50_ms": p50,
        "latency_p50_between_ms": (min(p50, _hops(cast, 0.5) * q.latency_ns / 1e6), p50),
        "latency_p99_ms": p99,
        "latency_p99_between_ms": between,
        "reach": 1.0 if q.order == "reliable" else exp((q.members - 1) * log1p(-fails)),
    }


FEWER, LATER = 0.5, 1.5
"""Trees are chosen if they send fewer than this share of eager gossip's packets, and their p99 is at most so many times
eager gossip's: with much loss, what a tree misses comes late."""


def choose(question: PlanQuestion) -> ClusterPlan:
    """The plan of the mode to use: `eager`, unless trees save most of the packets and little time is lost."""
    eager = plan_cluster(msgspec.structs.replace(question, mode="eager"))
    tree = plan_cluster(msgspec.structs.replace(question, mode="tree"))
    saves = tree.packets_per_delivery <= FEWER * eager.packets_per_delivery
    return tree if saves and tree.latency_p99_ms <= LATER * eager.latency_p99_ms else eager


def message_sizes(q: PlanQuestion, name_bytes: int, seq: int) -> MessageSizes:
    """What messages weigh: typical ones, encoded. `name_bytes`: of a member id; `seq`: of events on a ticket."""
    me = "m" * (name_bytes - 2) + "#1"
    inc = Incarnation(1, 0, q.publishers).packed
    vector: tuple[Entry, ...] = ((inc, seq),) * q.publishers
    members = ((me, 3),) * min(10, q.members)
    frame = Frame.of(q.publishers - 1, inc, seq, me, vector, [b"x" * q.payload])
    tenure, nonce = ring.Tenure(q.publishers - 1, inc), 1 << 40
    voters = min(3, q.members) - 1 / 2  # with k = 1; a poll of the own vote is no message, for some coordinators

    def size(*messages: Message) -> int:
        return sum(len(pack("main", me, message)) for message in messages)

    fixed = size(Gossip((), (), Digest(vector), members))
    twenty = size(Gossip((frame,) * 20, (2,) * 20, Digest(vector), members))
    polls = size(ring.Sit(1, nonce, tenure, seq), ring.Vouch(1, nonce, me))
    ping = size(ring.NewSucc(tenure, tenure), ring.AckSucc(tenure, tenure))
    ask = size(Recover(nonce, ((*tenure, seq, seq),)), AckRecover(nonce, ()))
    nothing = size(IHave())
    key = (size(IHave((frame.key,) * 10, (2,) * 10)) - nothing) / 10
    return MessageSizes(fixed, (twenty - fixed) / 20, round(voters * polls) + ping, ask, nothing, key)


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


def _traffic(q: PlanQuestion, config: Config, cast: PrCast, sizes: MessageSizes) -> tuple[float, float, float]:
    """What a living member sends, on average: bytes and packets a second whatever the load (rounds, announcements to
    half of its neighbours in a tree, and the bytes of the ring), and bytes a second for the events. Each push is a
    message of its own; for what gossip missed it asks k and the one that is known to have it, and those answer that
    have it."""
    tree, coverage, events = q.mode == "tree", cast.coverage()[-1], q.publishers * q.rate
    announced = (config.cast.neighbours + 0.5) / 2 if tree else 0.0
    rounds_a_second = 1e9 / config.round_ns
    polls = sizes.ring * q.publishers / q.members * 1e9 / config.ring.round_ns
    packets = (min(config.cast.fanout, q.members - 1) + announced) * rounds_a_second
    standing = (config.cast.fanout * sizes.fixed + announced * sizes.announcement) * rounds_a_second + polls
    header = sizes.frame * 0.1 + 24
    keys = (cast_sizing.neighbours(q.members) + 0.5) * sizes.key if tree else 0.0
    pushed = events * (cast.copies() * (sizes.frame + header) + keys)
    recovered = events * (1 - coverage) * (config.ordering.k + 1) * (sizes.ask + coverage * sizes.frame)
    return standing, packets, pushed + recovered


def _hops(cast: PrCast, share: float) -> int:
    """After how many hops this share of the other members has an event, or as many as get it in time."""
    first, *reached = cast.in_time()
    return next(h for h, has in enumerate(reached, 1) if has - first >= share * (1 - first) or h == len(reached))


def _latency_ms(q: PlanQuestion, config: Config, cast: PrCast, share: float, luck: float = 0.5) -> float:
    """The time from publish within which this share of the other members delivers an event. `luck`: how late what is
    late is noticed, from 0, as soon as it can be, to 1."""
    if q.mode == "tree":  # announced by a neighbour in one of the next two rounds, and asked for
        soon, late_rounds, wait = 1 / config.cast.neighbours, 2, config.cast.graft
    else:  # seen in a digest, of which `fanout` come in a round
        soon, late_rounds, wait = 1 / config.cast.fanout, 1, config.ordering.time_to_terminate_ns
    wait += round(config.round_ns * (soon + luck * (late_rounds - soon))) + 2 * q.latency_ns
    missed = (1 - cast.in_time()[-1]) * q.members / (q.members - 1)
    again = unanswered(q.loss, q.crash, cast.coverage()[-1], config.ordering.k)
    found = _hops(cast, share) * q.latency_ns / 1e9
    for missing, ns in ((missed, wait), (missed * again, wait + config.ordering.time_to_recover_ns)):
        # What is late holds back what is published meanwhile, and each of that for a part of the time.
        behind = q.publishers * q.rate * ns / 1e9
        late = min(1.0, missing * (1 + behind))
        if share > 1 - late:
            found = max(found, ns / 1e9 * min(1.0, (share - 1 + late) / late * (1 + behind) / behind))
    return found * 1e3


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
    start, stop, span = window(plan, rounds)
    table: dict[str, object] = {
        "about": f"whence plan: {q.members} members, {q.publishers} publishers, {q.rate:g} events/s each, loss "
        f"{q.loss:g}, crash {q.crash:g}, target {q.target:g}.",
        "members": q.members,
        "round": f"{round(plan.round_ms * 1e6)}ns",
        "duration": f"{stop + span}r",
        "settle": f"{max(40, 4 * span)}r",
        "network": {"latency": "normal", "mean": f"{q.latency_ns}ns", "sd": f"{q.latency_ns // 5}ns", "loss": q.loss},
        "cluster": {
            "tickets": q.publishers,
            "coordinators": q.publishers,
            "order": q.order,
            "mode": q.mode,
            "k": plan.k,
            "target": q.target,
            "fanout": plan.fanout,
            "termination": plan.termination,
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
