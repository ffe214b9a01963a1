"""The ring of neighbours without failures: random joins and leaves, and directed tests of leaving and of a full ring.

`test_rules.py` shows what fails without each rule.
"""

from __future__ import annotations

import random

from tests.core.ring.world import DELTA, Violation, World, config
from whence.core.clock import Send
from whence.core.ring import State
from whence.core.ring.messages import AckCLeave, CLeave, NackLeave
from whence.lab.sim.invariants import quiet_violations


def walk(seed: int) -> None:
    """Joins and leaves under random delays, then quiet. Raises Violation, or AssertionError when stuck."""
    draw = random.Random(seed)
    w = World(config(draw.choice([1, 2, 3, 5, 8])), seed=draw.getrandbits(32))
    names = [w.add(f"p{i}") for i in range(draw.randint(2, 7))]
    w.found(names[0])
    w.run(3)
    w.delay = lambda a, b, m: int(draw.random() * DELTA)
    for _ in range(draw.randint(10, 60)):
        m = draw.choice(names)
        others = [o for o in w.owners() if o != m]
        if draw.random() < 0.6:
            w.coordinate(m)
        elif others or draw.random() < 0.1:
            w.resign(m)
        w.run(draw.expovariate(3))
        check_leavers(w)
    settle(w)


def settle(w: World) -> None:
    for m in w.procs:
        if w.ring(m).state is State.JOINING:
            w.resign(m)
    under_way = (State.PROBATION, State.LEAVING)

    def quiet() -> bool:
        resigning = any(r.ctx.resigning and r.state is not State.OUT for r in w.rings.values())
        return not resigning and not any(s in under_way for s in w.states().values())

    assert w.run(60, quiet), f"stuck: {w.states()}"
    w.run(4)
    assert not (found := quiet_violations(w.rings)), found


def check_leavers(w: World) -> None:
    """I3: the ticket of a leaver is in another's S only while its ACKCLEAVE is in flight."""
    flying = {args[1] for _, _, _, args in w._queue if len(args) == 3 and isinstance(args[2], AckCLeave)}
    for m, ring in w.rings.items():
        if ring.state is State.LEAVING and m not in flying:
            for other, o in w.rings.items():
                if o.state is State.OWNER and ring.ticket in o.coordinated():
                    raise Violation(f"I3: {ring.ticket} of the leaver {m} is coordinated by {other}")


def test_random_walks() -> None:
    for seed in range(40):
        walk(seed)


def test_rule_5_a_refused_leave_is_not_repeated_at_once() -> None:
    w = World(config(8))
    names = [w.add(f"p{i}") for i in range(3)]
    w.found(names[0])
    w.run(3)
    w.settle(names[1:])
    top = max(names, key=lambda m: w.ring(m).ticket)
    ring = w.ring(top)
    w.resign(top)
    nack = NackLeave(ring.departure.leave_nonce, ring.ctx.holder.tenure)
    outputs = ring.receive(ring.ctx.pred.member, nack, ring.ctx.now)
    assert ring.state is State.OWNER and not ring.entitled
    assert not [o for o in outputs if isinstance(o, Send) and isinstance(o.message, CLeave)]
