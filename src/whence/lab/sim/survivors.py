"""What died: events that no living member holds, one by one, and which members may still wait for them.

An event dies when everybody who held it has crashed without a disk, or stays down. `reliable` waits for such an event
until it is given up (`abandon`), and holds back what depends on it. Everything else that a reliable member lacks breaks
agreement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from whence.core.clock import EventId, Frame, FreeId, Incarnation
from whence.lab.sim.host import TenureKey, tenure_of

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance

Bits = dict[TenureKey, int]
"""Events of tenures: bit `seq`."""


def died(published: Mapping[TenureKey, int], instances: Iterable[Instance]) -> Bits:
    """The events that no living member has in its application's state or can give to others. `published`: tenure -> its
    last event."""
    left = {tenure: ((1 << last) - 1) << 1 for tenure, last in published.items()}
    for instance in instances:
        for tenure, bits in instance.app.seen.items():
            if tenure in left:
                left[tenure] &= ~bits
        for frame in instance.member.ordering.buffer:
            tenure = tenure_of(frame)
            if tenure in left:
                left[tenure] &= ~(((1 << frame.count) - 1) << frame.first)
    return {tenure: bits for tenure, bits in left.items() if bits}


def count(events: Bits) -> int:
    return sum(bits.bit_count() for bits in events.values())


def names(events: Bits) -> Iterator[str]:
    """The ids of events."""
    for (ticket, inc, owner), bits in events.items():
        for seq in range(bits.bit_length()):
            if bits >> seq & 1:
                yield str(FreeId(owner, seq) if ticket < 0 else EventId(ticket, inc, seq, owner))


def waiting(instance: Instance, dead: Bits) -> list[Any]:
    """The keys of the frames that a blocking order holds back for a dead event, or for what waits for one."""
    if not instance.member.ordering.blocking or not dead:
        return []
    gone: dict[tuple[int, int], int] = {}
    for (ticket, inc, _), bits in dead.items():
        gone[ticket, inc] = gone.get((ticket, inc), 0) | bits
    held: list[Frame] = [h.frame for h in instance.member.ordering.held.values()]
    found: list[Any] = []
    while True:
        more = [frame for frame in held if _touches(instance, frame, gone)]
        if not more:
            return found
        for frame in more:
            held.remove(frame)
            found.append(frame.key)
            gone[frame.ticket, frame.inc] = gone.get((frame.ticket, frame.inc), 0) | _bits(frame.first, frame.last)


def _touches(instance: Instance, frame: Frame, gone: dict[tuple[int, int], int]) -> bool:
    for missing in instance.member.why_blocked(frame.names()[0]).missing:
        assert missing.ticket is not None
        inc = Incarnation.parse(missing.incarnation).packed
        if gone.get((missing.ticket, inc), 0) & _bits(missing.first, missing.last):
            return True
    return False


def _bits(first: int, last: int) -> int:
    return ((1 << last - first + 1) - 1) << first
