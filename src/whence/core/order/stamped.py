"""Any mechanism of the SURVEY as the order of a cluster without tickets: `survey.Process` behind `Ordering`.

The mechanism decides what waits for what. Gossip, recovery, snapshots and cut-offs are those of the stack. Rules:

1. **Numbers.** A mechanism knows processes by natural numbers, on which nobody agrees here. Every member numbers the
   others as it meets them, a frame says whom its stamp means (`StampedFrame.processes`), and stamps are renumbered on
   arrival. A restarted member is another process; its old number is never used again.
2. **Recovery.** Frames are counted per owner and compared with peers' digests: gaps are recovered even where the
   mechanism cannot name them (interval trees). What a held message waits for is asked for after `time_to_terminate`.
3. **Skipping.** What is missing `time_to_recover` later (or twice that, where it cannot be named) is given up, and what
   waits for it goes on (`Process.force`). Departs from the SURVEY, whose mechanisms assume reliable links (P1-P4).
   Where a stamp leaves out what others imply, what follows a skipped frame is dropped up to an anchor, which each
   member sends now and then (`SurveyConfig.anchor_every`).
4. **Stability.** `first-unstable`, which carries messages until all have them, goes by the digests of the members it
   knows. There may be others, so what it no longer carries it still names.
5. **Clocks.** A message whose clock is more than `abandon_ns` ahead of ours is dropped.
6. **Joining.** A snapshot is what `admit` gives, with how far each owner's frames are in it; what the giver holds back
   the joiner recovers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from whence.core.clock import MemberId, StampedFrame
from whence.core.clock.bounds import earliest
from whence.core.clock.event import Body, encode
from whence.core.order.config import OrderConfig
from whence.core.order.layer import MAX_OWNERS, Cursor, OrderContext, OwnersLayer
from whence.core.order.messages import OrderState, StampedState
from whence.core.order.outputs import Blocked, Dropped, GaveUp, OrderOutput
from whence.core.order.recovery import FrameKey, Span
from whence.core.order.survey.base import Codec, MechanismState, Message, Process, ProcessId
from whence.core.order.survey.first import Carried, FirstStamp, FirstState
from whence.core.order.survey.registry import make
from whence.errors import AbsurdClock, BadFrame, BadMessage, ConfigError, TooLarge, UsageError

MAX_PLAIN_BYTES = 128 << 10
"""Of a stamp that carries no messages: `MAX_OWNERS` dated counts."""
UNKNOWN: Span[str] = ("", 0, 1, 1)
"""Given up by a mechanism that cannot say what: at least one frame of somebody."""

ME: ProcessId = 0


class Content(Body, msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame without owner, number and stamp, as another frame carries it (first generation)."""

    first: int
    count: int
    body: bytes


_content = msgspec.msgpack.Decoder(Content)


class StampedOrdering(OwnersLayer[StampedFrame, Cursor]):
    """The order layer of one member of a cluster that is ordered by a mechanism."""

    frame_type = StampedFrame
    new_cursor = Cursor

    def __init__(self, context: OrderContext) -> None:
        super().__init__(context)
        me = self.me
        self.names: list[MemberId] = [me]
        self.numbers: dict[MemberId, ProcessId] = {me: ME}
        self.held: dict[FrameKey[str], StampedFrame] = {}
        self.now = 0
        self._digests: dict[MemberId, dict[MemberId, int]] = {}
        self._drops: list[tuple[Message, str]] = []
        self._freed: list[Message] = []  # delivered because of the own multicast
        self._begin_with([me])
        if self.mechanism.carries and self.seal is not None:
            raise ConfigError(
                f"mechanism {self.config.mechanism}: a message that another one carries has no signature any more; "
                "a cluster with roles takes another mechanism"
            )

    def _begin_with(self, founders: Sequence[MemberId]) -> None:
        config = self.config
        self.mechanism = make(config.mechanism, ME, [self._number(f) for f in founders], config.survey)
        self.process = Process(ME, self.mechanism, config.hold + 1, lambda m, why: self._drops.append((m, why)))
        self.codec = Codec(self.mechanism)

    def found(self, others: Sequence[MemberId]) -> None:
        """All founders have the same list, and so the same shares of the interval."""
        self._begin_with(sorted({self.me: None, **dict.fromkeys(others)}))

    # -- numbers (rule 1) ---------------------------------------------------------------------------------------

    def _number(self, name: MemberId) -> ProcessId:
        number = self.numbers.get(name)
        if number is None:
            if len(self.names) >= MAX_OWNERS:
                raise UsageError(f"more than {MAX_OWNERS} members in all their lives")
            number = self.numbers[name] = len(self.names)
            self.names.append(name)
            self.mechanism.join(number)
        return number

    def _message(self, frame: StampedFrame, number: Callable[[MemberId], ProcessId]) -> Message:
        """The frame as the mechanism sees it; a `RemoteError` if it is none."""
        stamp = self.codec.stamp(frame.stamp).renumbered(lambda i: number(_named(frame.processes, i)))
        content = encode(Content(frame.first, frame.count, frame.body)) if self.mechanism.carries else b""
        return Message(number(frame.owner), frame.number, stamp, content, frame.anchor)

    # -- publish ------------------------------------------------------------------------------------------------

    def _stamp(self, payloads: list[bytes], now: int, tenure: tuple[int, int] | None) -> StampedFrame:
        self.now = now
        content = Content(self._next_seq(payloads), len(payloads), encode(payloads))
        anchor = self.mechanism.chained and self.process.seq % self.config.survey.anchor_every == 0
        if anchor:
            self.mechanism.anchor()
        message, delivered = self.process.multicast(encode(content) if self.mechanism.carries else b"", now)
        self._freed = [m for m in delivered if m.id != message.id]
        index: dict[ProcessId, int] = {}
        stamp = message.stamp.renumbered(lambda p: index.setdefault(p, len(index)))
        return StampedFrame(
            owner=self.me,
            number=message.seq,
            first=content.first,
            count=content.count,
            processes=tuple(self.names[p] for p in index),
            stamp=encode(stamp),
            body=content.body,
            anchor=anchor,
        )

    def _deliver_own(self, frame: StampedFrame, now: int, out: list[OrderOutput]) -> None:
        self.seq = frame.last
        self._cursor(self.me).taken = frame.number
        self._give(frame, False, out)
        freed, self._freed = self._freed, []
        self._hand_up(freed, out)

    # -- receive ------------------------------------------------------------------------------------------------

    def _vet(self, frame: StampedFrame, sender: MemberId) -> None:
        if not self.mechanism.carries and len(frame.stamp) > MAX_PLAIN_BYTES:
            raise TooLarge(f"a stamp of {len(frame.stamp)} bytes, allowed are {MAX_PLAIN_BYTES}")
        new: dict[MemberId, ProcessId] = {}  # nothing is remembered of a frame that is refused
        message = self._message(
            frame, lambda name: self.numbers.get(name, new.setdefault(name, len(self.names) + len(new)))
        )
        if isinstance(message.stamp, FirstStamp):
            _check_carried(message.stamp.carried, self.config)
        if self.joining:
            return
        cursor = self.cursors.get(frame.owner)
        wait = self.mechanism.wait(message, self.now)
        spans = [last - first for _, first, last in wait.missing] if wait is not None else []
        missing = frame.number - (cursor.taken if cursor is not None else 0)
        ahead = max(missing, self.mechanism.beyond(message.stamp), *spans)
        if ahead > self.config.max_jump:
            raise AbsurdClock(f"frame {frame.number} of {frame.owner} is {ahead} frames ahead of all known")

    def _receive(
        self, frame: StampedFrame, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]
    ) -> None:
        self.now = now
        owner, number = frame.owner, frame.number
        cursor = self.cursors.get(owner)
        if owner == self.me or (cursor is not None and (number <= cursor.taken or number in cursor.early)):
            self._obsolete(frame, sender, age, recovered, out)
            return
        if not self._make_room(frame, out):
            return
        cursor = self._cursor(owner)
        self._arrived(frame, sender, age, recovered, out)
        if recovered:
            self.stats.recovered += frame.count
        cursor.early[number] = None
        _absorb(cursor)
        self.held[frame.key] = frame
        self.held_bytes += frame.size
        message = self._message(frame, self._number)
        self._hand_up(self.process.receive(message, now), out)
        if number > cursor.taken:
            self.pursuits.want(owner, 0, number - 1, now, at_once=recovered)
        if frame.key in self.held:
            self._hold(frame, message, recovered, out)

    def _duplicate(self, frame: StampedFrame) -> None:
        self.buffer.add(frame.key, frame)  # perhaps only its content came, carried by another one

    def _make_room(self, frame: StampedFrame, out: list[OrderOutput]) -> bool:
        """`H` and the names are bounded. Blocking mechanisms give up the oldest gap; timed ones drop the newest
        frame."""
        unknown = sum(name not in self.numbers for name in dict.fromkeys((frame.owner, *frame.processes)))
        if len(self.names) + unknown > MAX_OWNERS:
            self.stats.overflow_frames += 1
            out.append(Dropped(frame, "overflow"))
            return False
        config = self.config
        while self.held and (len(self.held) >= config.hold or self.held_bytes + frame.size > config.hold_bytes):
            self.stats.overflow_frames += 1
            if self.mechanism.timed:
                out.append(Dropped(frame, "overflow"))
                return False
            self._force(next(iter(self.held)), "overflow", out)
        return True

    def _hold(self, frame: StampedFrame, message: Message, recovered: bool, out: list[OrderOutput]) -> None:
        self.stats.held_peak = max(self.stats.held_peak, len(self.held))
        wait = self.mechanism.wait(message, self.now)
        assert wait is not None
        if wait.until is not None and wait.until - self.now > self.config.abandon_ns:
            self.process.let_go(message.id, "ahead")  # somebody's clock is far beyond what such an order allows for
            self._hand_up((), out)
            return
        for process, _, last in wait.missing:
            self.pursuits.want(self.names[process], 0, last, self.now, at_once=recovered)
        if wait.until is None:  # where nothing is named, digests have to show it first
            patience = self._patience if wait.missing else 2 * self._patience
            self._set_deadline(self.now + patience, frame.key)

    # -- deliver ------------------------------------------------------------------------------------------------

    def _hand_up(self, delivered: Sequence[Message], out: list[OrderOutput], over_gap: bool = False) -> None:
        """What the process delivered, and what it let go, as outputs."""
        for message in delivered:
            frame = self._release(message)
            if frame is None:  # it came on the back of another one
                content = _content.decode(message.body)
                owner = self.names[message.sender]
                frame = StampedFrame(owner, message.seq, content.first, content.count, (), b"", content.body)
                self.stats.carried += frame.count
            gaps = self._take(frame.owner, frame.number - 1)
            if gaps:
                self._note_given_up(gaps, "deadline", out)
            self._take(frame.owner, frame.number)
            self._give(frame, over_gap or bool(gaps), out)
        drops, self._drops = self._drops, []
        for message, reason in drops:
            frame = self._release(message)
            if frame is None:
                continue
            if reason == "duplicate" and self.mechanism.carries:
                self.stats.duplicate_frames += 1
            else:  # where it says duplicate, too: what was taken twice did not come so far
                self._late(frame, out)

    def _release(self, message: Message) -> StampedFrame | None:
        frame = self.held.pop((self.names[message.sender], 0, message.seq), None)
        if frame is not None:
            self.held_bytes -= frame.size
        return frame

    def _take(self, owner: MemberId, upto: int) -> list[Span[str]]:
        """The owner's frames up to this one are delivered or given up; those that are not in hand."""
        gaps, cursor = self._gaps(owner, 0, upto), self._cursor(owner)
        cursor.taken = max(upto, cursor.taken)
        _absorb(cursor)
        return gaps

    def _force(self, key: FrameKey[str], reason: str, out: list[OrderOutput]) -> None:
        """It has waited long enough (rule 3)."""
        wait = self.mechanism.wait(self._message(self.held[key], self._number), self.now)
        if wait is not None and not wait.missing:  # it cannot say what
            self.stats.skipped += 1
            out.append(GaveUp((UNKNOWN,), reason))
        lost, delivered = self.process.force((self.numbers[key[0]], key[2]), self.now)
        ranges = [gap for process, _, last in lost for gap in self._take(self.names[process], last)]
        if ranges:
            self._note_given_up(ranges, reason, out)
        self._hand_up(delivered, out, over_gap=True)

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        timed = self.mechanism.timed and not self.joining
        return earliest(super().wake_at, self.process.wake_at if timed else None)

    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        self.now = now
        self._ask(now, out)
        if self.mechanism.timed:
            self._hand_up(self.process.drain(now), out)
        for key in self._overdue(now):
            self._force(key, "timeout", out)

    # -- peers --------------------------------------------------------------------------------------------------

    def heard(self, sender: MemberId, digest: object, now: int) -> None:
        super().heard(sender, digest, now)
        if self.mechanism.until_stable and not self.joining and isinstance(digest, tuple):
            self._digests.setdefault(sender, {}).update(digest)
            self._lighten()

    def _lighten(self) -> None:
        """Rule 4."""
        members = self.members()
        self._digests = {m: self._digests[m] for m in members if m in self._digests}
        if len(self._digests) == len(members):
            tables = [{o: c.taken for o, c in self.cursors.items()}, *self._digests.values()]
            self.mechanism.lighten({self.numbers[o]: min(t.get(o, 0) for t in tables) for o in self.cursors})

    # -- state --------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> list[OrderOutput]:
        self.now = now
        return super().begin(now)

    def state(self) -> StampedState:
        return self._state(self.mechanism.save())

    def admit(self, joiner: MemberId, weaker: bool = False) -> StampedState:
        """Rule 6."""
        return self._state(self.process.admit(self._number(joiner)))

    def _state(self, state: MechanismState) -> StampedState:
        taken = {self.numbers[owner]: cursor.taken for owner, cursor in self.cursors.items()}
        for owner, _, number in self.held:
            taken[self.numbers[owner]] = min(taken[self.numbers[owner]], number - 1)
        index = {p: i for i, p in enumerate(taken)}
        shown = state.renumbered(lambda p: index.setdefault(p, len(index)))
        processes = tuple(self.names[p] for p in index)
        counts = tuple(taken.get(p, 0) for p in index)
        return StampedState(self.config.mechanism, processes, counts, encode(shown))

    def load(self, state: OrderState, now: int) -> None:
        if not isinstance(state, StampedState) or state.mechanism != self.config.mechanism:
            raise BadMessage(f"the state of a cluster with {state.kind}, in one ordered by {self.config.mechanism}")
        if len(state.taken) != len(state.processes) or len(state.processes) > MAX_OWNERS - len(self.names):
            raise BadMessage(f"a state of {len(state.taken)} counts and {len(state.processes)} processes")
        self.now = now
        found = self.codec.state(state.state)
        if isinstance(found, FirstState):
            _check_carried(found.previous, self.config)
        shown = found.renumbered(lambda i: self._number(_named(state.processes, i)))
        self.process.install(shown, now)
        for owner, taken in zip(state.processes, state.taken, strict=True):
            self._number(owner)
            if taken:
                self._cursor(owner).taken = taken

    def _why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        for key, frame in self.held.items():
            if frame.owner == owner and frame.first <= seq <= frame.last:
                wait = self.mechanism.wait(self._message(frame, self._number), self.now)
                missing = wait.missing if wait is not None else ()
                gaps = [gap for p, _, last in missing for gap in self._gaps(self.names[p], 0, last)]
                until = self._until(key)
                if until is None and wait is not None:
                    until = wait.until
                return Blocked(event, "held", self._explained(gaps), until)
        mine = owner == self.me and seq <= self.seq
        known = any(f.owner == owner and f.first <= seq <= f.last for f in self.buffer)
        return Blocked(event, "delivered" if mine or known else "unknown")

    def buffers(self) -> dict[str, tuple[int, int]]:
        return super().buffers() | {"owners": (len(self.names), MAX_OWNERS)}


def _named(processes: Sequence[MemberId], index: int) -> MemberId:
    if not 0 <= index < len(processes):
        raise BadFrame(f"process {index} of {len(processes)}")
    return processes[index]


def _absorb(cursor: Cursor) -> None:
    """Move past the early frames that are no longer beyond a gap."""
    for number in [n for n in cursor.early if n <= cursor.taken]:
        del cursor.early[number]
    while cursor.taken + 1 in cursor.early:
        cursor.taken += 1
        del cursor.early[cursor.taken]


def _check_carried(messages: Sequence[Carried], config: OrderConfig) -> None:
    """A carried message is delivered without passing the wire's checks: make them here."""
    for carried in messages:
        try:
            content = _content.decode(carried.body)
            content.check_events()
            content.payloads()
        except (msgspec.MsgspecError, RecursionError, BadFrame) as error:
            raise BadFrame(f"a carried message: {error}") from None
        if content.count > config.max_frame_events:
            raise BadFrame(f"a carried message of {content.count} events, allowed are {config.max_frame_events}")
