"""Each rule of docs/ring.md switched off alone: its scenario passes with the rule and fails without it.

`RULES` maps the number of a rule to a scenario and a ring without the rule. A scenario takes the kind of ring to build
it from and raises an AssertionError (a Violation, or a ring that does not get where it should) when it goes wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import whence.core.ring.messages as msg
from tests.core.ring.chaos import Chaos
from tests.core.ring.scenes import ask, build, from_widest
from tests.core.ring.world import DELTA, Make, World, config, without
from whence.core.clock import MemberId
from whence.core.ring import Ring, RingConfig, State
from whence.core.ring.config import between
from whence.core.ring.context import Context, Excluded, Frozen, Granted, Lost, Released, Table, Thawed, Timer
from whence.core.ring.neighbours import Admission, Attempt, Departure, Exclusion, Neighbours, TolerantRing


class Rule(NamedTuple):
    scenario: Callable[[Make], None]
    kept: Make
    off: Make
    fails: str
    """What the failure says."""


# --- 1: admits the next newcomer while a change of its edge is under way ---


class ServesAtOnce(Admission):
    @property
    def admits(self) -> bool:
        return not self.ctx.resigning and bool(self.ctx.free())


def two_ask_at_once(make: Make) -> None:
    w, (a,) = build(1, make=make)
    for name, ticket in (("x", 3), ("y", 6)):
        ask(w, w.add(name), a, ticket)
    assert w.run(20, lambda: len(w.owners()) == 3)


# --- 2: goes on publishing while it leaves ---


class PublishesOn(TolerantRing):
    def owns_at(self, now: int) -> bool:
        return self.ctx.state in (State.OWNER, State.LEAVING)


def one_leaves(make: Make) -> None:
    w, ring = build(3, make=make, publish=False)
    w.resign(ring[1])
    assert w.run(5, lambda: bool(w.said(Released, ring[1])))


# --- 4: takes any CLEAVE of a process for one of its present tenure and edge ---


class AnyTenure(Departure):
    def on_cleave(self, sender: MemberId, m: msg.CLeave) -> None:
        holder, edge = self.ctx.holder, self.ctx.edge
        if holder is not None and edge is not None and edge.succ.member == sender:
            m = msgspec.structs.replace(m, mine=edge.succ.tenure, yours=holder.tenure, answers=edge.start or 0)
        super().on_cleave(sender, m)


def old_cleave(make: Make) -> None:
    w, (a, b) = build(2, make=make, publish=False)
    old: list[msg.CLeave] = []
    w.delay = lambda x, y, m: old.append(m) if isinstance(m, msg.CLeave) else None
    w.resign(b)
    w.run(2)
    w.settle([b])
    w.act(a, lambda ring, now: ring.receive(b, old[0], now))  # a copy of the CLEAVE of b's earlier tenure
    assert len(w.owners()) == 2


# --- 5: ignores the successor's CLEAVE while it leaves itself ---


class IgnoresLeavers(Departure):
    def on_cleave(self, sender: MemberId, m: msg.CLeave) -> None:
        if self.ctx.state is not State.LEAVING:
            super().on_cleave(sender, m)


def all_leave(make: Make) -> None:
    w, ring = build(4, make=make, publish=False)
    w.delay = lambda a, b, m: 50_000
    for m in ring:
        w.resign(m)
    assert w.run(30, lambda: all(s is State.OUT for s in w.states().values()))
    assert not w.said(Lost), "stuck until patience is over"


# --- 6: a CLEAVE without the table ---


class WithoutTable(Departure):
    def on_cleave(self, sender: MemberId, m: msg.CLeave) -> None:
        super().on_cleave(sender, msgspec.structs.replace(m, rows=()))


def last_event_is_handed_on(make: Make) -> None:
    w, ring = build(3, make=make, publish=False, news_loss=1.0)  # or the news of the leave tell the last event, too
    pred, b = ring[:2]
    ticket, inc = w.ring(b).ticket, w.ring(b).inc
    w.ring(b).published(7)
    w.resign(b)
    w.run(5)
    d = w.add("d")
    ask(w, d, pred, ticket)
    w.run(5)
    assert [g.closes for g in w.said(Granted, d)] == [(inc.packed, 7)], "the last event is forgotten"


# --- 7: grants its own ticket ---


class GrantsItsOwn(Context):
    def free(self) -> list[int]:
        return self.coordinated()


def one_ticket(make: Make) -> None:
    w = World(config(1), make=make)
    a, b = w.add("a"), w.add("b")
    w.found(a)
    w.run(3)
    ask(w, b, a)
    w.run(3)
    assert w.owners() == [a] and not w.said(Granted, b), "two hold the only ticket"


# --- 8: half of the neighbours is enough to exclude ---


class HalfAgrees(Exclusion):
    def decide(self, attempt: Attempt) -> None:
        if all(2 * sum(z in attempt.acks for z in R) >= len(R) - 1 for R in attempt.lists):
            self._succeeded(attempt)


def nobody_agrees(make: Make) -> None:
    """p cannot reach its successor s, nor anybody to agree to its exclusion; s is well."""
    w, ring = build(6, make=make)
    w.cut[ring[1], ring[2]] = None
    w.delay = lambda a, b, m: -1 if isinstance(m, msg.ReqCoord) else None
    w.run(10)
    assert w.said(Frozen, ring[1]) and w.ring(ring[2]).state is State.OWNER


# --- 9: a lease without slack for drift ---


def no_slack(me: MemberId, settings: RingConfig, rng: Any) -> Ring:
    return TolerantRing(me, msgspec.structs.replace(settings, lease=settings.round_ns + 1), rng)


def drifting(make: Make) -> None:
    w = World(config(8), drift=0, make=make)
    w.delay = lambda a, b, m: int(0.95 * DELTA)
    names = [w.add(f"p{i}", rate=1.01 if i % 2 else 0.99) for i in range(6)]
    w.found(names[0])
    w.run(3)
    for m in names[1:]:
        w.coordinate(m)
    w.run(100)
    assert not w.said(Lost), "a healthy ring loses tickets"


# --- 10: an owner from the grant on ---


class OwnsAtOnce(Admission):
    def seated(self, grant: msg.AckCJoin) -> None:
        super().seated(grant)
        self.ctx.own()


def a_newcomer(make: Make) -> None:
    w, ring = build(1, make=make)
    new = w.add("new")
    ask(w, new, ring[0])
    w.run(0.5)
    assert not w.said(Lost, new), "lost at once"


# --- 11: does not wait for the leases of the excluded ---


class Hasty(RingConfig, frozen=True, kw_only=True):
    """TempRounds = 0."""

    def temp_ns(self, tenures: int) -> int:
        return 1


def hasty(me: MemberId, settings: RingConfig, rng: Any) -> Ring:
    return TolerantRing(me, Hasty(**msgspec.structs.asdict(settings)), rng)


def false_exclusion(make: Make) -> None:
    """p cannot reach its successor s, which is well: s is excluded and stays an owner until its lease runs out."""
    w, ring = build(6, make=make)
    p, s = ring[1], ring[2]
    w.cut[p, s] = None
    assert w.run(4, lambda: bool(w.said(Excluded, p)))
    new = w.add("new")
    ask(w, new, p, w.ring(s).ticket if w.ring(s).ticket is not None else -1)
    w.run(40)
    (excluded,) = w.said(Excluded)
    at = next(t for t, _, o in w.outputs if isinstance(o, Excluded))
    granted = [t for t, _, o in w.outputs if isinstance(o, Granted) and o.ticket in excluded.tickets and t > at]
    assert granted and min(granted) - at >= w.config.lease_ns


# --- 12: an exclusion concerns whom one knows at the time, not the tickets ---


class OnlyWhoIsKnown(Table):
    def promise(self, excluder: msg.Holder, nonce: int, tickets: Any, era: int) -> None:
        super().promise(excluder, nonce, [t for t in tickets if self.owner[t]], era)

    def out(self, ticket: int, floor: int, out_at: int) -> None:
        if self.owner[ticket]:
            super().out(ticket, floor, out_at)


def admitted_while_excluded(make: Make) -> None:
    """p is excluded by its predecessor and, before its lease runs out, admits a newcomer."""
    for seed in range(6):
        w, ring = build(6, seed=seed, make=make)
        ring = from_widest(w, ring)
        before, p = ring[-1], ring[0]
        new = w.add("new")
        w.news_loss = 1.0
        w.cut[before, p] = None
        assert w.run(4, lambda w=w, before=before: bool(w.said(Excluded, before)))
        ask(w, new, p)
        w.run(40)
        assert w.said(Granted, new)  # the scenario did happen


# --- 13: a quorum of the last list is enough ---


class LastListOnly(Exclusion):
    def decide(self, attempt: Attempt) -> None:
        attempt.lists = attempt.lists[-1:]
        super().decide(attempt)


# --- 14: a lease starts when the ALIVE arrives ---


class FreshOnArrival(Neighbours):
    def on_alive(self, sender: MemberId, m: msg.Alive) -> bool:
        if self.ctx.addressed(m.yours):
            self.lease._until[msg.Holder(sender, *m.mine)] = self.ctx.now + self.lease.length
        return super().on_alive(sender, m)


def slower_and_slower(make: Make) -> None:
    """The ALIVEs to s, but for those of its predecessor p, take longer and longer, each arriving within a lease of the
    one before. Then p cannot reach s any more and excludes it."""
    w, ring = build(6, make=make, news_loss=1.0)
    p, s = ring[1], ring[2]
    begin = w.now
    w.delay = lambda a, b, m: int(0.15 * (w.now - begin)) if b == s and a != p and isinstance(m, msg.Alive) else None
    w.run(45)
    w.cut[p, s] = None
    w.run(20)
    assert "lease ran out" in {lost.reason for lost in w.said(Lost)}


# --- 15: everybody may call itself the predecessor ---


class AnyPredecessor(Neighbours):
    def _is_predecessor(self, p: msg.Holder) -> bool:
        return True


def stale_update(make: Make) -> None:
    """A newcomer p sits between far and s. A late UPDATE of far arrives at s; then p cannot reach s and excludes it."""
    w, ring = build(6, make=make)
    ring = from_widest(w, ring)
    far, s = ring[0], ring[1]
    R = tuple(w.ring(m).ctx.holder for m in (far, ring[-1], ring[-2]))
    old = msg.Update(1, R[0].tenure, w.ring(s).ctx.holder.tenure, 0, R, ())
    p = w.add("p")
    ask(w, p, far)
    assert w.run(5, lambda: w.ring(s).ctx.pred.member == p)
    w.run(3)
    w.delay = lambda a, b, m: (
        -1 if a == s and isinstance(m, msg.Update | msg.ReqCoord) else None
    )  # others keep their lists
    w.act(s, lambda ring, now: ring.receive(far, old, now))
    w.cut[p, s] = w.cut[s, p] = None
    w.run(10)
    assert w.said(Excluded, p)


# --- 17: disconnects after a failed exclusion ---


class Disconnects(TolerantRing):
    def _timer(self, timer: Timer) -> None:
        super()._timer(timer)
        if timer is Timer.ACKS and self.ctx.holder is not None:
            self.applicant.lost("no quorum")


def failed_exclusion(make: Make) -> None:
    w, ring = build(6, make=make)
    p, s = ring[1], ring[2]
    w.cut[p, s] = None
    w.delay = lambda a, b, m: -1 if isinstance(m, msg.ReqCoord) else None
    w.run(5)
    w.heal()
    w.delay = None
    w.run(3)
    assert len(w.owners()) == 6 and not w.said(Lost), "a ticket is lost"
    assert w.said(Frozen, p) and w.said(Thawed, p)


# --- 18: takes any ACKEXCLUDE for an answer to the present attempt ---


class AnyReply(Exclusion):
    def on_ack_exclude(self, sender: MemberId, m: msg.AckExclude) -> None:
        attempt = self.underway.attempt
        if attempt is not None:
            m = msgspec.structs.replace(m, nonce=attempt.nonce)
            attempt.candidate = msg.Holder(sender, *m.mine)
        super().on_ack_exclude(sender, m)


def late_reply(make: Make) -> None:
    """s is dead. q1 answers only when p has given it up and asked q2."""
    w, ring = build(8, k=2, make=make)
    p, s, q1, q2 = ring[1:5]
    w.crash(s)
    late = w.config.answer_ns + DELTA // 2
    w.delay = lambda a, b, m: (
        late
        if a == q1 and isinstance(m, msg.AckExclude)
        else DELTA
        if a == q2 and isinstance(m, msg.AckExclude)
        else 1000
    )
    far = w.ring(q2).ticket
    assert w.run(4, lambda: bool(w.said(Excluded, p)))
    (excluded,) = w.said(Excluded, p)
    assert excluded.tickets == tuple(between(w.ring(p).ticket, far, 12)), "mixed with the next candidate's"


# --- 19: no graceful leave ---


class JustStops(TolerantRing):
    def _leave(self) -> None:
        self.applicant.lost("stopped")


def one_of_four_leaves(make: Make) -> None:
    w, ring = build(4, make=make)
    w.resign(ring[1])
    w.run(5)
    assert w.said(Released, ring[1]) and len(w.owners()) == 3, "not released"


def chaos(seed: int, dense: bool = False) -> Callable[[Make], None]:
    return lambda make: Chaos(seed, dense, make).run()


def of_tolerant(scenario: Callable[[Make], None], part: str, off: type, fails: str) -> Rule:
    return Rule(scenario, TolerantRing, without(part, off), fails)


RULES = {
    1: of_tolerant(two_ask_at_once, "admission", ServesAtOnce, "I6"),
    2: Rule(one_leaves, TolerantRing, PublishesOn, "I[12]"),
    4: of_tolerant(old_cleave, "departure", AnyTenure, "I[12]"),
    5: of_tolerant(all_leave, "departure", IgnoresLeavers, "stuck"),
    6: of_tolerant(last_event_is_handed_on, "departure", WithoutTable, "forgotten"),
    7: of_tolerant(one_ticket, "ctx", GrantsItsOwn, "only ticket"),
    8: of_tolerant(nobody_agrees, "exclusion", HalfAgrees, "I[127]"),
    9: Rule(drifting, TolerantRing, no_slack, "loses tickets"),
    10: of_tolerant(a_newcomer, "admission", OwnsAtOnce, "lost at once"),
    11: Rule(false_exclusion, TolerantRing, hasty, "I[12]"),
    12: of_tolerant(admitted_while_excluded, "ctx.table", OnlyWhoIsKnown, "I[12]"),
    13: of_tolerant(chaos(104, dense=True), "exclusion", LastListOnly, "I7"),
    14: of_tolerant(slower_and_slower, "neighbours", FreshOnArrival, "I2"),
    15: of_tolerant(stale_update, "neighbours", AnyPredecessor, "I7"),
    17: Rule(failed_exclusion, TolerantRing, Disconnects, "ticket is lost"),
    18: of_tolerant(late_reply, "exclusion", AnyReply, "mixed"),
    19: Rule(one_of_four_leaves, TolerantRing, JustStops, "not released"),
}

NO_SWITCH = {
    3: "holds by construction: without failures, only its parent writes to a newcomer, and its stream is FIFO",
    16: "holds by construction: ALIVE answers a poll, and whoever is polled answers; there are no targets to displace",
}
"""Rules that cannot be switched off alone, and why."""


@pytest.mark.parametrize("number", RULES)
def test_with_the_rule_it_holds(number: int) -> None:
    RULES[number].scenario(RULES[number].kept)


@pytest.mark.parametrize("number", RULES)
def test_without_the_rule_it_fails(number: int) -> None:
    with pytest.raises(AssertionError, match=RULES[number].fails):
        RULES[number].scenario(RULES[number].off)


def test_every_rule_is_in_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "ring.md").read_text(encoding="utf-8")
    rules = re.search(r"^## The rules\n(.*?)^## ", text, re.M | re.S)
    assert rules is not None
    assert {int(n) for n in re.findall(r"^(\d+)\. ", rules[1], re.M)} == set(RULES) | set(NO_SWITCH)
