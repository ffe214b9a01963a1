"""A group with views in which senders crash and others join."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.survey.net import Truth, mechanisms
from whence.order.survey import Id, Mechanism
from whence.order.survey.reliable import (
    Data,
    Deliver,
    Install,
    Output,
    ReliableProcess,
    Send,
    View,
    Welcome,
    Wire,
)


class Group:
    """A group over quasi-reliable links that reorder and duplicate, with a membership service that sees every crash."""

    def __init__(
        self, make: Callable[[int], Mechanism], n: int, rng: Random, uniform: bool = False, kind: type = ReliableProcess
    ) -> None:
        self.rng, self.make, self.uniform, self.kind = rng, make, uniform, kind
        self.view = View(1, tuple(range(n)))
        self.live: dict[int, ReliableProcess] = {p: kind(p, make(p), self.view, uniform) for p in range(n)}
        self.under_way: list[tuple[int, int, Wire | View]] = []
        self.truth = Truth()
        for p in self.live:
            self.truth.add(p)
        self.crashed: list[int] = []
        self.multicast_by: dict[int, list[Id]] = {p: [] for p in self.live}
        self.asked: dict[int, int] = dict.fromkeys(self.live, 0)
        self.snapshots: dict[tuple[int, int], tuple[set[Id], set[Id]]] = {}

    def do(self, p: int, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(to, wire):
                    if isinstance(wire, Data) and wire.message.id not in self.truth.past:
                        self.truth.multicast(wire.message)  # before its first delivery
                        self.multicast_by[p].append(wire.message.id)
                    if isinstance(wire, Welcome):  # this is the moment of the snapshot
                        self.snapshots[to, wire.view.number] = (set(self.truth.here[p]), set(self.truth.known[p]))
                    self.under_way.append((p, to, wire))
                case Deliver(message):
                    if message.id not in self.truth.past:  # alone in its view
                        self.truth.multicast(message)
                        self.multicast_by[p].append(message.id)
                    self.truth.deliver(p, message)
                case Install(view, sponsor):
                    if sponsor is not None:
                        self.truth.start(p, *self.snapshots[p, view.number])

    def multicast(self, p: int) -> None:
        self.asked[p] += 1
        self.do(p, self.live[p].multicast(b"%d" % self.asked[p], 0))

    def step(self) -> None:
        at = self.rng.randrange(len(self.under_way))
        sender, to, wire = self.under_way[at]
        if self.rng.random() >= 0.1 or isinstance(wire, View):
            self.under_way.pop(at)
        if to not in self.live:
            return
        if isinstance(wire, View):
            if wire.number > newest(self.live[to]):  # the service skips views that are over
                self.do(to, self.live[to].install_view(wire, 0))
        else:
            self.do(to, self.live[to].receive(sender, wire, 0))

    def crash(self, p: int) -> None:
        """It stops; of what it was sending any part arrives."""
        del self.live[p]
        self.crashed.append(p)
        self.under_way = [x for x in self.under_way if x[0] != p or self.rng.random() < 0.5]
        self.announce(tuple(m for m in self.view.members if m != p))

    def announce(self, members: tuple[int, ...]) -> None:
        self.view = View(self.view.number + 1, members)
        self.under_way += [(-1, p, self.view) for p in members]

    def settle(self) -> None:
        while self.under_way:
            self.step()

    def check(self) -> None:
        """P1-P4 among the correct processes (those alive at the end), and that all are in the last view."""
        correct = sorted(self.live)
        for p in correct:
            assert self.live[p].view == self.view and self.live[p].change is None
            assert set(self.multicast_by[p]) <= self.truth.here[p]  # P1
            assert len(self.multicast_by[p]) == self.asked[p]
        assert len({frozenset(self.truth.here[p]) for p in correct}) == 1  # P2; P3 is checked at each delivery
        assert self.truth.inversions == []  # P4
        assert not [p for p in correct if self.live[p].unstable]  # and nothing is held for ever


def newest(process: ReliableProcess) -> int:
    return process.change.view.number if process.change else process.view.number if process.view else 0


def joins(name: str, seed: int, uniform: bool, kind: type[Group] = Group) -> Group:
    """Two join and three crash, whoever it is, at any time; everybody who has a state multicasts."""
    rng = Random(seed)
    group = kind(mechanisms(4)[name], 4, rng, uniform)
    arrivals, crashes = rng.sample(range(200), 2), rng.sample(range(200), 3)
    for at in range(200):
        if at in arrivals:
            joiner = len(group.live) + len(group.crashed)
            group.live[joiner] = ReliableProcess(joiner, group.make(joiner), None, uniform)
            group.multicast_by[joiner], group.asked[joiner] = [], 0
            group.announce((*group.view.members, joiner))
        stateful = [p for p, process in sorted(group.live.items()) if process.view]
        if at in crashes:
            victim = rng.choice(sorted(group.live))
            if stateful != [victim]:  # the last one that has the state
                group.crash(victim)
        stateful = [p for p in stateful if p in group.live]
        if rng.random() < 0.25 or not group.under_way:
            group.multicast(rng.choice(stateful))
        else:
            group.step()
    group.settle()
    return group
