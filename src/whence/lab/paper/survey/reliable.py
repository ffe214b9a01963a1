"""Reliable causal multicast over views: P1 validity, P2 agreement, P3 integrity, P4 causal order (SURVEY section 2).

Any mechanism provides the order; this module provides agreement. Links are quasi-reliable, as the SURVEY assumes: what
a correct process sends to a correct one arrives, once or more often, in any order; what a crashing process was sending
may arrive at some and not at others. Membership is decided elsewhere: a membership service tells everybody of the next
view at once, without the processes that have crashed, and of another one only when all have installed it. Only
experiments use this, and none has a crash during a view change.

1. Every process keeps each message until all members of the view have acknowledged it, that is, until it is **stable**.
2. During a view change nobody multicasts. Everybody sends everybody (of the new view) a `Flush` with its unstable
   messages: a message that its crashed sender gave to one survivor reaches all of them.
3. A process that has the `Flush` of all sends `Ready`. A process that has the `Ready` of all knows that all hold the
   same: it delivers what it can, drops what waits for a message that nobody has, and installs the view.
4. A joiner gets the state of the first member that has one, as of the installation of the view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
    """Send this to one process."""

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


class _Change:
    """A view change in progress."""

    def __init__(self, view: GroupView) -> None:
        self.view = view
        self.flushed: dict[ProcessId, bool] = {}
        self.ready: dict[ProcessId, None] = {}

    def complete(self, have: Collection[ProcessId]) -> bool:
        return all(member in have for member in self.view.members)


class ReliableProcess:
    """One member of a group. A founder starts with the first view, a joiner with `view=None`."""

    def __init__(self, me: ProcessId, mechanism: Mechanism, view: GroupView | None) -> None:
        self.me = me
        self.process = Process(me, mechanism)
        self.view = view
        self.unstable: dict[Id, Data] = {}
        self.later: list[Data] = []
        """Messages of a view that is not installed here yet."""
        self.received: Counts = {}
        self.beyond: dict[Id, None] = {}
        """Received behind a gap."""
        self.delivered: Counts = {}
        self.stable: Counts = {}
        self.acked: dict[ProcessId, Counts] = {}
        """By member: what it has received."""
        self.settled: dict[ProcessId, Counts] = {}
        """By member: what it has delivered."""
        self.queued: list[bytes] = []
        self.change: _Change | None = None
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
        newest = self.view.number if self.view else 0
        if self.change is not None or view.number <= newest or self.me not in view.members:
            raise UsageError(f"view {view.number} of {view.members} does not follow view {newest} at {self.me}")
        self.change = _Change(view)
        self.change.flushed[self.me] = self.view is not None
        unstable = tuple(self.unstable.values())
        return self._tell(view, Flush(view.number, self.view is not None, unstable)) + self._progress(now)

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[ReliableOutput]:
        """A message from another process."""
        view = self.change.view if self.change else self.view
        if view is not None and sender not in view.members:
            return []  # our `Flush` does not have it, so others would not get it: only their flushes count
        match wire:
            case Data():
                return self._take([wire], now)
            case Ack():
                return self._acknowledged(sender, wire, now)
            case Flush():
                if self.change is not None:
                    self.change.flushed[sender] = wire.stateful
                return self._take(wire.unstable, now) + self._progress(now)
            case Ready():
                if self.change is not None:
                    self.change.ready[sender] = None
                return self._progress(now)
            case JoinState():
                if self.view is None:
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
        fed = self._feed(news, now)
        if self.view is None:
            return fed
        ack = self._ack()
        joiners = self.change.view.members if self.change else ()
        everybody = GroupView(0, tuple(dict.fromkeys([*self.view.members, *joiners])))
        return [*fed, *self._tell(everybody, ack), *self._acknowledged(self.me, ack, now)]

    def _ack(self) -> Ack:
        return Ack(tuple(sorted(self.received.items())), tuple(sorted(self.delivered.items())))

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
        released = False
        for sender in senders:
            upto = self._by_all(self.acked, sender)
            while (key := (sender, self.stable.get(sender, 0) + 1))[1] <= upto:
                data = self.unstable.get(key)
                if data is not None and data.view > self.view.number:
                    break  # of a view that is not installed here
                if data is not None:
                    del self.unstable[key]
                    released = True
                self.stable[sender] = key[1]
        return self._send_queued(now) if released else []

    def _feed(self, news: Iterable[Data], now: int) -> list[ReliableOutput]:
        """Pass new messages to the mechanism. Messages of a later view wait."""
        out: list[ReliableOutput] = []
        for data in news:
            if self.view is None or data.view > self.view.number:
                self.later.append(data)
            else:
                out += self._deliver(self.process.receive(data.message, now))
        return out

    def _deliver(self, messages: list[Message]) -> list[ReliableOutput]:
        for message in messages:
            self.delivered[message.sender] = message.seq
        return [ToApplication(m) for m in messages]

    # --- the change of a view

    def _progress(self, now: int) -> list[ReliableOutput]:
        """Send `Ready`, and install the view, as soon as possible."""
        change, out = self.change, list[ReliableOutput]()
        if change is None or not change.complete(change.flushed):
            return out
        if self.me not in change.ready:
            change.ready[self.me] = None
            out += self._tell(change.view, Ready(change.view.number))
        if not change.complete(change.ready):
            return out
        return out + (self._install(change, now) if self.view else self._start(now))

    def _install(self, change: _Change, now: int) -> list[ReliableOutput]:
        """All members of the new view hold the same messages and have delivered what is possible: drop the rest."""
        assert self.view is not None
        before, view = self.view.members, change.view
        self.view, self.change = view, None
        for gone in (member for member in before if member not in view.members):
            self.process.leave(gone)
            self.beyond = {key: None for key in self.beyond if key[0] != gone}
            for table in (self.received, self.delivered, self.stable, self.acked, self.settled):
                table.pop(gone, None)
        self.unstable = {key: data for key, data in self.unstable.items() if data.view >= view.number}
        for member in view.members:
            if member not in before:
                self.process.mechanism.join(member)
        return [Install(view), *self._sponsor(change), *self._go_on(now)]

    def _go_on(self, now: int) -> list[ReliableOutput]:
        """In a new view: process early messages, stable messages and queued ones."""
        early, self.later = self.later, []
        out = self._feed(early, now)
        out += self._acknowledged(self.me, self._ack(), now)
        return out + self._release(sorted(self.received), now) + self._send_queued(now)

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
        if self.welcome is None:
            return []
        sponsor, welcome = self.welcome
        self.view, self.change = welcome.view, None
        for member in welcome.view.members:
            self.process.mechanism.join(member)
        out: list[ReliableOutput] = [Install(welcome.view, sponsor)]
        self.received, self.delivered = dict(welcome.received), dict(welcome.received)
        out += self._deliver(self.process.install(welcome.state, now))
        self.later = [data for data in self.later if data.view >= welcome.view.number]
        self.unstable = {data.message.id: data for data in self.later}
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
