"""Any mechanism of the SURVEY as the order of a cluster without tickets: `survey.Process` behind the stack's interface.

The mechanism decides what waits for what; the rest is the stack's: gossip carries the frames, recovery brings back what
it lost, a joiner gets a snapshot, a peer that breaks the protocol is cut off. What that takes, as rules:

1. **Numbers.** A mechanism knows processes by natural numbers, and nobody agrees on those here. Every member numbers
   the others as it meets them, a frame says whom its stamp means (`StampedFrame.processes`), and stamps are renumbered
   on arrival. A member that restarts is another process; its old number is never used again.
2. **Recovery.** Received frames are counted per owner, and peers' digests compared: what is missing is asked for, also
   where the mechanism cannot name it (interval trees). What a held message waits for is asked for after
   `time_to_terminate`.
3. **Skipping.** What is still missing `time_to_recover` later (or twice that, where it cannot be named) is given up: it
   is never delivered here, and what waits for it goes on (`Process.force`). So nothing is blocked for ever by what
   nobody has any more. Departs from the SURVEY, whose mechanisms stand on reliable links (P1-P4: `survey/reliable.py`).
   Where a stamp leaves out what others imply, what follows a skipped frame is dropped up to an anchor, which each
   member sends now and then (`SurveyConfig.anchor_every`).
4. **Stability.** Who carries messages until all have them (`first-unstable`) goes by the digests of the members it
   knows. There may be others, so what it does not carry any more it still names.
5. **Clocks.** What would wait for longer than `abandon_ns`, because its clock is that far ahead of ours, is dropped.
6. **Joining.** A snapshot is what `admit` gives, with how far each owner's frames are in it; what the giver holds back
   the joiner recovers.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

import msgspec

from whence.clock import AnyFrame, MemberId, StampedFrame
from whence.errors import AbsurdClock, BadFrame, BadMessage, ConfigError, ForgedTicket, TooLarge, UsageError, WrongKind
from whence.order.checks import Seal
from whence.order.config import OrderConfig
from whence.order.explain import Blocked
from whence.order.messages import ClockState, StampedState
from whence.order.outputs import Arrived, Deliver, Dropped, GaveUp, OrderOutput, Published
from whence.order.owners import MAX_OWNERS, Cursor, FreeKey, OwnersLayer, Stretch
from whence.order.survey.base import Message, ProcessId, State
from whence.order.survey.base import Range as Missed
from whence.order.survey.codec import Codec
from whence.order.survey.first import FirstStamp
from whence.order.survey.process import Process
from whence.order.survey.registry import make

MAX_STAMP_BYTES = 2 << 20
"""Of a stamp or a state: as the wire has it, more would not arrive."""
MAX_PLAIN_BYTES = 128 << 10
"""Of a stamp that carries no messages: `MAX_OWNERS` dated counts."""
UNKNOWN: Stretch = ("", 0, 1, 1)
"""Given up by a mechanism that cannot say what: at least one frame of somebody."""

ME: ProcessId = 0
_encode = msgspec.msgpack.Encoder().encode


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame without owner, number and stamp: what another frame carries of it (first generation)."""

    first: int
    count: int
    body: bytes


_content = msgspec.msgpack.Decoder(Content)
_payloads = msgspec.msgpack.Decoder(list[bytes])


class StampedOrdering(OwnersLayer[StampedFrame, Cursor]):
    """The order layer of one member of a cluster that is ordered by a mechanism."""

    def __init__(
        self,
        me: MemberId,
        config: OrderConfig,
        rng: random.Random,
        members: Callable[[], Sequence[MemberId]],
        sample: Callable[[int], Sequence[MemberId]],
        seal: Seal | None = None,
    ) -> None:
        super().__init__(me, config, rng, members, sample, seal, StampedFrame, Cursor)
        self.names: list[MemberId] = [me]
        self.numbers: dict[MemberId, ProcessId] = {me: ME}
        self.held: dict[FreeKey, StampedFrame] = {}
        self.now = 0
        self._digests: dict[MemberId, dict[MemberId, int]] = {}
        self._drops: list[tuple[Message, str]] = []
        self._begin_with([me])
        if self.mechanism.carries and seal is not None:
            raise ConfigError(
                f"mechanism {config.mechanism}: a message that is carried by another has no signature of its publisher "
                "any more; a cluster with roles takes another mechanism"
            )

    def _begin_with(self, founders: Sequence[MemberId]) -> None:
        config = self.config
        self.mechanism = make(config.mechanism, ME, [self._number(f) for f in founders], config.survey)
        self.process = Process(ME, self.mechanism, config.hold + 1, lambda m, why: self._drops.append((m, why)))
        self.codec = Codec(self.mechanism, MAX_STAMP_BYTES)

    def found(self, others: Sequence[MemberId]) -> None:
        """Everybody who is there at the beginning has the same list, and so the same shares of what is shared out."""
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
        envelope = _encode((ME, frame.number, msgspec.Raw(frame.stamp), b""))
        stamp = self.codec.decode(envelope).stamp.renumbered(lambda i: number(_named(frame.processes, i)))
        content = _encode(Content(frame.first, frame.count, frame.body)) if self.mechanism.carries else b""
        return Message(number(frame.owner), frame.number, stamp, content, frame.anchor)

    # -- publish ------------------------------------------------------------------------------------------------

    def publish(self, payloads: Sequence[bytes], now: int) -> tuple[StampedFrame, list[OrderOutput]]:
        """Stamp a frame and deliver it locally; it may free what waits."""
        self._check_publish(payloads)
        self.now = now
        content = Content(self.seq + 1, len(payloads), _encode(list(payloads)))
        anchor = self.mechanism.chained and self.process.seq % self.config.survey.anchor_every == 0
        if anchor:
            self.mechanism.anchor()
        message, delivered = self.process.multicast(_encode(content) if self.mechanism.carries else b"", now)
        index: dict[ProcessId, int] = {}
        stamp = message.stamp.renumbered(lambda p: index.setdefault(p, len(index)))
        frame = StampedFrame(
            owner=self.me,
            number=message.seq,
            first=content.first,
            count=content.count,
            processes=tuple(self.names[p] for p in index),
            stamp=_encode(stamp),
            body=content.body,
            anchor=anchor,
        )
        if self.seal is not None:
            frame = msgspec.structs.replace(frame, signature=self.seal.sign(frame.unsigned()))
        self.seq = frame.last
        self._cursor(self.me).taken = frame.number
        self.buffer.add(frame.key, frame)
        self.stats.published += frame.count
        self.stats.delivered += frame.count
        out: list[OrderOutput] = [Published(frame), Deliver(frame)]
        self._hand_up([m for m in delivered if m.id != message.id], out)
        return frame, out

    # -- receive ------------------------------------------------------------------------------------------------

    def vet(self, frame: AnyFrame, sender: MemberId) -> None:
        """Raise a `BadFrame` for what no honest peer sends: to be asked before the frame is kept or forwarded."""
        if not isinstance(frame, StampedFrame):
            raise WrongKind(f"a frame of another kind of cluster than one ordered by {self.config.mechanism}")
        if not 1 <= frame.count <= self.config.max_frame_events or frame.first < 1 or frame.number < 1:
            raise BadFrame(f"frame {frame.number} of {frame.count} events from {frame.first}")
        if not self.mechanism.carries and len(frame.stamp) > MAX_PLAIN_BYTES:
            raise TooLarge(f"a stamp of {len(frame.stamp)} bytes, allowed are {MAX_PLAIN_BYTES}")
        new: dict[MemberId, ProcessId] = {}  # nothing is remembered of a frame that is refused
        message = self._message(
            frame, lambda name: self.numbers.get(name, new.setdefault(name, len(self.names) + len(new)))
        )
        if isinstance(message.stamp, FirstStamp):
            for carried in message.stamp.carried:
                _check_content(carried.body, self.config)
        if self.seal is not None and not self.seal.verify(frame.unsigned(), frame.signature):
            raise ForgedTicket(f"frame {frame.number} of {frame.owner} is not signed by a publisher")
        if self.joining:
            return
        cursor = self.cursors.get(frame.owner)
        wait = self.mechanism.wait(message, self.now)
        spans = [last - first for _, first, last in wait.missing] if wait is not None else []
        missing = frame.number - (cursor.taken if cursor is not None else 0)
        ahead = max(missing, self.mechanism.beyond(message.stamp), *spans)
        if ahead > self.config.max_jump:
            raise AbsurdClock(f"frame {frame.number} of {frame.owner} is {ahead} frames ahead of all known")

    def _accept(
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
        self.buffer.add(frame.key, frame)
        out.append(Arrived(frame, sender, age, recovered))
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

    def _obsolete(
        self, frame: StampedFrame, sender: MemberId, age: int, recovered: bool, out: list[OrderOutput]
    ) -> None:
        """It came before, or was given up: then it is late, and lost here (but others may still need it)."""
        if frame.key in self.buffer or not self._was_given_up(frame.owner, 0, frame.number):
            self.stats.duplicate_frames += 1
            self.buffer.add(frame.key, frame)  # it may have come on the back of another one
            return
        self.buffer.add(frame.key, frame)
        out.append(Arrived(frame, sender, age, recovered))
        self._late(frame, out)

    def _make_room(self, frame: StampedFrame, out: list[OrderOutput]) -> bool:
        """`H` and the names are bounded. Blocking mechanisms give up the oldest gap; those that wait for time, the
        newest frame."""
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
            self._set_deadline(self.now + patience, frame.key, self.held)

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
            gap = self._pass(frame.owner, frame.number, out) or over_gap
            self.stats.delivered += frame.count
            self.stats.delivered_over_gap += frame.count if gap else 0
            out.append(Deliver(frame, gap))
        drops, self._drops = self._drops, []
        for message, reason in drops:
            frame = self._release(message)
            if frame is None:
                continue
            if reason == "duplicate" and self.mechanism.carries:
                self.stats.duplicate_frames += 1
            else:  # where it says duplicate, too: what was taken twice did not come so far
                self._late(frame, out)

    def _late(self, frame: StampedFrame, out: list[OrderOutput]) -> None:
        self.stats.late += frame.count
        out.append(Dropped(frame, "late"))

    def _release(self, message: Message) -> StampedFrame | None:
        frame = self.held.pop((self.names[message.sender], 0, message.seq), None)
        if frame is not None:
            self.held_bytes -= frame.size
        return frame

    def _pass(self, owner: MemberId, number: int, out: list[OrderOutput]) -> bool:
        """A frame of the owner is delivered: what is missing before it never will be. Was there anything?"""
        cursor = self._cursor(owner)
        gaps = self._gaps(owner, 0, number - 1)
        if gaps:
            self._note_given_up(gaps, "deadline", out)
        cursor.taken = max(number, cursor.taken)
        _absorb(cursor)
        return bool(gaps)

    def _force(self, key: FreeKey, reason: str, out: list[OrderOutput]) -> None:
        """It has waited long enough (rule 3)."""
        wait = self.mechanism.wait(self._message(self.held[key], self._number), self.now)
        if wait is not None and not wait.missing:  # it cannot say what
            self.stats.skipped += 1
            out.append(GaveUp((UNKNOWN,), reason))
        lost, delivered = self.process.force((self.numbers[key[0]], key[2]), self.now)
        self._give_up(lost, reason, out)
        self._hand_up(delivered, out, over_gap=True)

    def _give_up(self, lost: Sequence[Missed], reason: str, out: list[OrderOutput]) -> None:
        ranges: list[Stretch] = []
        for process, _, last in lost:
            owner = self.names[process]
            ranges += self._gaps(owner, 0, last)
            cursor = self._cursor(owner)
            cursor.taken = max(last, cursor.taken)
            _absorb(cursor)
        if ranges:
            self._note_given_up(ranges, reason, out)

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        if self.joining:
            return None
        deadline = self._deadlines[0][0] if self._deadlines else None
        timed = self.process.wake_at if self.mechanism.timed else None
        return min((at for at in (deadline, timed, self.pursuits.next_at) if at is not None), default=None)

    def wake(self, now: int) -> list[OrderOutput]:
        """Ask for what is due, deliver what time has made deliverable, skip what is overdue."""
        out: list[OrderOutput] = []
        if self.joining:
            return out
        self.now = now
        if self.pursuits.next_at is not None and self.pursuits.next_at <= now:
            out.extend(self.pursuits.due(now, self._gaps))
            self.stats.asked = self.pursuits.asked_events
        if self.mechanism.timed:
            self._hand_up(self.process.drain(now), out)
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heapq.heappop(self._deadlines)
            if key in self.held:
                self._force(key, "timeout", out)
        return out

    # -- peers --------------------------------------------------------------------------------------------------

    def heard(self, sender: MemberId, heads: object, now: int) -> None:
        """A peer says how far it has taken some owners' frames."""
        super().heard(sender, heads, now)
        if self.mechanism.until_stable and not self.joining and isinstance(heads, tuple):
            self._digests.setdefault(sender, {}).update(heads)
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
        """Start from the mechanism as it is, with what has arrived in the meantime."""
        out: list[OrderOutput] = []
        self.now = now
        self._open_lobby(now, out)
        return out

    def state(self) -> ClockState:
        """What this process goes on from after a crash."""
        return self._state(self.mechanism.save())

    def admit(self, joiner: MemberId, weaker: bool = False) -> ClockState:
        """What a joiner starts from; `UsageError`: not from this member (rule 6)."""
        return self._state(self.process.admit(self._number(joiner)))

    def _state(self, state: State) -> ClockState:
        taken = {self.numbers[owner]: cursor.taken for owner, cursor in self.cursors.items()}
        for owner, _, number in self.held:
            taken[self.numbers[owner]] = min(taken[self.numbers[owner]], number - 1)
        index = {p: i for i, p in enumerate(taken)}
        shown = state.renumbered(lambda p: index.setdefault(p, len(index)))
        processes = tuple(self.names[p] for p in index)
        stamped = StampedState(
            self.config.mechanism, processes, tuple(taken.get(p, 0) for p in index), self.codec.encode(shown)
        )
        return ClockState((), (), (), (), (), (), (), None, stamped)

    def load(self, state: ClockState, now: int) -> None:
        """Take over a state from a snapshot or a checkpoint."""
        stamped = state.stamped
        if stamped is None or stamped.mechanism != self.config.mechanism:
            raise BadMessage(f"the state of a cluster with {state.kind}, in one ordered by {self.config.mechanism}")
        if len(stamped.taken) != len(stamped.processes) or len(stamped.processes) > MAX_OWNERS - len(self.names):
            raise BadMessage(f"a state of {len(stamped.taken)} counts and {len(stamped.processes)} processes")
        self.now = now
        found = self.codec.decode_state(stamped.state)
        shown = found.renumbered(lambda i: self._number(_named(stamped.processes, i)))
        self.process.install(shown, now)
        for owner, taken in zip(stamped.processes, stamped.taken, strict=True):
            self._number(owner)
            if taken:
                self._cursor(owner).taken = taken

    def why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        """What is missing before this event, who was asked, until when."""
        for key, frame in self.held.items():
            if frame.owner == owner and frame.first <= seq <= frame.last:
                wait = self.mechanism.wait(self._message(frame, self._number), self.now)
                missing = wait.missing if wait is not None else ()
                gaps = [gap for p, _, last in missing for gap in self._gaps(self.names[p], 0, last)]
                until = next((at for at, k in self._deadlines if k == key), wait.until if wait is not None else None)
                return Blocked(event, "held", self._explained(gaps), until)
        mine = owner == self.me and seq <= self.seq
        known = any(f.owner == owner and f.first <= seq <= f.last for f in self.buffer)
        return Blocked(event, "delivered" if mine or known else "unknown")

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Every bounded buffer: fill and bound."""
        return {**self._common_buffers(len(self.held)), "owners": (len(self.names), MAX_OWNERS)}


def _named(processes: Sequence[MemberId], index: int) -> MemberId:
    if not 0 <= index < len(processes):
        raise BadFrame(f"process {index} of {len(processes)}")
    return processes[index]


def _absorb(cursor: Cursor) -> None:
    """What was beyond a gap, and is not any longer."""
    for number in [n for n in cursor.early if n <= cursor.taken]:
        del cursor.early[number]
    while cursor.taken + 1 in cursor.early:
        cursor.taken += 1
        del cursor.early[cursor.taken]


def _check_content(data: bytes, config: OrderConfig) -> None:
    """A frame carried by another is delivered without ever passing the wire's checks: they are made here."""
    try:
        content = _content.decode(data)
        events = len(_payloads.decode(content.body))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadFrame(f"a carried message: {error}") from None
    if not 1 <= content.count <= config.max_frame_events or content.first < 1 or content.count != events:
        raise BadFrame(f"a carried message of {content.count} events from {content.first}, with {events} payloads")
