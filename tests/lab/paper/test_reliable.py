"""Reliable causal multicast over views: all deliver the same in causal order, and a joiner goes on from one's state."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.core.survey.net import Truth, mechanisms
from whence.core.order.survey.base import Mechanism, Message
from whence.core.order.survey.vector import VectorClock
from whence.errors import UsageError
from whence.lab.paper.survey.reliable import (
    Flush,
    GroupView,
    Install,
    JoinState,
    ReliableOutput,
    ReliableProcess,
    ToApplication,
    ToProcess,
    Wire,
)

NAMES = ["first", "first-unstable", "identifiers", "vector", "compact-multicast", "compact-unicast", "interval"]


class Group:
    """A group over links that lose nothing and reorder, with a membership service that waits until all is quiet."""

    def __init__(self, make: Callable[[int], Mechanism], n: int, rng: Random) -> None:
        self.rng, self.make = rng, make
        self.view = GroupView(1, tuple(range(n)))
        self.live = {p: ReliableProcess(p, make(p), self.view) for p in range(n)}
        self.under_way: list[tuple[int, int, Wire]] = []
        self.truth = Truth()
        for p in self.live:
            self.truth.add(p)

    def do(self, p: int, outputs: list[ReliableOutput]) -> None:
        for output in outputs:
            match output:
                case ToProcess(to, wire):
                    if isinstance(wire, Message) and wire.id not in self.truth.past:
                        self.truth.multicast(wire)  # before its first delivery
                    self.under_way.append((p, to, wire))
                    if isinstance(wire, JoinState):
                        self.truth.start(to, set(self.truth.here[p]), set(self.truth.known[p]))
                case ToApplication(message):
                    self.truth.deliver(p, message)
                case Install(view):
                    assert view == self.view

    def step(self) -> None:
        sender, to, wire = self.under_way.pop(self.rng.randrange(len(self.under_way)))
        self.do(to, self.live[to].receive(sender, wire, 0))

    def talk(self, multicasts: int) -> None:
        while multicasts or self.under_way:
            if multicasts and (not self.under_way or self.rng.random() < 0.2):
                multicasts -= 1
                self.do(p := self.rng.choice(sorted(self.live)), self.live[p].multicast(b"x", 0))
            else:
                self.step()

    def replace(self, gone: int, joiner: int) -> None:
        """One crashes and another joins, in one view."""
        del self.live[gone]
        self.live[joiner] = ReliableProcess(joiner, self.make(joiner), None)
        self.view = GroupView(self.view.number + 1, tuple(sorted(self.live)))
        for p in self.view.members:
            self.do(p, self.live[p].install_view(self.view, 0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_all_deliver_the_same_in_order_and_a_joiner_goes_on(name: str, seed: int) -> None:
    group = Group(mechanisms(4)[name], 4, Random(seed))
    for gone, joiner in ((1, 4), (0, 5)):
        group.talk(20)
        group.replace(gone, joiner)
        group.talk(0)
        assert all(p.view == group.view and p.change is None for p in group.live.values())
    group.talk(20)
    assert group.truth.inversions == []  # each delivered once is checked at each delivery
    assert len({frozenset(group.truth.here[p]) for p in group.live}) == 1
    assert len(group.truth.here[5]) == 60


def test_nobody_multicasts_and_no_view_changes_while_something_is_under_way() -> None:
    a, b, c = (ReliableProcess(p, VectorClock(p), GroupView(1, (0, 1, 2))) for p in range(3))
    first = a.multicast(b"x", 0)
    wires = [o.wire for o in first if isinstance(o, ToProcess) and isinstance(o.wire, Message)]
    b.receive(0, wires[0], 0)
    [second, *_] = [o.wire for o in b.multicast(b"y", 0) if isinstance(o, ToProcess)]
    c.receive(1, second, 0)
    with pytest.raises(UsageError, match="under way: 2 waits"):
        c.install_view(GroupView(2, (0, 1, 2)), 0)
    with pytest.raises(UsageError, match="does not follow"):
        b.install_view(GroupView(1, (0, 1)), 0)
    assert [o.wire for o in b.install_view(GroupView(2, (1, 2)), 0) if isinstance(o, ToProcess)] == [Flush(2, True)]
    with pytest.raises(UsageError, match="nobody multicasts"):
        b.multicast(b"z", 0)
