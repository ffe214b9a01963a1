"""What is held is looked at again when what it waits for is there, and not each time its ticket moves."""

from __future__ import annotations

import random

from whence.core.clock import Entry, Frame, Incarnation
from whence.core.config import Settings
from whence.core.order import OrderContext, TicketOrdering
from whence.core.order.outputs import Deliver

INC = Incarnation(1, 0, 1).packed


def frame(ticket: int, seq: int, deps: tuple[Entry, ...]) -> Frame:
    return Frame.of(ticket, INC, seq, f"m{ticket}:1#1", deps, [b"%d" % seq])


def test_a_late_publisher_costs_each_held_frame_one_look() -> None:
    """2,000 frames of one publisher wait, each for the next of 2,000 frames of another that lag behind."""
    config = Settings(members=3, hold=5000).config(2, "reliable")
    ordering = TicketOrdering(
        OrderContext("me:1#1", config.ordering, random.Random(1), members=list, sample=lambda k: [])
    )
    ordering.begin(0)
    looks = 0
    real = ordering._missing

    def counted(f: Frame) -> list[tuple[int, int, int, int]]:
        nonlocal looks
        looks += 1
        return real(f)

    ordering._missing = counted  # type: ignore[method-assign]
    count = 2000
    ahead = [frame(1, s, ((INC, s), (INC, s - 1) if s > 1 else (0, 0))) for s in range(1, count + 1)]
    behind = [frame(0, s, ((INC, s - 1) if s > 1 else (0, 0), (0, 0))) for s in range(1, count + 1)]
    delivered: list[Frame] = []
    for f in ahead + behind:
        delivered += [o.frame for o in ordering.receive(f, f.owner, 1, 0) if isinstance(o, Deliver)]
    assert [(f.ticket, f.first) for f in delivered] == [(t, s) for s in range(1, count + 1) for t in (0, 1)]
    assert looks <= 3 * count
    assert sum(map(len, ordering._watch)) <= 64, "nothing is left to watch"
