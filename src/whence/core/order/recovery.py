"""Whom to ask for missing events, and when (CCC11 Algorithm 5, `time_to_terminate` over).

Departs from the paper in the unit: a **pursuit** follows one tenure of a ticket (without tickets, one owner's frames)
and asks for ranges, not single ids. It asks once per id where the order may skip. It retries with backoff where the
order may not skip (`reliable`), or where no later event would show the loss (the silent tail).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Generic

from whence.core.clock import MemberId
from whence.core.order.buffers import Count, O, Span
from whence.core.order.config import OrderConfig
from whence.core.order.messages import Recover
from whence.core.order.outputs import Asked, OrderOutput, OrderSend

MAX_PURSUITS = 4096
MAX_TOLD = 256
"""Of those, pursuits of what only one peer's digests speak of: it may have made them up. They also make room for what
a frame in hand waits for."""
MAX_NONCES = 1024
MAX_HOLDERS = 4
MAX_BACKOFF = 8


class Pursuit:
    """The missing events of one tenure: how far they are wanted, who was asked, who said no."""

    __slots__ = ("asked", "asked_upto", "attempts", "denied", "holders", "next_at", "since", "tail", "teller", "upto")

    def __init__(self, now: int, next_at: int, upto: int, teller: MemberId | None) -> None:
        self.since = now
        self.next_at = next_at
        self.upto = upto
        self.tail = teller is not None
        """Nothing in hand waits for it: only a digest speaks of it."""
        self.teller = teller
        """Whose digest spoke of it first."""
        self.asked_upto = 0
        self.attempts = 0
        self.asked: dict[MemberId, int] = {}
        self.denied: dict[MemberId, int] = {}  # and when
        self.holders: dict[MemberId, None] = {}


class Pursuits(Generic[O]):
    """All pursuits of one member."""

    def __init__(
        self,
        config: OrderConfig,
        rng: random.Random,
        sample: Callable[[int], Sequence[MemberId]],
        owner: Callable[[O, int], MemberId | None],
    ) -> None:
        self.config = config
        self.rng = rng
        self.sample = sample
        self.owner: Callable[[O, int], MemberId | None] = owner
        self.blocking = config.order == "reliable"
        self.by_count: dict[Count[O], Pursuit] = {}
        self._told: dict[MemberId, dict[Count[O], None]] = {}
        """Of each peer, what only its digests speak of."""
        self.nonces: dict[int, None] = {}
        self.next_at: int | None = None
        self.overflow = 0
        self.asked_events = 0

    def want(
        self, ticket: O, inc: int, upto: int, now: int, holder: MemberId | None = None, at_once: bool = False
    ) -> None:
        """Something up to this event is missing. `holder`: a peer whose digest says it has it."""
        if self.config.recovery == "off" or (self.config.once and holder is not None):
            return
        pursuit = self.by_count.get((ticket, inc))
        soon = now if at_once else now + self.config.time_to_terminate_ns
        if pursuit is None:
            if not self._room(holder):
                self.overflow += 1
                return
            pursuit = self.by_count[ticket, inc] = Pursuit(now, soon, upto, holder)
            if holder is not None:
                self._told.setdefault(holder, {})[ticket, inc] = None
        elif upto > pursuit.upto or at_once:
            pursuit.upto = max(upto, pursuit.upto)
            pursuit.next_at = min(pursuit.next_at, soon)
        if holder is None:
            pursuit.tail = False
            self._untell((ticket, inc), pursuit)
        else:
            pursuit.holders.pop(holder, None)
            pursuit.holders[holder] = None
            while len(pursuit.holders) > MAX_HOLDERS:
                del pursuit.holders[next(iter(pursuit.holders))]
        if self.next_at is None or pursuit.next_at < self.next_at:
            self.next_at = pursuit.next_at

    def _room(self, holder: MemberId | None) -> bool:
        """Whether one pursuit more may begin. What a frame waits for comes before what digests speak of."""
        if holder is not None:
            return len(self.by_count) < MAX_PURSUITS and len(self._told.get(holder, ())) < MAX_TOLD
        if len(self.by_count) >= MAX_PURSUITS and self._told:
            most = max(self._told.values(), key=len)
            self.end(next(iter(most)))
            self.overflow += 1
        return len(self.by_count) < MAX_PURSUITS

    def _untell(self, tenure: Count[O], pursuit: Pursuit) -> None:
        if pursuit.teller is not None:
            told = self._told[pursuit.teller]
            del told[tenure]
            if not told:
                del self._told[pursuit.teller]
            pursuit.teller = None

    def end(self, tenure: Count[O]) -> Pursuit:
        """Nothing of the tenure is missing any more, or it is given up."""
        pursuit = self.by_count.pop(tenure)
        self._untell(tenure, pursuit)
        return pursuit

    def due(self, now: int, gaps: Callable[[O, int, int], list[Span[O]]]) -> list[OrderOutput]:
        """Ask for everything whose time has come; `gaps` says what of a tenure is missing and not in hand."""
        out: list[OrderOutput] = []
        asks: dict[tuple[MemberId, ...], list[Span[O]]] = {}
        sampled: Sequence[MemberId] | None = None
        for tenure, pursuit in list(self.by_count.items()):
            if pursuit.next_at > now:
                continue
            ranges = gaps(*tenure, pursuit.upto)
            if not ranges:
                self.end(tenure)
                continue
            ranges, again = self._allowed(pursuit, ranges)
            if not again:
                pursuit.next_at = now + self.config.memory_ns  # nothing left to ask; kept so that it is not asked again
            if not ranges:
                continue
            if sampled is None:
                sampled = self.sample(self.config.k)
            targets = self._targets(tenure, pursuit, sampled)
            if again:
                pause = min(1 << pursuit.attempts, MAX_BACKOFF)
                pursuit.next_at = now + int(self.config.time_to_recover_ns * pause * self.rng.uniform(0.8, 1.2))
            if not targets:
                continue
            pursuit.attempts += 1
            pursuit.asked_upto = max(pursuit.asked_upto, ranges[-1][3])
            for peer in targets:
                pursuit.asked[peer] = now
            self.asked_events += sum(r[3] - r[2] + 1 for r in ranges)
            asks.setdefault(targets, []).extend(ranges)
        for targets, ranges in asks.items():
            self._send(targets, ranges, out)
        self.next_at = min((p.next_at for p in self.by_count.values()), default=None)
        return out

    def _allowed(self, pursuit: Pursuit, ranges: list[Span[O]]) -> tuple[list[Span[O]], bool]:
        """What may be asked now, and whether it may be asked again later."""
        if self.blocking:
            return ranges, True
        if pursuit.tail:
            return (ranges, True) if pursuit.attempts < self.config.tail_attempts else ([], False)
        fresh = [(t, i, max(a, pursuit.asked_upto + 1), b) for t, i, a, b in ranges if b > pursuit.asked_upto]
        return fresh, False

    def _targets(self, tenure: Count[O], pursuit: Pursuit, sampled: Sequence[MemberId]) -> tuple[MemberId, ...]:
        source = self.owner(*tenure)
        chosen: dict[MemberId, None] = {}
        if self.config.once and self.config.recovery == "Rk":
            return tuple(sampled[: self.config.k])
        if self.config.recovery == "R1" and pursuit.attempts == 0 and source is not None:
            return (source,)
        if pursuit.holders:
            chosen[list(pursuit.holders)[-1 - pursuit.attempts % len(pursuit.holders)]] = None
        if pursuit.attempts and source is not None:
            chosen[source] = None
        # beyond the source and the known holder, which may both be dead
        wanted = len(chosen) + (1 if self.config.recovery == "R1" else self.config.k)
        # those who have already said no come last
        for peer in sorted(sampled, key=lambda p: p in pursuit.denied):
            if len(chosen) >= wanted:
                break
            chosen[peer] = None
        return tuple(chosen)

    def _send(self, targets: tuple[MemberId, ...], ranges: list[Span[O]], out: list[OrderOutput]) -> None:
        for start in range(0, len(ranges), self.config.max_ranges):
            part = tuple(ranges[start : start + self.config.max_ranges])
            nonce = self.rng.getrandbits(48)
            self.nonces[nonce] = None
            while len(self.nonces) > MAX_NONCES:
                del self.nonces[next(iter(self.nonces))]
            out.append(Asked(part, targets))
            message = Recover.of(nonce, part)
            out.extend(OrderSend(peer, message) for peer in targets)

    def progress(self, ticket: O, inc: int, now: int) -> None:
        """An answer brought something: where retries are allowed, ask for the rest soon."""
        pursuit = self.by_count.get((ticket, inc))
        if pursuit is not None and (self.blocking or pursuit.tail):
            pursuit.attempts = 0
            pursuit.next_at = min(pursuit.next_at, now + self.config.time_to_recover_ns // 4)
            self.next_at = min(self.next_at or pursuit.next_at, pursuit.next_at)

    def denied(self, peer: MemberId, ranges: Sequence[Span[O]], now: int) -> None:
        """A peer holds nothing of these."""
        for ticket, inc, _, _ in ranges:
            pursuit = self.by_count.get((ticket, inc))
            if pursuit is not None and len(pursuit.denied) < MAX_PURSUITS:
                pursuit.denied[peer] = now

    def hopeless(self, now: int, members: Sequence[MemberId]) -> list[Count[O]]:
        """`reliable`: tenures that have been asked for long enough and that every known member has denied to hold. The
        source counts as gone once it is no longer a member."""
        if not self.blocking:
            return []
        return [
            tenure
            for tenure, p in self.by_count.items()
            if p.attempts > 2
            and now - p.since >= self.config.abandon_ns
            and all(now - p.denied.get(m, -self.config.abandon_ns) < self.config.abandon_ns for m in members)
        ]
