"""The settings of a cluster: what a user can turn, each with its unit, its formula and its price.

`Settings` is the one place for them, live (`whence.join(..., settings=...)`), simulated (a scenario's `[cluster]`
table) and planned (`whence plan`). `Settings.config` computes from them what the parts of a member need. What nobody
should turn is a constant beside the code that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from whence.core.cast import sizing as cast_sizing
from whence.core.cast.config import CastConfig
from whence.core.cast.sizing import Mode as Mode
from whence.core.clock.bounds import need
from whence.core.order.config import OrderConfig, OrderName, Recovery, Replacement
from whence.core.order.contract import Contract
from whence.core.order.recovery import buffer_size, needed_rounds
from whence.core.order.survey.config import Duration, SurveyConfig
from whence.core.ring import DEFAULT_RING, RingConfig, RingName
from whence.core.wire import is_name
from whence.errors import ConfigError

MS = 1_000_000

CLUSTER_NAME = 64
LEAST_BUFFER = 4096
"""Frames: the smallest recovery buffer by formula."""
LEAST_HISTORY = 16_384
"""Keys: the smallest history by formula; 3 MB when it is full."""
MOST_TOTAL = 256
"""Tickets of a cluster with total order: voters report all of them."""
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts of a member get, computed by `Settings.config`. `tickets`, `cast` and `ring` are the same for all
    members; the order is each member's own choice."""

    cluster: str
    """The cluster's name; a process may be in many."""
    tickets: int
    """`n`: how many may publish at a time."""
    round_ns: int
    cast: CastConfig
    ring: RingConfig
    ordering: OrderConfig
    join_timeout_ns: int
    """How long a joiner waits for a snapshot before it asks another member."""

    def __post_init__(self) -> None:
        named = is_name(self.cluster) and len(self.cluster) <= CLUSTER_NAME
        need(named, f"cluster name must have 1 to {CLUSTER_NAME} visible ASCII characters, not {self.cluster!r}")

    @property
    def free(self) -> bool:
        """A cluster without tickets: everybody may publish; there is no ring (`tickets` and `ring` mean nothing)."""
        return self.ordering.kind != "tickets"

    @property
    def order(self) -> OrderName:
        return self.ordering.order


_FILE_NAMES = {f"{name}_ns": name for name in ("round", "latency", "ring_round", "delta", "abandon")}
"""In a file a time has its unit in its value: `ring_round = "1s"`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_FILE_NAMES):
    """The settings of a cluster, the same at all members (`queue_*` are a node's own). None: by formula. Times named
    `_ns` are nanoseconds, `time_to_*` are rounds.

    By default a publish is pushed at once, and rounds repair. The times of the ring and of recovery are such that a
    process stalled for a few hundred milliseconds keeps its ticket and loses no event."""

    members: Positive = 32
    """About how many members there will be. With `loss`, gives fanout and termination (`cast.sizing.choose`)."""
    loss: float = 0.01
    """Share of messages that the network loses."""
    target: float = 0.999
    """Probability that gossip alone reaches everybody. Higher: more copies of every event; recovery gets the rest."""
    rate: float = 64.0
    """Frames a round in the whole cluster; gives the buffers (Theorem 5.1)."""
    mode: Mode = "eager"
    """How events spread (docs/protocols.md). `eager`: pushed at once and forwarded once; network latency, traffic by
    load. `tree`: pushed along trees, about one packet a member; for large clusters. `rounds`: in the messages of the
    rounds, as in the papers; constant traffic, about half a round of latency a hop."""
    round_ns: Duration = 200 * MS
    """Between two rounds of a member: digests and membership, and in mode `rounds` the events. Shorter: faster repair
    and detection of crashes; cost: `fanout` messages a round for every member."""
    latency_ns: Duration = 5 * MS
    """A usual one-way delay of the network; gives the time-outs."""
    view: Literal["full", "partial"] = "full"
    """`full`: everybody is known. `partial`: lpbcast's bounded view, for large clusters."""
    fanout: Positive | None = None
    """Members that a message goes to; by formula the least that reaches all with probability `target`."""
    termination: Positive | None = None
    """Rounds or hops after which an event is not forwarded any more; by formula, with `fanout`."""
    max_events: Positive = 20
    """Frames in one gossip message. Too few for the load: frames are pushed out before everybody has them."""
    history: Positive | None = None
    """Keys remembered to suppress second deliveries, 200 bytes each; `2 rate (termination + 2)`, at least
    `LEAST_HISTORY` (papers: 40). Too few: an event is forwarded twice, and vetted twice."""
    recovery: Recovery = "Rk"
    """Who is asked for what is missing: nobody (`off`), its source (`R1`), `k` members at random (`Rk`). R1 costs one
    message and fails with its source; Rk costs `k` and spreads the load (CCC11 section 5.2)."""
    k: Positive = 4
    """Members that are asked with `Rk`; right for a failure probability up to `k / 2N` (Theorem 5.2)."""
    once: bool = False
    """Ask once for what is missing, and not for what only digests show, as CCC11 prints it. Fewer messages; the last
    event of a burst may stay lost."""
    replacement: Replacement = "fifo"
    """What leaves a full recovery buffer: what came first, or the oldest by age (`age`, CCC11 section 5.2)."""
    buffer: Positive | None = None
    """`B`, frames kept for others' recovery: `2 mu T` (Theorem 5.1), eight times that for `reliable`, which has nobody
    else to ask; at least `LEAST_BUFFER`."""
    buffer_bytes: Positive | None = None
    """`B` in bytes: 16 MiB, 64 MiB for `reliable`. More: a member may be behind for longer, or its application slower,
    before it misses something for good."""
    hold: Positive | None = None
    """`H` and `R`, frames received too early: `max(1024, B)`. Full: `causal` skips the oldest gap, `reliable` drops the
    newest frame, which is asked for again."""
    time_to_terminate: float | None = None
    """Rounds until what is missing is asked for: the duration of a PrCast, at least half a round. Shorter: recovers
    sooner, and asks for more that was on its way."""
    time_to_recover: float | None = None
    """Rounds until a gap is skipped (`reliable`: asked for again): 10; in mode `rounds` the duration of a PrCast, as in
    the papers. At least two round trips."""
    abandon_ns: Duration | None = None
    """`reliable`: when what every known member lacks is given up: 100 times both time-outs. After twice as long silence
    counts as no. Longer: survives longer partitions. Shorter: unblocks sooner when the last holder is dead."""
    ring: RingName = DEFAULT_RING
    """Who decides who may publish (docs/ring.md): `council`, or `neighbours` (CCC11 Algorithms 2 to 4,
    corrected)."""
    ring_k: int = 3
    """Failures at a time that the ring survives, among 2k+1 voters or neighbours. More: more polls a ring round."""
    delta_ns: Duration | None = None
    """The longest one-way delay of a good link, stalls of its processes included: `1.25 rounds`, at least four
    latencies. Longer: a stalled process keeps its ticket; tickets of the dead come back later."""
    ring_round_ns: Duration | None = None
    """A round of the ring: `4 delta`. Shorter: failures are found sooner, for more messages."""
    total: bool = False
    """Total order for the members that want it (docs/total.md). Frames carry stamps, about 8 bytes; only members in
    total order vote."""
    contract: Contract | None = None
    """A cluster without tickets, where everybody may publish: its (N, R, K) clock follows from this. Order
    `probabilistic` has one by default, for an error rate of 0.001 at this `rate` and `latency_ns` a hop."""
    mechanism: str = ""
    """A cluster without tickets, in causal order by this mechanism of the survey (docs/survey.md)."""
    survey: SurveyConfig | None = None
    """Its settings. By default `physical` and `delta` wait twice as long as gossip and recovery may take."""
    queue_events: Positive = 65_536
    """Events that wait for the application before more is shed. A node's own; live only."""
    queue_bytes: Positive = 64 << 20
    """Bytes likewise."""

    def __post_init__(self) -> None:
        for name, names in (("ring", get_args(RingName)), ("mode", get_args(Mode))):
            given = getattr(self, name)
            if given not in names:
                raise ConfigError(
                    f"settings: {name} must be one of {', '.join(names)}, not {given!r}{near(str(given), names)}"
                )

    @classmethod
    def of(cls, given: Settings | Mapping[str, Any] | None, profile: str = "") -> Settings:
        """From a mapping, as an application or a command line gives it, over the defaults of a profile (`PROFILES`)."""
        if isinstance(given, Settings):
            if profile:
                raise ConfigError(f"profile {profile!r} gives the defaults of a mapping, not of Settings(...)")
            return given
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"settings must be whence.Settings(...) or a mapping of names to values, not {given!r}; a file is for "
                "`whence node --settings FILE`"
            )
        for name in given:
            if name not in cls.__struct_fields__:
                raise ConfigError(f"settings: there is no {name!r}{near(str(name), cls.__struct_fields__)}")
        return msgspec.structs.replace(defaults(profile), **given)

    def config(self, tickets: int, order: OrderName = "causal", cluster: str = "main") -> Config:
        """What the parts of a member of this cluster get."""
        try:
            return self._config(tickets, order, cluster)
        except TypeError as error:
            raise ConfigError(f"settings: {error}") from None

    def _config(self, tickets: int, order: OrderName, cluster: str) -> Config:
        least = min(self.members, tickets)
        council = self.ring == "council" and tickets <= MOST_TOTAL
        need(council or not self.total, f"total order needs ring council, and at most {MOST_TOTAL} tickets")
        need(least >= 1, f"members and tickets must be at least 1, not {self.members} and {tickets}")
        delta = self.delta_ns if self.delta_ns is not None else max(self.round_ns * 5 // 4, 4 * self.latency_ns)
        ring_round = self.ring_round_ns if self.ring_round_ns is not None else 4 * delta
        cast = self._cast()
        return Config(
            cluster=cluster,
            tickets=tickets,
            round_ns=self.round_ns,
            cast=cast,
            ring=RingConfig(tickets=tickets, protocol=self.ring, k=self.ring_k, round_ns=ring_round, delta_ns=delta),
            ordering=self._ordering(tickets, order, self._prcast_ns(cast)),
            join_timeout_ns=max(20 * self.latency_ns, 2 * self.round_ns),
        )

    def _cast(self) -> CastConfig:
        fanout, termination = self.fanout, self.termination
        if fanout is None or termination is None:
            chosen = cast_sizing.choose(self.members, self.loss, self.target, self.mode)
            fanout = chosen.fanout if fanout is None else fanout
            termination = chosen.termination if termination is None else termination
        load = max(self.rate, 0.1)
        return CastConfig(
            mode=self.mode,
            round=self.round_ns,
            fanout=fanout,
            termination=termination,
            max_events=self.max_events,
            members=self.members,
            loss=self.loss,
            load=load,
            history=self.history or max(LEAST_HISTORY, cast_sizing.history(load, termination)),
            view=self.view,
            graft=max(MS, cast_sizing.graft(self.members, self.latency_ns)),
        )

    def _prcast_ns(self, cast: CastConfig) -> int:
        """How long a PrCast takes: in rounds mode one round a hop; in eager mode one network delay a hop, doubled for
        its spread. A tree may have to be repaired."""
        if self.mode == "tree":
            return 2 * cast.graft + 2 * self.latency_ns
        return (cast.termination + 1) * (self.round_ns if self.mode == "rounds" else 2 * self.latency_ns)

    def _ordering(self, tickets: int, order: OrderName, prcast_ns: int) -> OrderConfig:
        round_ns, latency = self.round_ns, self.latency_ns
        terminate = max(prcast_ns, round_ns // 2)
        recover = max(prcast_ns if self.mode == "rounds" else 10 * round_ns, 4 * latency)
        if self.time_to_terminate is not None:
            terminate = int(self.time_to_terminate * round_ns)
        if self.time_to_recover is not None:
            recover = int(self.time_to_recover * round_ns)
        blocking = order in ("reliable", "total")
        buffer, contract = self.buffer, self.contract
        if buffer is None:
            needed = needed_rounds(prcast_ns / round_ns, terminate / round_ns, recover / round_ns)
            buffer = max(LEAST_BUFFER, (8 if blocking else 1) * buffer_size([self.rate], needed))
        if order == "probabilistic" and contract is None:
            contract = Contract(rate=self.rate * 1e9 / round_ns, delay=prcast_ns / 2e9, members=self.members)
        patience = terminate + recover
        abandon = self.abandon_ns if self.abandon_ns is not None else 100 * patience
        return OrderConfig(
            order=order,
            total=self.total,
            tickets=tickets,
            recovery=self.recovery,
            k=self.k,
            once=self.once,
            replacement=self.replacement,
            hop_ns=round_ns if self.mode == "rounds" else max(1, latency),
            time_to_terminate_ns=max(1, terminate),
            time_to_recover_ns=max(1, recover),
            buffer=buffer,
            buffer_bytes=self.buffer_bytes or (64 if blocking else 16) << 20,
            hold=self.hold if self.hold is not None else max(1024, buffer),
            abandon_ns=abandon,
            memory_ns=2 * abandon,
            contract=contract,
            mechanism=self.mechanism,
            survey=self.survey or SurveyConfig(100, 256 << 10, delay=patience, lifetime=2 * patience, skew=latency),
        )


PROFILES: dict[str, Settings] = {
    "": Settings(),
    "ccc11": Settings(
        ring="neighbours", mode="rounds", view="partial", fanout=4, termination=5, history=40, recovery="R1"
    ),
}
"""Sets of defaults. `ccc11`: the system of CCC11 section 6, with our corrections of its algorithms: the ring of
Algorithms 2 to 4, ETTB gossip in rounds, lpbcast's views, 20 events and 10 members a message, R1 (or Rk, where `k` is
4), a recovery buffer that is first in, first out. Everything else is as in any cluster."""


def defaults(profile: str) -> Settings:
    """The settings of a profile; empty: what we recommend."""
    if profile not in PROFILES:
        raise ConfigError(f"there is no profile {profile!r}; there are: {', '.join(filter(None, PROFILES))}")
    return PROFILES[profile]


def near(wrong: str, known: Iterable[str]) -> str:
    """A suggestion, where a known name is close."""
    import difflib  # lazily: it takes memory, and most are spelled right

    close = difflib.get_close_matches(wrong, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
