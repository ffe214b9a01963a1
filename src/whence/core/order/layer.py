"""What a member asks of its order layer, and what all layers share whatever their clock: the recovery buffer `B`,
questions and answers, the lobby. Each clock (tickets, (N, R, K), the survey's mechanisms) adds its rules in a file of
its own.

In clusters without tickets (`OwnersLayer`) owners count their own frames, and how far each is taken shows the gaps.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from whence.core.clock import (
    MAX_SEQ,
    AnyFrame,
    Digest,
    Entry,
    FreeFrame,
    FreeId,
    MemberId,
    Send,
    StampedFrame,
    address_of,
)
from whence.core.clock.bounds import keep_last
from whence.core.clock.event import decode_payloads
from whence.core.clock.logs import Lamport
from whence.core.order.config import OrderConfig
from whence.core.order.messages import HANDED_OVER, AckRecover, AnySpan, OrderState, Recover
from whence.core.order.outputs import (
    Arrived,
    Blocked,
    Deliver,
    Dropped,
    GaveUp,
    MissingRange,
    OrderOutput,
    OrderStats,
    Published,
)
from whence.core.order.recovery import (
    GIVEN_BYTES,
    GIVEN_FRAMES,
    MAX_COUNTS,
    MAX_PURSUITS,
    Copies,
    Count,
    F,
    FrameKey,
    O,
    Pursuits,
    RecoveryBuffer,
    Span,
    newest,
)
from whence.errors import AbsurdClock, BadFrame, BadMessage, ForgedTicket, UsageError, WrongKind


class Seal(Protocol):
    """Roles: publishers hold the key that signs, everybody verifies. Handed in, because keys are not the protocol's
    business."""

    @property
    def can_sign(self) -> bool:
        """It can sign."""
        ...

    def sign(self, data: bytes) -> bytes: ...

    def verify(self, data: bytes, signature: bytes) -> bool: ...


class OrderContext(NamedTuple):
    """What an order layer is built from."""

    me: MemberId
    config: OrderConfig
    rng: random.Random
    members: Callable[[], Sequence[MemberId]]
    """The members known, without this one."""
    sample: Callable[[int], Sequence[MemberId]]
    """At most so many of them, at random."""
    seal: Seal | None = None
    lamport: Lamport | None = None
    """Where the cluster has total order (docs/total.md)."""


class Numbering(NamedTuple):
    """The ids of a member's next events: `before`, a number that counts up from `first`, `after`."""

    before: str
    first: int
    after: str


MAX_GIVEN_UP = 1024
DATAGRAM = 1200  # bytes; a longer answer goes over a stream
MAX_ANSWERS = 2
"""Answers of full size to one address in a round. Whoever asks for more gets them in the next one: without a bound a
peer that only asks would leave this member no time for its lease."""


class Ordering(ABC, Generic[O, F]):
    """The order layer of one member: frames in, deliveries out. `O` is what frames are counted by: a ticket, or an
    owner."""

    frame_type: type[Any]
    """The kind of frame that this layer takes."""
    held: Mapping[Any, Any]
    """Frames received and not deliverable yet, by key."""
    blocking = False
    """It waits for missing events instead of skipping them (`reliable`)."""

    def __init__(self, context: OrderContext) -> None:
        self.me, self.config, self.rng, self.members, sample, self.seal, self.lamport = context
        config = self.config
        aging = config.replacement == "age"
        self.buffer: RecoveryBuffer[Any, Any] = RecoveryBuffer(config.buffer, config.buffer_bytes, aging)
        self.pursuits: Pursuits[O] = Pursuits(config, self.rng, sample, self._source)
        self.copies = Copies(config, self.rng, sample)
        self.joining = True  # there is no clock yet: nothing is delivered, what arrives waits
        self.answered: dict[str, int] = {}
        """Bytes of the answers that an address got in this round."""
        self.repeated: dict[str, int] = {}
        """Frames that came before and that an address has brought again in this round. Above `GIVEN_FRAMES` they are
        dropped: to check a signature costs a tenth of a millisecond, and whoever takes them spreads them again."""
        self.stats = OrderStats()
        self.held_bytes = 0
        self._lobby: dict[FrameKey[O], tuple[F, MemberId, int]] = {}
        self._deadlines: list[tuple[int, FrameKey[O]]] = []
        self._max_deadlines = 2 * config.hold + 64
        self._given_up: dict[Span[O], None] = {}
        self._patience = config.time_to_terminate_ns + (config.time_to_recover_ns if config.recovery != "off" else 0)
        self._decoded: tuple[AnyFrame, list[bytes]] | None = None
        """The last frame that was checked, and its payloads: most are delivered at once, and decoded only once."""

    # -- what depends on the clock ------------------------------------------------------------------------------

    @abstractmethod
    def numbering(self, tenure: tuple[int, int] | None = None) -> Numbering:
        """The ids that the next published events will have."""

    @abstractmethod
    def heard(self, sender: MemberId, digest: object, now: int) -> None:
        """A peer's digest: pursue what the peer has and this member has not."""

    @abstractmethod
    def digest(self) -> Digest | tuple[tuple[MemberId, int], ...] | None:
        """What this member has delivered, for its peers; None while joining."""

    @abstractmethod
    def state(self) -> OrderState:
        """The state to restart from."""

    @abstractmethod
    def load(self, state: OrderState, now: int) -> None:
        """Take over a state from a snapshot or a checkpoint; `BadMessage` if it is of another kind of cluster."""

    @abstractmethod
    def why_blocked(self, event: str) -> Blocked:
        """What is missing before this event, who was asked, until when."""

    @abstractmethod
    def _stamp(self, payloads: list[bytes], now: int, tenure: tuple[int, int] | None) -> F:
        """The next own frame."""

    @abstractmethod
    def _deliver_own(self, frame: F, now: int, out: list[OrderOutput]) -> None:
        """Deliver the frame that was just stamped, and what waited for it."""

    @abstractmethod
    def _vet(self, frame: F, sender: MemberId) -> None:
        """The checks that need the cluster's settings or, unless `joining`, the clock."""

    @abstractmethod
    def _receive(self, frame: F, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]) -> None:
        """As `receive`, once joined."""

    @abstractmethod
    def _gaps(self, of: O, inc: int, upto: int) -> list[Span[O]]:
        """What of a count is missing up to a number, and not in hand."""

    @abstractmethod
    def _had(self, frame: F) -> bool:
        """It is delivered or given up."""

    @abstractmethod
    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        """As `wake`, once joined."""

    @abstractmethod
    def _source(self, of: O, inc: int) -> MemberId | None:
        """Who published the frames of this count."""

    def found(self, others: Sequence[MemberId]) -> None:
        """The cluster begins, with these others."""

    def admit(self, joiner: MemberId, weaker: bool = False) -> OrderState:
        """The state for a joiner. `weaker`: the joiner's order promises more than this member's. `UsageError`: this
        member cannot admit others."""
        return self.state()

    def vouches(self, said: object, state: OrderState, orphans: bool) -> bool:
        """Whoever has this digest knows of all that was published by this state, and of its `orphans`. (Without tickets
        a digest has a part of the owners only: it vouches for all.)"""
        return True

    # -- tickets; without them there is nothing to do -----------------------------------------------------------

    @property
    def T(self) -> Sequence[Entry]:
        """The causal present: the newest event delivered on each ticket."""
        return ()

    def note_owner(self, ticket: int, inc: int, owner: MemberId) -> None:
        """The ring says who owns this incarnation of a ticket."""

    def expect(self, ticket: int, entry: Entry, now: int) -> None:
        """The ring says that this was published: pursue it at once (a new owner catches up before it publishes)."""

    def caught_up(self, ticket: int, entry: Entry) -> bool:
        """Everything on the ticket up to `entry` is delivered or given up."""
        return True

    def forgo(self, ticket: int, entry: Entry, now: int) -> list[OrderOutput]:
        """Stop waiting for `expect`ed events: they are skipped here."""
        return []

    # -- (N, R, K) clocks; other orders have none ---------------------------------------------------------------

    @property
    def clock_size(self) -> tuple[int, int] | None:
        """R and K of the clock that this member publishes under."""
        return None

    def measured(self) -> dict[str, float]:
        """The clock and what is known of its contract, as numbers."""
        return {}

    def move(self, R: int, K: int, now: int) -> list[OrderOutput]:
        """Begin a generation of R entries and K keys: publish under it from now on, as will all who see it."""
        raise UsageError("this cluster has tickets or a mechanism, and no (N, R, K) clock")

    # -- publish ------------------------------------------------------------------------------------------------

    def publish(
        self, payloads: Sequence[bytes], now: int, tenure: tuple[int, int] | None = None
    ) -> tuple[F, list[OrderOutput]]:
        """Stamp a frame, keep it for recovery, deliver it locally. `tenure`: the ticket and its incarnation, in a
        cluster with tickets."""
        if not 1 <= len(payloads) <= self.config.max_frame_events:
            raise UsageError(f"a frame holds 1 to {self.config.max_frame_events} events, not {len(payloads)}")
        events = list(payloads)
        frame = self._stamp(events, now, tenure)
        if self.seal is not None:
            frame = frame.signed(self.seal.sign(frame.unsigned()))  # type: ignore[assignment]  # of the same type
        self.buffer.add(frame.key, frame, now)
        self.stats.published += frame.count
        self._decoded = (frame, events)
        out: list[OrderOutput] = [Published(frame)]
        self._deliver_own(frame, now, out)
        return frame, out

    # -- receive ------------------------------------------------------------------------------------------------

    def vet(self, frame: AnyFrame, sender: MemberId) -> bool:
        """Raise a `BadFrame` for what no honest peer sends, before the frame is kept or forwarded. The wire has checked
        that it does not contradict itself (`frame.check`). False: it is not taken here, but nobody is to blame. How far
        ahead of all known a timestamp is depends on who knows what, so forwarding an absurd one is no fault."""
        if type(frame) is not self.frame_type:
            raise WrongKind(f"a {type(frame).__name__} in a cluster of {self.frame_type.__name__}s")
        if frame.count > self.config.max_frame_events:
            raise BadFrame(f"frame of {frame.count} events, 1 to {self.config.max_frame_events} allowed")
        if self.seal is not None and not self.joining and self._had(frame):  # type: ignore[arg-type]  # it is one
            count = self.repeated[address_of(sender)] = self.repeated.get(address_of(sender), 0) + 1
            if count > GIVEN_FRAMES:
                self.stats.duplicate_frames += 1
                return False
        if self.seal is not None and not self.seal.verify(frame.unsigned(), frame.signature):
            raise ForgedTicket(f"frame {frame.key} of {frame.owner} is not signed by a publisher")
        if frame.owner == self.me:  # forged, or so old that all have it: others would blame this member for it
            self.stats.duplicate_frames += 1
            return False
        try:
            self._vet(frame, sender)  # type: ignore[arg-type]  # it is one
        except AbsurdClock:
            if frame.owner == sender:
                raise
            self.stats.absurd += frame.count
            return False
        try:
            self._decoded = (frame, decode_payloads(frame.body))  # so many as `frame.check` has seen
        except msgspec.MsgspecError as error:
            raise BadFrame(f"frame {frame.key} of {frame.owner}: body of a frame: {error}") from None
        return True

    def receive(self, frame: F, sender: MemberId, age: int, now: int, recovered: bool = False) -> list[OrderOutput]:
        """A vetted frame, seen by gossip for the first time or recovered. While there is no clock it goes to the
        lobby."""
        out: list[OrderOutput] = []
        if not self.joining:
            self._receive(frame, sender, age, now, recovered, out)
        elif len(self._lobby) < self.config.hold:
            self._lobby[_key(frame)] = (frame, sender, age)
        else:
            self.stats.overflow_frames += 1
        return out

    def _arrived(self, frame: F, sender: MemberId, age: int, recovered: bool, out: list[OrderOutput]) -> None:
        """The frame is new here: keep it for others."""
        self.buffer.add(_key(frame), frame)
        out.append(Arrived(frame, sender, age, recovered))

    def _obsolete(self, frame: F, sender: MemberId, age: int, recovered: bool, out: list[OrderOutput]) -> None:
        """The frame came before, or was given up. Given up: it is late, and lost here, but others may still need it."""
        key: FrameKey[O] = _key(frame)
        if key in self.buffer or not any(r[:2] == key[:2] and r[2] <= key[2] <= r[3] for r in self._given_up):
            self.stats.duplicate_frames += 1
            self._duplicate(frame)
            return
        self._arrived(frame, sender, age, recovered, out)
        self._late(frame, out)

    def _duplicate(self, frame: F) -> None:
        """A frame came again."""

    def _late(self, frame: F, out: list[OrderOutput]) -> None:
        """The frame comes after something that follows it was delivered."""
        self.stats.late += frame.count
        out.append(Dropped(frame, "late"))

    def _give(
        self, frame: F, over_gap: bool, out: list[OrderOutput], alert: int = 0, suspects: tuple[str, ...] = ()
    ) -> None:
        """Hand a frame to the application."""
        self.stats.delivered += frame.count
        if over_gap:
            self.stats.delivered_over_gap += frame.count
        decoded, self._decoded = self._decoded, None
        payloads = decoded[1] if decoded is not None and decoded[0] is frame else None
        out.append(Deliver(frame, over_gap, alert, suspects, payloads))

    def _open_lobby(self, now: int, out: list[OrderOutput]) -> None:
        """Take the frames that arrived while there was no clock."""
        self.joining = False
        lobby, self._lobby = self._lobby, {}
        for frame, sender, age in lobby.values():
            try:
                taken = self.vet(frame, sender)
            except BadFrame:
                taken = False
            if taken:
                out += self.receive(frame, sender, age, now)
            else:
                out.append(Dropped(frame, "invalid"))

    def _note_given_up(self, ranges: Sequence[Span[O]], reason: str, out: list[OrderOutput]) -> None:
        for r in ranges:
            self._given_up[r] = None
            self.stats.skipped += r[3] - r[2] + 1
        keep_last(self._given_up, MAX_GIVEN_UP)
        out.append(GaveUp(tuple(ranges), reason))

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When `wake` is due."""
        if self.joining:
            return None
        deadline = self._deadlines[0][0] if self._deadlines else None
        asking = self.pursuits.next_at
        if self.copies.next_at is not None and (asking is None or self.copies.next_at < asking):
            asking = self.copies.next_at
        if deadline is None or (asking is not None and asking < deadline):
            return asking
        return deadline

    def wake(self, now: int) -> list[OrderOutput]:
        """Ask for what is due, skip what is overdue, forget what is old."""
        out: list[OrderOutput] = []
        if not self.joining:
            self._wake(now, out)
            if self.copies.next_at is not None and self.copies.next_at <= now:
                out.extend(self.copies.wake(now))
        return out

    def _ask(self, now: int, out: list[OrderOutput]) -> None:
        """Ask for what is missing and due."""
        if self.pursuits.next_at is not None and self.pursuits.next_at <= now:
            out.extend(self.pursuits.due(now, self._gaps))
            self.stats.asked = self.pursuits.asked_events

    def _set_deadline(self, at: int, key: FrameKey[O]) -> None:
        if len(self._deadlines) >= self._max_deadlines:  # of frames delivered long ago
            self._deadlines = [d for d in self._deadlines if d[1] in self.held]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (at, key))

    def _overdue(self, now: int) -> Iterator[FrameKey[O]]:
        """The held frames whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key = heapq.heappop(self._deadlines)
            if key in self.held:
                yield key

    # -- peers --------------------------------------------------------------------------------------------------

    def on_recover(self, sender: MemberId, message: Recover) -> list[OrderOutput]:
        """RECOVER: give what `B` holds, and say what it does not."""
        frames: dict[FrameKey[O], F] = {}  # once, however often the ranges name it
        lacks: list[AnySpan] = []
        size, address = 0, address_of(sender)
        if self.answered.get(address, 0) >= MAX_ANSWERS * self.config.max_answer_bytes:
            self.stats.unanswered += 1
            return []
        for wanted in message.ranges[: self.config.max_ranges]:
            found = self._find(wanted)
            if not found:
                lacks.append(wanted)
            for frame in found:
                if _key(frame) in frames:
                    continue
                most = size + frame.size > self.config.max_answer_bytes or len(frames) >= self.config.max_answer_frames
                if frames and most:
                    break
                size += frame.size
                frames[_key(frame)] = frame
        self.stats.answers_given += len(frames)
        self.answered[address] = self.answered.get(address, 0) + size
        return [Send(sender, AckRecover(message.nonce, tuple(frames.values()), tuple(lacks)), reliable=size > DATAGRAM)]

    def _find(self, wanted: AnySpan) -> list[F]:
        """The frames in hand that hold an event of the range, in order."""
        return self.buffer.find(wanted)

    def on_ack_recover(self, sender: MemberId, message: AckRecover, now: int) -> list[OrderOutput]:
        """ACKRECOVER: as `receive`, for each frame."""
        copied = self.copies.answered(sender, message)
        if copied is not None:
            return copied
        given = message.nonce == HANDED_OVER and not self.joining
        if not given and message.nonce not in self.pursuits.nonces:
            return []
        frames = [frame for frame in message.frames[:GIVEN_FRAMES] if self.vet(frame, sender)]
        if given:
            return [step for frame in frames for step in self.keep(frame, sender, now)]
        out: list[OrderOutput] = []
        self.pursuits.denied(sender, message.lacks, now)
        for frame in frames:
            out += self.receive(frame, sender, 0, now, recovered=True)  # type: ignore[arg-type]  # `vet` has said so
        for of, inc in dict.fromkeys(_key(frame)[:2] for frame in message.frames):
            self.pursuits.progress(of, inc, now)
        return out

    def count_copies(
        self, token: int, events: Sequence[str], copies: int, patience: int, now: int
    ) -> list[OrderOutput]:
        """Find out whether so many members hold these own events (`recovery.Copies`)."""
        wanted = dict.fromkeys(events)
        frames: list[AnyFrame] = []
        for frame in reversed(self.buffer):
            if not wanted:
                break
            found = [name for name in frame.names() if name in wanted] if frame.owner == self.me else ()
            if found:
                frames.append(frame)
                for name in found:
                    del wanted[name]
        return self.copies.count(token, [] if wanted else frames[::-1], copies, patience, now)

    def hand_over(self, to: MemberId) -> list[OrderOutput]:
        """Give the end of `B` to a member that has not asked for it: because this one leaves, or because a joiner has
        the events in its state and could give them to nobody."""
        frames = newest(self.buffer, GIVEN_FRAMES, GIVEN_BYTES)
        return [Send(to, AckRecover(HANDED_OVER, frames), reliable=True)] if frames else []

    # -- state --------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> list[OrderOutput]:
        """Start from the present clock (zero, a snapshot's, a checkpoint's), with the frames that arrived meanwhile."""
        out: list[OrderOutput] = []
        self._open_lobby(now, out)
        return out

    def keep(self, frame: AnyFrame, sender: MemberId, now: int) -> list[OrderOutput]:
        """Keep a vetted frame of an earlier life, or of a snapshot, in `B`, where there is room: others may still need
        it. What is there is as young, or whoever gives it would push the copies of others out."""
        assert isinstance(frame, self.frame_type)
        if self.buffer.room(frame.size):
            self.buffer.add(_key(frame), frame)
        return []

    def _until(self, key: FrameKey[O]) -> int | None:
        """When a held frame is delivered over the gap before it."""
        return next((at for at, k in self._deadlines if k == key), None)

    def _explain(self, base: MissingRange, count: Count[O]) -> MissingRange:
        """The same with who was asked for it."""
        pursuit = self.pursuits.by_count.get(count)
        return base if pursuit is None else replace(base, asked=dict(pursuit.asked), denied=tuple(pursuit.denied))

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Every bounded buffer: fill and bound."""
        config = self.config
        return {
            "B": (len(self.buffer), config.buffer),
            "B bytes": (self.buffer.bytes, config.buffer_bytes),
            "H": (len(self.held), config.hold),
            "H bytes": (self.held_bytes, config.hold_bytes),
            "lobby": (len(self._lobby), config.hold),
            "deadlines": (len(self._deadlines), self._max_deadlines),
            "pursuits": (len(self.pursuits.by_count), MAX_PURSUITS),
            "copies": (len(self.copies), MAX_COUNTS),
            "given up": (len(self._given_up), MAX_GIVEN_UP),
        }


def _key(frame: AnyFrame) -> Any:
    """The key of a frame."""
    return frame.key


MAX_OWNERS = 4096
"""Owners remembered; each costs about 40 bytes in a snapshot."""
DIGEST_ROWS = 64
"""Owners in a digest: half of them those that moved last, half at random."""


class Cursor:
    """One owner's frames: all up to `taken` are taken or given up; `early` are beyond a gap."""

    __slots__ = ("early", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.early: dict[int, Any] = {}


C = TypeVar("C", bound=Cursor)
OF = TypeVar("OF", bound=FreeFrame | StampedFrame)


class OwnersLayer(Ordering[str, OF], Generic[OF, C]):
    """A layer whose frames are counted by their owners."""

    new_cursor: type[C]

    def __init__(self, context: OrderContext) -> None:
        super().__init__(context)
        self.cursors: dict[MemberId, C] = {}  # the last to move is the last
        self.seq = 0

    def numbering(self, tenure: tuple[int, int] | None = None) -> Numbering:
        return Numbering(f"{self.me}/", self.seq + 1, "")

    def _next_seq(self, payloads: Sequence[bytes]) -> int:
        """The number of the first of these events, which are about to be published."""
        if self.seq + len(payloads) > MAX_SEQ:
            raise UsageError("this member has used up its sequence numbers: leave and join again")
        return self.seq + 1

    def _cursor(self, owner: MemberId) -> C:
        """The owner's cursor, which becomes the youngest."""
        cursor = self.cursors.pop(owner, None) or self.new_cursor()
        self.cursors[owner] = cursor
        if len(self.cursors) > MAX_OWNERS:
            self._forget_owner()
        return cursor

    def _forget_owner(self) -> None:
        """Forget the owner that is silent longest and not in the view (else simply the one silent longest)."""
        there = {*self.members(), self.me}  # looked up, never iterated
        gone = next((o for o, c in self.cursors.items() if o not in there and not c.early), None)
        del self.cursors[gone if gone is not None else next(iter(self.cursors))]
        self.stats.forgotten += 1

    def _had(self, frame: OF) -> bool:
        cursor = self.cursors.get(frame.owner)
        return cursor is not None and _key(frame)[2] <= cursor.taken

    def _gaps(self, of: MemberId, inc: int, upto: int) -> list[Span[str]]:
        cursor = self.cursors.get(of)
        at = cursor.taken + 1 if cursor is not None else 1
        gaps: list[Span[str]] = []
        for number in sorted(n for n in cursor.early if n <= upto) if cursor is not None else ():
            if number > at:
                gaps.append((of, 0, at, number - 1))
            at = number + 1
        if at <= upto:
            gaps.append((of, 0, at, upto))
        return gaps

    # -- peers --------------------------------------------------------------------------------------------------

    def heard(self, sender: MemberId, digest: object, now: int) -> None:
        if self.joining:
            return
        if not isinstance(digest, tuple):
            raise WrongKind("a digest of tickets in a cluster without tickets")
        for owner, number in digest:
            cursor = self.cursors.get(owner)
            taken = cursor.taken if cursor is not None else 0
            if owner == self.me or number <= taken:
                continue
            if number - taken > self.config.max_jump:
                raise BadMessage(f"digest: frame {number} of {owner} is {number - taken} ahead")
            self.pursuits.want(owner, 0, number, now, holder=sender)

    def digest(self) -> tuple[tuple[MemberId, int], ...] | None:
        """How far this member has taken the frames of some owners: those that moved last, and a few at random."""
        if self.joining:
            return None
        rows = list(self.cursors.items())
        if len(rows) > DIGEST_ROWS:
            half = DIGEST_ROWS // 2
            rows = [*rows[: -half - 1 : -1], *self.rng.sample(rows[:-half], half)]
        return tuple((owner, cursor.taken) for owner, cursor in rows if cursor.taken)

    def _source(self, of: str, inc: int) -> MemberId | None:
        return of

    def _explained(self, gaps: Sequence[Span[str]]) -> tuple[MissingRange, ...]:
        return tuple(
            self._explain(MissingRange(None, owner, first, last), (owner, 0)) for owner, _, first, last in gaps
        )

    def why_blocked(self, event: str) -> Blocked:
        try:
            owner, seq = FreeId.parse(event)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return self._why_blocked(owner, seq, event)

    @abstractmethod
    def _why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        """See `why_blocked`."""
