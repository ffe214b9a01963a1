"""A member of a subgroup that also publishes to other subgroups: what all kinds of interconnection share (SURVEY 3.4).

Inside, the subgroup is a reliable causal multicast of its own, with any mechanism. A publisher chooses the **scope** of
each message, local or global. A global message is identified by its origin `(group, process)` and its number there, and
keeps this id however often it is multicast again; a second delivery of the same id is a duplicate. Causal order is FIFO
per process, so what a subgroup has of an origin has no gaps: one count per origin describes it (`have`).

Subgroups deliver uniformly. Otherwise a server could forward a message that nobody else in its subgroup has, or
acknowledge one that it alone holds, and break agreement between subgroups by crashing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from whence.core.order.survey.base import Mechanism, Message, ProcessId
from whence.errors import BadMessage
from whence.lab.paper.survey.reliable import (
    Deliver,
    Install,
    ReliableOutput,
    ReliableProcess,
    Send,
    View,
    Welcome,
    Wire,
)

T = TypeVar("T")

GroupId = int

Origin = tuple[GroupId, ProcessId]
"""Where a global message was published."""

Have = tuple[tuple[GroupId, ProcessId, int], ...]
"""How many global messages of each origin are known, ascending."""


class Local(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A message that stays in its subgroup."""

    body: bytes


class Global(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A message for all subgroups. `via`: the neighbour it came from (the own group if it was published here)."""

    group: GroupId
    process: ProcessId
    number: int
    body: bytes
    via: GroupId
    at: int = 0
    """Its number on the connection it came through, in this session of it (ours, theirs)."""
    session: tuple[int, int] = (0, 0)

    @property
    def origin(self) -> Origin:
        return (self.group, self.process)


class ToMember(msgspec.Struct, frozen=True, gc=False):
    """To another member of the own subgroup."""

    to: ProcessId
    wire: Wire


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message of `(group, process)` for the application; `number` counts its global ones, 0 is a local one."""

    group: GroupId
    process: ProcessId
    number: int
    body: bytes


class Installed(msgspec.Struct, frozen=True, gc=False):
    """The subgroup has this view now."""

    view: View


class Saved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a joiner of a subgroup needs besides the order's state."""

    have: Have
    log: tuple[Global, ...]


@dataclass
class SubgroupStats:
    """The cost of interconnection."""

    remulticast: int = 0
    duplicates: int = 0
    log_peak: int = 0
    log_dropped: int = 0
    refused: int = 0
    """Messages of ended sessions between servers, and malformed bodies."""


_encode = msgspec.msgpack.Encoder().encode
_saved = msgspec.msgpack.Decoder(Saved)


class Subgroup(ABC):
    """One member. Inputs return outputs: `ToMember`, `Delivered`, `Installed`, and what the kind of interconnection
    adds.

    The log holds the global messages that some other subgroup may still need, in delivery order, at every member,
    because each may become a server. It is bounded by `max_log`: the oldest are dropped and counted, and lost to a
    subgroup that is cut off for longer.
    """

    def __init__(
        self,
        group: GroupId,
        me: ProcessId,
        mechanism: Mechanism,
        view: View | None,
        uniform: bool = True,
        max_log: int = 100_000,
    ) -> None:
        self.group = group
        self.me = me
        self.local = ReliableProcess(me, mechanism, view, uniform)
        self.max_log = max_log
        self.number = 0
        self.have: dict[Origin, int] = {}
        self.log: list[Global] = []
        self.stats = SubgroupStats()
        self._todo: list[ReliableOutput] = []
        self._busy = False

    # --- inputs

    def multicast(self, body: bytes, now: int, everywhere: bool = True) -> list[object]:
        """Publish, in all subgroups or only in the own one."""
        if everywhere:
            self.number += 1
            return self._say(Global(self.group, self.me, self.number, body, self.group), now)
        return self._say(Local(body), now)

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[object]:
        """From another member of the subgroup."""
        return self._carry_out(self.local.receive(sender, wire, now), now)

    def install_view(self, view: View, now: int) -> list[object]:
        """The subgroup's membership service announces the next view."""
        return self._carry_out(self.local.install_view(view, now), now)

    # --- what the kind of interconnection adds

    @abstractmethod
    def _installed(self, view: View, now: int) -> list[object]:
        """A view is installed; this member may be a server now."""

    @abstractmethod
    def _global(self, message: Global, now: int) -> list[object]:
        """A global message was delivered here for the first time."""

    @abstractmethod
    def _again(self, message: Global, now: int) -> list[object]:
        """A global message was delivered here once more."""

    @abstractmethod
    def _control(self, body: bytes, now: int) -> list[object]:
        """A control message among the members (tag 3 and above)."""

    @abstractmethod
    def _needed(self, message: Global) -> bool:
        """Some other subgroup may not have it yet."""

    # --- inside

    def _say(self, what: msgspec.Struct, now: int) -> list[object]:
        """Multicast in the subgroup."""
        return self._carry_out(self.local.multicast(_encode(what), now), now)

    def _carry_out(self, outputs: list[ReliableOutput], now: int) -> list[object]:
        """Carry out outputs in order; the consequences of one come after all that are already queued."""
        self._todo += outputs
        if self._busy:
            return []
        self._busy, out = True, list[object]()
        try:
            while self._todo:
                out += self._carry_out_one(self._todo.pop(0), now)
        finally:
            self._busy = False
        return out

    def _carry_out_one(self, output: ReliableOutput, now: int) -> list[object]:
        match output:
            case Send(to, Welcome() as welcome):
                saved = Saved(have_of(self.have), tuple(self.log))
                return [ToMember(to, msgspec.structs.replace(welcome, application=_encode(saved)))]
            case Send(to, wire):
                return [ToMember(to, wire)]
            case Install(view, _, application):
                if application:
                    saved = decode_body(_saved, application)
                    self.have, self.log = counts_of(saved.have), list(saved.log)
                return [Installed(view), *self._installed(view, now)]
            case Deliver(message):
                return self._deliver(message, now)

    def _deliver(self, message: Message, now: int) -> list[object]:
        try:
            return self._read(message, now)
        except BadMessage:  # all members refuse it
            self.stats.refused += 1
            return []

    def _read(self, message: Message, now: int) -> list[object]:
        if not _is_plain(message.body):
            return self._control(message.body, now)
        what = decode_body(_plain, message.body)
        match what:
            case Local(body):
                return [Delivered(self.group, message.sender, 0, body)]
            case Global() if what.number <= self.have.get(what.origin, 0):
                self.stats.duplicates += 1
                return self._again(what, now)
            case Global():
                self.have[what.origin] = what.number
                self.log.append(what)
                if len(self.log) > self.max_log:
                    del self.log[0]
                    self.stats.log_dropped += 1
                self.stats.log_peak = max(self.stats.log_peak, len(self.log))
                return [Delivered(*what.origin, what.number, what.body), *self._global(what, now)]

    def _prune(self) -> None:
        self.log = [message for message in self.log if self._needed(message)]


def have_of(counts: dict[Origin, int]) -> Have:
    """The counts in wire form."""
    return tuple((*origin, n) for origin, n in sorted(counts.items()))


def counts_of(have: Have) -> dict[Origin, int]:
    """The inverse of `have_of`."""
    return {(group, process): n for group, process, n in have}


_plain: msgspec.msgpack.Decoder[Local | Global] = msgspec.msgpack.Decoder(Local | Global)


def _is_plain(body: bytes) -> bool:
    """Whether it is an application's message rather than a control message, by its tag."""
    return body[1:2] in (b"\x01", b"\x02")


def decode_body(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    """Decode the body of a member's message; raises `BadMessage`."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"not a valid message of a member: {error}") from None
