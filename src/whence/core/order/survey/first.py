"""First generation (SURVEY Fig. 3; CBCAST 87): precedent messages travel with a new one, whole.

As in Fig. 3: those delivered since the last own multicast. "The underlying multicast service is FIFO" is here a wait
for the sender's message before, the only wait there is.

With `until_stable`, as in CBCAST 87 ("a set of precedent messages not yet delivered in all system processes", SURVEY
5): all that is not known to be delivered everywhere (`settle`), own messages too. Then nothing waits over any links,
because a lost message comes with the next one; it costs more bytes, and somebody has to find out what is stable.

Departs from the letter of Fig. 3, which would append a process's own message when it is delivered at home: Fig. 4 does
not have it (`m4` travels as <m2, m3, m4> though p1 delivered its own m1), and FIFO order makes it needless.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import msgspec

from whence.core.order.survey.base import (
    Counting,
    Counts,
    Gap,
    Id,
    MechanismState,
    Message,
    Number,
    ProcessId,
    Renumber,
    Stamp,
    Vector,
    dense,
    gaps,
    renumbered,
    renumbered_rows,
    sparse,
)
from whence.errors import ConfigError


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A precedent message on the back of another one."""

    sender: ProcessId
    seq: Number
    body: bytes


def _renumbered_carried(some: tuple[Carried, ...], to: Renumber) -> tuple[Carried, ...]:
    return tuple(Carried(to(c.sender), c.seq, c.body) for c in some)


class FirstStamp(Stamp, frozen=True, array_like=True, gc=False, tag=1):
    """`previousDelivered`, in the sender's delivery order. `after`: what must come before it but is not carried,
    because there was too much of it or because it precedes the state that the sender joined with."""

    carried: tuple[Carried, ...] = ()
    after: tuple[Id, ...] = ()

    numbers: ClassVar = {"carried": _renumbered_carried, "after": renumbered_rows}


class FirstState(MechanismState, frozen=True, array_like=True, gc=False, tag=1):
    """What was delivered of each process, by process number; what the next own multicast has to bring or to follow;
    which chains are broken."""

    delivered: Vector
    previous: tuple[Carried, ...]
    after: tuple[Id, ...]
    broken: tuple[Id, ...] = ()

    numbers: ClassVar = {
        "after": renumbered_rows,
        "broken": renumbered_rows,
        "delivered": renumbered,
        "previous": _renumbered_carried,
    }


class FirstGeneration(Counting):
    """Precedent messages, whole."""

    name = "first"
    chained = True
    carries = True
    stamp_type = FirstStamp
    state_type = FirstState

    def __init__(
        self, me: ProcessId, max_carried: int = 10_000, until_stable: bool = False, max_bytes: int = 1 << 20
    ) -> None:
        """`until_stable`: see above. `max_carried`, `max_bytes`: what one message carries. Beyond that the oldest are
        only named, and have to be waited for."""
        if max_carried < 0 or max_bytes < 0:
            raise ConfigError(f"max_carried and max_bytes must not be negative: {max_carried}, {max_bytes}")
        super().__init__(me)
        self.max_carried = max_carried
        self.max_bytes = max_bytes
        self.until_stable = until_stable
        self.previous: deque[Carried] = deque()
        self.weight = 0
        self.after: dict[ProcessId, tuple[int, int]] = {}
        """`process: (seq, said)`: to be named, from the own multicast `said` on."""
        self.sent = 0

    def anchor(self) -> None:
        carried: dict[ProcessId, tuple[int, int]] = {}  # the first and the last
        for c in self.previous:
            carried[c.sender] = (carried.get(c.sender, (c.seq, 0))[0], c.seq)
        for p, n in self.delivered.items():
            first, last = carried.get(p, (0, 0))
            if p != self.me and (named := first - 1 if n == last else n):  # beyond the last: it was given up
                self._name(p, named)

    def give_up(self, process: ProcessId, last: int) -> None:
        super().give_up(process, last)
        self._name(process, last)  # it may be in the past of what is delivered later, which is carried

    def stamp(self, seq: int, now: int) -> FirstStamp:
        # A process that delivers this message has delivered the last own one that this one does not carry, with all
        # that it named. Carried messages have lost their stamps, so what they named is named again.
        waited = self._waited()
        self.after = {p: (n, said) for p, (n, said) in self.after.items() if said > waited}
        stamp = FirstStamp(tuple(self.previous), self._named())
        if not self.until_stable:
            self.previous.clear()
            self.weight = 0
        self.sent = seq
        return stamp

    def _waited(self) -> int:
        """The last own multicast that the next one does not bring along."""
        return min((c.seq for c in self.previous if c.sender == self.me), default=self.sent + 1) - 1

    def _named(self) -> tuple[Id, ...]:
        return tuple((p, n) for p, (n, _) in sorted(self.after.items()))

    def missing(self, message: Message) -> tuple[Gap, ...]:
        there = dict(self.delivered)
        missing = list(gaps(there, message.stamp.after))
        for p, seq in sequence(message):
            have = there.get(p, 0)
            if seq > have + 1:
                missing.append((p, have + 1, seq - 1))
            there[p] = max(have, seq)
        return tuple(missing)

    def deliver(self, message: Message, now: int) -> list[Message]:
        found = [Message(c.sender, c.seq, FirstStamp(), c.body) for c in message.stamp.carried if self._new(c)]
        last = Carried(message.sender, message.seq, message.body)
        return [*found, message] if self._new(last) else found

    def _new(self, carried: Carried) -> bool:
        """Not yet delivered here; from now on it is, and travels with the next own multicast."""
        if carried.seq <= self.delivered.get(carried.sender, 0):
            return False
        self.delivered[carried.sender] = carried.seq
        self.broken.pop(carried.sender, None)
        if carried.sender != self.me or self.until_stable:
            self.previous.append(carried)
            self.weight += len(carried.body)
            while len(self.previous) > self.max_carried or self.weight > self.max_bytes:
                self._let_go(self.previous.popleft())
        return True

    def _let_go(self, carried: Carried) -> None:
        """It does not travel any more, but is named: it may not have reached those that nobody has told us of."""
        self.weight -= len(carried.body)
        if carried.sender != self.me:
            self._name(carried.sender, carried.seq)

    def _name(self, process: ProcessId, seq: int) -> None:
        self.after[process] = (max(seq, self.after.get(process, (0, 0))[0]), self.sent + 1)

    def admit(self, joiner: ProcessId) -> FirstState:
        # All this process has delivered is either in `previous`, or named, or in the past of its last own multicast
        # that is not in `previous`: a joiner's first message that brings the one and follows the others brings or
        # follows everything in the snapshot. (Where messages are skipped it is an anchor besides.)
        waited = self._waited()
        after = self._named() if not waited else tuple(sorted({**dict(self._named()), self.me: waited}.items()))
        return FirstState(dense(self.delivered), tuple(self.previous), after, tuple(sorted(self.broken.items())))

    def install(self, state: Any) -> None:
        self.delivered = sparse(state.delivered)
        self.previous = deque(state.previous)
        self.weight = sum(len(c.body) for c in state.previous)
        self.after = {p: (n, self.sent + 1) for p, n in state.after}
        self.broken = dict(state.broken)

    def leave(self, process: ProcessId) -> None:
        super().leave(process)
        self.after.pop(process, None)
        self.previous = deque(c for c in self.previous if c.sender != process)  # everybody has them (rule 6)
        self.weight = sum(len(c.body) for c in self.previous)

    def settle(self, upto: Counts) -> None:
        self.previous = deque(c for c in self.previous if c.seq > upto.get(c.sender, 0))
        self.weight = sum(len(c.body) for c in self.previous)
        self.after = {p: (n, said) for p, (n, said) in self.after.items() if n > upto.get(p, 0)}

    def lighten(self, upto: Counts) -> None:
        kept, self.previous = self.previous, deque()
        for c in kept:
            if c.seq > upto.get(c.sender, 0):
                self.previous.append(c)
            else:
                self._let_go(c)


def sequence(message: Message) -> tuple[Id, ...]:
    """The ids a first-generation message brings, its own last: <m1, m2, ...> of Fig. 4."""
    return (*((c.sender, c.seq) for c in message.stamp.carried), message.id)
