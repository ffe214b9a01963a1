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
from whence.live.web.room import Room, RoomState, checked_json
from whence.live.web.words import (
    Close,
    Closing,
    Operated,
    Position,
    Posted,
    Present,
    Rows,
    Said,
    checked_room,
    json,
    name_of,
    payload_of,
    said_in,
    text_of,
)

if TYPE_CHECKING:
    from whence.live.api import Cluster, Join
    from whence.live.events import Event

log = logging.getLogger("whence.live.web")

MAX_ROOMS: Final = 4096
ALL_LOGS_BYTES: Final = 64 << 20
"""Of the events that all rooms keep for clients; beyond, the oldest of all are dropped."""
OBJECT_BYTES: Final = 1 << 20
STATE_LOG_BYTES: Final = 512 << 10
"""Of the rooms' events that a worker which joins is given: as far back it can resume a cursor."""
HELD_S: Final = 0.25
"""Seconds to wait for a second member to hold an event, before others are asked."""
TICK_S: Final = 0.5
"""Seconds between two words on who is there, and on what waits."""
STEPS: Final = frozenset(("join", "publish", "deliver", "leave"))
"""Kinds of rows that a client may write."""
EVENT: Final = re.compile(r"[0-9a-f]{16}/[1-9][0-9]{0,15}")


class _State(msgspec.Struct, array_like=True):
    position: list[tuple[int, int, int]]
    objects: bytes
    rooms: list[RoomState]
    token: str


class Guest:
    """A client of a room, as the hub knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wake = asyncio.Event()
        self.notes: dict[str, str] = {}
        """Words that are no events, by kind: a newer one replaces an older one."""

    def note(self, kind: str, word: str) -> None:
        """Say this before the next event."""
        self.notes[kind] = word
        self.wake.set()

    def end(self, code: Close, why: str) -> None:
        """Close its connection."""
        raise NotImplementedError


class Hub:
    """`async with Hub(whence.join(..., order="reliable"))`."""

    def __init__(self, joining: Join, copies: int = 2) -> None:
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
        self.listeners: dict[str, dict[str, Guest]] = {}
        """Room -> client -> its connection."""
        self.position = Position()
        """What was read here."""
        self.read = self.committed = 0
        """Events read, and those of them that clients may have (rule 5 in `words`)."""
        self.why = ""
        """What publishing, or handing out, waits for."""
        self.failure: BaseException | None = None
        self.counts = {"web.events": 0, "web.copies": 0, "web.refused": 0, "web.trimmed": 0}
        self._own: list[str] = []
        self._own_at = 0
        self._waiting_since = 0.0
        self._told = Signal()
        self._touched: set[str] = set()
        self._dirty: set[str] = set()
        self._logged: list[str] = []
        self._log_bytes = 0
        self._numbers = itertools.count(1)
        self._publishing: dict[int, float] = {}
        self._calls = itertools.count()
        self._lseq: dict[str, int] = {}
        self._token = ""
        self._tokens = itertools.count(1)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.cluster = await self._stack.enter_async_context(self._joining)
        self._writer: Any = self._entry.writer or (self._entry.trace if self._entry.trace is not None else None)
        self._publisher = await self._stack.enter_async_context(self.cluster.publisher())
        for work in (self._follow(), self._commit(), self._tick(), self._watch()):
            task = asyncio.create_task(self._run(work), name=f"rooms of {self.cluster.name}")
            self._stack.push_async_callback(_ended, task)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.close(Close.LEAVING, "this worker stops")
        await self._stack.aclose()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ClusterClosed as error:
            self.failure = error
        except Exception as error:
            log.exception("rooms: this worker cannot go on")
            self.failure = error
        self.close(Close.LEAVING, "this worker has left its cluster")

    def close(self, code: Close, why: str) -> None:
        """End all connections."""
        for of in list(self.listeners.values()):
            for listener in list(of.values()):
                listener.end(code, why)

    @property
    def open(self) -> bool:
        """It serves clients."""
        return self.failure is None and hasattr(self, "_publisher") and self.cluster._node.open

    def _workers(self) -> set[str]:
        return set(self.cluster.members())

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
        if said is None:
            return
        room = self.room(said.room, 2 * MAX_ROOMS)
        if room is None:
            self.counts["web.refused"] += 1
        elif isinstance(said, Present):
            room.here(event.origin, said.name, said.user, said.data)
            self._dirty.add(room.name)
        else:
            self._posted(room, event, said)

    def _posted(self, room: Room, event: Event, said: Posted | Operated) -> None:
        first = said.number > room.last.get(said.name, 0)
        before = room.size
        entry = room.take(as_event(event), said, self.read)
        self.counts["web.events" if first else "web.copies"] += 1
        if first and self._writer is not None:
            if said.name == self.name:
                self._row(room.name, "publish", event=_event(said.name, said.number), origin=_member(said.name))
            self._row(room.name, "deliver", event=_event(said.name, said.number), origin=_member(said.name))
        if entry is None:
            return
        self._touched.add(room.name)
        self._logged.append(room.name)
        self._log_bytes += room.size - before
        while self._log_bytes > ALL_LOGS_BYTES and self._logged:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """The oldest entry of all rooms, as far as it is still there."""
        some, self._logged = self._logged[:256], self._logged[256:]
        for name in some:
            room = self.rooms.get(name)
            if room is not None and len(room.log) > 1:
                before = room.size
                room.drop(room.log.pop(0))
                room.base += 1
                self._log_bytes -= before - room.size
                self.counts["web.trimmed"] += 1

    def room(self, name: str, most: int = MAX_ROOMS) -> Room | None:
        """The room of this name; None: there are too many."""
        room = self.rooms.get(name)
        if room is None and len(self.rooms) < most:
            room = self.rooms[name] = Room(name, self.objects)
            self._lseq.setdefault(name, 0)
        return room

    # -- rule 5 -------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        while True:
            await self._told.until(lambda: bool(self._own))
            ids, upto, self._own = self._own, self.read, []
            self._hand_out(self._own_at - 1)
            self._own_at, self._waiting_since = 0, time.monotonic()
            await self._held(ids)
            self._waiting_since = 0.0
            if not self._own:
                upto = self.read
            self._hand_out(upto)

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
        if upto < self.committed:
            return
        self.committed = upto
        for name in list(self._touched):
            room = self.rooms[name]
            if room.show(upto):
                for listener in self.listeners.get(name, {}).values():
                    listener.wake.set()
            if room.shown == room.end:
                self._touched.discard(name)
        self._told.tell()

    async def shown(self, read: int) -> None:
        """Wait until clients may have all that was read by then."""
        await self._told.until(lambda: self.committed >= read)

    async def covers(self, cursor: Position, timeout: float) -> bool:
        """Rule 4."""
        return await self._told.until(lambda: self.position.covers(cursor), time.monotonic() + timeout)

    async def delivered(self, room: Room, name: str, number: int, timeout: float) -> bool:
        """Wait until this number of the client, or a later one, is delivered here."""
        return await self._told.until(lambda: room.last.get(name, 0) >= number, time.monotonic() + timeout)

    # -- publishing ---------------------------------------------------------------------------------------------

    async def publish(self, said: Said) -> None:
        """Publish for a client; returns when it has its place in the order."""
        call = next(self._calls)
        self._publishing[call] = time.monotonic()
        try:
            await self._publisher.publish(payload_of(said))
        finally:
            del self._publishing[call]

    @property
    def name(self) -> str:
        """This worker's own name as a client of its rooms."""
        return name_of("", self.cluster.me)

    async def post(self, room: str, value: object, user: str) -> None:
        """Publish an event of the application itself."""
        if (there := self.room(checked_room(room))) is None:
            raise UsageError(f"{MAX_ROOMS} rooms are too many")
        data = checked_json(msgspec.Raw(json(value)))
        await self.publish(Posted(there.name, self.name, user, next(self._numbers), data))

    # -- what clients are told besides events -----------------------------------------------------------------------

    def listen(self, room: Room, listener: Guest) -> Callable[[], None]:
        """A client is there; an older connection of it ends. Returns what ends it."""
        mine = self.listeners.setdefault(room.name, {})
        if (older := mine.get(listener.name)) is not None:
            older.end(Close.REPLACED, "this client has connected again")
        mine[listener.name] = listener
        if room.present:
            listener.note("here", room.who(self._workers()))

        def end() -> None:
            if mine.get(listener.name) is listener:
                del mine[listener.name]
            if not mine and self.listeners.get(room.name) is mine:
                del self.listeners[room.name]
                if room.fresh and not room.present:
                    self.rooms.pop(room.name, None)

        return end

    async def _watch(self) -> None:
        """A worker has come or gone, and its clients with it."""
        async for _ in self.cluster.changes():
            self._dirty |= {name for name, room in self.rooms.items() if room.present}

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            dirty, self._dirty = self._dirty, set()
            for name in dirty & self.listeners.keys():
                word = self.rooms[name].who(self._workers())
                for listener in self.listeners[name].values():
                    listener.note("here", word)
            why = self._why(time.monotonic() - 2 * TICK_S)
            if why != self.why:
                self.why = why
                word = text_of(t="why", why=why)
                for of in list(self.listeners.values()):
                    for listener in of.values():
                        listener.note("why", word)

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
        token = f"{self.cluster.me} {next(self._tokens)}" if hasattr(self, "cluster") else ""
        rooms = [room for room in self.rooms.values() if not room.fresh or room.present]
        for room in rooms:
            self._row(room.name, "snapshot", token=token)
        share = STATE_LOG_BYTES // max(1, len(rooms))
        workers = self._workers() if hasattr(self, "cluster") else set()
        position = [(*tenure, seq) for tenure, seq in self.position.upto.items()]
        states = [room.state(share, workers) for room in rooms]
        return msgspec.msgpack.encode(_State(position, self.objects.state(), states, token))

    def restore(self, state: bytes) -> None:
        """Go on from another worker's, or from the disk's."""
        if not state:
            return
        saved = msgspec.msgpack.decode(state, type=_State)
        self.close(Close.LEAVING, "this worker goes on from another one's state")
        self.objects.restore(saved.objects)
        self.position = Position({(ticket, inc): seq for ticket, inc, seq in saved.position})
        self.rooms = {room.name: Room.of(room, self.objects) for room in saved.rooms}
        self._logged = [room.name for room in self.rooms.values() for _ in room.log]
        self._log_bytes = sum(room.size for room in self.rooms.values())
        self._token = saved.token
        self._lseq = dict.fromkeys(self.rooms, -1)  # joins under the token

    # -- the trace ----------------------------------------------------------------------------------------------

    def _row(self, room: str, kind: str, **fields: Any) -> None:
        """A step of this worker in the room, as a member of it."""
        if getattr(self, "_writer", None) is None:
            return
        lseq = self._lseq.get(room, 0)
        if lseq <= 0:
            how = {"reason": "snapshot", "token": self._token or None} if lseq < 0 else {"reason": "genesis"}
            self._write(room, self.cluster.me, 0, "join", time.time_ns(), order="reliable", **how)
            lseq = 1
        self._write(room, self.cluster.me, lseq, kind, time.time_ns(), **fields)
        self._lseq[room] = lseq + 1

    def _write(self, room: str, member: str, lseq: int, kind: str, t_ns: int, **fields: Any) -> None:
        node = self.cluster._node
        self._writer.append(Row(node.run, f"{node.cluster}/{room}", member, lseq, t_ns, kind, **fields))

    @property
    def traced(self) -> bool:
        """There is a trace, and clients are asked for their steps."""
        return self._writer is not None

    def token(self, room: Room) -> str:
        """What a client joins under that gets the state of the room as it is now; empty: it begins with nothing."""
        if room.fresh or not self.traced:
            return ""
        token = f"{self.cluster.me} {next(self._tokens)}"
        self._row(room.name, "snapshot", token=token)
        return token

    def wrote(self, room: Room, name: str, word: Rows) -> None:
        """Steps of a client. It can speak of itself only; events are named by who published them."""
        for lseq, ms, kind, what in word.r if self.traced else ():
            if kind not in STEPS or not 0 <= ms < 1e14:
                raise Closing(Close.NONSENSE, f"not a step of a client: {kind!r}")
            fields: dict[str, Any] = {}
            if kind == "join":
                fields = {"order": "reliable", "reason": "snapshot" if what else "genesis", "token": what or None}
            elif kind != "leave":
                if not EVENT.fullmatch(what):
                    raise Closing(Close.NONSENSE, "a step of a client names an event as name/number")
                owner, _, number = what.partition("/")
                fields = {"event": f"{_member(owner)}/{number}", "origin": _member(owner)}
            self._write(room.name, _member(name), lseq, kind, int(ms * 1e6), **fields)
        flush = getattr(self._writer, "flush", None)
        if flush is not None:
            flush()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _member(name: str) -> str:
    """A client as a member of its room's trace: it has one life."""
    return f"{name}#1"


def _event(name: str, number: int) -> str:
    return f"{_member(name)}/{number}"
