"""One process of a causal multicast: any mechanism, and the buffer in which received messages wait (SURVEY Fig. 1).

multicast(m) -> receive(m) at every node, "temporarily buffered until causal order can be ensured" -> deliver(m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from whence.core.order.survey.base import Mechanism, MechanismState, Message, Wait
from whence.core.order.survey.counts import Counts, Gap, Id, ProcessId
from whence.errors import UsageError


@dataclass
class ProcessStats:
    """Counters: nothing is dropped without a number rising."""

    multicast: int = 0
    received: int = 0
    delivered: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """By reason: `duplicate`, `late`, `expired`, `broken`, `departed`, `overflow`, `ahead`."""
    blocked: int = 0
    """Messages that could not be delivered when they arrived."""
    held_peak: int = 0


class Process:
    """A mechanism with a hold-back buffer of at most `capacity` messages. When it is full the newcomer is dropped and
    counted: it will be recovered when it is missed, while a held message may be what everything else waits for."""

    def __init__(
        self,
        me: ProcessId,
        mechanism: Mechanism,
        capacity: int = 10_000,
        on_drop: Callable[[Message, str], None] = lambda message, reason: None,
    ) -> None:
        """`on_drop` is told of each message that is not taken, or let go, and why."""
        if capacity < 1:
            raise UsageError(f"capacity of the hold-back buffer must be at least 1, not {capacity}")
        self.me = me
        self.mechanism = mechanism
        self.capacity = capacity
        self.on_drop = on_drop
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
            self._drop(reason, message)
            return self.drain(now) if reason == "broken" else []
        self._held[message.id] = (message, now)
        delivered = self.drain(now)
        self.stats.blocked += message.id in self._held
        self.stats.held_peak = max(self.stats.held_peak, len(self._held))
        return delivered

    def drain(self, now: int) -> list[Message]:
        """Deliver what is held and deliverable, to a fixed point; call it again at `wake_at`."""
        delivered: list[Message] = []
        self._now = now
        while self._held:
            for message, _ in list(self._held.values()):
                self._drop_if(self.mechanism.obsolete(message, now), message)
            ready = [m for m, _ in self._held.values() if self.mechanism.wait(m, now) is None]
            if not ready:
                break
            for message in sorted(ready, key=self.mechanism.rank):  # what is ready stays so, or becomes obsolete
                if not self._drop_if(self.mechanism.obsolete(message, now), message):
                    del self._held[message.id]
                    delivered += self._deliver(message, now)
        return delivered

    def force(self, wanted: Id, now: int) -> tuple[list[Gap], list[Message]]:
        """A held message has waited long enough: what is given up for it, as far as it can be named, and what is
        delivered. What is in hand and precedes it goes before it, over gaps of its own."""
        lost: list[Gap] = []
        delivered: list[Message] = []
        while wanted in self._held:
            first = self._held[wanted][0]
            while (before := self._before(first, now)) is not None:
                first = before
            wait = self.mechanism.wait(first, now)
            if wait is not None:
                if wait.until is not None:
                    raise UsageError(f"message {first.id} waits for time, not for others: it cannot be forced")
                lost += wait.missing
                self.mechanism.skip(first, now)
            delivered += self.drain(now)
        return lost, delivered

    def let_go(self, wanted: Id, reason: str) -> None:
        """A held message is not wanted any more."""
        self._drop_if(reason, self._held[wanted][0])

    def _before(self, message: Message, now: int) -> Message | None:
        """Something in hand that precedes it."""
        held = (m for m, _ in self._held.values() if m.id != message.id)
        return next((m for m in held if self.mechanism.precedes(m, message, now)), None)

    @property
    def wake_at(self) -> int | None:
        """When time alone may make something deliverable."""
        times = [wait.until for _, wait in self.waiting(self._now) if wait.until is not None]
        return min(times, default=None)

    def waiting(self, now: int) -> list[tuple[Message, Wait]]:
        """What is held, and why."""
        found = [(message, self.mechanism.wait(message, now)) for message, _ in self._held.values()]
        return [(message, wait) for message, wait in found if wait is not None]

    def admit(self, joiner: ProcessId) -> MechanismState:
        """What `joiner` starts from: taken between two deliveries, with the application's state of the same moment."""
        self.mechanism.join(joiner)
        return self.mechanism.admit(joiner)

    def install(self, state: MechanismState, now: int, seq: int = 0) -> list[Message]:
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
            self._drop_if("departed", message)

    def settle(self, upto: Counts) -> None:
        """Everybody in the group has delivered these (how that is known is the driver's business)."""
        self.mechanism.settle(upto)

    def _refused(self, message: Message, now: int) -> str | None:
        if message.sender in self._gone:
            return "departed"
        return "duplicate" if message.id in self._held else self.mechanism.arrive(message, now)

    def _deliver(self, message: Message, now: int) -> list[Message]:
        delivered = self.mechanism.deliver(message, now)
        self.stats.delivered += len(delivered)
        return delivered

    def _drop_if(self, reason: str | None, message: Message) -> bool:
        """Drop a held message, if there is a reason to."""
        if reason is None:
            return False
        del self._held[message.id]
        self._drop(reason, message)
        return True

    def _drop(self, reason: str, message: Message) -> None:
        self.on_drop(message, reason)
        if reason == "broken":
            self.mechanism.forget(message)
        self.stats.dropped[reason] = self.stats.dropped.get(reason, 0) + 1
