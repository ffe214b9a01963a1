"""The protocol of a mechanism of the SURVEY: the rules of one causal order, without links, buffers or clocks.

A **mechanism** is the knowledge of one process: it stamps the process's own multicasts, says what a message in hand
still waits for, and learns from each delivery. `Process` drives any of them: it holds messages back, drops obsolete
ones and delivers ready ones. The driver gets from `Wait` what to recover and when to look again.

Rules that every mechanism keeps:

1. A message is named `(sender, seq)`; a sender's messages are counted from 1 without holes.
2. `stamp()` does not deliver: the own message is delivered through `deliver()` like any other (at once by `Process`;
   after the acknowledgements when delivery is uniform, lab/paper/survey/reliable.py).
3. `deliver()` is called only for what is not `obsolete()` and does not `wait()`.
4. A joiner starts from what one member's `admit()` gave at one point of its delivery order.
5. A **chained** mechanism leaves out of a stamp what the past of other messages implies. If such a message is given up
   (`skip`), what it implied is lost; what follows it in its chain is `broken`, and is given up too, until an **anchor**
   comes: a stamp that leaves nothing out.
6. `leave()` is called when every remaining member has delivered the same messages of the process that left (a flush).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import msgspec

from whence.core.order.survey.counts import Counts, Gap, Id, ProcessId, Renumber, sparse


class Stamp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The control information of one message: what the mechanism adds to it. Tags are explicit and only ever
    appended."""

    def renumbered(self, to: Renumber) -> Self:
        """The same with other process numbers; one without any is its own."""
        return self


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One multicast: its name, its control information, and what the application said."""

    sender: ProcessId
    seq: int
    stamp: Stamp
    body: bytes
    anchor: bool = False
    """The stamp names all that is in its past, though the mechanism need not (`Mechanism.anchor`)."""

    @property
    def id(self) -> Id:
        return (self.sender, self.seq)


class MechanismState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a joiner starts from, or what a leaver hands on."""

    def renumbered(self, to: Renumber) -> Self:
        """The same with other process numbers; one without any is its own."""
        return self


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Why a message is not delivered now. `missing`: what must come before it, as far as the mechanism can name it.
    `until`: when time alone makes it deliverable; None: never."""

    missing: tuple[Gap, ...] = ()
    until: int | None = None


class Mechanism(ABC):
    """The rules of one causal order at one process, with the answers that most of them share. `now` is the process's
    own clock in nanoseconds."""

    name: ClassVar[str]
    """What it is called in settings and tables."""
    stamp_type: ClassVar[type[Stamp]]
    """What its messages carry: anything else from a peer is refused by the codec (codec.py)."""
    state_type: ClassVar[type[MechanismState]]
    """What its joiners start from."""
    timed: ClassVar[bool] = False
    """What waits waits for time: nothing is ever waited for without end, and nothing has to be skipped."""
    chained: ClassVar[bool] = False
    """Its stamps leave out what others imply (rule 5)."""
    carries: ClassVar[bool] = False
    """Its messages bring others along, whole."""
    until_stable: bool = False
    """It carries messages until it is told that all have them (`settle`, `lighten`)."""

    @abstractmethod
    def stamp(self, seq: int, now: int) -> Stamp:
        """The control information of the own multicast number `seq`."""

    def anchor(self) -> None:  # noqa: B027
        """The next stamp leaves nothing out (rule 5)."""

    def forget(self, message: Message) -> None:  # noqa: B027
        """A message whose chain is broken is given up."""

    def check(self, stamp: Stamp) -> None:  # noqa: B027
        """Raise `BadFrame` for control information of the right type that no run of the protocol can have produced."""

    def arrive(self, message: Message, now: int) -> str | None:
        """A message came in: why it is not taken (`duplicate`, `late`, `expired`, `broken`), or None."""
        return self.obsolete(message, now)

    @abstractmethod
    def obsolete(self, message: Message, now: int) -> str | None:
        """Why a message that was taken must not be delivered any more, or None."""

    @abstractmethod
    def wait(self, message: Message, now: int) -> Wait | None:
        """What the message waits for; None: it can be delivered now."""

    def rank(self, message: Message) -> tuple[int, ...]:
        """Of several deliverable messages the least is delivered first; equal ones in the order of arrival."""
        return ()

    def precedes(self, a: Message, b: Message, now: int) -> bool:
        """Of two messages that wait: `b` waits for `a` among others."""
        wait = self.wait(b, now)
        return wait is not None and any(p == a.sender and first <= a.seq <= last for p, first, last in wait.missing)

    def skip(self, message: Message, now: int) -> None:  # noqa: B027 - two mechanisms wait for time only
        """Give up what the message waits for: it is obsolete if it comes, and in the past of what is multicast from now
        on. Not for messages that wait for time."""

    def beyond(self, stamp: Stamp) -> int:
        """How many messages the stamp is ahead of all that is known here, where `wait` does not name them."""
        return 0

    @abstractmethod
    def deliver(self, message: Message, now: int) -> list[Message]:
        """Learn from the message; what the application gets because of it, in order."""

    def join(self, process: ProcessId) -> None:  # noqa: B027
        """A process joined the group."""

    def leave(self, process: ProcessId) -> None:  # noqa: B027
        """A process left, and all who remain have delivered the same of it (rule 6)."""

    def settle(self, upto: Counts) -> None:  # noqa: B027
        """Every member has delivered these: nobody has to be told of them any more."""

    def lighten(self, upto: Counts) -> None:  # noqa: B027
        """Every member that this one knows has these; there may be others. They need not be carried, only named."""

    def save(self) -> MechanismState:
        """The state that this process itself goes on from after a crash, under another number."""
        return self.admit(-1)  # nobody: most give all joiners the same

    @abstractmethod
    def admit(self, joiner: ProcessId) -> MechanismState:
        """The state that `joiner` starts from; may split something of this process off for it."""

    @abstractmethod
    def install(self, state: MechanismState) -> None:
        """Start from this state, which some member's `admit()` gave."""


_encode = msgspec.msgpack.Encoder().encode


def control_bytes(stamp: Stamp) -> int:
    """The size of the control information on the wire."""
    return len(_encode(stamp))


class Delivered:
    """What was delivered, for a mechanism that may skip: a count per process, and which ids below it were skipped (at
    most `MAX_SKIPPED`; the oldest are forgotten and count as duplicates)."""

    MAX_SKIPPED = 10_000

    def __init__(self, upto: tuple[int, ...] = ()) -> None:
        self.upto = sparse(upto)
        self.skipped: dict[Id, None] = {}

    def reason(self, message: Message) -> str | None:
        """`late`: it was skipped. `duplicate`: it was delivered."""
        if message.seq > self.upto.get(message.sender, 0):
            return None
        return "late" if message.id in self.skipped else "duplicate"

    def skip_to(self, process: ProcessId, seq: int) -> int:
        """Everything up to `seq` that is not delivered is skipped: how many."""
        have = self.upto.get(process, 0)
        for missing in range(max(have, seq - self.MAX_SKIPPED) + 1, seq + 1):
            self.skipped[process, missing] = None
        while len(self.skipped) > self.MAX_SKIPPED:
            del self.skipped[next(iter(self.skipped))]
        self.upto[process] = max(have, seq)
        return max(0, seq - have)

    def add(self, message: Message) -> int:
        """It is delivered: how many of its sender were skipped for it."""
        if message.id in self.skipped:
            del self.skipped[message.id]
            return 0
        skipped = self.skip_to(message.sender, message.seq - 1)
        self.upto[message.sender] = message.seq
        return skipped
