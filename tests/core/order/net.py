"""A small network of `TicketOrdering` objects alone: no gossip, no ring. Frames go to everybody with loss, duplication
and reordering; digests and recovery travel the same way. Happened-before is kept as sets of ids, independent of any
clock."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from whence.core.clock import Digest, Frame, Send
from whence.core.order import OrderConfig, OrderContext, TicketOrdering
from whence.core.order.messages import AckRecover, Recover
from whence.core.order.outputs import Deliver, Dropped, GaveUp, OrderOutput, Published

MS = 1_000_000


def config(order: str, tickets: int, **changes: object) -> OrderConfig:
    settings: dict[str, object] = {
        "order": order,
        "tickets": tickets,
        "time_to_terminate_ns": 30 * MS,
        "time_to_recover_ns": 100 * MS,
        "buffer": 4096,
        "hold": 1024,
        "abandon_ns": 3_000 * MS,
        "memory_ns": 100_000 * MS,
    }
    return OrderConfig(**{**settings, **changes})  # type: ignore[arg-type]


@dataclass
class Process:
    name: str
    ordering: TicketOrdering
    delivered: list[str] = field(default_factory=list)
    inversions: list[str] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    past: set[str] = field(default_factory=set)
    dropped: list[Dropped] = field(default_factory=list)
    gave_up: list[GaveUp] = field(default_factory=list)
    alive: bool = True


class Net:
    """Processes, a heap of what is under way, and the truth about happened-before."""

    def __init__(
        self, orders: list[str], tickets: int, seed: int, loss: float = 0.0, dup: float = 0.0, **changes: object
    ):
        self.rng = random.Random(seed)
        self.loss, self.dup = loss, dup
        self.now = 0
        self.heap: list[tuple[int, int, str, str, object]] = []
        self.count = 0
        self.processes: dict[str, Process] = {}
        self.past: dict[str, frozenset[str]] = {}
        for i, order in enumerate(orders):
            name = f"p{i}#1"
            ordering = TicketOrdering(
                OrderContext(
                    name,
                    config(order, tickets, **changes),
                    random.Random(f"{seed}/{i}"),
                    members=lambda me=name: self.others(me),
                    sample=lambda k, me=name: self.rng.sample(self.others(me), min(k, len(self.others(me)))),
                )
            )
            ordering.begin(0)
            self.processes[name] = Process(name, ordering)

    def __getitem__(self, i: int) -> Process:
        return self.processes[f"p{i}#1"]

    def others(self, me: str) -> list[str]:
        return [n for n, p in self.processes.items() if n != me and p.alive]

    def send(self, sender: str, to: str, message: object, delay: int | None = None) -> None:
        if delay is None and self.rng.random() < self.loss:
            return
        for _ in range(2 if self.rng.random() < self.dup else 1):
            self.count += 1
            at = self.now + (delay if delay is not None else self.rng.randint(1, 40) * MS)
            heapq.heappush(self.heap, (at, self.count, sender, to, message))

    def publish(self, i: int, ticket: int, inc: int, count: int = 1, to: list[int] | None = None) -> Frame:
        p = self[i]
        payloads = [b"x"] * count
        frame, out = p.ordering.publish(payloads, self.now, (ticket, inc))
        for e in frame.names():
            self.past[e] = frozenset(p.past)
        self.carry_out(p, out)
        for j, name in enumerate(self.processes):
            if name != p.name and (to is None or j in to):
                self.send(p.name, name, frame)
        return frame

    def carry_out(self, p: Process, out: list[OrderOutput]) -> None:
        for step in out:
            match step:
                case Send():
                    self.send(p.name, step.to, step.message)
                case Deliver():
                    ids = step.frame.names()
                    for e in ids:
                        if e in p.delivered:
                            p.repeats.append(e)
                        elif e in p.past:
                            p.inversions.append(e)
                        p.delivered.append(e)
                    for e in ids:
                        p.past.add(e)
                        p.past |= self.past[e]
                case Dropped():
                    p.dropped.append(step)
                case GaveUp():
                    p.gave_up.append(step)
                case Published():
                    pass

    def receive(self, sender: str, to: str, message: object) -> None:
        p = self.processes[to]
        if not p.alive:
            return
        if isinstance(message, Frame):
            self.carry_out(p, p.ordering.receive(message, sender, 1, self.now))
        elif isinstance(message, Digest):
            p.ordering.heard(sender, message, self.now)
        elif isinstance(message, Recover):
            self.carry_out(p, p.ordering.on_recover(sender, message))
        elif isinstance(message, AckRecover):
            self.carry_out(p, p.ordering.on_ack_recover(sender, message, self.now))

    def run(self, until: int, digests: int | None = 20 * MS) -> None:
        """Run to a time; each process sends its digest to one other every `digests` ns."""
        next_digest = self.now + (digests or 0)
        while True:
            wakes = [p.ordering.wake_at for p in self.processes.values() if p.alive and p.ordering.wake_at is not None]
            times = [w for w in wakes if w is not None] + ([self.heap[0][0]] if self.heap else [])
            if digests:
                times.append(next_digest)
            at = min(times, default=until)
            if at >= until:
                self.now = until
                return
            self.now = max(self.now, at)
            while self.heap and self.heap[0][0] <= self.now:
                _, _, sender, to, message = heapq.heappop(self.heap)
                self.receive(sender, to, message)
            for p in self.processes.values():
                due = p.ordering.wake_at
                if p.alive and due is not None and due <= self.now:
                    self.carry_out(p, p.ordering.wake(self.now))
            if digests and next_digest <= self.now:
                next_digest = self.now + digests
                for p in list(self.processes.values()):
                    digest = p.ordering.digest()
                    if p.alive and digest is not None and self.others(p.name):
                        self.send(p.name, self.rng.choice(self.others(p.name)), digest)
