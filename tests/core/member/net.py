"""A handful of real members joined by a perfect network, every message through the wire codec. For what a test wants to
do by hand: the simulator has the faults."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from whence.core import ports
from whence.core.clock import reaches
from whence.core.config import Config, Settings
from whence.core.member import Member
from whence.core.wire import decode, encode

MS = 1_000_000


@dataclass
class App:
    """An application that keeps what it was given."""

    member: Member
    events: list[str] = field(default_factory=list)
    outputs: list[ports.Output] = field(default_factory=list)
    installed: bytes | None = None

    def seen(self, kind: type) -> list[ports.Output]:
        return [o for o in self.outputs if type(o) is kind]


class MemberNet:
    def __init__(
        self,
        orders: list[str],
        tickets: int = 3,
        delay: int = 2 * MS,
        seed: int = 1,
        cluster: str = "main",
        **settings: object,
    ) -> None:
        self.now = 0
        self.delay = delay
        self.heap: list[tuple[int, int, str, ports.Input]] = []
        self.count = 0
        self.seed = seed
        self.tickets, self.cluster = tickets, cluster
        self.known = Settings(**{"members": len(orders), "loss": 0.0, "round_ns": 100 * MS, **settings})  # type: ignore[arg-type]
        self.apps: dict[str, App] = {}
        names = [f"m{i}#1" for i in range(len(orders))]
        for name, order in zip(names, orders, strict=True):
            self.add(name, order)
        for name in names:
            self.feed(name, ports.Start(tuple(n for n in names if n != name), genesis=True))

    def config(self, order: str) -> Config:
        return self.known.config(self.tickets, order, self.cluster)  # type: ignore[arg-type]

    def add(self, name: str, order: str, checkpoint: bytes | None = None) -> App:
        config = self.config(order)
        app = App(Member(name, config, random.Random(f"{self.seed}/{name}"), checkpoint))
        self.apps[name] = app
        return app

    def __getitem__(self, i: int) -> App:
        return self.apps[f"m{i}#1"]

    def feed(self, name: str, input: ports.Input) -> list[ports.Output]:
        app = self.apps[name]
        out = app.member.handle(input, self.now)
        app.outputs.extend(out)
        for o in out:
            match o:
                case ports.Send():
                    self.count += 1
                    message = decode(encode(o.message))
                    heapq.heappush(self.heap, (self.now + self.delay, self.count, o.to, ports.Received(name, message)))
                case ports.Deliver():
                    app.events.extend(o.frame.names())
                case ports.TakeSnapshot():
                    self.feed(name, ports.SnapshotTaken(o.token, "\n".join(app.events).encode()))
                case ports.InstallSnapshot():
                    app.installed = o.state
                    app.events = o.state.decode().split("\n") if o.state else []
        return out

    def run(self, ns: int) -> None:
        until = self.now + ns
        while True:
            wakes = [(a.member.wake_at, n) for n, a in self.apps.items() if a.member.wake_at is not None]
            wake = min(wakes, default=(until, ""))
            at = min(wake[0] or 0, self.heap[0][0] if self.heap else until)
            if at >= until:
                self.now = until
                return
            self.now = max(self.now, at)
            if self.heap and self.heap[0][0] <= self.now:
                _, _, to, input = heapq.heappop(self.heap)
                for name in [name for name in self.apps if reaches(to, name)]:
                    self.feed(name, input)
            else:
                self.feed(wake[1], ports.Wake())

    def coordinators(self, *who: int) -> None:
        """m0 founds the ring; these get tickets."""
        self.feed("m0#1", ports.FoundRing())
        for i in who:
            if i:
                self.feed(f"m{i}#1", ports.Coordinate())
        for _ in range(200):
            self.run(100 * MS)
            if all(self[i].member.may_publish for i in who):
                return
        raise AssertionError([self[i].member.ring.state for i in who])

    def publish(self, i: int, *payloads: bytes) -> None:
        assert any(isinstance(o, ports.Published) for o in self.feed(f"m{i}#1", ports.Publish(payloads or (b"x",))))
