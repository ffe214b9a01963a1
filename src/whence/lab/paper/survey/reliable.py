"""Reliable causal multicast over views, as far as the experiments need it (SURVEY section 2).

Any mechanism provides the order. Links lose nothing, though some messages come late. Everybody tells everybody what it
has delivered: mechanisms can omit what all have. Membership is decided elsewhere: a membership service tells everybody
of the next view at once, without the processes that have crashed, when nothing else is under way.

1. During a view change nobody multicasts. Everybody sends everybody (of the new view) a `Flush`.
2. A process that has the `Flush` of all sends `Ready`. A process that has the `Ready` of all knows that all hold the
   same, and installs the view.
3. A joiner gets the state of the first member that has one, as of the installation of the view.
"""

from __future__ import annotations

import msgspec

from whence.core.order.survey.base import Counts, Id, Mechanism, MechanismState, Message, Process, ProcessId
from whence.errors import UsageError


class GroupView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members of the group, ascending, under a number that rises with each change."""

    number: int
    members: tuple[ProcessId, ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """How many of each sender's messages were delivered."""

    delivered: tuple[Id, ...]


class Flush(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """For this view: the sender has stopped. `stateful`: it is not a joiner that waits for a state."""

    view: int
    stateful: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """For this view: the sender has the `Flush` of all its members."""

    view: int


class JoinState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The state of a member when it installed this view."""

    view: GroupView
    state: MechanismState
    delivered: tuple[Id, ...]


Wire = Message | Ack | Flush | Ready | JoinState


class ToProcess(msgspec.Struct, frozen=True, gc=False):
    """Send this to one process."""

    to: ProcessId
    wire: Wire


class ToApplication(msgspec.Struct, frozen=True, gc=False):
    """The application gets a message."""

    message: Message


class Install(msgspec.Struct, frozen=True, gc=False):
    """The view is installed: later deliveries belong to it."""

    view: GroupView


ReliableOutput = ToProcess | ToApplication | Install


class ReliableProcess:
    """One member of a group. A founder starts with the first view, a joiner with `view=None`."""

    def __init__(self, me: ProcessId, mechanism: Mechanism, view: GroupView | None) -> None:
        self.me = me
        self.process = Process(me, mechanism)
        self.view = view
        self.delivered: Counts = {}
        self.settled: dict[ProcessId, Counts] = {}
        """By member: what it has delivered."""
        self.change: GroupView | None = None
        """The view that is being installed, and whose `Flush` (is it stateful?) and `Ready` are there."""
        self.flushed: dict[ProcessId, bool] = {}
        self.ready: dict[ProcessId, None] = {}
        self.welcome: JoinState | None = None
        for member in view.members if view else ():
            mechanism.join(member)

    # --- inputs

    def multicast(self, body: bytes, now: int) -> list[ReliableOutput]:
        """Multicast a message."""
        if self.view is None or self.change is not None:
            raise UsageError(f"{self.me} is changing its view: nobody multicasts meanwhile")
        message = self.process.stamp(body, now)
        return [*self._tell(self.view, message), *self._take(message, now)]

    def install_view(self, view: GroupView, now: int) -> list[ReliableOutput]:
        """The membership service announces the next view."""
        newest = self.view.number if self.view else 0
        if self.change is not None or view.number <= newest or self.me not in view.members:
            raise UsageError(f"view {view.number} of {view.members} does not follow view {newest} at {self.me}")
        if held := [message.id for message, wait in self.process.waiting(now) if wait.until is None]:
            raise UsageError(f"messages are under way: {self.me} waits for what precedes {held[0]}")
        self.change, self.flushed, self.ready = view, {self.me: self.view is not None}, {}
        return self._tell(view, Flush(view.number, self.view is not None)) + self._progress(now)

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[ReliableOutput]:
        """A message from another process."""
        match wire:
            case Message():
                return self._take(wire, now)
            case Ack():
                self._acknowledged(sender, wire)
            case Flush() if self.change is not None:
                self.flushed[sender] = wire.stateful
            case Ready() if self.change is not None:
                self.ready[sender] = None
            case JoinState() if self.view is None:
                self.welcome = wire
        return self._progress(now)

    # --- messages and their acknowledgements

    def _take(self, message: Message, now: int) -> list[ReliableOutput]:
        """Deliver what can be delivered, and acknowledge it."""
        assert self.view is not None
        found = self._deliver(self.process.receive(message, now))
        ack = self._ack()
        self._acknowledged(self.me, ack)
        return [*found, *self._tell(self.view, ack)]

    def _deliver(self, messages: list[Message]) -> list[ReliableOutput]:
        for message in messages:
            self.delivered[message.sender] = message.seq
        return [ToApplication(m) for m in messages]

    def _ack(self) -> Ack:
        return Ack(tuple(sorted(self.delivered.items())))

    def _acknowledged(self, member: ProcessId, ack: Ack) -> None:
        """Tell the mechanism what all members have delivered."""
        counts = self.settled.setdefault(member, {})
        risen = [(sender, seq) for sender, seq in ack.delivered if seq > counts.get(sender, 0)]
        counts.update(risen)
        if risen and self.view is not None:
            known = [self.settled.get(m, {}) for m in self.view.members]
            self.process.settle({sender: min(have.get(sender, 0) for have in known) for sender, _ in risen})

    # --- the change of a view

    def _progress(self, now: int) -> list[ReliableOutput]:
        """Send `Ready`, and install the view, as soon as possible."""
        view, out = self.change, list[ReliableOutput]()
        if view is None or len(self.flushed) < len(view.members):
            return out
        if self.me not in self.ready:
            self.ready[self.me] = None
            out += self._tell(view, Ready(view.number))
        if len(self.ready) < len(view.members):
            return out
        return out + (self._start(now) if self.view is None else self._install(self.view, view))

    def _install(self, before: GroupView, view: GroupView) -> list[ReliableOutput]:
        """All members of the new view hold the same. The first one that has a state sends it to the joiners."""
        self.view, self.change = view, None
        for gone in (member for member in before.members if member not in view.members):
            self.process.leave(gone)
            self.delivered.pop(gone, None)
            self.settled.pop(gone, None)
        joiners = [member for member, stateful in sorted(self.flushed.items()) if not stateful]
        for joiner in joiners:
            self.process.mechanism.join(joiner)
        out: list[ReliableOutput] = [Install(view)]
        if self.me == min(member for member, stateful in self.flushed.items() if stateful):
            delivered = self._ack().delivered
            out += [ToProcess(j, JoinState(view, self.process.admit(j), delivered)) for j in joiners]
        return out

    def _start(self, now: int) -> list[ReliableOutput]:
        """A joiner: continue from a member's state once it has arrived."""
        if self.welcome is None:
            return []
        self.view, self.change = self.welcome.view, None
        for member in self.view.members:
            self.process.mechanism.join(member)
        self.delivered = dict(self.welcome.delivered)
        out = [Install(self.view), *self._deliver(self.process.install(self.welcome.state, now))]
        return [*out, *self._tell(self.view, self._ack())]

    def _tell(self, view: GroupView, wire: Wire) -> list[ReliableOutput]:
        return [ToProcess(member, wire) for member in view.members if member != self.me]
