"""How many members hold a frame: what `publish(..., copies=k)` waits for.

The question is RECOVER, the answer ACKRECOVER (`order.messages`), because a copy is a frame in a recovery buffer `B`:
a member that has it there can give it to everybody else. A digest cannot answer this. It covers what a member has
delivered *or given up*, and not what it holds back. The price: each answer brings the frame back once.

1. The publisher is the first copy. It asks as many others as are missing, at random, at once.
2. It asks again every `time_to_recover`, one more than are missing, until enough hold the frame or `patience` is over.
3. A count belongs to one caller (`token`) and covers all frames of its call: the frame with the fewest copies decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from whence.core.clock import AnyFrame, MemberId
from whence.core.order.config import OrderConfig
from whence.core.order.messages import AckRecover, AnySpan, Recover
from whence.core.order.outputs import Copied, OrderOutput, OrderSend

MAX_COUNTS = 4096
"""Calls that wait for copies at a time. A further one is told at once that it cannot be counted."""
MAX_QUESTIONS = 4096
"""Questions whose answers are still taken."""


class _Count:
    """One caller's frames."""

    __slots__ = ("again", "copies", "holders", "next_at", "over_at", "spans")

    def __init__(self, frames: Sequence[AnyFrame], copies: int, now: int, patience: int) -> None:
        self.copies = copies
        self.spans: dict[Any, AnySpan] = {frame.key: (*frame.key, frame.upto) for frame in frames}
        self.holders: dict[Any, dict[MemberId, None]] = {frame.key: {} for frame in frames}
        self.again = False
        self.next_at = now
        self.over_at = now + patience

    @property
    def held(self) -> int:
        """Copies of the frame that has the fewest, the publisher's among them."""
        return 1 + min(map(len, self.holders.values()))


class Copies:
    """All counts of one member."""

    def __init__(self, config: OrderConfig, rng: random.Random, sample: Callable[[int], Sequence[MemberId]]) -> None:
        self._config = config
        self._rng = rng
        self._sample = sample
        self._counts: dict[int, _Count] = {}
        self._questions: dict[int, int] = {}  # nonce -> token
        self.next_at: int | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, token: int, frames: Sequence[AnyFrame], copies: int, patience: int, now: int) -> list[OrderOutput]:
        """Begin to count; a `Copied` with this token says how it ends."""
        if copies <= 1 or not frames or len(self._counts) >= MAX_COUNTS:
            return [Copied(token, int(bool(frames)), bool(frames) and copies <= 1)]
        self._counts[token] = _Count(frames, copies, now, patience)
        return self.wake(now)

    def wake(self, now: int) -> list[OrderOutput]:
        """End what is over, ask for what is due."""
        out: list[OrderOutput] = []
        for token, count in list(self._counts.items()):
            if count.over_at <= now:
                self._end(token, False, out)
            elif count.next_at <= now:
                self._ask(token, count, now, out)
        self._set_timer()
        return out

    def answered(self, sender: MemberId, message: AckRecover) -> list[OrderOutput] | None:
        """What an answer says of copies; None: it answers another question."""
        token = self._questions.get(message.nonce)
        if token is None:
            return None
        out: list[OrderOutput] = []
        count = self._counts.get(token)
        if count is not None:
            for frame in message.frames:
                if frame.key in count.holders:
                    count.holders[frame.key][sender] = None
            if count.held >= count.copies:
                self._end(token, True, out)
                self._set_timer()
        return out

    def _ask(self, token: int, count: _Count, now: int, out: list[OrderOutput]) -> None:
        """Rules 1 and 2. A member is asked only for what it is not known to hold."""
        missing = count.copies - count.held
        most = max(map(len, count.holders.values()))
        asked = 0
        for peer in self._sample(missing + most + 1):
            spans = [span for key, span in count.spans.items() if peer not in count.holders[key]]
            if not spans or asked >= missing + count.again:
                continue
            asked += 1
            for start in range(0, len(spans), self._config.max_ranges):
                nonce = self._rng.getrandbits(48)
                self._questions[nonce] = token
                out.append(OrderSend(peer, Recover.of(nonce, spans[start : start + self._config.max_ranges])))
        while len(self._questions) > MAX_QUESTIONS:
            del self._questions[next(iter(self._questions))]
        count.again = True
        count.next_at = min(now + self._config.time_to_recover_ns, count.over_at)

    def _end(self, token: int, enough: bool, out: list[OrderOutput]) -> None:
        out.append(Copied(token, self._counts.pop(token).held, enough))

    def _set_timer(self) -> None:
        self.next_at = min((min(c.next_at, c.over_at) for c in self._counts.values()), default=None)
