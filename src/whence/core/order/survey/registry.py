"""Every mechanism by name, with its settings: what settings files, tables and engines go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whence.core.clock.interval import TreeStamp as Itc
from whence.core.order.survey.base import Mechanism, ProcessId
from whence.core.order.survey.config import MECHANISMS, SurveyConfig
from whence.core.order.survey.first import FirstGeneration
from whence.core.order.survey.timed import DeltaCausal, Physical
from whence.core.order.survey.vector import (
    CompactMulticast,
    CompactUnicast,
    Identifiers,
    IntervalTree,
    VectorClock,
    shares,
)
from whence.errors import ConfigError


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


_MAKERS: dict[str, Callable[[ProcessId, tuple[ProcessId, ...], SurveyConfig], Mechanism]] = {
    "first": lambda me, founders, config: FirstGeneration(me, config.max_carried, False, config.max_carried_bytes),
    "first-unstable": lambda me, founders, config: FirstGeneration(
        me, config.max_carried, True, config.max_carried_bytes
    ),
    "identifiers": lambda me, founders, config: Identifiers(me),
    "vector": lambda me, founders, config: VectorClock(me),
    "compact-multicast": lambda me, founders, config: CompactMulticast(me),
    "compact-unicast": lambda me, founders, config: CompactUnicast(me, founders),
    "interval": lambda me, founders, config: IntervalTree(me, shares(list(founders)).get(me, Itc(0, 0))),
    "physical": lambda me, founders, config: Physical(me, config.skew, config.delay),
    "delta": lambda me, founders, config: DeltaCausal(me, config.lifetime),
}
