"""The frame of every protocol: time passes, something happens, the outcome is judged."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from whence.core.clock import Incarnation, MemberId
from whence.core.ring.applicant import Applicant
from whence.core.ring.config import RingConfig
from whence.core.ring.context import SEATED, Context, Timer
from whence.core.ring.founding import Founding
from whence.core.ring.interface import Memory, RingOutput, State
from whence.core.ring.messages import (
    ERA_SHIFT,
    GoneNews,
    JoinedNews,
    ReleasedNews,
    RingMessage,
    RingNews,
    check_message,
    check_news,
)


class Ring(ABC):
    """A process's part in the ring of one cluster. Pure: time comes in as `now`, chance as a generator at construction.

    Every call first lets time pass until `now`: a lease that has run out shows as `Lost` in the outputs of that very
    call. A protocol adds its parts, and says which message and which timer goes where.
    """

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random, answer_ns: int | None) -> None:
        self.ctx = Context(me, config, rng)
        self.applicant = Applicant(self.ctx, answer_ns)
        self.founding = Founding(self.ctx, self.applicant)
        self.implausible = 0
        """Messages and news ignored because they name an era that cannot be (`Table.plausible`)."""
        self.wake_at: int | None = None
        """When `wake` wants to be called next; None: never. Too early is harmless; too late may cost the ticket."""

    @property
    def state(self) -> State:
        return self.ctx.state

    @property
    def ticket(self) -> int | None:
        return self.ctx.holder.ticket if self.ctx.holder else None

    @property
    def inc(self) -> Incarnation | None:
        return Incarnation.unpack(self.ctx.holder.inc) if self.ctx.holder else None

    @property
    def tenure(self) -> tuple[int, int] | None:
        """The ticket and its incarnation, packed."""
        holder = self.ctx.holder
        return None if holder is None else (holder.ticket, holder.inc)

    @property
    def told(self) -> int:
        """The last `now` it was told."""
        return self.ctx.now

    @property
    def may_publish(self) -> bool:
        """An owner that is not resigning, its lease valid at the last `now` it was told (rule 2)."""
        return self.owns_at(self.ctx.now) and not self.ctx.resigning

    @property
    @abstractmethod
    def admits(self) -> bool:
        """An owner that would serve a CJOIN now: not frozen, not excluding, no TempRounds, nothing pending."""

    @abstractmethod
    def owns_at(self, now: int) -> bool:
        """An owner, also a resigning one, whose lease is valid at `now`: for those who watch from outside."""

    @abstractmethod
    def steady_at(self, now: int) -> bool:
        """An owner at `now` that is neither frozen nor excluding, and whose TempRounds are over."""

    @property
    def epoch(self) -> int:
        """The highest epoch seen or used for a founding: what a founder has to remember across restarts."""
        return self.founding.epoch

    def coordinated(self) -> list[int]:
        """S_p: the own ticket and those down to the successor's; empty without a ticket."""
        return self.ctx.coordinated()

    def coordinators(self) -> dict[int, MemberId]:
        """Cview: ticket -> owner, as far as known."""
        return self.ctx.table.coordinators()

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        """Coordinators from a snapshot: hints where to ask."""
        self.applicant.learn(coordinators)

    def anchor(self, inc: int) -> None:
        """An incarnation from a snapshot or a disk: how far the ring has come at least."""
        self.ctx.table.anchor = max(self.ctx.table.anchor, inc >> ERA_SHIFT)

    def contacts(self, members: Sequence[MemberId]) -> None:
        """Some members of the view, to ask when no coordinator is known."""
        self.applicant.contacts(members)

    def published(self, seq: int) -> None:
        """The last event published under the present incarnation."""
        if self.ctx.holder is not None:
            self.ctx.seq = seq
            self.ctx.table.note(self.ctx.holder, seq)

    def start(self, now: int) -> list[RingOutput]:
        """The process takes part in the cluster from now on, whether it wants a ticket or not."""
        return []

    def retire(self, now: int) -> list[RingOutput]:
        """The process is going to leave the cluster: let others do its work in the ring. See `retired`."""
        return []

    @property
    def retired(self) -> bool:
        """The ring can do without this process."""
        return self.ctx.holder is None

    def memory(self) -> Memory | None:
        """What a disk should hold of this ring, for the next life of the process."""
        return None

    def found(self, now: int, epoch: int, force: bool = False) -> list[RingOutput]:
        """Found the ring after a quarantine. `epoch` must be above all earlier ones. `force`: whatever is remembered
        of an earlier ring is lost for good, says an operator (rule C0)."""
        return self._step(now, lambda: self._found(epoch, force))

    def coordinate(self, now: int) -> list[RingOutput]:
        """Try to get a ticket and keep trying, also after a loss, until `resign`."""
        return self._step(now, self.applicant.coordinate)

    def resign(self, now: int) -> list[RingOutput]:
        """Stop publishing at once, and leave as soon as the predecessor takes over."""
        return self._step(now, self._resign)

    def receive(self, sender: MemberId, message: RingMessage, now: int) -> list[RingOutput]:
        """A message arrived. Raises BadMessage for one that names tickets that do not exist."""
        era = check_message(message, self.ctx.config.tickets)
        return self._step(now, lambda: self._receive(sender, message) if self._plausible(era) else None)

    def hear(self, news: RingNews, now: int) -> list[RingOutput]:
        """News of another member arrived by PrCast: late, more than once or never."""
        era = check_news(news, self.ctx.config.tickets)
        return self._step(now, lambda: self._hear(news) if self._plausible(era) else None)

    def wake(self, now: int) -> list[RingOutput]:
        """Time has passed."""
        return self._step(now, lambda: None)

    # --- what a protocol says ---

    @abstractmethod
    def _receive(self, sender: MemberId, m: RingMessage) -> None: ...

    @abstractmethod
    def _timer(self, timer: Timer) -> None: ...

    @abstractmethod
    def _leave(self) -> None:
        """Begin to give up the ticket."""

    def _lease_end(self) -> int | None:
        """When the lease runs out; None: never."""
        return None

    # --- a step ---

    def _step(self, now: int, act: Callable[[], None]) -> list[RingOutput]:
        ctx = self.ctx
        ctx.out = []
        ctx.now = max(ctx.now, now)
        if self.wake_at is not None and self.wake_at <= ctx.now:
            self._time_passes()
        act()
        self._fence()
        ends = list(ctx.timers.values())
        lease = self._lease_end()
        if lease is not None:
            ends.append(lease)
        self.wake_at = min(ends, default=None)
        return ctx.out

    def _time_passes(self) -> None:
        """The lease first: whatever is due happens to a process that knows whether it is still an owner."""
        ctx = self.ctx
        lease = self._lease_end()
        if lease is not None and ctx.now >= lease:
            self._lose("lease ran out")
        for at, timer in sorted((at, timer) for timer, at in ctx.timers.items() if at <= ctx.now):
            if ctx.timers.get(timer) == at:  # an earlier one may have moved or ended it
                del ctx.timers[timer]
                self._timer(timer)

    def _fence(self) -> None:
        """Out at once when this tenure is known to be over (rules 4 and 12), or the ring was founded again."""
        holder, table = self.ctx.holder, self.ctx.table
        if holder is None:
            return
        if table.epoch > holder.epoch:
            self._lose("the ring was founded again")
        elif table.ended(holder):
            if self.ctx.state is State.LEAVING:
                self.applicant.released()
            else:
                self._lose("excluded")

    def _lose(self, reason: str) -> None:
        self.applicant.lose(reason)

    def _plausible(self, era: int) -> bool:
        """Ignore an era that cannot be, but do not blame its sender: it may know more than this process."""
        plausible = self.ctx.table.plausible(era)
        self.implausible += not plausible
        return plausible

    def _found(self, epoch: int, force: bool) -> None:
        self.founding.found(epoch)

    def _resign(self) -> None:
        self.ctx.wanted, self.ctx.resigning = False, True
        if self.ctx.state in SEATED:
            self._leave()
        else:
            self.applicant.withdraw()

    def _hear(self, news: RingNews) -> None:
        ctx, table = self.ctx, self.ctx.table
        match news:
            case JoinedNews(holder):
                if holder != ctx.holder:
                    table.owns(holder)
                if holder.member != ctx.me:
                    self.founding.heard_owner(holder.member)
            case GoneNews(tickets, floor, by):
                for far, ticket in enumerate(tickets, 1):
                    table.out(ticket, floor, ctx.now + ctx.config.temp_ns(far))
                table.committed(by, floor)
                self.founding.heard_owner(by)
            case ReleasedNews(holder, seq):
                table.note(holder, seq)
                table.out(holder.ticket, holder.inc + 1, ctx.now)
