"""One process of a causal multicast: any mechanism, and the buffer in which received messages wait (SURVEY Fig. 1).

multicast(m) -> receive(m) at every node, "temporarily buffered until causal order can be ensured" -> deliver(m).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from whence.errors import UsageError
from whence.order.survey.base import Id, Mechanism, Message, ProcessId, Range, State, Wait


@dataclass
class ProcessStats:
    """Counters: nothing is dropped without a number rising."""

    multicast: int = 0
    received: int = 0
    delivered: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """By reason: `duplicate`, `late`, `expired`, `departed`, `overflow`."""
    blocked: int = 0
    """Messages that could not be delivered when they arrived."""
    blocked_time: int = 0
    """Nanoseconds that delivered messages have waited here, summed."""
    held_peak: int = 0


class Process:
    """A mechanism with a hold-back buffer of at most `capacity` messages.

    When it is full the newcomer is dropped and counted: it will be recovered when it is missed, whereas what is held
    may be what everything else waits for.
    """

    def __init__(self, me: ProcessId, mechanism: Mechanism, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise UsageError(f"capacity of the hold-back buffer must be at least 1, not {capacity}")
        self.me = me
        self.mechanism = mechanism
        self.capacity = capacity
        self.seq = 0
        self.stats = ProcessStats()
        self._held: dict[Id, tuple[Message, int]] = {}
        self._gone: dict[ProcessId, None] = {}
        self._now = 0

    def multicast(self, body: bytes, now: int) -> tuple[Message, list[Message]]:
        """Stamp an own message and deliver it here at once: the message to send, and what is delivered because of
        it."""
        message = self.stamp(body, now)
        return message, self._deliver(message, now) + self.drain(now)

    def stamp(self, body: bytes, now: int) -> Message:
        """Stamp an own message without delivering it here; `receive()` it when it may be delivered (uniform
        delivery)."""
        self.seq += 1
        self.stats.multicast += 1
        return Message(self.me, self.seq, self.mechanism.stamp(self.seq, now), body)

    def receive(self, message: Message, now: int) -> list[Message]:
        """A message came in: what can be delivered now, in order."""
        self.stats.received += 1
        self._now = now
        reason = self._refused(message, now)
        if reason is None and len(self._held) >= self.capacity and self.mechanism.wait(message, now) is not None:
            reason = "overflow"  # what can be delivered needs no room
        if reason is not None:
            self._drop(reason)
            return []
        self._held[message.id] = (message, now)
        delivered = self.drain(now)
        self.stats.blocked += message.id in self._held
        self.stats.held_peak = max(self.stats.held_peak, len(self._held))
        return delivered

    def drain(self, now: int) -> list[Message]:
        """Deliver what is held and deliverable, to a fixed point; call it again at `wake_at`."""
        delivered: list[Message] = []
        self._now = now
        while True:
            for message, _ in list(self._held.values()):
                if reason := self.mechanism.obsolete(message, now):
                    del self._held[message.id]
                    self._drop(reason)
            ready = [m for m, _ in self._held.values() if self.mechanism.wait(m, now) is None]
            if not ready:
                return delivered
            first = min(ready, key=self.mechanism.rank)
            _, since = self._held.pop(first.id)
            self.stats.blocked_time += now - since
            delivered += self._deliver(first, now)

    @property
    def wake_at(self) -> int | None:
        """When time alone may make something deliverable."""
        times = [wait.until for _, wait in self.waiting(self._now) if wait.until is not None]
        return min(times, default=None)

    def waiting(self, now: int) -> list[tuple[Message, Wait]]:
        """What is held, and why."""
        found = [(message, self.mechanism.wait(message, now)) for message, _ in self._held.values()]
        return [(message, wait) for message, wait in found if wait is not None]

    def missing(self, now: int) -> list[Range]:
        """What to recover: named by what is held, and not in hand."""
        wanted: dict[ProcessId, set[int]] = {}
        for _, wait in self.waiting(now):
            for sender, first, last in wait.missing:
                wanted.setdefault(sender, set()).update(
                    s for s in range(first, last + 1) if (sender, s) not in self._held
                )
        return [r for sender in sorted(wanted) for r in _ranges(sender, sorted(wanted[sender]))]

    def admit(self, joiner: ProcessId) -> State:
        """What `joiner` starts from: taken between two deliveries, with the application's state of the same moment."""
        self.mechanism.join(joiner)
        return self.mechanism.admit(joiner)

    def install(self, state: State, now: int, seq: int = 0) -> list[Message]:
        """Start from a member's state; `seq` is the last number used under this id, where it was used before."""
        self.seq = seq
        self.mechanism.install(state)
        return self.drain(now)

    def leave(self, process: ProcessId) -> None:
        """A process left after a flush: what is held of it waits for what nobody has, unless it only waits for time.
        Its number is never used again."""
        stuck = [m for m, wait in self.waiting(self._now) if m.sender == process and wait.until is None]
        self.mechanism.leave(process)
        self._gone[process] = None
        for message in stuck:
            del self._held[message.id]
            self._drop("departed")

    def _refused(self, message: Message, now: int) -> str | None:
        if message.sender in self._gone:
            return "departed"
        return "duplicate" if message.id in self._held else self.mechanism.arrive(message, now)

    def _deliver(self, message: Message, now: int) -> list[Message]:
        delivered = self.mechanism.deliver(message, now)
        self.stats.delivered += len(delivered)
        return delivered

    def _drop(self, reason: str) -> None:
        self.stats.dropped[reason] = self.stats.dropped.get(reason, 0) + 1


def _ranges(sender: ProcessId, seqs: list[int]) -> list[Range]:
    """Consecutive numbers as ranges."""
    found: list[Range] = []
    for seq in seqs:
        if found and found[-1][2] == seq - 1:
            found[-1] = (sender, found[-1][1], seq)
        else:
            found.append((sender, seq, seq))
    return found
