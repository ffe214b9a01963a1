"""Checks of frames and snapshots under an (N, R, K) clock, and what is remembered of their owners."""

from __future__ import annotations

from operator import sub
from typing import Protocol

from whence.core.clock import FreeFrame, MemberId
from whence.core.clock.probabilistic import Keys
from whence.core.order.config import OrderConfig
from whence.core.order.contract import MAX_ENTRIES
from whence.core.order.generations import Generations, Held
from whence.core.order.layer import check_body
from whence.core.order.messages import FreeState, OwnerState
from whence.core.order.owners import Cursor
from whence.errors import AbsurdClock, BadFrame, BadMessage

MAX_COUNT = 1 << 62
"""A count in a snapshot; more would not fit on the wire for long."""
MAX_AHEAD = 1 << 16
"""Generations that a frame may be ahead of ours."""


class KeyCursor(Cursor):
    """With what is needed to count frames that are given up."""

    __slots__ = ("generation", "keys", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        self.opened = 1
        self.keys: Keys = ()
        self.early: dict[int, Held] = {}

    def follow(self, frame: FreeFrame) -> None:
        """The owner's next frame is taken."""
        self.taken = frame.number
        self.generation, self.opened, self.keys = frame.generation, frame.opened, frame.keys

    @classmethod
    def of(cls, row: OwnerState) -> KeyCursor:
        cursor = cls()
        cursor.taken, cursor.generation, cursor.opened, cursor.keys = row.taken, row.generation, row.opened, row.keys
        return cursor


class Known(Protocol):
    """What frames are checked against: the state of an order layer."""

    queue: Generations
    config: OrderConfig
    cursors: dict[MemberId, KeyCursor]

    @property
    def joining(self) -> bool: ...


def check_free(frame: FreeFrame, ordering: Known) -> None:
    """Raise a `BadFrame` for what no honest peer of this cluster sends, or passes on."""
    if frame.vector.R > MAX_ENTRIES:
        raise BadFrame(f"a vector of {frame.vector.R} entries")
    stamp = frame.vector.vector()
    own = frame.number - frame.opened + 1
    if any(stamp[x] < own for x in frame.keys):
        raise BadFrame(f"a vector that does not count its owner's own {own} frames")
    if not ordering.joining:
        _check_against(frame, stamp, ordering)


def check_state(state: FreeState, ordering: Known) -> None:
    """Raise a `BadMessage` for a snapshot that contradicts itself: its counts are indexed by its keys."""
    R = {g.generation: g.V.R for g in state.generations}
    if not any(g.K for g in state.generations) or any(max(g.V.vector()) >= MAX_COUNT for g in state.generations):
        raise BadMessage("a clock without keys, or with counts beyond all measure")
    if any(g.past is not None and g.past.R != g.V.R for g in state.generations):
        raise BadMessage("a past of another size than the counts")
    for row in state.owners:
        if row.keys and row.keys[-1] >= R.get(row.generation, MAX_ENTRIES):
            raise BadMessage(f"keys {row.keys[:8]} of {row.owner} in a generation of {R[row.generation]} entries")
    for frame in state.waiting:
        frame.check()
        check_body(frame)
        check_free(frame, ordering)
        if R.get(frame.generation) != frame.vector.R or any(R.get(g, p.R) != p.R for g, p in frame.older):
            raise BadMessage(f"a frame of {frame.vector.R} entries waits in a generation of {R.get(frame.generation)}")


def _check_against(frame: FreeFrame, stamp: tuple[int, ...], ordering: Known) -> None:
    """What needs clocks to judge by."""
    queue, jump = ordering.queue, ordering.config.max_jump
    clock = queue.clocks.get(frame.generation)
    if clock is not None:
        if len(stamp) != clock.R or clock.K not in (0, len(frame.keys)):
            raise BadFrame(f"(R, K) = ({len(stamp)}, {len(frame.keys)}) in a generation of ({clock.R}, {clock.K})")
        ahead = max(map(sub, stamp, clock.V))
    else:
        if (frame.generation >> 32) - (queue.current.id >> 32) > MAX_AHEAD:
            raise AbsurdClock(f"generation {frame.generation >> 32} is far beyond {queue.current.id >> 32}")
        ahead = max(stamp)
    cursor = ordering.cursors.get(frame.owner)
    missing = frame.number - (cursor.taken if cursor is not None else 0)
    if max(ahead, missing) > jump:
        raise AbsurdClock(f"frame {frame.number} of {frame.owner} is {max(ahead, missing)} frames ahead of all known")
    for generation, packed in frame.older:
        older = queue.clocks.get(generation)
        if older is not None and older.R != packed.R:
            raise BadFrame(f"a vector of {packed.R} entries of a generation of {older.R}")
