"""No ring at all: a cluster without tickets, where every member may publish at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.core.clock import Incarnation, MemberId
from whence.core.ring.interface import Memory, RingOutput, State
from whence.core.ring.messages import RingMessage, RingNews
from whence.errors import WrongKind


class NoRing:
    """What members ask of a `Ring`, with nothing behind it."""

    wake_at: int | None = None
    state = State.OUT
    ticket: int | None = None
    inc: Incarnation | None = None
    tenure: tuple[int, int] | None = None
    may_publish = True
    epoch = 0
    implausible = 0

    def owns_at(self, now: int) -> bool:
        return False

    retired = True

    def start(self, now: int) -> list[RingOutput]:
        return []

    def retire(self, now: int) -> list[RingOutput]:
        return []

    def memory(self) -> Memory | None:
        return None

    def found(self, now: int, epoch: int, force: bool = False) -> list[RingOutput]:
        return []

    def coordinate(self, now: int) -> list[RingOutput]:
        return []

    def resign(self, now: int) -> list[RingOutput]:
        return []

    def receive(self, sender: MemberId, message: RingMessage, now: int) -> list[RingOutput]:
        raise WrongKind("a message of the ring in a cluster without tickets")

    def hear(self, news: RingNews, now: int) -> list[RingOutput]:
        raise WrongKind("news of the ring in a cluster without tickets")

    def wake(self, now: int) -> list[RingOutput]:
        return []

    def published(self, seq: int) -> None:
        pass

    def coordinators(self) -> dict[int, MemberId]:
        return {}

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        pass

    def anchor(self, inc: int) -> None:
        pass

    def contacts(self, members: Sequence[MemberId]) -> None:
        pass
