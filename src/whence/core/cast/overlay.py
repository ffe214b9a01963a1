"""The neighbours of a member: HyParView's active view (Leitao, Pereira, Rodrigues: HyParView, a membership protocol for
reliable gossip-based broadcast, DSN 2007).

A member keeps a few **links**, both ways: whoever is its neighbour has it as a neighbour. Links stay while both ends
live, so trees can be built on them. Rules:

1. A member with fewer neighbours than `degree` asks members of its view at random (`Neighbor`). A member accepts up to
   `degree + SPARE`. An `urgent` request is always accepted: a random other neighbour is told to go (`Disconnect`).
2. A link lives by messages that only neighbours send, at least one in two rounds. One that is silent for too long, or
   whose connection the runtime lost, is dropped, and another member is asked at once.
3. Who is no neighbour and speaks like one is accepted if there is room, else told to go. So a link that only one end
   knows of heals, whatever was lost.
4. A neighbour that fell silent is remembered. It is asked again, urgently, when it is heard, and every `lost_every`
   rounds. So after a partition the two sides do not stay apart, each with all the neighbours it wants.

Departs from HyParView:

* Its passive view is the view that membership has anyway (`views`): full, or lpbcast's, mixed by the messages of the
  rounds rather than by SHUFFLE. A joiner finds its neighbours in the `Welcome` sample rather than by FORWARDJOIN.
* Messages are datagrams, so a link has a time-out and is asserted again and again; HyParView relies on TCP.
* Rule 4: HyParView does not say how two saturated halves grow together again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from whence.core.cast.config import CastConfig
from whence.core.cast.messages import CastMessage, CastOutput, Disconnect, Neighbor, NeighborReply, parts
from whence.core.cast.views import View, pick
from whence.core.clock import MemberId

SPARE = 2
"""Neighbours beyond `degree` that a member accepts: else those that come last find everybody full."""
ANSWER = 2
"""Rounds to wait for the answer of a member asked."""

Send = Callable[[list[MemberId], CastMessage, list[CastOutput]], None]


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
        self._degree = config.degree
        self._silence = config.silence_ns
        self._wait = ANSWER * config.round
        self._every = config.lost_every
        self._asked: dict[MemberId, int] = {}
        """Member -> when it was asked to be a neighbour; it has not answered yet."""
        self._refused: dict[MemberId, int] = {}
        """Member -> when it refused. Neither is asked for `ANSWER` rounds."""
        self._fallen: dict[MemberId, int] = {}
        """Neighbour that fell silent -> when, the latest last (rule 4); at most `2 * degree`."""

    def heard(self, member: MemberId, now: int, out: list[CastOutput]) -> Link | None:
        """The member speaks as a neighbour (rules 2 and 3)."""
        link = self.links.get(member)
        if link is not None:
            link.heard = now
        elif self._room():
            link = self._link(member, now)
        else:
            self._send([member], Disconnect(), out)
        return link

    def asked(self, member: MemberId, urgent: bool, now: int, out: list[CastOutput]) -> None:
        """It wants to be a neighbour (rule 1)."""
        accepted = member in self.links or self._room()
        if not accepted and urgent:
            evicted = pick(list(self.links), 1, self._rng)[0]
            self.unlink(evicted)
            self._send([evicted], Disconnect(), out)
            accepted = True
        if accepted:
            self._link(member, now)
        self._send([member], NeighborReply(accepted), out)

    def answered(self, member: MemberId, accepted: bool, now: int, out: list[CastOutput]) -> None:
        if not accepted:
            self.unlink(member)
            if self._asked.pop(member, None) is not None:
                self._refused[member] = now
            self.seek(now, out)
        elif member in self.links or self._room():
            self._link(member, now)
        else:
            self._send([member], Disconnect(), out)

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
            while len(self._fallen) > 2 * self._degree:
                del self._fallen[next(iter(self._fallen))]

    def forget(self, member: MemberId) -> None:
        """It has left, restarted or was cut off."""
        self.unlink(member)
        for table in (self._asked, self._refused, self._fallen):
            table.pop(member, None)

    def spoke(self, member: MemberId, now: int, out: list[CastOutput]) -> None:
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
        return [member for member in self.links if parts(member)[0] == address]

    def tick(self, now: int, slept: int, rounds: int, out: list[CastOutput]) -> None:
        """A round. `slept`: nanoseconds that this member itself has missed; they are not its neighbours' silence."""
        silent: list[MemberId] = []
        for member, link in self.links.items():
            link.heard += slept
            if now - link.heard > self._silence:
                silent.append(member)
        for member in silent:
            self.fell(member, now)
            self._send([member], Disconnect(), out)
        for table in (self._asked, self._refused):
            for member in [m for m, at in table.items() if now - at >= self._wait]:
                del table[member]
        if self._fallen and rounds % self._every == 0:
            self._ask(pick(list(self._fallen), 1, self._rng)[0], True, now, out)
        self.seek(now, out)

    def seek(self, now: int, out: list[CastOutput]) -> None:
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

    def _ask(self, member: MemberId, urgent: bool, now: int, out: list[CastOutput]) -> None:
        self._asked[member] = now
        self._send([member], Neighbor(urgent), out)

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
