"""What every order layer does alike, whatever its clock: `B`, questions and answers, the lobby of a joiner."""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from whence.clock import AnyFrame, MemberId
from whence.errors import BadFrame
from whence.order.buffers import F, O, RecoveryBuffer
from whence.order.checks import Seal
from whence.order.config import OrderConfig
from whence.order.explain import Missing
from whence.order.messages import AckRecover, ClockState, Recover
from whence.order.outputs import Dropped, GaveUp, OrderOutput, OrderSend
from whence.order.recovery import MAX_PURSUITS, Pursuits
from whence.order.stats import OrderStats

MAX_GIVEN_UP = 1024
DATAGRAM = 1200  # bytes; a longer answer goes over a stream

K = TypeVar("K", bound=Hashable)


class Layer(ABC, Generic[O, F]):
    """The order layer of one member: what does not depend on its clock.

    `O` is what frames are counted by: a ticket, or an owner; a range of them is `(ticket, incarnation, first, last)`
    or `(owner, 0, first, last)`.
    """

    def __init__(
        self,
        me: MemberId,
        config: OrderConfig,
        rng: random.Random,
        members: Callable[[], Sequence[MemberId]],
        sample: Callable[[int], Sequence[MemberId]],
        seal: Seal | None,
        kind: type[F],
    ) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.members = members
        self.seal = seal
        self.kind = kind
        self.buffer: RecoveryBuffer[O, F] = RecoveryBuffer(config.buffer, config.buffer_bytes)
        self.pursuits: Pursuits[O] = Pursuits(config, rng, sample, self._source, self._question)
        self.joining = True
        self.stats = OrderStats()
        self.held_bytes = 0
        self._lobby: dict[tuple[O, int, int], tuple[F, MemberId, int]] = {}
        self._deadlines: list[tuple[int, tuple[O, int, int]]] = []
        self._max_deadlines = 2 * config.hold + 64
        self._given_up: dict[tuple[O, int, int, int], None] = {}
        self._patience = config.time_to_terminate_ns + (config.time_to_recover_ns if config.recovery != "off" else 0)

    # -- what depends on the clock ------------------------------------------------------------------------------

    @abstractmethod
    def _accept(self, frame: F, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]) -> None:
        """Take a vetted frame."""

    @abstractmethod
    def vet(self, frame: AnyFrame, sender: MemberId) -> None:
        """Raise a `BadFrame` for what no honest peer sends: to be asked before the frame is kept or forwarded."""

    @abstractmethod
    def state(self) -> ClockState:
        """The clock as data, for a checkpoint."""

    @abstractmethod
    def _source(self, of: O, inc: int) -> MemberId | None:
        """Who published the frames of this count."""

    @abstractmethod
    def _question(self, nonce: int, ranges: tuple[tuple[O, int, int, int], ...]) -> Recover:
        """A RECOVER of these ranges."""

    @abstractmethod
    def _asked_for(self, message: Recover) -> Sequence[tuple[O, int, int, int]]:
        """The ranges of a RECOVER."""

    @abstractmethod
    def _answer(self, nonce: int, frames: list[F], lacks: list[tuple[O, int, int, int]]) -> AckRecover:
        """An ACKRECOVER."""

    @abstractmethod
    def _lacked(self, message: AckRecover) -> Sequence[tuple[O, int, int, int]]:
        """What the sender of an ACKRECOVER has nothing of."""

    # -- receive ------------------------------------------------------------------------------------------------

    def receive(
        self, frame: AnyFrame, sender: MemberId, age: int, now: int, recovered: bool = False
    ) -> list[OrderOutput]:
        """A vetted frame that gossip saw for the first time, or that a peer gave back."""
        assert isinstance(frame, self.kind)
        out: list[OrderOutput] = []
        if self.joining:
            key: tuple[O, int, int] = frame.key  # type: ignore[assignment]  # F goes with O
            if len(self._lobby) < self.config.hold:
                self._lobby[key] = (frame, sender, age)
            else:
                self.stats.overflow_frames += 1
            return out
        self._accept(frame, sender, age, now, recovered, out)
        return out

    def _open_lobby(self, now: int, out: list[OrderOutput]) -> None:
        """Take what has arrived while there was no clock to judge it by."""
        self.joining = False
        lobby, self._lobby = self._lobby, {}
        for frame, sender, age in lobby.values():
            try:
                self.vet(frame, sender)
            except BadFrame:
                out.append(Dropped(frame, "invalid"))
                continue
            self._accept(frame, sender, age, now, False, out)

    def _was_given_up(self, of: O, inc: int, number: int) -> bool:
        return any(o == of and i == inc and a <= number <= b for o, i, a, b in self._given_up)

    def _note_given_up(self, ranges: Sequence[tuple[O, int, int, int]], reason: str, out: list[OrderOutput]) -> None:
        for r in ranges:
            self._given_up[r] = None
            self.stats.skipped += r[3] - r[2] + 1
        while len(self._given_up) > MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]
        out.append(GaveUp(tuple(ranges), reason))

    def _set_deadline(self, at: int, key: tuple[O, int, int], held: dict[tuple[O, int, int], K]) -> None:
        if len(self._deadlines) >= self._max_deadlines:  # of frames delivered long ago
            self._deadlines = [d for d in self._deadlines if d[1] in held]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (at, key))

    # -- peers --------------------------------------------------------------------------------------------------

    def on_recover(self, sender: MemberId, message: Recover) -> list[OrderOutput]:
        """RECOVER: give what `B` holds, and say what it does not."""
        frames: list[F] = []
        lacks: list[tuple[O, int, int, int]] = []
        size = 0
        for wanted in self._asked_for(message)[: self.config.max_ranges]:
            found = self.buffer.find(wanted)
            if not found:
                lacks.append(wanted)
            for frame in found:
                size += frame.size
                if frames and (len(frames) >= self.config.max_answer_frames or size > self.config.max_answer_bytes):
                    break
                frames.append(frame)
        self.stats.answers_given += len(frames)
        return [OrderSend(sender, self._answer(message.nonce, frames, lacks), reliable=size > DATAGRAM)]

    def on_ack_recover(self, sender: MemberId, message: AckRecover, now: int) -> list[OrderOutput]:
        """ACKRECOVER: as receive, for each frame."""
        out: list[OrderOutput] = []
        if message.nonce not in self.pursuits.nonces:
            return out
        self.pursuits.denied(sender, self._lacked(message), now)
        for frame in message.frames:
            self.vet(frame, sender)
        for frame in message.frames:
            out.extend(self.receive(frame, sender, 0, now, recovered=True))
        counts: dict[tuple[O, int], None] = dict.fromkeys(f.key[:2] for f in message.frames)  # type: ignore[misc]
        for count in counts:
            self.pursuits.progress(*count, now)
        return out

    # -- state --------------------------------------------------------------------------------------------------

    def keep(self, frame: AnyFrame) -> None:
        """A frame of an earlier life, which others may still need."""
        assert isinstance(frame, self.kind)
        key: tuple[O, int, int] = frame.key  # type: ignore[assignment]  # F goes with O
        self.buffer.add(key, frame)

    def found(self, others: Sequence[MemberId]) -> None:
        """The cluster begins, with these others."""

    def admit(self, joiner: MemberId, weaker: bool = False) -> ClockState:
        """The clock as data, for a snapshot; `weaker`: the joiner's order promises more than this member's."""
        return self.state()

    def _explain(self, base: Missing, tenure: tuple[O, int]) -> Missing:
        """The same with who was asked for it."""
        pursuit = self.pursuits.by_tenure.get(tenure)
        if pursuit is None:
            return base
        asked, denied = dict(pursuit.asked), tuple(pursuit.denied)
        return Missing(base.ticket, base.incarnation, base.first, base.last, asked, denied, pursuit.next_at)

    def _common_buffers(self, held: int) -> dict[str, tuple[int, int]]:
        """Every bounded buffer that all layers have: fill and bound."""
        return {
            "B": (len(self.buffer), self.config.buffer),
            "B bytes": (self.buffer.bytes, self.config.buffer_bytes),
            "H": (held, self.config.hold),
            "H bytes": (self.held_bytes, self.config.hold_bytes),
            "lobby": (len(self._lobby), self.config.hold),
            "deadlines": (len(self._deadlines), self._max_deadlines),
            "pursuits": (len(self.pursuits.by_tenure), MAX_PURSUITS),
            "given up": (len(self._given_up), MAX_GIVEN_UP),
        }
