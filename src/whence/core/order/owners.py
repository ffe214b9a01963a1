"""Order layers of clusters without tickets: owners count their own frames, and how far each is taken shows the gaps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from whence.core.clock import MAX_SEQ, FreeFrame, FreeId, MemberId, StampedFrame
from whence.core.order.buffers import Span
from whence.core.order.explain import Blocked, Missing
from whence.core.order.interface import Numbering, OrderContext
from whence.core.order.layer import Layer
from whence.errors import BadMessage, UsageError, WrongKind

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


class OwnersLayer(Layer[str, OF], Generic[OF, C]):
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

    def _explained(self, gaps: Sequence[Span[str]]) -> tuple[Missing, ...]:
        return tuple(self._explain(Missing(None, owner, first, last), (owner, 0)) for owner, _, first, last in gaps)

    def why_blocked(self, event: str) -> Blocked:
        try:
            owner, seq = FreeId.parse(event)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return self._why_blocked(owner, seq, event)

    @abstractmethod
    def _why_blocked(self, owner: MemberId, seq: int, event: str) -> Blocked:
        """See `why_blocked`."""
