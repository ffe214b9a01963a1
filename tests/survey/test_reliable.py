"""P1-P4 over views: senders crash in the middle of a multicast, others join, and all who stay agree."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.survey.group import Group, joins
from tests.survey.net import mechanisms
from whence.errors import UsageError
from whence.order.survey import Mechanism, VectorClock
from whence.order.survey.reliable import (
    Deliver,
    Flush,
    Output,
    ReliableProcess,
    Send,
    View,
    Wire,
)

NAMES = ["first", "first-unstable", "identifiers", "vector", "compact-multicast", "compact-unicast", "interval"]


def run(
    make: Callable[[int], Mechanism], seed: int, uniform: bool = False, crashes: int = 2, kind: type = ReliableProcess
) -> Group:
    rng = Random(seed)
    group = Group(make, 5, rng, uniform, kind)
    when = sorted(rng.sample(range(20, 160), crashes))
    for at in range(180):
        if at in when:
            group.crash(rng.choice(sorted(group.live)))
        if rng.random() < 0.25 or not group.under_way:
            group.multicast(rng.choice(sorted(group.live)))
        else:
            group.step()
    group.settle()
    return group


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_all_who_stay_agree(name: str, uniform: bool, seed: int) -> None:
    group = run(mechanisms(5)[name], seed, uniform)
    group.check()
    if uniform:
        for p in group.crashed:
            assert group.truth.here[p] <= group.truth.here[min(group.live)]


def test_without_uniform_delivery_a_crashed_process_may_have_seen_more() -> None:
    more = 0
    for seed in range(40):
        group = run(VectorClock, seed)
        more += any(not group.truth.here[p] <= group.truth.here[min(group.live)] for p in group.crashed)
    assert more > 0


class NoRetransmission(ReliableProcess):
    """Flushes without the messages."""

    def _tell(self, view: View, wire: Wire) -> list[Output]:
        return super()._tell(view, Flush(wire.view, wire.stateful, ()) if isinstance(wire, Flush) else wire)


class NoReady(ReliableProcess):
    """Uniform delivery when the message is here, as if all had it."""

    def _by_all(self, table: dict[int, dict[int, int]], sender: int) -> int:
        return table.get(self.me, {}).get(sender, 0)


def test_a_broken_rule_is_seen() -> None:
    wrong = 0
    for seed in range(40):
        try:
            run(VectorClock, seed, kind=NoRetransmission).check()
        except AssertionError:
            wrong += 1
    assert wrong > 0
    more = 0
    for seed in range(40):
        group = run(VectorClock, seed, uniform=True, kind=NoReady)
        more += any(not group.truth.here[p] <= group.truth.here[min(group.live)] for p in group.crashed)
    assert more > 0


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
@example(seed=7033)  # one joins, multicasts and crashes in views that another never installs
@example(seed=20071)  # a joiner hears of messages of a process that was gone before it came
def test_processes_join_while_others_crash(name: str, uniform: bool, seed: int) -> None:
    group = joins(name, seed, uniform)
    group.check()
    reference = group.truth.here[min(group.live)]
    assert not uniform or all(group.truth.here.get(p, set()) <= reference for p in group.crashed)


def test_views_far_ahead_are_refused() -> None:
    process = ReliableProcess(0, VectorClock(0), View(1, (0, 1)))
    for number in (2, 2, 3, 10**9):
        process.receive(1, Flush(number, True, ()), 0)
    assert sorted(process.early) == [2, 3] and len(process.early[2]) == 1
    assert process.stats.refused == 1


def test_a_message_that_only_one_survivor_got_reaches_all() -> None:
    a, b, c = (ReliableProcess(p, VectorClock(p), View(1, (0, 1, 2))) for p in range(3))
    (data, *_), *_ = [[o.wire for o in a.multicast(b"x", 0) if isinstance(o, Send) and o.to == 1]]
    assert [o for o in b.receive(0, data, 0) if isinstance(o, Deliver)]
    view = View(2, (1, 2))  # 0 crashed before its message left for 2
    flush = {p.me: [o.wire for o in p.install_view(view, 0) if isinstance(o, Send)] for p in (b, c)}
    assert flush == {1: [Flush(2, True, (data,))], 2: [Flush(2, True, ())]}
    out = c.receive(1, flush[1][0], 0)
    assert [o.message.body for o in out if isinstance(o, Deliver)] == [b"x"]


def test_misuse_is_named() -> None:
    alone = ReliableProcess(0, VectorClock(0), View(3, (0, 1)), window=1)
    alone.multicast(b"", 0)
    alone.multicast(b"", 0)  # waits
    with pytest.raises(UsageError, match="wait"):
        alone.multicast(b"", 0)
    with pytest.raises(UsageError, match="does not follow"):
        alone.install_view(View(3, (0,)), 0)
