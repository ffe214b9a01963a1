"""Subgroups joined by interconnection servers over FIFO links, on an acyclic topology (causal separators; SURVEY 3.4).

A server is an ordinary member of its subgroup. It forwards each global message it delivers, in delivery order, to the
servers of all neighbour subgroups except the one it came from; those multicast it again. No causal history crosses the
link: whatever precedes a message was sent on the link before it, and is multicast again before it by the same process.

1. The servers are the first `servers` members of the view; the first is the **primary**. Each view starts a new
   **session** of every link: the primary tells the neighbour what its subgroup has (`Hello`) and gets what it lacks. So
   the next view replaces a crashed server, nothing is lost (every member of the neighbour logs what is not
   acknowledged), and a message that was sent twice has the same id and is delivered once.
2. A session is announced by a multicast in the subgroup (`Session`): every participant has delivered all that the
   session's start counts as known.
3. With several servers per subgroup ("an overall FIFO order among all interconnection channels for each pair", de
   Juan-Marin et al. 2009) the primary numbers the messages of the link and announces the numbers (`Assign`, a multicast
   in the subgroup: causal order ensures that every server has the messages). Server i sends those with
   `number % servers == i` over its own channel. On the other side, a server multicasts number x once x - 1 was
   delivered there (or multicast by itself).
4. A neighbour reports from time to time what it has delivered; the log is truncated there.

More than one path between two subgroups is refused, as the SURVEY demands (Johnson et al. 1999, Theorem 7; Meldal et
al. 1991): as published, a message would travel around a cycle for ever. Here it would not, since it has an id, and
order would hold, since everything is forwarded over every link; but each subgroup would multicast it once per path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from whence.core.order.survey.base import Mechanism, ProcessId
from whence.errors import BadMessage, ConfigError, CyclicTopology
from whence.lab.paper.survey.reliable import View
from whence.lab.paper.survey.subgroup import Global, GroupId, Have, Origin, Subgroup, counts_of, decode_body, have_of

Name = TypeVar("Name")


def check_acyclic(links: Sequence[tuple[Name, Name]]) -> None:
    """Refuse a topology with more than one path between two subgroups; the error names the cycle."""
    paths: dict[Name, dict[Name, None]] = {}
    for a, b in links:
        if a == b:
            raise CyclicTopology(f"subgroup {a} is linked to itself: drop that link")
        circle = _path(paths, a, b)
        if circle:
            names = " - ".join(map(str, [*circle, a]))
            raise CyclicTopology(
                f"the links form a cycle: {names}. A message would reach a subgroup on two paths and be multicast "
                f"there twice: remove one of these links"
            )
        paths.setdefault(a, {})[b] = None
        paths.setdefault(b, {})[a] = None


def _path(paths: dict[Name, dict[Name, None]], start: Name, goal: Name) -> list[Name]:
    """The path from start to goal; empty if there is none."""
    ways = [[start]]
    seen = {start}
    while ways:
        way = ways.pop(0)
        if way[-1] == goal:
            return way
        for then in paths.get(way[-1], {}):
            if then not in seen:
                seen.add(then)
                ways.append([*way, then])
    return []


# --- between subgroups


class Hello(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """To all members of a neighbour: a session of the sender's subgroup begins. `echo`: the neighbour's session that
    the sender knows."""

    group: GroupId
    session: int
    servers: tuple[ProcessId, ...]
    have: Have
    echo: int = 0


class Forward(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Number `at` of the link between these two sessions (the sender's and the receiver's)."""

    group: GroupId
    session: int
    to_session: int
    at: int
    message: Global


class Report(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """What the sender's subgroup has delivered."""

    group: GroupId
    have: Have


LinkWire = Hello | Forward | Report


class ToGroup(msgspec.Struct, frozen=True, gc=False):
    """To a member of another subgroup; `to` None: to all of them."""

    group: GroupId
    to: ProcessId | None
    wire: LinkWire


# --- among the members of a subgroup


class Session(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A session with a neighbour begins in this subgroup."""

    neighbour: GroupId
    mine: int
    theirs: int
    servers: tuple[ProcessId, ...]
    have: Have


class Assign(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """These messages have the numbers `first ..` on the link."""

    neighbour: GroupId
    mine: int
    theirs: int
    first: int
    messages: tuple[tuple[GroupId, ProcessId, int], ...]


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """What a neighbour has delivered."""

    neighbour: GroupId
    have: Have


_control = msgspec.msgpack.Decoder(Session | Assign | Acknowledged)


@dataclass
class _Link:
    """One member's knowledge of a neighbour."""

    has: dict[Origin, int] = field(default_factory=dict)
    """What its subgroup is known to have delivered."""
    mine: int = 0
    theirs: int = 0
    servers: tuple[ProcessId, ...] = ()
    heard: int = 0
    """The neighbour's latest session known to the primary, announced here or about to be."""
    sent: int = 0
    """At the primary: messages numbered in this session."""
    pushed: int = 0
    """The last number that this member multicast here."""
    here: int = 0
    """The last number delivered here."""
    held: dict[int, Global] = field(default_factory=dict)
    early: list[Forward] = field(default_factory=list)


class Interconnected(Subgroup):
    """A member of a subgroup with neighbours over FIFO links."""

    MAX_EARLY = 10_000

    def __init__(
        self,
        group: GroupId,
        me: ProcessId,
        mechanism: Mechanism,
        view: View | None,
        neighbours: Sequence[GroupId],
        servers: int = 1,
        uniform: bool = True,
        report_every: int = 20,
        max_log: int = 100_000,
        spread: bool = False,
    ) -> None:
        """`servers`: per subgroup. More servers give more bandwidth between subgroups, and cost a multicast per batch.
        `report_every`: deliveries between two reports to a neighbour. Fewer give shorter logs and more traffic."""
        super().__init__(group, me, mechanism, view, uniform, max_log)
        if servers < 1 or report_every < 1:
            raise ConfigError(f"servers and report_every must be at least 1: {servers}, {report_every}")
        self.view = View(0, ())
        """The view as of the outputs carried out so far; `local` may be ahead of it."""
        self.servers = servers
        self.spread = spread
        self.report_every = report_every
        self.links = {neighbour: _Link() for neighbour in neighbours}
        self.unreported = dict.fromkeys(neighbours, 0)

    def _servers(self, neighbour: GroupId) -> tuple[ProcessId, ...]:
        """The members that serve this link, the primary first."""
        members = self.view.members
        first = sorted(self.links).index(neighbour) % max(1, len(members)) if self.spread else 0
        return (members[first:] + members[:first])[: self.servers]

    def is_primary(self, neighbour: GroupId) -> bool:
        """This member is the first server of the link."""
        return self._servers(neighbour)[:1] == (self.me,)

    def start(self, now: int) -> list[object]:
        """Start a founder, whose first view is installed from the beginning."""
        assert self.local.view is not None
        return self._installed(self.local.view, now)

    # --- sessions

    def _installed(self, view: View, now: int) -> list[object]:
        self.view = view
        for neighbour, link in self.links.items():
            self.links[neighbour] = _Link(has=link.has, early=link.early)
        return [ToGroup(n, None, self._hello(n, 0)) for n in self.links if self.is_primary(n)]

    def _hello(self, neighbour: GroupId, echo: int) -> Hello:
        return Hello(self.group, self.view.number, self._servers(neighbour), have_of(self.have), echo)

    def receive_link(self, wire: LinkWire, now: int) -> list[object]:
        """From a member of another subgroup."""
        if wire.group not in self.links:
            raise BadMessage(f"subgroup {wire.group} is not a neighbour of {self.group}")
        match wire:
            case Hello():
                return self._greeted(wire, now) if self.is_primary(wire.group) else []
            case Forward():
                return self._forwarded(wire, now)
            case Report():
                if not self.is_primary(wire.group):
                    self.stats.refused += 1
                    return []
                # Learn first: what is covered gets no number any more, so no later `Assign` needs what is truncated.
                self._learn(wire.group, wire.have)
                return self._say(Acknowledged(wire.group, wire.have), now)

    def _greeted(self, hello: Hello, now: int) -> list[object]:
        link = self.links[hello.group]
        out: list[object] = []
        if hello.session > link.heard:
            link.heard = hello.session
            out += self._say(Session(hello.group, self.view.number, hello.session, hello.servers, hello.have), now)
        if hello.echo != self.view.number:
            out.append(ToGroup(hello.group, None, self._hello(hello.group, hello.session)))
        return out

    def _control(self, body: bytes, now: int) -> list[object]:
        control = decode_body(_control, body)
        if control.neighbour not in self.links:
            raise BadMessage(f"subgroup {control.neighbour} is not a neighbour of {self.group}")
        match control:
            case Session() as session:
                return self._begin(session, now)
            case Assign() as assign:
                return self._share(assign)
            case Acknowledged(neighbour, have):
                self._learn(neighbour, have)
        return []

    def _begin(self, session: Session, now: int) -> list[object]:
        self._learn(session.neighbour, session.have)
        link = self.links[session.neighbour]
        if session.mine != self.view.number or session.theirs <= link.theirs:
            return []
        early = [f for f in link.early if f.session >= session.theirs]
        self.links[session.neighbour] = link = _Link(
            link.has, session.mine, session.theirs, session.servers, link.heard
        )
        out: list[object] = []
        if self.is_primary(session.neighbour):
            news = [m for m in self.log if m.via != session.neighbour and m.number > link.has.get(m.origin, 0)]
            out += self._number(session.neighbour, news, now)
        for forward in early:
            out += self._forwarded(forward, now)
        return out

    def _learn(self, neighbour: GroupId, have: Have) -> None:
        has = self.links[neighbour].has
        for origin, n in counts_of(have).items():
            has[origin] = max(n, has.get(origin, 0))
        self._prune()

    def _needed(self, message: Global) -> bool:
        return any(
            message.via != neighbour and message.number > link.has.get(message.origin, 0)
            for neighbour, link in self.links.items()
        )

    # --- out

    def _global(self, message: Global, now: int) -> list[object]:
        out = self._arrived(message, now)
        for neighbour, link in self.links.items():
            news = message.number > link.has.get(message.origin, 0)
            if neighbour != message.via and link.theirs and news and self.is_primary(neighbour):
                out += self._number(neighbour, [message], now)
        return out

    def _number(self, neighbour: GroupId, messages: list[Global], now: int) -> list[object]:
        link = self.links[neighbour]
        if not messages:
            return []
        first = link.sent + 1
        link.sent += len(messages)
        names = tuple((*m.origin, m.number) for m in messages)
        assign = Assign(neighbour, link.mine, link.theirs, first, names)
        return self._share(assign, messages) if self.servers == 1 else self._say(assign, now)

    def _share(self, assign: Assign, messages: list[Global] | None = None) -> list[object]:
        """Send this member's share of the assigned messages."""
        link = self.links[assign.neighbour]
        servers = self._servers(assign.neighbour)
        if (assign.mine, assign.theirs) != (link.mine, link.theirs) or self.me not in servers:
            return []
        if messages is None:
            log = {(*m.origin, m.number): m for m in self.log}
            # A message that a full log dropped is replaced by number 0, which every receiver treats as a duplicate.
            messages = [log.get(name, Global(*name[:2], 0, b"", self.group)) for name in assign.messages]
        mine = [(at, m) for at, m in enumerate(messages, assign.first) if servers[at % len(servers)] == self.me]
        return [
            ToGroup(
                assign.neighbour,
                link.servers[at % len(link.servers)],
                Forward(self.group, link.mine, link.theirs, at, m),
            )
            for at, m in mine
        ]

    # --- in

    def _forwarded(self, forward: Forward, now: int) -> list[object]:
        link = self.links[forward.group]
        if (forward.session, forward.to_session) != (link.theirs, link.mine):
            newer = forward.session >= link.theirs and forward.to_session >= self.view.number
            if newer and len(link.early) < self.MAX_EARLY:
                link.early.append(forward)  # its session is not announced here yet
            else:
                self.stats.refused += 1
            return []
        if forward.at > max(link.here, link.pushed):
            link.held[forward.at] = forward.message
        return self._push(forward.group, now)

    def _push(self, neighbour: GroupId, now: int) -> list[object]:
        """Multicast the numbers that follow what was delivered here or multicast by this member."""
        link = self.links[neighbour]
        out: list[object] = []
        while (at := max(link.here, link.pushed) + 1) in link.held:
            message = link.held.pop(at)
            link.pushed = at
            self.stats.remulticast += 1
            out += self._say(
                msgspec.structs.replace(message, via=neighbour, at=at, session=(link.mine, link.theirs)), now
            )
        return out

    def _arrived(self, message: Global, now: int) -> list[object]:
        """A message from a neighbour was delivered here: the next may follow, and the neighbour may drop it from its
        log."""
        link = self.links.get(message.via)
        if link is None or not link.theirs:
            return []
        out: list[object] = []
        if message.session == (link.mine, link.theirs):
            link.here = max(link.here, message.at)
            out += self._push(message.via, now)
        self.unreported[message.via] += 1
        if self.is_primary(message.via) and self.unreported[message.via] >= self.report_every:
            self.unreported[message.via] = 0
            out.append(ToGroup(message.via, link.servers[0], Report(self.group, have_of(self.have))))
        return out

    def _again(self, message: Global, now: int) -> list[object]:
        return self._arrived(message, now)
