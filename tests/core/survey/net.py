"""Processes of the SURVEY's mechanisms over links that reorder and duplicate, and the oracle that judges them.

The oracle knows nothing of stamps: the past of a message is the set of all that its sender had delivered or multicast
before, with their pasts. A delivery is an inversion if something of that past which is due here has not been delivered
here yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from whence.core.order.survey.base import Id, Mechanism, Message, Process
from whence.core.order.survey.config import MECHANISMS, SurveyConfig
from whence.core.order.survey.registry import make

MS = 1_000_000
FOREVER = 10**15


class Truth:
    """Happened-before by sets."""

    def __init__(self) -> None:
        self.past: dict[Id, frozenset[Id]] = {}
        self.known: dict[int, set[Id]] = {}
        self.log: dict[int, list[Id]] = {}
        self.since: dict[int, set[Id]] = {}
        self.here: dict[int, set[Id]] = {}
        self.inversions: list[tuple[int, Id, list[Id]]] = []

    def add(self, process: int, snapshot_of: int | None = None) -> None:
        """A process takes part, with what another one has delivered, or from nothing."""
        if snapshot_of is None:
            self.start(process, set(), set())
        else:
            self.start(process, set(self.here[snapshot_of]), set(self.known[snapshot_of]))

    def start(self, process: int, delivered: set[Id], known: set[Id]) -> None:
        """A process takes part with these behind it."""
        self.since[process], self.here[process], self.known[process] = delivered, set(delivered), known
        self.log[process] = []

    def multicast(self, message: Message) -> None:
        self.past[message.id] = frozenset(self.known[message.sender])
        self.known[message.sender].add(message.id)

    def deliver(self, process: int, message: Message) -> None:
        here = self.here[process]
        assert message.id not in here, f"{process} delivers {message.id} twice"
        if early := self.past[message.id] - here:
            self.inversions.append((process, message.id, sorted(early)))
        self.log[process].append(message.id)
        here.add(message.id)
        self.known[process] |= self.past[message.id] | {message.id}

    def never_out_of_order(self) -> None:
        """For orders that may lose: nothing is delivered after something that follows it."""
        for process, log in self.log.items():
            after: set[Id] = set()
            for name in log:
                assert name not in after, f"{process} delivers {name} after something that follows it"
                after |= self.past[name]


class Net:
    """Processes, and messages under way: any of them may come next, and some come twice."""

    def __init__(self, make: Callable[[int], Mechanism], n: int, rng: Random) -> None:
        self.rng = rng
        self.make = make
        self.now = 0
        self.processes = {p: Process(p, make(p)) for p in range(n)}
        self.truth = Truth()
        for p in self.processes:
            self.truth.add(p)
        self.under_way: list[tuple[int, Message]] = []
        self.sent: list[Message] = []

    def multicast(self, sender: int) -> Message:
        message, delivered = self.processes[sender].multicast(b"%d" % len(self.sent), self.now)
        self.truth.multicast(message)
        self.sent.append(message)
        self.deliver(sender, delivered)
        self.under_way += [(p, message) for p in self.processes if p != sender]
        return message

    def arrive(self, at: int, duplicate: bool = False) -> None:
        to, message = self.under_way[at] if duplicate else self.under_way.pop(at)
        if to in self.processes:
            self.deliver(to, self.processes[to].receive(message, self.now))

    def deliver(self, process: int, messages: list[Message]) -> None:
        for message in messages:
            self.truth.deliver(process, message)

    def wake(self) -> None:
        for p, process in self.processes.items():
            self.deliver(p, process.drain(self.now))

    def settle(self) -> None:
        """All that is under way arrives, and time passes."""
        while self.under_way:
            self.arrive(self.rng.randrange(len(self.under_way)), duplicate=self.rng.random() < 0.2)
        self.now += FOREVER
        self.wake()

    def run(self, steps: int) -> None:
        """A random schedule."""
        for _ in range(steps):
            self.now += self.rng.randrange(MS)
            what = self.rng.random()
            if what < 0.3 or not self.under_way:
                self.multicast(self.rng.choice(sorted(self.processes)))
            else:
                self.arrive(self.rng.randrange(len(self.under_way)), duplicate=what > 0.9)
            self.wake()

    def all_delivered(self) -> None:
        for p in self.processes:
            assert sorted(set(self.truth.log[p]) | self.truth.since[p]) == sorted(m.id for m in self.sent)


def mechanisms(n: int) -> dict[str, Callable[[int], Mechanism]]:
    """Every mechanism, for a group that begins with `n` processes; with time bounds that are never reached too
    early."""
    config = SurveyConfig(skew=0, delay=FOREVER // 2, lifetime=FOREVER // 2)
    return {name: partial(make, name, founders=range(n), config=config) for name in MECHANISMS}
