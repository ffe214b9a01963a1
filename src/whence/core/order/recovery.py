"""`B`, the recovery buffer: frames that this member can give to others (CCC11 Algorithm 5).

Whom to ask for missing events, and when (CCC11 Algorithm 5, `time_to_terminate` over).

Departs from the paper in the unit: a **pursuit** follows one tenure of a ticket (without tickets, one owner's frames)
and asks for ranges, not single ids. It asks once per id where the order may skip. It retries with backoff where the
order may not skip (`reliable`), or where no later event would show the loss (the silent tail).

How many members hold a frame: what `publish(..., copies=k)` waits for.

The question is RECOVER, the answer ACKRECOVER (`order.messages`), because a copy is a frame in a recovery buffer `B`:
a member that has it there can give it to everybody else. A digest cannot answer this. It covers what a member has
delivered *or given up*, and not what it holds back. The price: each answer brings the frame back once.

1. The publisher is the first copy. It asks as many others as are missing, at random, at once.
2. It asks again every `time_to_recover`, one more than are missing, until enough hold the frame or `patience` is over.
3. A count belongs to one caller (`token`) and covers all frames of its call: the frame with the fewest copies decides.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Reversible, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum
from typing import Any, Generic, TypeVar

from whence.core.clock import AnyFrame, MemberId, Send, address_of
from whence.core.clock.bounds import keep_last, need
from whence.core.order.config import OrderConfig
from whence.core.order.messages import AckRecover, AnySpan, Recover
from whence.core.order.outputs import Asked, Copied, OrderOutput

O = TypeVar("O", int, str)  # noqa: E741
"""What a count of events belongs to: a ticket, or (where there are none) an owner."""
F = TypeVar("F", bound=AnyFrame)

Count = tuple[O, int]
"""What is counted: `(ticket, incarnation)`, or without tickets `(owner, 0)`."""
FrameKey = tuple[O, int, int]
"""A frame by its count and where it begins there."""
Span = tuple[O, int, int, int]
"""A count, first and last: a range of its events, or of the owner's frames."""


OWN_FRAMES, OWN_BYTES = 256, 256 << 10
"""The last frames of a process, which may not have reached anybody else: it spreads them again after a restart."""
KEPT_FRAMES, KEPT_BYTES = 1024, 1 << 20
"""What of `B` is kept on disk."""
GIVEN_FRAMES, GIVEN_BYTES = 256, 256 << 10
"""What of `B` is handed over to a joiner, and to others when a member leaves: one message holds it."""


def newest(frames: Reversible[AnyFrame], most: int, size: int, home: str | None = None) -> tuple[AnyFrame, ...]:
    """The last of these frames, oldest first, within two bounds. `home`: only those of the process at this address, of
    its earlier lives, too: a second crash must not lose what the first one left unsent."""
    found: list[AnyFrame] = []
    for frame in reversed(frames):
        if home is not None and address_of(frame.owner) != home:
            continue
        size -= frame.size
        if len(found) >= most or size < 0:
            break
        found.append(frame)
    return tuple(found[::-1])


class RecoveryBuffer(Generic[O, F]):
    """Bounded in frames and in bytes. Finds a frame by key, and all frames of a range. When it is full the first that
    came leaves; of an `aging` one the oldest by age (hops made, and rounds since), as CCC11 section 5.2 proposes."""

    def __init__(self, frames: int, size: int, aging: bool = False) -> None:
        self.bound = frames
        self.bound_bytes = size
        self.bytes = 0
        self.evicted = 0
        self._frames: dict[FrameKey[O], tuple[F, int]] = {}
        self._tenures: dict[Count[O], list[int]] = {}  # where its frames begin, ascending
        self._order: deque[FrameKey[O]] = deque()  # to find the first of a dict takes as long as it had keys before it
        self._by_age: list[tuple[int, FrameKey[O]]] | None = [] if aging else None  # a heap, one entry for each frame

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: FrameKey[O]) -> bool:
        return key in self._frames

    def __iter__(self) -> Iterator[F]:
        return (frame for frame, _ in self._frames.values())

    def __reversed__(self) -> Iterator[F]:
        return (frame for frame, _ in reversed(self._frames.values()))

    def add(self, key: FrameKey[O], frame: F, born: int = 0) -> bool:
        """Insert; when full, others are evicted. `born`: when the frame was published, about. Returns whether it is
        new here."""
        if key in self._frames:
            return False
        size = frame.size
        self._frames[key] = (frame, size)
        insort(self._tenures.setdefault(key[:2], []), key[2])
        self.bytes += size
        if self._by_age is None:
            self._order.append(key)
        else:
            heapq.heappush(self._by_age, (born, key))
        while len(self._frames) > self.bound or self.bytes > self.bound_bytes:
            self._remove(self._victim())
            self.evicted += 1
        return True

    def room(self, size: int) -> bool:
        """A frame of this size fits, and none has to leave for it."""
        return len(self._frames) < self.bound and self.bytes + size <= self.bound_bytes

    def _victim(self) -> FrameKey[O]:
        """What leaves a full buffer, to be removed."""
        return self._order.popleft() if self._by_age is None else heapq.heappop(self._by_age)[1]

    def _remove(self, key: FrameKey[O]) -> None:
        self.bytes -= self._frames.pop(key)[1]
        tenure = self._tenures[key[:2]]
        del tenure[bisect_left(tenure, key[2])]
        if not tenure:
            del self._tenures[key[:2]]

    def find(self, wanted: Span[O]) -> list[F]:
        """The frames that hold an event of the range, in order."""
        of, inc, first, last = wanted
        tenure = self._tenures.get((of, inc), [])
        begin = max(0, bisect_right(tenure, first) - 1)
        found = (self._frames[of, inc, s][0] for s in tenure[begin : bisect_right(tenure, last)])
        return [frame for frame in found if frame.upto >= first]


def needed_rounds(prcast_rounds: float, time_to_terminate: float, time_to_recover: float) -> float:
    """`T`, in rounds: how long an event may be needed: one PrCast to spread, one to be missed, and the two waits."""
    return 2 * prcast_rounds + time_to_terminate + time_to_recover


def buffer_size(publish_probabilities: Iterable[float], rounds: float) -> int:
    """`|B| >= 2 mu T` with `mu = sum p_i` (CCC11 Theorem 5.1, general form): events that the recovery buffer must hold.
    What the theorem promises is in `lab/paper/ccc11/theorems.py`."""
    mu = fsum(publish_probabilities)
    need(mu >= 0 and rounds >= 0, "buffer_size: probabilities and rounds must not be negative")
    return max(1, ceil(2 * mu * rounds - 1e-9))  # not one more for a rounding error


MAX_PURSUITS = 4096
MAX_TOLD = 256
"""Of those, pursuits of what only one peer's digests speak of: it may have made them up. They also make room for what
a frame in hand waits for."""
MAX_NONCES = 1024
MAX_HOLDERS = 4
MAX_BACKOFF = 8
SILENCE = 2
"""Times `abandon_ns` after which a member that has not answered counts as one that has said no."""


@dataclass(slots=True)
class Pursuit:
    """The missing events of one tenure: how far they are wanted, who was asked, who said no."""

    since: int  # `first` is the first of them
    next_at: int
    upto: int
    teller: MemberId | None  # whose digest spoke of it first
    tail: bool  # nothing in hand waits for it: only a digest speaks of it
    first: int = 0
    asked_upto: int = 0
    attempts: int = 0
    asked: dict[MemberId, int] = field(default_factory=dict)
    denied: dict[MemberId, int] = field(default_factory=dict)  # and when
    holders: dict[MemberId, None] = field(default_factory=dict)


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
        self.blocking = config.blocking
        self.by_count: dict[Count[O], Pursuit] = {}
        self._told: dict[MemberId, dict[Count[O], None]] = {}  # of each peer, what only its digests speak of
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
            pursuit = self.by_count[ticket, inc] = Pursuit(now, soon, upto, holder, holder is not None)
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
            keep_last(pursuit.holders, MAX_HOLDERS)
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
            if ranges[0][2] != pursuit.first:  # an answer, or gossip, has brought what was before it
                pursuit.first, pursuit.since, pursuit.attempts = ranges[0][2], now, 0
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

    def compare(self, ranges: Sequence[Span[O]]) -> list[OrderOutput]:
        """An anti-entropy: ask some members for all that they hold of these."""
        message = Recover(self._nonce(), tuple(ranges[: self.config.max_ranges]))
        targets = self.sample(self.config.k) if ranges and self.config.recovery != "off" else ()
        return [Send(peer, message) for peer in targets]

    def _nonce(self) -> int:
        nonce = self.rng.getrandbits(48)
        self.nonces[nonce] = None
        keep_last(self.nonces, MAX_NONCES)
        return nonce

    def _send(self, targets: tuple[MemberId, ...], ranges: list[Span[O]], out: list[OrderOutput]) -> None:
        for start in range(0, len(ranges), self.config.max_ranges):
            part = tuple(ranges[start : start + self.config.max_ranges])
            out.append(Asked(part, targets))
            message = Recover(self._nonce(), part)
            out.extend(Send(peer, message) for peer in targets)

    def progress(self, ticket: O, inc: int, now: int) -> None:
        """An answer brought something: where retries are allowed, ask for the rest soon."""
        pursuit = self.by_count.get((ticket, inc))
        if pursuit is not None and (self.blocking or pursuit.tail):
            pursuit.next_at = min(pursuit.next_at, now + self.config.time_to_recover_ns // 4)
            self.next_at = min(self.next_at or pursuit.next_at, pursuit.next_at)

    def denied(self, peer: MemberId, ranges: Sequence[AnySpan], now: int) -> None:
        """A peer holds nothing of these."""
        for ticket, inc, _, _ in ranges:
            pursuit = self.by_count.get((ticket, inc))  # type: ignore[arg-type]  # of another kind: none
            if pursuit is not None and len(pursuit.denied) < MAX_PURSUITS:
                pursuit.denied[peer] = now

    def hopeless(self, now: int, members: Sequence[MemberId]) -> list[Count[O]]:
        """`reliable`: tenures that have been asked for long enough and that every known member has denied to hold, or
        nobody has given for `SILENCE` times as long. The source counts as gone once it is no longer a member."""
        if not self.blocking:
            return []
        return [
            tenure
            for tenure, p in self.by_count.items()
            if p.attempts > 2
            and now - p.since >= self.config.abandon_ns
            and (
                now - p.since >= SILENCE * self.config.abandon_ns
                or all(now - p.denied.get(m, -self.config.abandon_ns) < self.config.abandon_ns for m in members)
            )
        ]


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
                out.append(Send(peer, Recover(nonce, tuple(spans[start : start + self._config.max_ranges]))))
        keep_last(self._questions, MAX_QUESTIONS)
        count.again = True
        count.next_at = min(now + self._config.time_to_recover_ns, count.over_at)

    def _end(self, token: int, enough: bool, out: list[OrderOutput]) -> None:
        out.append(Copied(token, self._counts.pop(token).held, enough))

    def _set_timer(self) -> None:
        self.next_at = min((min(c.next_at, c.over_at) for c in self._counts.values()), default=None)
