"""Order layers of clusters without tickets: owners count their own frames, and how far each is taken shows the gaps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from whence.clock import MAX_SEQ, FreeFrame, MemberId, StampedFrame
from whence.errors import BadMessage, UsageError, WrongKind
from whence.order.checks import Seal
from whence.order.config import OrderConfig
from whence.order.explain import Missing
from whence.order.layer import Layer
from whence.order.messages import AckRecover, Recover

MAX_OWNERS = 4096
"""Owners remembered; each costs about 40 bytes in a snapshot."""
DIGEST_ROWS = 64
"""Owners in a digest: half of them those that moved last, half at random."""

Stretch = tuple[MemberId, int, int, int]
"""`(owner, 0, first, last)`: a range of frames."""
FreeKey = tuple[MemberId, int, int]


class Cursor:
    """One owner's frames: all up to `taken` are taken or given up; `early` are beyond a gap."""

    __slots__ = ("early", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.early: dict[int, Any] = {}


C = TypeVar("C", bound=Cursor)
OF = TypeVar("OF", bound=FreeFrame | StampedFrame)


class OwnersLayer(Layer[str, OF], Generic[OF, C]):
    """A layer whose frames are counted by their owners."""

    def __init__(
        self,
        me: MemberId,
        config: OrderConfig,
        rng: random.Random,
        members: Callable[[], Sequence[MemberId]],
        sample: Callable[[int], Sequence[MemberId]],
        seal: Seal | None,
        kind: type[OF],
        cursor: type[C],
    ) -> None:
        super().__init__(me, config, rng, members, sample, seal, kind)
        self.new_cursor = cursor
        self.cursors: dict[MemberId, C] = {}  # the last to move is the last
        self.seq = 0

    def _check_publish(self, payloads: Sequence[bytes]) -> None:
        if not 1 <= len(payloads) <= self.config.max_frame_events:
            raise UsageError(f"a frame holds 1 to {self.config.max_frame_events} events, not {len(payloads)}")
        if self.seq + len(payloads) > MAX_SEQ:
            raise UsageError("this member has used up its sequence numbers: leave and join again")

    def _cursor(self, owner: MemberId) -> C:
        """The owner's cursor, which becomes the youngest."""
        cursor = self.cursors.pop(owner, None) or self.new_cursor()
        self.cursors[owner] = cursor
        if len(self.cursors) > MAX_OWNERS:
            self.stats.forgotten += evict(self.cursors, self.members(), self.me)
        return cursor

    def _gaps(self, owner: MemberId, _: int, upto: int) -> list[Stretch]:
        """What of an owner's frames is missing and not in hand."""
        cursor = self.cursors.get(owner)
        at = cursor.taken + 1 if cursor is not None else 1
        gaps: list[Stretch] = []
        for number in sorted(n for n in cursor.early if n <= upto) if cursor is not None else ():
            if number > at:
                gaps.append((owner, 0, at, number - 1))
            at = number + 1
        if at <= upto:
            gaps.append((owner, 0, at, upto))
        return gaps

    # -- peers --------------------------------------------------------------------------------------------------

    def heard(self, sender: MemberId, heads: object, now: int) -> None:
        """A peer says how far it has taken some owners' frames: what it has and we have not is pursued."""
        if self.joining:
            return
        if not isinstance(heads, tuple):
            raise WrongKind("a digest of tickets in a cluster without tickets")
        for owner, number in heads:
            cursor = self.cursors.get(owner)
            taken = cursor.taken if cursor is not None else 0
            if owner == self.me or number <= taken:
                continue
            if number - taken > self.config.max_jump:
                raise BadMessage(f"digest: frame {number} of {owner} is {number - taken} ahead")
            self.pursuits.want(owner, 0, number, now, holder=sender)

    def digest(self) -> tuple[tuple[MemberId, int], ...] | None:
        """How far we have taken the frames of some owners: those that moved last, and a few others at random."""
        return None if self.joining else digest_of(self.cursors, self.rng)

    def _source(self, of: str, inc: int) -> MemberId | None:
        return of

    def _question(self, nonce: int, ranges: tuple[Stretch, ...]) -> Recover:
        return Recover(nonce, (), tuple((owner, first, last) for owner, _, first, last in ranges))

    def _asked_for(self, message: Recover) -> Sequence[Stretch]:
        return [(owner, 0, first, last) for owner, first, last in message.runs]

    def _answer(self, nonce: int, frames: list[OF], lacks: list[Stretch]) -> AckRecover:
        return AckRecover(nonce, tuple(frames), (), tuple((owner, first, last) for owner, _, first, last in lacks))

    def _lacked(self, message: AckRecover) -> Sequence[Stretch]:
        return [(owner, 0, first, last) for owner, first, last in message.lacks_runs]

    def _explained(self, gaps: Sequence[Stretch]) -> tuple[Missing, ...]:
        return tuple(self._explain(Missing(None, owner, first, last), (owner, 0)) for owner, _, first, last in gaps)


def evict(cursors: dict[MemberId, C], members: Sequence[MemberId], me: MemberId) -> int:
    """Forget the owner that is silent longest and not in the view (else simply the one silent longest)."""
    there = {*members, me}  # looked up, never iterated
    gone = next((o for o, c in cursors.items() if o not in there and not c.early), None)
    del cursors[gone if gone is not None else next(iter(cursors))]
    return 1


def digest_of(cursors: dict[MemberId, C], rng: random.Random) -> tuple[tuple[MemberId, int], ...]:
    """The last numbers of some owners."""
    if len(cursors) <= DIGEST_ROWS:
        return tuple((owner, c.taken) for owner, c in cursors.items() if c.taken)
    recent = list(islice(reversed(cursors.items()), DIGEST_ROWS // 2))
    others = rng.sample(list(islice(cursors.items(), len(cursors) - len(recent))), DIGEST_ROWS // 2)
    return tuple((owner, c.taken) for owner, c in [*recent, *others] if c.taken)
