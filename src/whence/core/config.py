"""The settings of a cluster, and how they follow from what a user knows: how many, how lossy, how busy, how sure."""

from __future__ import annotations

from typing import Literal

import msgspec

from whence.core.cast import sizing as cast_sizing
from whence.core.cast.config import CastConfig
from whence.core.cast.sizing import Mode as Mode
from whence.core.order.config import OrderConfig, OrderName, Recovery, Replacement
from whence.core.order.contract import Contract
from whence.core.order.sizing import buffer_size, needed_rounds
from whence.core.order.survey.config import SurveyConfig
from whence.core.ring import DEFAULT_RING, RingConfig, RingName
from whence.core.wire.limits import DEFAULT, Limits
from whence.errors import ConfigError

MS = 1_000_000

CLUSTER_NAME_BYTES = 64


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All a member has to know of its cluster. `tickets`, `cast` and `ring` are the same for all members; the order
    is each member's own choice."""

    cluster: str
    """The cluster's name; a process may be in many."""
    tickets: int
    """`n`: how many may publish at a time."""
    round_ns: int
    """The length of a gossip round."""
    cast: CastConfig
    ring: RingConfig
    ordering: OrderConfig
    join_timeout_ns: int = 2_000 * MS
    """How long a joiner waits for a snapshot before it asks another member."""
    limits: Limits = DEFAULT
    """Caps on what a peer may send, and so on what may be published."""
    max_snapshots: int = 8
    """Snapshots being taken for others at a time; further joiners are told `busy`."""

    def __post_init__(self) -> None:
        if not self.cluster or len(self.cluster.encode()) > CLUSTER_NAME_BYTES:
            raise ConfigError(f"cluster name must have 1 to {CLUSTER_NAME_BYTES} bytes, not {self.cluster!r}")
        if not self.tickets == self.ring.tickets == self.ordering.tickets:
            raise ConfigError("tickets differ between cluster, ring and ordering")

    @property
    def free(self) -> bool:
        """A cluster without tickets: everybody may publish; there is no ring (`tickets` and `ring` mean nothing)."""
        return self.ordering.kind != "tickets"

    @property
    def order(self) -> OrderName:
        return self.ordering.order


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What a user knows of a cluster: how many, how lossy, how busy, how sure. `config` computes the rest by formula.
    None: by formula. Times are in rounds where the name has no unit."""

    members: int
    """About how many members there will be. With `loss`, gives fanout and termination (`cast.sizing.choose`)."""
    loss: float = 0.01
    """Share of messages that the network loses."""
    target: float = 0.999
    """Probability that gossip alone reaches everybody."""
    rate: float = 6.0
    """Frames a round in the whole cluster; gives the buffers (Theorem 5.1)."""
    mode: Mode = "rounds"
    """How events spread: `eager`, `tree` (large clusters) or `rounds` (docs/protocols.md)."""
    round_ns: int = 200 * MS
    latency_ns: int | None = None
    """A usual one-way delay; gives the time-outs."""
    view: Literal["full", "partial"] = "full"
    fanout: int | None = None
    termination: int | None = None
    max_events: int = 20
    """Frames in one gossip message."""
    history: int = 0
    recovery: Recovery = "Rk"
    k: int = 4
    """Members that are asked for what is missing (recovery `Rk`)."""
    once: bool = False
    """Ask once for what is missing, and not for what only digests show, as CCC11 prints it."""
    replacement: Replacement = "fifo"
    """What leaves a full recovery buffer: the first that came, or the oldest by age (`age`, CCC11 section 5.2)."""
    buffer: int | None = None
    buffer_bytes: int | None = 64 << 20
    """Bytes of recent frames kept for others' recovery. None: 16 MiB, and 64 MiB for `reliable`, which has nobody else
    to ask. More: a member may be behind for longer, or its application slower, before it misses something for good."""
    hold: int | None = None
    time_to_terminate: float | None = None
    """Rounds until what is missing is asked for."""
    time_to_recover: float | None = None
    """Rounds until a gap is skipped."""
    ring: RingName = DEFAULT_RING
    """Who decides who may publish (docs/ring.md): `council` or `neighbours`."""
    ring_k: int = 1
    ring_round_ns: int | None = None
    delta_ns: int | None = None
    contract: Contract | None = None
    """A cluster without tickets. Order `probabilistic` has one by default, for an error rate of 0.001 at this `rate`
    and `latency_ns` a hop."""
    mechanism: str = ""
    """A cluster without tickets, in causal order by this mechanism."""
    survey: SurveyConfig | None = None
    """Its settings. By default `physical` and `delta` wait twice as long as gossip and recovery may take."""

    def config(self, tickets: int, order: OrderName = "causal", cluster: str = "main") -> Config:
        """The settings of a member."""
        if self.members < 1 or tickets < 1:
            raise ConfigError(f"members and tickets must be at least 1, not {self.members} and {tickets}")
        delta = self.delta_ns if self.delta_ns is not None else max(4 * self._latency, self.round_ns // 12)
        round_ns = self.ring_round_ns if self.ring_round_ns is not None else max(self.round_ns, 12 * delta)
        cast = self._cast()
        return Config(
            cluster=cluster,
            tickets=tickets,
            round_ns=self.round_ns,
            cast=cast,
            ring=RingConfig(tickets=tickets, protocol=self.ring, k=self.ring_k, round_ns=round_ns, delta_ns=delta),
            ordering=self._ordering(tickets, order, self._prcast_ns(cast)),
            join_timeout_ns=max(20 * self._latency, 2 * self.round_ns),
        )

    @property
    def _latency(self) -> int:
        return self.latency_ns if self.latency_ns is not None else self.round_ns // 10

    def _cast(self) -> CastConfig:
        fanout, termination = self.fanout, self.termination
        if fanout is None or termination is None:
            chosen = cast_sizing.choose(self.members, self.loss, self.target, self.mode)
            fanout = chosen.fanout if fanout is None else fanout
            termination = chosen.termination if termination is None else termination
        return CastConfig(
            mode=self.mode,
            round=self.round_ns,
            fanout=fanout,
            termination=termination,
            max_events=self.max_events,
            members=self.members,
            loss=self.loss,
            load=max(self.rate, 0.1),
            history=self.history,
            view=self.view,
            graft=max(MS, cast_sizing.graft(self.members, self._latency)),
        )

    def _prcast_ns(self, cast: CastConfig) -> int:
        """How long a PrCast takes: in rounds mode one round a hop; in eager and tree mode one network delay a hop,
        doubled for its spread. A tree may have to be repaired, too."""
        if self.mode == "tree":
            return self.round_ns // 2 + 2 * cast.graft + 2 * self._latency
        return (cast.termination + 1) * (self.round_ns if self.mode == "rounds" else 2 * self._latency)

    def _ordering(self, tickets: int, order: OrderName, prcast_ns: int) -> OrderConfig:
        round_ns, latency = self.round_ns, self._latency
        # Papers: both time-outs are the rounds of a PrCast. An answer needs one round trip at least.
        terminate, recover = prcast_ns, max(prcast_ns, 4 * latency)
        if self.time_to_terminate is not None:
            terminate = int(self.time_to_terminate * round_ns)
        if self.time_to_recover is not None:
            recover = int(self.time_to_recover * round_ns)
        buffer, buffer_bytes, contract = self.buffer, self.buffer_bytes, self.contract
        if buffer is None:
            needed = needed_rounds(prcast_ns / round_ns, terminate / round_ns, recover / round_ns)
            theorem = buffer_size([self.rate], needed)
            # A blocking order keeps more: a member that returns from a partition has nobody else to ask.
            buffer = max(4096, 8 * theorem) if order == "reliable" else max(256, theorem)
        if buffer_bytes is None:
            buffer_bytes = (64 if order == "reliable" else 16) << 20
        if order == "probabilistic" and contract is None:
            contract = Contract(rate=self.rate * 1e9 / round_ns, delay=prcast_ns / 2e9, members=self.members)
        patience = terminate + recover
        return OrderConfig(
            order=order,
            tickets=tickets,
            recovery=self.recovery,
            k=self.k,
            once=self.once,
            replacement=self.replacement,
            hop_ns=round_ns if self.mode == "rounds" else max(1, latency),
            time_to_terminate_ns=max(1, terminate),
            time_to_recover_ns=max(1, recover),
            buffer=buffer,
            buffer_bytes=buffer_bytes,
            hold=self.hold if self.hold is not None else max(1024, buffer),
            abandon_ns=100 * patience,
            memory_ns=200 * patience,
            contract=contract,
            mechanism=self.mechanism,
            survey=self.survey or _survey(patience, latency),
        )


def _survey(patience: int, skew: int) -> SurveyConfig:
    return SurveyConfig(max_carried=100, max_carried_bytes=256 << 10, delay=patience, lifetime=2 * patience, skew=skew)
