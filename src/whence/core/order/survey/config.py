"""The names and settings of the mechanisms. Apart from them, because most clusters use none."""

from __future__ import annotations

from typing import Annotated

import msgspec

from whence.core.clock.bounds import need

_MS = 1_000_000
Duration = Annotated[int, msgspec.Meta(ge=0, title="duration")]
"""Nanoseconds; in a settings file "10ms"."""


class SurveyConfig(msgspec.Struct, frozen=True):
    """Settings of the mechanisms; each looks at its own."""

    max_carried: int = 10_000
    """`first`, `first-unstable`: messages carried by one message. Fewer: smaller messages, but those beyond are waited
    for."""
    max_carried_bytes: int = 512 << 10
    """The same in bytes: with names and numbers it has to stay below `MAX_STAMP_BYTES`."""
    anchor_every: int = 8
    """Chained mechanisms over links that lose for good (core/order/stamped.py): each so many-th own multicast is an
    anchor. Fewer: smaller messages, but after giving one up, half as many of that sender are lost on average; with
    `identifiers` of all senders, and more than that."""
    skew: Duration = 10 * _MS
    """`physical`: how far any two clocks may differ, in nanoseconds. It adds to every delivery's delay."""
    delay: Duration = 200 * _MS
    """`physical`: how long a message may take, recovery included, in nanoseconds. Longer: every delivery waits
    longer. Shorter: more is late, and lost."""
    lifetime: Duration = 1_000 * _MS
    """`delta`: nanoseconds for which an event is waited for, and after which it is discarded."""

    def __post_init__(self) -> None:
        for name, least in (("max_carried", 0), ("max_carried_bytes", 0), ("anchor_every", 1), ("lifetime", 1)):
            need(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}")


MECHANISMS = (
    "first",
    "first-unstable",
    "identifiers",
    "vector",
    "compact-multicast",
    "compact-unicast",
    "interval",
    "physical",
    "delta",
)
"""The mechanisms that a cluster can be ordered by (core/order/stamped.py); `registry` makes them."""
