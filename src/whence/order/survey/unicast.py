"""Causal order for unicast, with compacted control information (Raynal, Schiper and Toueg 91; Singhal and Kshemkalyani
92).

A vector of events (`SkClock`, SURVEY Ex3) dates messages but cannot order unicasts: it does not say to whom an event
was sent. What can is the matrix `SENT[k, j]`, the number of messages that k sent to j as far as is known; deliver at j
what j has all `SENT[., j]` for. Compaction is the same as in Ex3, entry by entry: `changed` is `LU`, `sent` is `LS`,
`tick` is `VC[i]`. An entry that has not changed since the last message to j was told, and checked, with that one, which
j delivers first.
"""

from __future__ import annotations

import msgspec

from whence.errors import UsageError
from whence.order.survey.base import ProcessId

Known = tuple[ProcessId, ProcessId, int]
"""`(k, j, n)`: k has sent n messages to j."""


class Unicast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Message number `seq` from `sender` to `to`; `known` are the entries of the matrix that are news to it."""

    sender: ProcessId
    to: ProcessId
    seq: int
    known: tuple[Known, ...]
    body: bytes


class UnicastProcess:
    """A process that sends to single others, and delivers what it gets in causal order.

    What waits is bounded by what the links carry: a process can have at most what others sent and it has not delivered.
    `capacity` bounds it all the same; beyond it the newcomer is dropped and counted (links then have to send it again).
    """

    def __init__(self, me: ProcessId, capacity: int = 10_000) -> None:
        self.me = me
        self.capacity = capacity
        self.matrix: dict[tuple[ProcessId, ProcessId], int] = {}
        self.changed: dict[tuple[ProcessId, ProcessId], int] = {}
        self.sent: dict[ProcessId, int] = {}
        self.delivered: dict[ProcessId, int] = {}
        self.tick = 0
        self.duplicates = 0
        self.overflow = 0
        self._held: dict[tuple[ProcessId, int], Unicast] = {}

    def send(self, to: ProcessId, body: bytes) -> Unicast:
        """A message to one other process."""
        if to == self.me:
            raise UsageError(f"process {to} cannot send to itself")
        self.tick += 1
        since = self.sent.get(to, 0)
        known = tuple((*key, n) for key, n in sorted(self.matrix.items()) if self.changed[key] > since)
        self.sent[to] = self.tick
        seq = self.matrix.get((self.me, to), 0) + 1
        # The message itself becomes known only with what follows it, and to its receiver by itself: LU is after LS, so
        # the next message to `to` tells it once more. That costs an entry, and saves a special case.
        self.tick += 1
        self._learn(self.me, to, seq)
        return Unicast(self.me, to, seq, known, body)

    def receive(self, message: Unicast) -> list[Unicast]:
        """A message came in: what can be delivered now, in order."""
        key = (message.sender, message.seq)
        if message.to != self.me:
            raise UsageError(f"process {self.me} got a message for {message.to}")
        if message.seq <= self.delivered.get(message.sender, 0) or key in self._held:
            self.duplicates += 1
            return []
        if len(self._held) >= self.capacity:
            self.overflow += 1
            return []
        self._held[key] = message
        out: list[Unicast] = []
        while (ready := next((m for m in self._held.values() if self._ready(m)), None)) is not None:
            del self._held[ready.sender, ready.seq]
            self._deliver(ready)
            out.append(ready)
        return out

    def _ready(self, message: Unicast) -> bool:
        if message.seq != self.delivered.get(message.sender, 0) + 1:
            return False
        mine = ((k, n) for k, j, n in message.known if j == self.me and k != message.sender)
        return all(n <= self.delivered.get(k, 0) for k, n in mine)

    def _deliver(self, message: Unicast) -> None:
        self.tick += 1
        self.delivered[message.sender] = message.seq
        self._learn(message.sender, self.me, message.seq)
        for k, j, n in message.known:
            self._learn(k, j, n)

    def _learn(self, k: ProcessId, j: ProcessId, n: int) -> None:
        if n > self.matrix.get((k, j), 0):
            self.matrix[k, j] = n
            self.changed[k, j] = self.tick
