"""A network and processes for the council: disks, lost and copied messages, any delay, processes that stand still.

Not a test. Messages of a pair may overtake each other, which streams forbid: the council must not depend on it. Beside
the invariants of every ring, `CouncilWorld` checks that no number has two councils.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.core.ring.world import ROUND, Make, Proc, Violation, World
from whence.core.clock import MemberId, address_of, boot_of, member_id
from whence.core.ring import CouncilRing, RingConfig, State
from whence.core.ring.context import Memory
from whence.core.ring.council import quorum
from whence.core.ring.messages import RingMessage, Voter

Hook = Callable[[MemberId, MemberId, RingMessage], float | None]


def settings(tickets: int = 8, k: int = 3, delta: float = 0.25) -> RingConfig:
    return RingConfig(tickets=tickets, k=k, round_ns=ROUND, delta_ns=int(delta * ROUND))


class CouncilWorld(World):
    """Processes have names; a crash ends a life, and `start` begins the next one, with its disk if it has one."""

    def __init__(
        self, config: RingConfig, seed: int = 0, make: Make = CouncilRing, extreme: bool = False, delay: float = 0.08
    ) -> None:
        super().__init__(config, seed, make=make)
        self.extreme, self.usual = extreme, delay
        self.lives: dict[str, MemberId] = {}
        self.boots: dict[str, int] = {}
        self.has_disk: dict[str, bool] = {}
        self.willing: dict[str, bool] = {}
        self.wants: dict[str, bool] = {}
        self.disks: dict[str, Memory] = {}
        self.paused: dict[str, int] = {}
        self.sides: dict[str, int] = {}
        self.loss = self.dup = self.jitter = 0.0
        self.hook: Hook | None = None
        """A test's own delay in rounds (None: as usual, negative: lost)."""
        self.councils: dict[int, tuple[Voter, ...]] = {}
        self.keep_log = False

    # --- processes ---

    def enter(self, name: str, disk: bool = False, willing: bool = True, wants: bool = True) -> None:
        self.has_disk[name], self.willing[name], self.wants[name] = disk, willing, wants
        self.boots[name] = 0
        self.start(name)

    def start(self, name: str) -> None:
        if name in self.lives:
            return
        self.boots[name] += 1
        me = member_id(name, self.boots[name])
        memory = self.disks.get(name)
        dice = random.Random(self.rng.getrandbits(64))
        ring = self.make(me, self.config, dice, memory, self.has_disk[name])
        assert isinstance(ring, CouncilRing)
        if not self.willing[name]:
            ring.abstain()
        rate = 1 + (self.rng.choice([-0.01, 0.01]) if self.extreme else self.rng.uniform(-0.01, 0.01))
        self.procs[me] = Proc(ring, rate, self.rng.randrange(10 * ROUND))
        self.lives[name] = me
        self.introduce(me)
        self.act(me, lambda ring, now: ring.start(now))
        if self.wants[name]:
            self.coordinate(me)

    def kill(self, name: str, back: float | None = None) -> None:
        me = self.lives.pop(name, None)
        if me is None:
            return
        if self.has_disk[name]:
            self.disks[name] = self.ring(me).memory()
        self.crash(me)
        if back is not None:
            self.at(self.now + int(back * ROUND), self.start, name)

    def found_by(self, name: str) -> None:
        """The council begins at once: what a founder does when its quarantine is over."""
        me = self.lives[name]
        self.found(me)
        self.run(4, lambda: self.ring(me).state is State.OWNER)

    def want(self, name: str) -> None:
        self.wants[name] = True
        if name in self.lives:
            self.coordinate(self.lives[name])

    def drop(self, name: str) -> None:
        if self.now < self.paused.get(name, 0):
            return  # else it would do so when it goes on, whatever it was told since
        self.wants[name] = False
        if name in self.lives:
            self.resign(self.lives[name])

    def stand_still(self, name: str, rounds: float) -> None:
        self.paused[name] = self.now + int(rounds * ROUND)

    # --- faults ---

    def good(self, a: MemberId, b: MemberId) -> bool:
        x, y = address_of(a), address_of(b)
        return (x, y) not in self.cut and self.sides.get(x, 0) == self.sides.get(y, 0)

    def heal(self) -> None:
        super().heal()
        self.sides, self.paused = {}, {}
        self.loss = self.dup = self.jitter = 0.0

    # --- steps ---

    def act(self, member: MemberId, what: Callable[[Any, int], list[Any]]) -> None:
        until = self.paused.get(address_of(member), 0)
        if self.now < until:
            self.at(until, self.act, member, what)
            return
        super().act(member, what)
        if member in self.procs:
            known = self.ring(member).councils.now
            if known.number and self.councils.setdefault(known.number, known.voters) != known.voters:
                raise Violation(f"C8: council {known.number} is {self.councils[known.number]} and {known.voters}")

    def _wake(self, member: MemberId, wake: int) -> None:
        proc = self.procs.get(member)
        if proc is not None and proc.wake_at == wake:
            proc.wake_at = None
            self.introduce(member)
            self.act(member, lambda ring, now: ring.wake(now))

    def _post(self, a: MemberId, b: MemberId, message: RingMessage) -> None:
        if not self.good(a, b) or self.rng.random() < self.loss:
            return
        given = self.hook(a, b, message) if self.hook is not None else None
        if given is not None:
            if given >= 0:
                self.at(self.now + int(given * ROUND), self._deliver, a, b, message)
            return
        for _ in range(2 if self.rng.random() < self.dup else 1):
            delay = self.rng.uniform(0.05, 1) * self.usual
            if (address_of(a), address_of(b)) in self.slow or self.rng.random() < self.jitter:
                delay = self.rng.uniform(0.1, 3 * self.config.lease_ns / ROUND)
            self.at(self.now + int(delay * ROUND), self._deliver, a, b, message)

    def _deliver(self, a: MemberId, b: MemberId, message: RingMessage) -> None:
        to = self.lives.get(address_of(b)) if boot_of(b) == 0 else b
        if to in self.procs:
            self.act(to, lambda ring, now: ring.receive(a, message, now))

    # --- looking ---

    def named(self, name: str) -> Any:
        return self.ring(self.lives[name])

    def owner_names(self) -> list[str]:
        return [address_of(m) for m in self.owners()]

    def everybody(self) -> bool:
        """Everybody who wants a ticket has one, or there are no more."""
        own = set(self.owner_names())
        want = [name for name in self.lives if self.wants[name]]
        return bool(want) and sum(name in own for name in want) >= min(len(want), self.config.tickets)

    def newest(self) -> tuple[Voter, ...]:
        return self.councils[max(self.councils)]

    def hope(self) -> bool:
        """The newest council can still act: a quorum of it is there and knows, or can find out, how it begins."""
        there = {ring.councils.me.member: ring for ring in self.rings.values() if isinstance(ring, CouncilRing)}
        for number in sorted(self.councils, reverse=True):
            voters = self.councils[number]
            if not quorum(voters, there):
                return False
            books = [there[v.member].voting.book for v in voters if v.member in there]
            if any(book is not None and book.number >= number for book in books):
                return True
        return False


def names(count: int) -> list[str]:
    return [f"p{i}" for i in range(count)]


def form(
    seed: int,
    publishers: int,
    readers: int = 0,
    disks: bool | Iterable[str] = False,
    k: int = 3,
    make: Make = CouncilRing,
) -> CouncilWorld:
    """A ring that stands: everybody who wants to publish can, and the council is as large as it can be."""
    w = CouncilWorld(settings(k=k), seed, make)
    everybody = names(publishers + readers)
    for i, name in enumerate(everybody):
        w.enter(name, disks if isinstance(disks, bool) else name in disks, wants=False)
        if i == 0:
            w.found_by(name)
    for name in everybody[:publishers]:
        w.want(name)
    full = min(len(everybody), w.config.window)

    def stands() -> bool:
        top = max(w.councils)
        agreed = all(ring.councils.now.number == top for ring in w.rings.values())  # type: ignore[attr-defined]
        return w.everybody() and len(w.councils[top]) == full and agreed

    w.run(40, stands)
    assert w.everybody(), f"not formed: {w.states()} {w.councils}"
    w.run(w.rng.uniform(1, 4))
    return w
