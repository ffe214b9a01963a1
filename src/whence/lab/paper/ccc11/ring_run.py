"""Drives the rings of members in virtual time, without gossip and sockets: for schedules that choose every delay."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any

from whence.core.clock import MemberId, Send, address_of, member_id
from whence.core.ring import Ring, RingConfig, State
from whence.core.ring.context import Announce, BecameOwner, Excluded, Lost, Released, RingOutput
from whence.core.ring.neighbours import TolerantRing
from whence.lab.paper.ccc11.basic import BasicRing
from whence.lab.paper.ccc11.published import DELAY, DELTA, PRCAST, ROUND, RingStep
from whence.lab.sim.invariants import violations

NS = 1_000_000
"""Nanoseconds in a round."""


class RingDriver:
    """RingDriver, links and time; the invariants are checked after every step (`violations`)."""

    def __init__(self, tickets: int, seed: int, make: type[Any] = TolerantRing, slow: bool = False) -> None:
        self.config = RingConfig(tickets=tickets, k=1, round_ns=NS, delta_ns=int(DELTA / ROUND * NS), drift=0.0)
        self.make = make
        self.rng = random.Random(f"{seed}/rings")
        self.slow = slow
        """Delays are random, up to half a round, instead of all alike."""
        self.now = 0.0
        self.rings: dict[MemberId, Any] = {}
        self.cut: set[tuple[str, str]] = set()  # looked up, never iterated
        self.steps: list[RingStep] = []
        self.violations: list[str] = []
        self.count = 0
        """Steps done."""
        self._from: float | None = None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._last: dict[tuple[MemberId, MemberId], float] = {}

    def add(self, name: str) -> MemberId:
        me = member_id(name, 1)
        self.rings[me] = self.make(me, self.config, random.Random(self.rng.getrandbits(64)))
        return me

    def settle(self, owners: dict[str, int]) -> None:
        """Found the ring with the first, and let the others join behind each other with these tickets."""
        first, *others = owners
        self.act(self.add(first), lambda ring, now: ring.found(now, 1))
        self.run(self.now + 8 * ROUND)
        before = first
        for name in others:
            self.ask(name, before, owners[name])
            self.run(self.now + 8 * ROUND)
            before = name
        self.run(self.now + 4 * ROUND)
        have = {address_of(m): r.ticket for m, r in self.rings.items()}
        assert have == owners and not self.violations, (have, self.violations)

    def ask(self, name: str, parent: str, ticket: int) -> None:
        """A new process asks this coordinator for this ticket, and goes on asking."""
        me = self.add(name)
        ring = self.rings[me]
        ring.contacts([member_id(parent, 1)])
        ring.applicant.choose = lambda: (member_id(parent, 1), ticket)
        self.act(me, lambda ring, now: ring.coordinate(now))

    def watch(self, begin: float) -> None:
        """Record steps from here on, in rounds since."""
        self._from = begin
        self.steps = [
            RingStep(0.0, "own", address_of(m), "", str(r.ticket), -1)
            for m, r in self.rings.items()
            if r.state is State.OWNER
        ]

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self._queue, (when, self.count, act))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until

    def act(self, me: MemberId, what: Callable[[Ring, int], list[RingOutput]]) -> None:
        """One step of one ring."""
        ring = self.rings[me]
        for output in what(ring, int(self.now * NS)):
            self._carry_out(me, output)
        if ring.wake_at is not None:
            wake = ring.wake_at
            self.at(max(self.now, wake / NS), lambda: self._wake(me, wake))
        self.violations += violations({m: r for m, r in self.rings.items() if r.ctx.holder is not None})

    def _wake(self, me: MemberId, wake: int) -> None:
        if self.rings[me].wake_at == wake:
            self.act(me, lambda ring, now: ring.wake(max(now, wake)))

    def _carry_out(self, me: MemberId, output: RingOutput) -> None:
        match output:
            case Send(to, message):
                self._post(me, to, message)
            case Announce(news):
                for other in self.rings:
                    if other != me:
                        self.at(
                            self.now + PRCAST,
                            lambda to=other: self.act(to, lambda ring, now: ring.hear(news, now)),  # type: ignore[misc]
                        )
            case BecameOwner(ticket, _):
                self._note("own", me, "", str(ticket))
            case Lost(_, _, reason):
                self._note("out", me, "", reason)
            case Released():
                self._note("out", me, "", "released")
            case Excluded():
                self._note("exclude", me, "", str(output.tickets))

    def _post(self, a: MemberId, b: MemberId, message: Any) -> None:
        lost = (address_of(a), address_of(b)) in self.cut or b not in self.rings
        delay = self.rng.uniform(0, 0.5 * ROUND) if self.slow else DELAY
        arrives = max(self.now + delay, self._last.get((a, b), 0.0) + 1e-9)  # FIFO for each pair
        self._note("send", a, b, type(message).__name__, -1.0 if lost else arrives)
        if not lost:
            self._last[a, b] = arrives
            self.at(arrives, lambda: self.act(b, lambda ring, now: ring.receive(a, message, now)))

    def _note(self, kind: str, who: MemberId, to: str, what: str, arrives: float = -1.0) -> None:
        if self._from is not None:
            since = arrives - self._from if arrives >= 0 else -1.0
            self.steps.append(
                RingStep(self.now - self._from, kind, address_of(who), address_of(to) if to else "", what, since)
            )


def random_basic(seeds: Iterable[int]) -> tuple[list[str], int]:
    """The fault-free protocol with our rules: random joins and leaves, random delays. Violations, and steps done."""
    found: list[str] = []
    steps = 0
    for seed in seeds:
        rings = RingDriver(8, seed, BasicRing, slow=True)
        rng = random.Random(f"{seed}/walk")
        names = [rings.add(f"m{i}") for i in range(6)]
        rings.act(names[0], lambda ring, now: ring.found(now, 1))
        rings.run(6 * ROUND)
        for _ in range(30):
            me = rng.choice(names[1:])
            ring = rings.rings[me]
            ring.contacts(rng.sample([n for n in names if n != me], 3))
            if ring.state is State.OUT:
                rings.act(me, lambda ring, now: ring.coordinate(now))
            elif ring.state is State.OWNER:
                rings.act(me, lambda ring, now: ring.resign(now))
            rings.run(rings.now + rng.uniform(0, ROUND))
        found += rings.violations
        steps += rings.count
    return found, steps
