"""Real members with replicated objects on top, joined by a network that loses, delays and reorders datagrams."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from tests.core.member.net import MS, App, MemberNet
from whence.core import ports
from whence.core.clock import Frame, boot_of
from whence.core.member import Member
from whence.core.wire import decode, encode
from whence.live.objects import Objects, events_of


@dataclass
class Holder(App):
    """An application that keeps replicated objects."""

    objects: Objects = field(default_factory=Objects)
    frames: list[Frame] = field(default_factory=list)


class ObjectsNet(MemberNet):
    """`loss`: of datagrams. `jitter`: they take up to this many times longer, so they overtake each other; streams keep
    their order."""

    def __init__(
        self, orders: list[str], loss: float = 0.0, jitter: int = 1, seed: int = 1, **settings: object
    ) -> None:
        self.loss = 0.0  # until the ring stands
        self.jitter = jitter
        self.weather = random.Random(f"{seed}/weather")
        super().__init__(orders, seed=seed, **{"loss": loss, **settings})  # type: ignore[arg-type]
        self.coordinators(*range(min(len(orders), self.tickets)))
        self.run(
            2000 * MS
        )  # a ring that has just been formed does not survive the loss of a coordinator (docs/ring.md)
        self.loss = loss

    def add(self, name: str, order: str, checkpoint: bytes | None = None) -> Holder:
        config = self.config(order)
        member = Member(name, config, random.Random(f"{self.seed}/{name}"), checkpoint)
        holder = Holder(member, objects=Objects(name))
        self.apps[name] = holder
        return holder

    def holder(self, name: str) -> Holder:
        app = self.apps[name]
        assert isinstance(app, Holder)
        return app

    def __getitem__(self, i: int) -> Holder:
        """The present life of member i."""
        return self.holder(self.name(i))

    def name(self, i: int) -> str:
        return max((n for n in self.apps if n.startswith(f"m{i}#")), key=boot_of)

    def holders(self) -> list[Holder]:
        return [self.holder(n) for n in self.apps]

    def feed(self, name: str, input: ports.Input) -> list[ports.Output]:
        holder = self.holder(name)
        out = holder.member.handle(input, self.now)
        holder.outputs.extend(o for o in out if not isinstance(o, ports.Send | ports.Arrived))
        for o in out:
            match o:
                case ports.Send():
                    self._send(name, o)
                case ports.Deliver():
                    holder.frames.append(o.frame)
                    for event in events_of(o.frame, o.over_gap):
                        holder.objects.apply(event)
                case ports.TakeSnapshot():
                    self.feed(name, ports.SnapshotTaken(o.token, holder.objects.state()))
                case ports.InstallSnapshot():
                    holder.installed = o.state
                    holder.objects.restore(o.state)
        return out

    def _send(self, name: str, o: ports.Send) -> None:
        self.count += 1
        delay = self.delay
        if not o.reliable:
            if self.weather.random() < self.loss:
                return
            delay = self.weather.randint(self.delay // 2, self.delay * self.jitter)
        message = ports.Received(name, decode(encode(o.message)))
        heapq.heappush(self.heap, (self.now + delay, self.count, o.to, message))

    def post(self, i: int, *payloads: bytes) -> bool:
        """Publish operations, if the member has a ticket now."""
        return any(isinstance(o, ports.Published) for o in self.feed(self.name(i), ports.Publish(payloads)))

    def join(self, i: int, order: str) -> Holder:
        """A newcomer: it gets a snapshot from whoever it asks first."""
        contacts = tuple(self.apps)
        holder = self.add(f"m{i}#1", order)
        self.feed(f"m{i}#1", ports.Start(contacts))
        return holder

    def restart(self, i: int) -> Holder:
        """Dead without a word, and back from a disk that holds the checkpoint and the objects."""
        old, name = self[i], self.name(i)
        checkpoint, state = old.member.checkpoint(), old.objects.state()
        del self.apps[name]
        contacts = tuple(self.apps)
        holder = self.add(f"m{i}#{boot_of(name) + 1}", old.member.order, checkpoint)
        holder.objects.restore(state)
        self.feed(self.name(i), ports.Start(contacts))
        self.feed(self.name(i), ports.Coordinate())
        return holder

    def settle(self) -> None:
        """Fair weather, until everybody has what anybody has."""
        self.loss = 0.0
        for _ in range(300):
            self.run(200 * MS)
            members = [h.member for h in self.holders()]
            clocks = {tuple(m.ordering.clock.T) for m in members}
            if all(m.joined and not m.blocked() for m in members) and len(clocks) == 1:
                return
        raise AssertionError([(h.member.me, h.member.ordering.clock.T, h.member.blocked()) for h in self.holders()])
