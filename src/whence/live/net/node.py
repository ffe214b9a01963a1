"""Drives one member: what has gathered goes in, what comes out is carried out, in order. No clock and no socket here.

A **step** handles all that has gathered since the last one: publishes, commands, packets, time. So the cost per event
falls as the rate rises: payloads that were published since the last step (a **batch**) share frames, a message for many
is encoded once, and the trace and the network are written once.

The application reads at its own pace from a bounded **backlog**. When it is behind, frames are shed before the member
sees them (never the ring's news): the member recovers them later, when there is room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from whence.core.cast.messages import Gossip, IHave
from whence.core.clock import Incarnation, MemberId, address_of
from whence.core.clock.bounds import MAX_MESSAGE_BYTES, MAX_WHOLE_STATE, keep_last
from whence.core.clock.event import FRAME_BYTES, FRAME_EVENTS, around_seq, fitting
from whence.core.member import Member
from whence.core.order.messages import AckRecover
from whence.core.order.total import LEFT_OUT
from whence.core.ports import (
    AnySpan,
    Arrived,
    BadBytes,
    Behind,
    Contracted,
    Coordinate,
    Copied,
    CutOff,
    Deliver,
    FoundRing,
    GaveUp,
    Input,
    InstallSnapshot,
    Joined,
    Leave,
    Left,
    MemberDown,
    MemberUp,
    Moved,
    Output,
    Publish,
    Published,
    Received,
    Refused,
    Remember,
    Resign,
    Send,
    SentTo,
    SnapshotTaken,
    TakeSnapshot,
    Ticket,
    Wake,
)
from whence.core.recorder import Recorder
from whence.core.ring.messages import RingMessage, by_receiver
from whence.core.wire import Message, decode, encode, header
from whence.errors import ClusterClosed, Forked, Jumped, LeftOut, RemoteError
from whence.live.net.hello import direct
from whence.live.net.listener import Refusals
from whence.live.net.outbox import Outbox, without_frames
from whence.live.net.queues import Backlog, Batch, CopyCounts, Replayed, Signal
from whence.live.net.scribe import RunJob, Scribe, inline
from whence.live.net.transport import Connection
from whence.live.net.votes import Votes

if TYPE_CHECKING:
    from whence.live.net.disk import Journal, Saved

log = logging.getLogger("whence.live.net")

STEP_PACKETS = 128
"""Packets that are not urgent handled in one step. More: fewer, longer steps; what is urgent waits for one at most."""
PACKET_BYTES = 128
"""What a packet that waits costs beside its bytes."""
URGENT_BYTES = 64 << 10
"""Bytes of urgent packets of one connection that wait for a step before no more are read from it. A ring's messages
are a few hundred bytes; a larger one is read alone."""
MAX_SHUT_OUT = 1024
"""Certificates of peers cut off that are remembered; the oldest is forgotten first."""
_ELSEWHERE = frozenset((Arrived, Published))
"""Outputs that only the trace is about: with `Send` and `Deliver` the most frequent ones."""
_KEPT = (Arrived, Deliver, Joined, Remember)
"""Outputs after which the disk is to know of the step."""
STALL_NS = 2_000_000_000
"""A timer that is so late says that the process stood still."""
NEVER = 1 << 63
"""After all times."""
UNKNOWN = Connection()
"""Where packets come from when nothing is known of it."""


class MemberChange(msgspec.Struct, frozen=True):
    """A member came or went, as far as this member knows."""

    member: MemberId
    change: Literal["joined", "gone"]
    """`gone`: it left, was silent for too long, was cut off, or is there again as another life."""


@dataclass(slots=True)
class NodeStats:
    """Counters of one node."""

    steps: int = 0
    packets: int = 0
    bad_bytes: int = 0
    """Packets of this cluster that are no message; their senders are cut off."""
    cut_off: int = 0
    """Packets of peers that were cut off before."""
    shed: int = 0
    """Frames thrown away before the member saw them, because the application is behind."""
    unread: int = 0
    """Events thrown away because the application never asked for any."""
    unsent: int = 0
    """Messages thrown away because the disk has stood still for too long."""
    oversize: int = 0
    """Own messages larger than any peer would take."""

    def asdict(self) -> dict[str, int]:
        return {f"net.{f.name}": getattr(self, f.name) for f in fields(self)}


class Node:
    """One member at work. `ship` is given each packet, the addresses it is for, and whether it goes over a stream;
    `wanted` is called when a step is due."""

    run = ""
    """The run id of its cluster (`net.hello`); empty until it starts."""
    remembers = -1
    """The highest epoch that its disk knows of; -1: it has none."""
    founds_until = 0
    """Until then whoever asks is told that it is about to found, so that nobody else does."""
    wake_at: int | None = None
    """When a step is due even if there is no input until then; set by each step."""
    planned = NEVER
    """When its host wakes it."""
    silent_since: int | None = None
    """When it could last publish, or was first to, in the member's time; None while it can."""
    on_crowd: Callable[[], None] | None = None
    """Called when this member, an owner, had to refuse somebody because all tickets are taken."""
    used_at = 0
    """When it last began to publish."""
    waiting_bytes = 0
    """Bytes of packets that wait for a step."""
    awake_since = 0
    """When it started, or this process last stood still (the machine slept, SIGSTOP), in the member's time."""
    keys = ""
    """The options of its cluster's keys, for advice; the directory in which it remembers a council."""
    memory = ""
    _could_publish = False
    _leaves = False
    _stepping = False
    _unsaved = _now = 0
    _lost_at: int | None = None

    def __init__(
        self,
        member: Member,
        *,
        ship: Callable[[Sequence[str], bytes, bool], None],
        wanted: Callable[[], None] = lambda: None,
        state: Callable[[], bytes] | None = None,
        restore: Callable[[bytes], None] | None = None,
        journal: Journal | None = None,
        disk: RunJob = inline,
        votes: Votes | None = None,
        max_events: int = 65_536,
        max_bytes: int = 64 << 20,
    ) -> None:
        self.member = member
        self.me, self._here = member.me, address_of(member.me)
        self.cluster = member.config.cluster
        self.stats = NodeStats()
        self.failure: Exception | None = None
        self.how: str | None = None
        """How it has joined: `genesis`, `snapshot`, `checkpoint`; None: not yet."""
        self.left = self.closed = False
        """It has left the cluster; it takes no step any more."""
        self.lost = ""
        """Why the ring took the last ticket away."""
        self.refused = ""
        """Why it will never join."""
        self.unfounded = ""
        """Why the ring was not founded, when that was asked for last."""
        self.watchers: list[Callable[[MemberChange], None]] = []
        """Called for each member that comes or goes."""
        self.gone = Refusals(f"{self.cluster}: %s is gone: %s")  # who vanished without a word
        self.contract: Contracted | None = None
        """What was last said of the contract of a cluster without tickets."""
        self.on_contract: Callable[[Contracted], None] | None = None
        self.changed = Signal()
        """Told after a step in which the member joined or left, its ticket or the view changed, it gave an event up,
        or the backlog moved."""
        self.backlog = Backlog(max_events, max_bytes, self.changed)
        self._ship = ship
        self._wanted = wanted
        self._recorder: Recorder | None = None
        self._flush_trace: Callable[[], None] | None = None
        self._state = state
        self._restore = restore
        self.scribe = None if journal is None else Scribe(journal, self.fail, disk)
        """Writes the journal, where there is one."""
        self._outbox = None if self.scribe is None else Outbox(self.scribe, self._late, self._send)
        self._unsettled: list[Batch] = []
        self._votes = votes
        self._commands: list[Input] = []
        self.batch: Batch | None = None
        """The events published since the last step; None: there are none, and `begin` opens one."""
        self.copies = CopyCounts()
        self.unplaced: dict[str, asyncio.Future[int]] = {}
        """Total order: own events whose publishers wait for their places."""
        self._inbox: deque[tuple[MemberId, bytes | memoryview, Connection, bool]] = deque()
        self._urgent: deque[tuple[MemberId, bytes | memoryview, Connection, bool]] = deque()
        self._shut_out: dict[str | None, None] = {}
        """Certificates whose holders were cut off: under another address or in another life they stay so."""

    # -- in: gathers until the next step ------------------------------------------------------------------------

    def feed(self, command: Input) -> None:
        """Something the application or the operator wants."""
        if isinstance(command, Resign | Leave | Coordinate):
            self._leaves = not isinstance(command, Coordinate)
        self._commands.append(command)
        self._wanted()

    def found(self, force: bool = False, fresh: bool = False) -> None:
        """Found the ring; `unfounded` says why not, if that is refused."""
        self.unfounded = ""
        self.feed(FoundRing(force, fresh))

    def begin(self, now: int) -> Batch | None:
        """Open a batch, whose events are published at this time. Its frames leave in the next step, which is wanted
        when this turn of the loop is over, and stamps them before the member handles anything else. None: the member
        may not publish, or has to look at the time first (a step is wanted)."""
        wake_at = self.wake_at
        if wake_at is not None and wake_at <= now:  # perhaps the lease has expired
            self._wanted()
            return None
        if not self.member.may_publish:
            return None
        self.used_at = now
        self.batch = Batch(self.member.numbering(), now, self.backlog.room, self.scribe is not None)
        self._wanted()
        return self.batch

    def receive(
        self, sender: MemberId, body: bytes | memoryview, urgent: bool = False, connection: Connection = UNKNOWN
    ) -> None:
        """A message for this member, not yet decoded. Urgent ones, the ring's among them, do not wait behind gossip.
        `connection`: where it came from, and what its certificate says. The caller sees to it that the node steps."""
        self.stats.packets += 1
        if sender in self.member.cut_off or connection.name in self._shut_out:
            self.stats.cut_off += 1
            if connection.name is not None:
                connection.close()
            return
        (self._urgent if urgent else self._inbox).append((sender, body, connection, urgent))
        size = len(body) + PACKET_BYTES
        self.waiting_bytes += size
        if urgent:
            connection.waiting += size
            if connection.waiting > URGENT_BYTES:
                connection.hold(True)

    def forget(self, watcher: Callable[[MemberChange], None]) -> None:
        """It is told no more."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    @property
    def open(self) -> bool:
        """It takes part, or may come to: it has not left, failed or been abandoned."""
        return not (self.left or self.closed or self.failure is not None)

    @property
    def full(self) -> bool:
        """The application or the disk is behind: no room for more events."""
        return self.backlog.full or (self._outbox is not None and self._outbox.full)

    @property
    def ticket(self) -> int | None:
        return self.member.ring.ticket

    @property
    def incarnation(self) -> Incarnation | None:
        return self.member.ring.inc

    # -- the step -----------------------------------------------------------------------------------------------

    def step(self, now: int, wall: int) -> None:
        """Handle all that has gathered; `now` in the member's time, `wall` for the trace."""
        if self.failure is not None:
            self._throw_away()
            return
        self.stats.steps += 1
        self._now = now
        if self.wake_at is not None and now - self.wake_at > STALL_NS:
            self.awake_since = now
            log.warning("%s: this process stood still for %.1f s", self.cluster, (now - self.wake_at) / 1e9)
        out: list[Output] = []
        batch, self.batch = self.batch, None
        member, inbox, urgent = self.member, self._inbox, self._urgent
        self._stepping = True
        try:
            if batch is not None:
                self._unsettled.append(batch)
                self._publish(batch, out)
            commands, self._commands = self._commands, []
            for command in commands:
                out += member.handle(command, now)
            # What is urgent does not wait behind gossip. A step is short, else the ring would think it dead.
            for _ in range(len(urgent) + min(len(inbox), STEP_PACKETS)):
                sender, body, connection, hurries = (urgent or inbox).popleft()
                self.waiting_bytes -= len(body) + PACKET_BYTES
                if hurries:
                    self._taken(connection, len(body) + PACKET_BYTES)
                input: Input | None
                try:
                    input = Received(sender, decode(body))
                    if not connection.is_publisher or self.backlog.full or self._outbox is not None:
                        input = self._lighter(input, connection)
                except RemoteError as error:
                    self.stats.bad_bytes += 1
                    input = BadBytes(sender, f"{type(error).__name__}: {error}")
                steps = [] if input is None else member.handle(input, now)
                out += steps
                if connection.name is not None:
                    self._shut(connection, sender, steps)
            if inbox:
                self._wanted()
            if member.ring.ctx.turned_away == now and self.on_crowd is not None:
                self.on_crowd()
            wake_at = member.wake_at
            if wake_at is not None and wake_at <= now:
                out += member.handle(Wake(), now)
                wake_at = member.wake_at
            self.wake_at = wake_at
            if self.scribe is None and self._recorder is None and self._votes is None:
                self._finish(out, batch)
            else:
                self._carry_out(out, wall, batch)
        except Exception as error:
            self.fail(error)
        self._stepping = False

    def fail(self, error: Exception) -> None:
        """The node stops: its state can no longer be trusted, or its disk."""
        log.error("%s in %s stops: %s: %s", self.me, self.cluster, type(error).__name__, error)
        self.failure = error
        self.member.stop()
        self.wake_at = None
        self._refuse_batch()
        self.changed.tell()
        self._wanted()

    def _throw_away(self) -> None:
        """Nobody takes what waits here; the other nodes of its host go on."""
        for _, body, connection, _ in self._urgent:
            self._taken(connection, len(body) + PACKET_BYTES)
        self._urgent.clear()
        self._inbox.clear()
        self.waiting_bytes = 0

    def _taken(self, connection: Connection, size: int) -> None:
        """An urgent packet waits no more."""
        held = connection.waiting > URGENT_BYTES
        connection.waiting -= size
        if held and connection.waiting <= URGENT_BYTES:
            connection.hold(False)

    def _lighter(self, input: Received, connection: Connection) -> Received | None:
        """Of a message what its sender may say, and what there is room for."""
        message: Message = input.message
        if not connection.is_publisher and isinstance(message, RingMessage):
            message = by_receiver(message)
        lighter = self._shed(message) if self.full else message
        return None if lighter is None else Received(input.sender, lighter)

    def _shut(self, connection: Connection, sender: MemberId, out: Sequence[Output]) -> None:
        """Whoever was just cut off has no other way in."""
        if any(isinstance(o, CutOff) and o.peer == sender for o in out):
            self._shut_out[connection.name] = None
            keep_last(self._shut_out, MAX_SHUT_OUT)
            connection.close()

    def _shed(self, message: Message) -> Message | None:
        """The message without its frames; the digest goes too, else the member would ask for what it cannot take."""
        if isinstance(message, AckRecover):
            self.stats.shed += len(message.frames)
            return None if message.frames else message
        if isinstance(message, IHave):  # it would ask for what it cannot take
            return IHave()
        if not isinstance(message, Gossip):
            return message
        lighter = without_frames(message)
        self.stats.shed += len(message.items) - len(lighter.items)
        return lighter

    # -- publish ------------------------------------------------------------------------------------------------

    def _publish(self, batch: Batch, out: list[Output]) -> None:
        """Publish what was accepted, in as few frames as it fits into, as of the time when the batch was opened."""
        payloads, start = batch.payloads, 0
        one_frame = len(payloads) <= FRAME_EVENTS and batch.bytes <= FRAME_BYTES
        while start < len(payloads):
            end = len(payloads) if one_frame else fitting(payloads, start)
            steps = self.member.handle(Publish(tuple(payloads[start:end])), batch.now)
            if Published not in map(type, steps):  # nothing was handled since it was opened: cannot be
                why = next((o.reason for o in steps if isinstance(o, Refused)), "the cluster was left")
                raise RuntimeError(f"{len(payloads) - start} accepted events are not published: {why}")
            out += steps
            start = end

    def trace(self, recorder: Recorder, flush: Callable[[], None] | None = None) -> None:
        """Record from now on. It is called before the member starts, when the run id is known."""
        self._recorder, self._flush_trace = recorder, flush

    def fault(self, what: str, wall: int) -> None:
        """Something was done to it on purpose: the trace should tell."""
        if self._recorder is not None:
            self._recorder.row("fault", wall, reason=what)

    def abandoned(self) -> None:
        """It takes no step any more: whoever waits for something is told."""
        self.closed = True
        self.member.stop()
        if self.backlog.read and not self.backlog.busy and self.failure is None:
            self.save_state()
        self._refuse_batch()
        self.changed.tell()

    def _refuse_batch(self) -> None:
        batches = self._unsettled if self.batch is None else [*self._unsettled, self.batch]
        self.batch, self._unsettled = None, []
        why = f": {self.failure}" if self.failure is not None else ""
        stopped = ClusterClosed(f"the node of {self.cluster} has stopped{why}")
        for batch in batches:
            batch.settle(stopped)
        self.copies.close(stopped)
        waiting, self.unplaced = self.unplaced, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(stopped)

    # -- out ----------------------------------------------------------------------------------------------------

    def _carry_out(self, out: list[Output], wall: int, batch: Batch | None) -> None:
        """Trace it, and let it go when the disk has what has to be on it before anybody else knows of it."""
        outbox, checkpoint = self._outbox, None
        if outbox is not None and not self.member.ordering.joining and any(isinstance(o, _KEPT) for o in out):
            checkpoint = self.member.checkpoint(kept=False)  # after a leave, too: its last step may be a voter's
        if self._recorder is not None:
            self._recorder.record(out, wall)
            if checkpoint is not None:
                self._recorder.saving(checkpoint, wall)
            if self._flush_trace is not None:
                self._flush_trace()  # before anybody can know of it: a kill must not leave events nobody published
        if self._votes is not None and any(isinstance(o, Remember) for o in out):
            memory = self.member.ring.memory()
            if memory is not None:  # safe before what it promised leaves the process (rule C3)
                self._votes.save(memory)
        if outbox is None:
            self._finish(out, batch)
            return
        outbox.scribe.watch(self._now)
        joined = any(isinstance(o, Joined) for o in out)
        installs = (o.state for o in out if isinstance(o, InstallSnapshot) and self._restore is not None)
        outbox.put(out, batch, checkpoint, self.member.ordering.buffer if joined else None, next(installs, None))
        self.stats.unsent = outbox.lost

    def _late(self, out: list[Output], batch: Batch | None) -> None:
        """The disk has the step."""
        if self.failure is None and not self.closed:
            try:
                self._finish(out, batch)
            except Exception as error:  # else the disk's other jobs would never be over
                self.fail(error)
            if not self._stepping:
                self._wanted()  # what it ships is flushed with the next step

    def _finish(self, out: list[Output], batch: Batch | None) -> None:
        """Carry out what nothing has to come before."""
        delivered = sends = stands = False
        for o in out:
            kind = type(o)
            if kind is Deliver:
                self.backlog.add(o)  # type: ignore[arg-type]  # as its kind says
                if self.unplaced:
                    self._placed(o)  # type: ignore[arg-type]  # as its kind says
                delivered = True
            elif kind is Send:
                sends = True
            elif kind not in _ELSEWHERE:
                stands |= self._say(o)
        if self.backlog.unread > self.stats.unread:  # nobody reads: the disk must not keep them either
            unread, self.stats.unread = self.backlog.unread - self.stats.unread, self.backlog.unread
            self.done(unread)
        if sends:
            self._send(out)
        if batch is not None:
            self._unsettled.remove(batch)
            batch.settle()
        if stands or not self._could_publish:  # perhaps it has caught up with its ticket's past, or waits no longer
            could, self._could_publish = self._could_publish, self.member.may_publish
            if could != self._could_publish:
                self.silent_since = None if self._could_publish else self._now
                stands = True
        if delivered or stands:
            waiting, self.changed.waiting = self.changed.waiting, {}
            for waiter in waiting:  # as `Signal.tell` does
                if not waiter.done():
                    waiter.set_result(None)

    def _say(self, o: Output) -> bool:
        """Outputs that are not frequent. Returns whether the standing of this member in the cluster has changed."""
        match o:
            case TakeSnapshot():
                self._on_take_snapshot(o)
            case InstallSnapshot() if self._restore is not None:
                self._restore(o.state)
            case Joined():
                self.how = o.how
            case Left():
                self.left = True
            case Ticket():
                self._say_ticket(o)
            case MemberUp() | MemberDown():
                if isinstance(o, MemberUp):
                    self.gone.last.pop(address_of(o.member), None)
                elif o.reason == "expired" and self.awake_since != self._now:  # else it was this process that was away
                    self.gone.note(address_of(o.member), "it did not leave, and nobody has heard of it for a while")
                change = MemberChange(o.member, "joined" if isinstance(o, MemberUp) else "gone")
                for tell in list(self.watchers):
                    tell(change)
            case Refused(what="join"):
                self.refused = o.reason
            case Refused(what="found"):
                self.unfounded = o.reason
            case Copied() | SentTo():
                self.copies.tell(o)
            case GaveUp(ranges, reason) if reason == LEFT_OUT:
                self._left_out(ranges)
            case Behind(how, reason):
                self.fail((Jumped if how == "jumped" else Forked)(f"{self.cluster}: {reason}"))
            case CutOff():
                log.warning("%s: %s is cut off: %s", self.cluster, o.peer, o.error)
            case Contracted():
                self._say_contract(o)
            case Moved():
                log.info("%s in %s: generation of R = %d, K = %d", self.me, self.cluster, o.entries, o.keys)
        changes = isinstance(o, Joined | Left | Ticket | MemberUp | MemberDown | GaveUp)
        return changes or (isinstance(o, Refused) and o.what in ("join", "found"))

    def _placed(self, said: Deliver) -> None:
        """An own event has its place."""
        for at, name in enumerate(said.frame.names() if said.frame.owner == self.me else (), said.place):
            waiter = self.unplaced.pop(name, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(at)

    def _left_out(self, ranges: Sequence[AnySpan]) -> None:
        for ticket, inc, first, last in ranges:
            before, after = around_seq(cast(int, ticket), inc, self.me)
            for seq in range(first, last + 1):
                waiter = self.unplaced.pop(name := f"{before}{seq}{after}", None)
                if waiter is not None and not waiter.done():
                    waiter.set_exception(LeftOut(f"{name} was published, and has no place: its ticket was lost before"))

    def _say_contract(self, said: Contracted) -> None:
        self.contract = said
        log.log(
            logging.WARNING if said.broken else logging.INFO,
            f"{self.me} in {self.cluster}: contract {'broken' if said.broken else 'kept again'}: error rate at most "
            f"{said.bound:.2e} by formula, {said.alerts:.2e} by alerts, promised {said.promise:.2e}; "
            f"X = {said.in_flight:.1f}",
        )
        if self.on_contract is not None:
            self.on_contract(said)

    def _say_ticket(self, said: Ticket) -> None:
        """Log the loss of the right to publish, and its return: nothing else may show it to a silent application."""
        self.founds_until = 0
        if said.change == "lost" and self._leaves:
            return  # nobody waits for another
        if said.change == "lost":
            self.lost = said.reason
            if self._lost_at is None:
                self._lost_at = self._now
            text = "%s: ticket %d is lost (%s); publishing waits for another"
            log.warning(text, self.cluster, said.ticket, said.reason, extra={"fields": {"ticket": None}})
        elif said.change == "owner" and self._lost_at is not None:
            after, self._lost_at = (self._now - self._lost_at) / 1e9, None
            text = "%s: ticket %d after %.1f s without one; publishing goes on"
            log.warning(text, self.cluster, said.ticket, after, extra={"fields": {"ticket": said.ticket}})
        elif said.change == "released":
            self._lost_at = None

    def _send(self, out: Sequence[Output]) -> None:
        """A message that goes to many is encoded once; one that is too large for any peer is dropped and counted."""
        made: list[tuple[list[str], bytes, bool]] = []
        shared: dict[int, list[str]] = {}  # by the identity of a message: `out` keeps them alive
        for o in out:
            if type(o) is not Send:
                continue
            message, reliable = o.message, o.reliable
            if not reliable and (known := shared.get(id(message))) is not None:
                known.append(address_of(o.to))
                continue
            packet, to = header(self.cluster, self.me) + encode(message), [address_of(o.to)]
            if to[0] == self._here:  # an earlier life of this process
                continue
            if len(packet) > MAX_MESSAGE_BYTES:
                self.stats.oversize += 1
                name = type(message).__name__
                log.error("%s: a %s of %d bytes is too large to be sent", self.me, name, len(packet))
                continue
            if reliable:
                packet = direct(o.to, packet)
            else:
                shared[id(message)] = to
            made.append((to, packet, reliable))
        for to, packet, reliable in made:
            self._ship(to, packet, reliable)

    # -- the disk -----------------------------------------------------------------------------------------------

    def resume(self, saved: Saved) -> None:
        """What the last life delivered and the application has not processed comes first."""
        if saved.state is not None and self._restore is not None:
            self._restore(saved.state)
        for out in saved.queue:
            self.backlog.add(Replayed(out.frame, out.over_gap, out.alert))
        self.backlog.skip = saved.skip

    def done(self, events: int) -> None:
        """The application is done with so many more events. What it keeps in memory is saved now and then: after a
        restart it goes on from there, with exactly the events since."""
        if self.scribe is None or self.failure is not None:
            return
        if self._state is None:
            self.scribe.processed(events)
        else:
            self._unsaved += events
            if self.scribe.state_due:
                self.save_state()

    async def checkpoint(self) -> None:
        """The application is between two events: return when its state, and what it has processed, is on disk."""
        assert self.scribe is not None
        self.save_state()
        self.scribe.sync()
        await self.scribe.settled()
        if not self.open:
            raise ClusterClosed(f"the node of {self.cluster} has stopped: {self.failure or 'the cluster was left'}")

    def save_state(self) -> None:
        """The application is between two events: its state can be kept."""
        if self.scribe is not None and self._state is not None and self._unsaved:
            unsaved, self._unsaved = self._unsaved, 0
            try:
                self.scribe.processed(unsaved, self._state())
            except Exception as error:  # the application's
                self.fail(error)

    # -- the application's state ----------------------------------------------------------------------------------

    def _on_take_snapshot(self, out: TakeSnapshot) -> None:
        """Now, if the application has seen all that was delivered; else when it gets there."""
        if self._state is None or (not self.backlog.items and not self.backlog.busy):
            self.snapshot(out)
        else:
            self.backlog.items.append(out)

    def snapshot(self, out: TakeSnapshot) -> None:
        """The application is at this point of the delivery order."""
        state = self._state() if self._state is not None else b""
        if len(state) > MAX_WHOLE_STATE:
            log.error("%s: a state of %d bytes is too large to be given to a joiner", self.me, len(state))
            return
        self.feed(SnapshotTaken(out.token, state))
