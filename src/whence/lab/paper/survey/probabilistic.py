"""(N, R, K) clocks (PCO17) as a mechanism, to be measured beside those of the SURVEY.

The only mechanism with errors: a message may be delivered too early when concurrent ones cover its missing entries.
Alerts are counted. Like interval trees it cannot name what is missing.
"""

from __future__ import annotations

from whence.core.clock.probabilistic import Keys, ProbabilisticClock
from whence.core.order.survey.base import Delivered, Mechanism, MechanismState, Message, ProcessId, Stamp, Wait, dense
from whence.errors import BadFrame, UsageError


class KeyStamp(Stamp, frozen=True, array_like=True, gc=False, tag=8):
    """The sender's entries `f(p)` and its vector."""

    keys: tuple[int, ...]
    V: tuple[int, ...]


class KeyState(MechanismState, frozen=True, array_like=True, gc=False, tag=7):
    """The vector, and what was delivered (to detect duplicates)."""

    V: tuple[int, ...]
    delivered: tuple[int, ...]
    holes: tuple[tuple[ProcessId, int], ...]


class Probabilistic(Mechanism):
    """Causal order with few errors; control information of R counters, whatever the number of processes."""

    name = "probabilistic"
    stamp_type = KeyStamp
    state_type = KeyState

    def __init__(self, me: ProcessId, R: int, keys: Keys, memory: int = 100) -> None:
        self.me = me
        self.keys = keys
        self.clock = ProbabilisticClock(R, memory)
        self.delivered = Delivered()
        self.covered = 0
        self.witnessed = 0

    def stamp(self, seq: int, now: int) -> KeyStamp:
        return KeyStamp(self.keys, self.clock.stamp(self.keys))

    def check(self, stamp: Stamp) -> None:
        assert isinstance(stamp, KeyStamp)
        if len(stamp.V) != self.clock.R or not stamp.keys or any(not 0 <= x < self.clock.R for x in stamp.keys):
            raise BadFrame(f"a clock of {len(stamp.V)} entries with keys {stamp.keys[:10]}; ours have {self.clock.R}")

    def obsolete(self, message: Message, now: int) -> str | None:
        # A gap in a sender's numbers is not a skip here: a late message was not given up, and is counted on arrival.
        return "duplicate" if self.delivered.reason(message) == "duplicate" else None

    def wait(self, message: Message, now: int) -> Wait | None:
        assert isinstance(message.stamp, KeyStamp)
        if message.sender == self.me or self.clock.ready(message.stamp.keys, message.stamp.V):
            return None
        return Wait()

    def deliver(self, message: Message, now: int) -> list[Message]:
        assert isinstance(message.stamp, KeyStamp)
        self.delivered.add(message)
        if message.sender != self.me:  # the own one was counted when it was stamped
            alerts = self.clock.deliver(message.stamp.keys, message.stamp.V)
            self.covered += alerts.covered
            self.witnessed += alerts.witnessed
        return [message]

    def skip(self, message: Message, now: int) -> None:
        raise UsageError("use the order `probabilistic` (core/order/probabilistic.py): its engine can skip")

    def admit(self, joiner: ProcessId) -> KeyState:
        return KeyState(tuple(self.clock.V), dense(self.delivered.upto), tuple(self.delivered.skipped))

    def install(self, state: MechanismState) -> None:
        assert isinstance(state, KeyState)
        self.clock.V[:] = state.V
        self.delivered = Delivered(state.delivered)
        self.delivered.skipped = dict.fromkeys(state.holes)
