"""Reliable causal multicast over views: P1 validity, P2 agreement, P3 integrity, P4 causal order (SURVEY section 2).

Any mechanism provides the order; this module provides agreement. Links are quasi-reliable, as the SURVEY assumes: what
a correct process sends to a correct one arrives, once or more often, in any order; what a crashing process was sending
may arrive at some and not at others. Membership is decided elsewhere: a membership service gives everybody the same
sequence of views, and removes a crashed process from the next one.

1. Every process keeps each message until all members of the view have acknowledged it, that is, until it is **stable**.
2. During a view change nobody multicasts. Everybody sends everybody (of the new view) a `Flush` with its unstable
   messages: a message that its crashed sender gave to one survivor reaches all of them.
3. A process that has the `Flush` of all sends `Ready`. A process that has the `Ready` of all knows that all hold the
   same: it delivers what it can, drops what waits for a message that nobody has, and installs the view.
4. A crash during this leads to the next view and the same steps again. What was sent in a view that only some have
   installed is flushed into the next one, and delivered there in the order of the views.
5. A joiner gets the state of the first member that has one, as of the installation of the view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from whence.core.order.survey.base import Counts, Id, Mechanism, MechanismState, Message, Process, ProcessId
from whence.errors import UsageError


class GroupView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The members of the group, ascending, under a number that rises with each change."""

    number: int
    members: tuple[ProcessId, ...]


class Data(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A multicast, and the view it was made in."""

    view: int
    message: Message


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """How many of each sender's messages were received without a gap, and how many delivered (mechanisms can omit what
    all have delivered)."""

    received: tuple[Id, ...]
    delivered: tuple[Id, ...] = ()


class Flush(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """For this view: the sender's unstable messages. `stateful`: it is not a joiner that waits for a state."""

    view: int
    stateful: bool
    unstable: tuple[Data, ...]


class Ready(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """For this view: the sender has the `Flush` of all its members."""

    view: int


class JoinState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The state of a member when it installed this view."""

    view: GroupView
    state: MechanismState
    received: tuple[Id, ...]


Wire = Data | Ack | Flush | Ready | JoinState


class ToProcess(msgspec.Struct, frozen=True, gc=False):
    """ToProcess this to one process."""

    to: ProcessId
    wire: Wire


class ToApplication(msgspec.Struct, frozen=True, gc=False):
    """The application gets a message."""

    message: Message


class Install(msgspec.Struct, frozen=True, gc=False):
    """The view is installed: later deliveries belong to it. At a joiner: also who gave the state."""

    view: GroupView
    snapshot_of: ProcessId | None = None


ReliableOutput = ToProcess | ToApplication | Install


@dataclass
class _Change:
    """A view change in progress."""

    view: GroupView
    flushed: dict[ProcessId, bool] = field(default_factory=dict)
    ready: dict[ProcessId, None] = field(default_factory=dict)
    said_ready: bool = False


class ReliableProcess:
    """One member of a group. A founder starts with the first view, a joiner with `view=None`."""

    def __init__(self, me: ProcessId, mechanism: Mechanism, view: GroupView | None) -> None:
        self.me = me
        self.process = Process(me, mechanism)
        self.view = view
        self.unstable: dict[Id, Data] = {}
        self.fed: dict[Id, None] = {}
        """Unstable messages passed to the mechanism."""
        self.received: Counts = {}
        self.beyond: dict[Id, None] = {}
        self.delivered: Counts = {}
        self.stable: Counts = {}
        self.acked: dict[ProcessId, Counts] = {}
        """By member: what it has received."""
        self.settled: dict[ProcessId, Counts] = {}
        """By member: what it has delivered."""
        self.queued: list[bytes] = []
        self.departed: dict[ProcessId, None] = {}
        """Processes that are not in the next view; their messages are ignored."""
        self.left: dict[ProcessId, None] = {}
        """Those of them without which a view is installed already."""
        self.change: _Change | None = None
        self.early: dict[int, list[tuple[ProcessId, Flush | Ready]]] = {}
        self.welcome: tuple[ProcessId, JoinState] | None = None
        for member in view.members if view else ():
            self.process.mechanism.join(member)

    # --- inputs

    def multicast(self, body: bytes, now: int) -> list[ReliableOutput]:
        """Multicast, or queue the message during a view change."""
        self.queued.append(body)
        return self._send_queued(now)

    def install_view(self, view: GroupView, now: int) -> list[ReliableOutput]:
        """The membership service announces the next view."""
        newest = self.change.view.number if self.change else self.view.number if self.view else 0
        if view.number <= newest or self.me not in view.members:
            raise UsageError(f"view {view.number} of {view.members} does not follow view {newest} at {self.me}")
        for before in (self.change.view if self.change else None, self.view):
            self.departed |= {m: None for m in (before.members if before else ()) if m not in view.members}
        self.change = _Change(view)
        self.change.flushed[self.me] = self.view is not None
        unstable = tuple(self.unstable.values())
        out: list[ReliableOutput] = self._tell(view, Flush(view.number, self.view is not None, unstable))
        for sender, wire in self.early.pop(view.number, []):
            out += self._marker(sender, wire, now)
        self.early = {number: some for number, some in self.early.items() if number > view.number}
        return out + self._progress(now)

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[ReliableOutput]:
        """A message from another process."""
        if sender in self.departed:
            return []  # our `Flush` does not have it, so others would not get it: only their flushes count
        match wire:
            case Data():
                return self._take([wire], now)
            case Ack():
                return self._acknowledged(sender, wire, now)
            case Flush():
                return self._take(wire.unstable, now) + self._marker(sender, wire, now) + self._progress(now)
            case Ready():
                return self._marker(sender, wire, now) + self._progress(now)
            case JoinState():
                if self.view is None and (self.welcome is None or wire.view.number > self.welcome[1].view.number):
                    self.welcome = (sender, wire)
                return self._progress(now)

    # --- messages and their acknowledgements

    def _send_queued(self, now: int) -> list[ReliableOutput]:
        out: list[ReliableOutput] = []
        while self.queued and self.view and not self.change:
            message = self.process.stamp(self.queued.pop(0), now)
            data = Data(self.view.number, message)
            sends = self._tell(self.view, data)
            out += [*sends, *self._take([data], now)]
        return out

    def _take(self, some: Iterable[Data], now: int) -> list[ReliableOutput]:
        """Keep and acknowledge new messages, whoever sent them, and deliver them when possible."""
        news: list[Data] = []
        settled = self.view.number if self.view else 0  # older messages were delivered or given up with that view
        for data in some:
            key = data.message.id
            if data.view < settled or data.message.seq <= self.received.get(key[0], 0) or key in self.beyond:
                continue
            news.append(data)
            self.unstable[key] = data
            self.beyond[key] = None
        if not news:
            return []
        self._count(data.message.sender for data in news)
        if self.view is None:
            return []
        fed = self._feed(news, now)
        ack = self._ack()
        everybody = GroupView(0, tuple(dict.fromkeys([*self.view.members, *self._next_members()])))
        acks = self._tell(everybody, ack)
        return [*fed, *acks, *self._acknowledged(self.me, ack, now)]

    def _ack(self) -> Ack:
        return Ack(tuple(sorted(self.received.items())), tuple(sorted(self.delivered.items())))

    def _next_members(self) -> tuple[ProcessId, ...]:
        return self.change.view.members if self.change else ()

    def _count(self, senders: Iterable[ProcessId]) -> None:
        """Advance the counts over gaps that are filled now."""
        for sender in dict.fromkeys(senders):
            while (key := (sender, self.received.get(sender, 0) + 1)) in self.beyond:
                del self.beyond[key]
                self.received[sender] = key[1]

    def _acknowledged(self, member: ProcessId, ack: Ack, now: int) -> list[ReliableOutput]:
        news = _raise(self.acked.setdefault(member, {}), ack.received)
        delivered = _raise(self.settled.setdefault(member, {}), ack.delivered)
        if self.view is None:
            return []
        if delivered:
            self.process.settle({sender: self._by_all(self.settled, sender) for sender in delivered})
        return self._release(news, now)

    def _by_all(self, table: dict[ProcessId, Counts], sender: ProcessId) -> int:
        """How many messages of a sender all members of the view have, according to the table."""
        assert self.view is not None
        return min(table.get(m, {}).get(sender, 0) for m in self.view.members)

    def _release(self, senders: Iterable[ProcessId], now: int) -> list[ReliableOutput]:
        """Drop what is stable."""
        assert self.view is not None
        stable: list[Data] = []
        for sender in senders:
            upto = self._by_all(self.acked, sender)
            while (key := (sender, self.stable.get(sender, 0) + 1))[1] <= upto:
                data = self.unstable.get(key)
                if data is not None and data.view > self.view.number:
                    break  # of a view that is not installed here
                if data is not None:
                    stable.append(data)
                self.stable[sender] = key[1]
        for data in stable:
            del self.unstable[data.message.id]
            self.fed.pop(data.message.id, None)
        return self._send_queued(now) if stable else []

    def _feed(self, some: Iterable[Data], now: int) -> list[ReliableOutput]:
        """Pass new messages to the mechanism, view by view. Messages of later views wait."""
        assert self.view is not None
        out: list[ReliableOutput] = []
        news = [data for data in some if data.message.id not in self.fed and data.view <= self.view.number]
        for data in sorted(news, key=lambda d: d.view):
            self.fed[data.message.id] = None
            out += self._deliver(self.process.receive(data.message, now))
        return out

    def _deliver(self, messages: list[Message]) -> list[ReliableOutput]:
        for message in messages:
            self.delivered[message.sender] = message.seq
        return [ToApplication(m) for m in messages]

    # --- the change of a view

    def _marker(self, sender: ProcessId, wire: Flush | Ready, now: int) -> list[ReliableOutput]:
        if self.change is None or wire.view != self.change.view.number:
            newest = self.change.view.number if self.change else self.view.number if self.view else 0
            if wire.view > newest:  # the membership service will tell of it here too
                some = self.early.setdefault(wire.view, [])
                if (sender, wire) not in some:
                    some.append((sender, wire))
            return []
        if isinstance(wire, Flush):
            self.change.flushed[sender] = wire.stateful
        else:
            self.change.ready[sender] = None
        return []

    def _progress(self, now: int) -> list[ReliableOutput]:
        """ToProcess `Ready` and install the view as soon as possible."""
        change, out = self.change, list[ReliableOutput]()
        if change is None or not all(m in change.flushed for m in change.view.members):
            return out
        if not change.said_ready:
            change.said_ready = True
            change.ready[self.me] = None
            out += self._tell(change.view, Ready(change.view.number))
        if not all(m in change.ready for m in change.view.members):
            return out
        if self.view is None:
            return out + self._start(now)
        return out + self._install(change, now)

    def _install(self, change: _Change, now: int) -> list[ReliableOutput]:
        """All members of the new view hold the same messages: deliver what is possible and drop the rest."""
        assert self.view is not None
        old, view = self.view, change.view
        out = self._feed([d for d in self.unstable.values() if d.view <= old.number], now)
        for number in range(old.number + 1, view.number):  # views that others installed and this process did not
            self.view = GroupView(number, old.members)
            out += self._feed([d for d in self.unstable.values() if d.view == number], now)
        self.view, self.change = view, None
        for gone in self.departed:  # also processes that came and went in views not installed here
            if gone not in self.left:
                self.left[gone] = None
                self.process.leave(gone)
                self._forget(gone)
        for key in [key for key, d in self.unstable.items() if d.view < view.number]:
            del self.unstable[key]  # everybody here holds it
            self.fed.pop(key, None)
        for member in view.members:
            if member not in old.members:
                self.process.mechanism.join(member)
        out.append(Install(view))
        out += self._sponsor(change)
        return out + self._go_on(now)

    def _go_on(self, now: int) -> list[ReliableOutput]:
        """In a new view: process early messages, stable messages and queued ones."""
        out = self._feed(self.unstable.values(), now)
        out += self._acknowledged(self.me, self._ack(), now)
        return out + self._release(sorted(self.received), now) + self._send_queued(now)

    def _forget(self, gone: ProcessId) -> None:
        self.unstable = {key: data for key, data in self.unstable.items() if key[0] != gone}
        self.fed = {key: None for key in self.fed if key[0] != gone}
        self.beyond = {key: None for key in self.beyond if key[0] != gone}
        for counts in (self.received, self.delivered, self.stable):
            counts.pop(gone, None)
        for table in (self.acked, self.settled):
            table.pop(gone, None)

    def _sponsor(self, change: _Change) -> list[ReliableOutput]:
        """The first member that has a state sends it to the joiners."""
        first = min(member for member, stateful in change.flushed.items() if stateful)
        joiners = [member for member, stateful in sorted(change.flushed.items()) if not stateful]
        if first != self.me:
            return []
        received = dict(self.received)
        for sender, seq in self.unstable:  # of the new view, from a member that installed it earlier: not in the state
            received[sender] = min(received.get(sender, 0), seq - 1)
        return [
            ToProcess(j, JoinState(change.view, self.process.admit(j), tuple(sorted(received.items()))))
            for j in joiners
        ]

    def _start(self, now: int) -> list[ReliableOutput]:
        """A joiner: continue from a member's state once it has arrived."""
        assert self.change is not None
        if self.welcome is None or self.welcome[1].view.number != self.change.view.number:
            return []
        sponsor, welcome = self.welcome
        self.view, self.change = welcome.view, None
        for member in welcome.view.members:
            self.process.mechanism.join(member)
        out: list[ReliableOutput] = [Install(welcome.view, sponsor)]
        self.received, self.delivered = dict(welcome.received), dict(welcome.received)
        out += self._deliver(self.process.install(welcome.state, now))
        self.unstable = {key: d for key, d in self.unstable.items() if d.view >= welcome.view.number}
        self.beyond = {key: None for key in self.unstable if key[1] > self.received.get(key[0], 0)}
        self.stable = dict(welcome.received)
        self._count(key[0] for key in list(self.beyond))
        out += self._go_on(now)
        return out + self._tell(self.view, self._ack())

    def _tell(self, view: GroupView, wire: Wire) -> list[ReliableOutput]:
        return [ToProcess(member, wire) for member in view.members if member != self.me]


def _raise(counts: Counts, news: Iterable[Id]) -> list[ProcessId]:
    """Raise the counts; returns the processes whose counts rose."""
    higher = [(p, n) for p, n in news if n > counts.get(p, 0)]
    counts.update(higher)
    return [p for p, _ in higher]
