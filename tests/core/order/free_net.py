"""A few order layers of a cluster without tickets, joined by a network that does what a test says. The true past of
every event is kept in sets of names, apart from any clock."""

from __future__ import annotations

import random

from whence.core.clock import FreeFrame, MemberId, Send
from whence.core.order.config import OrderConfig
from whence.core.order.contract import Contract
from whence.core.order.layer import OrderContext
from whence.core.order.outputs import Deliver, Dropped, GaveUp, Moved, OrderOutput, Published
from whence.core.order.probabilistic import ProbabilisticOrdering

MS = 1_000_000
TERMINATE, RECOVER = 100 * MS, 200 * MS
PATIENCE = TERMINATE + RECOVER


class Process:
    """One member's order layer, what its application saw, and what came before what."""

    def __init__(self, net: FreeNet, index: int, order: str, contract: Contract) -> None:
        self.net = net
        self.id: MemberId = f"p{index}#1"
        config = OrderConfig(
            order=order,  # type: ignore[arg-type]
            tickets=1,
            time_to_terminate_ns=TERMINATE,
            time_to_recover_ns=RECOVER,
            buffer=1000,
            hold=1000,
            abandon_ns=10**12,
            memory_ns=10**12,
            contract=contract,
        )
        others = [f"p{i}#1" for i in range(net.count) if i != index]
        dice = random.Random(index + 1000 * net.seed)
        self.ordering = ProbabilisticOrdering(OrderContext(self.id, config, dice, lambda: others, lambda k: others[:k]))
        if net.exact:
            self.ordering.draw = lambda R, K: (index,)
        self.log: list[str] = []
        self.alerts: dict[str, int] = {}
        self.knows: set[str] = set()
        self.outputs: list[OrderOutput] = []

    def begin(self) -> None:
        self.take(self.ordering.begin(self.net.now))

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
                    self.alerts[name] = o.alert
                    self.knows |= self.net.past.setdefault(name, frozenset()) | {name}
        return new

    def publish(self, events: int = 1) -> FreeFrame:
        frame, out = self.ordering.publish([b"x"] * events, self.net.now)
        assert isinstance(out[0], Published)
        self.take(out)
        return frame

    def receive(self, frame: FreeFrame) -> list[str]:
        frame.check()
        self.ordering.vet(frame, frame.owner)
        return self.take(self.ordering.receive(frame, frame.owner, 1, self.net.now))

    def wake(self) -> list[str]:
        out = self.ordering.wake(self.net.now)
        return self.take(out)

    def move(self, R: int, K: int) -> None:
        self.take(self.ordering.move(R, K, self.net.now))

    @property
    def V(self) -> list[int]:
        return self.ordering.queue.current.V

    def seen(self, kind: type) -> list[OrderOutput]:
        return [o for o in self.outputs if type(o) is kind]

    def inversions(self) -> list[str]:
        """Delivered after something that they precede."""
        past: set[str] = set()
        wrong = []
        for name in self.log:
            if name in past:
                wrong.append(name)
            past |= self.net.past[name]
        return wrong


class FreeNet:
    """`exact`: everybody has an entry of its own, as in a vector clock: R must be the number of members, K 1."""

    def __init__(
        self,
        count: int,
        R: int | None = None,
        K: int = 1,
        *,
        orders: list[str] | None = None,
        seed: int = 1,
        memory: int = 10_000,
    ) -> None:
        self.count = count
        self.seed = seed
        self.exact = R is None
        self.now = 0
        self.past: dict[str, frozenset[str]] = {}
        contract = Contract(entries=R or count, keys=K, memory=memory, move=False)
        self.members = [Process(self, i, orders[i] if orders else "probabilistic", contract) for i in range(count)]
        for member in self.members:
            member.begin()

    def __getitem__(self, i: int) -> Process:
        return self.members[i]

    def pass_time(self, ns: int) -> None:
        """Let it pass at everybody, wake by wake, and answer questions as long as there are any."""
        end = self.now + ns
        while True:
            due = [m for m in self.members if m.ordering.wake_at is not None and m.ordering.wake_at <= end]
            if not due:
                break
            first = min(due, key=lambda m: m.ordering.wake_at or 0)
            self.now = max(self.now, first.ordering.wake_at or 0)
            out = first.ordering.wake(self.now)
            first.take(out)
            self.answer(first, out)
        self.now = end

    def answer(self, asker: Process, out: list[OrderOutput]) -> None:
        for o in out:
            if isinstance(o, Send):
                peer = next(m for m in self.members if m.id == o.to)
                for answer in peer.ordering.on_recover(asker.id, o.message):  # type: ignore[arg-type]
                    assert isinstance(answer, Send)
                    asker.take(asker.ordering.on_ack_recover(peer.id, answer.message, self.now))  # type: ignore[arg-type]

    def digests(self) -> None:
        """Everybody hears everybody's."""
        for speaker in self.members:
            heads = speaker.ordering.digest()
            for hearer in self.members:
                if hearer is not speaker and heads:
                    hearer.ordering.heard(speaker.id, heads, self.now)


__all__ = ["MS", "PATIENCE", "Dropped", "FreeNet", "GaveUp", "Moved", "Process"]
