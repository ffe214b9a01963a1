"""First generation (SURVEY Fig. 3; CBCAST 87): precedent messages travel with a new one, whole.

As Fig. 3 has it: those delivered since the last own multicast. "The underlying multicast service is FIFO": here that is
a wait for the sender's message before, the only wait there is. Over links that are FIFO it never happens.

With `until_stable`, as CBCAST 87 had it ("a set of precedent messages not yet delivered in all system processes",
SURVEY 5): all that is not known to be delivered everywhere (`settle`), own messages too. Then there is nothing to wait
for over any links: a message that was lost comes with the next one, of whoever has it. It costs more bytes, and
somebody has to find out what is stable.

Departs from the letter of Fig. 3, which would append a process's own message when it is delivered at home: Fig. 4 does
not have it (`m4` travels as <m2, m3, m4> though p1 delivered its own m1), and FIFO order makes it needless.
"""

from __future__ import annotations

from collections import deque

import msgspec

from whence.errors import ConfigError
from whence.order.survey.base import Counts, Id, Message, ProcessId, Rules, Stamp, State, Wait, dense, gaps, sparse


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A precedent message on the back of another one."""

    sender: ProcessId
    seq: int
    body: bytes


class FirstStamp(Stamp, frozen=True, array_like=True, gc=False, tag=1):
    """`previousDelivered`, in the order in which the sender delivered it. `after`: what must be there before it though
    it is not carried, because there was too much of it, or because it precedes the state that the sender joined
    with."""

    carried: tuple[Carried, ...] = ()
    after: tuple[Id, ...] = ()


class FirstState(State, frozen=True, array_like=True, gc=False, tag=1):
    """What was delivered of each process, by process number; what the next own multicast has to bring or to follow."""

    delivered: tuple[int, ...]
    previous: tuple[Carried, ...]
    after: tuple[Id, ...]


class FirstGeneration(Rules):
    """Precedent messages, whole."""

    name = "first"
    stamp_type = FirstStamp
    state_type = FirstState

    def __init__(self, me: ProcessId, max_carried: int = 10_000, until_stable: bool = False) -> None:
        """`until_stable`: see above. `max_carried`: messages carried by one. Beyond it the oldest are only named, and
        have to be waited for: more would never end in a process that listens and seldom speaks."""
        if max_carried < 0:
            raise ConfigError(f"max_carried must not be negative: {max_carried}")
        self.me = me
        self.max_carried = max_carried
        self.until_stable = until_stable
        self.delivered: Counts = {}
        self.previous: deque[Carried] = deque()
        self.after: Counts = {}
        self.sent = 0

    def stamp(self, seq: int, now: int) -> FirstStamp:
        stamp = FirstStamp(tuple(self.previous), tuple(sorted(self.after.items())))
        if not self.until_stable:
            self.previous.clear()
            self.after.clear()
        self.sent = seq
        return stamp

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if message.seq <= self.delivered.get(message.sender, 0) else None

    def wait(self, message: Message, now: int) -> Wait | None:
        assert isinstance(message.stamp, FirstStamp)
        there = dict(self.delivered)
        missing = list(gaps(there, message.stamp.after))
        for p, seq in sequence(message):
            have = there.get(p, 0)
            if seq > have + 1:
                missing.append((p, have + 1, seq - 1))
            there[p] = max(have, seq)
        return Wait(tuple(missing)) if missing else None

    def deliver(self, message: Message, now: int) -> list[Message]:
        assert isinstance(message.stamp, FirstStamp)
        found = [Message(c.sender, c.seq, FirstStamp(), c.body) for c in message.stamp.carried if self._new(c)]
        last = Carried(message.sender, message.seq, message.body)
        return [*found, message] if self._new(last) else found

    def _new(self, carried: Carried) -> bool:
        """Not yet delivered here; from now on it is, and travels with the next own multicast."""
        if carried.seq <= self.delivered.get(carried.sender, 0):
            return False
        self.delivered[carried.sender] = carried.seq
        if carried.sender != self.me or self.until_stable:
            self.previous.append(carried)
            if len(self.previous) > self.max_carried:
                oldest = self.previous.popleft()
                self.after[oldest.sender] = oldest.seq
        return True

    def admit(self, joiner: ProcessId) -> FirstState:
        # All this process has delivered is either in `previous` or in the past of its last own multicast: a joiner's
        # first message that brings the one and follows the other brings or follows everything in the snapshot.
        after = {**self.after, self.me: self.sent} if self.sent else self.after
        return FirstState(dense(self.delivered), tuple(self.previous), tuple(sorted(after.items())))

    def install(self, state: State) -> None:
        assert isinstance(state, FirstState)
        self.delivered = sparse(state.delivered)
        self.previous = deque(state.previous)
        self.after = dict(state.after)

    def leave(self, process: ProcessId) -> None:
        self.delivered.pop(process, None)
        self.after.pop(process, None)
        self.previous = deque(c for c in self.previous if c.sender != process)  # everybody has them (rule 5)

    def settle(self, upto: Counts) -> None:
        self.previous = deque(c for c in self.previous if c.seq > upto.get(c.sender, 0))
        self.after = {p: n for p, n in self.after.items() if n > upto.get(p, 0)}


def sequence(message: Message) -> tuple[Id, ...]:
    """The ids a first-generation message brings, its own last: <m1, m2, ...> of Fig. 4."""
    assert isinstance(message.stamp, FirstStamp)
    return (*((c.sender, c.seq) for c in message.stamp.carried), message.id)
