"""The delivery engine of clusters with tickets (CCC11 Algorithm 5). Also: absurd timestamps, who owns an incarnation.

One machine for `unordered`, `fifo`, `causal` and `reliable`.

The orders differ in three answers only:

====================  ===========  ======  ======  ========
question              unordered    fifo    causal  reliable
====================  ===========  ======  ======  ========
checked before e      publisher's  same    all     all
delivered while held  yes          no      no      no
gaps are skipped      yes          yes     yes     no
====================  ===========  ======  ======  ========

`unordered` delivers on arrival and keeps the frame in `H` only to know what is missing. Rules, as in the paper unless
said otherwise:

1. create: `t_e = T with entry j := seq`, into `B`, delivered locally at once.
2. receive: into `B`; nothing missing: deliver and drain; obsolete: count it (duplicate, or late); else into `H`.
3. After `time_to_terminate`, ask for what is still missing (`recovery.py`).
4. `time_to_recover` after that, deliver everything in `H` that precedes e, in causal order, then e, then drain. (The
   pseudo-code says "that can be delivered", the text all of them; the other reading throws away events in hand.)
5. `R`, the recovered, are kept with `H`: nothing depends on which is which.
6. A digest of a peer's `T` that shows something unknown is pursued like a gap (closes the paper's silent tail).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from operator import le

import msgspec
from msgspec.structs import force_setattr

from whence.core.clock import (
    MAX_SEQ,
    AnyFrame,
    CctClock,
    Digest,
    Entry,
    EventId,
    Frame,
    Incarnation,
    Key,
    MemberId,
    Range,
    TotalFrame,
    check_vector,
)
from whence.core.clock.cct import merge
from whence.core.clock.event import MAX_LOST, LostRange, around_seq, encode
from whence.core.order.layer import Numbering, OrderContext, Ordering
from whence.core.order.messages import OrderState, TicketState
from whence.core.order.outputs import Arrived, Blocked, Dropped, MissingRange, OrderOutput
from whence.errors import AbsurdClock, BadFrame, BadMessage, ForgedTicket, UsageError, WrongKind

MAX_OWNERS = 16  # tenures remembered per ticket
MAX_EPOCHS = 1024  # refoundings of the ring that this member may have missed


def check_jump(vector: Sequence[Entry], clock: CctClock, max_jump: int) -> None:
    """A timestamp far beyond anything known raises `AbsurdClock`."""
    for ticket, (entry, now) in enumerate(zip(vector, clock.T, strict=True)):
        (inc, seq), (at, upto) = entry, now
        if entry <= now and (not clock.exact or inc == at or inc < clock.floor[ticket]):
            continue
        if inc != at:  # a tenure of which nothing, or only the recent past, is known
            upto = clock.tails.get((ticket, inc), 0)
        ahead = seq - upto
        if ahead > max_jump or (inc >> 48) - (at >> 48) > MAX_EPOCHS:
            raise AbsurdClock(f"ticket {ticket}: {(inc, seq)} is {ahead} events ahead of {(at, upto)}")


class Owners:
    """The owner of each recent tenure: whom to ask, whom to believe. The first name heard stays."""

    def __init__(self, tickets: int) -> None:
        self.tables: list[dict[int, MemberId]] = [{} for _ in range(tickets)]  # by ticket, then by incarnation

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    def note(self, ticket: int, inc: int, owner: MemberId) -> None:
        """Remember the owner; the oldest tenures are forgotten."""
        table = self.tables[ticket]
        if inc not in table:
            table[inc] = owner
            if len(table) > MAX_OWNERS:
                del table[min(table)]

    def rows(self) -> tuple[tuple[int, int, MemberId], ...]:
        """All of it as data."""
        return tuple((t, inc, owner) for t, table in enumerate(self.tables) for inc, owner in table.items())


class _HeldFrame:
    """A frame in `H` (or `R`): received, waiting for what precedes it."""

    __slots__ = ("delivered", "frame", "size", "watch")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.delivered = False
        self.size = frame.size
        self.watch: tuple[int, Entry] | None = None  # the ticket it waits for, and up to where


class TicketOrdering(Ordering[int, Frame]):
    """The order layer of one member of a cluster with tickets."""

    frame_type = Frame

    def __init__(self, context: OrderContext) -> None:
        super().__init__(context)
        config = self.config
        if self.lamport is not None:
            self.frame_type = TotalFrame
        self.lost: list[LostRange] = []
        """What own frames name as lost (docs/total.md, rule T9)."""
        self.early = config.order == "unordered"
        self.own_only = config.order in ("unordered", "fifo")
        self.blocking = config.blocking
        self.clock = CctClock(config.tickets, exact=not self.own_only)
        self.past: tuple[Entry, ...] = tuple(self.clock.T)  # weak orders only: what was delivered, with all its past
        self.held: dict[Key, _HeldFrame] = {}
        self.owners = Owners(config.tickets)
        self._watch: list[list[tuple[Entry, int, Key]]] = [[] for _ in range(config.tickets)]  # heaps
        self._watched = 0
        self._skipped = False
        self._ahead: dict[Key, bool] = {}  # unordered, after a restart: delivered before, but beyond the clock
        self._tenures: deque[tuple[int, int, int]] = deque()
        self._last_own: tuple[int, int, int] | None = None
        self._moved: list[int] = []

    # -- publish ------------------------------------------------------------------------------------------------

    def numbering(self, tenure: tuple[int, int] | None = None) -> Numbering:
        assert tenure is not None
        ticket, inc = tenure
        at, upto = self.clock.T[ticket]
        before, after = around_seq(ticket, inc, self.me)
        return Numbering(before, upto + 1 if at == inc else 1, after)

    def _stamp(self, payloads: list[bytes], now: int, tenure: tuple[int, int] | None) -> Frame:
        """Rule 1."""
        assert tenure is not None
        ticket, inc = tenure
        at, upto = self.clock.T[ticket]
        first = upto + 1 if at == inc else 1
        if first + len(payloads) - 1 > MAX_SEQ:
            raise UsageError("this tenure has used up its sequence numbers: give the ticket back and take a new one")
        deps = merge(self.past, self.clock.T) if self.own_only else tuple(self.clock.T)
        # In every frame, not once: who has skipped the one that named an orphan must not take it after this one.
        orphans = tuple((t, i, s) for (t, i), s in self.clock.orphans.items())
        prior = self._last_own if first == 1 else None
        body = encode(payloads)
        if self.lamport is None:
            return Frame(ticket, inc, first, len(payloads), self.me, deps, orphans, body, prior)
        self.lamport.now += 1  # rule T1
        few = not self.own_only and len(self.lost) <= MAX_LOST
        lost = tuple(self.lost) if few else None
        at = self.lamport.now
        return TotalFrame(ticket, inc, first, len(payloads), self.me, deps, orphans, body, prior, b"", at, lost)

    def _deliver_own(self, frame: Frame, now: int, out: list[OrderOutput]) -> None:
        self._last_own = (frame.ticket, frame.inc, frame.first + frame.count - 1)
        if frame.first == 1:
            self.owners.note(frame.ticket, frame.inc, self.me)
        self._deliver(frame, False, now, out)
        if self._moved:
            self._drain(now, out)

    # -- receive ------------------------------------------------------------------------------------------------

    def _vet(self, frame: Frame, sender: MemberId) -> None:
        if self.lamport is not None:
            stamp, now = frame.lamport, self.lamport.now  # type: ignore[attr-defined]  # a TotalFrame
            if now and stamp > now + self.config.max_jump:
                raise AbsurdClock(f"a stamp of {stamp}, {stamp - now} ahead of all known")
            self.lamport.saw(stamp)
        if len(frame.deps) != self.config.tickets:
            raise BadFrame(
                f"frame for ticket {frame.ticket} of {len(frame.deps)} in a cluster of {self.config.tickets}"
            )
        if self.joining:
            return
        if not self.clock.ready(frame.deps):
            check_jump(frame.deps, self.clock, self.config.max_jump)
        owner = self.owners.tables[frame.ticket].get(frame.inc)
        if owner is not None and owner != frame.owner == sender:  # forwarding a forgery is no fault
            self.stats.two_owners += 1
            tenure = f"ticket {frame.ticket}, tenure {Incarnation.unpack(frame.inc)}"
            raise ForgedTicket(f"{sender} published on {tenure}, which is {owner}'s")

    def _receive(
        self, frame: Frame, sender: MemberId, age: int, now: int, recovered: bool, out: list[OrderOutput]
    ) -> None:
        """Rule 2."""
        ticket, inc, clock = frame.ticket, frame.inc, self.clock
        owner = self.owners.tables[ticket].get(inc)
        if owner is not None and owner != frame.owner:
            self.stats.two_owners += 1
            out.append(Dropped(frame, "two-owners"))
            return
        key = (ticket, inc, frame.first)
        at, upto = clock.T[ticket]
        if frame.first <= upto if inc == at else clock.has(ticket, inc, frame.first):
            self._obsolete(frame, sender, age, recovered, out)
            return
        if key in self.held:
            self.stats.duplicate_frames += 1
            return
        if owner is None:
            self.owners.note(ticket, inc, frame.owner)
        if self.own_only:
            ready = not self._missing(frame)
        elif ready := all(map(le, frame.deps, clock.T)) and (not clock.exact or clock.ready(frame.deps, frame.orphans)):
            # Many frames are kept, and most of what their vectors say is in the clock as well: keep one copy of it. No
            # entry of a frame that is ready is above the clock's; of two equal ones `min` returns the first.
            T = tuple(clock.T)
            force_setattr(frame, "deps", T if frame.deps == T else tuple(map(min, T, frame.deps)))
            force_setattr(frame, "owner", owner or frame.owner)
        if self.buffer.add(key, frame, now - age * self.config.hop_ns):
            out.append(Arrived(frame, sender, age, recovered))
            if recovered:
                self.stats.recovered += frame.count
        if ready:
            self._deliver(frame, False, now, out, handed=self._ahead.pop(key, False))
        else:
            self._hold(key, frame, recovered, now, out)
        if self._moved:
            self._drain(now, out)

    def _late(self, frame: Frame, out: list[OrderOutput]) -> None:
        if self.early:
            self._give_early(frame, out)
        else:
            super()._late(frame, out)

    def _hold(self, key: Key, frame: Frame, recovered: bool, now: int, out: list[OrderOutput]) -> None:
        held = self.held[key] = _HeldFrame(frame)
        self.held_bytes += held.size
        if self.early:
            held.delivered = True
            if not self._ahead.pop(key, False):
                self._give_early(frame, out)
        missing = self._missing(frame)
        for ticket, inc, _, last in missing:
            self.pursuits.want(ticket, inc, last, now, at_once=recovered)  # gossip has had its time
        self._watch_first(key, held, missing)
        if not self.blocking:
            self._set_deadline(now + self._patience, key)
        while len(self.held) > self.config.hold or self.held_bytes > self.config.hold_bytes:
            self._overflow(key, now, out)
        self.stats.held_peak = max(self.stats.held_peak, len(self.held))

    def _overflow(self, newest: Key, now: int, out: list[OrderOutput]) -> None:
        """`H` is full. Orders that skip give up the oldest gap. `reliable` drops the newest frame, which is asked for
        again, unless others in `H` wait for it."""
        self.stats.overflow_frames += 1
        if not self.blocking:
            self._skip(next(iter(self.held)), "overflow", now, out)
            self._drain(now, out)
            return
        keys = list(self.held)
        wanted = any(self.held[k].frame.deps[newest[0]] >= newest[1:] for k in keys if k != newest)
        victim = next((k for k in reversed(keys) if k != newest), newest) if wanted else newest
        out.append(Dropped(self._release(victim).frame, "overflow"))

    # -- deliver ------------------------------------------------------------------------------------------------

    def _deliver(self, frame: Frame, over_gap: bool, now: int, out: list[OrderOutput], handed: bool = False) -> None:
        ticket, inc, clock, last = frame.ticket, frame.inc, self.clock, frame.first + frame.count - 1
        if clock.T[ticket][0] == inc:  # as almost always
            clock.T[ticket] = (inc, last)
        else:
            if clock.T[ticket][0] < inc:
                self._tenures.append((now, ticket, inc))
                if len(self._tenures) > MAX_OWNERS * self.config.tickets:
                    _, old, upto = self._tenures.popleft()
                    clock.settle(old, upto)
            clock.advance(ticket, inc, last, frame.deps[ticket])
        for orphan in frame.orphans:  # in the past of what is published next, delivered here or not
            clock.name(*orphan)
        if self.held:  # else nothing waits for it
            self._moved.append(ticket)
        if not handed:
            if self.own_only:
                self._extend_past(frame)
            self._give(frame, over_gap, out)

    def _give_early(self, frame: Frame, out: list[OrderOutput]) -> None:
        """`unordered`: hand up a frame that the clock does not count yet, or never will."""
        self._extend_past(frame)
        self._give(frame, False, out)

    def _extend_past(self, frame: Frame) -> None:
        """Weak orders: the frame and all its past are in the past of the next own frame. A vector has one tenure of a
        ticket; what was delivered of an older one has to be named (docs/ring.md, "Tickets, incarnations, event
        ids")."""
        stamp, closes = frame.timestamp(frame.last), frame.deps[frame.ticket]
        for ticket, (new, old) in enumerate(zip(stamp, self.past, strict=True)):
            own = ticket == frame.ticket
            if new[0] > old[0] and not (own and closes[0] == old[0] and closes >= old):
                self.clock.name(ticket, *old)
            elif new[0] < old[0] and own:
                self.clock.name(ticket, *new)
        self.past = merge(self.past, stamp)

    def _drain(self, now: int, out: list[OrderOutput], over_gap: bool = False) -> None:
        """Deliver what the last deliveries have made deliverable, to a fixed point."""
        if self._skipped:
            self._skipped = False
            for key in [k for k in self.held if self.clock.has(*k)]:
                self._drop_overtaken(key, out)
        while self._moved:
            ticket = self._moved.pop()
            for key, held in self._watching(ticket):
                if key not in self.held:
                    continue
                if self.clock.has(*key):  # overtaken: its tenure was closed over meanwhile, and it is late
                    self._drop_overtaken(key, out)
                    continue
                missing = self._missing(held.frame)
                if missing:
                    self._watch_first(key, held, missing)
                else:
                    self._release(key)
                    self._deliver(held.frame, over_gap, now, out, handed=held.delivered)

    def _watching(self, ticket: int) -> list[tuple[Key, _HeldFrame]]:
        """The held frames that wait for no more of this ticket than there is now."""
        heap, upto = self._watch[ticket], self.clock.T[ticket]
        found: list[tuple[Key, _HeldFrame]] = []
        while heap and heap[0][0] <= upto:
            wanted, _, key = heapq.heappop(heap)
            held = self.held.get(key)
            if held is not None and held.watch == (ticket, wanted):
                found.append((key, held))
        return found

    def _drop_overtaken(self, key: Key, out: list[OrderOutput]) -> None:
        held = self._release(key)
        if not held.delivered:
            super()._late(held.frame, out)

    def _missing(self, frame: Frame) -> list[Range]:
        if self.own_only:
            own = self.clock.missing_of(frame.ticket, *frame.deps[frame.ticket])
            prior = self.clock.missing_of(*frame.prior) if frame.prior else None
            return [r for r in (own, prior) if r]
        return self.clock.missing(frame.deps, frame.orphans)

    def _watch_first(self, key: Key, held: _HeldFrame, missing: list[Range]) -> None:
        """Check a held frame again only when the first run of events that it misses has come: a busy ticket moves
        often."""
        ticket, inc, _, last = missing[0]
        held.watch = (ticket, (inc, last))
        heap = self._watch[ticket]
        self._watched += 1
        heapq.heappush(heap, ((inc, last), self._watched, key))
        if len(heap) > 2 * len(self.held) + 64:  # mostly frames that were released in the meantime
            heap[:] = [w for w in heap if w[2] in self.held and self.held[w[2]].watch == (ticket, w[0])]
            heapq.heapify(heap)

    def _release(self, key: Key) -> _HeldFrame:
        held = self.held.pop(key)
        self.held_bytes -= held.size
        return held

    def _skip(self, key: Key, reason: str, now: int, out: list[OrderOutput]) -> None:
        """Rule 4: everything in hand that precedes e, then e, in causal order."""
        e = self.held[key].frame
        before = [
            k
            for k, h in self.held.items()
            if k != key
            and h.frame.stamp <= e.deps[k[0]]
            and (not self.own_only or k[0] == key[0] or h.frame.owner == e.owner)
        ]
        # a vector that precedes another is lexicographically smaller: sorting is a linear extension of causal order
        before.sort(key=lambda k: (self.held[k].frame.timestamp(self.held[k].frame.last), k))
        for k in [*before, key]:
            if self.clock.has(*k):  # an orphan, overtaken by what its successor tenure closes over
                self._drop_overtaken(k, out)
                continue
            held = self._release(k)
            frame = held.frame
            missing = self._missing(frame)
            if missing:
                self._note_given_up(missing, reason, out)
                if self.own_only:
                    for ticket, inc, _, last in missing:
                        self.clock.skip_to(ticket, inc, last)
                else:
                    self.clock.give_up(frame.deps, frame.orphans)
                self._moved.extend(range(self.config.tickets))
                self._skipped = True
            self._deliver(frame, bool(missing), now, out, handed=held.delivered)

    def _note_given_up(self, ranges: Sequence[Range], reason: str, out: list[OrderOutput]) -> None:
        super()._note_given_up(ranges, reason, out)
        for ticket, inc, first, last in ranges if self.lamport is not None and len(self.lost) <= MAX_LOST else ():
            at = self.clock.T[ticket]
            self.lost.append(LostRange(ticket, at if inc > at[0] else (inc, first - 1), (inc, last)))

    # -- time ---------------------------------------------------------------------------------------------------

    def _had(self, frame: Frame) -> bool:
        return self.clock.has(*frame.key)

    def _wake(self, now: int, out: list[OrderOutput]) -> None:
        if self.pursuits.next_at is not None and self.pursuits.next_at <= now:
            self._from_own_buffer(now, out)
            self._abandon(now, out)
        self._ask(now, out)
        for key in self._overdue(now):
            self._skip(key, "timeout", now, out)
            self._drain(now, out)
        while self._tenures and now - self._tenures[0][0] > self.config.memory_ns:
            _, ticket, inc = self._tenures.popleft()
            self.clock.settle(ticket, inc)

    def _gaps(self, of: int, inc: int, upto: int) -> list[Range]:
        ticket = of
        whole = self.clock.missing_of(ticket, inc, upto)
        if whole is None:
            return []
        gaps, at = [], whole[2]
        for frame in sorted((h.frame for k, h in self.held.items() if k[:2] == (ticket, inc)), key=lambda f: f.first):
            if frame.first > upto:
                break
            if frame.first > at:
                gaps.append((ticket, inc, at, frame.first - 1))
            at = max(at, frame.last + 1)
        if at <= upto:
            gaps.append((ticket, inc, at, upto))
        return gaps

    def _from_own_buffer(self, now: int, out: list[OrderOutput]) -> None:
        """A frame that `H` had no room for may still be in the own `B`."""
        for (ticket, inc), pursuit in list(self.pursuits.by_count.items()):
            if pursuit.next_at <= now:
                for gap in self._gaps(ticket, inc, pursuit.upto):
                    for frame in self.buffer.find(gap):
                        out += self.receive(frame, self.me, 0, now)

    def _abandon(self, now: int, out: list[OrderOutput]) -> None:
        """`reliable`: neither the source nor any holder is alive. Report it and go on."""
        for tenure in self.pursuits.hopeless(now, self.members()):
            pursuit = self.pursuits.end(tenure)
            gaps = self._gaps(*tenure, pursuit.upto)
            if not gaps or pursuit.tail:
                continue
            self._go_without(gaps[0], "unrecoverable", now, out)

    def _go_without(self, gap: Range, reason: str, now: int, out: list[OrderOutput]) -> None:
        """Skip these events, and deliver what waited for them."""
        ticket, inc, _, last = gap
        self._note_given_up([gap], reason, out)
        self.clock.skip_to(ticket, inc, last)
        self._moved.append(ticket)
        self._skipped = True
        self._drain(now, out, over_gap=True)

    # -- peers --------------------------------------------------------------------------------------------------

    def heard(self, sender: MemberId, digest: object, now: int) -> None:
        """Rule 6."""
        if self.joining:
            return
        if not isinstance(digest, Digest):
            raise WrongKind("a digest of owners in a cluster with tickets")
        if len(digest.T) != self.config.tickets:
            raise BadMessage(f"digest of {len(digest.T)} entries in a cluster of {self.config.tickets} tickets")
        if self.clock.ready(digest.T, digest.orphans):
            return
        check_jump(digest.T, self.clock, self.config.max_jump)
        for ticket, inc, _, last in self.clock.missing(digest.T, digest.orphans):
            self.pursuits.want(ticket, inc, last, now, holder=sender)

    def digest(self) -> Digest | None:
        if self.joining:
            return None
        return Digest(tuple(self.clock.T), tuple((t, i, s) for (t, i), s in self.clock.orphans.items()))

    def vouches(self, said: object, state: OrderState, orphans: bool) -> bool:
        if not isinstance(state, TicketState):
            return True  # `load` refuses it
        if not isinstance(said, Digest):
            return False
        known = {(t, inc): seq for t, (inc, seq) in enumerate(said.T)} | {(t, inc): seq for t, inc, seq in said.orphans}
        claimed = [(t, *entry) for vector in (state.T, state.past) for t, entry in enumerate(vector)]
        claimed += state.orphans if orphans else ()
        return all(seq <= known.get((t, inc), 0) for t, inc, seq in claimed)

    def _source(self, of: int, inc: int) -> MemberId | None:
        return self.owners.tables[of].get(inc)

    @property
    def T(self) -> Sequence[Entry]:
        return self.clock.T

    def note_owner(self, ticket: int, inc: int, owner: MemberId) -> None:
        self.owners.note(ticket, inc, owner)

    def expect(self, ticket: int, entry: Entry, now: int) -> None:
        if not self.clock.has(ticket, *entry):
            self.pursuits.want(ticket, *entry, now, at_once=True)

    def caught_up(self, ticket: int, entry: Entry) -> bool:
        return self.clock.has(ticket, *entry)

    def forgo(self, ticket: int, entry: Entry, now: int) -> list[OrderOutput]:
        out: list[OrderOutput] = []
        missing = self.clock.missing_of(ticket, *entry)
        if missing is not None:
            self._go_without(missing, "timeout", now, out)
        return out

    # -- state --------------------------------------------------------------------------------------------------

    def state(self) -> TicketState:
        c = self.clock
        return TicketState(
            T=tuple(c.T),
            floor=tuple(c.floor) if c.exact else tuple(inc for inc, _ in c.T),
            tails=tuple((t, i, s) for (t, i), s in c.tails.items()),
            orphans=tuple((t, i, s) for (t, i), s in c.orphans.items()),
            past=self.past if self.own_only else tuple(c.T),
            owners=self.owners.rows(),
            ahead=tuple(self.held) if self.early else (),
        )

    def keep(self, frame: AnyFrame, sender: MemberId, now: int) -> list[OrderOutput]:
        """What the clock does not cover was held back: it arrives again."""
        assert isinstance(frame, Frame)
        if self.lamport is not None:
            self.lamport.saw(frame.lamport)  # type: ignore[attr-defined]  # a TotalFrame
        if self.clock.has(*frame.key):
            return super().keep(frame, sender, now)
        return self.receive(frame, sender, 0, now, recovered=True)

    def admit(self, joiner: MemberId, weaker: bool = False) -> TicketState:
        clock = self.state()
        if not weaker:
            return clock
        # Everything in the past of what we delivered is settled for the joiner: a loss perhaps, never an inversion.
        T = merge(clock.T, clock.past)
        return msgspec.structs.replace(clock, T=T, floor=tuple(inc for inc, _ in T), tails=(), ahead=())

    def load(self, state: OrderState, now: int) -> None:
        n = self.config.tickets
        if not isinstance(state, TicketState):
            raise BadMessage(f"the state of a cluster with {state.kind}, in one with tickets")
        if not len(state.T) == len(state.floor) == len(state.past) == n:
            raise BadMessage(f"clock of {len(state.T)} entries in a cluster of {n} tickets")
        check_vector(state.T)
        check_vector(state.past)
        c = self.clock
        c.T, c.floor = list(state.T), list(state.floor)
        c.orphans = {(t, i): s for t, i, s in state.orphans if t < n}
        c.tails = {(t, i): s for t, i, s in state.tails if t < n} if c.exact else {}
        self.past = state.past
        self._ahead = dict.fromkeys(state.ahead, True) if self.early else {}
        self._tenures.extend((now, t, inc) for t, (inc, _) in enumerate(state.T))
        if self.seal is None:  # with roles only signed frames and news name owners
            for t, i, who in state.owners:
                if t < n:
                    self.owners.note(t, i, who)

    def why_blocked(self, event: str) -> Blocked:
        try:
            ticket, inc, seq, _ = EventId.parse(event)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if ticket >= self.config.tickets:
            raise UsageError(f"ticket {ticket} in {event!r}: the cluster has {self.config.tickets}")
        for key, held in self.held.items():
            if key[:2] == (ticket, inc) and held.frame.first <= seq <= held.frame.last:
                missing = tuple(self._explain(MissingRange.of(r), r[:2]) for r in self._missing(held.frame))
                return Blocked(event, "held", missing, self._until(key))
        if any(t == ticket and i == inc and a <= seq <= b for t, i, a, b in self._given_up):
            return Blocked(event, "obsolete")
        return Blocked(event, "delivered" if self.clock.has(ticket, inc, seq) else "unknown")

    def buffers(self) -> dict[str, tuple[int, int]]:
        found = super().buffers()
        found["tails"] = (len(self.clock.tails), self.config.tickets * (self.clock.MAX_TAILS + 1))
        found["owners"] = (len(self.owners), self.config.tickets * MAX_OWNERS)
        return found
