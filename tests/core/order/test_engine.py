"""The delivery engine: the paper's rules one by one, then invariants over generated schedules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.order.net import MS, Net, config
from whence.core.clock import NEVER, Digest, EventId, Frame, Incarnation, Send
from whence.core.order import TICKET_ORDERS
from whence.core.order.messages import AckRecover
from whence.core.order.outputs import Deliver, Dropped, GaveUp
from whence.core.order.recovery import MAX_TOLD
from whence.core.wire import decode, encode
from whence.errors import AbsurdClock, BadFrame, ConfigError, ForgedTicket, UsageError

ORDERS = [order for order in TICKET_ORDERS if order != "total"]  # which needs a council

INC1 = Incarnation(1, 0, 1).packed
INC2 = Incarnation(1, 1, 1).packed
CAUSAL = ("causal", "reliable")


def frames_of(out: list[object]) -> list[Frame]:
    return [o.frame for o in out if isinstance(o, Deliver)]


@pytest.mark.parametrize("order", ORDERS)
def test_triangle(order: str) -> None:
    """A tells C, A tells B, B tells C; the first is slow. C must not see B's before A's."""
    net = Net([order] * 3, 3, seed=1)
    question = net.publish(0, 0, INC1, to=[1])
    net.run(50 * MS, digests=None)
    answer = net.publish(1, 1, INC1, to=[2])
    net.run(90 * MS, digests=None)  # the answer is there, nothing timed out yet
    c = net[2]
    if order in CAUSAL:
        assert c.delivered == []
        assert c.ordering.why_blocked(str(EventId(1, INC1, 1, "p1#1"))).state == "held"
    elif order == "unordered":
        assert c.delivered == [answer.names()[0]]
    net.send("p0#1", "p2#1", question, delay=1)
    net.run(100 * MS, digests=None)
    assert sorted(c.delivered) == sorted(f.names()[0] for f in (question, answer))
    assert bool(c.inversions) == (order in ("unordered", "fifo"))  # so the check can fail


def test_fifo_holds_a_publishers_own_order_only() -> None:
    net = Net(["fifo"] * 3, 3, seed=1)
    a1 = net.publish(0, 0, INC1, to=[])
    a2 = net.publish(0, 0, INC1, to=[2])
    b1 = net.publish(1, 1, INC1, to=[2])
    net.run(45 * MS, digests=None)
    assert net[2].delivered == [b1.names()[0]]
    net.send("p0#1", "p2#1", a1, delay=1)
    net.run(47 * MS, digests=None)
    assert net[2].delivered == [f.names()[0] for f in (b1, a1, a2)]


@pytest.mark.parametrize("order", ["fifo", "causal", "reliable"])
def test_a_publisher_that_changes_tickets_keeps_its_order(order: str) -> None:
    """Its last event on the old ticket is late; its first on the new one waits for it."""
    net = Net([order] * 3, 2, seed=1)
    a = net.publish(0, 0, INC1, to=[1])
    b = net.publish(0, 1, INC1, to=[2])
    assert b.prior == (0, INC1, 1)
    net.run(45 * MS, digests=None)
    assert net[2].delivered == []
    net.run(1000 * MS)
    assert net[2].delivered == [f.names()[0] for f in (a, b)] == net[1].delivered


def test_create_follows_the_2011_pseudo_code() -> None:
    """`seq += 1; t_e = T with entry j := seq`, delivered at once."""
    net = Net(["causal"] * 3, 3, seed=1)
    frame = net.publish(1, 1, INC1, count=3)
    assert frame.first == 1 and frame.last == 3 and frame.deps == (NEVER,) * 3
    assert net[1].ordering.clock.T[1] == (INC1, 3)
    again = net.publish(1, 1, INC1)
    assert again.first == 4 and again.deps[1] == (INC1, 3)
    assert len(net[1].delivered) == 4


def test_skip_delivers_everything_in_hand_that_precedes() -> None:
    """Rule 4, the reading of the text: a lost, b and c in hand: b, c over the gap, in causal order."""
    net = Net(["causal"] * 4, 4, seed=3, recovery="off")
    net.publish(0, 0, INC1, to=[1])
    net.run(41 * MS, digests=None)
    b = net.publish(1, 1, INC1, to=[2, 3])
    net.run(82 * MS, digests=None)
    # process 2 holds b; it never got a. c of process 1 depends on b.
    c = net.publish(1, 1, INC1, to=[2, 3])
    net.run(1000 * MS, digests=None)
    for i in (2, 3):
        assert net[i].delivered == [b.names()[0], c.names()[0]]
        assert [g.ranges for g in net[i].gave_up] == [((0, INC1, 1, 1),)]
        assert not net[i].inversions


def test_late_event_is_dropped_and_counted() -> None:
    net = Net(["causal"] * 3, 3, seed=3, recovery="off")
    a = net.publish(0, 0, INC1, to=[1])
    net.run(41 * MS, digests=None)
    net.publish(1, 1, INC1, to=[2])
    net.run(500 * MS, digests=None)
    net.send("p0#1", "p2#1", a, delay=1)
    net.send("p0#1", "p2#1", a, delay=2)
    net.run(600 * MS, digests=None)
    c = net[2]
    assert [d.reason for d in c.dropped] == ["late"]
    assert c.ordering.stats.late == 1 and c.ordering.stats.duplicate_frames == 1
    assert c.ordering.why_blocked(str(EventId(0, INC1, 1, "p0#1"))).state == "obsolete"


def test_recovery_r1_asks_the_source_rk_asks_k() -> None:
    for recovery, wanted in (("R1", ["p0#1"]), ("Rk", None)):
        net = Net(["causal"] * 6, 6, seed=5, recovery=recovery, k=4)
        a = net.publish(0, 0, INC1, to=[1])
        net.run(41 * MS, digests=None)
        b = net.publish(1, 1, INC1, to=[2])
        net.run(82 * MS, digests=None)
        ordering = net[2].ordering
        held = ordering.why_blocked(str(EventId(1, INC1, 1, "p1#1")))
        assert held.state == "held" and held.until_ns is not None
        net.run(120 * MS, digests=None)
        pursuit = ordering.pursuits.by_count.get((0, INC1))
        asked = list(pursuit.asked) if pursuit else []
        if wanted:
            assert asked == wanted
        else:
            assert len(set(asked)) == 4
        net.run(400 * MS, digests=None)
        assert ordering.stats.asked == 1  # once per id
        if recovery == "R1":
            assert net[2].delivered == [f.names()[0] for f in (a, b)]
            assert ordering.stats.recovered == 1


def test_silent_tail_is_recovered_through_a_digest() -> None:
    """The last event is lost at one member and nothing follows it."""
    for order in ORDERS:
        net = Net([order] * 3, 3, seed=7)
        net.publish(0, 0, INC1, count=5, to=[1])
        net.run(1000 * MS)
        assert len(net[2].delivered) == 5, order


def test_reliable_never_skips_while_a_holder_lives() -> None:
    net = Net(["reliable"] * 4, 4, seed=9)
    a = net.publish(0, 0, INC1, to=[1])
    net.run(41 * MS, digests=None)
    b = net.publish(1, 1, INC1, to=[2])
    net[0].alive = net[1].alive = False  # source and only holder are gone for a while
    net.run(2500 * MS)
    assert net[2].delivered == [] and net[2].ordering.held
    net[1].alive = True
    net.run(6000 * MS)
    assert net[2].delivered == [f.names()[0] for f in (a, b)] == net[3].delivered


def test_invented_orphans_do_not_keep_reliable_from_what_it_waits_for() -> None:
    """A digest of 4,096 of them; a holder of what is really missing lives."""
    net = Net(["reliable"] * 4, 4, seed=9)
    victim = net[2].ordering
    invented = tuple((n % 4, n // 4 + 1, 1) for n in range(4096))
    victim.heard("p3#1", Digest(tuple(victim.T), invented), net.now)
    assert 0 < len(victim.pursuits.by_count) <= MAX_TOLD
    a = net.publish(0, 0, INC1, to=[1])
    net.run(41 * MS, digests=None)
    b = net.publish(1, 1, INC1, to=[2])
    net.run(6000 * MS)
    assert net[2].delivered == [f.names()[0] for f in (a, b)]


def test_what_a_frame_waits_for_comes_before_what_digests_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.core.order.recovery.MAX_PURSUITS", 8)
    pursuits = Net(["reliable"] * 3, 3, seed=1)[0].ordering.pursuits
    for n in range(20):
        pursuits.want(0, n + 1, 1, 0, holder=f"liar{n % 2}#1")
    assert len(pursuits.by_count) == 8
    for n in range(8):
        pursuits.want(1, n + 1, 1, 0)
    assert [ticket for ticket, _ in pursuits.by_count] == [1] * 8
    pursuits.want(2, 1, 1, 0)
    assert len(pursuits.by_count) == 8 and not pursuits._told


def test_reliable_gives_up_only_when_nobody_holds_it() -> None:
    net = Net(["reliable"] * 4, 4, seed=9)
    net.publish(0, 0, INC1, to=[1])
    net.run(41 * MS, digests=None)
    b = net.publish(1, 1, INC1, to=[2])
    net[0].alive = net[1].alive = False
    net.run(10_000 * MS)
    assert net[2].delivered == [b.names()[0]]
    assert [g.reason for g in net[2].gave_up] == ["unrecoverable"]


@pytest.mark.parametrize("kind", ["mute", "babbling", "boasting"])
def test_reliable_does_not_wait_for_ever_for_one_that_does_not_answer(kind: str) -> None:
    """A member that leaves requests unanswered, answers with what is known already, or says that it holds it all."""
    net = Net(["reliable"] * 4, 4, seed=9)
    old = net.publish(0, 0, INC1)
    net.run(100 * MS)
    net.publish(0, 0, INC1, to=[1])
    net.run(141 * MS, digests=None)
    b = net.publish(1, 1, INC1, to=[2])
    net[0].alive = net[1].alive = False
    victim, liar = net[2], net[3].ordering
    answers = {"mute": (), "babbling": (old,), "boasting": ()}[kind]
    liar.on_recover = lambda sender, message: [  # type: ignore[method-assign]
        Send(sender, AckRecover(message.nonce, (frame,))) for frame in answers
    ]
    if kind == "boasting":
        liar.digest = lambda: Digest(((INC1, 2), *victim.ordering.T[1:]), ())  # type: ignore[method-assign]
    net.run(5_900 * MS)
    assert b.names()[0] not in victim.delivered, "it may still answer"
    net.run(8_000 * MS)
    assert victim.delivered == [f.names()[0] for f in (old, b)]
    assert [g.reason for g in victim.gave_up] == ["unrecoverable"]


def test_new_tenure_closes_over_the_old_one() -> None:
    """A graceful hand-over: the new owner's first event waits for the old owner's last."""
    net = Net(["causal"] * 3, 1, seed=2)
    old = net.publish(0, 0, INC1, count=2, to=[1])
    net.run(41 * MS, digests=None)
    new = net.publish(1, 0, INC2, to=[2])
    assert new.first == 1 and new.deps[0] == (INC1, 2)
    net.run(82 * MS, digests=None)
    assert net[2].delivered == []
    net.run(400 * MS)
    assert net[2].delivered == [e for f in (old, new) for e in f.names()]


@pytest.mark.parametrize("order", CAUSAL)
def test_orphans_of_a_crashed_owner(order: str) -> None:
    """The new owner never saw the old one's last event; others have, and published after it."""
    net = Net([order] * 4, 2, seed=2)
    net.publish(0, 0, INC1)
    net.run(60 * MS, digests=None)
    orphan = net.publish(0, 0, INC1, to=[2])
    net[0].alive = False
    net.run(110 * MS, digests=None)
    new = net.publish(1, 0, INC2)  # closes over event 1 only
    net.run(111 * MS, digests=None)
    effect = net.publish(2, 1, INC1)
    net.run(4000 * MS)
    e, n, f = (x.names()[0] for x in (orphan, new, effect))
    for i in (1, 2, 3):
        assert {n, f} <= set(net[i].delivered)
        assert not net[i].inversions and not net[i].repeats
        assert e in net[i].delivered
        assert net[i].delivered.index(e) < net[i].delivered.index(f)


@pytest.mark.parametrize("order", ["unordered", "fifo"])
def test_an_orphan_is_named_by_one_whose_past_has_moved_on_to_the_next_tenure(order: str) -> None:
    """The publisher p2 has the orphan and lacks the first frame of the next tenure. That tenure is in its past all the
    same: an unordered member has the second frame already, a fifo member an effect of the first."""
    net = Net(["reliable", "reliable", order, "reliable"], 3, seed=2)
    net.publish(0, 0, INC1)
    net.run(60 * MS, digests=None)
    orphan = net.publish(0, 0, INC1, to=[2])
    net[0].alive = False
    net.run(110 * MS, digests=None)
    net.publish(1, 0, INC2, to=[3])  # closes over event 1 only
    net.run(155 * MS, digests=None)
    before = net.publish(1, 0, INC2) if order == "unordered" else net.publish(3, 2, INC1)
    net.run(197 * MS, digests=None)
    assert before.names()[0] in net[2].delivered and net[2].ordering.T[0] == (INC1, 2)
    effect = net.publish(2, 1, INC1)
    assert effect.deps[0][0] == INC2
    net.run(4000 * MS)
    o, e = orphan.names()[0], effect.names()[0]
    for i in (1, 3):
        assert o in net[i].delivered and net[i].delivered.index(o) < net[i].delivered.index(e)


def test_two_owners_of_one_tenure_are_reported() -> None:
    net = Net(["causal"] * 3, 2, seed=2)
    net.publish(0, 0, INC1, to=[2])
    net.run(41 * MS, digests=None)
    forged = Frame.of(0, INC1, 2, "p1#1", ((INC1, 1), NEVER), [b"no"])
    with pytest.raises(ForgedTicket, match="p1#1 published on ticket 0"):
        net[2].ordering.vet(forged, "p1#1")
    assert [d.reason for d in net[2].dropped] == []
    net[2].ordering.vet(forged, "p0#1")  # whoever passes it on is not to blame
    relayed = net[2].ordering.receive(forged, "p0#1", 1, net.now)
    assert [o.reason for o in relayed] == ["two-owners"]  # type: ignore[union-attr]
    assert net[2].ordering.stats.two_owners == 2


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (Frame.of(5, INC1, 1, "p1#1", (NEVER,) * 2, [b""]), BadFrame),
        (Frame.of(0, INC1, 1, "p1#1", (NEVER,) * 3, [b""]), BadFrame),
        (Frame.of(0, INC1, 3, "p1#1", (NEVER,) * 2, [b""]), BadFrame),
        (Frame.of(0, INC1, 1, "p1#1", ((INC2, 1), NEVER), [b""]), BadFrame),
        (Frame.of(0, INC1, 1, "p1#1", (NEVER,) * 2, [b""] * 2000), BadFrame),
        (Frame.of(0, INC1, 1, "p1#1", (NEVER, (INC1, 1 << 30)), [b""]), AbsurdClock),
    ],
)
def test_frames_that_contradict_the_cluster(frame: Frame, error: type[Exception]) -> None:
    net = Net(["causal"] * 3, 2, seed=2)
    with pytest.raises(error):
        decode(encode(AckRecover(1, (frame,))))  # where a frame that contradicts itself ends
        net[2].ordering.vet(frame, "p1#1")
    assert net[2].ordering.clock.T == [NEVER, NEVER]
    with pytest.raises(AbsurdClock):
        net[2].ordering.heard("p1#1", Digest(((INC1, 1 << 31), NEVER)), 0)


@pytest.mark.parametrize("order", ORDERS)
def test_buffers_stay_within_bounds(order: str) -> None:
    net = Net([order] * 3, 2, seed=4, loss=0.3, buffer=8, hold=4)
    for i in range(200):
        net.publish(i % 2, i % 2, INC1)
        net.run(net.now + 3 * MS)
        for p in net.processes.values():
            for name, (fill, bound) in p.ordering.buffers().items():
                assert fill <= bound, name
    assert any(p.ordering.stats.overflow_frames for p in net.processes.values())
    assert all(p.ordering.buffer.evicted for p in net.processes.values())


def test_reliable_overflow_is_asked_for_again() -> None:
    """`H` far too small for what arrives early: everything is delivered all the same."""
    net = Net(["reliable"] * 3, 2, seed=4, loss=0.3, hold=3)
    for i in range(120):
        net.publish(i % 2, i % 2, INC1)
        net.run(net.now + 3 * MS)
    net.run(net.now + 60_000 * MS)
    for p in net.processes.values():
        assert len(p.delivered) == 120 and not p.inversions and not p.repeats


def test_snapshot_is_exactly_a_point_of_the_order() -> None:
    net = Net(["causal"] * 4, 2, seed=4, loss=0.1)
    late = net[3]
    late.ordering.joining = True
    for i in range(40):
        net.publish(i % 2, i % 2, INC1)
        net.run(net.now + 5 * MS)
    state, point = net[0].ordering.state(), list(net[0].delivered)
    late.past = set(net[0].past)
    late.ordering.load(state, net.now)
    net.carry_out(late, late.ordering.begin(net.now))
    for i in range(40):
        net.publish(i % 2, i % 2, INC1)
        net.run(net.now + 5 * MS)
    net.run(net.now + 5000 * MS)
    assert len(set(point)) + len(late.delivered) == 80
    assert not set(point) & set(late.delivered)
    assert not late.inversions and not late.repeats


def test_misuse_is_named() -> None:
    net = Net(["causal"] * 3, 2, seed=4)
    with pytest.raises(UsageError, match="1 to 1024 events"):
        net.publish(0, 0, INC1, count=0)
    with pytest.raises(ConfigError, match="order must be one of"):
        config("sequential", 2)
    with pytest.raises(ConfigError, match="needs recovery"):
        config("reliable", 2, recovery="off")
    with pytest.raises(ConfigError, match="hold must be at least 1"):
        config("causal", 2, hold=0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1 << 32),
    order=st.sampled_from(ORDERS),
    processes=st.integers(3, 6),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    dup=st.sampled_from([0.0, 0.2]),
    recovery=st.sampled_from(["R1", "Rk"]),
    crash=st.booleans(),
)
def test_invariants_over_generated_schedules(
    seed: int, order: str, processes: int, loss: float, dup: float, recovery: str, crash: bool
) -> None:
    """Three to six processes, three tickets that change hands (after a crash: without hand-over), loss, duplication."""
    net = Net([order] * processes, 3, seed, loss, dup, recovery=recovery)
    owners = [(0, INC1), (1, INC1), (2 % processes, INC1)]
    rng = net.rng
    for step in range(60):
        ticket = rng.randrange(3)
        owner, inc = owners[ticket]
        if net[owner].alive:
            net.publish(owner, ticket, inc, count=rng.randint(1, 3))
        if crash and step == 30:
            net[0].alive = False
            owners[0] = (1, INC2)
        if step == 40:  # a graceful hand-over: the new owner catches up first, as `Member` sees to
            final = net[1].ordering.clock.T[1]
            net[2].ordering.expect(1, final, net.now)
            net.run(net.now + 1000 * MS)
            if net[2].ordering.caught_up(1, final):
                owners[1] = (2, INC2)
        net.run(net.now + rng.randint(0, 20) * MS)
    net.run(net.now + 20_000 * MS)
    live = [p for p in net.processes.values() if p.alive]
    everything = set().union(*(p.delivered for p in live))
    for p in live:
        assert not p.repeats
        if order in CAUSAL:
            assert not p.inversions
        if order == "reliable":
            assert set(p.delivered) == everything  # agreement, orphans included
        if order != "unordered":
            for tenure in {e.rpartition(":")[0] for e in p.delivered}:
                seqs = [int(e.split(":")[2].split("@")[0]) for e in p.delivered if e.startswith(tenure + ":")]
                assert seqs == sorted(seqs)
    if loss == 0 and not crash:
        assert all(len(p.delivered) == len(net.past) for p in live)  # Lemma 5.1


def test_give_up_outputs_are_whole() -> None:
    """A skip says exactly which ranges were given up, before the delivery over the gap."""
    net = Net(["causal"] * 3, 2, seed=1, recovery="off")
    net.publish(0, 0, INC1, count=3, to=[])
    b = net.publish(0, 0, INC1, to=[2])
    p = net[2]
    out = p.ordering.receive(b, "p0#1", 1, 0)
    out = p.ordering.wake(p.ordering.wake_at or 0)
    assert isinstance(out[0], GaveUp) and out[0].ranges == ((0, INC1, 1, 3),)
    assert frames_of(list(out)) == [b] and isinstance(out[1], Deliver) and out[1].over_gap


def test_only_sealed_frames_count_where_the_cluster_has_roles() -> None:
    class Keyed:
        def sign(self, data: bytes) -> bytes:
            return bytes([sum(data) % 251])

        def verify(self, data: bytes, signature: bytes) -> bool:
            return signature == self.sign(data)

    net = Net(["causal"] * 3, 2, seed=1)
    for p in net.processes.values():
        p.ordering.seal = Keyed()
    good = net.publish(0, 0, INC1)
    net.run(100 * MS)
    assert len(net[2].delivered) == 1 and good.signature
    net[2].ordering.vet(good, "p1#1")
    with pytest.raises(ForgedTicket, match="not signed by a publisher"):
        net[2].ordering.vet(Frame.of(1, INC1, 1, "p1#1", good.deps, [b"no"]), "p1#1")


def test_an_absurd_event_of_a_closed_tenure_is_refused_too() -> None:
    """Found by a harsh soak: a blocking order would have pursued it for ever."""
    net = Net(["reliable"] * 3, 1, seed=1)
    net.publish(0, 0, INC1)
    net.run(100 * MS)
    net.publish(1, 0, INC2)
    net.run(200 * MS)
    lie = Frame.of(0, INC1, (1 << 32) - 2, "p0#1", ((INC1, (1 << 32) - 3),), [b""])
    with pytest.raises(AbsurdClock):
        net[2].ordering.vet(lie, "p0#1")


def test_nobody_is_blamed_for_forwarding_what_only_others_find_absurd() -> None:
    """A member in fifo order does not know how far a closed tenure went, and forwards what claims to be of it."""
    net = Net(["reliable", "reliable", "reliable", "fifo"], 1, seed=1)
    net.publish(0, 0, INC1)
    net.run(100 * MS)
    net.publish(1, 0, INC2)
    net.run(200 * MS)
    lie = Frame.of(0, INC1, (1 << 32) - 2, "p0#1", ((INC1, (1 << 32) - 3),), [b""])
    assert net[3].ordering.vet(lie, "p1#1")
    assert not net[2].ordering.vet(lie, "p3#1")
    assert net[2].ordering.stats.absurd == 1


def test_a_held_frame_whose_tenure_was_closed_over_comes_before_its_effects() -> None:
    """It waits for another ticket; meanwhile its own tenure ends without it, and something that depends on it comes."""
    net = Net(["causal"] * 3, 3, seed=1)
    o, a, b = net[2].ordering, "p0#1", "p1#1"
    first = Frame.of(1, INC1, 1, a, (NEVER, NEVER, NEVER), [b"first"])
    held = Frame.of(1, INC1, 2, a, ((INC1, 1), (INC1, 1), NEVER), [b"held"])
    new = Frame.of(1, INC2, 1, b, (NEVER, (INC1, 1), NEVER), [b"new tenure"])
    effect = Frame.of(2, INC1, 1, "p9#1", (NEVER, (INC1, 2), NEVER), [b"effect of held"])
    other = Frame.of(0, INC1, 1, "p8#1", (NEVER, NEVER, NEVER), [b"what it waited for"])
    out = [x for f in (first, held, new, effect, other) for x in o.receive(f, a, 1, 0)]
    assert frames_of(list(out)) == [first, new, other, held, effect]


def test_an_orphan_that_causal_has_skipped_is_late_and_counted() -> None:
    """Nobody could give it in time, and its effect went on without it."""
    net = Net(["causal"] * 3, 2, seed=1)
    o, a, b = net[2].ordering, "p0#1", "p1#1"
    orphan = Frame.of(0, INC1, 1, a, (NEVER, NEVER), [b"orphan"])
    new = Frame.of(0, INC2, 1, b, (NEVER, NEVER), [b"new tenure"])
    effect = Frame.of(1, INC1, 1, b, ((INC2, 1), NEVER), [b"effect"], orphans=((0, INC1, 1),))
    out = [x for f in (new, effect) for x in o.receive(f, b, 1, 0)]
    assert frames_of(list(out)) == [new], "it is waited for"
    out = o.wake(10_000 * MS)
    assert frames_of(list(out)) == [effect] and o.stats.skipped == o.stats.delivered_over_gap == 1
    out = o.receive(orphan, a, 1, 20_000 * MS)
    assert [x.reason for x in out if isinstance(x, Dropped)] == ["late"] and o.stats.late == 1


def test_who_skipped_the_frame_that_named_an_orphan_does_not_take_the_orphan_after_its_effect() -> None:
    """p1 has the orphan and publishes twice; the first frame is lost. Its second one names the orphan again."""
    net = Net(["causal"] * 3, 2, seed=1)
    net.publish(0, 0, INC1)
    net.run(60 * MS, digests=None)
    orphan = net.publish(0, 0, INC1, to=[1])
    net.run(110 * MS, digests=None)
    net.publish(2, 0, INC2)
    net.run(160 * MS, digests=None)
    net.publish(1, 1, INC1, to=[])
    effect = net.publish(1, 1, INC1, to=[2])
    assert effect.orphans == ((0, INC1, 2),)
    net[0].alive = net[1].alive = False
    net.run(8000 * MS)
    assert effect.names()[0] in net[2].delivered and not net[2].inversions
    net[2].ordering.receive(orphan, "p0#1", 1, net.now)
    assert orphan.names()[0] not in net[2].delivered and net[2].ordering.stats.late == 1
