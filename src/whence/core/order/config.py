"""The knobs of an order, each with its formula and its price."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from whence.core.clock.bounds import need
from whence.core.order.contract import Contract
from whence.core.order.survey.config import MECHANISMS, SurveyConfig
from whence.errors import ConfigError

FREE_ORDERS = ("unordered", "fifo", "probabilistic")
"""What a member of a cluster with a contract, so without tickets, can have."""
TICKET_ORDERS = ("unordered", "fifo", "causal", "reliable", "total")
"""What a member of a cluster with tickets can have."""
OrderName = Literal["unordered", "fifo", "causal", "reliable", "probabilistic", "total"]
Recovery = Literal["off", "R1", "Rk"]
Replacement = Literal["fifo", "age"]
ORDERS: tuple[str, ...] = get_args(OrderName)
RANK = {name: rank for rank, name in enumerate(ORDERS)}
"""How much an order promises: each includes those before it, but `probabilistic` neither `causal` nor `reliable`."""
RECOVERIES: tuple[str, ...] = get_args(Recovery)
REPLACEMENTS: tuple[str, ...] = get_args(Replacement)


class OrderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a member promises its application, and what it spends on the promise."""

    order: OrderName = "causal"
    """`unordered`: at first sight. `fifo`: per publisher. `causal`: never an effect before its cause, what cannot be
    had in time is skipped. `reliable`: as causal, but blocks rather than skips. `probabilistic`: as causal but for a
    small share, in a cluster without tickets. `total`: as reliable, and in one sequence with all others in this order
    (docs/total.md)."""
    total: bool = False
    """The cluster has total order for who wants it: its frames carry stamps, its voters keep logs."""
    tickets: int
    """`n`, the entries of the clock: header bytes and check time grow with it."""
    # As in `Settings`, computed: times in nanoseconds, sizes in frames and bytes.
    recovery: Recovery = "Rk"
    k: int = 4
    once: bool = False
    replacement: Replacement = "fifo"
    time_to_terminate_ns: int
    time_to_recover_ns: int
    buffer: int
    buffer_bytes: int = 64 << 20
    hold: int
    hold_bytes: int = 64 << 20
    abandon_ns: int
    contract: Contract | None = None
    mechanism: str = ""
    survey: SurveyConfig = SurveyConfig()
    hop_ns: int = 1
    """Duration of one hop of gossip: a frame's age in hops, as time."""
    memory_ns: int
    """How long events of a crashed owner's tenure stay deliverable after the next tenure has begun."""
    tail_attempts: int = 5
    """How often the silent tail (an event nobody has followed up on) is asked for. Departs from "once per id": nothing
    waits for it and no later event will show the loss."""
    max_frame_events: int = 1024
    """Events in one frame: the unit of the causal check, of recovery and of loss."""
    max_ranges: int = 64
    """Ranges in one RECOVER."""
    max_answer_frames: int = 256
    """Frames in one ACKRECOVER; more is asked for again."""
    max_answer_bytes: int = 1 << 20
    max_jump: int = 1 << 28
    """A timestamp this many events ahead of anything known is absurd: a hostile peer, not a long absence. Smaller
    cuts off honest peers of a busy cluster after a partition."""

    @property
    def blocking(self) -> bool:
        """It waits for what is missing instead of skipping it."""
        return self.order in ("reliable", "total")

    @property
    def joins(self) -> str:
        """What a joiner must have been made for, too: the kind, and total order."""
        return f"{self.kind} and total order" if self.total else self.kind

    @property
    def kind(self) -> str:
        """The kind of cluster: `tickets`, `no tickets` (it has a contract), or the name of a mechanism."""
        return self.mechanism or ("tickets" if self.contract is None else "no tickets")

    def __post_init__(self) -> None:
        for name, names in (("order", ORDERS), ("recovery", RECOVERIES), ("replacement", REPLACEMENTS)):
            given = getattr(self, name)
            need(given in names, f"{name} must be one of {', '.join(names)}, not {given!r}")
        if self.mechanism:
            if self.mechanism not in MECHANISMS:
                raise ConfigError(f"mechanism must be one of {', '.join(MECHANISMS)}, not {self.mechanism!r}")
            if self.contract is not None or self.order != "causal":
                raise ConfigError(f"mechanism {self.mechanism} makes order causal, and needs no contract")
        elif self.order not in (TICKET_ORDERS if self.contract is None else FREE_ORDERS):
            raise ConfigError(
                f"order {self.order}: a cluster without tickets (it has a contract) offers {', '.join(FREE_ORDERS)}, "
                f"one with tickets {', '.join(TICKET_ORDERS)}"
            )
        if self.replacement == "age" and self.kind != "tickets":
            raise ConfigError(f"replacement age needs tickets: this cluster is {self.kind}")
        if self.total and self.kind != "tickets":
            raise ConfigError(f"total order needs tickets: this cluster is {self.kind}")
        if self.order == "total" and not self.total:
            raise ConfigError("order total needs a cluster that was created with total=True: its voters keep the logs")
        if self.once and self.blocking:
            raise ConfigError(f"order {self.order} cannot ask only once: it blocks until what is missing is there")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            need(type(value) is not int or value >= 1, f"{name} must be at least 1, not {value}")
        if self.blocking and self.recovery == "off":
            why = "it blocks until what is missing is pulled back"
            raise ConfigError(f"order {self.order} needs recovery R1 or Rk: {why}")
