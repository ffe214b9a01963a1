"""The delivery engine of a cluster without tickets: `probabilistic`, and beside it `fifo` and `unordered` (PCO17).

The paper assumes a reliable broadcast. Gossip loses, so two steps stand before the paper's queue:

1. **Taking.** An owner numbers its frames, and they are taken in that order: duplicates fall out, gaps show. What is
   missing is recovered (`recovery.py`); a digest of the owners' last numbers shows lost last frames, too. After
   `time_to_terminate + time_to_recover` a gap is skipped: it counts as delivered, with its owner's keys, or the counts
   would stay short for ever and block everything after it. (That one owner's frames are in order costs nothing, departs
   from the paper, and takes away the errors between them.)
2. **Delivering.** A taken frame goes through the paper's queue (`clock.probabilistic.Pending`), generation by
   generation (`generations.py`). What still waits after twice that time is delivered, after all that waits
   and precedes it, over counts that are raised (`generations.py`, rule 5).

======================  ===========  ====  =============
question                unordered    fifo  probabilistic
======================  ===========  ====  =============
delivered when          received     taken counts suffice
alerts                  no           no    Algorithms 4, 5
======================  ===========  ====  =============

Members of the weaker orders stamp with the highest vector that they have seen, so that the others can order by it.
An owner is remembered while there is room (`MAX_OWNERS`; those silent longest and not in the view go first). Once
anybody was forgotten, the missing frames of an owner that seems new are skipped without counting them.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from whence.clock import AnyFrame, FreeFrame, MemberId, Packed
from whence.clock.probabilistic import Delivery, Keys, keys_of
from whence.errors import BadMessage, UsageError
from whence.order.checks import Seal
from whence.order.config import OrderConfig
from whence.order.contract import MAX_ENTRIES, Contract, Overseer
from whence.order.explain import Blocked
from whence.order.free import KeyCursor, check_free, check_state
from whence.order.generations import MAX_GENERATIONS, GenerationClock, Generations, Held
from whence.order.layer import MAX_GIVEN_UP
from whence.order.messages import ClockState, FreeState, OwnerState
from whence.order.outputs import Arrived, Deliver, Dropped, GaveUp, Moved, OrderOutput, Published
from whence.order.owners import MAX_OWNERS, FreeKey, OwnersLayer

MAX_WAITING_BYTES = 1 << 20
"""Frames in a snapshot; what does not fit the joiner recovers."""


class FreeOrdering(OwnersLayer[FreeFrame, KeyCursor]):
    """The order layer of one member of a cluster without tickets."""

    def __init__(
        self,
        me: MemberId,
        config: OrderConfig,
        rng: random.Random,
        members: Callable[[], Sequence[MemberId]],
        sample: Callable[[int], Sequence[MemberId]],
        seal: Seal | None = None,
    ) -> None:
        assert config.contract is not None
        super().__init__(me, config, rng, members, sample, seal, FreeFrame, KeyCursor)
        self.contract: Contract = config.contract
        self.early = config.order == "unordered"
        self.weak = config.order in ("unordered", "fifo")
        self.queue = Generations(*self.contract.size, self.contract.lookback)
        self.draw: Callable[[int, int], Keys] = lambda R, K: keys_of(rng, R, K)
        self.keys: Keys = ()
        self.held: dict[FreeKey, Held] = {}
        self.number = 0
        self.opened = 1
        self._said: dict[int, int] = {}  # older generation -> its version when it was last attached
        self._ahead: dict[FreeKey, bool] = {}
        self._settle = 4 * self._patience
        self.overseer = Overseer(self.contract, rng, self._patience)

    # -- publish ------------------------------------------------------------------------------------------------

    def publish(self, payloads: Sequence[bytes], now: int) -> tuple[FreeFrame, list[OrderOutput]]:
        """PCO17 Algorithm 1: count the frame, stamp it, deliver it locally; it may free what waits."""
        self._check_publish(payloads)
        self.queue.now = now
        clock = self.queue.current
        clock.stamp(self.keys)
        clock.total += 1
        clock.rose(now)
        if self.weak:
            clock.past = [p + (x in self.keys) for x, p in enumerate(clock.past)]
        self.number += 1
        frame = FreeFrame(
            owner=self.me,
            number=self.number,
            first=self.seq + 1,
            count=len(payloads),
            generation=clock.id,
            opened=self.opened,
            keys=self.keys,
            vector=self._present(clock),
            body=msgspec.msgpack.encode(list(payloads)),
            older=self._older(clock.id, now),
        )
        if self.seal is not None:
            frame = msgspec.structs.replace(frame, signature=self.seal.sign(frame.unsigned()))
        self.seq = frame.last
        self._cursor(self.me).follow(frame)
        self.buffer.add(frame.key, frame)
        self.stats.published += frame.count
        self.stats.delivered += frame.count
        out: list[OrderOutput] = [Published(frame), Deliver(frame)]
        if not self.weak:
            self._delivered(self.queue.retry(), out)
        return frame, out

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

    def vet(self, frame: AnyFrame, sender: MemberId) -> None:
        """Raise a `BadFrame` for what no honest peer sends: to be asked before the frame is kept or forwarded."""
        check_free(frame, self)

    def _accept(
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
            self.buffer.add(key, frame)
            out.append(Arrived(frame, sender, age, recovered))
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

    def _obsolete(self, frame: FreeFrame, sender: MemberId, age: int, recovered: bool, out: list[OrderOutput]) -> None:
        """It was taken before, or given up: then it is late, and lost here (but others may still need it)."""
        owner, number = frame.owner, frame.number
        if frame.key in self.buffer or not self._was_given_up(owner, 0, number):
            self.stats.duplicate_frames += 1
            return
        self.buffer.add(frame.key, frame)
        out.append(Arrived(frame, sender, age, recovered))
        if self.early and not self._ahead.pop(frame.key, False):
            self._hand_up(Held(frame), False, 0, out)
            return
        self.stats.late += frame.count
        out.append(Dropped(frame, "late"))

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

    def _hand_up(self, held: Held, over_gap: bool, alert: int, out: list[OrderOutput]) -> None:
        frame = held.frame
        if self.weak:
            self.queue.depend(held)
        self.stats.delivered += frame.count
        if over_gap:
            self.stats.delivered_over_gap += frame.count
        out.append(Deliver(frame, over_gap, alert, held.suspects if alert else ()))

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

    def _hold(self, key: FreeKey, held: Held, patience: int, out: list[OrderOutput]) -> None:
        now = self.queue.now
        self.held[key] = held
        self.held_bytes += held.frame.size
        held.until = now + patience
        self._set_deadline(held.until, key, self.held)
        while len(self.held) > self.config.hold or self.held_bytes > self.config.hold_bytes:
            self.stats.overflow_frames += 1
            self._overdue(next(iter(self.held)), "overflow", out)
        self.stats.held_peak = max(self.stats.held_peak, len(self.held))

    def _release(self, key: FreeKey) -> None:
        held = self.held.pop(key, None)
        if held is not None:
            self.held_bytes -= held.frame.size

    def _overdue(self, key: FreeKey, reason: str, out: list[OrderOutput]) -> None:
        held = self.held[key]
        owner, number = held.frame.owner, held.frame.number
        cursor = self.cursors.get(owner)
        if cursor is not None and number in cursor.early:
            self._skip_to(owner, number, reason, out)
        else:
            self._force(held, reason, out)

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        if self.joining:
            return None
        deadline = self._deadlines[0][0] if self._deadlines else None
        wanted = (deadline, self.pursuits.next_at, self.overseer.wake_at)
        return min((at for at in wanted if at is not None), default=None)

    def wake(self, now: int) -> list[OrderOutput]:
        """Ask for what is due, skip what is overdue, look at the contract."""
        out: list[OrderOutput] = []
        if self.joining:
            return out
        self.queue.now = now
        if self.pursuits.next_at is not None and self.pursuits.next_at <= now:
            out.extend(self.pursuits.due(now, self._gaps))
            self.stats.asked = self.pursuits.asked_events
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heapq.heappop(self._deadlines)
            held = self.held.get(key)
            if held is not None and held.until <= now:
                self._overdue(key, "timeout", out)
        self._look_at_contract(now, out)
        return out

    def _is_early(self, held: Held) -> bool:
        cursor = self.cursors.get(held.frame.owner)
        return cursor is not None and held.frame.number in cursor.early

    def _look_at_contract(self, now: int, out: list[OrderOutput]) -> None:
        said, size = self.overseer.look(self.queue.current.R, self.queue.current.K, now)
        if said is not None:
            out.append(said)
        if size is not None:
            out.extend(self.move(*size, now))

    def move(self, R: int, K: int, now: int) -> list[OrderOutput]:
        """Begin a generation of R entries and K keys: publish under it from now on, and so will whoever sees it."""
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
        """Start from the clocks as they are (zero, a snapshot's, or a checkpoint's), with what has arrived since."""
        out: list[OrderOutput] = []
        self.joining = False
        self.queue.now = now
        self.keys = self.draw(self.queue.current.R, self.queue.current.K)
        self.overseer.begin(now)
        self._delivered(self.queue.retry(), out)
        self._open_lobby(now, out)
        return out

    def state(self) -> ClockState:
        """All of it as data, for a snapshot or a checkpoint."""
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
        ahead = [(f.owner, f.number, f.number) for f in (h.frame for h in self.held.values() if h.handed)]
        free = FreeState(
            tuple(c.state() for c in self.queue.clocks.values()),
            owners,
            tuple(waiting),
            tuple(ahead[:MAX_GIVEN_UP]),
            self.stats.forgotten,
        )
        return ClockState((), (), (), (), (), (), (), free)

    def load(self, state: ClockState, now: int) -> None:
        """Take over clocks and cursors from a snapshot or a checkpoint."""
        free = state.free
        if free is None:
            raise BadMessage("the clock of a cluster with tickets")
        check_state(free, self)
        self.queue.now = now
        self.queue.load(free.generations)
        self.cursors = {row.owner: KeyCursor.of(row) for row in free.owners}
        self.stats.forgotten = free.forgotten
        ahead = ((o, 0, n) for o, a, b in free.ahead for n in range(a, b + 1))
        self._ahead = dict.fromkeys(islice(ahead, self.config.hold), True)
        for frame in free.waiting:
            held = Held(frame)
            self.buffer.add(frame.key, frame)
            self.queue.queue(held)
            self._hold(frame.key, held, 2 * self._patience, [])

    def why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        """What is missing before this event, who was asked, until when."""
        for key, held in self.held.items():
            frame = held.frame
            if frame.owner == owner and frame.first <= seq <= frame.last:
                until = next((at for at, k in self._deadlines if k == key), None)
                if self._is_early(held):
                    gaps = self._gaps(owner, 0, frame.number - 1)
                    return Blocked(event, "held", self._explained(gaps), until)
                return Blocked(event, "held", (), until, self.queue.lacks(held))
        cursor = self.cursors.get(owner)
        taken = [f for f in self.buffer if f.owner == owner and f.first <= seq <= f.last]
        known = bool(taken) and cursor is not None and taken[0].number <= cursor.taken
        return Blocked(event, "delivered" if known or owner == self.me else "unknown")

    def measured(self) -> dict[str, float]:
        """The clock and what is known of its contract, as numbers."""
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
        """Every bounded buffer: fill and bound."""
        return {
            **self._common_buffers(len(self.held)),
            "owners": (len(self.cursors), MAX_OWNERS),
            "generations": (len(self.queue.clocks), MAX_GENERATIONS),
        }
