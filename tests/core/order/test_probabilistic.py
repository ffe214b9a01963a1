"""The order layer of clusters without tickets: taking, delivering, giving up, moving, joining, and what it refuses."""

from __future__ import annotations

import random
from math import inf, isclose

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.order.free_net import MS, PATIENCE, FreeNet, Process
from tests.core.order.hostile import FakeSeal, bad_states, hostile
from whence.core import ports
from whence.core.cast.messages import Gossip, News
from whence.core.clock import Digest, Frame, FreeFrame, FreeId, Packed
from whence.core.config import Settings
from whence.core.member import Member
from whence.core.order import layer as owners
from whence.core.order.contract import Contract, Gauge, best_keys, entries_for, error_bound, expected_error, overtaking
from whence.core.order.layer import OrderContext
from whence.core.order.messages import SnapshotRequest, TicketState
from whence.core.order.outputs import Arrived, Contracted, Deliver, Dropped, GaveUp, Moved
from whence.core.order.probabilistic import ProbabilisticOrdering
from whence.core.ring.messages import Who
from whence.errors import ConfigError, ForgedTicket, RemoteError, WrongKind

replace = msgspec.structs.replace


def test_an_effect_waits_for_its_cause() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    cause = a.publish()
    b.receive(cause)
    effect = b.publish()
    assert c.receive(effect) == [] and len(c.ordering.held) == 1
    assert "about 1 frames" in str(c.ordering.why_blocked(effect.names()[0]))
    assert c.receive(cause) == [cause.names()[0], effect.names()[0]]
    assert c.V == b.V == [1, 1, 0] and not c.ordering.held and c.inversions() == []


def test_a_frame_of_many_events_counts_once_and_a_duplicate_not_at_all() -> None:
    net = FreeNet(3)
    a, b, _ = net.members
    frame = a.publish(5)
    assert frame.names() == [f"p0#1/{i}" for i in range(1, 6)]
    assert len(b.receive(frame)) == 5 and b.V == [1, 0, 0]
    assert b.receive(frame) == [] and b.V == [1, 0, 0] and b.ordering.stats.duplicate_frames == 1
    assert a.receive(frame) == [] and a.V == [1, 0, 0]


def test_frames_of_one_owner_are_taken_in_order_even_if_the_counts_would_do() -> None:
    net = FreeNet(3, 1, 1)  # everybody shares one entry: Lamport's clock
    a, b, c = net.members
    m1, m2 = a.publish(), a.publish()
    c.receive(b.publish())  # by the clock this may stand in for m1
    assert c.receive(m2) == []
    assert c.receive(m1) == [m1.names()[0], m2.names()[0]]


def test_a_gap_is_recovered() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    m1, m2 = a.publish(), a.publish()
    b.receive(m1)
    assert c.receive(m2) == []
    assert "frames 1 of p0#1, nobody asked yet" in str(c.ordering.why_blocked(m2.names()[0]))
    net.pass_time(PATIENCE)
    assert c.log == [m1.names()[0], m2.names()[0]] and c.ordering.stats.recovered == 1
    assert [o.recovered for o in c.outputs if isinstance(o, Arrived)] == [False, True]


def test_a_lost_last_frame_shows_in_a_digest() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    m = a.publish()
    b.receive(m)
    net.digests()
    net.pass_time(PATIENCE)
    assert c.log == m.names() and c.ordering.stats.recovered == 1


def test_an_alert_starts_a_recovery_and_not_two_at_a_time() -> None:
    net = FreeNet(4, 1, 1)
    a, b, c, d = net.members
    c.ordering.contract = replace(c.ordering.contract, repair=True)
    cause = a.publish()
    b.receive(cause)
    effect = b.publish()
    c.receive(d.publish())  # stands in for the cause
    lost = d.publish()  # a last frame: neither a gap nor a digest has shown it
    assert c.receive(effect) == [effect.names()[0]] and c.ordering.stats.repairs == 0
    before = len(c.outputs)
    c.receive(cause)
    assert c.alerts[cause.names()[0]] == 5 and c.inversions() == [cause.names()[0]] and c.ordering.stats.repairs == 1
    net.answer(c, c.outputs[before:])
    assert c.log[-1] == lost.names()[0] and c.ordering.stats.recovered == 1
    c.ordering._repair([])
    assert c.ordering._repair_at > net.now
    c.ordering.contract = replace(c.ordering.contract, repair=False)
    net.pass_time(PATIENCE)
    assert c.ordering.stats.repairs == 2


def test_even_keys_go_by_the_founders_places_and_then_to_what_is_least_used() -> None:
    contract = Contract(entries=12, keys=2, assignment="even")
    config = Settings(contract=contract).config(1, "probabilistic").ordering
    ids = [f"p{i}#1" for i in range(8)]
    layers = {}
    for me in ids[:6]:
        layers[me] = ProbabilisticOrdering(OrderContext(me, config, random.Random(me), list, lambda k: []))
        layers[me].found([other for other in ids[:6] if other != me])
        layers[me].begin(0)
    assert [layers[me].keys for me in ids[:5]] == [(i, i + 5) for i in range(5)], "each entry once"
    last = ProbabilisticOrdering(OrderContext(ids[7], config, random.Random(7), list, lambda k: []))
    last.begin(0)
    for me in ids[:5]:
        frame, _ = layers[me].publish([b"x"], 0)
        last.receive(frame, me, 0, 0)
    assert last.draw(12, 2) == (10, 11), "what nobody is known to use"
    with pytest.raises(ConfigError, match="random or even"):
        Contract(assignment="best")  # type: ignore[arg-type]


def test_a_gap_that_nobody_can_fill_is_skipped_and_counted() -> None:
    net = FreeNet(4, 20, 3)
    a, b, c, d = net.members
    lost, m2, m3 = a.publish(), a.publish(), a.publish()
    for member in (a, b):
        member.ordering.buffer._frames.clear()
        member.ordering.buffer._tenures.clear()
    c.receive(m2)
    net.pass_time(2 * PATIENCE)
    assert c.log == m2.names()
    assert [2 * (x in a.ordering.keys) for x in range(20)] == c.V  # as if the lost one were there
    assert [o.ranges for o in c.outputs if isinstance(o, GaveUp)] == [((a.id, 0, 1, 1),)]
    assert [o.over_gap for o in c.outputs if isinstance(o, Deliver)] == [True]
    assert c.receive(m3) == m3.names()  # nothing after it is blocked
    assert c.receive(lost) == [] and c.V == a.V  # late: dropped, and not counted again
    assert [o.reason for o in c.outputs if isinstance(o, Dropped)] == ["late"]
    frame = c.publish()
    d.receive(lost), d.receive(m2), d.receive(m3)
    assert d.receive(frame) == frame.names()  # the others, who have it, agree on the counts


def test_a_cause_that_nobody_has_is_given_up_and_its_count_is_paid_when_it_comes_after_all() -> None:
    net = FreeNet(4)
    a, b, c, _ = net.members
    cause = a.publish()
    b.receive(cause)
    effect = b.publish()
    for member in (a, b):
        member.ordering.buffer._frames.clear()
        member.ordering.buffer._tenures.clear()
    assert c.receive(effect) == []
    net.pass_time(2 * PATIENCE - MS)
    assert c.log == []
    net.pass_time(MS)
    assert c.log == effect.names() and c.V == [1, 1, 0, 0] and c.ordering.stats.raised == 1
    later = c.publish()
    assert b.receive(later) == later.names()  # b has the cause: the counts agree
    assert c.receive(cause) == cause.names() and c.V == b.V == [1, 1, 1, 0]
    assert c.alerts[cause.names()[0]] == 5 and c.inversions() == cause.names()  # an error, and not without an alert
    said = next(o for o in c.outputs if isinstance(o, Deliver) and o.alert)
    assert said.suspects == (effect.names()[0],) or effect.names()[0] in said.suspects


def test_overdue_frames_go_in_causal_order() -> None:
    net = FreeNet(4)
    a, b, c, d = net.members
    lost = a.publish()
    b.receive(lost)
    first = b.publish()
    c.receive(lost), c.receive(first)
    second = c.publish()
    for member in (a, b, c):
        member.ordering.buffer._frames.clear()
        member.ordering.buffer._tenures.clear()
    d.receive(second)  # the effect comes first, and is overdue first
    net.pass_time(10 * MS)
    d.receive(first)
    net.pass_time(2 * PATIENCE)
    assert d.log == [*first.names(), *second.names()] and d.inversions() == []


def test_owners_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.core.order.layer.MAX_OWNERS", 3)
    net = FreeNet(3, 8, 2)
    a, b, c = net.members
    c.receive(a.publish())
    template = b.publish()
    for i in range(5):
        keys, V = c.ordering.keys, list(c.V)
        for x in keys:
            V[x] += 1
        c.receive(replace(template, owner=f"gone{i}#1", keys=keys, vector=Packed.of(V)))
    assert len(c.ordering.cursors) == 3 and c.ordering.stats.forgotten == 3
    assert a.id in c.ordering.cursors  # it is in the view: those that are not go first
    before = list(c.V)
    again = replace(template, owner="gone0#1", number=9, vector=Packed.of([v + 9 for v in c.V]))
    assert c.receive(again) == []
    net.pass_time(PATIENCE)
    # perhaps it was counted before it was forgotten: a gap of an owner that seems new is not counted any more
    assert before == c.V and again.key in c.ordering.held


# -- generations ----------------------------------------------------------------------------------------------------


def test_a_frame_of_a_new_generation_waits_for_what_it_depends_on_in_the_old_one() -> None:
    for attached in (True, False):
        net = FreeNet(3)
        a, b, c = net.members
        cause = a.publish()
        b.receive(cause)
        b.move(3, 1)
        effect = b.publish()
        assert effect.generation > 0 and [g for g, _ in effect.older] == [0] and effect.opened == 1
        if not attached:
            effect = replace(effect, older=())  # what would be without it
        assert c.receive(effect) == ([] if attached else effect.names())
        c.receive(cause)
        assert c.inversions() == ([] if attached else cause.names())
        assert c.ordering.queue.current.id == effect.generation
        assert [o.own for o in c.outputs if isinstance(o, Moved)] == [False]


def test_the_dependency_is_told_again_for_a_while_and_whenever_it_changed() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    b.receive(a.publish())
    late = a.publish()
    b.move(3, 1)
    assert [bool(b.publish().older) for _ in range(2)] == [True, True]  # should one of them be lost
    net.pass_time(5 * PATIENCE)
    assert not b.publish().older  # its earlier frames have said it
    b.receive(late)
    net.pass_time(5 * PATIENCE)
    assert b.publish().older and not b.publish().older
    assert c.log == []


def test_of_two_that_move_at_once_the_higher_wins_everywhere() -> None:
    net = FreeNet(4, 16, 2)
    frames = [m.publish() for m in net.members]
    net[0].move(20, 3)
    net[1].move(30, 4)
    frames += [net[0].publish(), net[1].publish()]
    for member in net.members:
        for frame in frames:
            if frame.owner != member.id:
                member.receive(frame)
    sizes = {(m.ordering.queue.current.R, m.ordering.queue.current.K) for m in net.members}
    assert len(sizes) == 1 and sizes <= {(20, 3), (30, 4)}
    assert len({m.ordering.queue.current.id for m in net.members}) == 1
    assert all(len(m.log) == 6 and not m.ordering.held for m in net.members)
    assert all(len(m.ordering.keys) == next(iter(sizes))[1] for m in net.members)


def test_only_so_many_generations_are_kept() -> None:
    net = FreeNet(3, 8, 2)
    a, b, _ = net.members
    old = a.publish()
    for _ in range(6):
        b.move(8, 2)
    assert len(b.ordering.queue.clocks) == 4
    assert b.receive(old) == old.names() and b.alerts[old.names()[0]] == 5  # no clock is left to judge it by


# -- joining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [False, True])
def test_a_joiner_takes_over_clock_cursors_and_what_waits(moved: bool) -> None:
    net = FreeNet(4)
    a, b, c, d = net.members
    if moved:
        a.move(4, 1)
    known, cause = a.publish(), a.publish()
    b.receive(known), b.receive(cause)
    effect = b.publish()
    c.receive(known), c.receive(effect)  # it waits for the cause
    joiner = Process(net, 3, "probabilistic", d.ordering.contract)
    joiner.ordering.receive(cause, a.id, 1, net.now)  # comes while it joins
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(c.ordering.state()), type=type(c.ordering.state()))
    joiner.ordering.load(state, net.now)
    joiner.knows, joiner.log = set(c.knows), list(c.log)
    joiner.begin()
    assert joiner.log[1:] == [*cause.names(), *effect.names()] and joiner.V == b.V  # nothing twice, nothing skipped
    mine = joiner.publish()
    assert mine.number == 1 and b.receive(mine) == mine.names()


@pytest.mark.parametrize("weak", ["fifo", "unordered"])
def test_a_weak_joiner_does_not_wait_for_the_causes_that_its_contact_waits_for(weak: str) -> None:
    a, b, c, joiner = (net := FreeNet(4, orders=["probabilistic"] * 3 + [weak])).members
    b.receive(cause := a.publish())
    effect, after = b.publish(), b.publish()
    assert c.receive(effect) == []  # it waits for the cause
    joiner.ordering.joining = True
    joiner.ordering.load(c.ordering.state(), net.now)
    joiner.begin()
    assert joiner.log == effect.names() and joiner.receive(after) == after.names()
    assert joiner.receive(effect) == [] and joiner.receive(cause) == cause.names() and joiner.V == b.V


def test_what_the_unordered_have_seen_early_is_not_handed_to_a_joiner_again() -> None:
    net = FreeNet(3, orders=["probabilistic", "unordered", "unordered"])
    a, b, c = net.members
    first, second = a.publish(), a.publish()
    assert b.receive(second) == second.names() and b.receive(second) == []
    c.ordering.joining = True
    c.ordering.load(b.ordering.state(), net.now)
    c.begin()
    assert c.receive(second) == [] and c.receive(first) == first.names()
    assert c.V == a.V and b.receive(first) == first.names() and b.V == a.V


# -- members of weaker orders ---------------------------------------------------------------------------------------


def test_a_weak_member_names_all_it_depends_on() -> None:
    for weak in ("fifo", "unordered"):
        net = FreeNet(4, orders=["probabilistic", "probabilistic", weak, "probabilistic"])
        a, b, w, d = net.members
        cause = a.publish()
        b.receive(cause)
        effect = b.publish()
        assert w.receive(effect) == effect.names()  # before its cause: it wants it so
        consequence = w.publish()
        d.receive(effect)
        assert d.receive(consequence) == []  # but others are not misled by it
        assert d.receive(cause) == [*cause.names(), *effect.names(), *consequence.names()]


# -- what no honest peer sends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(hostile(FreeNet(3)[0].publish())))
def test_hostile_frames_are_refused_by_name_and_change_nothing(kind: str) -> None:
    net = FreeNet(3)
    a, b, c = net.members
    frame = a.publish()
    bad, error = hostile(frame)[kind]
    with pytest.raises(error):
        c.receive(bad)
    assert c.V == [0, 0, 0] and c.ordering.cursors == {} and not c.ordering.held
    assert c.receive(frame) == frame.names() and b.receive(frame) == frame.names()


def test_with_roles_only_what_a_publisher_signed_is_taken() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    forged = a.publish()
    for member in net.members:
        member.ordering.seal = FakeSeal()
    with pytest.raises(ForgedTicket, match="not signed"):
        b.receive(forged)
    signed = c.publish()
    assert signed.signature and b.receive(signed) == signed.names()
    with pytest.raises(ForgedTicket):
        a.receive(replace(signed, body=b"\x91\xc4\x02xy"))


def test_snapshots_that_contradict_themselves_are_refused_by_name() -> None:
    net = FreeNet(3)
    a, b, c = net.members
    b.receive(a.publish())
    c.receive(b.publish())
    good = c.ordering.state()
    assert good.waiting
    tickets = TicketState((), (), (), (), (), ())
    for state in [tickets, *bad_states(replace(good, owners=b.ordering.state().owners))]:
        fresh = Process(net, 0, "probabilistic", a.ordering.contract)
        with pytest.raises(RemoteError):
            fresh.ordering.load(state, 0)
        assert fresh.ordering.cursors == {}


def test_the_other_kind_of_cluster_is_refused_by_name() -> None:
    net = FreeNet(3)
    with pytest.raises(WrongKind):
        net[0].ordering.vet(Frame.of(0, 1, 1, "a#1", ((0, 0),), [b"x"]), "a#1")
    with pytest.raises(WrongKind):
        net[0].ordering.heard("a#1", object(), 0)
    for order, contract in (("causal", Contract()), ("reliable", Contract()), ("probabilistic", None)):
        with pytest.raises(ConfigError, match="tickets"):
            msgspec.structs.replace(net[0].ordering.config, order=order, contract=contract)
    assert Settings(members=9).config(1, "probabilistic").free
    assert not Settings(members=9).config(1).free


def test_ids_are_text_and_back() -> None:
    frame = FreeNet(3)[1].publish(2)
    assert [str(FreeId.parse(n)) for n in frame.names()] == frame.names() == ["p1#1/1", "p1#1/2"]
    for bad in ("", "p1#1", "/3", "p1#1/x", "p1#1/٣", "1:1.1.1:1@p1#1"):
        with pytest.raises(ValueError):
            FreeId.parse(bad)


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=50))
def test_vectors_are_packed_and_unpacked(V: list[int]) -> None:
    packed = Packed.of(V)
    assert packed.vector() == tuple(V) and packed.well_formed
    spread = max(V) - min(V)
    assert len(packed.offsets) == len(V) * next(w for w in (1, 2, 4, 8) if spread < 1 << 8 * w)


# -- generated schedules --------------------------------------------------------------------------------------------


def random_run(data: st.DataObject, net: FreeNet, steps: int, moves: int) -> None:
    """Publishes, receipts in any order, duplicates and so many moves; in the end everything has arrived."""
    flying: list[tuple[int, FreeFrame]] = []
    for _ in range(steps):
        kind = data.draw(st.sampled_from(("publish", "receive", "receive", "again") + ("move",) * (moves > 0)))
        moves -= kind == "move"
        at = data.draw(st.integers(0, net.count - 1))
        if kind == "publish":
            frame = net[at].publish()
            flying += [(to, frame) for to in range(net.count) if to != at]
        elif kind == "move":
            net[at].move(net.count if net.exact else data.draw(st.integers(1, 6)), 1)
        elif flying:
            i = data.draw(st.integers(0, len(flying) - 1))
            to, frame = flying[i] if kind == "again" else flying.pop(i)
            net[to].receive(frame)
    while flying:
        to, frame = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
        net[to].receive(frame)


@settings(max_examples=60)
@given(st.data())
def test_with_an_entry_each_nothing_is_ever_inverted_whatever_moves(data: st.DataObject) -> None:
    net = FreeNet(data.draw(st.integers(3, 5)))
    moves = data.draw(st.integers(0, 3))  # no more than generations are kept
    random_run(data, net, 40, moves)
    for member in net.members:
        assert member.inversions() == [] and not member.ordering.held
        assert sorted(member.log) == sorted(net.past) and not any(member.alerts.values())


@settings(max_examples=60)
@given(st.data())
def test_small_clocks_deliver_all_and_no_error_goes_without_an_alert(data: st.DataObject) -> None:
    R = data.draw(st.integers(1, 5))
    net = FreeNet(data.draw(st.integers(3, 5)), R, data.draw(st.integers(1, R)), seed=data.draw(st.integers(0, 999)))
    random_run(data, net, 40, 0)
    for member in net.members:
        assert sorted(member.log) == sorted(net.past) and not member.ordering.held
        assert net[0].V == member.V
        assert all(member.alerts[name] == 5 for name in member.inversions())


@settings(max_examples=60)
@given(st.data())
def test_losses_are_skipped_and_what_follows_is_delivered(data: st.DataObject) -> None:
    """Frames are lost for good at some members: nobody stays blocked, nobody sees anything twice."""
    net = FreeNet(4, 6, 2, seed=data.draw(st.integers(0, 999)))
    for _ in range(25):
        frame = net[data.draw(st.integers(0, 3))].publish()
        for member in net.members:
            if member.id != frame.owner and data.draw(st.integers(0, 3)):
                member.receive(frame)
        net.pass_time(data.draw(st.sampled_from((0, 20, 200))) * MS)
    net.digests()
    net.pass_time(20 * PATIENCE)
    for member in net.members:
        assert not member.ordering.held and len(member.log) == len(set(member.log))
        lost = [n for n in net.past if n not in member.log]
        skipped = sum(r[3] for o in member.outputs if isinstance(o, GaveUp) for r in o.ranges)
        assert len(lost) <= skipped


# -- the contract ---------------------------------------------------------------------------------------------------


def test_the_papers_numbers() -> None:
    X, R = 20.0, 100
    assert 3.4 < 0.6931 * R / X < 3.5 and best_keys(R, X) in (3, 4)
    assert isclose(error_bound(100, 4, 20), 0.0932, abs_tol=1e-4)
    assert isclose(overtaking(200, 0.1, 0.02), 0.016, abs_tol=2e-4)  # 98.4 % of all have their past there
    assert error_bound(1, 1, 20, 0.5) == 0.5
    assert min(range(1, 20), key=lambda K: error_bound(R, K, X)) in (3, 4)
    assert error_bound(50, 3, 0.5) < expected_error(50, 3, 0.5) and isclose(
        error_bound(4000, 4, 700), expected_error(4000, 4, 700)
    )


@given(st.floats(1e-6, 0.5), st.floats(0.01, 100), st.floats(0.001, 1))
@settings(max_examples=60)
def test_the_size_keeps_the_target_and_one_entry_less_does_not(target: float, X: float, p_nc: float) -> None:
    R = entries_for(target, X, p_nc)
    assert R == 4096 or expected_error(R, best_keys(R, X), X, p_nc) <= target
    assert R == 1 or expected_error(R - 1, best_keys(R - 1, X), X, p_nc) > target


def test_a_contract_says_what_it_promises() -> None:
    by_error = Contract(target_error=1e-4, rate=200, delay=0.1)
    by_bytes = Contract(header_bytes=200, rate=200, delay=0.1)
    assert by_error.promise == 1e-4 and by_error.size[0] > 100
    assert by_bytes.size[0] == 100 and isclose(by_bytes.promise, 1.6e-3, rel_tol=0.2)
    assert Contract().promise == 1e-3
    assert Contract(entries=7, keys=2).size == (7, 2)
    for bad in (
        {"target_error": 0.1, "header_bytes": 100},
        {"target_error": 0.0},
        {"target_error": 2.0},
        {"header_bytes": 4},
        {"rate": 0.0},
        {"delay": -inf},
        {"jitter": -1.0},
        {"entries": 4, "keys": 5},
        {"entries": 1 << 20},
    ):
        with pytest.raises(ConfigError, match="contract"):
            Contract(**bad)  # type: ignore[arg-type]


def test_the_gauge_measures_what_is_in_flight_and_tells_a_broken_contract() -> None:
    contract = Contract(target_error=0.01, rate=10, delay=0.1)
    gauge = Gauge(contract)
    R, K = contract.size
    for _ in range(1000):
        gauge.arrived(1.0, False)
    assert gauge.in_flight == 1.0 and not gauge.breaks(R, K)
    for i in range(4000):
        gauge.arrived(40.0, i % 4 == 0)
        if i % 8 == 0:
            gauge.alerted()
    assert gauge.in_flight > 30 and gauge.breaks(R, K) and gauge.seen <= Gauge.WINDOW


def test_a_broken_contract_is_said_and_makes_the_member_move() -> None:
    net = FreeNet(3, 4, 1)
    a = net[0]
    gauge = Gauge(replace(Contract(target_error=0.001), rate=1.0, delay=0.001))
    a.ordering.overseer.contract, a.ordering.overseer.gauge = gauge.contract, gauge
    for i in range(1000):
        gauge.arrived(10.0, i % 3 == 0)
        if i % 10 == 0:
            gauge.alerted()
    net.pass_time(10 * PATIENCE)
    assert [o.broken for o in a.outputs if isinstance(o, Contracted)] == [True]
    [moved] = [o for o in a.outputs if isinstance(o, Moved)]
    assert (
        moved.own
        and moved.entries > 40
        and (
            moved.entries,
            moved.keys,
        )
        == (a.ordering.queue.current.R, a.ordering.queue.current.K)
    )
    frame = a.publish()
    assert moved.entries == frame.vector.R and net[1].receive(frame) == frame.names()
    assert moved.entries == net[1].ordering.queue.current.R
    assert owners.MAX_OWNERS == 4096


# -- the whole member -----------------------------------------------------------------------------------------------


def test_what_belongs_to_the_other_kind_of_cluster_cuts_a_peer_off_but_never_a_joiner_from_all() -> None:
    free = Settings(members=3).config(1, "probabilistic")
    tickets = Settings(members=3).config(1)
    frame = FreeNet(3)[0].publish()
    under_a_ticket = Frame.of(0, 1, 1, "b#1", ((0, 0),), [b"x"])
    cases = (
        (free, Gossip((under_a_ticket,), (1,))),
        (free, Gossip((News("b#1", 1, b"x"),), (1,))),
        (free, Gossip(digest=Digest(((0, 0),)))),
        (free, Who(1)),
        (tickets, Gossip((frame,), (1,))),
        (tickets, Gossip(heads=(("b#1", 1),))),
    )
    for config, message in cases:
        member = Member("a#1", config, random.Random(1))
        member.handle(ports.Start(("b#1",), genesis=True), 0)
        [cut] = [o for o in member.handle(ports.Received("b#1", message), 1) if isinstance(o, ports.CutOff)]
        assert cut.peer == "b#1" and cut.error.startswith("WrongKind")
        joiner = Member("a#1", config, random.Random(1))
        joiner.handle(ports.Start(("b#1",)), 0)
        assert not [o for o in joiner.handle(ports.Received("b#1", message), 1) if isinstance(o, ports.CutOff)]


def test_a_joiner_of_the_other_kind_is_told_so() -> None:
    free = Settings(members=3).config(1, "probabilistic")
    tickets = Settings(members=3).config(1)
    for mine, theirs, word in ((free, tickets, "has tickets"), (tickets, free, "has no tickets")):
        here, joiner = Member("a#1", theirs, random.Random(1)), Member("b#1", mine, random.Random(2))
        here.handle(ports.Start(genesis=True), 0)
        asked = [o for o in joiner.handle(ports.Start(("a#1",)), 0) if isinstance(o, ports.Send)]
        [request] = [o.message for o in asked if isinstance(o.message, SnapshotRequest)]
        [answer] = [o for o in here.handle(ports.Received("b#1", request), 1) if isinstance(o, ports.Send)]
        [refused] = [o for o in joiner.handle(ports.Received("a#1", answer.message), 2) if isinstance(o, ports.Refused)]
        assert refused.what == "join" and word in refused.reason


def test_a_member_with_tickets_does_not_move() -> None:
    member = Member("a#1", Settings(members=3).config(1), random.Random(1))
    member.handle(ports.Start(genesis=True), 0)
    [refused] = [o for o in member.handle(ports.Move(10, 2), 1) if isinstance(o, ports.Refused)]
    assert refused.what == "move" and "tickets" in refused.reason
    free = Member("a#1", Settings(members=3).config(1, "probabilistic"), random.Random(1))
    assert [o for o in free.handle(ports.Move(10, 2), 0) if isinstance(o, ports.Refused)]  # not joined yet
    free.handle(ports.Start(genesis=True), 0)
    assert [o.entries for o in free.handle(ports.Move(10, 2), 1) if isinstance(o, ports.Moved)] == [10]
    assert [o.what for o in free.handle(ports.Move(1, 2), 2) if isinstance(o, ports.Refused)] == ["move"]


def test_a_lie_about_an_older_generation_hurts_nobody() -> None:
    """Its size is not the generation's, which nobody could know yet when the lie came."""
    net = FreeNet(3, 8, 2)
    a, b, c = net.members
    a.move(8, 2)
    true = a.publish()
    a.move(8, 2)
    high = replace(a.publish(), number=1, opened=1, owner="liar#1")
    lie = replace(high, older=((true.generation, Packed.of((7,) * 20)),))
    assert b.receive(lie) == []  # it claims a past that nobody has
    c.receive(true)
    [row] = [g for g in c.ordering.state().generations if g.generation == true.generation]
    b.ordering.queue.clocks[true.generation] = c.ordering.queue.clocks[row.generation]  # it learns better
    net.pass_time(3 * PATIENCE)
    assert b.log == lie.names() and not b.ordering.held
