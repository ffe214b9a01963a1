"""From the messages of a step to packets."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from whence.core.clock import MemberId, address_of
from whence.core.ports import Output, Send
from whence.core.wire import pack
from whence.live.net.counters import NodeStats
from whence.live.net.hello import direct

log = logging.getLogger("whence.live.net")


class Parcel(msgspec.Struct, frozen=True, gc=False):
    """A packet and where it goes."""

    to: Sequence[str]
    packet: bytes
    reliable: bool


def parcels(cluster: str, me: MemberId, out: Sequence[Output], cap: int, stats: NodeStats) -> list[Parcel]:
    """The packets of all messages in `out`. A message that goes to many is encoded once; one larger than `cap` is
    dropped and counted: no peer would take it."""
    made: list[Parcel] = []
    shared: dict[int, list[str]] = {}  # by the identity of a message: `out` keeps them alive
    for o in out:
        if type(o) is not Send:
            continue
        to = shared.get(id(o.message)) if not o.reliable else None
        if to is not None:
            to.append(address_of(o.to))
            continue
        packet = pack(cluster, me, o.message)
        if len(packet) > cap:
            stats.oversize += 1
            log.error("%s: a %s of %d bytes is too large to be sent", me, type(o.message).__name__, len(packet))
            continue
        to = [address_of(o.to)]
        if o.reliable:
            packet = direct(o.to, packet)
        else:
            shared[id(o.message)] = to
        made.append(Parcel(to, packet, o.reliable))
    return made
