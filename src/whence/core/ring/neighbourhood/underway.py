"""What is under way at a coordinator's edge. While anything is, it neither admits nor leaves (rule 1)."""

from __future__ import annotations

import msgspec

from whence.core.clock import MemberId
from whence.core.ring.context import Context, Timer
from whence.core.ring.edge import Edge, Holders
from whence.core.ring.interface import Frozen, State, Thawed
from whence.core.ring.messages import Cancel, Holder


class Newcomer(msgspec.Struct):
    """The one newcomer that a coordinator has admitted and that is not yet confirmed (rule 10)."""

    holder: Holder
    since: int
    before: Edge
    """The edge as it was, should the newcomer decline."""
    answered: bool = False


class Attempt(msgspec.Struct):
    """One exclusion (rule 18: a reply counts only for the nonce it answers)."""

    nonce: int
    candidate: Holder
    """Who is asked, or has answered, as the next reachable coordinator q."""
    tickets: tuple[int, ...] = ()
    """E, once q has answered."""
    era: int = 0
    lists: tuple[Holders, ...] = ()
    """Every R that needs a quorum (rule 13)."""
    electorate: Holders = ()
    """(L_q + {q}) n R."""
    acks: list[Holder] = []
    retries: int = 0
    asked: list[MemberId] = []
    """Everybody who was sent EXCLUDE or REQCOORD."""


class Underway:
    """An unconfirmed newcomer, an exclusion, its TempRounds, or the freeze after it failed."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.newcomer: Newcomer | None = None
        self.attempt: Attempt | None = None
        self.temp_until = 0
        """The end of TempRounds."""
        self.frozen = False
        self.courted: tuple[Holder, int] | None = None
        """Who is excluding the predecessor and has this process's L, and the nonce it asked with: until that is
        decided, this process does not leave."""
        ctx.when_vacated.append(self._clear)

    def _clear(self) -> None:
        self.cancel_attempt()
        self.newcomer = self.courted = None
        self.temp_until = 0
        self.frozen = False

    @property
    def waiting(self) -> bool:
        """TempRounds are not over."""
        return self.ctx.now < self.temp_until

    @property
    def quiet(self) -> bool:
        return self.attempt is None and self.newcomer is None and not self.waiting

    @property
    def settled(self) -> bool:
        """An owner with nothing under way: it may admit, and it may begin to leave."""
        ctx = self.ctx
        return ctx.state is State.OWNER and ctx.edge is not None and ctx.edge.acked and self.quiet and not self.frozen

    def excluding(self, ticket: int) -> bool:
        return self.attempt is not None and ticket in self.attempt.tickets

    def cancel_attempt(self) -> None:
        """The attempt failed, or is no longer needed: it is void, and those who were asked are told so (rule 18)."""
        if self.attempt is not None:
            holder, _ = self.ctx.sitting()
            for member in dict.fromkeys(self.attempt.asked):
                self.ctx.send(member, Cancel(self.attempt.nonce, holder.tenure))
            self.attempt = None
            self.ctx.stop(Timer.EXCLUDE, Timer.ACKS)

    def freeze(self, reason: str) -> None:
        """Rule 17: a failed exclusion does not disconnect; admit nobody and try again, until patience is over."""
        if not self.frozen:
            self.frozen = True
            self.ctx.after(self.ctx.config.patience_ns, Timer.FROZEN)
            self.ctx.say(Frozen(reason))

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self.ctx.stop(Timer.FROZEN)
            self.ctx.say(Thawed())
