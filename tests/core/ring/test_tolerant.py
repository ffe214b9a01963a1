"""The fault-tolerant ring: directed tests of the rules of docs/ring.md, named after them.

`test_rules.py` shows what fails without each rule.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence.core.ring.messages as msg
from tests.core.ring.scenes import ask, build, from_widest
from tests.core.ring.world import ROUND, World, config
from whence.core.clock import MemberId, Send
from whence.core.ring import RingConfig, State
from whence.core.ring.config import between, distance, need_acks, need_alive
from whence.core.ring.context import BecameOwner, Edge, Excluded, Granted, Lost, Rejected, Released
from whence.core.ring.neighbours import Attempt, TolerantRing
from whence.errors import BadMessage, ConfigError
from whence.lab.sim.invariants import quiet_violations

# --- rule 4 also here ---


def test_rule_4_messages_for_another_tenure_are_dropped() -> None:
    w, (a, b, c) = build(3)
    ring = w.ring(a)
    stale = msg.Tenure(ring.ctx.holder.ticket, ring.ctx.holder.inc + 1)
    other = w.ring(b).ctx.holder
    for m in (
        msg.Poll(1, other.tenure, stale, 0, 0),
        msg.Update(1, other.tenure, stale, 0, (other,), ()),
        msg.ReqCoord(1, other.tenure, stale, w.ring(c).ticket, 1 << 40),
        msg.CLeave(1, other.tenure, stale, w.ring(c).ctx.holder, 99, (), ()),
        msg.AckUpdate(1, other.tenure, stale, 0, True),
    ):
        before = (ring.ctx.pred, ring.ctx.edge, ring.neighbours.L, ring.state)
        sent = [o for o in ring.receive(b, m, ring.ctx.now) if isinstance(o, Send)]
        assert before == (ring.ctx.pred, ring.ctx.edge, ring.neighbours.L, ring.state)
        assert all(isinstance(o.message, msg.Decline) for o in sent), sent  # at most: "I never had that tenure"


def test_rule_4_a_late_cleave_belongs_to_its_own_edge() -> None:
    """A copy of a CLEAVE that was refused, or sent before the edge was begun, is not served later."""
    w, ring = build(4)
    p = w.ring(ring[0])
    z = p.ctx.edge.succ
    old = msg.CLeave(
        p.ctx.edge.refused + 1,
        z.tenure,
        p.ctx.holder.tenure,
        w.ring(z.member).ctx.edge.succ,
        p.ctx.edge.start - 1,
        (),
        (),
    )
    p.receive(z.member, old, p.ctx.now)
    assert p.ctx.edge.succ == z
    p.ctx.edge.refused = 50
    p.receive(z.member, msg.CLeave(50, z.tenure, p.ctx.holder.tenure, old.succ, p.ctx.edge.start, (), ()), p.ctx.now)
    assert p.ctx.edge.succ == z


# --- 8 ---


@given(st.integers(0, 200))
def test_rule_8_the_quorums_intersect(size: int) -> None:
    assert size - need_acks(size) < need_alive(size) or size == 0
    if size % 2:
        assert need_alive(size) == need_acks(size) == (size + 1) // 2
    assert need_acks(0) > 0  # who is alone cannot be excluded


def test_rule_8_of_two_the_survivor_stops() -> None:
    w, (a, b) = build(2, tickets=4)
    w.crash(b)
    w.run(5)
    assert w.owners() == [] and [lost.reason for lost in w.said(Lost, a)] == ["lease ran out"]


def test_rule_8_alone_with_a_newcomer_that_dies() -> None:
    """The ring of one is not lost to a newcomer that crashes before it is a member."""
    w = World(config(4))
    a, b, c = w.add("a"), w.add("b"), w.add("c")
    w.found(a)
    w.run(3)
    w.delay = lambda x, y, m: -1 if x == b and isinstance(m, msg.AckUpdate) else None
    w.cut[a, b] = None
    ask(w, b, a)
    w.run(1)
    w.crash(b)
    w.run(20)
    assert w.owners() == [a]
    w.coordinate(c)
    assert w.run(40, lambda: w.ring(c).state is State.OWNER)


def test_rule_8_who_is_new_in_l_vouches_at_once() -> None:
    """An L that is adopted since enough of it vouched already: the others in it are asked then, not a round later."""
    w, _ = build(8, k=3)
    before = {m: w.ring(m).neighbours.L for m in w.procs}
    w.coordinate(w.add("new"))
    adopted: dict[MemberId, int] = {}
    vouched: dict[MemberId, int] = {}

    def look() -> bool:
        for m, L in before.items():
            new = [z for z in w.ring(m).neighbours.L if z not in L]
            if new:
                adopted.setdefault(m, w.now)
            if new and all(z in w.ring(m).neighbours.lease._until for z in new):
                vouched.setdefault(m, w.now)
        return False

    w.run(8, look)
    assert len(adopted) == w.config.window and set(vouched) == set(adopted)
    assert max(vouched[m] - adopted[m] for m in adopted) <= w.config.answer_ns


# --- 10 ---


def test_rule_10_a_newcomer_waits_for_its_quorum() -> None:
    w, ring = build(5)
    new = w.add("new")
    parent = next(m for m in ring if w.ring(m).admission.admits)
    for m in ring:
        if m != parent:
            w.cut[m, new] = None
    ask(w, new, parent)
    assert w.run(2, lambda: w.ring(new).state is State.PROBATION)
    newcomer = w.ring(new)
    assert newcomer.coordinated() == [] and not newcomer.entitled
    # it does not vouch
    poll = msg.Poll(1, w.ring(parent).ctx.holder.tenure, newcomer.ctx.holder.tenure, 0, 0)
    assert not [o for o in newcomer.receive(parent, poll, newcomer.ctx.now) if isinstance(o, Send)]
    # its parent admits nobody else meanwhile
    second = w.add("second")
    ask(w, second, parent)
    w.run(1)
    assert {r.reason for r in w.said(Rejected, second)} == {"busy"}
    w.run(20)
    assert not w.said(BecameOwner, new)
    assert "not confirmed" in {lost.reason for lost in w.said(Lost, new)}
    assert w.ring(second).state is State.OWNER  # the parent got its ticket back


# --- 11 ---


@given(st.integers(1, 64), st.integers(1, 3))
def test_rule_11_a_lease_for_each_that_may_have_been_owned(far: int, k: int) -> None:
    settings = config(64, k)
    slow, fast = 1 - settings.drift, 1 + settings.drift  # the owners' clocks, the excluder's
    assert settings.temp_ns(far) / fast >= far * settings.lease_ns / slow


# --- 12 ---


def test_rule_12_a_term_that_was_seen_is_refused() -> None:
    w, ring = build(5)
    p, a = w.ring(ring[1]), w.ring(ring[0])
    until = w.ring(ring[3]).ticket
    old = msg.ReqCoord(7, p.ctx.holder.tenure, a.ctx.holder.tenure, until, a.ctx.table.era)
    (reply,) = a.receive(ring[1], old, a.ctx.now)
    assert type(reply.message).__name__ == "NackCoord"
    (reply,) = a.receive(
        ring[1], msg.ReqCoord(8, p.ctx.holder.tenure, a.ctx.holder.tenure, until, a.ctx.table.era + 1), a.ctx.now
    )
    assert type(reply.message).__name__ == "AckCoord"
    assert a.ctx.table.over(w.ring(ring[2]).ctx.holder)


# --- 13 ---


def test_rule_13_every_list_since_the_last_ok_is_kept() -> None:
    a, b, c, d, s = (msg.Holder(f"{x}#1", i, 1) for i, x in enumerate("abcds"))
    edge = Edge(s, [(a, b)])
    edge.offer(5, (a, c))
    assert edge.held == ((a, b), (a, c))
    edge.answered(5, 0)  # accepted as predecessor, list not adopted
    edge.offer(6, (a, d))
    assert edge.held == ((a, b), (a, c), (a, d))
    edge.answered(6, 5)
    assert edge.held == ((a, c), (a, d))
    edge.answered(6, 6)
    assert edge.held == ((a, d),)
    edge.offer(7, (a, b))
    assert edge.offer(8, (a, c)) == (a, b)  # unanswered: repeated, not one more list


def test_rule_13_a_newcomer_inherits_what_its_successor_may_hold() -> None:
    w, ring = build(1, tickets=4)
    new = w.add("new")
    w.delay = lambda a, b, m: -1 if isinstance(m, msg.Update) else None
    ask(w, new, ring[0])
    assert w.run(2, lambda: w.ring(new).state is State.OWNER)
    assert () in w.ring(new).ctx.edge.held  # the founder is alone and has an empty L: it cannot be excluded
    w.run(20)
    assert ring[0] in w.owners()


def test_who_is_being_excluded_stays_in_r_until_it_is_certainly_out() -> None:
    """Found by chaos (invariant 7, one seed in 20,000): one who was dropped from R too early still agreed to another
    exclusion, and its ack made a quorum that was none of the shorter L further down."""
    w, ring = build(6, k=2)
    p = w.ring(ring[2])
    z = p.neighbours.L[0]
    p.ctx.table.promise(msg.Holder("x#1", p.ctx.holder.ticket, 1), 1, [z.ticket], p.ctx.table.era + 1)
    assert p.ctx.table.over(z) and z in p.neighbours.R()
    p.ctx.table.out(z.ticket, z.inc + 1, p.ctx.now + 5)
    assert z in p.neighbours.R()
    p.ctx.table.out(z.ticket, z.inc + 1, p.ctx.now)
    assert z not in p.neighbours.R()


def test_the_dead_do_not_count_as_agreeing() -> None:
    w, ring = build(6, k=2)
    p = w.ring(ring[1])
    me, z1, z2, b, c = p.ctx.holder, *(w.ring(m).ctx.holder for m in (ring[0], ring[5], ring[4], ring[3]))
    for z in (z1, z2):
        p.ctx.table.out(z.ticket, z.inc + 1, p.ctx.now)
    p.underway.attempt = Attempt(
        77, c, tickets=(p.ctx.edge.succ.ticket,), era=9, lists=((me, z1, z2, b, c),), acks=[me]
    )
    p.ctx.out = []
    p.exclusion.decide(p.underway.attempt)
    assert p.underway.attempt is not None
    p.underway.attempt.acks.append(b)
    p.exclusion.decide(p.underway.attempt)
    assert p.underway.attempt is None


# --- 14 ---


def test_rule_14_a_grant_that_comes_too_late_is_declined() -> None:
    w, ring = build(1)
    new = w.add("new")
    w.delay = lambda a, b, m: 3 * ROUND // 2 if isinstance(m, msg.AckCJoin) else None
    ask(w, new, ring[0])
    w.run(0.5)
    w.ring(new).applicant.choose = lambda: None
    w.run(2)
    assert not w.said(Granted, new)
    assert w.ring(ring[0]).underway.newcomer is None and w.ring(ring[0]).admission.admits
    assert not w.said(Excluded)


# --- 15 ---


def test_rule_15_update_counts_only_from_the_predecessor_a_closer_one_or_a_takeover() -> None:
    w, ring = build(6)
    far, p, s = (w.ring(m) for m in (ring[0], ring[1], ring[2]))

    def update(sender: TolerantRing, takeover: tuple[msg.Tenure, ...] = ()) -> bool:
        m = msg.Update(999, sender.ctx.holder.tenure, s.ctx.holder.tenure, 0, (sender.ctx.holder,), takeover)
        sent = s.receive(sender.ctx.me, m, s.ctx.now)
        return any(isinstance(o, Send) and isinstance(o.message, msg.AckUpdate) for o in sent)

    assert update(p)
    assert not update(far) and s.ctx.pred == p.ctx.holder
    assert update(far, (msg.Tenure(p.ctx.holder.ticket, p.ctx.holder.inc + 1),)) and s.ctx.pred == far.ctx.holder
    assert not update(p)  # it is over now


def test_rule_15_who_is_over_is_not_vouched_for() -> None:
    w, ring = build(5)
    a, z = w.ring(ring[0]), w.ring(ring[1])
    poll = msg.Poll(5, z.ctx.holder.tenure, a.ctx.holder.tenure, 0, 0)
    assert [type(o.message) for o in a.receive(z.ctx.me, poll, a.ctx.now)] == [msg.Alive]
    a.hear(msg.GoneNews((z.ctx.holder.ticket,), z.ctx.holder.inc + 1, "x#1"), a.ctx.now)
    assert a.receive(z.ctx.me, poll, a.ctx.now) == []
    outputs = z.hear(msg.GoneNews((z.ctx.holder.ticket,), z.ctx.holder.inc + 1, "x#1"), z.ctx.now)
    assert [o.reason for o in outputs if isinstance(o, Lost)] == ["excluded"]


def test_rule_15_the_excluder_announces_it() -> None:
    w, ring = build(5)
    ticket = w.ring(ring[3]).ticket
    w.crash(ring[3])
    w.run(5)
    (excluded,) = w.said(Excluded)
    news = [o.news for _, m, o in w.outputs if type(o).__name__ == "Announce" and isinstance(o.news, msg.GoneNews)]
    own = excluded.tickets.index(ticket)  # what lies before it was the excluder's own to grant
    assert own and [n.tickets for n in news] == [excluded.tickets[own:]]


# --- 17 ---


def test_rule_17_in_the_end_it_gives_up() -> None:
    w, ring = build(6, tickets=8)
    p, s = ring[1], ring[2]
    w.cut[p, s] = None
    w.delay = lambda a, b, m: -1 if isinstance(m, msg.ReqCoord) and a == p else None
    w.run(w.config.patience_ns / ROUND + 4)
    assert "frozen too long" in {lost.reason for lost in w.said(Lost, p)}
    w.heal()
    w.run(60)
    assert len(w.owners()) == 6 and quiet_violations(w.rings) == []


# --- 19: the graceful leave ---


def test_rule_19_last_event_of_a_crashed_owner_as_far_as_polls_told() -> None:
    w, ring = build(5, publish=False)
    z = w.ring(ring[1])
    ticket, inc = z.ticket, z.inc
    z.published(9)
    w.run(3)
    z.published(10)
    w.crash(ring[1])
    w.run(30)
    assert w.ring(ring[0]).ctx.table.last[ticket] == (inc.packed, 9)


def test_rule_19_only_the_predecessor_of_now_can_refuse() -> None:
    """Found by chaos (one seed in 10,000): the refusal of the old predecessor arrived when the new one had accepted."""
    w, ring = build(4)
    ring = from_widest(w, ring)
    p, z = ring[0], ring[1]
    w.delay = lambda a, b, m: -1 if isinstance(m, msg.CLeave) else None
    w.resign(z)
    leaver = w.ring(z)
    first = leaver.departure.leave_nonce
    new = w.add("new")
    ask(w, new, p)
    assert w.run(4, lambda: leaver.ctx.pred.member == new)
    assert leaver.state is State.LEAVING and leaver.departure.leave_nonce > first
    leaver.receive(p, msg.NackLeave(first, leaver.ctx.holder.tenure), leaver.ctx.now)
    assert leaver.state is State.LEAVING
    leaver.receive(new, msg.NackLeave(leaver.departure.leave_nonce, leaver.ctx.holder.tenure), leaver.ctx.now)
    assert leaver.state is State.OWNER and not leaver.entitled


def test_resign_in_every_state_and_coming_back() -> None:
    w, ring = build(3, tickets=6)
    new = w.add("new")
    w.coordinate(new)
    w.resign(new)
    assert w.ring(new).state is State.OUT
    w.run(3)
    assert w.ring(new).state is State.OUT and w.ring(ring[0]).underway.newcomer is None
    w.coordinate(new)
    assert w.run(20, lambda: w.ring(new).state is State.PROBATION)
    w.resign(new)
    assert w.ring(new).state is State.OUT and w.said(Released, new)
    w.coordinate(new)
    assert w.run(30, lambda: w.ring(new).state is State.OWNER)


def test_late_leave_thaws_a_ring_of_lapsed_neighbours() -> None:
    w, ring = build(6)
    p, s = ring[1], ring[2]
    # nobody vouches for s in time, and nobody agrees to exclude it: without the late leave p stays frozen
    w.delay = lambda a, b, m: -1 if (isinstance(m, msg.Alive) and b == s) or isinstance(m, msg.ReqCoord) else None
    assert w.run(6, lambda: bool(w.said(Lost, s)))
    w.resign(s)
    w.run(6)
    assert w.ring(p).ctx.edge.succ.member == ring[3] and not w.said(Excluded)
    assert quiet_violations(w.rings) == []


# --- small things ---


def test_bad_messages_and_settings_have_names() -> None:
    w, ring = build(1, tickets=4)
    a = w.ring(ring[0])
    with pytest.raises(BadMessage, match="ticket 4"):
        a.receive("x#1", msg.Poll(1, msg.Tenure(4, 1), msg.Tenure(0, 1), 0, 0), a.ctx.now)
    with pytest.raises(BadMessage, match="ticket -1"):
        a.hear(msg.GoneNews((-1,), 1, "x#1"), a.ctx.now)
    with pytest.raises(ConfigError, match="delta_ns"):
        RingConfig(tickets=4, round_ns=10, delta_ns=6)
    with pytest.raises(ConfigError, match="tickets"):
        RingConfig(tickets=0, round_ns=10, delta_ns=1)


@given(st.integers(1, 40), st.data())
def test_circle(tickets: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, tickets - 1)), data.draw(st.integers(0, tickets - 1))
    assert len(between(a, b, tickets)) == distance(a, b, tickets) - 1
    assert a not in between(a, b, tickets) and b not in between(a, b, tickets)
