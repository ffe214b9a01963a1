"""What both protocols have in common: one process's place in the ring, its timers and outputs, founding and applying.

Rules of ring.md implemented here:

4.  Members are `(process, incarnation)`: `seat` is this process's membership; who learns that it is over is out at
    once.
14. CJOIN needs a nonce, too: a grant that was not waited for any more is declined.

Bootstrap: the first process is designated (`found`). It listens for a quarantine and gives up when it hears of a living
coordinator. Nobody founds on a time-out. A higher epoch ends all memberships of a lower one.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from whence.clock import Incarnation, MemberId
from whence.ring.applicant import Applicant
from whence.ring.config import RingConfig, between
from whence.ring.edge import Edge
from whence.ring.interface import (
    Announce,
    BecameOwner,
    Granted,
    Lost,
    Rejected,
    Released,
    RingOutput,
    RingSend,
    State,
)
from whence.ring.messages import (
    ERA_SHIFT,
    AckCJoin,
    CJoin,
    Decline,
    GoneNews,
    JoinedNews,
    Reject,
    ReleasedNews,
    RingMessage,
    RingNews,
    Seat,
    Tenure,
    Who,
    check_message,
    check_news,
)
from whence.ring.table import Table, floor_of

BUSY = "busy"
"""The reason of a REJECT by a coordinator that will serve CJOINs again soon."""
MAX_DONE = 4096
"""Tenures remembered as taken or declined."""
MAX_NEVER = 16
"""Seats remembered as granted and never owned."""
SEATED = (State.PROBATION, State.OWNER, State.LEAVING)
"""The states with a ticket."""


class Core(ABC):
    """A process with a table, perhaps a seat, and timers. The protocols say what happens at the edges."""

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.table = Table(config.tickets)
        self.applicant = Applicant(me, config.tickets, rng)
        self.state = State.OUT
        self.wake_at: int | None = None
        self.seat: Seat | None = None
        self.pred: Seat | None = None
        self.edge: Edge | None = None
        self.wanted = False
        """`coordinate` was called: after a loss, apply again."""
        self.resigning = False
        """`resign` was called: stop publishing now, leave when possible (rule 2)."""
        self._asked: tuple[int, MemberId] | None = None
        """Nonce and receiver of the CJOIN that is waiting for its answer."""
        self._asked_at = 0
        """When it was sent."""
        self._joined_by = 0
        """The nonce of the CJOIN that led to the seat."""
        self._done: dict[Tenure, None] = {}
        """Tenures this process has had or declined: it never takes one of them again."""
        self._never: dict[Seat, None] = {}
        """Those of them that it never owned."""
        self._epoch = 0
        self._designated_at: int | None = None
        """When it was told to found; None: it was not, or has had a ticket since."""
        self._pledged = 0
        """The highest epoch under which this process has let somebody found the ring again (`reunion.py`)."""
        self._seq = 0
        self._now = 0
        self._nonce = 0
        self._out: list[RingOutput] = []
        self._timers: dict[str, int] = {}

    # --- the interface ---

    @property
    def ticket(self) -> int | None:
        return self.seat.ticket if self.seat else None

    @property
    def inc(self) -> Incarnation | None:
        return Incarnation.unpack(self.seat.inc) if self.seat else None

    @property
    def told(self) -> int:
        return self._now

    @property
    def may_publish(self) -> bool:
        return self.owns_at(self._now) and not self.resigning

    @property
    @abstractmethod
    def admits(self) -> bool: ...

    @abstractmethod
    def owns_at(self, now: int) -> bool: ...

    @abstractmethod
    def steady_at(self, now: int) -> bool: ...

    def coordinated(self) -> list[int]:
        if self.seat is None or self.edge is None or self.state not in (State.OWNER, State.LEAVING):
            return []
        return [self.seat.ticket, *between(self.seat.ticket, self.edge.succ.ticket, self.config.tickets)]

    @property
    def epoch(self) -> int:
        return max(self._epoch, self._pledged, self.table.era >> ERA_SHIFT)

    def coordinators(self) -> dict[int, MemberId]:
        return self.table.coordinators()

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        self.applicant.learn(coordinators)

    def contacts(self, members: Sequence[MemberId]) -> None:
        self.applicant.contacts(members)

    def published(self, seq: int) -> None:
        if self.seat is not None:
            self._seq = seq
            self.table.note(self.seat, seq)

    def found(self, now: int, epoch: int) -> list[RingOutput]:
        return self._step(now, lambda: self._found(epoch))

    def coordinate(self, now: int) -> list[RingOutput]:
        return self._step(now, self._coordinate)

    def resign(self, now: int) -> list[RingOutput]:
        return self._step(now, self._resign)

    def receive(self, sender: MemberId, message: RingMessage, now: int) -> list[RingOutput]:
        check_message(message, self.config.tickets)
        return self._step(now, lambda: self._receive(sender, message))

    def hear(self, news: RingNews, now: int) -> list[RingOutput]:
        check_news(news, self.config.tickets)
        return self._step(now, lambda: self._hear(news))

    def wake(self, now: int) -> list[RingOutput]:
        return self._step(now, lambda: None)

    # --- a step: time passes, something happens, the outcome is judged ---

    def _step(self, now: int, act: Callable[[], None]) -> list[RingOutput]:
        self._out = []
        self._now = max(self._now, now)
        self._time_passes()
        act()
        self._fence()
        ends = list(self._timers.values())
        lease = self._lease_end()
        if lease is not None:
            ends.append(lease)
        self.wake_at = min(ends, default=None)
        return self._out

    def _time_passes(self) -> None:
        """The lease first: whatever is due happens to a process that knows whether it is still an owner."""
        self._expire()
        due = sorted((at, name) for name, at in self._timers.items() if at <= self._now)
        for at, name in due:
            if self._timers.get(name) == at:  # an earlier one may have moved or ended it
                del self._timers[name]
                self._timer(name)

    def _fence(self) -> None:
        """Out at once when this membership is known to be over (rules 4 and 12), or the ring was founded again."""
        seat = self.seat
        if seat is None:
            return
        table = self.table
        if self.table.era >> ERA_SHIFT > seat.inc >> 2 * ERA_SHIFT:
            self._lose("the ring was founded again")
        elif seat.inc < max(table.floor[seat.ticket], table.top[seat.ticket]):
            if self.state is State.LEAVING:
                self._released()
            else:
                self._lose("excluded")

    @abstractmethod
    def _lease_end(self) -> int | None: ...

    @abstractmethod
    def _expire(self) -> None: ...

    @abstractmethod
    def _timer(self, name: str) -> None: ...

    @abstractmethod
    def _receive(self, sender: MemberId, message: RingMessage) -> None: ...

    @abstractmethod
    def _take_seat(self, sender: MemberId, grant: AckCJoin) -> None: ...

    @abstractmethod
    def _resign_seat(self) -> None: ...

    @abstractmethod
    def _vacate(self) -> None: ...

    # --- small words ---

    def _send(self, to: MemberId, message: RingMessage) -> None:
        self._out.append(RingSend(to, message))

    def _say(self, output: RingOutput) -> None:
        self._out.append(output)

    def _next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def _after(self, ns: int, name: str) -> None:
        self._timers[name] = self._now + ns

    def _known(self) -> tuple[tuple[int, MemberId], ...]:
        return tuple(self.table.coordinators().items())

    # --- founding ---

    def _found(self, epoch: int) -> None:
        if self.state in SEATED:
            self._say(Rejected("already a member of the ring"))
            return
        if epoch <= (seen := max(self._pledged, self.table.era >> ERA_SHIFT)):
            self._say(Rejected(f"epoch {epoch} is not above {seen}, which was seen already"))
            return
        self._designated_at = self._designated_at or self._now
        self.state = State.FOUNDING
        self.wanted, self.resigning = True, False
        self._asked = None
        self._epoch = epoch
        self._timers.clear()
        self._after(self.config.quarantine_ns, "quarantine")
        self._look_around()

    def _look_around(self) -> None:
        """Ask everybody known whether there is a coordinator, once a round."""
        for member in self.applicant.everybody(self.table.coordinators()):
            self._send(member, Who(self._next_nonce()))
        self._after(self.config.round_ns // 2, "look")

    def _not_founded(self, reason: str) -> None:
        self._timers.pop("quarantine", None)
        self._timers.pop("look", None)
        self._say(Rejected(reason))
        self._apply_later()

    def _founded(self) -> None:
        if self._epoch <= self.table.era >> ERA_SHIFT:
            self._not_founded(f"epoch {self._epoch} was seen elsewhere meanwhile")
            return
        self._timers.pop("look", None)
        first = floor_of(self._epoch << ERA_SHIFT)
        for ticket in range(self.config.tickets):
            self.table.end(ticket, first)
        self._sit(Seat(self.me, 0, self.table.grant(0)))
        self._own()

    # --- applying ---

    def _coordinate(self) -> None:
        self.wanted, self.resigning = True, False
        if self.state is State.OUT:
            self.state = State.JOINING
            self._apply()

    def _resign(self) -> None:
        self.wanted, self.resigning = False, True
        if self.state in SEATED:
            self._resign_seat()
        else:
            self.state = State.OUT
            self._asked = None
            self._timers.clear()

    def _apply(self) -> None:
        """CJOIN to a coordinator, as far as one is known."""
        choice = self.applicant.choose(self.table.coordinators())
        if choice is None:
            self._apply_later(swept=True)
            return
        member, wish = choice
        self._asked = (self._next_nonce(), member)
        self._asked_at = self._now
        self._send(member, CJoin(self._asked[0], wish))
        self._after(self.config.round_ns, "answer")

    def _apply_later(self, swept: bool = False) -> None:
        self._asked = None
        self._timers.pop("answer", None)
        self.state = State.JOINING if self.wanted and not self.resigning else State.OUT
        if self.state is State.JOINING:
            self._after(self.applicant.pause(self.config.round_ns, swept), "apply")

    def _no_answer(self) -> None:
        if self._asked is not None:
            self.applicant.silent(self._asked[1])
            self._rejected("no answer")

    def _rejected(self, reason: str) -> None:
        self._say(Rejected(reason))
        everybody = self.applicant.everybody(self.table.coordinators())
        self._apply_later(swept=all(m in self.applicant.tried for m in everybody))

    def _on_reject(self, sender: MemberId, m: Reject) -> None:
        self.table.saw(m.era)
        self.applicant.redirected(m.known, m.owner)
        if self.state is State.FOUNDING and m.owner:
            self._not_founded(f"{sender} is a living coordinator")
        elif self.state is State.JOINING and self._asked == (m.nonce, sender):
            if m.reason == BUSY:
                self.applicant.busy(sender)
            self._rejected(m.reason)

    def _on_ack_cjoin(self, sender: MemberId, m: AckCJoin) -> None:
        if self.state is not State.JOINING or self._asked != (m.nonce, sender):
            if self.state is State.FOUNDING:
                self._not_founded(f"{sender} is a living coordinator")
            self._decline(sender, m.nonce, m.yours)
            return
        self._timers.pop("answer", None)
        self._asked = None
        self.table.merge(m.rows)
        seat = Seat(self.me, *m.yours)
        self.table.note(seat)
        if m.yours in self._done or self.table.over(seat) or self.table.era >> ERA_SHIFT > seat.inc >> 2 * ERA_SHIFT:
            self._decline(sender, m.nonce, m.yours)
            self._apply_later()
            return
        self._joined_by = m.nonce
        self._take_seat(sender, m)

    def _decline(self, to: MemberId, nonce: int, tenure: Tenure) -> None:
        self._finish(tenure)
        self._never[Seat(self.me, *tenure)] = None
        while len(self._never) > MAX_NEVER:
            del self._never[next(iter(self._never))]
        self._send(to, Decline(nonce, tenure))

    # --- sitting down and getting up ---

    def _finish(self, tenure: Tenure) -> None:
        """Never take this tenure (again). The oldest are forgotten: their grants are long below every floor."""
        self._done[tenure] = None
        while len(self._done) > MAX_DONE:
            del self._done[next(iter(self._done))]

    def _sit(self, seat: Seat) -> None:
        """A ticket is assigned: not yet an owner."""
        self.seat = seat
        self._finish(seat.tenure)
        self.pred = None
        self.edge = Edge.alone(seat)
        self._seq = 0
        self._timers.clear()
        self.applicant.tried = []
        self._say(Granted(seat.ticket, Incarnation.unpack(seat.inc), self.table.last[seat.ticket]))

    def _own(self) -> None:
        """From now on an owner."""
        assert self.seat is not None
        self.state = State.OWNER
        self._designated_at = None
        self.table.owns(self.seat)
        self._say(BecameOwner(self.seat.ticket, Incarnation.unpack(self.seat.inc)))
        self._say(Announce(JoinedNews(self.seat)))

    def _lose(self, reason: str) -> None:
        seat = self._stand_up()
        self._say(Lost(seat.ticket, Incarnation.unpack(seat.inc), reason))
        self._apply_later()

    def _released(self) -> None:
        seat = self._stand_up()
        self._say(Released(seat.ticket, Incarnation.unpack(seat.inc)))
        self._apply_later()

    def _stand_up(self) -> Seat:
        assert self.seat is not None
        seat = self.seat
        self._vacate()
        self.table.forget(seat)
        self.seat = self.pred = self.edge = None
        self.state = State.OUT
        self._timers.clear()
        return seat

    # --- news ---

    def _hear(self, news: RingNews) -> None:
        table = self.table
        match news:
            case JoinedNews(seat):
                if seat != self.seat:
                    table.owns(seat)
                if self.state is State.FOUNDING and seat.member != self.me:
                    self._not_founded(f"{seat.member} is a living coordinator")
            case GoneNews(tickets, floor, by):
                for seats, ticket in enumerate(tickets, 1):
                    table.out(ticket, floor, self._now + self.config.temp_ns(seats))
                table.committed(by, floor)
                if self.state is State.FOUNDING:
                    self._not_founded(f"{by} is a living coordinator")
            case ReleasedNews(seat, seq):
                table.note(seat, seq)
                table.out(seat.ticket, seat.inc + 1, self._now)
