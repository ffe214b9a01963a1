"""A small adversarial network in virtual time that drives rings: random delays, FIFO per pair, cut and slow links,
partitions, crashes, drift.

Not a test. `World` checks the invariants of docs/ring.md after every single step and raises `Violation` with the log.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from whence.core.clock import MemberId, Send, member_id
from whence.core.ring import Ring, RingConfig, State
from whence.core.ring import context as says
from whence.core.ring.messages import CLeave, RingMessage
from whence.core.ring.neighbours import TolerantRing
from whence.lab.sim.invariants import Watch, violations

ROUND = 1_000_000
DELTA = 80_000


Make = Callable[..., Ring]


class Violation(AssertionError):
    """An invariant was broken."""


class Proc:
    """One life of one process: a ring and a clock that drifts."""

    def __init__(self, ring: Ring, rate: float, offset: int) -> None:
        self.ring = ring
        self.rate = rate
        self.offset = offset
        self.wake_at: int | None = None
        self.seq = 0

    def local(self, now: int) -> int:
        return int(now * self.rate) + self.offset

    def true(self, local: int) -> int:
        return max(0, int((local - self.offset) / self.rate) + 1)


class World:
    """Processes, links and time. Everything random comes from `seed`."""

    def __init__(
        self,
        config: RingConfig,
        seed: int = 0,
        drift: float = 0.01,
        make: Make = TolerantRing,
        news_loss: float = 0.0,
        publish: bool = True,
    ) -> None:
        self.config = config
        self.make = make
        self.rng = random.Random(seed)
        self.drift = drift
        self.now = 0
        self.procs: dict[MemberId, Proc] = {}
        self.cut: dict[tuple[MemberId, MemberId], None] = {}
        self.slow: dict[tuple[MemberId, MemberId], None] = {}
        self.side: dict[MemberId, int] = {}
        self.delay: Callable[[MemberId, MemberId, RingMessage], int | None] | None = None
        """A test's own delay for a message (None: as usual, negative: lost)."""
        self.news_loss = news_loss
        self.news_delay = ROUND // 2
        self.publish = publish
        self.watch = Watch()
        self.log: list[str] = []
        self.counts: dict[str, int] = {}
        self.outputs: list[tuple[int, MemberId, says.RingOutput]] = []
        self.ids: dict[tuple[int, int, int], MemberId] = {}
        self.keep_log = True
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._last: dict[tuple[MemberId, MemberId], int] = {}

    # --- building ---

    def add(self, name: str, boot: int = 1, rate: float | None = None, offset: int | None = None) -> MemberId:
        me = member_id(name, boot)
        ring = self.make(me, self.config, random.Random(self.rng.getrandbits(64)))
        rate = 1 + self.rng.uniform(-self.drift, self.drift) if rate is None else rate
        offset = self.rng.randrange(10 * ROUND) if offset is None else offset
        self.procs[me] = Proc(ring, rate, offset)
        return me

    def ring(self, member: MemberId) -> Any:
        return self.procs[member].ring

    @property
    def rings(self) -> dict[MemberId, Ring]:
        return {member: proc.ring for member, proc in self.procs.items()}

    def found(self, member: MemberId, epoch: int = 1) -> None:
        self.act(member, lambda ring, now: ring.found(now, epoch))

    def coordinate(self, member: MemberId) -> None:
        self.introduce(member)
        self.act(member, lambda ring, now: ring.coordinate(now))

    def introduce(self, member: MemberId) -> None:
        others = [m for m in self.procs if m != member]
        self.ring(member).contacts(self.rng.sample(others, min(3, len(others))))

    def resign(self, member: MemberId) -> None:
        self.act(member, lambda ring, now: ring.resign(now))

    def crash(self, member: MemberId) -> None:
        self.note(f"{member} CRASH ticket {self.ring(member).ticket}")
        del self.procs[member]

    # --- faults ---

    def good(self, a: MemberId, b: MemberId) -> bool:
        return (a, b) not in self.cut and self.side.get(a, 0) == self.side.get(b, 0)

    def heal(self) -> None:
        self.note("HEAL")
        self.cut.clear()
        self.slow.clear()
        self.side.clear()

    # --- time ---

    def at(self, when: int, what: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, what, args))

    def run(self, rounds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; stops early when `until` holds, and says whether it did."""
        end = self.now + int(rounds * ROUND)
        while self._queue and self._queue[0][0] <= end:
            self.now, _, what, args = heapq.heappop(self._queue)
            what(*args)
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    # --- steps ---

    def act(self, member: MemberId, what: Callable[[Any, int], list[says.RingOutput]]) -> None:
        proc = self.procs.get(member)
        if proc is None:
            return
        outputs = what(proc.ring, proc.local(self.now))
        for output in outputs:
            self._carry_out(member, proc, output)
        if self.publish and proc.ring.entitled and self.rng.random() < 0.1:
            self._publish(member, proc)
        wake = proc.ring.wake_at
        if wake is not None and wake != proc.wake_at:
            proc.wake_at = wake
            self.at(proc.true(wake), self._wake, member, wake)
        seated = {m: p.ring for m, p in self.procs.items() if p.ring.ctx.holder is not None}  # who can be wrong
        nows = {m: self.procs[m].local(self.now) for m in seated}
        found = self.watch.step(member, outputs, seated) + violations(seated, nows)
        if found:
            raise Violation(f"at {self.now / ROUND:.3f}: {found}\n" + "\n".join(self.log[-60:]))

    def _wake(self, member: MemberId, wake: int) -> None:
        proc = self.procs.get(member)
        if proc is not None and proc.wake_at == wake:
            proc.wake_at = None
            if proc.ring.state in (State.JOINING, State.FOUNDING):
                self.introduce(member)
            self.act(member, lambda ring, now: ring.wake(now))

    def _publish(self, member: MemberId, proc: Proc) -> None:
        holder = proc.ring.ctx.holder
        assert holder is not None
        proc.seq += 1
        key = (holder.ticket, holder.inc, proc.seq)
        if key in self.ids:
            raise Violation(f"I5: event {key} published by {self.ids[key]} and {member}")
        self.ids[key] = member
        proc.ring.published(proc.seq)

    def _carry_out(self, member: MemberId, proc: Proc, output: says.RingOutput) -> None:
        match output:
            case Send(to, message):
                self._post(member, to, message)
                return
            case says.Announce(news):
                for other in self.procs:
                    if other != member and self.good(member, other) and self.rng.random() >= self.news_loss:
                        when = self.now + self.rng.randrange(1, self.news_delay)
                        self.at(when, self.act, other, lambda ring, now, news=news: ring.hear(news, now))
            case says.Granted() | says.BecameOwner():
                proc.seq = 0
            case says.Lost() | says.Released() | says.Excluded() | says.Rejected() | says.Frozen() | says.Thawed():
                pass
        self.outputs.append((self.now, member, output))
        name = type(output).__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        self.note(f"{member} {output}")

    def _post(self, a: MemberId, b: MemberId, message: RingMessage) -> None:
        self.counts["sent"] = self.counts.get("sent", 0) + 1
        if not self.good(a, b):
            return
        delay = self.delay(a, b, message) if self.delay is not None else None
        if delay is None:
            delay = int(self.rng.uniform(0.05, 0.9) * DELTA)
            if (a, b) in self.slow:
                delay = int(self.rng.uniform(1.2 * DELTA, 3 * ROUND))
        if delay < 0:
            return
        when = max(self.now + delay, self._last.get((a, b), 0) + 1)  # FIFO per pair
        self._last[a, b] = when
        self.at(when, self._deliver, a, b, message)

    def _deliver(self, a: MemberId, b: MemberId, message: RingMessage) -> None:
        if b not in self.procs or (not self.good(a, b) and self.rng.random() < 0.5):
            return  # the process died, or the stream broke under way
        if self.keep_log and isinstance(message, CLeave):
            self.note(f"{a} -> {b} CLEAVE {message.nonce}")
        self.act(b, lambda ring, now: ring.receive(a, message, now))

    def note(self, text: str) -> None:
        if self.keep_log:
            self.log.append(f"{self.now / ROUND:9.3f} {text}")

    # --- looking ---

    def owners(self) -> list[MemberId]:
        return [m for m, p in self.procs.items() if p.ring.state is State.OWNER and p.ring.owns_at(p.local(self.now))]

    def states(self) -> dict[MemberId, State]:
        return {m: p.ring.state for m, p in self.procs.items()}

    def said(self, kind: type, member: MemberId | None = None) -> list[Any]:
        return [o for _, m, o in self.outputs if isinstance(o, kind) and (member is None or m == member)]

    def settle(self, members: Iterable[MemberId], rounds: float = 200) -> None:
        """Let these, and nobody else, become owners one after another."""
        for m in members:
            self.coordinate(m)
            assert self.run(rounds, lambda m=m: self.ring(m).state is State.OWNER), f"{m} {self.ring(m).state}"
        self.run(3)


def config(tickets: int, k: int = 1, **other: Any) -> RingConfig:
    return RingConfig(tickets=tickets, k=k, round_ns=ROUND, delta_ns=DELTA, **other)


def without(part: str, replacement: type, make: Make = TolerantRing) -> Make:
    """Rings of which one part (a path such as `ctx.table`; empty: the ring itself) behaves as another class says."""

    def build(*args: Any) -> Ring:
        ring = make(*args)
        attrgetter(part)(ring).__class__ = replacement
        return ring

    return build
