"""Total order for the members that want it (docs/total.md, rules T1, T3, T6, T7, T9, T12 and T13).

Settled        what is delivered, or in the past of what is: the same at everybody at the same position
Merge          the logs as this member knows them, merged by stamp
TotalOrdering  the order layer: `reliable` below, which recovers; what it gets goes into the logs, and is delivered
               when the logs say so
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

import msgspec

from whence.core.clock import MAX_SEQ, NEVER, Entry, EventId, Frame, Key, MemberId, Range, TotalFrame
from whence.core.clock.bounds import keep_last
from whence.core.clock.event import LAST, Log
from whence.core.clock.logs import GENERATION, LogReport
from whence.core.order.engine import TicketOrdering
from whence.core.order.layer import OrderContext
from whence.core.order.messages import AnySpan, LogVote, OrderState, TicketState, TotalState
from whence.core.order.outputs import Behind, Blocked, Deliver, GaveUp, OrderOutput
from whence.errors import BadMessage

COUNCILS = 3
"""Councils whose reports count: the newest and those just before it."""
LEFT_OUT = "left out"
"""Why an own event was given up: it is in no log."""
NOTHING: Mapping[Log, int] = {}
WRITE_AHEAD = 1 << 16
"""How far ahead of the clock a disk has it (rule T11)."""


class Settled:
    """The events that are delivered in total order, or in the past of one that is (rule T9). It changes with
    deliveries only: what it forgets, everybody forgets at the same position (rule T13)."""

    MAX_TENURES = 16  # remembered for each ticket

    def __init__(self, tickets: int) -> None:
        self.rows: list[dict[int, int]] = [{} for _ in range(tickets)]  # by ticket: incarnation -> last event settled
        self.floor = [0] * tickets  # tenures below are settled
        self.over = [0] * tickets  # causes of tenures below are not delivered any more, unless they are in a log

    def upto(self, ticket: int, inc: int) -> int:
        """The last event of the tenure that is settled."""
        return MAX_SEQ if inc < self.floor[ticket] else self.rows[ticket].get(inc, 0)

    def note(self, ticket: int, inc: int, seq: int) -> None:
        rows = self.rows[ticket]
        if seq and inc >= self.floor[ticket] and rows.get(inc, 0) < seq:
            rows[inc] = seq
            if len(rows) > self.MAX_TENURES:
                self.floor[ticket] = min(rows) + 1
                del rows[min(rows)]

    def past_of(self, frame: TotalFrame) -> None:
        """The frame is delivered: all its past is settled, also what its owner never had."""
        for cause in causes(frame):
            self.note(*cause)
        for gone in frame.lost or ():
            self.note(gone.ticket, *gone.upto)
            if gone.after[0] != gone.upto[0]:  # which tenures are between, nobody knows
                self.over[gone.ticket] = max(self.over[gone.ticket], gone.upto[0])
        if frame.lost is None:
            self.over = [max(over, inc) for over, (inc, _) in zip(self.over, frame.deps, strict=True)]
        self.note(frame.ticket, frame.inc, frame.last)


def causes(frame: TotalFrame) -> Iterator[tuple[int, int, int]]:
    """The last event of each tenure that the frame's vector names."""
    return chain(((t, *entry) for t, entry in enumerate(frame.deps) if entry != NEVER), frame.orphans)


class Merge:
    """All logs as one member knows them, and how far it has passed (rules T6, T7 and T9)."""

    def __init__(self, tickets: int) -> None:
        self.tickets = tickets
        self.quorum: Callable[[int, Collection[MemberId]], bool] = lambda council, have: False
        """Whether these are a quorum of that council."""
        self.position = 0
        """All frames with stamps up to here are delivered."""
        self.count = 0
        """Events delivered since the cluster began: the place of the last one."""
        self.generation = 0
        self.settled = Settled(tickets)
        self.store: dict[Log, dict[int, TotalFrame]] = {}
        """What is not settled, by log and first event."""
        self.frames = self.bytes = 0
        self.ticks: dict[Log, tuple[int, int]] = {}  # the best known: clock, seq
        self.closed: dict[Log, int] = {}
        self.reports: dict[int, dict[MemberId, LogReport]] = {}  # council -> voter -> its newest
        self._acks: dict[int, dict[Log, dict[MemberId, int]]] = {}
        self._ends: dict[int, dict[Log, dict[tuple[object, int], dict[MemberId, None]]]] = {}
        self._named: dict[tuple[MemberId, tuple[int, int]], tuple[Log, ...]] = {}  # by report: logs not passed then
        self._decided: dict[Log, int] = {}
        self._rose: dict[Log, None] = {}  # logs with acknowledgements that `_decided` does not count yet
        self._whole: dict[Log, int] = {}
        self.floors: dict[int, int] = {}
        """Of a ticket, logs below are forgotten by voters, and passed here (rule T13)."""
        self.lacks: dict[Log, int] = {}
        """What was looked for and not in hand: log -> up to which event."""
        self.dirty = False
        """Something has come since the last look."""
        self.waits = ""
        """For whom it waits, in words; empty: for nothing."""

    # --- frames ---

    def take(self, frame: TotalFrame) -> bool:
        """Put a frame into its log, unless it is there or settled."""
        ticket, inc = log = frame.log
        if frame.last <= self.settled.upto(ticket, inc):
            return False
        frames = self.store.setdefault(log, {})
        if frame.first in frames:
            return False
        frames[frame.first] = frame
        self.frames += 1
        self.bytes += frame.size
        self.dirty = True
        self.ticked(log, frame.last, frame.lamport)
        return True

    def ticked(self, log: Log, seq: int, clock: int) -> None:
        """Rule T4."""
        if (clock, seq) > self.ticks.get(log, (0, -1)):
            self.ticks[log] = (clock, seq)
            self.dirty = True

    def holds(self, log: Log) -> int:
        """All events up to here are in hand or settled, with all their causes (rule T3)."""
        upto = max(self._whole.get(log, 0), self.settled.upto(*log))
        frames = self.store.get(log, {})
        while (frame := frames.get(upto + 1)) is not None and self._causes_of(frame, self._whole) is not None:
            upto = frame.last
        if frames:
            self._whole[log] = upto
        return upto

    def gaps(self, log: Log, upto: int) -> list[Range]:
        """What is not settled and not in hand."""
        found, frames = [], self.store.get(log, {})
        at = self.settled.upto(*log) + 1
        for first in sorted(frames):
            if first > upto:
                break
            if first > at:
                found.append((*log, at, first - 1))
            at = max(at, frames[first].last + 1)
        if at <= upto:
            found.append((*log, at, upto))
        return found

    def _causes_of(self, frame: TotalFrame, known: Mapping[Log, int] = NOTHING) -> list[TotalFrame] | None:
        """The causes of a frame that are not settled and that it does not name as lost, by place; None: one of them is
        not in hand. `known`: of a log, up to where there is nothing to look for."""
        if frame.lost is None:
            return []
        found: dict[Key, TotalFrame] = {}
        todo = [frame]
        while todo:
            for ticket, inc, seq in causes(todo.pop()):
                log = (ticket, inc)
                at = max(self.settled.upto(ticket, inc), known.get(log, 0)) + 1
                while at <= seq and inc >= self.settled.over[ticket]:
                    cause = self.store.get(log, {}).get(at)
                    if frame.lost and frame.lacks(ticket, inc, at):
                        gone = next(g for g in frame.lost if g.ticket == ticket and g.after < (inc, at) <= g.upto)
                        at = gone.upto[1] + 1 if gone.upto[0] == inc else seq + 1
                    elif cause is None:
                        self.lacks[log] = max(seq, self.lacks.get(log, 0))
                        return None
                    else:
                        if cause.key not in found:
                            found[cause.key] = cause
                            todo.append(cause)
                        at = cause.last + 1
        return sorted(found.values(), key=_place)

    # --- reports ---

    def heard(self, report: LogReport) -> bool:
        """A report of a voter of a council of this generation; returns whether it is news."""
        number, voter = report.council, report.voter
        known = self.reports.setdefault(number, {})
        if voter in known and known[voter].age >= report.age:
            return False
        known[voter] = report
        self.dirty = True
        acks, ends = self._acks.setdefault(number, {}), self._ends.setdefault(number, {})
        named: list[Log] = []
        for row in report.logs.rows:
            log = row.log
            if row.inc < self.floors.get(row.ticket, 0) or self._passed(log):
                continue
            named.append(log)
            self.ticked(log, row.seq, row.clock)
            if row.ack and acks.setdefault(log, {}).get(voter, 0) < row.ack:
                acks[log][voter] = row.ack
                self._rose[log] = None
            if row.accepted is not None and log not in self.closed:
                who = ends.setdefault(log, {}).setdefault(row.accepted, {})
                who[voter] = None
                if self.quorum(number, who):
                    self.closed[log] = row.accepted[1]
        self._named[voter, report.age] = tuple(named)
        keep_last(self._named, 256)
        for table in (self.reports, self._acks, self._ends):
            for old in sorted(table)[:-COUNCILS]:
                del table[old]
        return True

    def new_generation(self, generation: int) -> None:
        """The ring was founded anew, at a position not before this one: what the old councils said is void
        (rule T14)."""
        self.generation = generation
        for table in (self.reports, self._acks, self._ends, self._named, self.closed, self._decided, self._rose):
            table.clear()

    def decided(self, log: Log) -> int:
        """Up to here a quorum of one council holds it (rule T6)."""
        best = self._decided.get(log, 0)
        if log not in self._rose:
            return best
        del self._rose[log]
        for number, acks in self._acks.items():
            got = acks.get(log, {})
            for n in dict.fromkeys(got.values()):
                if n > best and self.quorum(number, [voter for voter, ack in got.items() if ack >= n]):
                    best = n
        self._decided[log] = best
        return best

    def _passed(self, log: Log) -> bool:
        """It is closed, and all of it is delivered."""
        end = self.closed.get(log)
        return end is not None and self.settled.upto(*log) >= end

    def ended(self, log: Log) -> int | None:
        """Where the log ends for good, as far as known: it is closed, or its owner's last tick is decided."""
        if log in self.closed:
            return self.closed[log]
        clock, seq = self.ticks.get(log, (0, -1))
        return seq if clock == LAST and self.decided(log) >= seq else None

    # --- the merge ---

    def advance(self) -> Iterator[TotalFrame]:
        """Pass as far as the reports of a quorum of one council allow (rule T7): the frames to deliver, in order."""
        self.waits = ""
        best, frames = self.position, list[TotalFrame]()
        for number, reports in self.reports.items():
            voices = self._quorum(number, reports)
            if voices is None or voices[-1].logs.clock <= best:
                continue
            named = [self._named.get((r.voter, r.age)) or tuple(row.log for row in r.logs.rows) for r in voices]
            known = dict.fromkeys(log for logs in named for log in logs if log[1] >= self.floors.get(log[0], 0))
            limit, found = self._limit(voices[-1].logs.clock, known)
            if limit > best or (limit == best and found):
                best, frames = limit, found
        if self.store and not (frames or self.waits):  # those that are here are as old as the position
            self.waits = "the reports of a quorum of voters"
        for frame in sorted(frames, key=_place):
            pulled = self._due(frame)
            if pulled is None:
                self.position = max(self.position, frame.lamport - 1)
                return
            for each in pulled:
                self._pass(each)
                yield each
            self.settled.past_of(frame)
            if frame.lost != ():
                self.purge()
        self.position = max(self.position, best)

    def _quorum(self, number: int, reports: dict[MemberId, LogReport]) -> list[LogReport] | None:
        """The quorum of this council with the highest clock: that of the last one. A voter that has forgotten logs is
        heard only by those who are past them (rule T13)."""
        have: list[LogReport] = []
        for report in sorted(reports.values(), key=lambda report: (-report.logs.clock, report.voter)):
            if report.logs.dropped > self.position:
                continue
            self._forget(report.logs.floors)
            have.append(report)
            if self.quorum(number, [each.voter for each in have]):
                return have
        if number == max(self.reports):
            self.waits = "the reports of a quorum of voters"
        return None

    def _limit(self, clock: int, known: dict[Log, None]) -> tuple[int, list[TotalFrame]]:
        """Up to which stamp no log can still grow (rule T7), and the frames up to there."""
        limit, ends = clock, dict[Log, int]()
        for log in known:
            if self._passed(log):
                continue
            end = self.ended(log)
            if end is None:
                at, end = self.ticks.get(log, (-1, 0))
                if at < limit:
                    limit = at
                    self.waits = f"word of the owner of ticket {log[0]}"
            ends[log] = end
        if limit <= self.position:
            return limit, []
        found: list[TotalFrame] = []
        for log, end in ends.items():
            limit = min(limit, self._walk(log, end, limit, found))
        return limit, [frame for frame in found if frame.lamport <= limit]

    def _walk(self, log: Log, end: int, limit: int, found: list[TotalFrame]) -> int:
        """Collect the decided frames of a log up to its end, or the limit; returns how far that may go."""
        at, before = self.settled.upto(*log), self.position
        frames = self.store.get(log, {})
        decided = end if log in self.closed else self.decided(log)
        while at < end:
            frame = frames.get(at + 1)
            if frame is None:
                self.lacks[log] = end
                if before < limit:
                    self.waits = f"events of ticket {log[0]} after {at}"
                return before
            if frame.lamport > limit:
                return limit
            if frame.last > decided:
                self.waits = f"a quorum of voters to hold events of ticket {log[0]} up to {frame.last}"
                return frame.lamport - 1
            at, before = frame.last, max(before, frame.lamport)
            found.append(frame)
        return limit

    def _due(self, frame: TotalFrame) -> list[TotalFrame] | None:
        """What is delivered now, so that the frame is: its causes that are in no log, and itself (rule T9)."""
        if frame.last <= self.settled.upto(*frame.log):
            return []
        before = self._causes_of(frame)
        if before is None:
            self.waits = f"a cause of event {frame.first} of ticket {frame.ticket}"
            return None
        return [*before, frame]

    def _pass(self, frame: TotalFrame) -> None:
        self.count += frame.count
        self.settled.note(frame.ticket, frame.inc, frame.last)
        self._remove(frame.log, frame.first)

    def purge(self) -> None:
        """Let go of what is settled without having been delivered."""
        for log in list(self.store):
            upto = self.settled.upto(*log)
            for first in [first for first, frame in self.store[log].items() if frame.last <= upto]:
                self._remove(log, first)

    def _remove(self, log: Log, first: int) -> None:
        frames = self.store[log]
        gone = frames.pop(first)
        self.frames -= 1
        self.bytes -= gone.size
        if not frames:
            del self.store[log]

    # --- what is over (rule T13) ---

    def forgettable(self, number: int) -> tuple[dict[int, int], int]:
        """Of each ticket, below which incarnation all logs are closed and passed, as a quorum of the council says that
        will never vouch there again; and the highest stamp passed."""
        floors: dict[int, int] = {}
        reports = self.reports.get(number, {})
        for ticket in range(self.tickets):
            mine = sorted(log for log in self.closed if log[0] == ticket)
            for log in reversed(mine[:-KEPT]):
                ends = [r for r in reports.values() if any(row.log == log and row.accepted for row in r.logs.rows)]
                below = {row.log for r in ends for row in r.logs.rows if row.ticket == ticket and row.inc <= log[1]}
                over = all(x in self.closed and self.settled.upto(*x) >= self.closed[x] for x in sorted(below))
                if over and self.quorum(number, [r.voter for r in ends]):
                    floors[ticket] = log[1] + 1
                    break
        return floors, self.position

    def _forget(self, floors: Sequence[tuple[int, int]]) -> None:
        """The voters have forgotten these logs, and this member is past them."""
        for ticket, floor in floors:
            if floor <= self.floors.get(ticket, 0):
                continue
            self.floors[ticket] = floor
            for table in (self.closed, self.ticks, self._decided, self._whole):
                for log in [log for log in table if log[0] == ticket and log[1] < floor]:
                    del table[log]


KEPT = 4
"""Closed logs of a ticket that voters still report."""


def _place(frame: TotalFrame) -> tuple[int, int, int, int]:
    return frame.place


class TotalOrdering(TicketOrdering):
    """The order layer of one member in total order."""

    def __init__(self, context: OrderContext) -> None:
        super().__init__(context)
        assert self.lamport is not None
        self.merge = Merge(self.config.tickets)
        self.kept: Callable[[], LogVote | None] = lambda: None
        """What this process has promised as a voter, for the disk (rule T11)."""
        self._out: list[OrderOutput] = []
        self._wanted: dict[Log, int] = {}  # when what a log lacks was asked for last
        self._again = 2 * self.config.time_to_terminate_ns
        self._left_out: dict[Log, int] = {}  # own logs -> their last event

    # --- what comes up from `reliable` ---

    def _deliver_own(self, frame: Frame, now: int, out: list[OrderOutput]) -> None:
        super()._deliver_own(frame, now, out)
        self._take(frame)
        self._left_out[frame.ticket, frame.inc] = frame.last
        keep_last(self._left_out, 16)

    def _receive(
        self, frame: Frame, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]
    ) -> None:
        super()._receive(frame, sender, age, now, recovered, out)
        self._take(frame)

    def _take(self, frame: Frame) -> None:
        """Into its log, whether or not `reliable` can deliver it."""
        merge, config = self.merge, self.config
        if self.owners.tables[frame.ticket].get(frame.inc, frame.owner) != frame.owner:
            return
        if merge.frames >= config.buffer or merge.bytes >= config.buffer_bytes:
            merge.purge()
            self.stats.overflow_frames += merge.frames >= config.buffer
        if merge.frames < config.buffer and merge.bytes < config.buffer_bytes:
            merge.take(cast(TotalFrame, frame))

    def _give(
        self, frame: Frame, over_gap: bool, out: list[OrderOutput], alert: int = 0, suspects: tuple[str, ...] = ()
    ) -> None:
        """It waits in its log."""

    def _late(self, frame: Frame, out: list[OrderOutput]) -> None:
        """It may be in time for its log."""

    def _note_given_up(self, ranges: Sequence[Range], reason: str, out: list[OrderOutput]) -> None:
        super()._note_given_up(ranges, reason, [])  # that is for the logs to say
        self.lost = [gone for gone in self.lost if self.merge.settled.upto(gone.ticket, gone.upto[0]) < gone.upto[1]]

    def keep(self, frame: Frame, sender: MemberId, now: int) -> list[OrderOutput]:  # type: ignore[override]
        out = super().keep(frame, sender, now)
        self._take(frame)
        return out

    def _find(self, wanted: AnySpan) -> list[Frame]:
        """Also what `B` has no room for."""
        found = super()._find(wanted)
        ticket, inc, first, last = cast(Range, wanted)
        frames: Mapping[int, Frame] = self.merge.store.get((ticket, inc), {})
        have = {frame.first for frame in found}
        more = [f for at, f in frames.items() if at not in have and at <= last and f.last >= first]
        return sorted([*found, *more], key=lambda frame: frame.first) if more else found

    def _gaps(self, of: int, inc: int, upto: int) -> list[Range]:
        return super()._gaps(of, inc, upto) or self.merge.gaps((of, inc), upto)

    def _go_without(self, gap: Range, reason: str, now: int, out: list[OrderOutput]) -> None:
        if not self.clock.has(gap[0], gap[1], gap[3]):
            super()._go_without(gap, reason, now, out)

    # --- what the logs say ---

    def want(self, log: Log, upto: int, now: int, holder: MemberId | None = None) -> None:
        """Ask for what is missing of a log, of a voter that holds it if one is known."""
        if self.merge.gaps(log, upto):
            self.pursuits.want(*log, upto, now, holder=holder, at_once=True)

    def on_report(self, report: LogReport) -> bool:
        """Rule T5. Returns whether it says something new."""
        generation = report.council >> GENERATION
        if generation > self.merge.generation:
            if self.merge.position > report.logs.start:
                start, at = report.logs.start, self.merge.position
                self._out.append(Behind("forked", f"the ring was founded anew at {start}, and this member was at {at}"))
                return False
            self.merge.new_generation(generation)
        if generation < self.merge.generation:
            return False
        assert self.lamport is not None
        self.lamport.saw(report.logs.clock)
        return self.merge.heard(report)

    def advance(self, now: int) -> list[OrderOutput]:
        """Deliver what has its place now."""
        out, self._out = self._out, []
        merge = self.merge
        for frame in merge.advance():
            if not self.clock.has(*frame.key):
                self._overtake(frame, now, out)
            place = merge.count - frame.count
            self.stats.delivered += frame.count
            out.append(Deliver(frame, place=place + 1))
        lacks, merge.lacks = merge.lacks, {}
        for log, upto in lacks.items():
            if now - self._wanted.get(log, -self._again) >= self._again:
                self._wanted[log] = now
                self.want(log, upto, now)
        keep_last(self._wanted, 4 * COUNCILS * self.config.tickets)
        for log, last in list(self._left_out.items()):
            end = merge.ended(log)
            if end is not None and merge.settled.upto(*log) >= end:
                del self._left_out[log]
                if merge.settled.upto(*log) < last:
                    out.append(GaveUp(((*log, merge.settled.upto(*log) + 1, last),), LEFT_OUT))
        return out

    def _overtake(self, frame: TotalFrame, now: int, out: list[OrderOutput]) -> None:
        """It has its place, and `reliable` still waits for a cause of it that nobody has."""
        if frame.key in self.held:
            self._skip(frame.key, "settled", now, out)
        else:
            missing = self._missing(frame)
            if missing:
                self._note_given_up(missing, "settled", out)
                self.clock.give_up(frame.deps, frame.orphans)
            self._deliver(frame, bool(missing), now, out)
            self._skipped = True
        self._moved.extend(range(self.config.tickets))
        self._drain(now, out)

    # --- state ---

    def state(self) -> TotalState:
        """Of the position: what is beyond comes again from others, or from the disk."""
        assert self.lamport is not None
        merge, settled = self.merge, self.merge.settled
        rows = [(t, inc, seq) for t, of in enumerate(settled.rows) for inc, seq in of.items()]
        newest: list[Entry] = [max(of.items(), default=NEVER) for of in settled.rows]
        older = tuple(row for row in rows if row[1:] != newest[row[0]])
        return TotalState(
            T=tuple(newest),
            floor=tuple(settled.floor),
            tails=older,
            orphans=older,
            past=tuple(newest),
            owners=self.owners.rows(),
            position=merge.position,
            count=merge.count,
            generation=merge.generation,
            over=tuple(settled.over),
            closed=tuple((*log, end) for log, end in merge.closed.items()),
            floors=tuple(merge.floors.items()),
            lamport=self.lamport.now + WRITE_AHEAD,
            vote=self.kept(),
        )

    def admit(self, joiner: MemberId, weaker: bool = False) -> TicketState:
        """Without what this process has promised as a voter. For a weaker order it is a clock like any other."""
        return msgspec.structs.replace(self.state(), vote=None)

    def load(self, state: OrderState, now: int) -> None:
        if not isinstance(state, TotalState):
            raise BadMessage(f"the state of a member that is not in total order, for {self.me}, which is")
        super().load(state, now)
        merge, n = self.merge, self.config.tickets
        if len(state.over) != n:
            raise BadMessage(f"a settled past of {len(state.over)} tickets in a cluster of {n}")
        merge.position, merge.count, merge.generation = state.position, state.count, state.generation
        settled = merge.settled
        settled.floor, settled.over = list(state.floor), list(state.over)
        for row in (*((t, *entry) for t, entry in enumerate(state.T)), *state.tails):
            if row[0] < n:
                settled.note(*row)
        merge.closed = {(t, inc): end for t, inc, end in state.closed if t < n}
        merge.floors = dict(state.floors)
        assert self.lamport is not None
        self.lamport.saw(state.lamport)

    def why_blocked(self, event: str) -> Blocked:
        found = super().why_blocked(event)
        if found.state == "delivered":
            ticket, inc, seq, _ = EventId.parse(event)
            if seq > self.merge.settled.upto(ticket, inc):
                return Blocked(event, "held", waits=self.merge.waits or "its place in the total order")
        return found

    def buffers(self) -> dict[str, tuple[int, int]]:
        found = super().buffers()
        found["logs"] = (self.merge.frames, self.config.buffer)
        return found
