"""PrCast by trees, in two parts: the neighbours of a member, and the trees over them.

**The neighbours** are HyParView's active view (Leitao, Pereira, Rodrigues: HyParView, a membership protocol for
reliable gossip-based broadcast, DSN 2007).

A member keeps a few **links**, both ways: whoever is its neighbour has it as a neighbour. Links stay while both ends
live, so trees can be built on them. Rules:

1. A member with fewer neighbours than `degree` asks members of its view at random (`Neighbor`). A member accepts up to
   `degree + SPARE`. An `urgent` request is always accepted: a random other neighbour is told to go (`Disconnect`).
2. A link lives by messages that only neighbours send, at least one in two rounds. One that is silent for too long, or
   whose connection the runtime lost, is dropped, and another member is asked at once.
3. A member that speaks like a neighbour and is none is accepted if there is room, else told to go. So a link that only
   one end knows of heals, whatever was lost.
4. A neighbour that fell silent is remembered. It is asked again, urgently, when it is heard, and every `lost_every`
   rounds. So after a partition the two sides do not stay apart, each with all the neighbours it wants.

Departs from HyParView:

* Its passive view is the view that membership has anyway (`views`): full, or lpbcast's, mixed by the messages of the
  rounds rather than by SHUFFLE. A joiner finds its neighbours in the `Welcome` sample rather than by FORWARDJOIN.
* Messages are datagrams, so a link has a time-out and is asserted again and again; HyParView relies on TCP.
* Rule 4: HyParView does not say how two saturated halves grow together again.

**The trees** are Plumtree's (Leitao, Pereira, Rodrigues: Epidemic broadcast trees, SRDS 2007).

An item is pushed along a tree to whoever has not got it, about one packet for each member, and announced to everybody
else. Rules:

1. A new item goes at once to the neighbours that are eager for its origin. Its announcement (`IHave`) goes to half of
   them with the next round, to the other half with the one after it. A new neighbour is eager for every origin.
2. The first copy makes its sender eager. Any further copy makes its sender lazy, and tells it so (`Prune`): what is
   left is a tree, and it consists of the fastest links.
3. An item that was announced and has not come within `graft` is asked for (`Graft`), from one announcer after the
   other, the nearest to the origin first. Both ends are eager then: the tree has grown around the fault.
4. Without neighbours an item is pushed at random, as in `eager` mode.

Departs from Plumtree:

* A tree for each origin instead of one for all, so its hops are those of a shortest path, not up to twice as many. The
  paper names it as an option. Their number is bounded (`trees`): an origin that was forgotten floods the links once.
* Announcements are gathered for two rounds: they are most of what a member sends when little is published. Rounds of
  the neighbours are out of step, so the first one comes after a fraction of it. They go to all neighbours, eager ones
  too, so all get the same bytes; and a lost push is noticed by its parent's own announcement: the next parent is often
  the same, and the loss does not bend the tree.
* A request goes to the nearest announcer rather than to the first one, so repaired trees stay short. Plumtree repairs
  them later, by comparing hops (its optimisation), which keeps a tree of several senders in motion.
* A second copy from the parent is the network's, and prunes nothing.
* Frames that the trees missed altogether are recovered by the order layer, by its digests.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

import whence.core.cast.messages as msg
from whence.core.cast.config import CastConfig
from whence.core.cast.gossip import Dissemination
from whence.core.cast.views import View, pick
from whence.core.clock import Digest, MemberId, is_member_id
from whence.core.clock.bounds import keep_last
from whence.errors import BadMessage

SPARE = 2
"""Neighbours beyond `degree` that a member accepts: else those that come last find everybody full."""
ANSWER = 2
"""Rounds to wait for the answer of a member asked."""

Send = Callable[[list[MemberId], msg.CastMessage, list[msg.CastOutput]], None]


class Link:
    """A neighbour: when it last said that it is one, the origins of which it gets announcements only, and whether it
    gets them in odd rounds or in even ones."""

    __slots__ = ("heard", "lazy", "odd")

    def __init__(self, now: int, odd: bool) -> None:
        self.heard = now
        self.odd = odd
        self.lazy: set[MemberId] = set()  # looked up, never iterated


class Overlay:
    """The links of one member."""

    def __init__(self, config: CastConfig, view: View, rng: random.Random, send: Send) -> None:
        self.links: dict[MemberId, Link] = {}
        self._view = view
        self._rng = rng
        self._send = send
        self._stats = view.stats
        self._degree = config.neighbours
        self._silence = config.silence * config.round
        self._wait = ANSWER * config.round
        self._every = config.lost_every
        self._asked: dict[MemberId, int] = {}  # member -> when it was asked to be a neighbour; it has not answered yet
        self._refused: dict[MemberId, int] = {}  # member -> when it refused. Neither is asked for `ANSWER` rounds.
        self._fallen: dict[MemberId, int] = {}
        """Neighbour that fell silent -> when, the latest last (rule 4); at most `2 * degree`."""

    def heard(self, member: MemberId, now: int, out: list[msg.CastOutput]) -> Link | None:
        """The member speaks as a neighbour (rules 2 and 3)."""
        link = self.links.get(member)
        if link is not None:
            link.heard = now
        elif self._room():
            link = self._link(member, now)
        else:
            self._send([member], msg.Disconnect(), out)
        return link

    def asked(self, member: MemberId, urgent: bool, now: int, out: list[msg.CastOutput]) -> None:
        """It wants to be a neighbour (rule 1)."""
        accepted = member in self.links or self._room()
        if not accepted and urgent:
            evicted = pick(list(self.links), 1, self._rng)[0]
            self.unlink(evicted)
            self._send([evicted], msg.Disconnect(), out)
            accepted = True
        if accepted:
            self._link(member, now)
        self._send([member], msg.NeighborReply(accepted), out)

    def answered(self, member: MemberId, accepted: bool, now: int, out: list[msg.CastOutput]) -> None:
        if not accepted:
            self.unlink(member)
            if self._asked.pop(member, None) is not None:
                self._refused[member] = now
            self.seek(now, out)
        elif member in self.links or self._room():
            self._link(member, now)
        else:
            self._send([member], msg.Disconnect(), out)

    def unlink(self, member: MemberId) -> bool:
        """It is no neighbour any more; False if it was none."""
        if self.links.pop(member, None) is None:
            return False
        self._stats.unlinked += 1
        return True

    def fell(self, member: MemberId, now: int) -> None:
        """It is silent, or cannot be reached (rules 2 and 4)."""
        if self.unlink(member):
            self._fallen.pop(member, None)
            self._fallen[member] = now
            keep_last(self._fallen, 2 * self._degree)

    def forget(self, member: MemberId) -> None:
        """It has left, restarted or was cut off."""
        self.unlink(member)
        for table in (self._asked, self._refused, self._fallen):
            table.pop(member, None)

    def spoke(self, member: MemberId, now: int, out: list[msg.CastOutput]) -> None:
        """It has sent anything at all (rule 4)."""
        if member in self._fallen:
            del self._fallen[member]
            if member not in self.links:
                self._ask(member, True, now, out)

    def half(self, rounds: int) -> list[MemberId]:
        """The neighbours whose turn it is in this round."""
        return [member for member, link in self.links.items() if link.odd == rounds % 2]

    def at(self, address: str) -> list[MemberId]:
        """The neighbours at this address: one, or none."""
        return [member for member in self.links if msg.parts(member)[0] == address]

    def tick(self, now: int, slept: int, rounds: int, out: list[msg.CastOutput]) -> None:
        """A round. `slept`: nanoseconds that this member itself has missed; they are not its neighbours' silence."""
        silent: list[MemberId] = []
        for member, link in self.links.items():
            link.heard += slept
            if now - link.heard > self._silence:
                silent.append(member)
        for member in silent:
            self.fell(member, now)
            self._send([member], msg.Disconnect(), out)
        for table in (self._asked, self._refused):
            for member in [m for m, at in table.items() if now - at >= self._wait]:
                del table[member]
        if self._fallen and rounds % self._every == 0:
            self._ask(pick(list(self._fallen), 1, self._rng)[0], True, now, out)
        self.seek(now, out)

    def seek(self, now: int, out: list[msg.CastOutput]) -> None:
        """Ask as many members as are wanted (rule 1)."""
        wanted = self._degree - len(self.links) - len(self._asked)
        if wanted <= 0:
            return
        urgent = not self.links and not self._asked
        others = {*self.links, *self._asked, *self._refused, *self._fallen}  # looked up, never iterated
        for member in pick(self._view.pool, wanted + len(others), self._rng):
            if wanted and member not in others:
                self._ask(member, urgent, now, out)
                wanted, urgent = wanted - 1, False

    def _ask(self, member: MemberId, urgent: bool, now: int, out: list[msg.CastOutput]) -> None:
        self._asked[member] = now
        self._send([member], msg.Neighbor(urgent), out)

    def _room(self) -> bool:
        return len(self.links) < self._degree + SPARE

    def _link(self, member: MemberId, now: int) -> Link:
        for table in (self._asked, self._refused, self._fallen):
            table.pop(member, None)
        link = self.links.get(member)
        if link is None:
            odd = sum(link.odd for link in self.links.values())
            link = self.links[member] = Link(now, 2 * odd < len(self.links))
            self._stats.linked += 1
        link.heard = now
        return link


GIVEN_BYTES = 2 << 20
"""Bytes of the items that one address is given in a round because it has asked; the rest it asks others for."""
REQUESTS = 4
"""How often an announced item is asked for, and how many announcers are remembered."""


class _HeldItems:
    """The last items, for those who ask: bounded in number and bytes, first in first out."""

    def __init__(self, config: CastConfig, stats: msg.CastStats) -> None:
        self._limit = config.buffer
        self._bytes_limit = config.buffer_bytes
        self._stats = stats
        self._order: deque[msg.Key] = deque()
        self._items: dict[msg.Key, tuple[msg.Item, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: msg.Key) -> tuple[msg.Item, int] | None:
        """The item, and its age here."""
        return self._items.get(key)

    def add(self, item: msg.Item, age: int) -> None:
        key = item.key
        if key in self._items:  # the history is shorter than this
            return
        self._items[key] = (item, age)
        self._order.append(key)
        self.bytes += item.size
        while len(self._order) > self._limit or (self.bytes > self._bytes_limit and len(self._order) > 1):
            old, _ = self._items.pop(self._order.popleft())
            self.bytes -= old.size


class _Missing:
    """An item announced and not received."""

    __slots__ = ("announcers", "ask_at", "requests")

    def __init__(self, ask_at: int) -> None:
        self.announcers: list[tuple[int, int, MemberId]] = []  # (requests, age, member): the least is asked next
        self.ask_at = ask_at
        self.requests = 0

    def next(self) -> MemberId:
        """Whom to ask now."""
        requests, age, member = min(self.announcers)
        self.announcers.remove((requests, age, member))
        self.announcers.append((requests + 1, age, member))
        self.requests += 1
        return member


class TreeCast(Dissemination):
    """PrCast by trees."""

    def __init__(
        self, me: MemberId, config: CastConfig, view: View, rng: random.Random, vets: msg.Vets | None = None
    ) -> None:
        super().__init__(me, config, view, rng, vets)
        self.overlay = Overlay(config, view, rng, self._send)
        self._held = _HeldItems(config, self.stats)
        self._news: deque[tuple[msg.Key, int]] = deque(maxlen=config.buffer)  # to be announced
        self._told: list[tuple[msg.Key, int]] = []  # announced to half of the neighbours
        self._missing: dict[msg.Key, _Missing] = {}  # in the order of `ask_at`
        self._origins: dict[MemberId, None] = {}  # with a tree, the latest used last
        self._given: dict[str, int] = {}  # address -> bytes in this round
        self._max_missing = max(config.max_keys, config.buffer)

    def start(self, contacts: Sequence[MemberId], now: int, genesis: bool) -> list[msg.CastOutput]:
        out = super().start(contacts, now, genesis)
        self.overlay.seek(now, out)
        return out

    def broadcast(self, item: msg.Item, now: int) -> list[msg.CastOutput]:
        out: list[msg.CastOutput] = []
        if self.wake_at != msg.NEVER_WAKE and self._remember(item.key):
            self._spread(self.me, [(item, 0)], out)
        return out

    def receive(self, sender: MemberId, message: msg.CastMessage, now: int) -> list[msg.CastOutput]:
        out = super().receive(sender, message, now)
        if self.wake_at == msg.NEVER_WAKE:
            return out
        for change in out:
            if type(change) is msg.MemberDown and change.reason in ("left", "restarted"):
                self.overlay.forget(change.member)
        self.overlay.spoke(sender, now, out)
        if not self.overlay.links:
            self.overlay.seek(now, out)
        self._plan()
        return out

    def wake(self, now: int, digest: Digest | msg.Heads | None) -> list[msg.CastOutput]:
        out: list[msg.CastOutput] = []
        if now < self.wake_at:
            return out
        if now >= self.round_at:
            slept = self._round(now, digest, out)
            self._given.clear()
            self.overlay.tick(now, slept * self.config.round, self.stats.rounds, out)
            self._announce(out)
        self._graft(now, out)
        self._plan()
        return out

    def remove(self, member: MemberId) -> list[msg.CastOutput]:
        self.overlay.forget(member)
        return super().remove(member)

    def unreachable(self, address: str, now: int) -> list[msg.CastOutput]:
        out: list[msg.CastOutput] = []
        if self.wake_at != msg.NEVER_WAKE:
            for member in self.overlay.at(address):
                self.overlay.fell(member, now)
            self.overlay.seek(now, out)
        return out

    def members(self) -> list[MemberId]:
        """The view and the neighbours: a partial view may have evicted one."""
        return list(dict.fromkeys((*self.view.pool, *self.overlay.links)))

    # Its parts

    def _leave_targets(self) -> list[MemberId] | None:
        others = [m for m in pick(self.view.pool, self.config.fanout, self.rng) if m not in self.overlay.links]
        return [*self.overlay.links, *others]

    def _plan(self) -> None:
        self.wake_at = self.round_at
        if self._missing:
            self.wake_at = min(self.wake_at, next(iter(self._missing.values())).ask_at)

    def _forward(self, sender: MemberId, fresh: list[tuple[msg.Item, int]], out: list[msg.CastOutput]) -> None:
        link = self.overlay.links.get(sender)
        for item, _ in fresh:
            self._missing.pop(item.key, None)
            if link is not None:
                link.lazy.discard(msg.origin_of(item))  # rule 2
        self._spread(sender, fresh, out)

    def _again(self, sender: MemberId, items: list[msg.Item], now: int, out: list[msg.CastOutput]) -> None:
        """Rule 2."""
        link = self.overlay.links.get(sender)
        if link is None:
            return
        origins = {msg.origin_of(item): None for item in items if self._seen[item.key] != sender}
        if origins:
            link.lazy.update(origins)
            self.stats.pruned += len(origins)
            self._send([sender], msg.Prune(tuple(origins)), out)

    def _spread(self, sender: MemberId, items: list[tuple[msg.Item, int]], out: list[msg.CastOutput]) -> None:
        """Rules 1 and 4: push, hold and announce items that `sender` brought."""
        by_targets: dict[tuple[MemberId, ...], list[tuple[msg.Item, int]]] = {}
        links = self.overlay.links
        for item, age in items:
            self._held.add(item, age)
            after = min(age + 1, msg.MAX_AGE)
            if links:
                tree = self._used(item)
                targets = tuple(m for m, link in links.items() if tree not in link.lazy and m != sender)
                self._news.append((item.key, after))
            elif age < self.config.termination:
                targets = tuple(m for m in pick(self.view.pool, self.config.fanout, self.rng) if m != sender)
                self.stats.unsent += sender == self.me and not targets
            else:
                continue
            by_targets.setdefault(targets, []).append((item, after))
        for whom, pushed in by_targets.items():
            self._push(list(whom), pushed, out)

    def _push(self, to: list[MemberId], items: list[tuple[msg.Item, int]], out: list[msg.CastOutput]) -> None:
        """In messages as large as allowed."""
        part: list[tuple[msg.Item, int]] = []
        size = 0
        for item, age in items:
            if part and (len(part) == self.config.max_events or size + item.size > self.config.max_bytes):
                self._send(to, msg.Gossip(tuple(i for i, _ in part), tuple(a for _, a in part)), out)
                part, size = [], 0
            part.append((item, age))
            size += item.size
        if part:
            self._send(to, msg.Gossip(tuple(i for i, _ in part), tuple(a for _, a in part)), out)

    def _announce(self, out: list[msg.CastOutput]) -> None:
        """Rule 1. Also in a quiet round: it says that this member lives."""
        news = [*self._told, *self._news]
        self._told = list(self._news)
        self._news.clear()
        half = self.overlay.half(self.stats.rounds)
        for i in range(0, max(1, len(news)), self.config.max_keys):
            some = news[i : i + self.config.max_keys]
            self._send(half, msg.IHave(tuple(k for k, _ in some), tuple(a for _, a in some)), out)

    def _graft(self, now: int, out: list[msg.CastOutput]) -> None:
        """Rule 3."""
        wanted: dict[MemberId, list[msg.Key]] = {}
        while self._missing:
            key, missing = next(iter(self._missing.items()))
            if missing.ask_at > now:
                break
            del self._missing[key]
            if missing.requests == REQUESTS:
                self.stats.ungrafted += 1
                continue
            wanted.setdefault(missing.next(), []).append(key)
            missing.ask_at = now + self.config.graft
            self._missing[key] = missing
        for announcer, keys in wanted.items():
            self.stats.grafted += len(keys)
            for i in range(0, len(keys), self.config.max_keys):
                self._send([announcer], msg.Graft(tuple(keys[i : i + self.config.max_keys])), out)

    # The messages of trees

    def _other(self, sender: MemberId, message: msg.CastMessage, now: int, out: list[msg.CastOutput]) -> None:
        if not is_member_id(sender):
            raise BadMessage(f"a neighbour's message of {sender!r}, which is no member id; want address#boot")
        if type(message) is msg.IHave:
            self._on_ihave(sender, message, now, out)
        elif type(message) is msg.Graft:
            self._on_graft(sender, message, now, out)
        elif type(message) is msg.Prune:
            link = self.overlay.heard(sender, now, out)
            if link is not None:
                link.lazy.update(o for o in message.origins if o in self._origins)
        elif type(message) is msg.Neighbor:
            self.overlay.asked(sender, message.urgent, now, out)
        elif type(message) is msg.NeighborReply:
            self.overlay.answered(sender, message.linked, now, out)
        elif type(message) is msg.Disconnect and self.overlay.unlink(sender):
            self.overlay.seek(now, out)

    def _on_ihave(self, sender: MemberId, message: msg.IHave, now: int, out: list[msg.CastOutput]) -> None:
        self.overlay.heard(sender, now, out)
        for key, age in zip(message.keys, message.ages, strict=True):
            if key in self._seen:
                continue
            missing = self._missing.get(key)
            if missing is None:
                if len(self._missing) >= self._max_missing:
                    self.stats.unwanted += 1
                    continue
                missing = self._missing[key] = _Missing(now + self.config.graft)
            if len(missing.announcers) < REQUESTS and all(sender != member for *_, member in missing.announcers):
                missing.announcers.append((0, age, sender))

    def _on_graft(self, sender: MemberId, message: msg.Graft, now: int, out: list[msg.CastOutput]) -> None:
        link = self.overlay.heard(sender, now, out)
        items: list[tuple[msg.Item, int]] = []
        address = msg.parts(sender)[0]
        for key in dict.fromkeys(message.keys[: self.config.max_keys]):
            held, given = self._held.get(key), self._given.get(address, 0)
            if held is None or given >= GIVEN_BYTES:
                self.stats.unheld += 1
                continue
            item, age = held
            self._given[address] = given + item.size
            items.append((item, min(age + 1, msg.MAX_AGE)))
            if link is not None:
                link.lazy.discard(msg.origin_of(item))
        self._push([sender], items, out)

    # Trees

    def _used(self, item: msg.Item) -> MemberId:
        """The name of the item's tree, which is in use now; the one unused for the longest time makes room."""
        tree = msg.origin_of(item)
        self._origins.pop(tree, None)
        self._origins[tree] = None
        if len(self._origins) > self.config.trees:
            forgotten = next(iter(self._origins))
            del self._origins[forgotten]
            for link in self.overlay.links.values():
                link.lazy.discard(forgotten)
        return tree
