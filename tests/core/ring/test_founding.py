"""Founding: who begins a ring, and when it does not (docs/ring.md, bootstrap)."""

from __future__ import annotations

import random

import pytest

from tests.core.ring.scenes import build
from tests.core.ring.world import config
from whence.core.ring import CouncilRing, Ring, State
from whence.core.ring.base import agreed_epoch, told_epoch
from whence.core.ring.context import Lost, Rejected
from whence.core.ring.messages import Poll, Tenure
from whence.core.ring.neighbours import TolerantRing


@pytest.mark.parametrize("make", [TolerantRing, CouncilRing])
@pytest.mark.parametrize("known", ["nothing", "a member", "an epoch"])
def test_a_first_founder_listens_for_one_delay_only(make: type[Ring], known: str) -> None:
    """Rule C0: it knows nothing of an earlier ring, and nobody whom it could ask."""
    settings = config(4)
    ring = make("a#1", settings, random.Random(1))
    ring.start(0)
    if known == "a member":
        ring.contacts(["b#1"])
    ring.found(0, 9 if known == "an epoch" else 1, fresh=True)
    first = known == "nothing"
    ring.wake(settings.delta_ns)
    assert (ring.state is State.OWNER) is first
    if not first:
        ring.wake(settings.quarantine_ns - 1)
        assert ring.state is State.FOUNDING
        ring.wake(settings.quarantine_ns)
        assert ring.state is State.OWNER


def test_a_founder_refuses_when_a_coordinator_lives() -> None:
    w, _ = build(3, tickets=4)
    b = w.add("b")
    w.introduce(b)
    w.found(b, 2)
    w.run(6)
    assert any("living coordinator" in r.reason for r in w.said(Rejected, b))
    assert not any(i.epoch == 2 for i in (w.ring(m).inc for m in w.owners()))


def test_a_founder_refuses_an_epoch_it_has_seen() -> None:
    w, ring = build(1)
    w.resign(ring[0])
    w.run(1)
    w.found(ring[0], 1)
    assert "not above" in w.said(Rejected, ring[0])[-1].reason and w.ring(ring[0]).state is State.OUT
    w.found(ring[0], 2)
    w.run(4)
    assert w.ring(ring[0]).inc > (1, 99, 99)


def test_told_and_agreed_founders_never_take_the_same_epoch() -> None:
    """Rule C6."""
    told, agreed = {told_epoch(seen) for seen in range(100)}, {agreed_epoch(seen) for seen in range(100)}
    assert all(told_epoch(seen) > seen < agreed_epoch(seen) for seen in range(100))
    assert told_epoch(0) == 1 and not told & agreed


def test_empty_core_is_founded_again_with_a_higher_epoch() -> None:
    w, (a, b) = build(2, tickets=4)
    w.crash(b)
    w.run(3)
    assert w.owners() == []
    c = w.add("c")
    w.coordinate(c)
    w.run(20)
    assert w.owners() == []  # nobody founds on a time-out
    w.found(a, 2)
    assert w.run(30, lambda: set(w.owners()) == {a, c})
    assert all(w.ring(m).inc.epoch == 2 for m in (a, c))


def test_a_higher_epoch_ends_the_old_ring() -> None:
    """If an operator founds while a partition hides a living ring, the old one stops as soon as it hears of the new."""
    w, ring = build(3, tickets=4)
    x = w.add("x")
    w.side[x] = 1
    w.found(x, 2)
    w.publish = False
    z = w.ring(ring[0])
    (lost,) = [
        o
        for o in z.receive(x, Poll(1, Tenure(0, 2 << 48 | 1), z.ctx.holder.tenure, 2 << 24, 0), z.ctx.now)
        if isinstance(o, Lost)
    ]
    assert lost.reason == "the ring was founded again"
