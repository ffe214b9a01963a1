"""What of a step may leave before the disk has the step: else a slow disk would cost its member the ticket, and its
place in the others' views."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whence.core.cast.messages import Gossip, News, Subscribe, Welcome
from whence.core.order.messages import Recover, SnapshotRefused, SnapshotRequest
from whence.core.ports import Output, Send
from whence.core.ring.messages import Claim, Missing, Read, RingMessage, Sit

_QUESTIONS = (
    Subscribe,
    Welcome,
    Recover,
    SnapshotRequest,
    SnapshotRefused,
    Sit,
    Read,
    Claim,
    Missing,
)
"""Messages that hand on no event, and promise nothing as a voter. (SIT, like other messages of a ring, has the number
of the last event. If that event is lost with this process, its successor looks for it in vain.)"""


def without_frames(gossip: Gossip, news: bool = True) -> Gossip:
    """Only the membership in it, and the news of the ring."""
    kept = [(i, a) for i, a in zip(gossip.items, gossip.ages, strict=False) if news and isinstance(i, News)]
    return msgspec.structs.replace(
        gossip, items=tuple(i for i, _ in kept), ages=tuple(a for _, a in kept), digest=None, heads=()
    )


def split(out: Sequence[Output], promised: bool, digests: bool) -> tuple[list[Output], list[Output]]:
    """What may leave at once, and what waits for the disk. `promised`: a promise of a voter is not on disk yet, so
    what the ring says waits, too: ATTEND among it, so that a voter whose disk stands still is replaced as one that
    crashed. `digests`: those of rounds wait as well; else they are dropped."""
    early: list[Output] = []
    late: list[Output] = []
    lighter: dict[int, Gossip] = {}  # by the identity of a message: one that goes to many is encoded once
    for o in out:
        if not isinstance(o, Send):
            late.append(o)
        elif isinstance(o.message, _QUESTIONS) or (isinstance(o.message, RingMessage) and not promised):
            early.append(o)
        elif isinstance(o.message, Gossip):
            light = lighter.setdefault(id(o.message), without_frames(o.message, not promised))
            if light.items or light.members or light.unsubs:
                early.append(Send(o.to, light, o.reliable))
            if len(light.items) < len(o.message.items) or digests:
                late.append(o)
        else:
            late.append(o)
    return early, late
