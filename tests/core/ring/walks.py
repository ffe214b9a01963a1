"""Random joins and leaves for the fault-free ring, seed by seed. Not a test."""

from __future__ import annotations

import random

from tests.core.ring.world import ROUND, Make, Violation, World, config
from whence.core.ring import State
from whence.core.ring.messages import AckCLeave
from whence.lab.paper.ccc11.basic import BasicRing
from whence.lab.sim.invariants import quiet_violations


def walk(seed: int, make: Make = BasicRing) -> World:
    """Joins and leaves under delays of some rounds, then quiet. Raises Violation, or AssertionError when stuck."""
    draw = random.Random(seed)
    w = World(config(draw.choice([1, 2, 3, 5, 8])), seed=draw.getrandbits(32), make=make)
    names = [w.add(f"p{i}") for i in range(draw.randint(2, 7))]
    w.found(names[0])
    w.run(3)
    w.delay = lambda a, b, m: int(draw.expovariate(4) * ROUND)
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
    return w


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
