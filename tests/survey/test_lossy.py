"""Every mechanism over links that lose, duplicate and reorder, with joiners: recovered, causal, complete."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import pytest

from tests.survey.net import MS, Truth
from whence.errors import UsageError
from whence.order.survey import Id, Mechanism, VectorClock
from whence.order.survey.lossy import Data, Deliver, Joined, LossyConfig, LossyProcess, Output, Send, Snapshot, Wire
from whence.order.survey.registry import MECHANISMS, SurveyConfig, make

FOUNDERS = (0, 1, 2, 3)
CONFIG = SurveyConfig(skew=0, delay=3_000 * MS, lifetime=3_000 * MS, R=8, K=2)
RECOVERY = LossyConfig(patience=30 * MS, digest_every=40 * MS)


class Lossy:
    """Processes in true time; every message is lost with a probability, or comes twice, after any time up to 50 ms."""

    def __init__(self, maker: Callable[[int], Mechanism], seed: int, loss: float) -> None:
        self.rng, self.loss, self.maker = Random(seed), loss, maker
        self.now, self.count = 0, 0
        self.queue: list[tuple[int, int, int, int, Wire | None]] = []
        self.truth = Truth()
        self.nodes: dict[int, LossyProcess] = {}
        self.sent: list[Id] = []
        self.snapshots: dict[bytes, tuple[set[Id], set[Id]]] = {}
        for p in FOUNDERS:
            self.truth.add(p)
            self.add(p, founder=True)

    def add(self, p: int, founder: bool = False) -> None:
        peers = FOUNDERS if founder else tuple(self.nodes)
        self.nodes[p] = LossyProcess(p, self.maker(p), peers, Random(p), RECOVERY, founder)
        for q, node in self.nodes.items():
            if not founder and q != p:
                node.join(p)
        self.at(self.now, p)

    def at(self, time: int, to: int, sender: int = -1, wire: Wire | None = None) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, to, sender, wire))

    def do(self, p: int, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(to, wire):
                    if isinstance(wire, Snapshot):  # the application's state is the set of what it has delivered
                        token = b"%d" % len(self.snapshots)
                        self.snapshots[token] = (set(self.truth.here[p]), set(self.truth.known[p]))
                        wire = Snapshot(wire.state, wire.received, token)
                    if isinstance(wire, Data) and wire.message.id not in self.truth.past:
                        self.truth.multicast(wire.message)
                        self.sent.append(wire.message.id)
                    while self.rng.random() >= self.loss:
                        self.at(self.now + self.rng.randrange(50 * MS), to, p, wire)
                        if self.rng.random() > 0.1:
                            break
                case Deliver(message):
                    self.truth.deliver(p, message)
                case Joined(_, token):
                    self.truth.start(p, *self.snapshots[token])
        self.at(max(self.nodes[p].wake_at, self.now + MS), p)

    def until(self, time: int) -> None:
        woken: dict[int, int] = {}
        while self.queue and self.queue[0][0] <= time:
            self.now, _, p, sender, wire = heapq.heappop(self.queue)
            if wire is not None:
                self.do(p, self.nodes[p].receive(sender, wire, self.now))
            elif woken.get(p) != self.now:
                woken[p] = self.now
                self.do(p, self.nodes[p].wake(self.now))
        self.now = time

    def run(self, multicasts: int, joiners: tuple[int, ...] = ()) -> None:
        for i in range(multicasts):
            self.until(self.now + self.rng.randrange(20 * MS))
            p = self.rng.choice([p for p, node in self.nodes.items() if node.joined])
            self.do(p, self.nodes[p].multicast(b"%d" % i, self.now))
            if i % 15 == 10 and joiners:
                self.add(joiners[0])
                joiners = joiners[1:]
        self.until(self.now + 6_000 * MS)

    def check(self) -> None:
        assert self.truth.inversions == []
        for p, node in self.nodes.items():
            assert node.joined and sorted(self.truth.here[p]) == sorted(self.sent)


EXACT = [name for name in MECHANISMS if name != "probabilistic"]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_lost_is_recovered_and_joiners_miss_nothing(name: str, seed: int) -> None:
    net = Lossy(lambda me: make(name, me, FOUNDERS, CONFIG), seed, loss=0.25)
    net.run(45, joiners=(4, 5))
    net.check()
    assert sum(node.stats.answered for node in net.nodes.values()) > 0


def test_probabilistic_clocks_lose_nothing_and_may_err() -> None:
    net = Lossy(lambda me: make("probabilistic", me, FOUNDERS, CONFIG), 1, loss=0.25)
    net.run(45)
    assert all(sorted(net.truth.here[p]) == sorted(net.sent) for p in net.nodes)


def test_the_last_message_is_recovered_though_nothing_follows_it() -> None:
    net = Lossy(VectorClock, 0, loss=1.0)
    net.do(0, net.nodes[0].multicast(b"last", 0))
    net.until(MS)
    assert [len(net.truth.log[p]) for p in FOUNDERS] == [1, 0, 0, 0]
    net.loss = 0.0
    net.until(2_000 * MS)
    net.check()


class Deaf(LossyProcess):
    """Does not ask."""

    def _ask(self, ranges, peer, now):  # type: ignore[no-untyped-def]
        return []


def test_without_recovery_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LossyProcess, "_ask", Deaf._ask)
    net = Lossy(VectorClock, 1, loss=0.25)
    net.run(30)
    with pytest.raises(AssertionError):
        net.check()


def test_a_joiner_without_state_cannot_multicast() -> None:
    with pytest.raises(UsageError, match="no state yet"):
        LossyProcess(9, VectorClock(9), [0], Random(0), founder=False).multicast(b"", 0)
