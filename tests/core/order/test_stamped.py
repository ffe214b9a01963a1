"""Any mechanism behind the stack's interface: numbers, skipping, anchors, snapshots, bad bytes, bounds."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.clock import Digest, Frame, Send, StampedFrame
from whence.core.order import MECHANISMS, OrderConfig, OrderContext, SurveyConfig
from whence.core.order.messages import StampedState, TicketState
from whence.core.order.outputs import Deliver, Dropped, GaveUp, OrderOutput
from whence.core.order.stamped import StampedOrdering
from whence.core.order.survey.base import Message, Stamp
from whence.core.order.survey.registry import make
from whence.core.order.survey.vector import VectorStamp
from whence.errors import AbsurdClock, BadFrame, BadMessage, ConfigError, RemoteError, TooLarge, UsageError, WrongKind
from whence.lab.sim.soak import TIMED

MS = 1_000_000
TERMINATE, RECOVER = 100 * MS, 200 * MS
PATIENCE = TERMINATE + RECOVER
BLOCKING = [m for m in MECHANISMS if m not in TIMED]
CHAINED = ["first", "first-unstable", "identifiers", "compact-multicast", "compact-unicast"]


class Process:
    """One member's order layer, and what its application saw."""

    def __init__(self, net: Net, index: int, **more: Any) -> None:
        self.net = net
        self.id = f"p{index}#1"
        given = {"survey": SurveyConfig(skew=0, delay=PATIENCE, lifetime=2 * PATIENCE), **net.settings, **more}
        config = OrderConfig(
            order="causal",
            tickets=1,
            time_to_terminate_ns=TERMINATE,
            time_to_recover_ns=RECOVER,
            buffer=1000,
            abandon_ns=10**12,
            memory_ns=10**12,
            mechanism=net.mechanism,
            **{"hold": 1000, **given},
        )
        others = [f"p{i}#1" for i in range(net.count) if i != index]
        self.ordering = StampedOrdering(
            OrderContext(self.id, config, random.Random(index), lambda: others, lambda k: others[:k])
        )
        self.log: list[str] = []
        self.knows: set[str] = set()
        self.outputs: list[OrderOutput] = []

    def take(self, out: list[OrderOutput]) -> list[str]:
        """What was delivered by these outputs."""
        self.outputs += out
        new: list[str] = []
        for o in out:
            if isinstance(o, Deliver):
                for name in o.frame.names():
                    new.append(name)
                    if o.frame.owner == self.id:
                        self.net.past[name] = frozenset(self.knows)
                    self.log.append(name)
                    self.knows |= self.net.past[name] | {name}
        return new

    def publish(self) -> StampedFrame:
        frame, out = self.ordering.publish([b"x"], self.net.now)
        self.take(out)
        return frame

    def receive(self, frame: StampedFrame) -> list[str]:
        frame.check()
        self.ordering.vet(frame, frame.owner)
        return self.take(self.ordering.receive(frame, frame.owner, 1, self.net.now))

    def inversions(self) -> list[tuple[str, str]]:
        """Pairs (effect, cause) delivered in this order."""
        seen = list(enumerate(self.log))
        return [(a, b) for i, a in seen for j, b in seen if i < j and b in self.net.past[a]]


class Net:
    """Members that get what a test gives them."""

    def __init__(self, count: int, mechanism: str, **settings: Any) -> None:
        self.now = 10**9
        self.count = count
        self.mechanism = mechanism
        self.settings = settings
        self.past: dict[str, frozenset[str]] = {}
        self.members = [Process(self, i) for i in range(count)]
        ids = [m.id for m in self.members]
        for m in self.members:
            m.ordering.found([i for i in ids if i != m.id])
            m.take(m.ordering.begin(self.now))

    def pass_time(self, by: int) -> None:
        """Wake everybody when it wants to be woken, until then."""
        end = self.now + by
        while True:
            due = [(at, i) for i, m in enumerate(self.members) if (at := m.ordering.wake_at) is not None and at <= end]
            if not due:
                break
            at, i = min(due)
            self.now = max(self.now, at)
            member = self.members[i]
            member.take(member.ordering.wake(self.now))
        self.now = end

    def join(self, giver: Process, **more: Any) -> Process:
        """Another one, with the giver's state."""
        joiner = Process(self, len(self.members), **more)
        state = giver.ordering.admit(joiner.id)
        joiner.ordering.load(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state)), self.now)
        joiner.log, joiner.knows = list(giver.log), set(giver.knows)
        joiner.take(joiner.ordering.begin(self.now))
        self.members.append(joiner)
        return joiner


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_effect_waits_for_its_cause(mechanism: str) -> None:
    net = Net(3, mechanism)
    a, b, c = net.members
    question = a.publish()
    b.receive(question)
    net.pass_time(PATIENCE)  # physical: b delivers it now
    answer = b.publish()
    held = not c.receive(answer)
    assert held == (mechanism not in ("first", "first-unstable"))
    if held:
        assert c.ordering.why_blocked(f"{b.id}/1").state == "held" and len(c.ordering.held) == 1
    c.receive(question)
    net.pass_time(2 * PATIENCE)
    assert c.log == [*question.names(), *answer.names()] and c.ordering.held == {}
    assert c.ordering.why_blocked(f"{b.id}/1").state == "delivered"
    assert c.ordering.why_blocked(f"{b.id}/9").state == "unknown"


@pytest.mark.parametrize("mechanism", [m for m in BLOCKING if not m.startswith("first")])
def test_what_nobody_has_is_skipped_and_never_delivered(mechanism: str) -> None:
    net = Net(3, mechanism)
    a, b, c = net.members
    question = a.publish()
    b.receive(question)
    answer = b.publish()
    c.receive(answer)
    net.pass_time(2 * PATIENCE)
    gone = [o for o in c.outputs if isinstance(o, GaveUp)]
    assert gone and c.ordering.held == {} and c.ordering.stats.skipped >= 1
    assert [o for o in c.outputs if isinstance(o, Send)] or mechanism == "interval"  # which cannot say for what
    assert c.receive(question) == [] and c.inversions() == []  # too late
    assert [o.reason for o in c.outputs if isinstance(o, Dropped)][-1] == "late"
    # Whoever hears of it from c waits for it, or skips it, too: the answer is in c's past only if c delivered it.
    c.publish()
    assert c.inversions() == []


@pytest.mark.parametrize("mechanism", [m for m in CHAINED if m != "first-unstable"])  # which repeats it
def test_a_broken_chain_is_not_delivered_before_an_anchor(mechanism: str) -> None:
    """a's second message says what came before it; without it, its third says too little."""
    net = Net(3, mechanism, survey=SurveyConfig(anchor_every=4))
    a, b, c = net.members
    frames = [a.publish()]
    a.receive(cause := b.publish())
    frames += [a.publish() for _ in range(4)]
    assert [f.anchor for f in frames] == [True, False, False, False, True]
    c.receive(frames[0])
    c.receive(frames[2])  # and never frames[1]
    net.pass_time(2 * PATIENCE)
    c.receive(frames[3])
    assert c.log == frames[0].names()
    c.receive(frames[4])
    net.pass_time(2 * PATIENCE)
    c.receive(cause)
    assert c.log[-1] in (frames[4].names() + cause.names()) and len(c.log) >= 2
    assert c.inversions() == []


@pytest.mark.parametrize("mechanism", BLOCKING)
def test_a_joiner_of_whom_nobody_was_told_inverts_nothing(mechanism: str) -> None:
    """Even if those that know nothing of it think that all have everything."""
    net = Net(3, mechanism)
    a, b, c = net.members
    first = a.publish()
    d = net.join(c)  # which has nothing yet
    b.receive(first)
    c.receive(first)
    for one in (a, b, c):
        for other in (a, b, c):
            if one is not other:
                one.ordering.heard(other.id, other.ordering.digest(), net.now)
    second = b.publish()
    if mechanism == "first-unstable":
        assert not msgspec.msgpack.decode(second.stamp)[1]  # all that b knows of have it: it is not carried
    d.receive(second)
    d.receive(first)
    assert d.log == first.names() + second.names() and d.inversions() == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_snapshot_and_a_checkpoint_are_gone_on_from(mechanism: str) -> None:
    net = Net(2, mechanism)
    a, b = net.members
    for frame in [a.publish() for _ in range(3)]:
        b.receive(frame)
    net.pass_time(PATIENCE)
    d = net.join(b)
    fourth = a.publish()
    d.receive(fourth)
    net.pass_time(PATIENCE)
    assert d.log[-1:] == fourth.names()
    mine = d.publish()
    saved = d.ordering.state()
    again = Process(net, 9)
    again.ordering.load(saved, net.now)
    again.take(again.ordering.begin(net.now))
    assert again.receive(fourth) == again.receive(mine) == []  # seen before
    again.log, again.knows = list(d.log), set(d.knows)
    last = again.publish()
    a.receive(mine)
    a.receive(last)
    net.pass_time(2 * PATIENCE)
    assert a.log[-2:] == mine.names() + last.names() and a.inversions() == []


def test_a_state_of_another_kind_is_refused() -> None:
    vector, other = Net(2, "vector").members[0], Net(2, "identifiers").members[0]
    vector.publish()
    good = vector.ordering.state()
    assert good.kind == "vector"
    broken = [
        other.ordering.state(),
        TicketState((), (), (), (), (), ()),
        StampedState("vector", ("a#1",), (1, 2), b""),
        StampedState("vector", ("a#1",), (1,), b"\xc1"),
        StampedState("vector", (), (), good.state),
    ]
    for state in broken:
        with pytest.raises(RemoteError):
            Net(2, "vector").members[1].ordering.load(state, 0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bad_frames_are_named_and_change_nothing(mechanism: str) -> None:
    net = Net(3, mechanism)
    a, b, c = net.members
    b.receive(a.publish())
    net.pass_time(PATIENCE)
    good = b.publish()
    before = c.ordering.state()
    replace = msgspec.structs.replace
    alien = next(m for m in MECHANISMS if make(m, 0, (0, 1)).stamp_type is not c.ordering.mechanism.stamp_type)
    foreign = msgspec.msgpack.encode(make(alien, 0, (0, 1)).stamp(1, 5))
    bad: list[tuple[Any, type[Exception]]] = [
        (Frame.of(0, 1, 1, "a#1", ((0, 0),), [b"x"]), WrongKind),
        (replace(good, stamp=b""), BadMessage),
        (replace(good, stamp=good.stamp + b"\x00"), BadMessage),
        (replace(good, stamp=good.stamp[:-1]), RemoteError),
        (replace(good, stamp=foreign), BadMessage),
        (replace(good, number=0), BadFrame),
        (replace(good, count=0), BadFrame),
        (replace(good, number=1 << 40), AbsurdClock),
    ]
    if not mechanism.startswith("first"):
        bad.append((replace(good, stamp=b"\x92\x03\xdd\x00\x02\x00\x00" + bytes(1 << 17)), TooLarge))
    if good.processes:
        bad.append((replace(good, processes=()), BadFrame))
    for frame, error in bad:
        with pytest.raises(error):
            frame.check()
            c.ordering.vet(frame, frame.owner)
    with pytest.raises(WrongKind):
        c.ordering.heard("b", Digest(((0, 0),)), net.now)
    assert c.ordering.state() == before and c.ordering.names == ["p2#1", "p0#1", "p1#1"]


def test_a_past_years_ahead_is_absurd() -> None:
    c = Net(3, "vector").members[2]
    stamp = msgspec.msgpack.encode(VectorStamp((1, 1 << 40)))
    with pytest.raises(AbsurdClock):
        c.ordering.vet(StampedFrame("p0#1", 1, 1, 1, ("p0#1", "p1#1"), stamp, b"\x91\xc4\x01x"), "p0#1")


def test_a_carried_message_passes_the_checks_of_the_wire() -> None:
    net = Net(3, "first")
    a, b, c = net.members
    b.receive(a.publish())
    good = b.publish()
    tag, carried, after = msgspec.msgpack.decode(good.stamp)
    for body in (b"", b"\x93\x01\x02\xc4\x03\x91\xa1x", msgspec.msgpack.encode([0, 1, b"\x91\xc4\x01x"])):
        bent = msgspec.msgpack.encode([tag, [[*carried[0][:2], body]], after])
        with pytest.raises(BadFrame, match="carried"):
            c.ordering.vet(msgspec.structs.replace(good, stamp=bent), b.id)


def test_a_message_to_be_carried_that_comes_in_a_snapshot_passes_them_too() -> None:
    """Else the joiner's next frame would carry it, and the joiner would be cut off for it."""
    net = Net(3, "first")
    a, b, c = net.members
    b.receive(a.publish())
    good = b.ordering.state()
    tag, delivered, [[sender, seq, content]], *rest = msgspec.msgpack.decode(good.state)
    bent = msgspec.msgpack.encode(
        [tag, delivered, [[sender, seq, content.replace(b"\xc4\x01x", b"\xc1\xc1\xc1")]], *rest]
    )
    with pytest.raises(BadFrame, match="carried"):
        c.ordering.load(msgspec.structs.replace(good, state=bent), net.now)
    c.ordering.load(good, net.now)


@settings(max_examples=200)
@given(st.sampled_from(MECHANISMS), st.data())
def test_whatever_bytes_a_stamp_has_only_remote_errors_come_of_it(mechanism: str, data: st.DataObject) -> None:
    net = Net(3, mechanism)
    a, b, c = net.members
    b.receive(a.publish())
    net.pass_time(PATIENCE)
    good = b.publish()
    raw = bytearray(good.stamp)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=4))
    bent = msgspec.structs.replace(good, stamp=bytes(raw))
    try:
        c.ordering.vet(bent, b.id)
    except RemoteError:
        return
    c.receive(bent)  # it could be true: it is taken, and nothing breaks
    net.pass_time(4 * PATIENCE)


@settings(max_examples=150)
@given(st.sampled_from(MECHANISMS), st.permutations(range(6)), st.data())
def test_renumbering_there_and_back_changes_nothing(mechanism: str, order: list[int], data: st.DataObject) -> None:
    one, other = make(mechanism, 0, range(6)), make(mechanism, 1, range(6))
    for seq in range(1, data.draw(st.integers(2, 4))):
        message = Message(0, seq, one.stamp(seq, seq), b"x")
        one.deliver(message, seq)
        other.deliver(message, seq + 10**12)
    back = {new: old for old, new in enumerate(order)}
    stamp: Stamp = other.stamp(1, 10**13)
    for thing in (stamp, other.save()):
        assert thing.renumbered(lambda p: order[p]).renumbered(lambda p: back[p]) == thing


def test_what_is_held_is_bounded() -> None:
    for mechanism in ("vector", "physical"):
        net = Net(3, mechanism, hold=4)
        a, b, c = net.members
        missing = a.publish()
        b.receive(missing)
        net.pass_time(PATIENCE)
        for _ in range(10):
            c.receive(b.publish())
            fill, bound = c.ordering.buffers()["H"]
            assert fill <= bound == 4
        assert c.ordering.stats.overflow_frames > 0 and c.inversions() == []


@pytest.mark.parametrize("mechanism", TIMED)
def test_what_is_held_is_looked_at_again_only_when_it_has_changed(mechanism: str) -> None:
    net = Net(3, mechanism)
    a, b, c = net.members
    b.receive(a.publish())
    net.pass_time(PATIENCE)
    c.receive(b.publish())
    looks: list[object] = []
    wait = c.ordering.mechanism.wait
    c.ordering.mechanism.wait = lambda message, now: looks.append(message) or wait(message, now)
    assert len({c.ordering.wake_at for _ in range(9)}) == 1 and c.ordering.held and not looks[1:]


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.core.order.stamped.MAX_OWNERS", 4)
    net = Net(3, "vector")
    a, _, c = net.members
    template = a.publish()
    strangers = [msgspec.structs.replace(template, owner=f"s{i}#1", processes=(f"s{i}#1",)) for i in range(3)]
    for frame in strangers:
        c.ordering.vet(frame, frame.owner)
        c.ordering.receive(frame, frame.owner, 1, net.now)
    assert len(c.ordering.names) == 4 and c.ordering.stats.overflow_frames == 2
    with pytest.raises(UsageError):
        c.ordering.admit("z#1")


def test_an_interval_that_was_split_too_often_admits_nobody() -> None:
    net = Net(1, "interval")
    [a] = net.members
    for i in range(32):
        a.ordering.admit(f"z{i}#1")
    with pytest.raises(UsageError, match="too often"):
        a.ordering.admit("last#1")


class Roles:
    """Keys that sign and verify."""

    def sign(self, data: bytes) -> bytes:
        return b"s"

    def verify(self, data: bytes, signature: bytes) -> bool:
        return signature == b"s"


def test_what_carries_others_messages_is_refused_where_there_are_roles() -> None:
    config = Net(1, "vector").members[0].ordering.config
    for mechanism in MECHANISMS:
        settings = msgspec.structs.replace(config, mechanism=mechanism)

        def make_it(settings: OrderConfig = settings) -> StampedOrdering:
            return StampedOrdering(OrderContext("a#1", settings, random.Random(1), list, lambda k: [], Roles()))

        if mechanism.startswith("first"):
            with pytest.raises(ConfigError, match="signature"):
                make_it()
        else:
            ordering = make_it()
            ordering.begin(0)
            frame, _ = ordering.publish([b"x"], 1)
            assert frame.signature == b"s"
            with pytest.raises(BadFrame, match="not signed"):
                ordering.vet(msgspec.structs.replace(frame, signature=b""), "b#1")
