"""Publishing: a `Publisher` gets tickets by itself, and another one when the ring takes its ticket away.

    async with cluster.publisher() as publisher:
        await publisher.publish(b"hello")

Rules of this file:

1. An event is **accepted** when its id and its place in the order are fixed. Cancelled before that, a publish publishes
   nothing; cancelled later, the event is out, and `published` counts it.
2. A publisher's calls are accepted in the order in which they were made. A call that lost its ticket halfway goes on,
   with what is left of it, before any later call.
3. Publishing waits for slow peers, and for the own application to read (backpressure); but never for a reader that is
   itself waiting for this publish.
4. An accepted event waits for the journal, where there is one, before it leaves: many share one sync (group commit).
   `durable` waits for that, too; `copies=k` waits until k members hold the event (`order.copies`), which comes later
   still. The calls behind either do not wait for it.
5. A publish that need not wait does not suspend: what is published in one turn of the loop leaves at its end, in frames
   of many events. When a frame is full, the publisher lets the loop turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from whence.core.clock.bounds import MAX_PAYLOAD_BYTES
from whence.core.clock.event import FRAME_BYTES, FRAME_EVENTS, fitting
from whence.core.ports import Coordinate, Resign
from whence.core.ring.context import State
from whence.errors import ClusterClosed, NoTicket, NotPublished, TimedOut, TooFewCopies, UsageError
from whence.live.events import reading
from whence.live.net.council import council_of, owners
from whence.live.net.host import Host, boot_ns
from whence.live.net.node import Node
from whence.live.net.queues import Batch, EventIds, Signal

log = logging.getLogger("whence")

IDLE_NS = 2 * 10**9
"""An owner that has published nothing for so long gives its ticket back when somebody is refused one. Shorter: a
ticket, which takes a second to get, changes hands more often. Longer: members wait longer for a ticket."""
RELEASE_TIMEOUT = 5.0
"""Seconds to wait for the ring to take a ticket back."""
COMPLAIN_EVERY = 10.0
"""Seconds without a ticket after which a publisher logs the reason, and then again."""
UNSAID = 0.5
"""Seconds of waiting for a lease that need no word."""
COPIES_TIMEOUT = 10.0
"""Seconds to wait for copies."""
PART_FRAMES = 8
"""Full frames published at a time, so that backpressure works inside a large `publish_many`."""


class Tickets:
    """The right to publish of one member: who wants it, who waits for it, and why there is none."""

    def __init__(self, node: Node, host: Host, founder: Callable[[], bool], receives_only: bool) -> None:
        self.node = node
        self.host = host
        self._founder = founder
        self._receives_only = receives_only
        self._holders = self._keepers = 0
        self._said = 0
        self.idle = False
        """The ticket was given back to somebody who waited: the next publish asks for another."""
        node.on_crowd = self._give_way

    def acquire(self, keeps: bool) -> None:
        """Ask the ring for a ticket, and again after each loss, until everybody has released it."""
        self.check_role()
        self._holders += 1
        self._keepers += keeps
        if self._holders == 1:
            self._ask()

    @property
    def wanted(self) -> bool:
        """A publisher is open, and has not given its ticket back for want of events."""
        return self._holders > 0 and not self.idle

    def _ask(self) -> None:
        self.idle = False
        self.node.silent_since = boot_ns()
        self.node.feed(Coordinate())

    def _give_way(self) -> None:
        """Somebody waits for a ticket, and nobody uses this one. (A ring of neighbours does not come back by itself
        when its last owner has gone.)"""
        node = self.node
        there = council_of(node, boot_ns()) is not None or len(owners(node.member)) > 1
        if there and not self._keepers and node.batch is None and boot_ns() - node.used_at > IDLE_NS:
            self.idle = True
            node.feed(Resign())

    async def release(self, keeps: bool) -> None:
        """The last to release gives the ticket back, except at the founder: without a coordinator there is no ring."""
        self._holders -= 1
        self._keepers -= keeps
        node = self.node
        if self._holders or self._founder() or self.idle or not node.open:
            return
        node.feed(Resign())
        over = time.monotonic() + RELEASE_TIMEOUT
        await node.changed.until(lambda: node.ticket is None or self._holders > 0 or not node.open, over)

    def check_role(self) -> None:
        if self._receives_only:
            raise UsageError("this member may only receive: publishing needs the key that role 'publisher' is issued")

    def check_open(self) -> None:
        if not self.node.open:
            raise ClusterClosed(f"cluster {self.node.cluster!r} was left, or its node has stopped")

    async def wait(self, deadline: float | None) -> bool:
        """Wait until this member may publish; False at the deadline. Logs the reason while there is no ticket."""
        node, patience = self.node, UNSAID
        while True:
            self.check_open()
            if node.member.may_publish:
                return True
            if self.idle:
                self._ask()
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            complain = now + patience
            until = complain if deadline is None else min(complain, deadline)
            came = await node.changed.until(lambda: node.member.may_publish or not node.open, until)
            if not came and until == complain:
                if patience == UNSAID:
                    self._say_safe()
                else:
                    log.warning("%s: no ticket yet: %s", node.cluster, self.why_none())
                patience = COMPLAIN_EVERY

    def _say_safe(self) -> None:
        """Say once how long safety makes this member wait."""
        member, left = self.node.member, (self.node.member.ring.safe_at - boot_ns()) / 1e9
        if left > 0 and not member.may_publish and self._said != member.ring.safe_at:
            self._said = member.ring.safe_at
            text = "%s: publishing waits up to %.1f s, until leases from before this start have run out"
            log.warning(text, self.node.cluster, left)

    def why_none(self) -> str:
        """Why this member may not publish now, and what to do about it."""
        node = self.node
        ring, total = node.member.ring, node.member.config.tickets
        if not node.member.joined:
            return "this member has not joined yet"
        if ring.entitled:
            return f"ticket {ring.ticket} is there, but its former owners' events are still being recovered"
        if ring.state is State.FOUNDING:
            return "the ring is being founded: it waits until every lease of an earlier one has expired"
        council = council_of(node, boot_ns())
        if council is not None and council.voters and not council.has_quorum:
            return council.lacks()
        known = {**ring.applicant.hints, **owners(node.member)}  # hints: what whoever refused one has said
        if not known and council is not None and council.voters:
            return "no coordinator is left; the council decides who founds the ring again, within some seconds"
        if not known:
            lost = f"this member lost its ticket ({node.lost}), and " if node.lost else ""
            return (
                f"{lost}no coordinator is known. A new ring takes some seconds; one whose last coordinators live and "
                "reach each other comes back within a minute: wait longer. If they have left for good, create the ring "
                "again at one member: whence.create(..., contacts=...), or whence node --create (docs/operations.md)"
            )
        named = ", ".join(sorted(set(known.values())))
        if len(known) >= total:
            return f"all {total} tickets are taken, by {named}: wait until one is free, or create the ring with more"
        slow = (
            "the council has not granted one yet. It grants none while it replaces a voter: wait longer. A voter whose "
            "disk stands still does not vote: its log says so"
            if council is not None
            else "none of them has granted one yet. While they replace a crashed coordinator they grant nothing: wait "
            "longer. If they have all stopped, create the ring again: whence node --create"
        )
        return f"{len(known)} of {total} tickets are taken, by {named}, and {slow}"

    def batch(self) -> Batch | None:
        """Where to publish into without waiting. None: there is no ticket now, or no room."""
        node = self.node
        if node.batch is not None:
            return None if node.batch.full else node.batch
        if node.backlog.full or (node.scribe is not None and node.full) or self.host.congested():
            return None
        return node.begin(boot_ns())

    def check_copies(self, copies: int) -> None:
        """Raise TooFewCopies if there can never be so many, before anything is published."""
        if type(copies) is not int or copies < 1:
            raise UsageError(f"copies is a number of members, 1 or more (this one counts), not {copies!r}")
        members = len(self.node.member.members())
        if copies > members:
            raise TooFewCopies(
                f"{copies} copies wanted, but this member knows only {members} member{'s' * (members > 1)} of "
                f"{self.node.cluster!r}, itself included; nothing was published. Ask for fewer, or start more members"
            )

    async def copied(self, ids: Sequence[str], copies: int, timeout: float) -> None:
        """Rule 4."""
        self.check_open()
        command, done = self.node.copies.ask(ids, copies, int(timeout * 1e9))
        self.node.feed(command)
        copied = await done
        if not copied.enough:
            error = TooFewCopies(
                f"{copied.copies} of {copies} copies after {timeout:g} s: the event is published, and others may still "
                "get it. Do not publish it again; wait longer (timeout=...), or see whether the other members are up"
            )
            error.published, error.copies = tuple(ids), copied.copies
            raise error

    async def placed(self, ids: Sequence[str], timeout: float) -> None:
        """These own events have their places in total order, or none."""
        unplaced = self.node.unplaced
        waiters = [waiter for name in ids if (waiter := unplaced.get(name)) is not None]
        done, late = await asyncio.wait(waiters, timeout=timeout) if waiters else ((), ())
        for name in ids:
            unplaced.pop(name, None)
        for waiter in done:
            if (error := waiter.exception()) is not None:
                raise error
        if late:
            waits = self.node.member.waits_for() or "its turn"
            raise TimedOut(f"{len(late)} of {len(ids)} events have no place after {timeout:g} s: waits for {waits}")

    async def room(self, for_reader: bool) -> Batch | None:
        """Rule 3. The batch to publish into; None if there is no room yet, after one attempt to wait for it."""
        node = self.node
        if node.scribe is not None and not node.backlog.full and node.full:
            await node.scribe.settled()
        if node.backlog.full and for_reader and not reading(node):
            await node.changed.until(lambda: not node.backlog.full or not node.open)
        if self.host.congested():
            await self.host.drained(1.0)
        batch = node.batch or node.begin(boot_ns())
        if batch is None or batch.full:
            await asyncio.sleep(0)  # the step that is due: it takes what was published, and looks at the time
            return None
        return batch


@dataclass(slots=True, eq=False)
class _Call:
    """A `publish_many` that is not accepted as a whole yet."""

    events: Sequence[bytes]
    size: int
    """Of all of them, in bytes."""
    ids: EventIds = field(default_factory=EventIds)
    batch: Batch | None = None
    """The last one that took events of it."""


class Publisher:
    """`async with cluster.publisher() as publisher`: publishes events, and gets another ticket when it loses one.

    Entering requests a ticket and does not wait for it; `publish` waits. After a loss it gets another ticket and
    continues where it was: nothing is published twice, and nothing out of order. While it has nothing to publish, it
    gives its ticket to a member that waits, and asks again for the next publish. In a cluster without tickets there
    is nothing to wait for. Loss and return of the ticket are logged (logger `whence.live.net`)."""

    def __init__(self, tickets: Tickets, timeout: float | None, wait_for_reader: bool, keep: bool) -> None:
        self.published = 0
        """Events stamped through it: they are out, whatever became of the call (rule 1)."""
        self._tickets = tickets
        self._waits_for_reader = wait_for_reader
        self._timeout = timeout
        self._keeps = keep
        self._entered = False
        self._last: Batch | None = None  # the last one that took events of it
        self._waiting: dict[_Call, None] = {}  # rule 2: the calls that are not accepted as a whole yet, in order
        self._turn = Signal()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("this publisher was entered already: call cluster.publisher() again")
        self._tickets.acquire(self._keeps)
        self._entered = True
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._entered = False
        try:
            if kind is None:
                await self.flush()
        finally:
            await finish(self._tickets.release(self._keeps))

    async def flush(self) -> None:
        """Wait until the journal, if there is one, has all that was published through it. Leaving the block does so.
        Raises ClusterClosed if the node has stopped before."""
        batch, self._last = self._last, None
        if batch is not None and batch.waits:
            await batch.stored()

    @property
    def node(self) -> Node:
        """The node that it publishes at."""
        return self._tickets.node

    @property
    def ticket(self) -> int | None:
        """The ticket it holds now. None while it has none, and in a cluster without tickets."""
        return self.node.ticket if self.node.member.may_publish else None

    async def ready(self) -> None:
        """Wait until it may publish. Raises NoTicket after the publisher's timeout."""
        self._check()
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        if not await self._tickets.wait(deadline):
            reason = self._tickets.why_none()
            raise NoTicket(f"no ticket of {self._tickets.node.cluster!r} within {self._timeout:g} s: {reason}")

    async def publish(
        self,
        payload: bytes,
        *,
        durable: bool = False,
        copies: int = 1,
        settled: bool = False,
        timeout: float = COPIES_TIMEOUT,
    ) -> str:
        """Publish one event; returns its id when it is accepted, before anybody can answer it.

        It leaves at the end of this turn of the loop, or when the journal has it. If this process is killed before,
        nobody ever sees the event. `durable`: return only when the journal has it; it needs a `directory`. `copies`:
        return only when so many members hold the event, this one among them. With 2 it survives the crash of any one
        member. Raises TooFewCopies after `timeout` seconds, which says how many hold it; it is published then.
        `settled`, at a member in total order: return only when the event has its place in the one sequence. Raises
        LeftOut if it gets none, and TimedOut after `timeout` seconds, when it may get one yet.

        Waits for slow peers, for a journal that is far behind, and for the own application to read. Cancelled before
        the event is accepted, it publishes nothing; cancelled later, the event is out: `published` tells the two
        apart."""
        data = payload if type(payload) is bytes and len(payload) <= MAX_PAYLOAD_BYTES else checked(payload)
        if not self._entered:
            self._check()
        simple = copies == 1 and not durable and not settled
        batch = self._tickets.batch() if simple and not self._waiting else None
        if batch is None:
            ids = await self.publish_many((data,), durable=durable, copies=copies, settled=settled, timeout=timeout)
            return ids[0]
        event_id = batch.add(data)
        self._last = batch
        self.published += 1
        if batch.full:
            await asyncio.sleep(0)  # rule 5
        return event_id

    async def publish_many(
        self,
        payloads: Sequence[bytes],
        *,
        durable: bool = False,
        copies: int = 1,
        settled: bool = False,
        timeout: float = COPIES_TIMEOUT,
    ) -> Sequence[str]:
        """Publish events in this order, many in one frame. Returns their ids. An error that is a `NotPublished` has in
        its `published` the ids of those that were published before it. `durable`, `copies`, `settled` and
        `timeout` as in `publish`, for all of them."""
        call = _Call(*self._checked(payloads))
        if durable and self._tickets.node.scribe is None:
            raise UsageError("durable=True needs a member with a directory: whence.join(..., directory=...)")
        if copies != 1:
            self._tickets.check_copies(copies)
        if settled and self.node.member.order != "total":
            raise UsageError("settled=True needs a member in total order: whence.join(..., order='total')")
        ids = await self._publish(call, durable, settled)
        if copies > 1 and ids:
            await self._tickets.copied(ids, copies, timeout)
        if settled:
            await self._tickets.placed(ids, timeout)
        return ids

    async def _publish(self, call: _Call, durable: bool, settled: bool = False) -> EventIds:
        self._check()
        self._waiting[call] = None
        try:
            while call in self._waiting:
                await self._go_on(call)
            for name in call.ids if settled else ():
                if self.node.member.why_blocked(name).state != "delivered":  # the first of many may be
                    self.node.unplaced[name] = asyncio.get_running_loop().create_future()
            if call.batch is not None and durable:
                await call.batch.stored()
            elif call.batch is not None and call.batch.full:
                await asyncio.sleep(0)  # rule 5
        except NotPublished as error:
            error.published = tuple(call.ids)
            raise
        finally:
            self._waiting.pop(call, None)
            self._turn.tell()
        return call.ids

    async def _go_on(self, call: _Call) -> None:
        """Rule 2: the first call that waits publishes for all of them, as much as there is room for in this turn."""
        batch = self._tickets.batch() if self._first() is call else None
        if batch is None:
            await self.ready()
            if self._first() is not call:
                if call in self._waiting:  # else the first call has published this one, too, while this one slept
                    await self._turn.wait()
                return
            batch = await self._tickets.room(self._waits_for_reader)
        if batch is not None:
            self._accept_waiting(batch, call)
            if call in self._waiting:
                await asyncio.sleep(0)  # rule 5

    def _first(self) -> _Call | None:
        return next(iter(self._waiting), None)

    def _accept_waiting(self, batch: Batch, mine: _Call) -> None:
        """The calls that wait, in order, until the batch is full."""
        for call in list(self._waiting):
            try:
                call.batch = self._last = batch
                while len(call.ids) < len(call.events):
                    self._accept(batch, call)
                    if batch.full:
                        break
            except UsageError:
                if call is mine:
                    raise
                break  # its own turn will tell it
            if len(call.ids) == len(call.events):
                del self._waiting[call]
            if batch.full:
                break
        self._turn.tell()

    def _accept(self, batch: Batch, call: _Call) -> None:
        """The next part of its events; their ids follow those of the parts before."""
        part, size, ids = call.events, call.size, call.ids
        if ids or size > FRAME_BYTES or len(part) > FRAME_EVENTS:
            part = part[len(ids) : fitting(part, len(ids), PART_FRAMES)]
            size = sum(map(len, part))
        batch.add_all(part, size, ids)
        self.published += len(part)  # rule 1

    def _checked(self, payloads: Sequence[bytes]) -> tuple[Sequence[bytes], int]:
        """The payloads, if all of them can be published, and how many bytes they have together."""
        if isinstance(payloads, str | bytes | bytearray | memoryview):
            raise UsageError("publish_many takes a list of payloads; publish(payload) takes one")
        events = list(payloads)
        size = sum(map(len, events)) if set(map(type, events)) == {bytes} else MAX_PAYLOAD_BYTES + 1
        if size > MAX_PAYLOAD_BYTES:  # one of them may be too large, or no bytes
            events = [checked(payload) for payload in events]
            size = sum(map(len, events))
        return events, size

    def _check(self) -> None:
        if not self._entered:
            raise UsageError("publish inside the block: async with cluster.publisher() as publisher")


def checked(payload: object) -> bytes:
    """The payload, if it can be published: bytes, and not too many."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        kind = type(payload).__name__
        how = "text.encode()" if isinstance(payload, str) else "json.dumps(value).encode(), for example"
        raise UsageError(f"a payload is bytes, not {kind}: encode it first ({how})")
    data = bytes(payload)
    if len(data) > MAX_PAYLOAD_BYTES:
        most = f"an event holds at most {MAX_PAYLOAD_BYTES} bytes"
        raise UsageError(f"{most}, not {len(data)}: split it, or publish where it is kept")
    return data


async def finish(ending: Coroutine[Any, Any, None]) -> None:
    """Finish the cleanup even if the task is cancelled; a second cancellation interrupts it."""
    task = asyncio.ensure_future(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise
