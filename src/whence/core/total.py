"""What a cluster with total order adds to a member: it tells those who follow what it knows of logs (docs/total.md).

Owners tell ticks (rule T4), voters reports (rule T5). Whoever is in total order follows the voters and the owners, and
says so in every round: nothing is told to those who do not want it, and nothing but that while nobody publishes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from whence.core.clock import MemberId, Send, address_of, any_life
from whence.core.clock.bounds import keep_last
from whence.core.clock.event import LAST, Log
from whence.core.clock.logs import Follow, LogReport, LogReports, LogRow, Logs, Telling, Tick
from whence.core.config import Config
from whence.core.order import Ordering, Seal
from whence.core.order.messages import LogVote
from whence.core.order.outputs import Behind, OrderOutput
from whence.core.order.total import TotalOrdering
from whence.core.ring import CouncilRing, State
from whence.core.ring.context import RingOutput
from whence.core.ring.logs import keep_logs
from whence.core.ring.messages import Known
from whence.errors import BadMessage, ForgedTicket

Carry = Callable[[Iterable[RingOutput], int, list[Any]], None]
TELL_NS = 2_000_000
"""Between two ticks or reports: what happens meanwhile is told together."""
FRESH = 3
"""Rounds for which a follower counts as one."""
PATIENCE = 10
"""Rounds without a delivery, while another member is further: then what is missing is not to be had (rule T12)."""
MAX_FOLLOWERS = 4096


class _Archive:
    """What the ring asks of the order layer: `ring.logs.Archive`."""

    def __init__(self, order: TotalOrdering) -> None:
        self.order = order
        self.merge = order.merge
        self.want = order.want
        self.holds = order.merge.holds
        self.ended = order.merge.ended
        self.ticked = order.merge.ticked
        self.forgettable = order.merge.forgettable

    def ready(self) -> bool:
        return not self.order.joining

    def logs(self) -> Iterable[Log]:
        return list(self.merge.store)

    def closed(self, log: Log) -> int | None:
        return self.merge.closed.get(log)

    def tick(self, log: Log) -> tuple[int, int]:
        return self.merge.ticks.get(log, (0, -1))

    def known(self, generation: int) -> Logs:
        merge, rows = self.merge, list[LogRow]()
        for log in sorted({*merge.store, *merge.ticks, *merge.closed}):
            end = merge.closed.get(log)
            turn = (1 << 32, self.order.me)
            clock, seq = self.tick(log)
            closed = LogRow(*log, merge.holds(log), turn, (turn, end)) if end is not None else LogRow(*log)
            rows.append(closed._replace(ack=merge.holds(log), seq=max(seq, 0), clock=clock))
        merge.new_generation(generation)
        return Logs(0, tuple(rows), tuple(sorted(merge.floors.items())), merge.position, merge.position)


class Teller:
    """Ticks, reports and followers of one member."""

    def __init__(
        self,
        me: MemberId,
        config: Config,
        ring: CouncilRing,
        order: Ordering[Any, Any],
        rng: random.Random,
        sample: Callable[[int], Sequence[MemberId]],
        seal: Seal | None,
    ) -> None:
        self.me, self.ring, self.rng, self.sample, self.seal = me, ring, rng, sample, seal
        self.lamport = ring.ctx.lamport
        self.order = order if isinstance(order, TotalOrdering) else None
        self.keeper = keep_logs(ring, _Archive(self.order)) if self.order is not None else None
        self.round_ns = config.ring.round_ns
        self.followers: dict[MemberId, tuple[int, int]] = {}  # when it said so last, and how far it is
        self.wake_at: int | None = None
        self._follow_at = 0
        self._next_at = 0
        self._news = False
        self._own: Log | None = None  # the own tenure, and its last event
        self._seq = 0
        self._ticked: tuple[Log, int] | None = None  # the last tick: tenure and clock
        self._moved = (0, 0)  # the position, and since when
        ring.councils.when_new.append(self.hurry)
        if self.order is not None:
            self.order.kept = self._vote
            self.order.merge.quorum = ring.councils.quorum
        else:
            ring.abstain()

    def _vote(self) -> LogVote | None:
        keeper = self.keeper
        if keeper is None or self.ring.voting.book is None or keeper.number != self.ring.voting.book.number:
            return None
        return LogVote(keeper.number, keeper.now(), keeper.begun)

    def hurry(self) -> None:
        """There is somebody else to follow."""
        self._follow_at = 0

    # --- what it is told ---

    def receive(self, sender: MemberId, message: Telling, now: int) -> list[OrderOutput]:
        match message:
            case Follow():
                return self._followed(sender, message, now)
            case Tick(ticket, inc, seq, clock):
                if self.order is not None:
                    self._check_log((ticket, inc))
                    self.lamport.saw(clock)
                    self.order.merge.ticked((ticket, inc), seq, clock)
            case LogReport():
                if address_of(sender) != address_of(message.voter):
                    raise BadMessage(f"a report of {message.voter} that {sender} sends as its own")
                self._reported(message)
            case LogReports(reports):
                for report in reports:
                    self._reported(report)
        return []

    def _check_log(self, log: Log) -> None:
        assert self.order is not None
        if log[0] >= self.order.config.tickets:
            raise BadMessage(f"a log of ticket {log[0]}; there are {self.order.config.tickets}")

    def _reported(self, report: LogReport) -> None:
        voters = self.ring.councils.recent.get(report.council, ())
        if self.order is None or report.voter not in [voter.member for voter in voters]:
            return  # of a council that is not known yet, or any more
        if self.seal is not None and not self.seal.verify(report.unsigned(), report.signature):
            raise ForgedTicket(f"a report of {report.voter} that it has not signed")
        for row in report.logs.rows:
            self._check_log(row.log)
        self.order.on_report(report)

    def _followed(self, sender: MemberId, m: Follow, now: int) -> list[OrderOutput]:
        self.followers.pop(sender, None)
        self.followers[sender] = (now, m.position)
        keep_last(self.followers, MAX_FOLLOWERS)
        out: list[OrderOutput] = []
        if m.council < self.ring.councils.now.number:
            out.append(Send(sender, Known(self.ring.councils.now), reliable=True))
        if self._own is not None:
            out.append(Send(sender, Tick(*self._own, self._seq, self.lamport.now), reliable=True))
        if self.order is not None:
            known = self.order.merge.reports.values()
            mine = self.ring.councils.me.member
            behind = m.position < self.order.merge.position
            told = tuple(r for of in known for r in of.values() if behind or r.voter == mine)
            if told:
                out.append(Send(sender, LogReports(told), reliable=True))
        return out

    # --- what it tells ---

    def step(self, now: int, out: list[Any], carry: Carry) -> None:
        """After all else in a step of the member. `carry`: takes what the ring says."""
        self._tenure(now, out)
        merge = self.order.merge if self.order is not None else None
        raised = self._own is not None and self._ticked != (self._own, self.lamport.now)
        dirty = merge is not None and merge.dirty
        self._news |= raised or dirty or (self.keeper is not None and self.keeper.changed)
        if self._news and now >= self._next_at:
            self._news, self._next_at = False, now + TELL_NS
            self._tell(now, out, carry)
        if self.order is not None and merge is not None and merge.dirty and not self.order.joining:
            merge.dirty = False
            out += self.order.advance(now)
        if now >= self._follow_at:
            self._follow(now, out)
        self.wake_at = min(self._follow_at, self._next_at) if self._news else self._follow_at

    def _tenure(self, now: int, out: list[Any]) -> None:
        own = self.ring.tenure if self.ring.state is State.OWNER else None
        if self._own is not None and own != self._own:  # it says its last tick
            self._to_followers(Tick(*self._own, self._seq, LAST), now, out)
            if self.order is not None:
                self.order.merge.ticked(self._own, self._seq, LAST)
        self._own, self._seq = own, self.ring.ctx.seq

    def _tell(self, now: int, out: list[Any], carry: Carry) -> None:
        if self._own is not None and self._ticked != (self._own, self.lamport.now):
            tick = Tick(*self._own, self._seq, self.lamport.now)
            self._ticked = (self._own, self.lamport.now)
            self._to_followers(tick, now, out)
            if self.order is not None:
                self.order.merge.ticked(self._own, self._seq, self.lamport.now)
        report, saved = self.ring.report(now) if self.keeper is not None else (None, [])
        carry(saved, now, out)
        if report is not None and self.order is not None:
            if self.seal is not None:
                report = msgspec.structs.replace(report, signature=self.seal.sign(report.unsigned()))
            self._to_followers(report, now, out)
            self.order.on_report(report)

    def _to_followers(self, message: Telling, now: int, out: list[Any]) -> None:
        for member, (at, _) in list(self.followers.items()):
            if now - at > FRESH * self.round_ns:
                del self.followers[member]
            else:
                out.append(Send(member, message, reliable=True))

    def _follow(self, now: int, out: list[Any]) -> None:
        """Once a round."""
        self._follow_at = now + self.round_ns
        order, councils = self.order, self.ring.councils
        if order is None or order.joining:
            return
        merge = order.merge
        merge.dirty = True
        whom = [any_life(voter) for voter in councils.members() if address_of(voter) != address_of(self.me)]
        whom += [owner for owner in self.ring.coordinators().values() if owner != self.me]
        follow = Follow(councils.now.number, merge.position)
        for member in dict.fromkeys([*whom, *self.sample(1)]):
            out.append(Send(member, follow, reliable=True))
        if merge.position != self._moved[0]:
            self._moved = (merge.position, now)
        further = any(now - at <= FRESH * self.round_ns and p > merge.position for at, p in self.followers.values())
        if not further:
            self._moved = (merge.position, now)
        elif now - self._moved[1] > PATIENCE * self.round_ns:
            out.append(Behind("jumped", f"nobody holds what it waits for any more: {merge.waits}"))
