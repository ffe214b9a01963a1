"""Mechanisms that depend on time: physical timestamps with their assumption kept and broken, and deadlines."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.survey.net import MS, Truth
from whence.core.order.survey.base import Mechanism, Message, Process
from whence.core.order.survey.timed import DeltaCausal, DeltaStamp, Physical, TimeStamp
from whence.errors import ConfigError

N = 4


class Timed:
    """Processes with clocks of their own, links with delays (and losses), in true time."""

    def __init__(self, make: Callable[[int], Mechanism], seed: int, delay: int, skew: int, loss: float = 0.0) -> None:
        self.rng = Random(seed)
        self.delay, self.loss = delay, loss
        self.offset = [self.rng.randint(0, skew) for _ in range(N)]
        self.processes = [Process(p, make(p)) for p in range(N)]
        self.truth = Truth()
        for p in range(N):
            self.truth.add(p)
        self.queue: list[tuple[int, int, int, Message | None]] = []
        self.sent: list[Message] = []
        self.now = 1000 * MS
        self.count = 0
        self.woken: dict[int, int] = {}

    def clock(self, p: int) -> int:
        return self.now + self.offset[p]

    def at(self, time: int, p: int, message: Message | None = None) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, p, message))

    def multicast(self, p: int) -> Message:
        message, delivered = self.processes[p].multicast(b"", self.clock(p))
        self.truth.multicast(message)
        self.sent.append(message)
        self.deliver(p, delivered)
        for q in range(N):
            if q != p and self.rng.random() >= self.loss:
                self.at(self.now + self.rng.randint(0, self.delay), q, message)
        return message

    def deliver(self, p: int, messages: list[Message]) -> None:
        for message in messages:
            self.truth.deliver(p, message)
        wake = self.processes[p].wake_at
        if wake is not None and wake != self.woken.get(p):
            self.woken[p] = wake
            self.at(max(wake - self.offset[p], self.now), p)

    def run(self, multicasts: int, every: int) -> None:
        for _ in range(multicasts):
            upto = self.now + self.rng.randrange(every)
            self.until(upto)
            self.multicast(self.rng.randrange(N))
        self.until(self.now + 100_000 * MS)

    def until(self, time: int) -> None:
        while self.queue and self.queue[0][0] <= time:
            self.now, _, p, message = heapq.heappop(self.queue)
            process = self.processes[p]
            if message is None:
                self.deliver(p, process.drain(self.clock(p)))
            else:
                self.deliver(p, process.receive(message, self.clock(p)))
        self.now = time

    def lost(self) -> int:
        return N * len(self.sent) - sum(map(len, self.truth.log.values()))

    def dropped(self, reason: str) -> int:
        return sum(p.dropped.get(reason, 0) for p in self.processes)


# --- physical timestamps


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_with_clocks_and_delays_within_bounds_all_is_delivered_in_one_order(seed: int) -> None:
    net = Timed(lambda me: Physical(me, 20 * MS, 100 * MS), seed, delay=100 * MS, skew=20 * MS)
    net.run(60, 20 * MS)
    assert net.truth.inversions == [] and net.lost() == 0
    others = [[m for m in net.truth.log[p] if m[0] > 1] for p in (0, 1)]
    assert others[0] == others[1]  # what neither of them sent: even in one total order


@pytest.mark.parametrize("delay,skew", [(300 * MS, 20 * MS), (100 * MS, 400 * MS)])
def test_a_broken_assumption_loses_and_says_so_but_does_not_invert(delay: int, skew: int) -> None:
    late = 0
    for seed in range(4):
        net = Timed(lambda me: Physical(me, 20 * MS, 100 * MS), seed, delay=delay, skew=skew)
        net.run(60, 20 * MS)
        net.truth.never_out_of_order()
        assert net.lost() == net.dropped("late")  # every loss was detected and counted
        late += net.dropped("late")
    assert late > 0


def test_a_clock_that_goes_back_inverts_nothing() -> None:
    """1 delivers a message and answers with its clock set back: by bare clocks the answer would be stamped before its
    cause."""
    first, second = Process(0, Physical(0, 0, 10)), Process(1, Physical(1, 0, 10))
    cause, _ = first.multicast(b"", 1000)
    assert second.receive(cause, 1005) == [] and second.wake_at == 1010
    assert second.drain(1010) == [cause]
    effect, _ = second.multicast(b"", 500)
    assert isinstance(cause.stamp, TimeStamp) and isinstance(effect.stamp, TimeStamp)
    assert effect.stamp.time >= cause.stamp.time


def test_nonsense_bounds_are_refused() -> None:
    with pytest.raises(ConfigError):
        Physical(0, -1, 0)
    with pytest.raises(ConfigError):
        DeltaCausal(0, 0)


# --- deadlines


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_what_arrives_in_time_is_delivered_in_time(seed: int) -> None:
    lifetime = 200 * MS
    net = Timed(lambda me: DeltaCausal(me, lifetime), seed, delay=100 * MS, skew=0, loss=0.2)
    net.run(60, 20 * MS)
    net.truth.never_out_of_order()
    for process in net.processes:
        assert not process.waiting(net.clock(process.me))  # nothing is waited for any more
        mechanism = process.mechanism
        assert isinstance(mechanism, DeltaCausal)
        # Losses are the links', not the order's: what came in was delivered.
        assert process.dropped == {}


def test_no_loss_and_deadlines_that_suffice_lose_nothing() -> None:
    for seed in range(5):
        net = Timed(lambda me: DeltaCausal(me, 101 * MS), seed, delay=100 * MS, skew=0)
        net.run(60, 20 * MS)
        assert net.truth.inversions == [] and net.lost() == 0


@pytest.mark.parametrize("skew", [0, 300 * MS])
def test_what_comes_past_its_deadline_is_discarded_and_counted(skew: int) -> None:
    expired = 0
    for seed in range(5):
        net = Timed(lambda me: DeltaCausal(me, 60 * MS), seed, delay=100 * MS, skew=skew)
        net.run(60, 20 * MS)
        net.truth.never_out_of_order()  # clocks decide what is lost, never what is inverted
        assert net.lost() == net.dropped("expired") + net.dropped("late")
        expired += net.dropped("expired")
    assert expired > 0


def test_a_message_waits_for_its_past_until_that_expires_and_no_longer() -> None:
    a, b, c = (Process(p, DeltaCausal(p, 100)) for p in range(3))
    lost, _ = a.multicast(b"lost", 10)
    b.receive(lost, 20)
    effect, _ = b.multicast(b"effect", 50)
    assert effect.stamp == DeltaStamp(50, ((0, 1, 10),))
    assert c.receive(effect, 60) == []
    assert c.wake_at == 111 and c.drain(110) == []
    assert c.drain(111) == [effect]  # before the deadline of the effect itself, 150
    assert c.receive(lost, 112) == [] and c.dropped == {"late": 1}


class Impatient(DeltaCausal):
    """Gives up what it waits for without remembering that: delivers it when it comes."""

    def deliver(self, message: Message, now: int) -> list[Message]:
        upto = dict(self.delivered.upto)
        super().deliver(message, now)
        self.delivered.skipped.clear()
        self.delivered.upto = {**upto, message.sender: message.seq}
        return [message]


def test_a_skip_that_is_forgotten_is_seen() -> None:
    wrong = 0
    for seed in range(20):
        net = Timed(lambda me: Impatient(me, 60 * MS), seed, delay=59 * MS, skew=300 * MS)
        net.run(60, 20 * MS)
        wrong += len(net.truth.inversions)
    assert wrong > 0
