"""SURVEY Table 1 with numbers: what each mechanism pays, against the number of processes and the rate of multicasts.

Measured on the pure machines over one network model: `LossyProcess` for the load (bytes of control information per
multicast, share and time of blocked deliveries, messages per multicast), `ReliableProcess` for a change of the
membership (messages, bytes, and how long nobody may multicast).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

import msgspec

from whence.order.survey import Id, SurveyConfig, control_bytes, make
from whence.order.survey import lossy as ly
from whence.order.survey import reliable as rl

MS = 1_000_000
_encode = msgspec.msgpack.Encoder().encode
W = TypeVar("W")


@dataclass(frozen=True)
class Load:
    """One point of the experiment."""

    order: str
    processes: int = 10
    rate: float = 5.0
    """Multicasts per second of each process."""
    loss: float = 0.0
    delay: tuple[float, float] = (10.0, 50.0)
    """Milliseconds, uniformly between these: links reorder."""
    body: int = 64
    """Bytes of the application in each multicast."""
    seconds: float = 5.0
    seed: int = 0


@dataclass(frozen=True)
class Paid:
    """What came of it."""

    load: Load
    multicasts: int
    control_bytes: float
    """Mean size of the control information of a multicast."""
    blocked: float
    """Share of the deliveries of others' messages that had to wait."""
    blocked_ms: float
    """Mean time that a delivery waited, over all of them."""
    messages: float
    """Messages of all kinds per multicast and receiver."""
    undelivered: int
    """Deliveries that did not happen (an order that may skip)."""


@dataclass(frozen=True)
class Changed:
    """The cost of a change of the membership."""

    order: str
    processes: int
    messages: int
    bytes: int
    pause_ms: float
    """From the first process that stops multicasting to the last that goes on."""
    state_bytes: int
    """Of the state that a joiner gets."""


class _Queue(Generic[W]):
    """What is under way, in true time."""

    def __init__(self) -> None:
        self.now = 0
        self._count = 0
        self._queue: list[tuple[int, int, int, int, W]] = []

    def put(self, time: int, to: int, sender: int, what: W) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, to, sender, what))

    def pop(self) -> tuple[int, int, W] | None:
        if not self._queue:
            return None
        self.now, _, to, sender, what = heapq.heappop(self._queue)
        return to, sender, what


def pay(load: Load) -> Paid:
    """Run one load."""
    return _Loaded(load).run()


class _Loaded:
    """A group under load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.links = Random(f"table1 links {load.seed}")
        self.who = Random(f"table1 load {load.seed}")
        slowest = int(load.delay[1] * MS)
        config = SurveyConfig(skew=0, delay=20 * slowest if load.loss else slowest, lifetime=20 * slowest)
        recovery = ly.LossyConfig(patience=2 * slowest, digest_every=4 * slowest)
        group = tuple(range(load.processes))
        self.nodes = [
            ly.LossyProcess(p, make(load.order, p, group, config), group, Random(f"{load.seed} {p}"), recovery)
            for p in group
        ]
        self.queue: _Queue[ly.Wire | str] = _Queue()
        self.woken: dict[int, int] = {}
        self.control: dict[Id, int] = {}
        self.messages = 0
        self.delivered = 0

    def run(self) -> Paid:
        load = self.load
        end = int(load.seconds * 1000 * MS)
        quiet = end + 40 * int(load.delay[1] * MS)
        for p in range(load.processes):
            self._next(p)
            self.queue.put(0, p, p, "wake")
        while (found := self.queue.pop()) is not None and self.queue.now <= quiet:
            to, sender, what = found
            now = self.queue.now
            if what == "multicast":
                if now < end:
                    self._do(to, self.nodes[to].multicast(bytes(load.body), now))
                    self._next(to)
            elif what == "wake":
                self._do(to, self.nodes[to].wake(now))
            else:
                assert not isinstance(what, str)
                self._do(to, self.nodes[to].receive(sender, what, now))
        stats = [node.process.stats for node in self.nodes]
        due = len(self.control) * load.processes
        others = max(1, len(self.control) * (load.processes - 1))
        return Paid(
            load,
            len(self.control),
            sum(self.control.values()) / max(1, len(self.control)),
            sum(s.blocked for s in stats) / others,
            sum(s.blocked_time for s in stats) / others / MS,
            self.messages / others,
            due - self.delivered,
        )

    def _next(self, p: int) -> None:
        self.queue.put(self.queue.now + int(self.who.expovariate(self.load.rate) * 1000 * MS) + 1, p, p, "multicast")

    def _do(self, p: int, outputs: list[ly.Output]) -> None:
        now = self.queue.now
        for output in outputs:
            if isinstance(output, ly.Deliver):
                self.delivered += 1
            elif isinstance(output, ly.Send):
                self.messages += 1
                if isinstance(output.wire, ly.Data) and output.wire.message.sender == p:
                    message = output.wire.message
                    self.control.setdefault(message.id, control_bytes(message.stamp))
                if self.links.random() >= self.load.loss:
                    delay = self.links.uniform(*self.load.delay)
                    self.queue.put(now + int(delay * MS), output.to, p, output.wire)
        wake = max(self.nodes[p].wake_at, now + MS)
        if not now < self.woken.get(p, 0) <= wake:
            self.woken[p] = wake
            self.queue.put(wake, p, p, "wake")


def change(order: str, processes: int, seed: int = 0, delay: tuple[float, float] = (10.0, 50.0)) -> Changed:
    """One process crashes and another one joins, in one change of the view, after everybody has multicast 5 times."""
    links = Random(f"table1 change {seed}")
    group = tuple(range(processes))
    view = rl.View(1, group)
    nodes = {p: rl.ReliableProcess(p, make(order, p, group), view) for p in group}
    queue: _Queue[rl.Wire] = _Queue()
    sent: list[rl.Wire] = []
    installed: list[int] = []

    def do(p: int, outputs: list[rl.Output]) -> None:
        for output in outputs:
            if isinstance(output, rl.Send):
                sent.append(output.wire)
                queue.put(queue.now + int(links.uniform(*delay) * MS), output.to, p, output.wire)
            elif isinstance(output, rl.Install):
                installed.append(queue.now)

    def settle() -> None:
        while (found := queue.pop()) is not None:
            to, sender, wire = found
            if to in nodes:
                do(to, nodes[to].receive(sender, wire, queue.now))

    for _ in range(5):
        for p in group:
            do(p, nodes[p].multicast(bytes(64), queue.now))
        settle()
    del nodes[processes - 1]
    nodes[processes] = rl.ReliableProcess(processes, make(order, processes, group), None)
    sent.clear()
    begun = queue.now
    new = rl.View(2, (*group[:-1], processes))
    for p in sorted(nodes):
        do(p, nodes[p].install_view(new, queue.now))
    settle()
    states = [len(_encode(wire.state)) for wire in sent if isinstance(wire, rl.Welcome)]
    pause = (max(installed) - begun) / MS
    return Changed(order, processes, len(sent), sum(len(_encode(wire)) for wire in sent), pause, states[0])
