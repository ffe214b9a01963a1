"""Several (N, R, K) clocks side by side: a cluster moves to other R and K without stopping and without agreement.

1. A **generation** is one choice of R and K, with its own counts from zero. Any member may begin one; its id is
   distinct and higher than all it knows. The highest id wins: a member that sees a frame of a higher generation
   publishes in that one from then on, with new keys.
2. Frames of all generations are delivered, each by the counts of its own. The last `MAX_GENERATIONS` are kept; a frame
   of an older one is delivered at once, with an alert.
3. A frame never depends on a higher generation: its owner would have moved before it delivered such a frame.
4. A frame depends on lower generations by the vectors in its `older`. An owner attaches its vector of a lower
   generation when that has changed since its last frame, and for a while after (else one lost frame would lose the
   dependency). What is not attached one of its earlier frames said, and frames of one owner are taken in order.
5. What a blocked frame lacks can be given up without knowing whose it is: the counts are **raised** to what the frame
   claims, or everything after would wait for ever. The difference is **owed**: a frame that comes late, and is old
   enough to be one of those, is delivered but does not count again.
"""

from __future__ import annotations

from collections import deque

from whence.core.clock import GENESIS, FreeFrame, Packed
from whence.core.clock.probabilistic import Alerts, Delivery, Keys, Pending, ProbabilisticClock, Stamp, Watch
from whence.core.order.messages import GenerationState

MAX_GENERATIONS = 4
MAX_SUSPECTS = 8


class Held:
    """A frame received and not yet delivered, with its vectors decoded once."""

    __slots__ = ("frame", "handed", "keys", "older", "stamp", "suspects", "until")

    def __init__(self, frame: FreeFrame) -> None:
        self.frame = frame
        self.keys: Keys = frame.keys
        self.stamp: Stamp = frame.vector.vector()
        self.older: list[tuple[int, Stamp]] = [(g, packed.vector()) for g, packed in frame.older]
        self.until = 0  # when it is overdue
        self.handed = False  # weak orders: the application has it already
        self.suspects: tuple[str, ...] = ()


class GenerationClock(ProbabilisticClock):
    """The counts of one generation, with what is owed (rule 5)."""

    __slots__ = ("K", "changed", "id", "level", "names", "owed", "past", "total", "version")

    def __init__(self, id: int, R: int, K: int, memory: int) -> None:
        super().__init__(R, memory)
        self.id = id
        self.K = K
        """Keys a frame; 0 while only known from others' dependencies."""
        self.total = 0
        """Frames counted, whatever their keys."""
        self.owed = [0] * R
        """Of each count, how much was raised."""
        self.level = [0] * R
        """Up to which value of each count a late frame may be one of those."""
        self.past = [0] * R
        """The highest of all stamps delivered: what a member of a weak order depends on, in order or not."""
        self.names: deque[str] = deque(maxlen=memory)
        """Of the frames in `L`."""
        self.changed = 0
        """When a count rose last."""
        self.version = 0
        """How often one did."""

    def rose(self, now: int) -> None:
        self.changed = now
        self.version += 1

    def give_up(self, keys: Keys, frames: int) -> None:
        """Count frames that will never be delivered; what was raised for them is paid."""
        for x in keys:
            paid = min(self.owed[x], frames)
            self.owed[x] -= paid
            self.V[x] += frames - paid
        self.total += frames

    def lift(self, need: Stamp, keys: Keys = ()) -> None:
        """Raise the counts to what a frame with these keys and this stamp, or a dependency, needs (rule 5)."""
        for x, value in enumerate(need):
            enough = value - (x in keys)
            if self.V[x] < enough:
                self.owed[x] += enough - self.V[x]
                self.V[x] = enough
                self.level[x] = max(self.level[x], enough)

    def lacks(self, need: Stamp, keys: Keys = ()) -> int:
        """About how many frames are missing before one with this stamp."""
        short = sum(max(0, value - (x in keys) - self.V[x]) for x, value in enumerate(need))
        return -(-short // (self.K or 1))

    def take(self, held: Held) -> Alerts:
        """Deliver a frame: alerts first, then count it, unless it was raised for."""
        keys, stamp = held.keys, held.stamp
        covered = self.covered(keys, stamp)
        if covered:
            held.suspects = tuple(
                name for past, name in zip(self.L, self.names, strict=True) if all(past[x] >= stamp[x] for x in keys)
            )[-MAX_SUSPECTS:]
        for x in keys:
            if self.owed[x] and stamp[x] <= self.level[x]:
                self.owed[x] -= 1
            else:
                self.V[x] += 1
        self.total += 1
        self.witness(stamp, held.frame)
        return Alerts(covered, bool(held.suspects))

    def witness(self, stamp: Stamp, frame: FreeFrame) -> None:
        """Remember that something which depends on this is delivered."""
        self.L.append(stamp)
        self.names.append(f"{frame.owner}/{frame.last}")

    def state(self) -> GenerationState:
        owed, level = (tuple(self.owed), tuple(self.level)) if any(self.owed) else ((), ())
        past = Packed.of(self.past) if any(self.past) else None
        return GenerationState(self.id, self.K, Packed.of(self.V), owed, level, past)


class Generations(Pending[Held]):
    """All clocks of a member, and the one queue in front of them."""

    def __init__(self, R: int, K: int, memory: int) -> None:
        first = GenerationClock(GENESIS, R, K, memory)
        super().__init__(first)
        self.memory = memory
        self.clocks: dict[int, GenerationClock] = {GENESIS: first}
        self.current = first
        self.now = 0

    def known(self, generation: int, R: int, K: int) -> GenerationClock | None:
        """The clock of a generation, made if it is new; None if it is too old. A higher one becomes the current one
        (rule 1), if it is one of frames: `K` is 0 for a mere dependency."""
        clock = self.clocks.get(generation)
        if clock is None:
            if len(self.clocks) >= MAX_GENERATIONS and generation < min(self.clocks):
                return None
            clock = self.clocks[generation] = GenerationClock(generation, R, K, self.memory)
            if len(self.clocks) > MAX_GENERATIONS:
                del self.clocks[min(self.clocks)]
        clock.K = clock.K or K
        if clock.K and generation > self.current.id:
            self.current = clock
        return clock

    def watch(self, message: Held) -> Watch | None:
        """PCO17 Algorithm 2 in the frame's own generation; all of `older` in the others (rule 4)."""
        clock = self.clocks.get(message.frame.generation)
        if clock is None:
            return None  # too old to be judged: delivered at once, with an alert
        watch = clock.watch(message.keys, message.stamp)
        if watch is not None:
            return watch
        for older, need in self._older(message):
            if (watch := older.watch((), need)) is not None:
                return watch
        return None

    def _older(self, message: Held) -> list[tuple[GenerationClock, Stamp]]:
        """The clocks of lower generations that a frame depends on, as far as they are kept, and what it needs of each.
        (A size that is not the generation's own is a lie that was told before anybody could know better.)"""
        found = [(self.known(generation, len(need), 0), need) for generation, need in message.older]
        return [(clock, need) for clock, need in found if clock is not None and len(need) == clock.R]

    def deliver(self, message: Held) -> Delivery[Held]:
        clock = self.clocks.get(message.frame.generation)
        if clock is None:
            alerts = Alerts(True, True)
        else:
            alerts = clock.take(message)
            clock.rose(self.now)
        for older, need in self._older(message):
            older.witness(need, message.frame)
        return Delivery(message, alerts)

    def depend(self, message: Held) -> None:
        """A weak order hands the frame to the application: whatever it publishes depends on it, counted or not."""
        own = self.clocks.get(message.frame.generation)
        for clock, stamp in [*([(own, message.stamp)] if own is not None else []), *self._older(message)]:
            if any(map(int.__gt__, stamp, clock.past)):
                clock.past = list(map(max, clock.past, stamp))
                clock.rose(self.now)

    def lift(self, message: Held) -> int:
        """Raise whatever the frame lacks; about how many frames that were."""
        lacking = self.lacks(message)
        if (clock := self.clocks.get(message.frame.generation)) is not None:
            clock.lift(message.stamp, message.keys)
            clock.rose(self.now)
        for older, need in self._older(message):
            older.lift(need)
            older.rose(self.now)
        return lacking

    def lacks(self, message: Held) -> int:
        """About how many frames are missing before this one."""
        clock = self.clocks.get(message.frame.generation)
        lacking = 0 if clock is None else clock.lacks(message.stamp, message.keys)
        return lacking + sum(older.lacks(need) for older, need in self._older(message))

    def queue(self, message: Held) -> None:
        """It waits, ready or not: what a snapshot brings is delivered when the member begins."""
        self._waiting.append((message, (self.current.V, 0, 0)))

    def load(self, states: tuple[GenerationState, ...]) -> None:
        """Take over the clocks of a snapshot or a checkpoint."""
        self.clocks = {}
        for state in states:
            clock = GenerationClock(state.generation, state.V.R, state.K, self.memory)
            clock.V = list(state.V.vector())
            clock.past = [0] * clock.R if state.past is None else list(state.past.vector())
            clock.total = sum(clock.V) // (state.K or 1)
            clock.version = 1 if any(clock.V) or any(clock.past) else 0
            if len(state.owed) == len(state.level) == clock.R:
                clock.owed, clock.level = list(state.owed), list(state.level)
            self.clocks[state.generation] = clock
        self.current = self.clocks[max((g for g, c in self.clocks.items() if c.K), default=max(self.clocks))]

    def before(self, message: Held) -> list[Held]:
        """What waits here and precedes a frame by its stamps, each after what it depends on itself: sums of stamps are
        a linear extension of causal order within a generation, and no frame depends on a higher one (rule 3)."""
        of, older = message.frame.generation, dict(message.older)
        found = []
        for other in self.messages():
            g = other.frame.generation
            bound = message.stamp if g == of else older.get(g)
            if other is not message and bound is not None and all(map(int.__le__, other.stamp, bound)):
                found.append(other)
        return sorted(found, key=lambda h: (h.frame.generation, sum(h.stamp), h.frame.owner, h.frame.number))
