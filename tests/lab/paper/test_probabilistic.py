"""(N, R, K) clocks under the survey's protocol, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.core.survey.net import Net
from whence.core.clock.probabilistic import keys_of
from whence.core.order.survey.base import Codec, Mechanism, Process
from whence.errors import BadFrame
from whence.lab.paper.survey.probabilistic import KeyStamp, Probabilistic


def run(make: Callable[[int], Mechanism], seed: int, n: int = 4) -> Net:
    net = Net(make, n, Random(seed))
    net.run(80)
    net.settle()
    return net


def test_probabilistic_clocks_fit_under_the_protocol() -> None:
    """With an entry of its own for each process (N, N, 1) it is the vector clock; with shared entries it may err."""
    for seed in range(5):
        net = run(lambda me: Probabilistic(me, 4, (me,)), seed)
        assert net.truth.inversions == []
        net.all_delivered()
    wrong = [run(lambda me: Probabilistic(me, 3, keys_of(Random(me), 3, 1)), seed, n=8) for seed in range(20)]
    assert any(net.truth.inversions for net in wrong)
    for net in wrong:
        net.all_delivered()


def test_a_joiner_goes_on_from_a_snapshot_that_crossed_the_wire() -> None:
    net = run(lambda me: Probabilistic(me, 4, (me,)), 1)
    codec = Codec(net.processes[0].mechanism)
    joiner = Process(7, Probabilistic(7, 4, (0,)))
    joiner.install(codec.decode_state(codec.encode(net.processes[0].admit(7))), net.now)
    assert all(joiner.receive(message, net.now) == [] for message in net.sent)  # all of it is behind the joiner


def test_a_stamp_of_another_size_is_refused() -> None:
    with pytest.raises(BadFrame, match="entries"):
        Probabilistic(0, 100, (0, 1)).check(KeyStamp((0,), (1, 2)))
