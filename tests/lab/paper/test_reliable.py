"""P1-P4 over views: senders crash in the middle of a multicast, others join, and all who stay agree."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.survey.net import Truth, mechanisms
from whence.core.order.survey.base import Id, Mechanism
from whence.core.order.survey.vector import VectorClock
from whence.errors import UsageError
from whence.lab.paper.survey.reliable import (
    Data,
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
    """A group over quasi-reliable links that reorder and duplicate, with a membership service that sees every crash."""

    def __init__(self, make: Callable[[int], Mechanism], n: int, rng: Random, kind: type = ReliableProcess) -> None:
        self.rng, self.make = rng, make
        self.view = GroupView(1, tuple(range(n)))
        self.live: dict[int, ReliableProcess] = {p: kind(p, make(p), self.view) for p in range(n)}
        self.under_way: list[tuple[int, int, Wire]] = []
        self.truth = Truth()
        for p in self.live:
            self.truth.add(p)
        self.crashed: list[int] = []
        self.multicast_by: dict[int, list[Id]] = {p: [] for p in self.live}
        self.asked: dict[int, int] = dict.fromkeys(self.live, 0)
        self.snapshots: dict[tuple[int, int], tuple[set[Id], set[Id]]] = {}

    def do(self, p: int, outputs: list[ReliableOutput]) -> None:
        for output in outputs:
            match output:
                case ToProcess(to, wire):
                    if isinstance(wire, Data) and wire.message.id not in self.truth.past:
                        self.truth.multicast(wire.message)  # before its first delivery
                        self.multicast_by[p].append(wire.message.id)
                    if isinstance(wire, JoinState):  # this is the moment of the snapshot
                        self.snapshots[to, wire.view.number] = (set(self.truth.here[p]), set(self.truth.known[p]))
                    self.under_way.append((p, to, wire))
                case ToApplication(message):
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
        if self.rng.random() >= 0.1:  # else it arrives once more
            self.under_way.pop(at)
        if to in self.live:
            self.do(to, self.live[to].receive(sender, wire, 0))

    @property
    def stands(self) -> bool:
        """Nobody is changing the view: the membership service may announce another."""
        return all(process.change is None for process in self.live.values())

    def crash(self, p: int) -> None:
        """It stops; of what it was sending any part arrives."""
        del self.live[p]
        self.crashed.append(p)
        self.under_way = [x for x in self.under_way if x[0] != p or self.rng.random() < 0.5]
        self.announce(tuple(m for m in self.view.members if m != p))

    def announce(self, members: tuple[int, ...]) -> None:
        self.view = GroupView(self.view.number + 1, members)
        for p in members:
            self.do(p, self.live[p].install_view(self.view, 0))

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


def run(make: Callable[[int], Mechanism], seed: int, kind: type = ReliableProcess) -> Group:
    """Two join and three crash, at any time at which no view changes; everybody who has a state multicasts."""
    rng = Random(seed)
    group = Group(make, 4, rng, kind)
    joins = rng.sample([True, True, False, False, False], 5)
    for _ in range(300):
        if joins and group.stands and rng.random() < 0.05:
            if joins.pop():
                joiner = len(group.live) + len(group.crashed)
                group.live[joiner] = kind(joiner, make(joiner), None)
                group.multicast_by[joiner], group.asked[joiner] = [], 0
                group.announce((*group.view.members, joiner))
            else:
                group.crash(rng.choice(sorted(group.live)))
        elif rng.random() < 0.25 or not group.under_way:
            group.multicast(rng.choice([p for p, process in sorted(group.live.items()) if process.view]))
        else:
            group.step()
    group.settle()
    return group


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_all_who_stay_agree(name: str, seed: int) -> None:
    run(mechanisms(4)[name], seed).check()


class NoRetransmission(ReliableProcess):
    """Flushes without the messages."""

    def _tell(self, view: GroupView, wire: Wire) -> list[ReliableOutput]:
        return super()._tell(view, Flush(wire.view, wire.stateful, ()) if isinstance(wire, Flush) else wire)


def test_a_broken_rule_is_seen() -> None:
    wrong = 0
    for seed in range(40):
        try:
            run(VectorClock, seed, NoRetransmission).check()
        except AssertionError:
            wrong += 1
    assert wrong > 0


def test_a_message_that_only_one_survivor_got_reaches_all() -> None:
    a, b, c = (ReliableProcess(p, VectorClock(p), GroupView(1, (0, 1, 2))) for p in range(3))
    (data, *_), *_ = [[o.wire for o in a.multicast(b"x", 0) if isinstance(o, ToProcess) and o.to == 1]]
    assert [o for o in b.receive(0, data, 0) if isinstance(o, ToApplication)]
    view = GroupView(2, (1, 2))  # 0 crashed before its message left for 2
    flush = {p.me: [o.wire for o in p.install_view(view, 0) if isinstance(o, ToProcess)] for p in (b, c)}
    assert flush == {1: [Flush(2, True, (data,))], 2: [Flush(2, True, ())]}
    out = c.receive(1, flush[1][0], 0)
    assert [o.message.body for o in out if isinstance(o, ToApplication)] == [b"x"]


def test_misuse_is_named() -> None:
    alone = ReliableProcess(0, VectorClock(0), GroupView(3, (0, 1)))
    with pytest.raises(UsageError, match="does not follow"):
        alone.install_view(GroupView(3, (0,)), 0)
