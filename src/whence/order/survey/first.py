"""First generation (SURVEY Fig. 3; CBCAST 87): the messages delivered since the last own multicast travel with the next
one.

"The underlying multicast service is FIFO": here that is a wait for the sender's message before, the only wait there is.
Over links that are FIFO it never happens, so the mechanism never blocks.

Departs from the letter of Fig. 3, which would append a process's own message when it is delivered at home: Fig. 4 does
not have it (`m4` travels as <m2, m3, m4> though p1 delivered its own m1), and FIFO order makes it needless.
"""

from __future__ import annotations

import msgspec

from whence.order.survey.base import Id, Message, ProcessId, Rules, Stamp, State, Wait, dense, gaps, sparse


class Carried(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A precedent message on the back of another one."""

    sender: ProcessId
    seq: int
    body: bytes


class FirstStamp(Stamp, frozen=True, array_like=True, gc=False, tag=1):
    """`previousDelivered`, in the order in which the sender delivered it. `after`, in the first message of a joiner:
    the last multicast of the member it got its state from."""

    carried: tuple[Carried, ...] = ()
    after: Id | None = None


class FirstState(State, frozen=True, array_like=True, gc=False, tag=1):
    """What was delivered of each process, by process number; what the next own multicast has to bring or to follow."""

    delivered: tuple[int, ...]
    previous: tuple[Carried, ...]
    after: Id | None


class FirstGeneration(Rules):
    """Precedent messages, whole."""

    name = "first"

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.delivered: dict[ProcessId, int] = {}
        self.previous: list[Carried] = []
        self.after: Id | None = None

    def stamp(self, seq: int, now: int) -> FirstStamp:
        stamp = FirstStamp(tuple(self.previous), self.after)
        self.previous, self.after = [], None
        return stamp

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if message.seq <= self.delivered.get(message.sender, 0) else None

    def wait(self, message: Message, now: int) -> Wait | None:
        assert isinstance(message.stamp, FirstStamp)
        found = gaps(self.delivered, [(message.sender, message.seq - 1), *filter(None, [message.stamp.after])])
        return Wait(found) if found else None

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
        if carried.sender != self.me:
            self.previous.append(carried)
        return True

    def admit(self, joiner: ProcessId) -> FirstState:
        # All this process has delivered is either in `previous` or in the past of its last own multicast: a joiner's
        # first message that brings the one and follows the other brings or follows everything in the snapshot.
        own = self.delivered.get(self.me, 0)
        return FirstState(dense(self.delivered), tuple(self.previous), (self.me, own) if own else self.after)

    def install(self, state: State) -> None:
        assert isinstance(state, FirstState)
        self.delivered = sparse(state.delivered)
        self.previous = list(state.previous)
        self.after = state.after

    def leave(self, process: ProcessId) -> None:
        self.delivered.pop(process, None)
        self.previous = [c for c in self.previous if c.sender != process]  # everybody has them (rule 5)


def sequence(message: Message) -> tuple[Id, ...]:
    """The ids a first-generation message brings, its own last: <m1, m2, ...> of Fig. 4."""
    assert isinstance(message.stamp, FirstStamp)
    return (*((c.sender, c.seq) for c in message.stamp.carried), message.id)
