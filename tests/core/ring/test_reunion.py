"""A dead ring is founded again by those who were its coordinators: `core/ring/neighbours.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.ring.world import DELTA, ROUND, World, config
from whence.core.clock import MemberId
from whence.core.ring import State
from whence.core.ring.messages import ERA_SHIFT, Holder, Rally, RingMessage, Who, Witness
from whence.core.ring.neighbours import closed_cycle
from whence.lab.sim.invariants import quiet_violations, reunites

EPOCH_1 = 1 << 2 * ERA_SHIFT


def build(members: int, tickets: int = 8, k: int = 1, seed: int = 1) -> tuple[World, list[MemberId]]:
    w = World(config(tickets, k), seed=seed)
    names = [w.add(f"p{i}") for i in range(members)]
    w.found(names[0])
    w.run(3)
    w.settle(names[1:])
    return w, names


def kill_leases(w: World, rounds: float = 4) -> None:
    """Everybody is alone until all tickets are lost."""
    for i, m in enumerate(w.procs):
        w.side[m] = i
    assert w.run(20, lambda: not w.owners())
    w.run(rounds)


def founded(w: World) -> list[int]:
    """The epochs under which somebody has owned."""
    return sorted({ring.inc.epoch for ring in w.rings.values() if ring.inc is not None})


def sent(w: World, kind: type[RingMessage]) -> list[tuple[MemberId, MemberId, Any]]:
    """Collects the messages of a kind from now on."""
    seen: list[tuple[MemberId, MemberId, Any]] = []

    def watch(a: MemberId, b: MemberId, message: RingMessage) -> int | None:
        if isinstance(message, kind):
            seen.append((a, b, message))
        return None

    w.delay = watch
    return seen


def test_everybody_lost_it_and_everybody_gets_it_back() -> None:
    for seed in range(10):
        w, _ = build(4, seed=seed)
        kill_leases(w)
        assert reunites(w.rings)
        w.heal()
        assert w.run(30, lambda w=w: len(w.owners()) == 4), w.states()
        assert len(founded(w)) == 1 and founded(w) > [1]
        w.run(4)
        assert quiet_violations(w.rings) == []


def test_who_is_gone_for_good_keeps_the_ring_dead() -> None:
    """It might have lived on, with others that nobody else knows of."""
    w, names = build(4)
    kill_leases(w)
    w.crash(names[2])
    w.heal()
    w.run(100)
    assert not w.owners() and not reunites(w.rings)


def test_a_restarted_process_cannot_speak_for_its_former_life() -> None:
    w, names = build(4)
    kill_leases(w)
    w.crash(names[2])
    w.coordinate(w.add("p2", 2))
    w.heal()
    w.run(100)
    assert not w.owners()
    w.found(names[0], 2)  # the operator may
    assert w.run(40, lambda: len(w.owners()) == 4)


def test_who_was_let_found_and_is_gone_keeps_the_ring_dead() -> None:
    """It might have founded, and have been heard by others."""
    w, names = build(3)
    kill_leases(w, 6)
    candidate = w.add("candidate")
    for m in names:
        cycle = closed_cycle({n: w.ring(n).reunion.witness(ripe=False) for n in names}, 1, 8)
        w.act(m, lambda ring, now, cycle=cycle: ring.receive(candidate, Rally(99, 2, cycle, ()), now))
        assert w.ring(m).reunion.witness().to == (candidate,)
    assert reunites(w.rings)
    w.crash(candidate)
    assert not reunites(w.rings)
    w.heal()
    w.run(60)
    assert not w.owners()


def test_not_before_every_lease_has_run_out() -> None:
    w, _ = build(4)
    kill_leases(w, 0)
    lost = [list(ring.departure.ended.values())[-1].at for ring in w.rings.values()]
    assert not any(ring.reunion.witness().ended for ring in w.rings.values())
    assert all(ring.reunion.witness(ripe=False).ended for ring in w.rings.values())
    w.heal()
    assert w.run(30, lambda: bool(w.owners()))
    for ring, at in zip(w.rings.values(), lost, strict=True):
        assert w.procs[ring.ctx.me].local(w.now) >= at + w.config.dead_ns


def test_a_living_coordinator_ends_a_rally() -> None:
    w, names = build(4)
    owner, other = w.ring(names[1]), w.add("other")
    (answer,) = owner.receive(other, Rally(1, 0, (), ()), owner.told)
    assert answer.message.alive and not answer.message.ended
    owner.receive(other, Rally(2, 9, (), ()), owner.told)
    assert owner.epoch == 1 and owner.state is State.OWNER


def test_one_founder_at_a_time() -> None:
    """Many rally at once: the invariants are checked at every step; and it does not go on for ever."""
    for seed in range(30):
        w, _ = build(3, seed=seed)
        kill_leases(w)
        for i in range(8):
            w.coordinate(w.add(f"q{i}"))
        w.delay = lambda a, b, m, w=w: w.rng.randrange(DELTA * 5 // 4)  # now and then later than is waited for
        w.heal()
        assert w.run(60, lambda w=w: bool(w.owners()))


def witness(*founders: MemberId) -> Any:
    w, names = build(2)
    kill_leases(w)
    ring = w.ring(names[1])
    for epoch, founder in enumerate(founders, 2):
        (answer,) = ring.receive(founder, Rally(epoch, epoch, (), founders), ring.told)
        assert answer.message.pledged == epoch and founder in answer.message.to
    return ring


def test_a_witness_lets_only_one_found_under_an_epoch() -> None:
    ring = witness("a#1")
    (answer,) = ring.receive("b#1", Rally(9, 2, (), ("a#1",)), ring.told)
    assert answer.message.to == ("a#1",)


def test_whom_a_witness_let_found_before_has_to_be_asked() -> None:
    ring = witness("a#1")
    (answer,) = ring.receive("b#1", Rally(9, 3, (), ()), ring.told)
    assert (answer.message.pledged, answer.message.to) == (2, ("a#1",))
    (answer,) = ring.receive("b#1", Rally(9, 3, (), ("a#1",)), ring.told)
    assert (answer.message.pledged, answer.message.to) == (3, ("a#1", "b#1"))


def test_whom_a_witness_let_found_is_not_forgotten_when_a_later_one_fails() -> None:
    """Else the third is not told of the first, which may have founded."""
    ring = witness("a#1", "b#1")
    (answer,) = ring.receive("c#1", Rally(9, 4, (), ("b#1",)), ring.told)
    assert (answer.message.pledged, answer.message.to) == (3, ("a#1", "b#1"))
    ring.receive("a#1", Rally(1, 0, (), ()), ring.told)  # from before it was let: says nothing
    (answer,) = ring.receive("c#1", Rally(9, 4, (), ("b#1",)), ring.told)
    assert answer.message.to == ("a#1", "b#1")
    ring.receive("a#1", Rally(9, 0, (), ()), ring.told)  # "I did not found": it rallies again
    (answer,) = ring.receive("c#1", Rally(10, 4, (), ("b#1",)), ring.told)
    assert (answer.message.pledged, answer.message.to) == (4, ("b#1", "c#1"))


def test_a_witness_does_not_agree_to_what_it_was_not() -> None:
    w, names = build(2)
    kill_leases(w)
    ring = w.ring(names[1])
    strange = Holder(names[1], 7, EPOCH_1 + 99)
    (answer,) = ring.receive("a#1", Rally(9, 2, (strange,), ()), ring.told)
    assert answer.message.pledged == 0


def test_while_a_designated_founder_listens_nobody_is_let_found() -> None:
    w, names = build(2)
    kill_leases(w)
    ring = w.ring(names[1])
    ring.receive("f#1", Who(1), ring.told)
    (answer,) = ring.receive("a#1", Rally(9, 2, (), ()), ring.told)
    assert answer.message.pledged == 0
    later = ring.told + w.config.on_any_clock(w.config.quarantine_ns)
    answers = ring.receive("a#1", Rally(9, 2, (), ()), later)
    assert [o.message.pledged for o in answers if isinstance(getattr(o, "message", None), Witness)] == [2]


def test_the_last_one_that_left_can_found_again() -> None:
    w, names = build(3)
    for m in names:
        w.resign(m)
    assert w.run(40, lambda: all(s is State.OUT for s in w.states().values()))
    w.run(6)
    new = w.add("new")
    w.coordinate(new)
    assert w.run(60, lambda: w.ring(new).state is State.OWNER)
    assert founded(w) == [2]


def test_a_ring_that_lives_is_not_rallied_against() -> None:
    w, _ = build(4, tickets=4)
    rallies = sent(w, Rally)
    for i in range(4):
        w.coordinate(w.add(f"q{i}"))  # in vain: it is full
    w.run(30)
    assert not rallies


@pytest.mark.parametrize("seed", range(5))
def test_a_newcomer_that_never_owned_does_not_break_the_cycle(seed: int) -> None:
    w, _ = build(3, seed=seed)
    new = w.add("new")
    w.coordinate(new)
    assert w.run(20, lambda: w.ring(new).state is State.PROBATION)
    kill_leases(w)
    w.heal()
    assert w.run(30, lambda: len(w.owners()) == 4), w.states()


# --- the cycle ---


def tenure(ticket: int, name: str = "", epoch: int = 1) -> Holder:
    return Holder(name or f"m{ticket}#1", ticket, epoch * EPOCH_1 + 1)


def told(*ended: tuple[Holder, ...], never: tuple[Holder, ...] = ()) -> Witness:
    return Witness(1, False, 0, 0, (), ended, never)


def test_closed_cycle() -> None:
    a, b, c = tenure(5), tenure(3), tenure(0)
    heard = {s.member: told((s, succ)) for s, succ in ((a, b), (b, c), (c, a))}
    assert closed_cycle(heard, 1, 8) == (a, b, c)
    assert closed_cycle(heard, 2, 8) == ()
    assert closed_cycle({m: t for m, t in heard.items() if m != b.member}, 1, 8) == ()
    assert closed_cycle({a.member: told((a, a))}, 1, 8) == (a,)
    assert closed_cycle({}, 1, 8) == ()


def test_closed_cycle_goes_around_once() -> None:
    a, b, c = tenure(5), tenure(3), tenure(0)
    twice = {a.member: told((a, c)), b.member: told((b, a)), c.member: told((c, b))}
    assert closed_cycle(twice, 1, 8) == ()


def test_closed_cycle_past_a_newcomer_that_never_owned() -> None:
    a, b, new = tenure(5), tenure(0), tenure(3, "new#1")
    heard = {a.member: told((a, new, b)), b.member: told((b, a))}
    assert closed_cycle(heard, 1, 8) == ()
    assert closed_cycle({**heard, "new#1": told(never=(new,))}, 1, 8) == (a, b)
    assert closed_cycle({**heard, "new#1": told((new, b))}, 1, 8) == (a, new, b)


def test_dead_after_a_lease_for_each_neighbour() -> None:
    assert config(8, 3).dead_ns >= 7 * config(8, 3).lease_ns
    assert config(2, 3).dead_ns < 3 * config(2, 3).lease_ns
    assert config(2, 1).lease_ns > ROUND
