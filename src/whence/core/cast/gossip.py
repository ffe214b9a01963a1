"""What every PrCast does, however it spreads items: membership, rounds, the history of what was seen.

`EttbGossip` (CCC11 section 6, after Koldehofe) is the PrCast of the papers, and its eager variant.

An item's **age** is the number of hops from its origin, which has it at age 0. A member forwards an item while `age <
termination` and adds one before it sends, so items arrive with ages from 1 to `termination`.

`rounds`, as in the papers: an item is sent in every round while it is young enough, and grows older by one each time.

`eager` departs from the papers: an item is pushed when it is created, and forwarded once, when it is first received.
Rounds carry only the digest and membership; a peer that misses something pulls it (the order layer does). If all others
are within the fanout, nobody forwards: the origin's push reaches everybody.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence

import whence.core.cast.messages as msg
from whence.core.cast.config import CastConfig
from whence.core.cast.views import View, pick
from whence.core.clock import Digest, MemberId, Send, is_member_id
from whence.errors import BadMessage, UsageError


class Dissemination(ABC):
    """One member's part in PrCast: an item handed in at one member comes out at all of them with high probability,
    once, in no particular order."""

    def __init__(
        self, me: MemberId, config: CastConfig, view: View, rng: random.Random, vets: msg.Vets | None = None
    ) -> None:
        self.me = me
        self.config = config
        self.vets = {} if vets is None else vets
        self.view = view
        self.rng = rng
        self.stats = view.stats
        self.wake_at = msg.NEVER_WAKE  # when `wake` is wanted, in nanoseconds of the member's clock
        self.round_at = msg.NEVER_WAKE  # when the next round is due; never before `wake_at`
        self._seen: dict[Hashable, MemberId] = {}  # who brought it; looked up, never iterated
        self._order: deque[Hashable] = deque()  # of _seen, first in first out
        self._history = config.history
        self._reach = -1
        """With so many others the origin's push reaches everybody: nobody forwards."""
        self._contacts: list[MemberId] = []  # whom to subscribe at, until one of them answers
        self._digest: Digest | None = None  # of the last round, for those who subscribe

    # What the kinds differ in

    @abstractmethod
    def broadcast(self, item: msg.Item, now: int) -> list[msg.CastOutput]:
        """Spread an item of our own; it does not come back as `First`."""

    @abstractmethod
    def wake(self, now: int, digest: Digest | msg.Heads | None) -> list[msg.CastOutput]:
        """Do what is due; too early is harmless. `digest` travels with a round, if one is due (`round_at`)."""

    @abstractmethod
    def _forward(self, sender: MemberId, fresh: list[tuple[msg.Item, int]], out: list[msg.CastOutput]) -> None:
        """A peer's message brought these, which the history did not know and the layers above accept: spread them."""

    def _round_items(self) -> tuple[tuple[msg.Item, ...], tuple[int, ...]]:
        """The items, and their ages, that travel with the message of this round."""
        return (), ()

    def _again(self, sender: MemberId, items: list[msg.Item], now: int, out: list[msg.CastOutput]) -> None:  # noqa: B027
        """A peer's message brought these, which the history knew."""

    def _other(self, sender: MemberId, message: msg.CastMessage, now: int, out: list[msg.CastOutput]) -> None:  # noqa: B027
        """A message that not every kind sends. A kind that does not use it ignores it."""

    def unreachable(self, address: str, now: int) -> list[msg.CastOutput]:
        """The runtime's connection to this address failed: a hint, not a proof that its member crashed."""
        return []

    # What they have in common

    def start(self, contacts: Sequence[MemberId], now: int, genesis: bool) -> list[msg.CastOutput]:
        """Begin. A genesis member has `contacts` as its first view; any other subscribes through them."""
        for contact in contacts:
            if not is_member_id(contact):
                raise UsageError(f"contact {contact!r} is no member id; want address#boot")
        out: list[msg.CastOutput] = []
        phase = self.rng.random()
        self.wake_at = now + 1 + int(phase * self.config.round)
        if self.config.in_step:
            self.wake_at = (now // self.config.round + 1) * self.config.round
        self.round_at = self.wake_at
        if genesis:
            self.view.merge([(c, 0) for c in contacts], out)
            return out
        return self.meet(contacts)

    def meet(self, contacts: Sequence[MemberId]) -> list[msg.CastOutput]:
        """Subscribe through these, also after the start."""
        out: list[msg.CastOutput] = []
        self._contacts = [c for c in contacts if c != self.me]
        for contact in pick(self._contacts, self.config.fanout, self.rng):
            self._subscribe(contact, out)
        return out

    def receive(self, sender: MemberId, message: msg.CastMessage, now: int) -> list[msg.CastOutput]:
        """Take a peer's message. Raises a `RemoteError`, having changed nothing, if it breaks the protocol."""
        out: list[msg.CastOutput] = []
        if self.wake_at == msg.NEVER_WAKE:
            return out
        self.stats.received += 1
        if is_member_id(sender):
            view, (address, boot) = self.view, msg.parts(sender)
            if view.at.get(address) != sender or view.spoken.get(address) != (boot, view.round):
                view.spoke(sender, out)  # else it has spoken in this round
        if type(message) is msg.Gossip:
            self._take(sender, message, now, out)
        elif type(message) is msg.Subscribe:
            if not is_member_id(sender):
                raise BadMessage(f"subscription of {sender!r}, which is no member id; want address#boot")
            self.view.subscribe(sender, out)
            self._send([sender], msg.Welcome(self.view.welcome(message.wanted, sender), self._digest), out)
        elif type(message) is msg.Welcome:
            self._contacts = []
            self._hear(sender, message.members, out)
            if message.digest is not None:
                out.append(msg.Heard(sender, message.digest))
        else:
            self._other(sender, message, now, out)
        return out

    def leave(self, now: int) -> list[msg.CastOutput]:
        """Unsubscribe, with the last items still in hand. After that nothing is sent and nothing taken."""
        out: list[msg.CastOutput] = []
        if self.wake_at != msg.NEVER_WAKE:
            self.view.tick(1, [])
            unsubs = ((self.me, 0), *self.view.unsubs())[: self.config.max_members]
            self._gossip(self._leave_targets(), None, unsubs, out)
            self.wake_at = self.round_at = msg.NEVER_WAKE
        return out

    def remove(self, member: MemberId) -> list[msg.CastOutput]:
        """The member is cut off or dead: forget it, and do not take it back from hearsay for a while."""
        out: list[msg.CastOutput] = []
        self._contacts = [c for c in self._contacts if c != member]
        self.view.remove(member, out)
        return out

    def vacated(self, address: str) -> list[msg.CastOutput]:
        """Nobody is at this address any more."""
        out: list[msg.CastOutput] = []
        self.view.vacate(address, out)
        return out

    def members(self) -> list[MemberId]:
        """The view, without this member, in the same order in every run of the same seed."""
        return list(self.view.pool)

    def sample(self, k: int) -> list[MemberId]:
        """At most `k` distinct members of the view, uniformly at random."""
        return pick(self.view.pool, k, self.rng)

    # Their parts

    def _leave_targets(self) -> list[MemberId] | None:
        """Who is told of the leave; None: as in a round."""
        return None

    def _round(self, now: int, digest: Digest | msg.Heads | None, out: list[msg.CastOutput]) -> int:
        """The round that is due. Returns how many were missed: this one makes up for all of them."""
        slept = (now - self.round_at) // self.config.round
        self.round_at += (slept + 1) * self.config.round
        self.stats.rounds += 1
        self._digest = None if isinstance(digest, tuple) else digest
        self.view.tick(slept + 1, out)
        self._ask(out)
        self._gossip(None, digest, self.view.unsubs(), out)
        for contact in pick(self._contacts, 1, self.rng):
            self._subscribe(contact, out)
        if self.view.hints:
            self._send(pick(list(self.view.hints), self.config.fanout, self.rng), msg.Subscribe(1), out)
        lost = self.view.lost_contact()
        if lost is not None:
            self._subscribe(lost, out)
        return slept

    def _gossip(
        self,
        targets: list[MemberId] | None,
        digest: Digest | msg.Heads | None,
        unsubs: tuple[msg.Aged, ...],
        out: list[msg.CastOutput],
    ) -> None:
        """The one message of a round."""
        items, ages = self._round_items()
        if targets is None:
            targets = pick(self.view.pool, self.config.fanout, self.rng)
        if targets:
            members = () if (self.me, 0) in unsubs else self.view.subscriptions()
            if isinstance(digest, tuple):
                message = msg.Gossip(items, ages, None, members, unsubs, digest)
            else:
                message = msg.Gossip(items, ages, digest, members, unsubs)
            self._send(targets, message, out)

    def _take(self, sender: MemberId, message: msg.Gossip, now: int, out: list[msg.CastOutput]) -> None:
        seen, order, stats, vets = self._seen, self._order, self.stats, self.vets
        fresh: dict[Hashable, tuple[msg.Item, int]] = {}
        known: list[msg.Item] = []
        for item, age in zip(message.items, message.ages, strict=True):
            key = item.key
            if key in seen:
                known.append(item)
            else:
                if (vet := vets.get(type(item))) is not None and not vet(item, sender):
                    continue
                fresh.setdefault(key, (item, age))  # it may be twice in one message
        if message.members:
            self._hear(sender, message.members, out)
        if message.unsubs:
            self.view.unsubscribe(message.unsubs, out, sender)
        stats.duplicates += len(message.items) - len(fresh)
        if known:
            self._again(sender, known, now, out)
        if fresh:
            stats.firsts += len(fresh)
            seen |= dict.fromkeys(fresh, sender)
            for item, age in fresh.values():
                out.append(msg.First(item, sender, age))
            order += fresh
            while len(order) > self._history:
                del seen[order.popleft()]
                stats.forgotten += 1
            if len(self.view.born) > self._reach:
                self._forward(sender, list(fresh.values()), out)
        if message.digest is not None:  # after the items: what this very message brings is not to be pulled
            out.append(msg.Heard(sender, message.digest))
        if message.heads:
            out.append(msg.Heard(sender, message.heads))

    def _hear(self, sender: MemberId, members: Sequence[msg.Aged], out: list[msg.CastOutput]) -> None:
        """A peer's entries; what is new in them is asked at once."""
        self.view.merge(members[: self.config.max_welcome], out, sender)
        self._ask(out)

    def _ask(self, out: list[msg.CastOutput]) -> None:
        """Those that others speak of are asked themselves."""
        if self.view.unasked:
            unasked, self.view.unasked = self.view.unasked, []
            self._send(unasked, msg.Subscribe(1), out)

    def _remember(self, key: Hashable) -> bool:
        """An item of our own; False if the history has the key already."""
        if key in self._seen:
            self.stats.duplicates += 1
            return False
        self._seen[key] = self.me
        self._order.append(key)
        if len(self._order) > self._history:
            del self._seen[self._order.popleft()]
            self.stats.forgotten += 1
        return True

    def _subscribe(self, contact: MemberId, out: list[msg.CastOutput]) -> None:
        self._send([contact], msg.Subscribe(self.config.max_welcome), out)

    def _send(self, targets: list[MemberId], message: msg.CastMessage, out: list[msg.CastOutput]) -> None:
        for to in targets:
            out.append(Send(to, message))
        self.stats.sent += len(targets)
        if type(message) is msg.Gossip:
            self.stats.events_sent += len(targets) * len(message.items)


class AgeBuffer:
    """Items to be forwarded, by age. A round ages all of them at once without touching any."""

    def __init__(self, config: CastConfig, stats: msg.CastStats) -> None:
        self._config = config
        self._stats = stats
        self._limit = config.buffer
        self._by_age: deque[list[msg.Item]] = deque([] for _ in range(config.termination))
        self._bytes: deque[int] = deque([0] * config.termination)
        self.count = 0
        self.bytes = 0

    def add(self, item: msg.Item, age: int) -> None:
        """Hold an item younger than `termination`. When the buffer is full, the oldest item is dropped."""
        size = item.size
        self._by_age[age].append(item)
        self._bytes[age] += size
        self.count += 1
        self.bytes += size
        while self.count > self._limit or (self.bytes > self._config.buffer_bytes and self.count > 1):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        age = max(a for a, items in enumerate(self._by_age) if items)
        size = self._by_age[age].pop(0).size
        self._bytes[age] -= size
        self.count -= 1
        self.bytes -= size
        self._stats.overflow += 1

    def round(self, rng: random.Random) -> tuple[tuple[msg.Item, ...], tuple[int, ...]]:
        """The content of this round's message: youngest first, ages one higher. Then everything is one round older, and
        what has reached `termination` is gone."""
        items: list[msg.Item] = []
        ages: list[int] = []
        if self.count:
            size = 0
            for age, held in enumerate(self._by_age, 1):
                whole = len(items) + len(held) <= self._config.max_events
                if whole and size + self._bytes[age - 1] <= self._config.max_bytes:
                    fitting = held
                    size += self._bytes[age - 1]
                else:
                    fitting, size = self._fit(held, len(items), size, rng)
                items += fitting
                ages += [age] * len(fitting)
            self.count -= len(self._by_age[-1])
            self.bytes -= self._bytes[-1]
        self._by_age.pop()
        self._by_age.appendleft([])
        self._bytes.pop()
        self._bytes.appendleft(0)
        return tuple(items), tuple(ages)

    def _fit(self, held: list[msg.Item], count: int, size: int, rng: random.Random) -> tuple[list[msg.Item], int]:
        """A random part of the items of one age: if all members chose the same part, the rest would never spread."""
        fitting: list[msg.Item] = []
        for item in rng.sample(held, len(held)):
            total = count + len(fitting)
            if total < self._config.max_events and (total == 0 or size + item.size <= self._config.max_bytes):
                fitting.append(item)
                size += item.size
        self._stats.truncated += len(held) - len(fitting)
        return fitting, size


class EttbGossip(Dissemination):
    """PrCast by random pushes: in rounds, or eagerly."""

    def __init__(
        self, me: MemberId, config: CastConfig, view: View, rng: random.Random, vets: msg.Vets | None = None
    ) -> None:
        super().__init__(me, config, view, rng, vets)
        self._eager = config.mode == "eager"
        self._reach = config.fanout if self._eager else -1
        self._buffer = AgeBuffer(config, self.stats)

    def broadcast(self, item: msg.Item, now: int) -> list[msg.CastOutput]:
        out: list[msg.CastOutput] = []
        if self.wake_at == msg.NEVER_WAKE or not self._remember(item.key):
            return out
        if not self._eager:
            self._buffer.add(item, 0)
            return out
        targets = pick(self.view.pool, self.config.fanout, self.rng)
        self._send(targets, msg.Gossip((item,), (1,)), out)
        self.stats.unsent += not targets
        return out

    def wake(self, now: int, digest: Digest | msg.Heads | None) -> list[msg.CastOutput]:
        out: list[msg.CastOutput] = []
        if now >= self.round_at:
            self._round(now, digest, out)
            self.wake_at = self.round_at
        return out

    # Its parts

    def _round_items(self) -> tuple[tuple[msg.Item, ...], tuple[int, ...]]:
        return self._buffer.round(self.rng)

    def _forward(self, sender: MemberId, fresh: list[tuple[msg.Item, int]], out: list[msg.CastOutput]) -> None:
        forward = [(item, age) for item, age in fresh if age < self.config.termination]
        if not self._eager:
            for item, age in forward:
                self._buffer.add(item, age)
        elif forward:
            # One more than needed, minus the sender: uniform among the others.
            targets = pick(self.view.pool, self.config.fanout + 1, self.rng)
            targets = [t for t in targets if t != sender][: self.config.fanout]
            self._send(targets, msg.Gossip(tuple(i for i, _ in forward), tuple(a + 1 for _, a in forward)), out)
