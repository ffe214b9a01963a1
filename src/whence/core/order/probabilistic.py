"""The delivery engine of a cluster without tickets: `probabilistic`, and beside it `fifo` and `unordered` (PCO17).

The paper assumes a reliable broadcast. Gossip loses, so there are two steps:

1. **Taking.** An owner numbers its frames, and they are taken in that order, which shows duplicates and gaps. A gap is
   recovered (`recovery.py`); a digest of the owners' last numbers shows lost last frames, too. After `time_to_terminate
   + time_to_recover` a gap is skipped: it counts as delivered, with its owner's keys, or the counts would stay short
   and block everything after it. (Departs from the paper: frames of one owner are in order, without errors between
   them.)
2. **Delivering.** A taken frame goes through the paper's queue (`clock.probabilistic.Pending`), generation by
   generation (`generations.py`). After twice that time it is delivered anyhow, after all that waits and precedes it,
   over counts that are raised (`generations.py`, rule 5).

======================  ===========  ====  =============
question                unordered    fifo  probabilistic
======================  ===========  ====  =============
delivered when          received     taken counts suffice
alerts                  no           no    Algorithms 4, 5
======================  ===========  ====  =============

Members of the weaker orders stamp with the highest vector that they have seen, so that others can order by it. At most
`MAX_OWNERS` owners are remembered; those silent longest and not in the view are forgotten first. Once one was
forgotten, the missing frames of an owner that seems new are skipped without counting them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from whence.core.clock import FreeFrame, MemberId, Packed
from whence.core.clock.event import encode
from whence.core.clock.probabilistic import Delivery, Keys, keys_of
from whence.core.order.buffers import FrameKey
from whence.core.order.contract import MAX_ENTRIES, Contract, Overseer
from whence.core.order.explain import Blocked
from whence.core.order.free import KeyCursor, check_free, check_state
from whence.core.order.generations import MAX_GENERATIONS, GenerationClock, Generations, Held
from whence.core.order.interface import OrderContext
from whence.core.order.layer import MAX_GIVEN_UP
from whence.core.order.messages import FreeState, OrderState, OwnerState
from whence.core.order.outputs import GaveUp, Moved, OrderOutput
from whence.core.order.owners import MAX_OWNERS, OwnersLayer
from whence.errors import BadMessage, UsageError

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
        self.keys: Keys = ()
        self.held: dict[FrameKey[str], Held] = {}
        self.number = 0
        self.opened = 1
        self._said: dict[int, int] = {}  # older generation -> its version when it was last attached
        self._ahead: dict[FrameKey[str], bool] = {}
        self._settle = 4 * self._patience
        self.overseer = Overseer(self.contract, rng, self._patience)

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
        at, look = super().wake_at, None if self.joining else self.overseer.wake_at
        return at if look is None or (at is not None and at < look) else look

    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        self.queue.now = now
        self._ask(now, out)
        for key in self._overdue(now):
            if self.held[key].until <= now:
                self._go_on(key, "timeout", out)
        self._look_at_contract(now, out)

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
        ahead = [(f.owner, f.number, f.number) for f in (h.frame for h in self.held.values() if h.handed)]
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
        check_state(state, self)
        self.queue.now = now
        self.queue.load(state.generations)
        self.cursors = {row.owner: KeyCursor.of(row) for row in state.owners}
        self.stats.forgotten = state.forgotten
        ahead = ((o, 0, n) for o, a, b in state.ahead for n in range(a, b + 1))
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
