"""The fault-free ring: directed tests of rules 2-6 of docs/ring.md, random walks and an exhaustive search.

`test_rules.py` shows what fails without each rule.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from tests.core.ring.walks import walk
from tests.core.ring.world import Make, World, config
from tests.long import few
from whence.core.clock import Send
from whence.core.ring import State
from whence.core.ring.context import Rejected, Released
from whence.core.ring.messages import CLeave, NackLeave
from whence.lab.paper.ccc11.basic import BasicRing
from whence.lab.sim.invariants import quiet_violations, violations


def test_random_walks() -> None:
    for seed in range(60):
        walk(seed)


@pytest.mark.parametrize("members", [1, 3, 8])
def test_rule_5_all_leave_at_once(members: int) -> None:
    for seed in range(4):
        w = World(config(8), seed=seed, make=BasicRing)
        names = [w.add(f"p{i}") for i in range(members)]
        w.found(names[0])
        w.run(3)
        w.settle(names[1:])
        for m in names:
            w.resign(m)
        w.run(30)
        assert all(s is State.OUT for s in w.states().values()), w.states()
        assert len(w.said(Released)) == members


def test_rule_5_a_refused_leave_is_not_repeated_at_once() -> None:
    w = World(config(8), make=BasicRing)
    names = [w.add(f"p{i}") for i in range(3)]
    w.found(names[0])
    w.run(3)
    w.settle(names[1:])
    top = max(names, key=lambda m: w.ring(m).ticket)
    ring = w.ring(top)
    w.resign(top)
    nack = NackLeave(ring.edges.leave_nonce, ring.ctx.holder.tenure)
    outputs = ring.receive(ring.ctx.pred.member, nack, ring.told)
    assert ring.state is State.OWNER and not ring.may_publish
    assert not [o for o in outputs if isinstance(o, Send) and isinstance(o.message, CLeave)]


def test_full_and_single_ticket() -> None:
    w = World(config(1), make=BasicRing)
    a, b = w.add("a"), w.add("b")
    w.found(a)
    w.run(3)
    w.coordinate(b)
    w.run(10)
    assert w.ring(b).state is State.JOINING and "full" in {r.reason for r in w.said(Rejected, b)}
    w.resign(a)
    assert w.run(20, lambda: w.ring(a).state is State.OUT)
    assert w.ring(b).state is State.JOINING  # the core is empty: nobody founds on a time-out
    w.found(b, 2)
    w.run(5)
    assert w.ring(b).state is State.OWNER and w.ring(b).inc > (1, 0, 1)


# --- exhaustive search over all interleavings of messages ---


class First(random.Random):
    """No chance: the first of what there is. The search is over the order of messages, not over tickets."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def uniform(self, a: float, b: float) -> float:
        return a


Channels = dict[tuple[str, str], tuple[Any, ...]]


class Net:
    """Rings and the messages between them, to be copied."""

    def __init__(self, rings: dict[str, BasicRing], channels: Channels, joins: int, leaves: int) -> None:
        self.rings, self.channels, self.joins, self.leaves = rings, channels, joins, leaves

    def key(self) -> Any:
        def ring(r: BasicRing) -> Any:
            edge = r.ctx.edge
            return (
                r.state,
                r.ctx.holder,
                r.ctx.pred,
                edge and (edge.succ, edge.acked),
                r.ctx.resigning,
                r.edges.refused,
                tuple(s for s, _ in r.edges.deferred),
                tuple((s, m) for s, m in r.edges.early),
                r.edges.held_leave and r.edges.held_leave[0],
                r.applicant.asked is not None,
                tuple(r.ctx.table.top),
                tuple(r.ctx.table.floor),
            )

        def message(to: str, m: Any) -> Any:
            current = getattr(m, "nonce", 0) == self.rings[to].edges.leave_nonce if isinstance(m, NackLeave) else None
            return (
                type(m).__name__,
                getattr(m, "mine", None),
                getattr(m, "yours", None),
                getattr(m, "succ", 0),
                current,
            )

        flying = tuple(sorted((c, tuple(message(c[1], m) for m in ms)) for c, ms in self.channels.items() if ms))
        return tuple(ring(r) for r in self.rings.values()), flying, self.joins, self.leaves

    def moves(self) -> list[tuple[str, ...]]:
        moves: list[tuple[str, ...]] = [("deliver", a, b) for (a, b), ms in self.channels.items() if ms]
        if self.joins:
            moves += [("join", m) for m, r in self.rings.items() if r.state is State.OUT]
        if self.leaves:
            moves += [("leave", m) for m, r in self.rings.items() if r.state is State.OWNER and not r.ctx.resigning]
        return moves

    def step(self, move: tuple[str, ...]) -> Net:
        net = Net(*copy.deepcopy((self.rings, self.channels)), self.joins, self.leaves)
        match move:
            case ("deliver", a, b):
                first, *rest = net.channels[a, b]
                net.channels[a, b] = tuple(rest)
                net.post(b, net.rings[b].receive(a, first, net.rings[b].told))
                if net.rings[b].state is State.JOINING and net.rings[b].applicant.asked is None:
                    net.rings[b].resign(net.rings[b].told)  # rejected: that was the one attempt
            case ("join", m):
                net.joins -= 1
                net.post(m, net.rings[m].coordinate(net.rings[m].told))
            case ("leave", m):
                net.leaves -= 1
                net.post(m, net.rings[m].resign(net.rings[m].told))
        return net

    def post(self, sender: str, outputs: list[Any]) -> None:
        for o in outputs:
            if isinstance(o, Send):
                self.channels[sender, o.to] = (*self.channels.get((sender, o.to), ()), o.message)


def explore(tickets: int, members: int, joins: int, leaves: int, make: Make, limit: int) -> tuple[int, list[str]]:
    names = [f"p{i}#1" for i in range(members)]
    rings = {m: make(m, config(tickets), First(0)) for m in names}
    first = rings[names[0]]
    first.found(0, 1)
    first.wake(first.ctx.config.quarantine_ns)
    for i, m in enumerate(names[1:]):
        rings[m].learn({0: names[0]} if i % 2 == 0 else {0: names[i]})
    start = Net(rings, {}, joins, leaves)
    seen, todo, bad = {start.key()}, [start], []
    while todo and len(seen) < limit:
        net = todo.pop()
        moves = net.moves()
        if not any(m[0] == "deliver" for m in moves):
            bad += [f"quiet: {v}" for v in quiet_violations(net.rings)]
            bad += [f"stuck: {m}" for m, r in net.rings.items() if r.ctx.resigning and r.state is not State.OUT]
        for move in moves:
            after = net.step(move)
            key = after.key()
            if key not in seen:
                seen.add(key)
                bad += violations(after.rings)
                todo.append(after)
    return len(seen), bad


@pytest.mark.parametrize(
    ("tickets", "members", "joins", "leaves"), few([(2, 3, 3, 2), (3, 3, 2, 3), (3, 3, 3, 2), (4, 4, 3, 1)], 3)
)
def test_all_interleavings(tickets: int, members: int, joins: int, leaves: int) -> None:
    states, bad = explore(tickets, members, joins, leaves, BasicRing, 6000)
    assert bad == []
    assert states > 50
