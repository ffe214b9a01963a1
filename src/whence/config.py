"""The settings of a cluster, and how they follow from what a user knows: how many, how lossy, how busy, how sure."""

from __future__ import annotations

from typing import Literal

import msgspec

from whence.cast import sizing as cast_sizing
from whence.cast.config import CastConfig
from whence.cast.sizing import Mode as Mode
from whence.errors import ConfigError
from whence.order.config import OrderConfig, OrderName, Recovery, Replacement
from whence.order.contract import Contract
from whence.order.sizing import buffer_size, needed_rounds
from whence.order.survey.config import SurveyConfig
from whence.ring import DEFAULT_RING, RingConfig, RingName
from whence.wire.limits import DEFAULT, Limits

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

    @classmethod
    def sized(
        cls,
        *,
        cluster: str = "main",
        tickets: int,
        members: int,
        order: OrderName = "causal",
        loss: float = 0.01,
        target: float = 0.999,
        rate: float = 6.0,
        round_ns: int = 200 * MS,
        latency_ns: int | None = None,
        mode: Mode = "rounds",
        recovery: Recovery = "Rk",
        once: bool = False,
        replacement: Replacement = "fifo",
        view: Literal["full", "partial"] = "full",
        k: int = 4,
        fanout: int | None = None,
        termination: int | None = None,
        max_events: int = 20,
        history: int = 0,
        buffer: int | None = None,
        buffer_bytes: int = 64 << 20,
        hold: int | None = None,
        time_to_terminate: float | None = None,
        time_to_recover: float | None = None,
        ring: RingName = DEFAULT_RING,
        ring_k: int = 1,
        ring_round_ns: int | None = None,
        delta_ns: int | None = None,
        contract: Contract | None = None,
        mechanism: str = "",
        survey: SurveyConfig | None = None,
    ) -> Config:
        """Defaults by formula.

        `members` and `loss` (of one message) give fanout and termination such that a PrCast reaches all with
        probability `target` (`cast.sizing.choose`). `rate` (frames a round in the whole cluster) gives the buffers
        (Theorem 5.1). `latency_ns`, a usual one-way delay, gives the time-outs; times in rounds where the name has
        no unit.

        `contract`: a cluster without tickets; order `probabilistic` has one by default, for an error rate of 0.001 at
        this `rate` and `latency_ns` a hop.

        `mechanism`: a cluster without tickets, in causal order by that mechanism. `survey`: its settings; by default
        what `physical` and `delta` wait for is what gossip and recovery may take, and as much again.
        """
        if members < 1 or tickets < 1:
            raise ConfigError(f"members and tickets must be at least 1, not {members} and {tickets}")
        latency = latency_ns if latency_ns is not None else round_ns // 10
        if fanout is None or termination is None:
            chosen = cast_sizing.choose(members, loss, target, mode)
            fanout = chosen.fanout if fanout is None else fanout
            termination = chosen.termination if termination is None else termination
        # How long a PrCast takes: in rounds mode one round a hop; in eager and tree mode one network delay a hop,
        # doubled for its spread. A tree may have to be repaired, too.
        graft = max(MS, cast_sizing.graft(members, latency))
        if mode == "tree":
            prcast_ns = round_ns // 2 + 2 * graft + 2 * latency
        else:
            prcast_ns = (termination + 1) * (round_ns if mode == "rounds" else 2 * latency)
        terminate_ns = prcast_ns if time_to_terminate is None else int(time_to_terminate * round_ns)
        # Papers: both time-outs are the rounds of a PrCast. An answer needs one round trip at least.
        recover_ns = max(prcast_ns, 4 * latency) if time_to_recover is None else int(time_to_recover * round_ns)
        needed = needed_rounds(prcast_ns / round_ns, terminate_ns / round_ns, recover_ns / round_ns)
        theorem = buffer_size([rate], needed)
        if buffer is None:
            # A blocking order keeps more: a member that returns from a partition has nobody else to ask.
            buffer = max(4096, 8 * theorem) if order == "reliable" else max(256, theorem)
        if order == "probabilistic" and contract is None:
            contract = Contract(rate=rate * 1e9 / round_ns, delay=prcast_ns / 2e9, members=members)
        if survey is None:
            patience = terminate_ns + recover_ns
            survey = SurveyConfig(
                max_carried=100, max_carried_bytes=256 << 10, delay=patience, lifetime=2 * patience, skew=latency
            )
        delta = delta_ns if delta_ns is not None else max(4 * latency, round_ns // 12)
        abandon_ns = 100 * (terminate_ns + recover_ns)
        return cls(
            cluster=cluster,
            tickets=tickets,
            round_ns=round_ns,
            cast=CastConfig(
                mode=mode,
                round=round_ns,
                fanout=fanout,
                termination=termination,
                max_events=max_events,
                members=members,
                loss=loss,
                load=max(rate, 0.1),
                history=history,
                view=view,
                graft=graft,
            ),
            ring=RingConfig(
                tickets=tickets,
                protocol=ring,
                k=ring_k,
                round_ns=ring_round_ns if ring_round_ns is not None else max(round_ns, 12 * delta),
                delta_ns=delta,
            ),
            ordering=OrderConfig(
                order=order,
                tickets=tickets,
                recovery=recovery,
                k=k,
                once=once,
                replacement=replacement,
                hop_ns=round_ns if mode == "rounds" else max(1, latency),
                time_to_terminate_ns=max(1, terminate_ns),
                time_to_recover_ns=max(1, recover_ns),
                buffer=buffer,
                buffer_bytes=buffer_bytes,
                hold=hold if hold is not None else max(1024, buffer),
                abandon_ns=abandon_ns,
                memory_ns=2 * abandon_ns,
                contract=contract,
                mechanism=mechanism,
                survey=survey,
            ),
            join_timeout_ns=max(20 * latency, 2 * round_ns),
        )
