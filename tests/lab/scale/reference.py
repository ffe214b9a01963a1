"""The core's clock and queue under an event queue: what the array engine has to equal, decision by decision."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whence.core.clock.probabilistic import Keys, Pending, ProbabilisticClock, Stamp
from whence.lab.scale.jit import kernel
from whence.lab.scale.network import Prepared, key_sets, travel
from whence.lab.scale.random import RECEIVER, bits

Decision = tuple[int, bool, bool, bool]


@dataclass(eq=False)
class Message:
    number: int
    keys: Keys
    stamp: Stamp
    past: int
    """A set of messages, bit by bit: message `x` is bit `x`. No window, it grows with the run."""


@dataclass
class Process:
    keys: Keys
    receiver: int
    pending: Pending[Message]
    delivered: int = 0
    known: int = 0
    coming: set[int] = field(default_factory=set)
    log: list[Decision] = field(default_factory=list)
    overtaken: int = 0
    seen: int = 0
    life: int = 0

    def take(self, deliveries: list) -> None:
        for message, alerts in deliveries:
            m = message.number
            self.log.append((m, message.past & ~self.delivered != 0, alerts.covered, alerts.witnessed))
            known = self.known >> m & 1
            self.overtaken += known
            self.seen += not known and message.past & ~self.known != 0
            self.delivered |= 1 << m
            self.known |= message.past | 1 << m


@kernel
def arrivals_of(m: int, receivers: Any, send: Any, ways: Any) -> Any:
    """When message `m` arrives at each process."""
    sender, apart, key1, key2, base, city, skew, lost, retry = ways
    times = np.empty(len(receivers), np.int64)
    for p in range(len(receivers)):
        way = travel(m, p, receivers[p], sender, apart, key1, key2, base, city, skew, lost, retry)
        times[p] = send[m] + way
    return times


def reference(run: Prepared) -> list[Process]:
    """Run it all, message by message; sets instead of windows, the core's classes instead of arrays."""
    s, net = run.settings, run.net
    ways = tuple(net[1:])
    receivers = run.receiver.copy()

    def process(keys: Keys, receiver: int) -> Process:
        return Process(keys, receiver, Pending(ProbabilisticClock(s.entries, s.listed)))

    who = [process(tuple(map(int, run.keys[p])), run.receiver[p]) for p in range(s.processes)]
    messages: list[Message] = []
    heap: list[tuple[int, int, int, int]] = []
    changes = 0

    def arrivals(until: tuple[int, int]) -> None:
        while heap and heap[0][:2] < until:
            _, m, p, life = heapq.heappop(heap)
            if who[p].life == life:
                who[p].coming.discard(m)
                who[p].take(who[p].pending.receive(messages[m]))

    for m in range(len(net.send)):
        now = int(net.send[m])
        arrivals((now, m))
        if (p := int(run.replaced[m])) >= 0:
            name = s.processes + changes
            changes += 1
            old, sponsor = who[p], who[int(run.sponsor[m])]
            new = process(tuple(map(int, key_sets(s, [name])[0])), bits(s.seed, RECEIVER, [name]).astype("uint32")[0])
            new.pending.clock.V = list(sponsor.pending.clock.V)
            new.pending.clock.L.extend(sponsor.pending.clock.L)
            for waiting in sponsor.pending.messages():
                assert new.pending.receive(waiting) == []
            new.delivered, new.known = sponsor.delivered, sponsor.known
            receivers[p] = new.receiver
            new.log, new.overtaken, new.seen, new.life = old.log, old.overtaken, old.seen, old.life + 1
            who[p] = new
            for x in sorted(sponsor.coming):
                new.coming.add(x)
                arrival = max(int(net.send[x]) + int(travel(x, p, new.receiver, *ways)), now)
                heapq.heappush(heap, (arrival, x, p, new.life))
            arrivals((now, m))
        sender = who[int(net.sender[m])]
        past = sender.known
        stamp, freed = sender.pending.clock.stamp(sender.keys), sender.pending.retry()
        messages.append(Message(m, sender.keys, stamp, past))
        sender.known |= 1 << m
        sender.delivered |= 1 << m
        sender.take(freed)
        times = arrivals_of(m, receivers, net.send, ways).tolist()
        for p, other in enumerate(who):
            if other is not sender:
                other.coming.add(m)
                heapq.heappush(heap, (times[p], m, p, other.life))
    return who
