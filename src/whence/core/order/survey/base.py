"""What every mechanism of the SURVEY is: the rules of one causal order, without links, buffers or clocks.

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

`Process` is one process of a causal multicast: any mechanism, and the buffer in which received messages wait (SURVEY
Fig. 1): multicast(m) -> receive(m) at every node, "temporarily buffered until causal order can be ensured" ->
deliver(m). `Codec` reads the stamps and states of peers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Self, TypeVar

import msgspec

from whence.core.clock.bounds import keep_last
from whence.errors import BadMessage, UsageError

MAX_NUMBER = (1 << 62) - 1
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""Counters, times (nanoseconds) and process numbers: never negative, and no larger."""

ProcessId = Number
"""A process is a natural number ("vector clocks assume that those processes use natural numbers", SURVEY 3.2): it is a
position in vectors and one to five bytes on the wire. Whoever drives a mechanism maps its members to such numbers."""

Id = tuple[ProcessId, Number]
"""`(sender, seq)`: names a message."""

Gap = tuple[ProcessId, int, int]
"""`(sender, first, last)`: consecutive messages of one sender, ends included."""

Counts = dict[ProcessId, int]
"""How many messages of each process were delivered; a process that is not in it: none."""

Renumber = Callable[[ProcessId], ProcessId]
"""Another number for each process: two members need not number the processes alike."""

Ids = tuple[Id, ...]

Vector = tuple[Number, ...]
"""Counts by process number."""


def gaps(delivered: Counts, needed: Iterable[Id]) -> tuple[Gap, ...]:
    """What is missing up to each of the needed messages."""
    found = ((p, delivered.get(p, 0) + 1, seq) for p, seq in needed)
    return tuple(gap for gap in found if gap[1] <= gap[2])


def renumbered(vector: Vector, to: Renumber) -> Vector:
    """A vector by other process numbers."""
    return dense({to(p): n for p, n in enumerate(vector) if n})


def dense(counts: Counts) -> Vector:
    """A vector by process number, without the zeros at its end."""
    last = max((p for p, n in counts.items() if n), default=-1)
    return tuple(counts.get(p, 0) for p in range(last + 1))


def sparse(vector: Vector) -> Counts:
    """The inverse of `dense`."""
    return {p: n for p, n in enumerate(vector) if n}


def renumbered_rows(rows: tuple[Any, ...], to: Renumber) -> tuple[Any, ...]:
    """Ids, or other rows that begin with a process, by other process numbers."""
    return tuple((to(p), *rest) for p, *rest in rows)


class Numbered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Names processes by their numbers."""

    numbers: ClassVar[dict[str, Callable[[Any, Renumber], Any]]] = {}
    """Its fields that do, and how each is renumbered."""

    def renumbered(self, to: Renumber) -> Self:
        """The same with other process numbers."""
        changes = {name: by(getattr(self, name), to) for name, by in self.numbers.items()}
        return msgspec.structs.replace(self, **changes)


class Stamp(Numbered, frozen=True):
    """The control information of one message: what the mechanism adds to it. Tags are explicit and only ever
    appended."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One multicast: its name, its control information, and what the application said."""

    sender: ProcessId
    seq: int
    stamp: Any
    """Of the `stamp_type` of the group's mechanism; the codec refuses any other."""
    body: bytes
    anchor: bool = False
    """The stamp names all that is in its past, though the mechanism need not (`Mechanism.anchor`)."""

    @property
    def id(self) -> Id:
        return (self.sender, self.seq)


class MechanismState(Numbered, frozen=True):
    """What a joiner starts from, or what a leaver hands on."""


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
    """What its messages carry: anything else from a peer is refused by the codec (`core/wire.py`)."""
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

    def check(self, stamp: Any) -> None:  # noqa: B027
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

    def beyond(self, stamp: Any) -> int:
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
    def install(self, state: Any) -> None:
        """Start from this state, which some member's `admit()` gave: one of the `state_type`."""


class Counting(Mechanism):
    """Goes by how many messages of each process were delivered."""

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.delivered: Counts = {}
        self.broken: Counts = {}  # process: the last message given up, if nothing of it was delivered since (rule 5)

    @abstractmethod
    def missing(self, message: Message) -> tuple[Gap, ...]:
        """What must be delivered before the message."""

    def wait(self, message: Message, now: int) -> Wait | None:
        found = self.missing(message)
        return Wait(found) if found else None

    def obsolete(self, message: Message, now: int) -> str | None:
        if message.seq <= self.delivered.get(message.sender, 0):
            return "duplicate"
        return "broken" if not message.anchor and self.broken.get(message.sender) == message.seq - 1 else None

    def forget(self, message: Message) -> None:
        self.give_up(message.sender, message.seq)

    def skip(self, message: Message, now: int) -> None:
        for process, _, last in self.missing(message):
            self.give_up(process, last)

    def give_up(self, process: ProcessId, last: int) -> None:
        """Go on without the messages of a process up to this one."""
        self.delivered[process] = max(last, self.delivered.get(process, 0))
        if self.chained:
            self.broken[process] = self.delivered[process]

    def leave(self, process: ProcessId) -> None:
        self.delivered.pop(process, None)


encode = msgspec.msgpack.Encoder().encode


def control_bytes(stamp: Stamp) -> int:
    """The size of the control information on the wire."""
    return len(encode(stamp))


class Delivered:
    """What was delivered, for a mechanism that may skip: a count per process, and which ids below it were skipped (at
    most `MAX_SKIPPED`; the oldest are forgotten and count as duplicates)."""

    MAX_SKIPPED = 10_000

    def __init__(self, upto: Vector = ()) -> None:
        self.upto = sparse(upto)
        self.skipped: dict[Id, None] = {}

    def reason(self, message: Message) -> str | None:
        """`late`: it was skipped. `duplicate`: it was delivered."""
        if message.seq > self.upto.get(message.sender, 0):
            return None
        return "late" if message.id in self.skipped else "duplicate"

    def skip_to(self, process: ProcessId, seq: int) -> None:
        """Everything up to `seq` that is not delivered is skipped."""
        have = self.upto.get(process, 0)
        for missing in range(max(have, seq - self.MAX_SKIPPED) + 1, seq + 1):
            self.skipped[process, missing] = None
        keep_last(self.skipped, self.MAX_SKIPPED)
        self.upto[process] = max(have, seq)

    def add(self, message: Message) -> None:
        """It is delivered; what is missing of its sender before it is skipped."""
        if message.id in self.skipped:
            del self.skipped[message.id]
        else:
            self.skip_to(message.sender, message.seq - 1)
            self.upto[message.sender] = message.seq


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
        self.dropped: dict[str, int] = {}
        """How many, by reason: `duplicate`, `late`, `expired`, `broken`, `departed`, `overflow`, `ahead`."""
        self.blocked = 0  # messages that could not be delivered when they arrived
        self._held: dict[Id, Message] = {}
        self._gone: dict[ProcessId, None] = {}
        self._now = 0
        self._wake_at: int | None = None
        self._counted = False  # `_wake_at` is what follows from what is held

    def multicast(self, body: bytes, now: int) -> tuple[Message, list[Message]]:
        """Stamp an own message and deliver it here at once: the message to send, and what is delivered because of
        it."""
        message = self.stamp(body, now)
        return message, self.mechanism.deliver(message, now) + self.drain(now)

    def stamp(self, body: bytes, now: int) -> Message:
        """Stamp an own message without delivering it here; `receive()` it when it may be delivered (uniform
        delivery)."""
        self.seq += 1
        return Message(self.me, self.seq, self.mechanism.stamp(self.seq, now), body)

    def receive(self, message: Message, now: int) -> list[Message]:
        """A message came in: what can be delivered now, in order."""
        self._now, self._counted = now, False
        reason = self._refused(message, now)
        if reason is None and len(self._held) >= self.capacity and self.mechanism.wait(message, now) is not None:
            reason = "overflow"  # what can be delivered needs no room
        if reason is not None:
            self._drop(reason, message)
            return self.drain(now) if reason == "broken" else []
        self._held[message.id] = message
        delivered = self.drain(now)
        self.blocked += message.id in self._held
        return delivered

    def drain(self, now: int) -> list[Message]:
        """Deliver what is held and deliverable, to a fixed point; call it again at `wake_at`."""
        delivered: list[Message] = []
        self._now, self._counted = now, False
        while self._held:
            for message in list(self._held.values()):
                self._drop_if(self.mechanism.obsolete(message, now), message)
            ready = [m for m in self._held.values() if self.mechanism.wait(m, now) is None]
            if not ready:
                break
            for message in sorted(ready, key=self.mechanism.rank):  # what is ready stays so, or becomes obsolete
                if not self._drop_if(self.mechanism.obsolete(message, now), message):
                    del self._held[message.id]
                    delivered += self.mechanism.deliver(message, now)
        return delivered

    def force(self, wanted: Id, now: int) -> tuple[list[Gap], list[Message]]:
        """A held message has waited long enough: what is given up for it, as far as it can be named, and what is
        delivered. What is in hand and precedes it goes before it, over gaps of its own."""
        lost: list[Gap] = []
        delivered: list[Message] = []
        while wanted in self._held:
            first = self._held[wanted]
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
        self._drop_if(reason, self._held[wanted])

    def _before(self, message: Message, now: int) -> Message | None:
        """Something in hand that precedes it."""
        held = (m for m in self._held.values() if m.id != message.id)
        return next((m for m in held if self.mechanism.precedes(m, message, now)), None)

    @property
    def wake_at(self) -> int | None:
        """When time alone may make something deliverable."""
        if not self._counted:  # it is asked for after each step of the member, most of which change nothing here
            times = [wait.until for _, wait in self.waiting(self._now) if wait.until is not None]
            self._wake_at, self._counted = min(times, default=None), True
        return self._wake_at

    def waiting(self, now: int) -> list[tuple[Message, Wait]]:
        """What is held, and why."""
        found = [(message, self.mechanism.wait(message, now)) for message in self._held.values()]
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

    def _drop_if(self, reason: str | None, message: Message) -> bool:
        """Drop a held message, if there is a reason to."""
        if reason is None:
            return False
        del self._held[message.id]
        self._counted = False
        self._drop(reason, message)
        return True

    def _drop(self, reason: str, message: Message) -> None:
        self.on_drop(message, reason)
        if reason == "broken":
            self.mechanism.forget(message)
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


N = TypeVar("N", bound=Numbered)


class Codec:
    """Reads what peers say in a group that runs one mechanism. How many bytes it may have their messages' types say."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self._stamp = msgspec.msgpack.Decoder(mechanism.stamp_type)
        self._state = msgspec.msgpack.Decoder(mechanism.state_type)

    def stamp(self, data: bytes) -> Stamp:
        """The stamp of a message; `BadMessage` or `BadFrame` for anything else."""
        stamp = self._decoded(self._stamp, data, "message")
        self.mechanism.check(stamp)
        return stamp

    def state(self, data: bytes) -> MechanismState:
        """A state to `install`; `BadMessage` for anything else."""
        return self._decoded(self._state, data, "state")

    def _decoded(self, decoder: msgspec.msgpack.Decoder[N], data: bytes, what: str) -> N:
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadMessage(f"no {what} of the order {self.mechanism.name}: {error}") from None
