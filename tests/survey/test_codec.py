"""Messages of every mechanism survive the wire; what a hostile peer sends is a message or a named error."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.survey.group import Group, joins
from tests.survey.net import Net
from whence.clock.interval import SEED, encode, peek
from whence.errors import BadFrame, BadMessage, ConfigError, RemoteError, TooLarge
from whence.order.survey import Process, lossy, reliable
from whence.order.survey.codec import Codec
from whence.order.survey.interconnect import Forward, Hello, Interconnected, LinkWire, Report
from whence.order.survey.interval import IntervalStamp
from whence.order.survey.probabilistic import KeyStamp
from whence.order.survey.registry import MECHANISMS, SurveyConfig, make
from whence.order.survey.reliable import View
from whence.order.survey.subgroup import Delivered, Global, ToMember
from whence.order.survey.wires import Wires, decode_link, encode_link

FOUNDERS = (0, 1, 2)


def traffic(name: str) -> Net:
    net = Net(lambda me: make(name, me, FOUNDERS, SurveyConfig(R=4, K=2)), 3, Random(1))
    net.run(40)
    net.settle()
    return net


@pytest.mark.parametrize("name", MECHANISMS)
def test_messages_and_states_survive_the_wire(name: str) -> None:
    net = traffic(name)
    codec = Codec(net.processes[0].mechanism)
    for message in net.sent:
        assert codec.decode(codec.encode(message)) == message
    state = net.processes[0].admit(7)
    assert codec.decode_state(codec.encode(state)) == state
    joiner = Process(7, make(name, 7, FOUNDERS, SurveyConfig(R=4, K=2)))
    joiner.install(codec.decode_state(codec.encode(state)), net.now)
    assert all(joiner.receive(message, net.now) == [] for message in net.sent)  # all of it is behind the joiner


@pytest.mark.parametrize("name", MECHANISMS)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_bytes_are_a_message_or_a_named_error(name: str, data: st.DataObject) -> None:
    net = traffic(name)
    process = net.processes[0]
    codec = Codec(process.mechanism)
    message = data.draw(st.sampled_from(net.sent))
    raw = bytearray(codec.encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        damaged = codec.decode(bytes(raw))
        process.receive(damaged, net.now)
        process.missing(net.now)
    except RemoteError:
        pass


def test_each_kind_of_nonsense_has_its_error() -> None:
    vector = make("vector", 0, FOUNDERS)
    codec = Codec(vector, max_bytes=100)
    good = Process(1, make("vector", 1, FOUNDERS)).multicast(b"x", 0)[0]
    other = Process(1, make("compact-multicast", 1, FOUNDERS)).multicast(b"x", 0)[0]
    with pytest.raises(BadMessage, match="vector"):
        codec.decode(codec.encode(other))  # another mechanism's
    with pytest.raises(BadMessage):
        codec.decode(b"")
    with pytest.raises(BadMessage):
        codec.decode_state(b"\x91\x05")
    with pytest.raises(TooLarge):
        codec.decode(bytes(101))
    for seq in (0, -5, 1 << 63):
        with pytest.raises(BadFrame):
            codec.decode(codec.encode(type(good)(1, seq, good.stamp, b"")))
    interval = make("interval", 0, FOUNDERS)
    with pytest.raises(BadFrame, match="share"):
        interval.check(IntervalStamp(encode(peek(SEED))))
    with pytest.raises(BadFrame, match="entries"):
        make("probabilistic", 0, FOUNDERS).check(KeyStamp((0,), (1, 2)))
    with pytest.raises(ConfigError, match="there are first"):
        make("nonsense", 0, FOUNDERS)


# -- the protocols around the mechanisms ------------------------------------------------------------------------------


def reliable_wires(name: str) -> list[reliable.Wire]:
    """What a group with crashes and joiners has sent, one kind after the other."""
    found: dict[bytes, reliable.Wire] = {}

    class Watched(Group):
        def do(self, p: int, outputs: list[reliable.Output]) -> None:
            codec = Wires(self.make(p))
            found.update({codec.encode(o.wire): o.wire for o in outputs if isinstance(o, reliable.Send)})
            super().do(p, outputs)

    joins(name, 1, True, Watched)
    return list(found.values())


@pytest.fixture(scope="module", params=["vector", "first", "interval"])
def reliable_traffic(request: pytest.FixtureRequest) -> tuple[Wires, list[reliable.Wire]]:
    wires = reliable_wires(request.param)
    assert {type(wire) for wire in wires} == {
        reliable.Data,
        reliable.Ack,
        reliable.Flush,
        reliable.Ready,
        reliable.Welcome,
    }
    return Wires(make(request.param, 0, tuple(range(4)))), wires


def test_the_words_of_a_group_with_views_survive_the_wire(
    reliable_traffic: tuple[Wires, list[reliable.Wire]],
) -> None:
    codec, wires = reliable_traffic
    for wire in wires:
        assert codec.decode_reliable(codec.encode(wire)) == wire


def damage(draw: st.DataObject, raw: bytes) -> bytes:
    """A few bytes changed, or the end cut off."""
    changed = bytearray(raw)
    for _ in range(draw.draw(st.integers(1, 3))):
        changed[draw.draw(st.integers(0, len(raw) - 1))] = draw.draw(st.integers(0, 255))
    return bytes(changed[: draw.draw(st.integers(1, len(raw)))])


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_words_of_a_group_with_views_are_words_or_a_named_error(
    reliable_traffic: tuple[Wires, list[reliable.Wire]], data: st.DataObject
) -> None:
    codec, wires = reliable_traffic
    kind = data.draw(st.sampled_from(sorted({type(w) for w in wires}, key=str)))
    wire = data.draw(st.sampled_from([w for w in wires if type(w) is kind]))
    process = reliable.ReliableProcess(0, make(codec.mechanism.name, 0, tuple(range(4))), View(1, (0, 1, 2, 3)))
    with contextlib.suppress(RemoteError):
        process.receive(1, codec.decode_reliable(damage(data, codec.encode(wire))), 0)
    with pytest.raises(RemoteError):
        codec.decode_reliable(data.draw(st.binary(max_size=3)))


@pytest.fixture(scope="module")
def lossy_traffic() -> tuple[Wires, list[lossy.Wire]]:
    a, b = (lossy.LossyProcess(p, make("vector", p, (0, 1)), (0, 1), Random(p)) for p in (0, 1))
    wires: list[lossy.Wire] = []
    for n in range(4):
        wires += [o.wire for o in a.multicast(b"%d" % n, n) if isinstance(o, lossy.Send)]
    last = [o.wire for o in a.multicast(b"last", 5) if isinstance(o, lossy.Send)]
    wires += [o.wire for o in b.receive(0, last[0], 6) if isinstance(o, lossy.Send)]  # asks for those before
    wires += [o.wire for o in a.wake(10**9) if isinstance(o, lossy.Send)]
    wires += [o.wire for o in a.receive(7, lossy.AskState(), 7) if isinstance(o, lossy.Send)] + [lossy.AskState()]
    kinds = {lossy.Data, lossy.Digest, lossy.Ask, lossy.AskState, lossy.Snapshot}
    assert {type(wire) for wire in wires} == kinds
    return Wires(make("vector", 0, (0, 1))), wires


def test_the_words_over_lossy_links_survive_the_wire(lossy_traffic: tuple[Wires, list[lossy.Wire]]) -> None:
    codec, wires = lossy_traffic
    for wire in wires:
        assert codec.decode_lossy(codec.encode(wire)) == wire


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_words_over_lossy_links_are_words_or_a_named_error(
    lossy_traffic: tuple[Wires, list[lossy.Wire]], data: st.DataObject
) -> None:
    codec, wires = lossy_traffic
    founder = data.draw(st.booleans())
    process = lossy.LossyProcess(0, make("vector", 0, (0, 1)), (0, 1), Random(1), founder=founder)
    try:
        process.receive(1, codec.decode_lossy(damage(data, codec.encode(data.draw(st.sampled_from(wires))))), 0)
        process.wake(10**9)
    except RemoteError:
        pass


LINKS: list[LinkWire] = [
    Hello(1, 2, (0, 1), ((1, 0, 5), (2, 1, 7)), 1),
    Forward(1, 2, 1, 3, Global(1, 0, 6, b"body", 1)),
    Report(1, ((1, 0, 5),)),
]


@pytest.mark.parametrize("wire", LINKS, ids=lambda wire: type(wire).__name__)
@settings(max_examples=150)
@given(data=st.data())
def test_words_between_subgroups_survive_the_wire_and_damaged_ones_are_named(
    wire: LinkWire, data: st.DataObject
) -> None:
    assert decode_link(encode_link(wire)) == wire
    member = Interconnected(0, 0, make("vector", 0, (0,)), View(1, (0,)), (1,))
    member.start(0)
    member.receive_link(LINKS[0], 0)
    with contextlib.suppress(RemoteError):
        member.receive_link(decode_link(damage(data, encode_link(wire))), 0)


def test_links_refuse_what_no_server_says() -> None:
    for wrong in (
        Hello(1, 2, (), ()),
        Hello(1, 0, (0,), ()),
        Forward(1, 1, 1, 0, LINKS[1].message),  # type: ignore[union-attr]
        Report(1, ((1, 0, 1 << 62),)),
    ):
        with pytest.raises(BadFrame):
            decode_link(encode_link(wrong))
    with pytest.raises(TooLarge):
        decode_link(bytes(11), max_bytes=10)
    with pytest.raises(BadFrame, match="view"):
        codec = Wires(make("vector", 0, FOUNDERS))
        state = Process(0, make("vector", 0, FOUNDERS)).admit(1)
        codec.decode_reliable(codec.encode(reliable.Welcome(View(2, (1, 0)), state, ())))


@pytest.mark.parametrize("body", [b"", b"\x91", b"\x91\x01", b"\x92\x02\x05", b"\x94\x03\x09\x01\x01", b"\xff" * 20])
def test_a_member_that_multicasts_nonsense_stops_nobody(body: bytes) -> None:
    """All members refuse it alike, count it, and go on."""
    a, b = (Interconnected(0, p, make("vector", p, (0, 1)), View(1, (0, 1)), (1,), uniform=False) for p in (0, 1))
    for member in (a, b):
        member.start(0)

    def tell(outputs: list[object]) -> list[object]:
        return [o for out in outputs if isinstance(out, ToMember) for o in b.receive(0, out.wire, 0)]

    nonsense = [ToMember(s.to, s.wire) for s in a.local.multicast(body, 0) if isinstance(s, reliable.Send)]
    tell(list(nonsense))
    assert b.stats.refused == 1
    said = tell(a.multicast(b"and on", 0))
    assert [out.body for out in said if isinstance(out, Delivered)] == [b"and on"]
