"""Every mechanism by name, with its settings: what settings files, tables and engines go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from whence.clock.interval import Stamp as Itc
from whence.errors import ConfigError
from whence.order.survey.base import Mechanism
from whence.order.survey.counts import ProcessId
from whence.order.survey.delta import DeltaCausal
from whence.order.survey.first import FirstGeneration
from whence.order.survey.identifiers import Identifiers
from whence.order.survey.interval import IntervalTree, shares
from whence.order.survey.physical import Physical
from whence.order.survey.vector import CompactMulticast, CompactUnicast, VectorClock

_MS = 1_000_000
Duration = Annotated[int, msgspec.Meta(ge=0, title="duration")]
"""Nanoseconds; in a settings file "10ms"."""


class SurveyConfig(msgspec.Struct, frozen=True):
    """Settings of the mechanisms; each looks at its own."""

    max_carried: int = 10_000
    """`first`, `first-unstable`: messages carried by one message. Fewer: smaller messages, but those beyond are waited
    for."""
    max_carried_bytes: int = 512 << 10
    """The same in bytes: with names and numbers it has to stay below `Limits.max_stamp_bytes`."""
    anchor_every: int = 8
    """Chained mechanisms over links that lose for good (order/stamped.py): each so many-th own multicast is an anchor.
    Fewer: smaller messages, but after giving one up, half as many of that sender are lost on average."""
    skew: Duration = 10 * _MS
    """`physical`: how far any two clocks may differ, in nanoseconds. It adds to every delivery's delay."""
    delay: Duration = 200 * _MS
    """`physical`: how long a message may take, recovery included, in nanoseconds. Longer: every delivery waits
    longer. Shorter: more is late, and lost."""
    hybrid: bool = True
    """`physical`: hybrid logical clocks, which also stand a clock that goes back."""
    lifetime: Duration = 1_000 * _MS
    """`delta`: nanoseconds for which an event is waited for, and after which it is discarded."""

    def __post_init__(self) -> None:
        for name, least in (("max_carried", 0), ("max_carried_bytes", 0), ("anchor_every", 1), ("lifetime", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")


def make(
    name: str,
    me: ProcessId,
    founders: Sequence[ProcessId],
    config: SurveyConfig = SurveyConfig(),  # noqa: B008
) -> Mechanism:
    """The mechanism `name` at process `me`; `founders` are there from the beginning, all others join."""
    try:
        return _MAKERS[name](me, tuple(founders), config)
    except KeyError:
        raise ConfigError(f"no mechanism {name!r}; there are {', '.join(MECHANISMS)}") from None


def _interval(me: ProcessId, founders: tuple[ProcessId, ...], config: SurveyConfig) -> Mechanism:
    return IntervalTree(me, shares(list(founders)).get(me, Itc(0, 0)))


_MAKERS: dict[str, Callable[[ProcessId, tuple[ProcessId, ...], SurveyConfig], Mechanism]] = {
    "first": lambda me, founders, config: FirstGeneration(me, config.max_carried, False, config.max_carried_bytes),
    "first-unstable": lambda me, founders, config: FirstGeneration(
        me, config.max_carried, True, config.max_carried_bytes
    ),
    "identifiers": lambda me, founders, config: Identifiers(me),
    "vector": lambda me, founders, config: VectorClock(me),
    "compact-multicast": lambda me, founders, config: CompactMulticast(me),
    "compact-unicast": lambda me, founders, config: CompactUnicast(me, founders),
    "interval": _interval,
    "physical": lambda me, founders, config: Physical(me, config.skew, config.delay, config.hybrid),
    "delta": lambda me, founders, config: DeltaCausal(me, config.lifetime),
}

MECHANISMS = tuple(_MAKERS)
"""The mechanisms that a cluster can be ordered by (order/stamped.py)."""
