"""Stamps of every mechanism survive the wire; what a hostile peer sends is a stamp or a named error."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.survey.net import Net
from whence.core.clock.event import encode
from whence.core.clock.interval import SEED, peek
from whence.core.clock.interval import encode as encode_tree
from whence.core.order.survey.base import Codec, Process
from whence.core.order.survey.config import MECHANISMS
from whence.core.order.survey.registry import make
from whence.core.order.survey.vector import IntervalStamp
from whence.errors import BadFrame, BadMessage, ConfigError

FOUNDERS = (0, 1, 2)


def traffic(name: str) -> Net:
    net = Net(lambda me: make(name, me, FOUNDERS), 3, Random(1))
    net.run(40)
    net.settle()
    return net


@pytest.mark.parametrize("name", MECHANISMS)
def test_stamps_and_states_survive_the_wire(name: str) -> None:
    net = traffic(name)
    codec = Codec(net.processes[0].mechanism)
    for message in net.sent:
        assert codec.stamp(encode(message.stamp)) == message.stamp
    state = net.processes[0].admit(7)
    assert codec.state(encode(state)) == state
    joiner = Process(7, make(name, 7, FOUNDERS))
    joiner.install(codec.state(encode(state)), net.now)
    assert all(joiner.receive(message, net.now) == [] for message in net.sent)  # all of it is behind the joiner


def test_each_kind_of_nonsense_has_its_error() -> None:
    vector = make("vector", 0, FOUNDERS)
    codec = Codec(vector)
    other = Process(1, make("compact-multicast", 1, FOUNDERS)).multicast(b"x", 0)[0]
    with pytest.raises(BadMessage, match="vector"):
        codec.stamp(encode(other.stamp))  # another mechanism's
    with pytest.raises(BadMessage):
        codec.stamp(b"")
    with pytest.raises(BadMessage):
        codec.state(b"\x91\x05")
    interval = make("interval", 0, FOUNDERS)
    with pytest.raises(BadFrame, match="share"):
        interval.check(IntervalStamp(encode_tree(peek(SEED))))
    with pytest.raises(ConfigError, match="there are first"):
        make("nonsense", 0, FOUNDERS)
