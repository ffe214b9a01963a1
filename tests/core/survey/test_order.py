"""Every mechanism of the SURVEY keeps causal order among at least three processes; every deliberately broken one does
not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.survey.net import FOREVER, Net, mechanisms
from whence.core.clock.interval import event, join, peek
from whence.core.order.survey.base import Mechanism, Message, Process, Stamp, control_bytes
from whence.core.order.survey.first import FirstGeneration, FirstStamp
from whence.core.order.survey.timed import DeltaCausal, Physical
from whence.core.order.survey.vector import (
    CompactMulticast,
    CompactUnicast,
    Identifiers,
    IdStamp,
    IntervalTree,
    VectorClock,
    VectorStamp,
    _before,
    shares,
)

NAMES = list(mechanisms(3))


def run(make: Callable[[int], Mechanism], seed: int, n: int = 4, steps: int = 80) -> Net:
    net = Net(make, n, Random(seed))
    net.run(steps)
    net.settle()
    return net


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), n=st.integers(3, 6))
def test_causal_order_and_nothing_lost_or_doubled(name: str, seed: int, n: int) -> None:
    net = run(mechanisms(n)[name], seed, n)
    assert net.truth.inversions == []
    net.all_delivered()
    assert not [p for p in net.processes.values() if p.waiting(net.now)]


# --- variants with one rule broken: the same test must see them


class NoHistory(FirstGeneration):
    """Carries nothing."""

    def stamp(self, seq: int, now: int) -> FirstStamp:
        super().stamp(seq, now)
        return FirstStamp()


class ForgetsCarried(FirstGeneration):
    """What came on the back of another message does not travel on."""

    def deliver(self, message: Message, now: int) -> list[Message]:
        before = list(self.previous)
        found = super().deliver(message, now)
        self.previous = deque(c for c in self.previous if c in before or (c.sender, c.seq) == message.id)
        return found


class OwnOnly(Identifiers):
    """Names only the own message before."""

    def stamp(self, seq: int, now: int) -> IdStamp:
        super().stamp(seq, now)
        return IdStamp(())


class DroppedMerge(VectorClock):
    """Does not count what others have sent (as Partisan's causal backend drops the merge of its order buffers)."""

    def stamp(self, seq: int, now: int) -> Stamp:
        return VectorStamp((*([0] * self.me), seq))


class ForgetsChanges(CompactMulticast):
    """Looks for changes since the last delivery instead of the last own multicast."""

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.last = dict(self.delivered)
        return super().deliver(message, now)


class NoLastUpdate(CompactUnicast):
    """`LU` is not set when a message is delivered."""

    def deliver(self, message: Message, now: int) -> list[Message]:
        return VectorClock.deliver(self, message, now)


class NoJoin(IntervalTree):
    """Delivered events are not joined into what is sent."""

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.delivered = join(self.delivered, peek(event(_before(message))))
        return [message]


class NoBound(Physical):
    """Delivers at once."""

    def __init__(self, me: int) -> None:
        super().__init__(me, skew=0, delay=0)

    def obsolete(self, message: Message, now: int) -> str | None:
        return self.delivered.reason(message)


class NoPast(DeltaCausal):
    """Stamps without the past."""

    def stamp(self, seq: int, now: int) -> Stamp:
        return msgspec.structs.replace(super().stamp(seq, now), past=())


@pytest.mark.parametrize(
    "make",
    [
        NoHistory,
        ForgetsCarried,
        OwnOnly,
        DroppedMerge,
        ForgetsChanges,
        lambda me: NoLastUpdate(me, (0, 1, 2, 3)),
        lambda me: NoJoin(me, shares([0, 1, 2, 3])[me]),
        NoBound,
        lambda me: NoPast(me, FOREVER // 2),
    ],
    ids=lambda make: getattr(make, "__name__", "lambda"),
)
def test_a_broken_rule_is_seen(make: Callable[[int], Mechanism]) -> None:
    assert any(run(make, seed).truth.inversions for seed in range(20))


# --- joining and leaving


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_joiners_start_from_a_snapshot(name: str, seed: int) -> None:
    """Processes join in the middle of everything, without a flush: each from one member's state, then all that
    follows."""
    net = Net(mechanisms(3)[name], 3, Random(seed))
    for joiner in (3, 4, 5):
        net.run(25)
        sponsor = net.rng.choice(sorted(net.processes))
        join_group(net, joiner, sponsor)
    net.run(40)
    net.settle()
    assert net.truth.inversions == []
    net.all_delivered()


def join_group(net: Net, joiner: int, sponsor: int) -> None:
    state = net.processes[sponsor].admit(joiner)
    net.truth.add(joiner, snapshot_of=sponsor)
    process = net.processes[joiner] = Process(joiner, net.make(joiner))
    for p, other in net.processes.items():
        if p != joiner:
            other.mechanism.join(joiner)
            process.mechanism.join(p)
    net.deliver(joiner, process.install(state, net.now))
    have = net.truth.since[joiner]
    net.under_way += [(joiner, m) for m in net.sent if m.id not in have]


@pytest.mark.parametrize("name", NAMES)
def test_a_process_leaves_after_a_flush(name: str) -> None:
    for seed in range(5):
        net = Net(mechanisms(4)[name], 4, Random(seed))
        net.multicast(2)
        net.run(40)
        net.settle()
        del net.processes[2]
        for p in sorted(net.processes):
            net.processes[p].leave(2)
        stale = next(m for m in net.sent if m.sender == 2)
        assert net.processes[1].receive(stale, net.now) == []
        assert net.processes[1].dropped["departed"] == 1
        net.run(40)
        net.settle()
        assert net.truth.inversions == []
        net.all_delivered()


# --- what each one pays, and what it does not do


def test_the_first_generation_never_blocks_over_fifo_links() -> None:
    for seed in range(10):
        net = Net(FirstGeneration, 4, Random(seed))
        for _ in range(100):
            if net.rng.random() < 0.3 or not net.under_way:
                net.multicast(net.rng.randrange(4))
                continue
            to, message = net.rng.choice(net.under_way)  # the first of its link goes first
            net.arrive(next(i for i, (t, m) in enumerate(net.under_way) if t == to and m.sender == message.sender))
        while net.under_way:
            net.arrive(0)
        assert sum(p.blocked for p in net.processes.values()) == 0
        assert net.truth.inversions == []
        net.all_delivered()


def test_with_all_that_is_unstable_nothing_blocks_over_any_links() -> None:
    for seed in range(10):
        net = run(lambda me: FirstGeneration(me, until_stable=True), seed)
        assert sum(p.blocked for p in net.processes.values()) == 0
    assert sum(p.blocked for p in run(FirstGeneration, 0).processes.values()) > 0  # Fig. 3 needs FIFO links


def test_a_bounded_first_generation_names_what_it_cannot_carry() -> None:
    """A process that listens for long carries at most so much, and its receivers wait for the rest: still causal."""
    for seed in range(10):
        net = run(lambda me: FirstGeneration(me, max_carried=2), seed)
        assert net.truth.inversions == []
        net.all_delivered()
        assert max(len(m.stamp.carried) for m in net.sent if isinstance(m.stamp, FirstStamp)) == 2
        assert any(m.stamp.after for m in net.sent if isinstance(m.stamp, FirstStamp))


@pytest.mark.parametrize("name", ["first", "identifiers"])
def test_what_everybody_has_is_not_told_again(name: str) -> None:
    net = Net(mechanisms(3)[name], 3, Random(0))
    net.multicast(0)
    net.multicast(1)
    net.settle()
    for process in net.processes.values():
        process.settle({0: 1, 1: 1})
    assert control_bytes(net.multicast(2).stamp) <= 4
    net.settle()
    assert net.truth.inversions == []


def test_a_full_buffer_drops_the_newcomer_and_counts_it() -> None:
    sender, receiver = Process(0, VectorClock(0)), Process(1, VectorClock(1), capacity=2)
    messages = [sender.multicast(b"", 0)[0] for _ in range(4)]
    for message in messages[1:]:
        assert receiver.receive(message, 0) == []
    assert receiver.dropped == {"overflow": 1}
    assert [m.seq for m in receiver.receive(messages[0], 0)] == [1, 2, 3]  # what can be delivered needs no room
    assert [m.seq for m in receiver.receive(messages[3], 0)] == [4]
