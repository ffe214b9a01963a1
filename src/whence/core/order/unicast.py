"""Messages to one member, in causal order with the broadcasts (SURVEY 3.3: "general causal communication").

Singhal and Kshemkalyani put into a message what its receiver may not know of messages to it; a broadcast would have to
say that for every member. Here a broadcast says nothing of it (Mattern and Fünfrocken 1995):

1. A message carries its sender's causal present. The receiver acknowledges it, holds it until its own is as far, and
   delivers it before any frame that it could deliver next.
2. `send` is over when the receiver has it. What its sender publishes or sends after that follows it, and can be
   delivered nowhere before it: the receiver has it in hand, and everything that it waits for precedes that, too.
3. Messages are numbered, and go to one member one at a time. One is sent again until it is acknowledged, and is taken
   once.

The price is a round trip before the sender goes on, and a receiver that crashes loses what it has acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import le
from typing import Any

import msgspec

from whence.core.clock import Entry, Frame, MemberId, Send, StampedFrame
from whence.core.clock.event import encode
from whence.core.order.layer import Seal
from whence.core.order.messages import DirectAck, DirectMessage
from whence.core.order.outputs import Deliver, OrderOutput, SentTo

MAX_SENDING = 1024
"""Messages of this member that are not acknowledged; a further one is refused."""
MAX_HELD = 1024
"""Messages that wait for their past here; a further one is not acknowledged yet."""
MAX_SENDERS = 4096
"""Senders remembered, the last numbers taken of each: what is repeated by one not heard of longer may come twice."""


class _Sending(msgspec.Struct):
    token: int
    to: MemberId
    message: DirectMessage
    until: int
    again_at: int


class Unicast:
    """What one member sends to single others, and what others send to it."""

    def __init__(self, me: MemberId, pause: int) -> None:
        """`pause`: after which a message is sent again, in nanoseconds."""
        self.me = me
        self.pause = pause
        self.held: list[DirectMessage] = []
        self.wake_at: int | None = None
        self._sending: dict[MemberId, deque[_Sending]] = {}
        self._number = 0
        self._taken: dict[MemberId, int] = {}

    # -- sending ------------------------------------------------------------------------------------------------

    def send(
        self,
        token: int,
        to: MemberId,
        payload: bytes,
        T: Sequence[Entry],
        patience: int,
        now: int,
        seal: Seal | None = None,
    ) -> list[OrderOutput]:
        """Send a message; `SentTo` with the same token says what became of it."""
        if sum(map(len, self._sending.values())) >= MAX_SENDING:
            return [SentTo(token, "too many messages are under way: wait for some")]
        number = self._number = self._number + 1
        frame = StampedFrame(self.me, number, number, 1, (to,), b"", encode([payload]))
        if seal is not None and seal.can_sign:
            frame = frame.signed(seal.sign(frame.unsigned()))
        queue = self._sending.setdefault(to, deque())
        queue.append(_Sending(token, to, DirectMessage(frame, tuple(T)), now + patience, now))
        return self.wake(now)

    def acknowledged(self, sender: MemberId, ack: DirectAck, now: int) -> list[OrderOutput]:
        """The receiver has it."""
        queue = self._sending.get(sender)
        if not queue or queue[0].message.frame.number != ack.number:
            return []
        return [SentTo(queue.popleft().token), *self.wake(now)]

    def wake(self, now: int) -> list[OrderOutput]:
        """Send what is first to each, again if it is not acknowledged; give up what is overdue."""
        out: list[OrderOutput] = []
        for to, queue in list(self._sending.items()):
            while queue and queue[0].until <= now:
                out.append(SentTo(queue.popleft().token, "no answer: the member may have it or not"))
            if not queue:
                del self._sending[to]
            elif queue[0].again_at <= now:
                queue[0].again_at = now + self.pause
                out.append(Send(to, queue[0].message, reliable=True))
        first = [queue[0] for queue in self._sending.values()]
        self.wake_at = min((min(s.again_at, s.until) for s in first), default=None)
        return out

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, sender: MemberId, message: DirectMessage) -> list[OrderOutput]:
        """A message to this member: held until `free` says that its past is here."""
        number = message.frame.number
        if number > self._taken.get(sender, 0):
            if len(self.held) >= MAX_HELD:
                return []  # it comes again
            self._taken[sender] = max(number, self._taken.pop(sender, 0))
            if len(self._taken) > MAX_SENDERS:
                del self._taken[next(iter(self._taken))]
            self.held.append(message)
        return [Send(sender, DirectAck(number), reliable=True)]

    def among(self, out: Sequence[Any], before: Sequence[Entry] | None, after: Sequence[Entry]) -> list[Any]:
        """The outputs of a step, with the messages that it sets free where they belong: each as soon as what it follows
        is delivered. `before` and `after`: the causal present around the step; None: nothing was held before it."""
        told: list[Any] = []
        T = None if before is None else list(before)
        for o in out:
            told.append(o)
            if T is not None and isinstance(o, Deliver) and isinstance(o.frame, Frame):
                T = list(map(max, T, o.frame.timestamp(o.frame.last)))
                told += self._free(T)
        return told + self._free(after)

    def _free(self, T: Sequence[Entry]) -> list[Deliver]:
        ready = [m for m in self.held if all(map(le, m.after, T))]
        if ready:
            self.held = [m for m in self.held if m not in ready]
        return [Deliver(m.frame) for m in ready]
