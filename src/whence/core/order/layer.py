"""What all order layers share, whatever their clock: the recovery buffer `B`, questions and answers, the lobby."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic

from whence.core.clock import AnyFrame, MemberId
from whence.core.order.buffers import (
    GIVEN_BYTES,
    GIVEN_FRAMES,
    AgingBuffer,
    Count,
    F,
    FrameKey,
    O,
    RecoveryBuffer,
    Span,
    newest,
)
from whence.core.order.copies import MAX_COUNTS, Copies
from whence.core.order.explain import Missing
from whence.core.order.interface import OrderContext, Ordering
from whence.core.order.messages import HANDED_OVER, AckRecover, Recover
from whence.core.order.outputs import Arrived, Deliver, Dropped, GaveUp, OrderOutput, OrderSend, Published
from whence.core.order.recovery import MAX_PURSUITS, Pursuits
from whence.core.order.stats import OrderStats
from whence.errors import BadFrame, ForgedTicket, UsageError, WrongKind

MAX_GIVEN_UP = 1024
DATAGRAM = 1200  # bytes; a longer answer goes over a stream


class Layer(Ordering, Generic[O, F]):
    """The part of an order layer that does not depend on its clock.

    `O` is what frames are counted by: a ticket, or an owner.
    """

    frame_type: ClassVar[type[Any]]
    """The kind of frame that this layer takes."""

    def __init__(self, context: OrderContext) -> None:
        self.me, self.config, self.rng, self.members, sample, self.seal = context
        config = self.config
        kind: type[RecoveryBuffer[O, F]] = AgingBuffer if config.replacement == "age" else RecoveryBuffer
        self.buffer = kind(config.buffer, config.buffer_bytes)
        self.pursuits: Pursuits[O] = Pursuits(config, self.rng, sample, self._source)
        self.copies = Copies(config, self.rng, sample)
        self.joining = True
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
    def _stamp(self, payloads: list[bytes], now: int, tenure: tuple[int, int] | None) -> F:
        """The next own frame."""

    @abstractmethod
    def _deliver_own(self, frame: F, now: int, out: list[OrderOutput]) -> None:
        """Deliver the frame that was just stamped, and what waited for it."""

    @abstractmethod
    def _vet(self, frame: F, sender: MemberId) -> None:
        """The checks that need the cluster's settings or, unless `joining`, the clock."""

    @abstractmethod
    def _accept(self, frame: F, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]) -> None:
        """Take a vetted frame."""

    @abstractmethod
    def _gaps(self, of: O, inc: int, upto: int) -> list[Span[O]]:
        """What of a count is missing up to a number, and not in hand."""

    @abstractmethod
    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        """As `wake`, once joined."""

    @abstractmethod
    def _source(self, of: O, inc: int) -> MemberId | None:
        """Who published the frames of this count."""

    # -- publish ------------------------------------------------------------------------------------------------

    def publish(
        self, payloads: Sequence[bytes], now: int, tenure: tuple[int, int] | None = None
    ) -> tuple[F, list[OrderOutput]]:
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

    def vet(self, frame: AnyFrame, sender: MemberId) -> None:
        if not isinstance(frame, self.frame_type):
            raise WrongKind(f"a {type(frame).__name__} in a cluster of {self.frame_type.__name__}s")
        if frame.count > self.config.max_frame_events:
            raise BadFrame(f"frame of {frame.count} events, 1 to {self.config.max_frame_events} allowed")
        if self.seal is not None and not self.seal.verify(frame.unsigned(), frame.signature):
            raise ForgedTicket(f"frame {frame.key} of {frame.owner} is not signed by a publisher")
        self._vet(frame, sender)
        self._decoded = (frame, check_body(frame))

    def receive(
        self, frame: AnyFrame, sender: MemberId, age: int, now: int, recovered: bool = False
    ) -> list[OrderOutput]:
        assert isinstance(frame, self.frame_type)
        out: list[OrderOutput] = []
        if self.joining:
            if len(self._lobby) < self.config.hold:
                self._lobby[_key(frame)] = (frame, sender, age)
            else:
                self.stats.overflow_frames += 1
            return out
        self._accept(frame, sender, age, now, recovered, out)
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
                self.vet(frame, sender)
            except BadFrame:
                out.append(Dropped(frame, "invalid"))
                continue
            self._accept(frame, sender, age, now, False, out)

    def _note_given_up(self, ranges: Sequence[Span[O]], reason: str, out: list[OrderOutput]) -> None:
        for r in ranges:
            self._given_up[r] = None
            self.stats.skipped += r[3] - r[2] + 1
        while len(self._given_up) > MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]
        out.append(GaveUp(tuple(ranges), reason))

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
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
        frames: list[F] = []
        lacks: list[Span[O]] = []
        size = 0
        for wanted in message.spans()[: self.config.max_ranges]:
            found = self.buffer.find(wanted)
            if not found:
                lacks.append(wanted)
            for frame in found:
                size += frame.size
                if frames and (len(frames) >= self.config.max_answer_frames or size > self.config.max_answer_bytes):
                    break
                frames.append(frame)
        self.stats.answers_given += len(frames)
        return [OrderSend(sender, AckRecover.of(message.nonce, frames, lacks), reliable=size > DATAGRAM)]

    def on_ack_recover(self, sender: MemberId, message: AckRecover, now: int) -> list[OrderOutput]:
        copied = self.copies.answered(sender, message)
        if copied is not None:
            return copied
        out: list[OrderOutput] = []
        if message.nonce == HANDED_OVER and not self.joining:
            for frame in message.frames:
                self.vet(frame, sender)
            for frame in message.frames:
                out.extend(self.keep(frame, sender, now))
        if message.nonce not in self.pursuits.nonces:
            return out
        self.pursuits.denied(sender, message.lacked(), now)
        for frame in message.frames:
            self.vet(frame, sender)
        for frame in message.frames:
            out.extend(self.receive(frame, sender, 0, now, recovered=True))
        for of, inc in dict.fromkeys(_key(frame)[:2] for frame in message.frames):
            self.pursuits.progress(of, inc, now)
        return out

    def count_copies(
        self, token: int, events: Sequence[str], copies: int, patience: int, now: int
    ) -> list[OrderOutput]:
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

    def hand_over(self, to: MemberId) -> OrderSend | None:
        frames = newest(self.buffer, GIVEN_FRAMES, GIVEN_BYTES)
        return OrderSend(to, AckRecover.of(HANDED_OVER, frames, ()), reliable=True) if frames else None

    # -- state --------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> list[OrderOutput]:
        out: list[OrderOutput] = []
        self._open_lobby(now, out)
        return out

    def keep(self, frame: AnyFrame, sender: MemberId, now: int) -> list[OrderOutput]:
        assert isinstance(frame, self.frame_type)
        self.buffer.add(_key(frame), frame)
        return []

    def _until(self, key: FrameKey[O]) -> int | None:
        """When a held frame is delivered over the gap before it."""
        return next((at for at, k in self._deadlines if k == key), None)

    def _explain(self, base: Missing, count: Count[O]) -> Missing:
        """The same with who was asked for it."""
        pursuit = self.pursuits.by_count.get(count)
        if pursuit is None:
            return base
        asked, denied = dict(pursuit.asked), tuple(pursuit.denied)
        return Missing(base.ticket, base.incarnation, base.first, base.last, asked, denied, pursuit.next_at)

    def buffers(self) -> dict[str, tuple[int, int]]:
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


def check_body(frame: AnyFrame) -> list[bytes]:
    """The payloads; `BadFrame` for a body that the application could not read: such a frame is not delivered, kept or
    forwarded. The wire checks only how the body begins, because most frames received are duplicates."""
    try:
        return frame.payloads()
    except BadFrame as error:
        raise BadFrame(f"frame {frame.key} of {frame.owner}: {error}") from None


def _key(frame: AnyFrame) -> Any:
    """The key of a frame; what it is counted by goes with the layer."""
    return frame.key
