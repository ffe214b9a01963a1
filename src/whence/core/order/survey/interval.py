"""Interval tree clocks as a causal order (SURVEY 3.2, Almeida et al. 2008): no global ids, no view changes.

A message carries its sender's stamp just **before** the multicast; the receiver computes the event itself. So one stamp
says what must come before the message (all of `before`) and what the message is (`event(before)`). A joiner gets half
of a member's interval with its snapshot; a leaver's share goes to an heir. Nobody else is told.

It cannot name what is missing: recovery has to compare what peers have delivered. The share of a process that crashes
is lost, and stays in the trees.
"""

from __future__ import annotations

from whence.core.clock.interval import MAX_DEPTH, SEED, decode, depth, encode, event, fork, join, leq, peek, top
from whence.core.clock.interval import Stamp as Itc
from whence.core.order.survey.base import Mechanism, MechanismState, Message, Stamp, Wait
from whence.core.order.survey.counts import ProcessId
from whence.errors import BadFrame, UsageError


class IntervalStamp(Stamp, frozen=True, array_like=True, gc=False, tag=5):
    """The sender's stamp before its multicast, encoded."""

    before: bytes


class IntervalState(MechanismState, frozen=True, array_like=True, gc=False, tag=4):
    """A share of the interval, and the events known with it."""

    stamp: bytes


class IntervalTree(Mechanism):
    """Causal order by interval tree clocks. A founder starts from the whole interval (`share`); a joiner has none
    until it installs what a member gave it."""

    name = "interval"
    stamp_type = IntervalStamp
    state_type = IntervalState

    def __init__(self, me: ProcessId, share: Itc = Itc(0, 0)) -> None:  # noqa: B008 - a tuple, never changed
        self.me = me
        self.sent = share
        """What was delivered, and the own multicasts."""
        self.delivered = peek(share)

    def stamp(self, seq: int, now: int) -> IntervalStamp:
        before, self.sent = self.sent, event(self.sent)
        return IntervalStamp(encode(before))

    def check(self, stamp: Stamp) -> None:
        assert isinstance(stamp, IntervalStamp)
        if decode(stamp.before).id == 0:
            raise BadFrame("a message from a process without a share of the interval")

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if leq(event(_before(message)), self.delivered) else None

    def wait(self, message: Message, now: int) -> Wait | None:
        return None if leq(_before(message), self.delivered) else Wait()

    def precedes(self, a: Message, b: Message, now: int) -> bool:
        return leq(event(_before(a)), _before(b))

    def skip(self, message: Message, now: int) -> None:
        self._learn(peek(_before(message)))

    def beyond(self, stamp: Stamp) -> int:
        assert isinstance(stamp, IntervalStamp)
        return top(decode(stamp.before).event) - top(self.delivered.event)

    def deliver(self, message: Message, now: int) -> list[Message]:
        self._learn(peek(event(_before(message))))
        return [message]

    def _learn(self, known: Itc) -> None:
        self.delivered = join(self.delivered, known)
        self.sent = join(self.sent, known)

    def save(self) -> IntervalState:
        return IntervalState(encode(self.sent))

    def admit(self, joiner: ProcessId) -> IntervalState:
        if self.sent.id == 0:
            raise UsageError("a process without a share of the interval cannot admit others")
        if depth(self.sent.id) >= MAX_DEPTH // 2:  # peers refuse what is deeper than MAX_DEPTH
            raise UsageError("this process has split its share of the interval too often to admit others")
        if not leq(self.sent, self.delivered):  # its event would be counted in the joiner's half too
            raise UsageError("a process whose own multicast is not delivered yet cannot admit others")
        self.sent, half = fork(self.sent)
        return IntervalState(encode(Itc(half.id, self.delivered.event)))

    def install(self, state: MechanismState) -> None:
        self.sent = _share(state)
        self.delivered = peek(self.sent)


def shares(processes: list[ProcessId]) -> dict[ProcessId, Itc]:
    """The interval among the founders, by halving: each with a share, the trees as flat as can be."""

    def deal(some: list[ProcessId], share: Itc) -> dict[ProcessId, Itc]:
        if len(some) == 1:
            return {some[0]: share}
        left, right = fork(share)
        middle = (len(some) + 1) // 2
        return deal(some[:middle], left) | deal(some[middle:], right)

    return deal(processes, SEED) if processes else {}


def _before(message: Message) -> Itc:
    assert isinstance(message.stamp, IntervalStamp)
    return decode(message.stamp.before)


def _share(state: MechanismState) -> Itc:
    assert isinstance(state, IntervalState)
    return decode(state.stamp)
