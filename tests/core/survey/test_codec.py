"""Messages of every mechanism survive the wire; what a hostile peer sends is a message or a named error."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.survey.net import Net
from whence.core.clock.interval import SEED, encode, peek
from whence.core.order.survey.base import Codec, Process
from whence.core.order.survey.config import MECHANISMS
from whence.core.order.survey.registry import make
from whence.core.order.survey.vector import IntervalStamp
from whence.errors import BadFrame, BadMessage, ConfigError, RemoteError, TooLarge

FOUNDERS = (0, 1, 2)


def traffic(name: str) -> Net:
    net = Net(lambda me: make(name, me, FOUNDERS), 3, Random(1))
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
    joiner = Process(7, make(name, 7, FOUNDERS))
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
        process.waiting(net.now)
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
        with pytest.raises(BadMessage):
            codec.decode(codec.encode(type(good)(1, seq, good.stamp, b"")))
    interval = make("interval", 0, FOUNDERS)
    with pytest.raises(BadFrame, match="share"):
        interval.check(IntervalStamp(encode(peek(SEED))))
    with pytest.raises(ConfigError, match="there are first"):
        make("nonsense", 0, FOUNDERS)
