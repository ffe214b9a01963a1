"""A tiny cluster of real members of PrCast in virtual time: a heap, loss, cut links, crashes. No codec, no order."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from whence.core.cast import (
    CastConfig,
    CastMessage,
    CastOutput,
    Dissemination,
    First,
    Item,
    MemberDown,
    MemberUp,
    News,
    make,
)
from whence.core.cast.messages import NEVER_WAKE
from whence.core.clock import Digest, MemberId, Send, member_id

ROUND = 1_000_000


def names(n: int, boot: int = 1) -> list[MemberId]:
    return [member_id(f"m{i}:1", boot) for i in range(n)]


class Cluster:
    """`latency` in nanoseconds, much below a round."""

    def __init__(self, config: CastConfig, seed: int, loss: float = 0.0, latency: int = 1) -> None:
        self.config = config
        self.rng = random.Random(seed)
        self.loss = loss
        self.latency = latency
        self.now = 0
        self.nodes: dict[MemberId, Dissemination] = {}
        self.first: dict[MemberId, list[tuple[Item, int]]] = {}
        """What each member handed up, with ages."""
        self.changes: dict[MemberId, list[MemberUp | MemberDown]] = {}
        self.cut: Callable[[MemberId, MemberId], bool] = lambda a, b: False
        self.digest: Digest | None = None
        self.heap: list[tuple[int, int, MemberId, MemberId, CastMessage]] = []
        self.count = 0

    def genesis(self, ids: list[MemberId]) -> None:
        for m in ids:
            self.start(m, [o for o in ids if o != m], genesis=True)

    def start(self, me: MemberId, contacts: list[MemberId], genesis: bool = False) -> Dissemination:
        node = make(me, self.config, random.Random(self.rng.getrandbits(64)))
        self.nodes[me] = node
        self.first[me] = []
        self.changes[me] = []
        self.carry_out(me, node.start(contacts, self.now, genesis))
        return node

    def crash(self, me: MemberId) -> None:
        del self.nodes[me]

    def leave(self, me: MemberId) -> None:
        self.carry_out(me, self.nodes[me].leave(self.now))
        del self.nodes[me]

    def broadcast(self, me: MemberId, item: Item) -> None:
        self.carry_out(me, self.nodes[me].broadcast(item, self.now))

    def carry_out(self, me: MemberId, outputs: list[CastOutput]) -> None:
        for o in outputs:
            if isinstance(o, Send):
                if self.rng.random() >= self.loss and not self.cut(me, o.to):
                    self.count += 1
                    heapq.heappush(self.heap, (self.now + self.latency, self.count, me, o.to, o.message))
            elif isinstance(o, First):
                self.first[me].append((o.item, o.age))
            elif isinstance(o, MemberUp | MemberDown):
                self.changes[me].append(o)

    def run(self, rounds: float) -> None:
        """Let time pass. Messages before rounds at the same instant, members in the order of their start."""
        end = self.now + int(rounds * self.config.round)
        while True:
            wake = min((n.wake_at for n in self.nodes.values()), default=NEVER_WAKE)
            at = max(self.now, min(wake, self.heap[0][0] if self.heap else NEVER_WAKE))
            if at > end:
                break
            self.now = at
            while self.heap and self.heap[0][0] <= at:
                _, _, sender, to, message = heapq.heappop(self.heap)
                if to in self.nodes:
                    self.carry_out(to, self.nodes[to].receive(sender, message, at))
            if wake <= at:
                for me, node in self.nodes.items():
                    if node.wake_at <= at:
                        self.carry_out(me, node.wake(at, self.digest))
        self.now = end

    def reached(self, item: Item) -> int:
        """How many members have handed the item up."""
        return sum(any(i.key == item.key for i, _ in got) for got in self.first.values())


def news(origin: MemberId, number: int = 1, body: bytes = b"") -> News:
    return News(origin, number, body)


def config(**fields: object) -> CastConfig:
    return CastConfig(**{"round": ROUND, **fields})  # type: ignore[arg-type]
