"""Open groups: who is no member publishes through one, exactly once even if that member dies (SURVEY 3.2).

The **client** names its messages itself, `(client, number)`, has one under way at a time, and sends it again, to the
next member, until one says that it is `Accepted`. Members multicast what they are asked to; all of them deliver the
first message of a name and drop the rest. A member accepts when it has delivered: with uniform delivery all members
hold the message then, so it survives whatever happens to that member. A client's next message follows its last one
causally: a member multicasts number n only when it has delivered n - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whence.errors import UsageError
from whence.order.survey.base import Mechanism, ProcessId
from whence.order.survey.reliable import Deliver, Install, Output, ReliableProcess, Send, View, Welcome, Wire

ClientId = int


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Multicast this for a client."""

    client: ClientId
    number: int
    body: bytes


class Accepted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """The client's message is delivered, or will be, by all members that stay."""

    client: ClientId
    number: int


class Refused(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """This member will not do it; `reason` says why. Another one may."""

    client: ClientId
    number: int
    reason: str


class Plain(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A member's own message."""

    body: bytes


class Done(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a joiner has to know: the last number of each client that was delivered."""

    numbers: tuple[tuple[ClientId, int], ...]


class ToMember(msgspec.Struct, frozen=True, gc=False):
    """From a client or a member to a member."""

    to: ProcessId
    wire: Wire | Request


class ToClient(msgspec.Struct, frozen=True, gc=False):
    """From a member to a client."""

    to: ClientId
    wire: Accepted | Refused


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The application gets a message: of a client (`number` from 1), or of a member (`number` 0)."""

    publisher: int
    number: int
    body: bytes


class Client:
    """A process outside the group that publishes to it."""

    def __init__(self, me: ClientId, members: Sequence[ProcessId], patience: int, max_queued: int = 1000) -> None:
        """`members`: who to ask, in this order and round again. `patience`: nanoseconds until the next one is asked.
        Shorter: less waiting when one is dead, more needless copies when it is slow."""
        if not members or patience <= 0:
            raise UsageError("a client needs members to ask, and patience")
        self.me = me
        self.members = list(members)
        self.patience = patience
        self.max_queued = max_queued
        self.number = 0
        self.queued: list[bytes] = []
        self.asking = 0
        self.wake_at: int | None = None

    def publish(self, body: bytes, now: int) -> list[ToMember]:
        """Publish after all that was published before."""
        if len(self.queued) >= self.max_queued:
            raise UsageError(f"{self.max_queued} messages wait already: publish again when some are accepted")
        self.queued.append(body)
        return self._ask(now) if self.wake_at is None else []

    def receive(self, wire: Accepted | Refused, now: int) -> list[ToMember]:
        """A member's answer."""
        if self.wake_at is None or wire.number != self.number + 1:
            return []  # to a question that is over
        if isinstance(wire, Refused):
            return self.wake(self.wake_at)
        self.number += 1
        self.queued.pop(0)
        self.wake_at = None
        return self._ask(now) if self.queued else []

    def wake(self, now: int) -> list[ToMember]:
        """Nobody answered in time: ask the next one."""
        if self.wake_at is None or now < self.wake_at:
            return []
        self.asking = (self.asking + 1) % len(self.members)
        return self._ask(now)

    def _ask(self, now: int) -> list[ToMember]:
        self.wake_at = now + self.patience
        return [ToMember(self.members[self.asking], Request(self.me, self.number + 1, self.queued[0]))]


_encode = msgspec.msgpack.Encoder().encode
_done = msgspec.msgpack.Decoder(Done)
_body = msgspec.msgpack.Decoder(Plain | Request)


class OpenMember:
    """A member of a group that multicasts for clients."""

    def __init__(
        self,
        me: ProcessId,
        mechanism: Mechanism,
        view: View | None,
        uniform: bool = True,
        max_clients: int = 10_000,
    ) -> None:
        """`max_clients`: how many clients are remembered; one more is refused, because forgetting one could deliver
        twice. `uniform=False` saves a round trip, and loses what was accepted by a member that dies at once."""
        self.local = ReliableProcess(me, mechanism, view, uniform)
        self.max_clients = max_clients
        self.done: dict[ClientId, int] = {}
        self.wanted: dict[ClientId, Request] = {}
        """What clients wait for here: at most one each."""
        self.under_way: dict[ClientId, int] = {}
        self.duplicates = 0
        self.refused = 0

    def multicast(self, body: bytes, now: int) -> list[object]:
        """A member's own message."""
        return self._carry_out(self.local.multicast(_encode(Plain(body)), now), now)

    def receive(self, sender: ProcessId, wire: Wire, now: int) -> list[object]:
        """From another member."""
        return self._carry_out(self.local.receive(sender, wire, now), now)

    def install_view(self, view: View, now: int) -> list[object]:
        """The membership service says what the next view is."""
        return self._carry_out(self.local.install_view(view, now), now)

    def request(self, request: Request, now: int) -> list[object]:
        """From a client."""
        client, number = request.client, request.number
        if number <= self.done.get(client, 0):
            return [ToClient(client, Accepted(client, number))]
        if (
            client not in self.done
            and client not in self.wanted
            and len(self.wanted) + len(self.done) >= self.max_clients
        ):
            return [ToClient(client, Refused(client, number, f"{self.max_clients} clients are known already"))]
        self.wanted[client] = request
        return self._serve(client, now)

    def _serve(self, client: ClientId, now: int) -> list[object]:
        """Multicast what the client wants, once, and when its last message is delivered here."""
        request = self.wanted[client]
        last = self.done.get(client, 0)
        if request.number != last + 1 or self.under_way.get(client, 0) >= request.number or self.local.view is None:
            return []
        self.under_way[client] = request.number
        return self._carry_out(self.local.multicast(_encode(request), now), now)

    def _carry_out(self, outputs: list[Output], now: int) -> list[object]:
        out: list[object] = []
        for output in outputs:
            match output:
                case Send(to, Welcome() as welcome):
                    done = _encode(Done(tuple(sorted(self.done.items()))))
                    out.append(ToMember(to, msgspec.structs.replace(welcome, application=done)))
                case Send(to, wire):
                    out.append(ToMember(to, wire))
                case Install(_, _, application):
                    if application:
                        self.done = dict(_done.decode(application).numbers)
                case Deliver(message):
                    try:
                        what = _body.decode(message.body)
                    except msgspec.MsgspecError:  # no member writes that; all refuse it alike
                        self.refused += 1
                        continue
                    if isinstance(what, Plain):
                        out.append(Delivered(message.sender, 0, what.body))
                    else:
                        out += self._delivered(what, now)
        return out

    def _delivered(self, request: Request, now: int) -> list[object]:
        client, number = request.client, request.number
        if number <= self.done.get(client, 0):
            self.duplicates += 1
            return []
        self.done[client] = number
        out: list[object] = [Delivered(client, number, request.body)]
        wanted = self.wanted.get(client)
        if wanted is not None and wanted.number <= number:
            del self.wanted[client]
            out.append(ToClient(client, Accepted(client, wanted.number)))
        elif wanted is not None:
            out += self._serve(client, now)
        return out
