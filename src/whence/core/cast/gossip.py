"""ETTB gossip (CCC11 section 6, after Koldehofe): PrCast of the papers, and its eager variant.

An item's **age** is the number of hops from its origin, which has it at age 0. A member forwards an item while `age <
termination` and adds one before it sends, so items arrive with ages from 1 to `termination`.

`rounds`, as in the papers: an item is sent in every round while it is young enough, and grows older by one each time.

`eager` departs from the papers: an item is pushed when it is created, and forwarded once, when it is first received.
Rounds carry only the digest and membership; a peer that misses something pulls it (the order layer does). If all others
are within the fanout, nobody forwards: the origin's push reaches everybody.
"""

from __future__ import annotations

import random
from collections import deque

from whence.core.cast.config import CastConfig
from whence.core.cast.dissemination import Dissemination
from whence.core.cast.messages import NEVER_WAKE, CastOutput, CastStats, First, Gossip, Heads, Item, Vet
from whence.core.cast.views import View, pick
from whence.core.clock import Digest, MemberId


class AgeBuffer:
    """Items to be forwarded, by age. A round ages all of them at once without touching any."""

    def __init__(self, config: CastConfig, stats: CastStats) -> None:
        self._config = config
        self._stats = stats
        self._limit = config.buffer_items
        self._by_age: deque[list[Item]] = deque([] for _ in range(config.termination))
        self._bytes: deque[int] = deque([0] * config.termination)
        self.count = 0
        self.bytes = 0

    def add(self, item: Item, age: int) -> None:
        """Hold an item younger than `termination`. When the buffer is full, the oldest item is dropped."""
        size = item.size
        self._by_age[age].append(item)
        self._bytes[age] += size
        self.count += 1
        self.bytes += size
        while self.count > self._limit or (self.bytes > self._config.buffer_bytes and self.count > 1):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        age = max(a for a, items in enumerate(self._by_age) if items)
        size = self._by_age[age].pop(0).size
        self._bytes[age] -= size
        self.count -= 1
        self.bytes -= size
        self._stats.overflow += 1

    def round(self, rng: random.Random) -> tuple[tuple[Item, ...], tuple[int, ...]]:
        """The content of this round's message: youngest first, ages one higher. Then everything is one round older, and
        what has reached `termination` is gone."""
        items: list[Item] = []
        ages: list[int] = []
        if self.count:
            size = 0
            for age, held in enumerate(self._by_age, 1):
                whole = len(items) + len(held) <= self._config.max_events
                if whole and size + self._bytes[age - 1] <= self._config.max_bytes:
                    fitting = held
                    size += self._bytes[age - 1]
                else:
                    fitting, size = self._fit(held, len(items), size, rng)
                items += fitting
                ages += [age] * len(fitting)
            self.count -= len(self._by_age[-1])
            self.bytes -= self._bytes[-1]
        self._by_age.pop()
        self._by_age.appendleft([])
        self._bytes.pop()
        self._bytes.appendleft(0)
        return tuple(items), tuple(ages)

    def _fit(self, held: list[Item], count: int, size: int, rng: random.Random) -> tuple[list[Item], int]:
        """A random part of the items of one age: if all members chose the same part, the rest would never spread."""
        fitting: list[Item] = []
        for item in rng.sample(held, len(held)):
            total = count + len(fitting)
            if total < self._config.max_events and (total == 0 or size + item.size <= self._config.max_bytes):
                fitting.append(item)
                size += item.size
        self._stats.truncated += len(held) - len(fitting)
        return fitting, size


class EttbGossip(Dissemination):
    """PrCast by random pushes: in rounds, or eagerly."""

    def __init__(
        self, me: MemberId, config: CastConfig, view: View, rng: random.Random, vet: Vet | None = None
    ) -> None:
        super().__init__(me, config, view, rng, vet)
        self._eager = config.mode == "eager"
        self._buffer = AgeBuffer(config, self.stats)

    def broadcast(self, item: Item, now: int) -> list[CastOutput]:
        out: list[CastOutput] = []
        if self.wake_at == NEVER_WAKE or not self._remember(item.key, self.me):
            return out
        if not self._eager:
            self._buffer.add(item, 0)
            return out
        targets = pick(self.view.pool, self.config.fanout, self.rng)
        self._send(targets, Gossip((item,), (1,)), out)
        self.stats.unsent += not targets
        return out

    def wake(self, now: int, digest: Digest | Heads | None) -> list[CastOutput]:
        out: list[CastOutput] = []
        if now >= self.round_at:
            self._round(now, digest, out)
            self.wake_at = self.round_at
        return out

    # Its parts

    def _round_items(self) -> tuple[tuple[Item, ...], tuple[int, ...]]:
        return self._buffer.round(self.rng)

    def _first(self, sender: MemberId, fresh: list[tuple[Item, int]], now: int, out: list[CastOutput]) -> None:
        forward: list[tuple[Item, int]] = []
        for item, age in fresh:
            if not self._remember(item.key, sender):  # twice in one message
                continue
            self.stats.firsts += 1
            out.append(First(item, sender, age))
            if age < self.config.termination:
                forward.append((item, age))
        if not self._eager:
            for item, age in forward:
                self._buffer.add(item, age)
        elif forward and len(self.view.born) > self.config.fanout:
            # One more than needed, minus the sender: uniform among the others.
            targets = pick(self.view.pool, self.config.fanout + 1, self.rng)
            targets = [t for t in targets if t != sender][: self.config.fanout]
            self._send(targets, Gossip(tuple(i for i, _ in forward), tuple(a + 1 for _, a in forward)), out)
