"""Founding: how the first ticket comes into the world (docs/ring.md, "Bootstrap and empty core").

The first process is designated. It listens for a quarantine and gives up when it hears of a living coordinator. Nobody
founds on a time-out. A higher epoch ends all tenures of a lower one.

Rule 20: founders that were told to found and founders that a ring agreed on draw their epochs from disjoint numbers.
"""

from __future__ import annotations

from whence.core.clock import MemberId
from whence.core.ring.applicant import Applicant
from whence.core.ring.context import SEATED, Context, Timer
from whence.core.ring.interface import Rejected, State
from whence.core.ring.messages import ERA_SHIFT, MAX_EPOCH, Holder, Who
from whence.core.ring.table import floor_of

TOLD_EVERY = 8
"""One epoch in so many is for founders that were told to found. They stay above a ring that was founded again up to
`TOLD_EVERY - 1` times without their knowing. A larger number uses up the 65,536 epochs sooner."""


def told_epoch(seen: int) -> int:
    """The epoch of a founder that was told to found, above `seen`: 1, 9, 17, ... (rule 20)."""
    return seen + TOLD_EVERY - (seen - 1) % TOLD_EVERY


def agreed_epoch(seen: int) -> int:
    """The epoch of a founder that others agreed to, above `seen`: any other number (rule 20)."""
    return seen + 1 if seen % TOLD_EVERY else seen + 2


class Founding:
    """The designated founder's side."""

    def __init__(self, ctx: Context, applicant: Applicant) -> None:
        self.ctx = ctx
        self.applicant = applicant
        self.pledged = 0
        """The highest epoch under which this process has let somebody found the ring again."""
        self._epoch = 0
        self.refused = ""
        """Why the last founding was given up."""

    @property
    def seen(self) -> int:
        """The highest epoch that was founded, or that somebody was allowed to found."""
        return max(self.pledged, self.ctx.table.epoch)

    @property
    def epoch(self) -> int:
        return max(self._epoch, self.seen)

    def found(self, epoch: int) -> None:
        ctx = self.ctx
        self.refused = self._why_not(epoch)
        if self.refused:
            ctx.say(Rejected(self.refused))
            return
        ctx.designated_at = ctx.designated_at or ctx.now
        ctx.wanted, ctx.resigning = True, False
        self.applicant.withdraw()
        ctx.state = State.FOUNDING
        self._epoch = epoch
        ctx.after(ctx.config.quarantine_ns, Timer.QUARANTINE)
        self.look()

    def _why_not(self, epoch: int) -> str:
        if self.ctx.state in SEATED:
            return "already a member of the ring"
        if epoch <= self.seen:
            return f"epoch {epoch} is not above {self.seen}, which was seen already"
        if epoch >= MAX_EPOCH:
            return f"all {MAX_EPOCH} epochs are used up: begin a cluster under another name"
        return ""

    def look(self) -> None:
        """Ask everybody known whether there is a coordinator, twice a round."""
        for member in self.applicant.everybody():
            self.ctx.send(member, Who(self.ctx.next_nonce()))
        self.ctx.after(self.ctx.config.round_ns // 2, Timer.LOOK)

    def heard_owner(self, member: MemberId) -> None:
        """There is a ring already."""
        if self.ctx.state is State.FOUNDING:
            self.give_up(f"{member} is a living coordinator")

    def give_up(self, reason: str) -> None:
        self.refused = reason
        self.ctx.stop(Timer.QUARANTINE, Timer.LOOK)
        self.ctx.say(Rejected(reason))
        self.applicant.later()

    def agreed(self, epoch: int) -> None:
        """Everybody concerned lets this process found: no quarantine."""
        if self.take_all(epoch):
            self.ctx.own()

    def complete(self) -> None:
        """The quarantine is over."""
        self.agreed(self._epoch)

    def take_all(self, epoch: int) -> bool:
        """All tickets are this process's, under this epoch; it sits on the first."""
        ctx = self.ctx
        self._epoch = epoch
        if epoch <= ctx.table.epoch:
            self.give_up(f"epoch {epoch} was seen elsewhere meanwhile")
            return False
        for ticket in range(ctx.config.tickets):
            ctx.table.end(ticket, floor_of(epoch << ERA_SHIFT))
        ctx.sit(Holder(ctx.me, 0, ctx.table.grant(0)))
        return True
