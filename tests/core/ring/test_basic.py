"""The fault-free ring: directed tests of rules 2-6 of docs/ring.md, and random walks.

`test_rules.py` shows what fails without each rule.
"""

from __future__ import annotations

from tests.core.ring.walks import walk
from tests.core.ring.world import World, config
from whence.core.clock import Send
from whence.core.ring import State
from whence.core.ring.context import Rejected
from whence.core.ring.messages import CLeave, NackLeave
from whence.lab.paper.ccc11.basic import BasicRing


def test_random_walks() -> None:
    for seed in range(60):
        walk(seed)


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
    outputs = ring.receive(ring.ctx.pred.member, nack, ring.ctx.now)
    assert ring.state is State.OWNER and not ring.entitled
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
