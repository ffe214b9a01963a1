"""The core's clock and queue under an event queue: what the array engine has to equal, decision by decision."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from whence.clock.probabilistic import Keys, Pending, ProbabilisticClock, Stamp
from whence.scale.network import Run, key_sets, travel
from whence.scale.random import RECEIVER, bits

Decision = tuple[int, bool, bool, bool]


@dataclass(eq=False)
class Message:
    number: int
    keys: Keys
    stamp: Stamp
    past: frozenset[int]


@dataclass
class Process:
    keys: Keys
    receiver: int
    pending: Pending[Message]
    delivered: set[int] = field(default_factory=set)
    known: set[int] = field(default_factory=set)
    coming: set[int] = field(default_factory=set)
    log: list[Decision] = field(default_factory=list)
    overtaken: int = 0
    seen: int = 0
    life: int = 0

    def take(self, deliveries: list) -> None:
        for message, alerts in deliveries:
            m = message.number
            self.log.append((m, not message.past <= self.delivered, alerts.covered, alerts.witnessed))
            self.overtaken += m in self.known
            self.seen += m not in self.known and not message.past <= self.known
            self.delivered.add(m)
            self.known |= message.past | {m}


def reference(run: Run) -> list[Process]:
    """Run it all, message by message; sets instead of windows, the core's classes instead of arrays."""
    s, net = run.settings, run.net
    ways = net[1:]

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
            new.delivered, new.known = set(sponsor.delivered), set(sponsor.known)
            new.log, new.overtaken, new.seen, new.life = old.log, old.overtaken, old.seen, old.life + 1
            who[p] = new
            for x in sorted(sponsor.coming):
                new.coming.add(x)
                arrival = max(int(net.send[x]) + int(travel(x, p, new.receiver, *ways)), now)
                heapq.heappush(heap, (arrival, x, p, new.life))
            arrivals((now, m))
        sender = who[int(net.sender[m])]
        past = frozenset(sender.known)
        stamp, freed = sender.pending.send(sender.keys)
        messages.append(Message(m, sender.keys, stamp, past))
        sender.known.add(m)
        sender.delivered.add(m)
        sender.take(freed)
        for p, other in enumerate(who):
            if other is not sender:
                other.coming.add(m)
                heapq.heappush(heap, (now + int(travel(m, p, other.receiver, *ways)), m, p, other.life))
    return who
