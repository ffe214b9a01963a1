"""What waits for the application to read it."""

from __future__ import annotations

from collections import deque

import msgspec

from whence.core.ports import Deliver, TakeSnapshot

DECODED = 16
"""Frames that wait with their payloads decoded. A reader that keeps up never has more; for one that does not, the
payloads would double the memory that waits for it."""


class Backlog:
    """What was delivered and the application has not asked for, bounded in events and bytes; between the frames, the
    points at which a joiner wants the application's state."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.items: deque[Deliver | TakeSnapshot] = deque()
        self.events = 0
        self.bytes = 0
        self.read = False
        """The application has asked for events: from now on nothing is thrown away, and publishing waits for it."""
        self.busy = False
        """The application has an event in hand."""
        self.full = False
        self.unread = 0
        self.skip = 0
        """Events at the beginning of the first frame that an earlier life has processed."""

    def add(self, out: Deliver) -> None:
        if out.payloads is not None and len(self.items) >= DECODED:
            out = msgspec.structs.replace(out, payloads=None)
        self.items.append(out)
        self.events += out.frame.count
        self.bytes += len(out.frame.body)
        if self.events > self.max_events or self.bytes > self.max_bytes:
            self._overflow()

    def _overflow(self) -> None:
        """The application is behind, or reads nothing at all."""
        self.full = self.read
        while not self.read and self._over(1) and len(self.items) > 1:
            if isinstance(self.items[0], Deliver):
                self.unread += self.take_frame().frame.count - self.skip
                self.skip = 0
            else:
                self.items.popleft()  # the state at this point will never be

    def take_frame(self) -> Deliver:
        """The first item, which is a frame."""
        out = self.items.popleft()
        assert isinstance(out, Deliver)
        self.events -= out.frame.count
        self.bytes -= len(out.frame.body)
        self.full = self.full and self._over(2)
        return out

    @property
    def room(self) -> int:
        """Events that fit in before publishing waits."""
        return max(1, self.max_events - self.events) if self.read else self.max_events

    def _over(self, part: int) -> bool:
        return self.events * part > self.max_events or self.bytes * part > self.max_bytes
