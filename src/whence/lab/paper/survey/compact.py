"""The compacted vector clock for unicast of Singhal and Kshemkalyani 92, as in SURVEY 3.3 (`VC`, `LU`, `LS`).

`VC[i]` counts the events (sends and deliveries) of process i. Each message carries only the entries that have changed
since the last message to the same destination. Links must be FIFO: an omitted entry was sent before.
"""

from __future__ import annotations

from whence.errors import UsageError

Entries = tuple[tuple[int, int], ...]
"""`(process, value)`, ascending."""


class SkClock:
    """The clock of process `me` of the `processes` `0 .. n-1`."""

    __slots__ = ("LS", "LU", "VC", "me")

    VC: list[int]
    """The vector clock."""
    LU: list[int]
    """Last update: `VC[me]` when this entry of `VC` was last changed here."""
    LS: list[int]
    """Last sent: `VC[me]` when a message was last sent to this process. The own entry is unused."""

    def __init__(self, me: int, processes: int) -> None:
        if not 0 <= me < processes:
            raise UsageError(f"process {me} is not in 0 .. {processes - 1}")
        self.me = me
        self.VC = [0] * processes
        self.LU = [0] * processes
        self.LS = [0] * processes

    def send(self, to: int) -> Entries:
        """The event of sending to `to`. Returns the message's control information."""
        if to == self.me or not 0 <= to < len(self.VC):
            raise UsageError(f"process {self.me} cannot send to {to}")
        self._event()
        entries = tuple((k, n) for k, n in enumerate(self.VC) if k != to and self.LS[to] < self.LU[k])
        self.LS[to] = self.VC[self.me]
        return entries

    def deliver(self, entries: Entries) -> None:
        """The event of delivering a message with this control information."""
        self._event()
        for k, n in entries:
            if n > self.VC[k]:
                self.VC[k] = n
                self.LU[k] = self.VC[self.me]

    def _event(self) -> None:
        self.VC[self.me] += 1
        self.LU[self.me] = self.VC[self.me]
