"""The frame of every protocol: time passes, something happens, the outcome is judged."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from whence.clock import Incarnation, MemberId
from whence.ring.applicant import Applicant
from whence.ring.config import RingConfig
from whence.ring.context import SEATED, Context, Timer
from whence.ring.founding import Founding
from whence.ring.interface import RingOutput, State
from whence.ring.messages import GoneNews, JoinedNews, ReleasedNews, RingMessage, RingNews, check_message, check_news


class RingBase(ABC):
    """The interface `Ring` with what no protocol does differently. A protocol adds its parts, and the routes."""

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random, answer_ns: int | None) -> None:
        self.ctx = Context(me, config, rng)
        self.applicant = Applicant(self.ctx, answer_ns)
        self.founding = Founding(self.ctx, self.applicant)
        self.wake_at: int | None = None

    # --- the interface ---

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
    def told(self) -> int:
        return self.ctx.now

    @property
    def may_publish(self) -> bool:
        return self.owns_at(self.ctx.now) and not self.ctx.resigning

    @property
    @abstractmethod
    def admits(self) -> bool: ...

    @abstractmethod
    def owns_at(self, now: int) -> bool: ...

    @abstractmethod
    def steady_at(self, now: int) -> bool: ...

    @property
    def epoch(self) -> int:
        return self.founding.epoch

    def coordinated(self) -> list[int]:
        return self.ctx.coordinated()

    def coordinators(self) -> dict[int, MemberId]:
        return self.ctx.table.coordinators()

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        self.applicant.learn(coordinators)

    def contacts(self, members: Sequence[MemberId]) -> None:
        self.applicant.contacts(members)

    def published(self, seq: int) -> None:
        if self.ctx.holder is not None:
            self.ctx.seq = seq
            self.ctx.table.note(self.ctx.holder, seq)

    def found(self, now: int, epoch: int) -> list[RingOutput]:
        return self._step(now, lambda: self._found(epoch))

    def coordinate(self, now: int) -> list[RingOutput]:
        return self._step(now, self.applicant.coordinate)

    def resign(self, now: int) -> list[RingOutput]:
        return self._step(now, self._resign)

    def receive(self, sender: MemberId, message: RingMessage, now: int) -> list[RingOutput]:
        check_message(message, self.ctx.config.tickets)
        return self._step(now, lambda: self._receive(sender, message))

    def hear(self, news: RingNews, now: int) -> list[RingOutput]:
        check_news(news, self.ctx.config.tickets)
        return self._step(now, lambda: self._hear(news))

    def wake(self, now: int) -> list[RingOutput]:
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

    def _found(self, epoch: int) -> None:
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
