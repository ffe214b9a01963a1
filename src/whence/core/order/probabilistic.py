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

The delivery engine of a cluster without tickets: `probabilistic`, and beside it `fifo` and `unordered` (PCO17).

The paper assumes a reliable broadcast. Gossip loses, so there are two steps:

1. **Taking.** An owner numbers its frames, and they are taken in that order, which shows duplicates and gaps. A gap is
   recovered (`recovery.py`); a digest of the owners' last numbers shows lost last frames, too. After `time_to_terminate
   + time_to_recover` a gap is skipped: it counts as delivered, with its owner's keys, or the counts would stay short
   and block everything after it. (Departs from the paper: frames of one owner are in order, without errors between
   them.)
2. **Delivering.** A taken frame goes through the paper's queue (`clock.probabilistic.Pending`), generation by
   generation (`Generations`). After twice that time it is delivered anyhow, after all that waits and precedes it,
   over counts that are raised (`Generations`, rule 5).

======================  ===========  ====  =============
question                unordered    fifo  probabilistic
======================  ===========  ====  =============
delivered when          received     taken counts suffice
alerts                  no           no    Algorithms 4, 5
======================  ===========  ====  =============

An alert of Algorithm 5 starts an anti-entropy (PCO17 4.2), at most one in `time_to_terminate`: the frame came late, so
others may be late, too. `k` members are asked for what they hold beyond all that is taken here.

Members of the weaker orders stamp with the highest vector that they have seen, so that others can order by it. At most
`MAX_OWNERS` owners are remembered; those silent longest and not in the view are forgotten first. Once one was
forgotten, the missing frames of an owner that seems new are skipped without counting them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from operator import sub

from whence.core.clock import GENESIS, FreeFrame, MemberId, Packed, are_keys
from whence.core.clock.bounds import earliest
from whence.core.clock.event import encode
from whence.core.clock.probabilistic import (
    Alerts,
    Delivery,
    Keys,
    Pending,
    ProbabilisticClock,
    Stamp,
    Watch,
    even_keys,
    keys_of,
    least_used,
)
from whence.core.order.contract import MAX_ENTRIES, Contract, Overseer
from whence.core.order.layer import MAX_GIVEN_UP, MAX_OWNERS, Cursor, OrderContext, OwnersLayer
from whence.core.order.messages import AnySpan, FreeState, GenerationState, OrderState, OwnerState
from whence.core.order.outputs import Blocked, GaveUp, Moved, OrderOutput
from whence.core.order.recovery import FrameKey
from whence.errors import AbsurdClock, BadFrame, BadMessage, UsageError

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
        self.K = K  # keys a frame; 0 while only known from others' dependencies
        self.total = 0  # frames counted, whatever their keys
        self.owed = [0] * R  # of each count, how much was raised
        self.level = [0] * R  # up to which value of each count a late frame may be one of those
        self.past = [0] * R
        """The highest of all stamps delivered: what a member of a weak order depends on, in order or not."""
        self.names: deque[str] = deque(maxlen=memory)  # of the frames in `L`
        self.changed = 0  # when a count rose last
        self.version = 0  # how often one did

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


MAX_COUNT = 1 << 62
"""A count in a snapshot; more would not fit on the wire for long."""
MAX_AHEAD = 1 << 16
"""Generations that a frame may be ahead of ours."""


class KeyCursor(Cursor):
    """With what is needed to count frames that are given up."""

    __slots__ = ("generation", "keys", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        self.opened = 1
        self.keys: Keys = ()
        self.early: dict[int, Held] = {}

    def follow(self, frame: FreeFrame) -> None:
        """The owner's next frame is taken."""
        self.taken = frame.number
        self.generation, self.opened, self.keys = frame.generation, frame.opened, frame.keys

    @classmethod
    def of(cls, row: OwnerState) -> KeyCursor:
        cursor = cls()
        cursor.taken, cursor.generation, cursor.opened, cursor.keys = row.taken, row.generation, row.opened, row.keys
        return cursor


REPAIR = 64
"""Frames of one owner that an anti-entropy asks for."""
MAX_WAITING_BYTES = 1 << 20
"""Frames in a snapshot; what does not fit the joiner recovers."""


class ProbabilisticOrdering(OwnersLayer[FreeFrame, KeyCursor]):
    """The order layer of one member of a cluster with (N, R, K) clocks."""

    frame_type = FreeFrame
    new_cursor = KeyCursor

    def __init__(self, context: OrderContext) -> None:
        super().__init__(context)
        config, rng = self.config, self.rng
        assert config.contract is not None
        self.contract: Contract = config.contract
        self.early = config.order == "unordered"
        self.weak = config.order in ("unordered", "fifo")
        self.queue = Generations(*self.contract.size, self.contract.lookback)
        self.draw: Callable[[int, int], Keys] = lambda R, K: keys_of(rng, R, K)
        if self.contract.assignment == "even":
            self.draw = self._even
        self.place: int | None = None  # among the founders
        self._repair_at = 0
        self.keys: Keys = ()
        self.held: dict[FrameKey[str], Held] = {}
        self.number = 0
        self.opened = 1
        self._said: dict[int, int] = {}  # older generation -> its version when it was last attached
        self._ahead: dict[FrameKey[str], bool] = {}
        self._settle = 4 * self._patience
        self.overseer = Overseer(self.contract, rng, self._patience)

    def found(self, others: Sequence[MemberId]) -> None:
        self.place = sorted({self.me, *others}).index(self.me)

    def _even(self, R: int, K: int) -> Keys:
        current = self.queue.current.id
        taken = [c.keys for c in self.cursors.values() if c.generation == current]
        if self.place is not None and not any(taken):
            return even_keys(self.place, R, K)
        return least_used(self.rng, R, K, taken)

    # -- publish ------------------------------------------------------------------------------------------------

    def _stamp(self, payloads: list[bytes], now: int, tenure: tuple[int, int] | None) -> FreeFrame:
        """PCO17 Algorithm 1: count the frame and stamp it."""
        first = self._next_seq(payloads)
        self.queue.now = now
        clock = self.queue.current
        clock.stamp(self.keys)
        clock.total += 1
        clock.rose(now)
        if self.weak:
            clock.past = [p + (x in self.keys) for x, p in enumerate(clock.past)]
        self.number += 1
        return FreeFrame(
            owner=self.me,
            number=self.number,
            first=first,
            count=len(payloads),
            generation=clock.id,
            opened=self.opened,
            keys=self.keys,
            vector=self._present(clock),
            body=encode(payloads),
            older=self._older(clock.id, now),
        )

    def _deliver_own(self, frame: FreeFrame, now: int, out: list[OrderOutput]) -> None:
        self.seq = frame.last
        self._cursor(self.me).follow(frame)
        self._give(frame, False, out)
        if not self.weak:
            self._delivered(self.queue.retry(), out)

    def _present(self, clock: GenerationClock) -> Packed:
        """The vector to stamp with. A weak order has gaps in what it delivered: it names the highest it has seen."""
        return Packed.of(list(map(max, clock.V, clock.past)) if self.weak else clock.V)

    def _older(self, current: int, now: int) -> tuple[tuple[int, Packed], ...]:
        """Generations, rule 4."""
        found = []
        for generation, clock in sorted(self.queue.clocks.items()):
            if generation < current and clock.version:
                if self._said.get(generation) != clock.version or now - clock.changed < self._settle:
                    found.append((generation, self._present(clock)))
                self._said[generation] = clock.version
        return tuple(found)

    # -- receive ------------------------------------------------------------------------------------------------

    def _vet(self, frame: FreeFrame, sender: MemberId) -> None:
        if frame.vector.R > MAX_ENTRIES:
            raise BadFrame(f"a vector of {frame.vector.R} entries")
        stamp = frame.vector.vector()
        own = frame.number - frame.opened + 1
        if any(stamp[x] < own for x in frame.keys):
            raise BadFrame(f"a vector that does not count its owner's own {own} frames")
        if not self.joining:
            self._check_against(frame, stamp)

    def _check_against(self, frame: FreeFrame, stamp: Stamp) -> None:
        """What needs clocks to judge by."""
        queue = self.queue
        clock = queue.clocks.get(frame.generation)
        if clock is not None:
            if len(stamp) != clock.R or clock.K not in (0, len(frame.keys)):
                raise BadFrame(f"(R, K) = ({len(stamp)}, {len(frame.keys)}) in a generation of ({clock.R}, {clock.K})")
            ahead = max(map(sub, stamp, clock.V))
        else:
            if (frame.generation >> 32) - (queue.current.id >> 32) > MAX_AHEAD:
                raise AbsurdClock(f"generation {frame.generation >> 32} is far beyond {queue.current.id >> 32}")
            ahead = max(stamp)
        cursor = self.cursors.get(frame.owner)
        ahead = max(ahead, frame.number - (cursor.taken if cursor is not None else 0))
        if ahead > self.config.max_jump:
            raise AbsurdClock(f"frame {frame.number} of {frame.owner} is {ahead} frames ahead of all known")
        for generation, packed in frame.older:
            older = queue.clocks.get(generation)
            if older is not None and older.R != packed.R:
                raise BadFrame(f"a vector of {packed.R} entries of a generation of {older.R}")

    def _receive(
        self, frame: FreeFrame, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]
    ) -> None:
        self.queue.now = now
        key = frame.key
        cursor = self.cursors.get(frame.owner)
        taken = cursor.taken if cursor is not None else 0
        if frame.owner == self.me or frame.number <= taken or key in self.held:
            self._obsolete(frame, sender, age, recovered, out)
            return
        if key not in self.buffer:
            self._arrived(frame, sender, age, recovered, out)
            if recovered:
                self.stats.recovered += frame.count
        clock = self._learn(frame, out)
        cursor = self._cursor(frame.owner)
        held = Held(frame)
        lag = 0.0 if clock is None else clock.total + 1 - sum(held.stamp) / len(held.keys)
        held.handed = self._ahead.pop(key, False)
        if self.early and not held.handed:
            held.handed = True
            self._hand_up(held, False, 0, out)
        if frame.number == cursor.taken + 1:
            self._take(cursor, held, False, out)
            self._take_early(cursor, out)
        else:
            cursor.early[frame.number] = held
            self._hold(key, held, self._patience, out)
            self.pursuits.want(frame.owner, 0, frame.number - 1, now, at_once=recovered)
        if not recovered and clock is not None and clock is self.queue.current:
            self.overseer.gauge.arrived(lag, key in self.held)

    def _late(self, frame: FreeFrame, out: list[OrderOutput]) -> None:
        if self.early and not self._ahead.pop(frame.key, False):
            self._hand_up(Held(frame), False, 0, out)
        else:
            super()._late(frame, out)

    def _learn(self, frame: FreeFrame, out: list[OrderOutput]) -> GenerationClock | None:
        """The frame's clock; a higher generation is entered at once (generations, rule 1). None: it is too old."""
        before = self.queue.current
        clock = self.queue.known(frame.generation, frame.vector.R, len(frame.keys))
        if self.queue.current is not before:
            self._enter(False, out)
        return clock

    def _enter(self, own: bool, out: list[OrderOutput]) -> None:
        clock = self.queue.current
        self.keys = self.draw(clock.R, clock.K)
        self.opened = self.number + 1
        self.overseer.moved()
        self.stats.moves += 1
        out.append(Moved(clock.id, clock.R, clock.K, own))

    # -- taking -------------------------------------------------------------------------------------------------

    def _take(self, cursor: KeyCursor, held: Held, over_gap: bool, out: list[OrderOutput]) -> None:
        """The owner's next frame: on to the paper's queue."""
        cursor.follow(held.frame)
        if not self.weak:
            done = self.queue.receive(held)
            if done:
                self._delivered(done, out, over_gap)
            else:
                self._hold(held.frame.key, held, 2 * self._patience, out)
            return
        self._release(held.frame.key)
        self.queue.deliver(held)
        if not held.handed:
            self._hand_up(held, over_gap, 0, out)

    def _take_early(self, cursor: KeyCursor, out: list[OrderOutput], over_gap: bool = False) -> None:
        while (held := cursor.early.pop(cursor.taken + 1, None)) is not None:
            self._release(held.frame.key)
            self._take(cursor, held, over_gap, out)

    def _skip_to(self, owner: MemberId, number: int, reason: str, out: list[OrderOutput]) -> None:
        """Take the owner's frame `number`, and what is in hand before it, over the gaps."""
        cursor = self.cursors[owner]
        for at in sorted(n for n in cursor.early if n <= number):
            if at <= cursor.taken:
                continue
            gap = at > cursor.taken + 1
            if gap:
                self._give_up(owner, cursor, cursor.early[at].frame, reason, out)
            cursor.taken = at - 1
            self._take_early(cursor, out, gap)

    def _give_up(
        self, owner: MemberId, cursor: KeyCursor, follower: FreeFrame, reason: str, out: list[OrderOutput]
    ) -> None:
        """Count the frames before `follower` as if they were delivered: with its keys, or, from before it entered its
        generation, with those the owner had before."""
        first, last = cursor.taken + 1, follower.number - 1
        self._note_given_up([(owner, 0, first, last)], reason, out)
        if not cursor.keys and self.stats.forgotten:
            return  # perhaps they were counted long ago
        later = max(0, last - max(first, follower.opened) + 1)
        for generation, keys, frames in (
            (cursor.generation, cursor.keys, last - first + 1 - later),
            (follower.generation, follower.keys, later),
        ):
            clock = self.queue.clocks.get(generation)
            if frames and keys and clock is not None:
                clock.give_up(keys, frames)
                clock.rose(self.queue.now)
        if not self.weak:
            self._delivered(self.queue.retry(), out, True)

    # -- delivering ---------------------------------------------------------------------------------------------

    def _delivered(self, done: list[Delivery[Held]], out: list[OrderOutput], over_gap: bool = False) -> None:
        for held, alerts in done:
            self._release(held.frame.key)
            alert = 5 if alerts.witnessed else 4 if alerts.covered else 0
            self.stats.alerts_covered += alerts.covered
            if alerts.witnessed:
                self.stats.alerts_witnessed += 1
                if held.frame.generation == self.queue.current.id:
                    self.overseer.gauge.alerted()
            if not held.handed:
                self._hand_up(held, over_gap, alert, out)
            if alert == 5 and self.contract.repair and self.queue.now >= self._repair_at:
                self._repair(out)

    def _repair(self, out: list[OrderOutput]) -> None:
        """Of the owners that moved last, since what is late is of the last propagation time."""
        self._repair_at = self.queue.now + self.config.time_to_terminate_ns
        newest = islice(reversed(self.cursors.items()), self.config.max_ranges)
        self.stats.repairs += 1
        out += self.pursuits.compare([(o, 0, c.taken + 1, c.taken + REPAIR) for o, c in newest if o != self.me])

    def _hand_up(self, held: Held, over_gap: bool, alert: int, out: list[OrderOutput]) -> None:
        if self.weak:
            self.queue.depend(held)
        self._give(held.frame, over_gap, out, alert, held.suspects if alert else ())

    def _force(self, held: Held, reason: str, out: list[OrderOutput]) -> None:
        """It has waited long enough: everything in hand that precedes it, then it, over raised counts."""
        for one in [*self.queue.before(held), held]:
            if one.frame.key not in self.held:  # set free by one before it
                continue
            self.queue.remove(one)
            lacking = self.queue.lift(one)
            if lacking:
                self.stats.raised += 1
                self.stats.skipped += lacking
                out.append(GaveUp((("", 0, 1, lacking),), reason))
            self._delivered([self.queue.deliver(one)], out, bool(lacking))
        self._delivered(self.queue.retry(), out, True)

    def _hold(self, key: FrameKey[str], held: Held, patience: int, out: list[OrderOutput]) -> None:
        now = self.queue.now
        self.held[key] = held
        self.held_bytes += held.frame.size
        held.until = now + patience
        self._set_deadline(held.until, key)
        while len(self.held) > self.config.hold or self.held_bytes > self.config.hold_bytes:
            self.stats.overflow_frames += 1
            self._go_on(next(iter(self.held)), "overflow", out)
        self.stats.held_peak = max(self.stats.held_peak, len(self.held))

    def _release(self, key: FrameKey[str]) -> None:
        held = self.held.pop(key, None)
        if held is not None:
            self.held_bytes -= held.frame.size

    def _go_on(self, key: FrameKey[str], reason: str, out: list[OrderOutput]) -> None:
        """A held frame has waited long enough, or there is no room for it."""
        held = self.held[key]
        if self._is_early(held):
            self._skip_to(held.frame.owner, held.frame.number, reason, out)
        else:
            self._force(held, reason, out)

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        return None if self.joining else earliest(super().wake_at, self.overseer.wake_at)

    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        self.queue.now = now
        self._ask(now, out)
        for key in self._overdue(now):
            if self.held[key].until <= now:
                self._go_on(key, "timeout", out)
        clock = self.queue.current
        said, size = self.overseer.look(clock.R, clock.K, now)
        if said is not None:
            out.append(said)
        if size is not None:
            out.extend(self.move(*size, now))

    def _is_early(self, held: Held) -> bool:
        cursor = self.cursors.get(held.frame.owner)
        return cursor is not None and held.frame.number in cursor.early

    def move(self, R: int, K: int, now: int) -> list[OrderOutput]:
        if not 1 <= K <= R <= MAX_ENTRIES:
            raise UsageError(f"K = {K} keys of R = {R} entries: want 1 <= K <= R <= {MAX_ENTRIES}")
        out: list[OrderOutput] = []
        if self.joining:
            raise UsageError("this member has not joined yet")
        number = (self.queue.current.id >> 32) + 1
        self.queue.known(number << 32 | self.rng.getrandbits(32), R, K)
        self._enter(True, out)
        return out

    # -- state --------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> list[OrderOutput]:
        out: list[OrderOutput] = []
        self.queue.now = now
        self.keys = self.draw(self.queue.current.R, self.queue.current.K)
        self.overseer.begin(now)
        for cursor in self.cursors.values() if self.weak else ():
            for held in cursor.early.values():
                held.handed = self._ahead.pop(held.frame.key, False)
            self._take_early(cursor, out)
        self._delivered(self.queue.retry(), out)
        self._open_lobby(now, out)
        return out

    def state(self) -> FreeState:
        waiting: list[FreeFrame] = []
        cut: dict[MemberId, int] = {}
        size = 0
        for held in self.queue.messages():
            size += held.frame.size
            if size > MAX_WAITING_BYTES or held.frame.owner in cut:
                cut.setdefault(held.frame.owner, held.frame.number - 1)
            else:
                waiting.append(held.frame)
        owners = tuple(
            OwnerState(owner, cut.get(owner, c.taken), c.generation, c.opened, c.keys)
            for owner, c in self.cursors.items()
        )
        handed = [h.frame for h in self.held.values() if h.handed]
        ahead: list[AnySpan] = [(f.owner, 0, f.number, f.number) for f in handed]
        return FreeState(
            tuple(c.state() for c in self.queue.clocks.values()),
            owners,
            tuple(waiting),
            tuple(ahead[:MAX_GIVEN_UP]),
            self.stats.forgotten,
        )

    def load(self, state: OrderState, now: int) -> None:
        if not isinstance(state, FreeState):
            raise BadMessage(f"the state of a cluster with {state.kind}, in one without tickets")
        self._check_state(state)
        self.queue.now = now
        self.queue.load(state.generations)
        self.cursors = {row.owner: KeyCursor.of(row) for row in state.owners}
        self.stats.forgotten = state.forgotten
        ahead = ((str(of), 0, n) for of, _, a, b in state.ahead for n in range(a, b + 1))
        self._ahead = dict.fromkeys(islice(ahead, self.config.hold), True)
        for frame in state.waiting:
            held = Held(frame)
            self.buffer.add(frame.key, frame)
            if self.weak:  # it waits for no cause, only for the owner's frames before: `begin` takes it
                cursor = self._cursor(frame.owner)
                cursor.taken = min(cursor.taken, frame.number - 1)
                cursor.early[frame.number] = held
                continue
            self.queue.queue(held)
            self._hold(frame.key, held, 2 * self._patience, [])

    def _check_state(self, state: FreeState) -> None:
        """Raise a `BadMessage` for a snapshot that contradicts itself: its counts are indexed by its keys."""
        R = {g.generation: g.V.R for g in state.generations}
        for g in state.generations:
            vectors = [g.V] if g.past is None else [g.V, g.past]
            if not all(v.well_formed and v.R == g.V.R for v in vectors) or g.K > g.V.R:
                raise BadMessage(f"a generation of {g.V.R} entries and {g.K} keys whose vectors are not of that size")
        if not any(g.K for g in state.generations) or any(max(g.V.vector()) >= MAX_COUNT for g in state.generations):
            raise BadMessage("a clock without keys, or with counts beyond all measure")
        for row in state.owners:
            size = R.get(row.generation, MAX_ENTRIES)
            if not are_keys(row.keys, size):
                raise BadMessage(f"keys {row.keys[:8]} of {row.owner} in a generation of {size} entries")
        for frame in state.waiting:
            frame.check()
            frame.payloads()
            self._vet(frame, self.me)
            size, own = R.get(frame.generation, 0), frame.vector.R
            if size != own or any(R.get(g, packed.R) != packed.R for g, packed in frame.older):
                raise BadMessage(f"a frame of {own} entries waits in a generation of {size}")

    def _why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        for key, held in self.held.items():
            frame = held.frame
            if frame.owner == owner and frame.first <= seq <= frame.last:
                until = self._until(key)
                if self._is_early(held):
                    gaps = self._gaps(owner, 0, frame.number - 1)
                    return Blocked(event, "held", self._explained(gaps), until)
                return Blocked(event, "held", (), until, self.queue.lacks(held))
        cursor = self.cursors.get(owner)
        taken = [f for f in self.buffer if f.owner == owner and f.first <= seq <= f.last]
        known = bool(taken) and cursor is not None and taken[0].number <= cursor.taken
        return Blocked(event, "delivered" if known or owner == self.me else "unknown")

    @property
    def clock_size(self) -> tuple[int, int] | None:
        return self.queue.current.R, self.queue.current.K

    def measured(self) -> dict[str, float]:
        clock, gauge = self.queue.current, self.overseer.gauge
        return {
            "generation": clock.id >> 32,
            "entries": clock.R,
            "keys": clock.K,
            "frames_seen": gauge.seen,
            "in_flight": gauge.in_flight,
            "p_nc": gauge.p_nc(clock.R, clock.K),
            "error_bound": gauge.bound(clock.R, clock.K),
            "alert_rate": gauge.alert_rate,
            "promise": self.contract.promise,
            "broken": float(gauge.broken),
        }

    def buffers(self) -> dict[str, tuple[int, int]]:
        clocks = (len(self.queue.clocks), MAX_GENERATIONS)
        return super().buffers() | {"owners": (len(self.cursors), MAX_OWNERS), "generations": clocks}
