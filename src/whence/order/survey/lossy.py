"""Any mechanism over links that lose: recovery, digests, snapshots. Who is there is given; nobody owns a ticket.

1. A multicast goes to every peer once. Every message received is kept for others in `B` (bounded, oldest out first).
2. Each process counts what it has received of each sender without a hole. Now and then it tells a peer, picked at
   random, these counts (`Digest`): whoever has less asks it for the rest. So a lost last message is noticed too, and so
   is what a mechanism that cannot name it (interval trees, probabilistic clocks) waits for.
3. What a held message waits for is asked of a peer at once, and again after `patience` of another one.
4. A joiner asks a peer for a snapshot: the mechanism's state, the counts, and the application's state, of one moment.
5. What all peers have delivered, by their digests, need not be told any more (`settle`). Everybody has to know of a
   joiner (`join`) before it gets its snapshot, or it would be left out of "all".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from whence.errors import UsageError
from whence.order.survey.base import Counts, Id, Mechanism, Message, ProcessId, Range, State
from whence.order.survey.process import Process


class Data(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A message, new or asked for."""

    message: Message


class Digest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """What the sender has received of each process without a hole, and what it has delivered."""

    received: tuple[Id, ...]
    delivered: tuple[Id, ...]


class Ask(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Send these, if you have them."""

    ranges: tuple[Range, ...]


class AskState(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A joiner asks for a snapshot."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """A state of the mechanism, what was received with it, and (filled in by whoever drives the process, when the
    message passes) the application's state after all outputs before this one."""

    state: State
    received: tuple[Id, ...]
    application: bytes = b""


Wire = Data | Digest | Ask | AskState | Snapshot


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send this to a peer; it may be lost."""

    to: ProcessId
    wire: Wire


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """The application gets a message."""

    message: Message


class Joined(msgspec.Struct, frozen=True, gc=False):
    """A joiner has its state, from this peer, and the application's."""

    peer: ProcessId
    application: bytes


Output = Send | Deliver | Joined


@dataclass(frozen=True)
class LossyConfig:
    """Settings of recovery."""

    patience: int = 50_000_000
    """Nanoseconds until the same is asked again, of another peer. Shorter: faster recovery, more needless copies."""
    digest_every: int = 100_000_000
    """Nanoseconds between two digests. Shorter: a lost last message is found sooner, more traffic."""
    digest_fanout: int = 1
    """Peers told at a time. More: recovery and stability (for mechanisms that carry what is not stable) are found
    sooner."""
    buffer: int = 10_000
    """Messages kept for others. It should hold what is sent during one recovery; what nobody keeps is lost."""
    answer: int = 50
    """Messages sent in answer to one question."""


@dataclass
class LossyStats:
    """What recovery costs."""

    sent: int = 0
    asked: int = 0
    answered: int = 0
    digests: int = 0
    recovered: int = 0
    forgotten: int = 0
    """Messages that went out of the buffer."""


class LossyProcess:
    """A process with its mechanism, over links that lose, duplicate and reorder."""

    def __init__(
        self,
        me: ProcessId,
        mechanism: Mechanism,
        peers: Iterable[ProcessId],
        rng: Random,
        config: LossyConfig = LossyConfig(),  # noqa: B008 - frozen
        founder: bool = True,
    ) -> None:
        self.process = Process(me, mechanism)
        self.me = me
        self.peers = {p: None for p in peers if p != me}
        self.rng = rng
        self.config = config
        self.joined = founder
        self.stats = LossyStats()
        self.received: Counts = {}
        self.beyond: dict[Id, None] = {}
        self.delivered: Counts = {}
        self.known: dict[ProcessId, Counts] = {}
        """By peer: what it has delivered, as its last digest said."""
        self.buffer: dict[Id, Message] = {}
        self.asked: dict[Range, int] = {}
        self.early: list[Message] = []
        self.next_digest = 0

    # --- inputs

    def multicast(self, body: bytes, now: int) -> list[Output]:
        """Multicast to all peers."""
        if not self.joined:
            raise UsageError(f"process {self.me} has no state yet: multicast when it has joined")
        message, delivered = self.process.multicast(body, now)
        self._keep(message)
        self.stats.sent += len(self.peers)
        return [*(Send(p, Data(message)) for p in self.peers), *self._deliver(delivered)]

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[Output]:
        """Something came in from a peer."""
        match wire:
            case Data(message):
                return self._data(message, now)
            case Digest():
                return self._compare(sender, wire, now) if self.joined else []
            case Ask(ranges):
                return self._answer(sender, ranges)
            case AskState():
                return self._admit(sender) if self.joined else []
            case Snapshot():
                return [] if self.joined else self._install(sender, wire, now)

    def wake(self, now: int) -> list[Output]:
        """Time has passed; call it at `wake_at`."""
        if not self.joined:
            return self._to_any(AskState()) if self._is_time(now) else []
        out = self._deliver(self.process.drain(now))
        if self._is_time(now):
            digest = Digest(tuple(sorted(self.received.items())), tuple(sorted(self.delivered.items())))
            told = self.rng.sample(sorted(self.peers), min(self.config.digest_fanout, len(self.peers)))
            self.stats.digests += len(told)
            out += [Send(peer, digest) for peer in told]
        return out + self._ask(self.process.missing(now), None, now)

    @property
    def wake_at(self) -> int:
        """When to call `wake`."""
        times = [self.process.wake_at, min(self.asked.values(), default=None)]
        return min([self.next_digest, *(t for t in times if t is not None)])

    def join(self, peer: ProcessId) -> None:
        """A process is there from now on."""
        self.peers[peer] = None
        self.process.mechanism.join(peer)

    def lose(self, peer: ProcessId) -> None:
        """A process is gone. Its messages stay: they may be in the past of others, and peers may have them."""
        self.peers.pop(peer, None)
        self.known.pop(peer, None)

    # --- messages

    def _data(self, message: Message, now: int) -> list[Output]:
        if not self.joined:  # the snapshot may be older than this message
            if len(self.early) < self.config.buffer:
                self.early.append(message)
            return []
        if message.seq <= self.received.get(message.sender, 0) or message.id in self.beyond:
            return []
        self.stats.recovered += any(p == message.sender and a <= message.seq <= b for p, a, b in self.asked)
        self._keep(message)
        out = self._deliver(self.process.receive(message, now))
        return out + self._ask(self.process.missing(now), None, now)

    def _keep(self, message: Message) -> None:
        self.buffer[message.id] = message
        if len(self.buffer) > self.config.buffer:
            del self.buffer[next(iter(self.buffer))]
            self.stats.forgotten += 1
        self._got(message.id)

    def _got(self, key: Id) -> None:
        if key[1] > self.received.get(key[0], 0):
            self.beyond[key] = None
        while (following := (key[0], self.received.get(key[0], 0) + 1)) in self.beyond:
            del self.beyond[following]
            self.received[key[0]] = following[1]

    def _deliver(self, messages: list[Message]) -> list[Output]:
        for message in messages:
            self.delivered[message.sender] = max(message.seq, self.delivered.get(message.sender, 0))
            self._got(message.id)  # it may have come on the back of another (first generation)
        return [Deliver(m) for m in messages]

    # --- recovery

    def _compare(self, peer: ProcessId, digest: Digest, now: int) -> list[Output]:
        self.known[peer] = dict(digest.delivered)
        if all(p in self.known for p in self.peers):
            tables = [self.delivered, *(self.known[p] for p in self.peers)]
            self.process.settle({p: min(t.get(p, 0) for t in tables) for p in self.delivered})
        ahead = [(p, self.received.get(p, 0) + 1, n) for p, n in digest.received]
        return self._ask([gap for gap in ahead if gap[1] <= gap[2]], peer, now)

    def _ask(self, ranges: list[Range], peer: ProcessId | None, now: int) -> list[Output]:
        """Ask for what is missing, but not twice within `patience`."""
        self.asked = {r: until for r, until in self.asked.items() if until > now}
        wanted = tuple(r for r in ranges if r not in self.asked)[: self.config.answer]
        if not wanted or not self.peers:
            return []
        self.asked |= dict.fromkeys(wanted, now + self.config.patience)
        self.stats.asked += 1
        return [Send(peer, Ask(wanted))] if peer is not None else self._to_any(Ask(wanted))

    def _answer(self, peer: ProcessId, ranges: tuple[Range, ...]) -> list[Output]:
        found: list[Output] = []
        for p, first, last in ranges:
            for seq in range(first, min(last, first + self.config.answer) + 1):
                if len(found) < self.config.answer and (p, seq) in self.buffer:
                    found.append(Send(peer, Data(self.buffer[p, seq])))
        self.stats.answered += len(found)
        return found

    def _to_any(self, wire: Wire) -> list[Output]:
        return [Send(self.rng.choice(sorted(self.peers)), wire)] if self.peers else []

    def _is_time(self, now: int) -> bool:
        if now < self.next_digest:
            return False
        self.next_digest = now + self.config.digest_every
        return True

    # --- joining

    def _admit(self, joiner: ProcessId) -> list[Output]:
        self.join(joiner)
        # What was received beyond a hole, or is held, is not in the state: the joiner asks for it like anybody.
        held = [message.id for message, _ in self.process.held()]
        received = dict(self.received)
        for p, seq in held:
            received[p] = min(received.get(p, 0), seq - 1)
        return [Send(joiner, Snapshot(self.process.admit(joiner), tuple(sorted(received.items()))))]

    def _install(self, peer: ProcessId, snapshot: Snapshot, now: int) -> list[Output]:
        self.joined = True
        self.received, self.delivered = dict(snapshot.received), dict(snapshot.received)
        out: list[Output] = [Joined(peer, snapshot.application)]
        out += self._deliver(self.process.install(snapshot.state, now))
        early, self.early = self.early, []
        for message in early:
            out += self._data(message, now)
        return out
