"""The rooms of one worker, on the side of its cluster: reads, publishes, and knows what clients may have."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from whence.audit.trace import Row
from whence.core.clock import Frame
from whence.errors import ClusterClosed, TooFewCopies, UsageError
from whence.live.net.queues import Signal
from whence.live.objects import Objects
from whence.live.objects.live import as_event
from whence.live.web.room import Room, RoomState
from whence.live.web.words import CloseCode, HangUp, Position, Rows, Spoken, payload_of, said_in, text_of

if TYPE_CHECKING:
    from whence.live.api import Cluster, Join
    from whence.live.events import Event

log = logging.getLogger("whence.live.web")

MAX_ROOMS: Final = 1024
OBJECT_BYTES: Final = 1 << 20
STATE_LOG_BYTES: Final = 512 << 10
"""Of the rooms' events that a worker which joins is given: as far back it can resume a cursor."""
HELD_S: Final = 0.25
"""Seconds to wait for a second member to hold an event, before others are asked."""
TICK_S: Final = 0.5
"""Seconds between two words on who is there, and on what waits."""
EVENT: Final = re.compile(r"([0-9a-f]{16})/[1-9][0-9]{0,15}")


class _State(msgspec.Struct, array_like=True):
    position: list[tuple[int, int, int]]
    objects: bytes
    rooms: list[RoomState]


class Guest:
    """A client of a room, as the hub knows it."""

    def __init__(self) -> None:
        self.name = ""
        self.wake = asyncio.Event()
        self.notes: dict[str, str] = {}
        """Words that are no events, by kind: a newer one replaces an older one."""
        self.ending: HangUp | None = None

    def note(self, kind: str, word: str) -> None:
        """Say this before the next event."""
        self.notes[kind] = word
        self.wake.set()

    def end(self, code: CloseCode, why: str) -> None:
        """Close its connection."""
        self.ending = self.ending or HangUp(code, why)
        self.wake.set()


class Hub:
    """`async with Hub(whence.join(..., order="reliable"), copies=2)`."""

    def __init__(self, joining: Join, copies: int) -> None:
        entry = self._entry = joining._entry
        if entry.config.order != "reliable":
            raise UsageError('rooms need order="reliable": whence.join(..., order="reliable")')
        if entry.state is not None or entry.restore is not None:
            raise UsageError("rooms give joiners their own state: join without state= and restore=")
        entry.state, entry.restore = self.state, self.restore
        self._joining = joining
        self._copies = copies
        self.cluster: Cluster
        self.objects = Objects(limit=OBJECT_BYTES)
        self.rooms: dict[str, Room] = {}
        self.guests: dict[str, dict[str, Guest]] = {}
        """Room -> client -> its connection."""
        self.position = Position()
        """What was read here."""
        self.read = self.committed = 0
        """Events read, and those of them that clients may have (rule 5 in `words`)."""
        self.why = ""
        """What publishing, or handing out, waits for."""
        self.failure: BaseException | None = None
        self._own: list[str] = []
        self._own_at = 0
        self._waiting_since = 0.0
        self._told = Signal()
        self._touched: set[str] = set()
        self._dirty: set[str] = set()
        self._publishing: dict[int, float] = {}
        self._calls = itertools.count()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.cluster = await self._stack.enter_async_context(self._joining)
        self._trace: Any = self._entry.writer or self._entry.trace
        self._publisher = await self._stack.enter_async_context(self.cluster.publisher())
        for work in (self._follow(), self._commit(), self._tick()):
            task = asyncio.create_task(self._run(work), name=f"rooms of {self.cluster.name}")
            self._stack.push_async_callback(_ended, task)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.close("this worker stops")
        await self._stack.aclose()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, ClusterClosed):
                log.exception("rooms: this worker cannot go on")
            self.failure = error
        self.close("this worker has left its cluster")

    def close(self, why: str) -> None:
        """End all connections."""
        for of in list(self.guests.values()):
            for guest in of.values():
                guest.end(CloseCode.LEAVING, why)

    @property
    def open(self) -> bool:
        """It serves clients."""
        return self.failure is None and hasattr(self, "_publisher") and self.cluster._node.open

    # -- reading ------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        events = self.cluster.events()
        while batch := await events.batch(16):
            for event in batch:
                self._take(event)
            if not self._own and not self._waiting_since:
                self._hand_out(self.read)
            self._told.tell()

    def _take(self, event: Event) -> None:
        frame = event.frame
        assert isinstance(frame, Frame)
        self.read += 1
        self.position.add(frame.ticket, frame.inc, event.seq)
        if event.origin == self.cluster.me:
            self._own_at = self._own_at or self.read
            self._own.append(event.id)
        said = said_in(event.payload)
        room = None if said is None else self.room(said.room, 2 * MAX_ROOMS)
        if said is None or room is None:
            return
        if not said.number:
            room.here(event.origin, said.name, said.user, said.data)
            self._dirty.add(room.name)
        elif room.take(as_event(event), said, self.read):
            self._touched.add(room.name)

    def room(self, name: str, most: int = MAX_ROOMS) -> Room | None:
        """The room of this name; None: there are too many."""
        if name not in self.rooms and len(self.rooms) < most:
            self.rooms[name] = Room(name, self.objects)
        return self.rooms.get(name)

    # -- rule 5 -------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        while True:
            await self._told.until(lambda: bool(self._own))
            ids, upto, self._own = self._own, self.read, []
            self._hand_out(self._own_at - 1)
            self._own_at, self._waiting_since = 0, time.monotonic()
            await self._held(ids)
            self._waiting_since = 0.0
            self._hand_out(upto if self._own else self.read)

    async def _held(self, ids: list[str]) -> None:
        """Wait until a second member holds these own events, unless there is none. A worker that hears no other one may
        be cut off: it is alone only if it decides who may publish."""
        while self._copies > 1 and (len(self.cluster.members()) > 1 or not self._decides()):
            try:
                await self.cluster._tickets.copied(ids, min(self._copies, max(2, len(self.cluster.members()))), HELD_S)
                return
            except TooFewCopies as error:
                if not error.copies:
                    return  # this member has forgotten them itself: so many came after them

    def _decides(self) -> bool:
        council = self.cluster.council
        return council is None or council.has_quorum

    def _hand_out(self, upto: int) -> None:
        """Clients may have what was read up to here."""
        self.committed = max(upto, self.committed)
        for name in list(self._touched):
            room = self.rooms[name]
            if room.show(upto):
                for guest in self.guests.get(name, {}).values():
                    guest.wake.set()
            if room.shown == room.end:
                self._touched.discard(name)
        self._told.tell()

    async def until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until it holds; whether it does. What was read, or may be handed out, changes it."""
        return await self._told.until(condition, None if timeout is None else time.monotonic() + timeout)

    async def publish(self, said: Spoken) -> None:
        """Publish for a client; returns when it has its place in the order."""
        call = next(self._calls)
        self._publishing[call] = time.monotonic()
        try:
            await self._publisher.publish(payload_of(said))
        finally:
            del self._publishing[call]

    # -- what clients are told besides events -----------------------------------------------------------------------

    def welcome(self, room: Room, guest: Guest) -> Callable[[], None]:
        """A client is there; an older connection of it ends. Returns what ends it."""
        mine = self.guests.setdefault(room.name, {})
        if (older := mine.get(guest.name)) is not None:
            older.end(CloseCode.REPLACED, "this client has connected again")
        mine[guest.name] = guest
        if room.present:
            guest.note("here", room.who(set(self.cluster.members())))

        def end() -> None:
            if mine.get(guest.name) is guest:
                del mine[guest.name]
            if not mine and self.guests.get(room.name) is mine:
                del self.guests[room.name]
                if room.fresh and not room.present:
                    self.rooms.pop(room.name, None)

        return end

    async def _tick(self) -> None:
        workers: set[str] = set()
        while True:
            await asyncio.sleep(TICK_S)
            before, workers = workers, set(self.cluster.members())
            dirty, self._dirty = self._dirty, set()
            for name in self.guests:
                if name in dirty or (before != workers and self.rooms[name].present):
                    self._tell([name], "here", self.rooms[name].who(workers))
            why = self._why(time.monotonic() - 2 * TICK_S)
            if why != self.why:
                self.why = why
                self._tell(list(self.guests), "why", text_of(t="why", why=why))

    def _tell(self, rooms: list[str], kind: str, word: str) -> None:
        for name in rooms:
            for guest in self.guests[name].values():
                guest.note(kind, word)

    def _why(self, before: float) -> str:
        """What has waited since then, and for what."""
        if self._publishing and next(iter(self._publishing.values())) < before:
            if not self.cluster.may_publish:
                return f"publishing waits for a ticket: {self.cluster._tickets.why_none()}"
            return "publishing waits for slow members, or for this worker to read"
        if self._waiting_since and self._waiting_since < before:
            return "events wait until a second member holds them"
        return ""

    # -- snapshots ----------------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """For a worker that joins."""
        rooms = [room for room in self.rooms.values() if not room.fresh or room.present]
        workers = set(self.cluster.members()) if hasattr(self, "cluster") else set()
        states = [room.state(STATE_LOG_BYTES // len(rooms), workers) for room in rooms]
        position = [(*tenure, seq) for tenure, seq in self.position.upto.items()]
        return msgspec.msgpack.encode(_State(position, self.objects.state(), states))

    def restore(self, state: bytes) -> None:
        """Go on from another worker's, or from the disk's."""
        if not state:
            return
        saved = msgspec.msgpack.decode(state, type=_State)
        self.close("this worker goes on from another one's state")
        self.objects.restore(saved.objects)
        self.position = Position({(ticket, inc): seq for ticket, inc, seq in saved.position})
        self.rooms = {room.name: Room.of(room, self.objects) for room in saved.rooms}

    # -- the trace ----------------------------------------------------------------------------------------------

    @property
    def traced(self) -> bool:
        """There is a trace, and clients are asked for their steps."""
        return self._trace is not None

    def wrote(self, room: Room, name: str, word: Rows) -> None:
        """Steps of a client, in the trace of `<cluster>/<room>`, whose members are the clients. It can speak of itself
        only; events are named by who published them."""
        node = self.cluster._node
        for lseq, ms, kind, what in word.r if self.traced else ():
            fields: dict[str, Any] = {}
            if kind == "join":
                fields = {"order": "reliable", "reason": "snapshot" if what else "genesis", "token": what or None}
            elif kind in ("publish", "deliver") and (found := EVENT.fullmatch(what)):
                fields = {"event": f"{found[1]}#1{what[16:]}", "origin": f"{found[1]}#1"}
            elif kind != "leave":
                raise HangUp(CloseCode.NONSENSE, f"not a step of a client: {kind[:20]!r} {what[:40]!r}")
            at = (f"{node.cluster}/{room.name}", f"{name}#1", lseq, int(min(ms, 1e13) * 1e6))
            self._trace.append(Row(node.run, *at, kind, **fields))
        getattr(self._trace, "flush", lambda: None)()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
